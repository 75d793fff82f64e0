//! A Redis for comparison, or for checks of the tests' own tools.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::{Client, installed};

/// Redis on a free port, which ends with the test.
pub struct Redis {
    child: Child,
    pub address: SocketAddr,
}

impl Redis {
    /// Starts Redis; returns `None` with a note where Redis is not installed.
    pub fn start() -> Option<Redis> {
        Redis::with(&["--appendonly", "no"])
    }

    pub fn with(settings: &[&str]) -> Option<Redis> {
        if !installed("redis-server", &["--version"]) {
            return None;
        }
        // Another program may take the port before Redis does.
        Some((0..5).find_map(|_| Redis::try_start(settings)).expect("redis-server listens on one of five free ports"))
    }

    fn try_start(settings: &[&str]) -> Option<Redis> {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(settings)
            .stdout(Stdio::null());
        // SAFETY: prctl is async-signal-safe, and touches nothing of this process's memory.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let mut redis = Redis { child: command.spawn().unwrap(), address };
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            if redis.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(redis)
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Returns major and minor version.
    pub fn version(&self) -> (u32, u32) {
        let info = self.client().line("INFO server");
        let (_, behind) = info.split_once("redis_version:").expect("Redis says its version");
        let mut numbers = behind.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
