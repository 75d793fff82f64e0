//! Which threads go first where there are not enough cores.

/// The calling thread lets others go first, by this much in the kernel's terms (0 to 19). On Linux only: elsewhere it
/// would hold for the process.
pub fn step_back(nice: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
}
