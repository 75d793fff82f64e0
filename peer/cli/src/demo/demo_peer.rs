//! One peer of the demo: its files and ports, its start, and its readiness.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use store::{Disk as _, RealDisk};

use peer::machine::store_dir;

/// Upper limit of the time in which a peer starts to serve.
const START_MAX: Duration = Duration::from_secs(60);
/// Lower limit of members in the demo's groups: small, so that few peers make several groups.
pub const GROUP_MIN: usize = 3;
/// Upper limit of members; see [`GROUP_MIN`].
pub const GROUP_MAX: usize = 5;
/// Attempts to start on free ports: a port that was free when it was chosen may be taken when the peer binds it.
const ATTEMPTS: u32 = 3;

/// One peer of the demo.
pub struct DemoPeer {
    /// Name of the peer: its `--name`.
    pub name: String,
    /// Arguments by which it enters the network.
    pub enter: Vec<String>,
    /// File with its log.
    pub log: PathBuf,
    /// Process of the peer, until its end is noticed.
    pub child: Option<Child>,
    home: PathBuf,
    network: String,
    /// Whether it takes the default ports of client commands, if they are free.
    usual_ports: bool,
    ports: Ports,
    out: Option<mpsc::Receiver<String>>,
    /// Address at which other peers enter the network through it, once it serves.
    address: Option<String>,
}

/// Addresses of a peer on loopback.
#[derive(Clone, Copy, Debug)]
struct Ports {
    listen: SocketAddr,
    resp: SocketAddr,
    http: SocketAddr,
}

/// Line that a peer prints when it begins to serve.
#[derive(serde::Deserialize)]
struct ReadyLine {
    listen: Vec<String>,
}

impl ReadyLine {
    fn on_loopback(self) -> Option<String> {
        let on_loopback = self.listen.iter().position(|listen| listen.starts_with("/ip4/127.0.0.1/"));
        self.listen.into_iter().nth(on_loopback.unwrap_or(0))
    }
}

impl DemoPeer {
    /// Returns the peer of this number, not started yet.
    pub fn new(index: usize, directory: &Path, network: &str) -> DemoPeer {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        DemoPeer {
            name: format!("peer-{}", index + 1),
            enter: Vec::new(),
            log: directory.join(format!("peer-{}.log", index + 1)),
            child: None,
            home: directory.join(format!("peer-{}", index + 1)),
            network: network.to_owned(),
            usual_ports: index == 0,
            ports: Ports { listen: nowhere, resp: nowhere, http: nowhere },
            out: None,
            address: None,
        }
    }

    /// Returns its address for clients.
    pub fn resp(&self) -> SocketAddr {
        self.ports.resp
    }

    /// Returns its HTTP address.
    pub fn http(&self) -> SocketAddr {
        self.ports.http
    }

    /// Returns the command line that starts it again at the same place.
    pub fn command_line(&self, program: &Path) -> String {
        let words = std::iter::once(program.display().to_string()).chain(self.arguments());
        words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    }

    fn arguments(&self) -> Vec<String> {
        let Ports { listen, resp, http } = self.ports;
        let mut arguments: Vec<String> = vec!["run".into()];
        for (flag, value) in [
            ("--data-dir", self.home.display().to_string()),
            ("--network", self.network.clone()),
            ("--listen", format!("/ip4/127.0.0.1/tcp/{}", listen.port())),
            ("--resp", resp.to_string()),
            ("--http", http.to_string()),
            ("--name", self.name.clone()),
            ("--cluster", self.name.clone()),
            ("--min-group", GROUP_MIN.to_string()),
            ("--max-group", GROUP_MAX.to_string()),
        ] {
            arguments.extend([flag.to_owned(), value]);
        }
        arguments.extend(self.enter.iter().cloned());
        arguments
    }

    /// Starts its process on free ports.
    ///
    /// # Errors
    ///
    /// A text for the user; no process runs then.
    pub fn start(&mut self, program: &Path) -> Result<(), String> {
        self.ports = free_ports(self.usual_ports).map_err(|error| format!("cannot start {}: {error}", self.name))?;
        self.start_again(program)
    }

