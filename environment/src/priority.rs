//! Priority of threads where there are not enough cores.

/// Lowers the priority of the calling thread by this nice value (0 to 19). On Linux only: elsewhere it would hold for
/// the process.
pub fn step_back(nice: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
}
