//! A running program of the zoo, which does not outlive the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Longest silence of a program; a longer one is a failure.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running program and its output.
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    /// Starts a program. Its standard error is the test's own.
    pub fn start(command: &[String], arguments: &[&str]) -> Program {
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own, so that what it has started ends with it.
        program.process_group(0);
        // SAFETY: prctl is async-signal-safe, and touches nothing of this process's memory.
        unsafe {
            program.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut child = program.spawn().unwrap_or_else(|error| panic!("{}: {error}", command[0]));
        let stdout = child.stdout.take().expect("it is a pipe");
        #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Program { child, lines }
    }

    /// Returns the next line of the program's output, or `None` where the program has ended.
    pub fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("it says nothing for {PATIENCE:?}"),
        }
    }

    /// Asserts that the next line is this one.
    pub fn expect(&self, wanted: &str) {
        let line = self.line();
        assert_eq!(line.as_deref(), Some(wanted));
    }

    /// Sends a line to the program.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is a pipe");
        writeln!(stdin, "{line}").expect("it listens");
    }

    /// Returns all further lines until the program ends.
    pub fn rest(self) -> Vec<String> {
        let since = Instant::now();
        let lines = std::iter::from_fn(|| self.line()).collect();
        assert!(since.elapsed() < PATIENCE, "it does not end");
        lines
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: kill takes no pointers; the child has not been waited for, so its group's id is still its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}