    /// Starts its process at its former addresses, with its data on disk.
    ///
    /// # Errors
    ///
    /// A text for the user; no process runs then.
    pub fn start_again(&mut self, program: &Path) -> Result<(), String> {
        let problem = |name: &str, error: std::io::Error| format!("cannot start {name}: {error}");
        let log = std::fs::File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(|error| problem(&self.name, error))?;
        let mut command = Command::new(program);
        command
            .args(self.arguments())
            .args(["--output", "json", "--stop-with-stdin"])
            // Pipe that the peer watches: this end closes when this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        for (name, _) in std::env::vars_os() {
            // Settings meant for a peer of the user's own.
            if name.to_string_lossy().starts_with("SCATTER_") {
                command.env_remove(name);
            }
        }
        // An interrupt at the terminal is for the demo, which stops its peers.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| problem(&self.name, error))?;
        // Only the first line is needed.
        let (sender, out) = mpsc::sync_channel(1);
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Read on after the first line, so that the peer never blocks.
                    let _ = sender.try_send(line);
                }
            });
        }
        self.child = Some(child);
        self.out = Some(out);
        self.address = None;
        Ok(())
    }

    /// Returns the address at which other peers enter the network through it, if it serves.
    pub fn address(&mut self) -> Option<String> {
        if self.address.is_none()
            && self.child.is_some()
            && let Some(Ok(line)) = self.out.as_ref().map(mpsc::Receiver::try_recv)
        {
            self.address = serde_json::from_str(&line).ok().and_then(|ready: ReadyLine| ready.on_loopback());
        }
        self.address.clone().filter(|_| self.child.is_some())
    }

    /// Waits until it serves, on other ports if need be, and returns an address to enter the network through.
    ///
    /// # Errors
    ///
    /// The problem and the end of its log, where it ends or does not serve in time.
    pub async fn ready(&mut self, program: &Path) -> Result<String, String> {
        let mut attempt = 1;
        let line = loop {
            match self.first_line().await {
                Some(line) => break line,
                None if attempt < ATTEMPTS && self.has_ended() => {
                    attempt += 1;
                    self.usual_ports = false;
                    self.start(program)?;
                }
                None => return Err(self.problem("does not serve")),
            }
        };
        let ready: ReadyLine = serde_json::from_str(&line).map_err(|_| self.problem("printed something else"))?;
        self.address = ready.on_loopback();
        self.address.clone().ok_or_else(|| self.problem("has no address"))
    }

    /// Returns the first line that it prints, or `None` if it ends before or takes too long.
    async fn first_line(&self) -> Option<String> {
        let until = Instant::now() + START_MAX;
        let out = self.out.as_ref()?;
        loop {
            match out.try_recv() {
                Ok(line) => return Some(line),
                Err(mpsc::TryRecvError::Disconnected) => {
                    // Its output has ended, so the process ends soon.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    return None;
                }
                Err(mpsc::TryRecvError::Empty) if Instant::now() > until => return None,
                Err(mpsc::TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Returns whether it has ended, most likely because a port was taken meanwhile.
    fn has_ended(&mut self) -> bool {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => false,
            _ => {
                self.child = None;
                true
            }
        }
    }

    /// Returns whether a process works on its data on disk: this demo's, or one that was started by hand. After its end any
    /// other program may answer at its port.
    pub fn is_at_work(&self) -> bool {
        let store = store_dir(&self.home);
        store.is_dir() && RealDisk::new(store).is_ok_and(|disk| matches!(disk.lock(), Ok(None)))
    }

    fn last_of_log(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    fn problem(&self, what: &str) -> String {
        format!("{} {what}; the end of its log:\n{}", self.name, self.last_of_log())
    }
}

/// Returns three free ports on loopback.
fn free_ports(usual: bool) -> std::io::Result<Ports> {
    let hold = |wanted: u16| {
        let wanted = if usual { wanted } else { 0 };
        TcpListener::bind(("127.0.0.1", wanted)).or_else(|_| TcpListener::bind(("127.0.0.1", 0)))
    };
    // Held until all are chosen, so that none is chosen twice.
    let (listen, resp, http) = (hold(6478)?, hold(6479)?, hold(6480)?);
    Ok(Ports { listen: listen.local_addr()?, resp: resp.local_addr()?, http: http.local_addr()? })
}

/// Returns a word in quotes that a shell removes again.
pub fn quoted(word: &str) -> String {
    if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:,=@%+".contains(&byte)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in ["", "a b", "it's", "$HOME", "/ip4/127.0.0.1/tcp/1", "*"] {
            let out = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(word))).output().unwrap();
            assert_eq!(out.stdout, word.as_bytes());
        }
    }

    #[test]
    fn who_works_on_its_store_is_at_work() {
        let directory = tempfile::tempdir().unwrap();
        let peer = DemoPeer::new(0, directory.path(), "demo");
        assert!(!peer.is_at_work(), "it was never started");
        let disk = RealDisk::new(store_dir(&peer.home)).unwrap();
        let held = disk.lock().unwrap().unwrap();
        assert!(peer.is_at_work());
        drop(held);
        assert!(!peer.is_at_work());
    }

    #[test]
    fn ports_are_all_different() {
        let Ports { listen, resp, http } = free_ports(false).unwrap();
        assert!(listen != resp && resp != http && http != listen);
    }
}
