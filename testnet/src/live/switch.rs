//! Switches in software and their controllers, as child processes that do not outlive their owner.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cluster::Cluster;
use super::daemon::{Daemon, dies_with_owner, free_port};
use super::programs::{build, named};

/// Returns the switch's program: `SCATTER_SWITCH_BIN`, or one that is built beside this test.
pub fn switch_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| named("SCATTER_SWITCH_BIN").unwrap_or_else(|| build("switch", "scatter-switch", false)))
}

/// Returns the switch's program with full optimization, if it has to be built.
pub fn fast_switch_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| named("SCATTER_SWITCH_BIN").unwrap_or_else(|| build("switch", "scatter-switch", true)))
}

/// A program, running or not.
#[derive(Debug)]
struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    starts: u32,
    running: Option<Child>,
}

impl Process {
    fn start(&mut self) {
        assert!(self.running.is_none(), "it runs");
        self.starts += 1;
        let log = self.log.with_extension(format!("{}.log", self.starts));
        let log = File::create(log).expect("a place for the log");
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        dies_with_owner(&mut command);
        self.running = Some(command.spawn().expect("it can be started"));
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            // It may have ended by itself; after the wait it is gone in either case.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A switch in software.
#[derive(Debug)]
pub struct SoftSwitch {
    /// Address for packets.
    pub packets: SocketAddr,
    /// Address for its controllers.
    pub p4runtime: SocketAddr,
    process: Process,
}

impl SoftSwitch {
    /// Returns a switch that is not started yet, with its logs at `log`.
    pub fn new(program: &Path, log: &Path) -> SoftSwitch {
        let local = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (packets, p4runtime) = (local(), local());
        let arguments = ["soft", "--listen", &packets.to_string(), "--p4runtime", &p4runtime.to_string()];
        let arguments = arguments.map(str::to_owned).to_vec();
        let (program, log) = (program.to_owned(), log.to_owned());
        SoftSwitch { packets, p4runtime, process: Process { program, arguments, log, starts: 0, running: None } }
    }

    /// Starts the switch, without any state of an earlier life.
    pub fn start(&mut self) {
        self.process.start();
    }

    /// Kills the switch.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

/// The controller of a switch.
#[derive(Debug)]
pub struct Control(Process);

impl Control {
    /// Returns a controller for this switch and the groups of these daemons, which is not started yet.
    pub fn new(program: &Path, log: &Path, switch: &SoftSwitch, daemons: &[Daemon]) -> Control {
        let groups: Vec<String> = daemons.iter().map(|daemon| daemon.http.to_string()).collect();
        let target = format!("http://{}", switch.p4runtime);
        let arguments = ["control", "--target", &target, "--groups", &groups.join(",")].map(str::to_owned).to_vec();
        Control(Process { program: program.to_owned(), arguments, log: log.to_owned(), starts: 0, running: None })
    }

    /// Starts the controller.
    pub fn start(&mut self) {
        self.0.start();
    }

    /// Kills the controller.
    pub fn kill(&mut self) {
        self.0.kill();
    }
}

impl Daemon {
    /// Returns the daemon's report of its switch.
    pub fn offload(&self) -> Option<Value> {
        self.ask_http("/v1/offload")
    }

    /// Returns the lowest switch id under which members may answer reads of all the daemon's own parts, if they may in each of its
    /// groups.
    pub fn granted(&self) -> Option<u64> {
        let said = self.offload()?;
        let groups = said["groups"].as_array()?;
        let own = groups.iter().filter(|group| {
            let parts = group["parts"].as_array().into_iter().flatten();
            parts.into_iter().any(|part| part["primary"] == said["peer_id"])
        });
        let granted: Option<Vec<u64>> = own.map(|group| group["granted"].as_u64()).collect();
        granted?.into_iter().min()
    }

    /// Returns the number of spread reads that the daemon has answered alone since its start.
    pub fn answered_alone(&self) -> u64 {
        let of = |said: Value| said["endpoints"][0]["reads"]["alone"].as_u64();
        self.offload().and_then(of).unwrap_or(0)
    }
}

impl Cluster {
    /// Waits until members may answer reads of all parts, and returns the switch ids.
    ///
    /// # Errors
    /// The last reports of the daemons, if they do not offload within `at_most`.
    pub fn wait_offloaded(&self, which: &[usize], at_most: Duration) -> Result<Vec<u64>, String> {
        let until = Instant::now() + at_most;
        loop {
            let granted: Option<Vec<u64>> = which.iter().map(|index| self.daemons[*index].granted()).collect();
            match granted {
                Some(granted) => return Ok(granted),
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
                None => {
                    let said: Vec<_> = which.iter().map(|index| self.daemons[*index].offload()).collect();
                    return Err(format!("no offload after {at_most:?}: {said:?}"));
                }
            }
        }
    }
}
