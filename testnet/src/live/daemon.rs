//! One daemon: a child process that does not outlive its owner.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::namespace::{Endpoint, Namespace, Site};
use super::programs::program;
use super::resp::Connection;
use super::view::GroupView;

/// Time limit of an answer over HTTP.
const HTTP_MAX: Duration = Duration::from_secs(5);
/// Upper limit of an answer over HTTP, in bytes: a longer one is cut.
const HTTP_BYTES_MAX: u64 = 64 << 20;

/// Signals that a test sends to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The process dies at once: SIGKILL.
    Kill,
    /// The process is asked to stop: SIGTERM.
    Terminate,
    /// The process freezes: SIGSTOP.
    Freeze,
    /// The process goes on: SIGCONT.
    Thaw,
}

/// Line that a daemon prints when it serves.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ReadyLine {
    event: String,
    pub(crate) peer_id: String,
    listen: Vec<String>,
}

impl ReadyLine {
    /// Reads a line that a daemon printed; `None` if it does not say that the daemon serves.
    pub(crate) fn parse(line: &str) -> Option<ReadyLine> {
        serde_json::from_str(line).ok().filter(|line: &ReadyLine| line.event == "ready")
    }
}

/// Sends a request without a body, such as `GET /metrics`, over HTTP, and returns code and body of the answer, if there is one in time.
pub(crate) fn ask_over(
    mut stream: TcpStream,
    address: SocketAddr,
    request: &str,
    patience: Duration,
) -> Option<(u16, String)> {
    stream.set_read_timeout(Some(patience)).ok()?;
    write!(stream, "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.take(HTTP_BYTES_MAX).read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A daemon's answer to the request to leave for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The daemon has begun to leave; its process ends when that is over.
    Begun,
    /// The daemon refuses; the text tells why.
    Refused(String),
    /// The daemon does not know the request.
    Unknown,
    /// There was no answer: the daemon may have begun to leave.
    Unanswered,
}

/// A daemon and all that is needed to start it again.
#[derive(Debug)]
pub struct Daemon {
    /// Name for people.
    pub name: String,
    /// Directory of its data.
    pub directory: PathBuf,
    /// Its program, if not [`program`].
    pub program: Option<PathBuf>,
    /// Network namespace of its process, if not this process's own.
    pub namespace: Option<Namespace>,
    /// Address for clients.
    pub resp: SocketAddr,
    /// Address for administrators.
    pub http: SocketAddr,
    /// Listening address for peers, without the peer id.
    pub listen: String,
    /// Listening address for QUIC, if it listens by that.
    pub quic: Option<String>,
    /// Flags beside those for addresses and directories.
    pub flags: Vec<String>,
    /// Environment beside that of its owner.
    pub environment: Vec<(String, String)>,
    /// Its peer id, once the daemon has printed it.
    pub peer_id: Option<String>,
    starts: u32,
    running: Option<(Child, Receiver<String>)>,
    /// Whether the process that runs has printed that it serves.
    ready: bool,
}

/// Returns a port that is free now. It is not likely to be taken on this machine: systems take ports of connections from a higher
/// range, and other programs like this one begin their search elsewhere.
pub(crate) fn free_port() -> u16 {
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(199);
    for _ in 0..PORTS.len() {
        let place = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        let port = u16::try_from(PORTS.start + place).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("loopback has no free ports");
}

/// Lets the command's process end with the thread that starts it, at the latest.
pub(super) fn dies_with_owner(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe, and touches nothing of this process's memory.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

impl Daemon {
    /// Returns a daemon that has not been started, with its data in `directory`.
    pub fn new(name: &str, directory: PathBuf, network: &str) -> Daemon {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Daemon {
            name: name.to_owned(),
            directory,
            program: None,
            namespace: None,
            resp: local(free_port()),
            http: local(free_port()),
            listen: format!("/ip4/127.0.0.1/tcp/{}", free_port()),
            quic: None,
            flags: vec!["--network".into(), network.into()],
            environment: Vec::new(),
            peer_id: None,
            starts: 0,
            running: None,
            ready: false,
        }
    }

    /// Returns a daemon at a site of [`Wires`](super::Wires), which has not been started.
    pub(crate) fn on_site(name: &str, directory: PathBuf, network: &str, site: &Site) -> Daemon {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut daemon = Daemon::new(name, directory, network);
        daemon.namespace = Some(site.namespace.clone());
        (daemon.resp, daemon.http) = (local(6479), local(6480));
        daemon.listen = format!("/ip4/{}/tcp/6478", site.address);
        daemon
    }

    /// Returns a daemon that was never started, at the same addresses and with the same settings as this one, and with nothing in
    /// its `directory`.
    pub fn renewed(&self, name: &str, directory: PathBuf) -> Daemon {
        Daemon {
            name: name.to_owned(),
            directory,
            program: self.program.clone(),
            namespace: self.namespace.clone(),
            listen: self.listen.clone(),
            quic: self.quic.clone(),
            flags: self.flags.clone(),
            environment: self.environment.clone(),
            peer_id: None,
            resp: self.resp,
            http: self.http,
            starts: 0,
            running: None,
            ready: false,
        }
    }

    /// Returns its endpoint for clients, with its namespace.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.resp, namespace: self.namespace.clone() }
    }

    /// Lets it listen by QUIC, too, at the same port.
    pub(crate) fn listen_by_quic(&mut self) {
        let (ip, port) = self.listen.split_once("/tcp/").expect("it listens by TCP");
        self.quic = Some(format!("{ip}/udp/{port}/quic-v1"));
    }

    /// Returns the address through which other daemons enter.
    pub fn entry(&self) -> String {
        self.entries().remove(0)
    }

    /// Returns all addresses through which other daemons enter.
    pub fn entries(&self) -> Vec<String> {
        let peer = self.peer_id.as_deref().expect("it has said who it is");
        std::iter::once(&self.listen).chain(&self.quic).map(|address| format!("{address}/p2p/{peer}")).collect()
    }

    /// Returns its program as a command in its namespace, without settings that are meant for a person's own peer.
    fn scatter(&self) -> Command {
        let mut command = Command::new(self.program.as_deref().unwrap_or_else(|| program()));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SCATTER_") {
                command.env_remove(name);
            }
        }
        if let Some(namespace) = &self.namespace {
            namespace.put(&mut command);
        }
        command
    }

    /// Starts the daemon. Its process ends with the thread that starts it, at the latest.
    pub fn start(&mut self, more: &[String]) {
        assert!(self.running.is_none(), "{} runs", self.name);
        std::fs::create_dir_all(&self.directory).expect("a place for data");
        self.starts += 1;
        let log = File::create(self.log()).expect("a place for the log");
        let mut command = self.scatter();
        command
            .arg("run")
            .arg("--data-dir")
            .arg(&self.directory)
            .args(["--listen", &self.listen, "--output", "json"])
            .args(self.quic.iter().flat_map(|address| ["--listen", address]))
            .args(["--resp", &self.resp.to_string(), "--http", &self.http.to_string()])
            .args(&self.flags)
            .args(more)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        dies_with_owner(&mut command);
        let mut child = command.spawn().expect("the daemon can be started");
        let stdout = child.stdout.take().expect("it is a pipe");
        #[expect(clippy::disallowed_methods, reason = "a daemon must not wait for a reader of its lines")]
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // Reads on without a receiver, so that the daemon never blocks.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        (self.running, self.ready) = (Some((child, lines)), false);
    }

    /// Waits until the daemon prints that it serves.
    ///
    /// # Errors
    /// How its process ended instead, with the end of its log.
    pub fn wait_ready(&mut self, at_most: Duration) -> Result<(), String> {
        let until = Instant::now() + at_most;
        while !self.is_ready() {
            let (_, lines) = self.running.as_ref().ok_or("it was not started")?;
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.read(&line),
                Err(RecvTimeoutError::Timeout) => return Err(self.story(&format!("is not ready after {at_most:?}"))),
                Err(RecvTimeoutError::Disconnected) => return Err(self.story("ended before it was ready")),
            }
        }
        Ok(())
    }

    /// Returns whether its process runs and has printed that it serves.
    pub fn is_ready(&mut self) -> bool {
        let next = |daemon: &Daemon| daemon.running.as_ref().and_then(|(_, lines)| lines.try_recv().ok());
        while !self.ready
            && let Some(line) = next(self)
        {
            self.read(&line);
        }
        self.running.is_some() && self.ready
    }

    /// Takes in a line that it printed.
    fn read(&mut self, line: &str) {
        let Some(line) = ReadyLine::parse(line) else { return };
        let ways = 1 + usize::from(self.quic.is_some());
        assert_eq!(line.listen.len(), ways, "{} listens at {:?}", self.name, line.listen);
        (self.ready, self.peer_id) = (true, Some(line.peer_id));
    }

    /// Returns the next line that it prints, if one comes within this time.
    pub fn next_line(&self, at_most: Duration) -> Option<String> {
        let (_, lines) = self.running.as_ref()?;
        lines.recv_timeout(at_most).ok()
    }

    /// Returns a client command for this daemon.
    pub fn client(&self, arguments: &[&str]) -> Command {
        let (resp, http) = (self.resp.to_string(), self.http.to_string());
        let mut command = self.scatter();
        command.args(arguments).env("SCATTER_ADDR", resp).env("SCATTER_HTTP", http).stdin(Stdio::null());
        command
    }

    /// Runs a client command for this daemon, until the command ends.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.client(arguments).output().expect("the program can be started")
    }

    /// Returns its process id, if the process runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|(child, _)| child.id())
    }

    /// Sends its process a signal, if the process runs. A killed process is gone when this returns; a frozen one does nothing more.
    pub fn signal(&mut self, signal: Signal) {
        let Some((child, _)) = &mut self.running else { return };
        let number = match signal {
            Signal::Kill => libc::SIGKILL,
            Signal::Terminate => libc::SIGTERM,
            Signal::Freeze => libc::SIGSTOP,
            Signal::Thaw => libc::SIGCONT,
        };
        let pid = libc::pid_t::try_from(child.id()).expect("a process id");
        // SAFETY: kill takes no pointers; the child has not been waited for, so its id is still its own.
        unsafe { libc::kill(pid, number) };
        match signal {
            Signal::Kill => {
                let _ = child.wait();
                self.running = None;
            }
            // The threads stop one after the other, on a busy machine some milliseconds later.
            Signal::Freeze => wait_stopped(child.id()),
            Signal::Terminate | Signal::Thaw => {}
        }
    }

    /// Returns its exit status, if its process ends within this time.
    pub fn wait_end(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + at_most;
        loop {
            let (child, _) = self.running.as_mut()?;
            if let Some(status) = child.try_wait().expect("a child can be asked") {
                self.running = None;
                return Some(status);
            }
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns whether its process runs.
    pub fn is_running(&mut self) -> bool {
        self.wait_end(Duration::ZERO);
        self.running.is_some()
    }

    /// Returns the memory that its process holds, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.pid().and_then(load::resident_bytes).unwrap_or(0)
    }

    /// Returns the answer at a path of its HTTP endpoint, if there is one within some seconds.
    pub fn ask_http(&self, path: &str) -> Option<serde_json::Value> {
        self.http(&format!("GET {path}"))
    }

    /// Returns the answer to a request without a body, of this method and path.
    pub fn http(&self, request: &str) -> Option<serde_json::Value> {
        let (_, body) = self.request(request)?;
        serde_json::from_str(&body).ok()
    }

    /// Returns code and body of the answer to a request without a body, if there is one within some seconds.
    fn request(&self, request: &str) -> Option<(u16, String)> {
        let endpoint = Endpoint { address: self.http, namespace: self.namespace.clone() };
        ask_over(endpoint.stream(HTTP_MAX).ok()?, self.http, request, HTTP_MAX)
    }

    /// Asks it to leave its network for good, and does not wait until it has left.
    pub fn leave(&self) -> Leave {
        match self.request("POST /v1/leave") {
            Some((202, _)) => Leave::Begun,
            Some((404 | 405, _)) => Leave::Unknown,
            Some((_, why)) => Leave::Refused(why),
            None => Leave::Unanswered,
        }
    }

    /// Returns its view of its group, if it is in one.
    pub fn view(&self) -> Option<GroupView> {
        let group = self.ask_http("/v1/status")?["groups"].get_mut(0)?.take();
        serde_json::from_value(group).ok()
    }

    /// Returns the peer ids of its group's voting members that are well, once its epoch is established.
    pub fn members(&self) -> Option<Vec<String>> {
        let view = self.view().filter(|view| view.established)?;
        Some(view.voters().map(str::to_owned).collect())
    }

    /// Returns the time that its process had on a processor since it started.
    pub fn cpu_time(&self) -> Duration {
        self.pid().and_then(load::cpu_time).map(|time| time.total()).unwrap_or_default()
    }

    /// Connects a client.
    ///
    /// # Errors
    /// No connection within `patience`.
    pub fn connect(&self, patience: Duration) -> std::io::Result<Connection> {
        self.endpoint().connect(patience)
    }

    fn log(&self) -> PathBuf {
        self.directory.with_extension(format!("{}.log", self.starts))
    }

    /// Returns the text that it wrote to stderr since its last start.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn story(&self, what: &str) -> String {
        let log = self.log_text();
        let lines: Vec<&str> = log.lines().collect();
        format!("{} {what}; the end of its log:\n{}", self.name, lines[lines.len().saturating_sub(20)..].join("\n"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(Signal::Kill);
    }
}

/// Waits until all threads of a child have stopped, or it has ended; the child must still be waited for then.
fn wait_stopped(pid: u32) {
    loop {
        // SAFETY: all bytes zero are a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: waitid writes to `info` alone, which outlives the call.
        let done = unsafe { libc::waitid(libc::P_PID, pid, &mut info, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT) };
        if done == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}
