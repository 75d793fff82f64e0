//! The program around a map in memory (the example `stand_in`), run as users and scripts run it.
#![allow(dead_code, missing_docs, reason = "each test uses its own part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Returns the path of the stand-in, which cargo builds beside the tests.
pub fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push("examples/stand_in");
    assert!(path.exists(), "not built: run cargo build -p cli --example stand_in");
    path
}

pub fn command(arguments: &[&str]) -> Command {
    run(program(), arguments)
}

/// Returns the program itself, with a node inside.
pub fn real(arguments: &[&str]) -> Command {
    run(PathBuf::from(env!("CARGO_BIN_EXE_scatter")), arguments)
}

fn run(program: PathBuf, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // Data of a peer that the tests' user runs must not affect them.
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-data"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SCATTER_") {
            command.env_remove(name);
        }
    }
    command
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits for the end. Returns the exit code and the time it took.
pub fn end(child: &mut Child, at_most: Duration) -> (Option<i32>, Duration) {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (status.code(), started.elapsed());
        }
        assert!(started.elapsed() < at_most, "still runs after {at_most:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running `scatter run`.
pub struct Peer {
    pub child: Child,
    pub out: BufReader<ChildStdout>,
    pub resp: String,
    pub http: String,
}

impl Peer {
    pub fn start(more: &[&str]) -> Peer {
        Peer::with(command(&["run", "--new", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]), more)
    }

    pub fn with(mut command: Command, more: &[&str]) -> Peer {
        let mut child =
            command.args(["--output", "json"]).args(more).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        let address = |name: &str| ready[name].as_str().unwrap_or("off").to_owned();
        Peer { resp: address("resp"), http: address("http"), child, out }
    }

    /// Runs one client command against it.
    pub fn run(&self, arguments: &[&str]) -> Output {
        command(arguments).env("SCATTER_ADDR", &self.resp).env("SCATTER_HTTP", &self.http).output().unwrap()
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        http(&self.http, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn http(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, answer)
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
pub fn ends(output: &Output, code: i32, out: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), out, "{errors}");
}
