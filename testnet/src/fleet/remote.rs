//! Commands on a host: one script for all kinds of hosts, run by a shell here, in a network namespace, or over `ssh`.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::inventory::{HostEntry, HostKind};

/// The script that each command runs. Its first argument is the directory on the host, its second the operation.
const SCRIPT: &str = include_str!("host.sh");
/// Exit code of `ssh` where it could not connect.
const SSH_FAILED: i32 = 255;
/// Time for which `ssh` tries to connect, in seconds.
const CONNECT_MAX: &str = "10";
/// Time limit of an operation that has none of its own.
pub(super) const OPERATION_MAX: Duration = Duration::from_secs(60);
/// Interval at which a command that runs is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Upper limit of the lines of an error that are shown.
const LINES_MAX: usize = 5;

/// A host, and how commands reach it.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) entry: HostEntry,
    /// Directory on the host, absolute or below the home directory.
    pub(super) directory: PathBuf,
}

/// Failure of a command on a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host {host}: {why}")]
pub struct HostError {
    /// Name of the host.
    pub host: String,
    /// Reason, for a person.
    pub why: String,
}

/// Input of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Feed<'a> {
    Nothing,
    File(&'a Path),
}

impl Remote {
    /// Returns the host's name.
    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    /// Returns an error of this host.
    pub(super) fn error(&self, why: impl Into<String>) -> HostError {
        HostError { host: self.entry.name.clone(), why: why.into() }
    }

    /// Returns the command that runs an operation of the script on the host.
    pub(super) fn command(&self, operation: &str, arguments: &[String]) -> Command {
        let directory = self.directory.display().to_string();
        let words =
            ["sh", "-c", SCRIPT, "sh", &directory, operation].into_iter().chain(arguments.iter().map(String::as_str));
        // Files of a namespace's peers lie on this machine: only what needs its addresses is run inside.
        let is_inside = ["survey", "start", "work", "run"].contains(&operation);
        match self.entry.kind {
            HostKind::Netns if is_inside => {
                let namespace = self.entry.netns.as_deref().unwrap_or_default();
                program(["ip", "netns", "exec", namespace].into_iter().chain(words))
            }
            HostKind::Local | HostKind::Netns => program(words),
            HostKind::Ssh => {
                let mut ssh = Command::new("ssh");
                ssh.args(["-T", "-o", "BatchMode=yes", "-o", &format!("ConnectTimeout={CONNECT_MAX}")]);
                ssh.args(&self.entry.ssh_options).arg("--").arg(self.entry.ssh.as_deref().unwrap_or_default());
                ssh.arg(words.map(quoted).collect::<Vec<_>>().join(" "));
                ssh
            }
        }
    }

    /// Runs an operation of the script, and returns its output.
    ///
    /// # Errors
    /// The host cannot be reached, the operation failed, or it took longer than `at_most`; it may have done a part of its work then.
    pub(super) fn call(
        &self,
        operation: &str,
        arguments: &[String],
        feed: Feed<'_>,
        at_most: Duration,
    ) -> Result<String, HostError> {
        let bytes = self.call_bytes(operation, arguments, feed, at_most)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Runs an operation of the script, and returns its output as bytes.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub(super) fn call_bytes(
        &self,
        operation: &str,
        arguments: &[String],
        feed: Feed<'_>,
        at_most: Duration,
    ) -> Result<Vec<u8>, HostError> {
        let mut command = self.command(operation, arguments);
        let input = match feed {
            Feed::Nothing => Stdio::null(),
            Feed::File(path) => match std::fs::File::open(path) {
                Ok(file) => file.into(),
                Err(error) => return Err(self.error(format!("{}: {error}", path.display()))),
            },
        };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|error| self.error(format!("cannot run {}: {error}", command.get_program().to_string_lossy())))?;
        let (status, output, errors) = finish(child, at_most).map_err(|error| self.error(error.to_string()))?;
        match status {
            None => Err(self.error(format!("{operation} took longer than {at_most:?}"))),
            Some(status) if status.success() => Ok(output),
            Some(status) => Err(self.error(self.reason(operation, status, &errors))),
        }
    }

    fn reason(&self, operation: &str, status: ExitStatus, errors: &[u8]) -> String {
        let text = String::from_utf8_lossy(errors);
        let lines: Vec<&str> = text.trim().lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_MAX)..].join("; ");
        match (self.entry.kind, status.code()) {
            (HostKind::Ssh, Some(SSH_FAILED)) => format!(
                "ssh cannot connect to {}: {last} (try: ssh {} true)",
                self.entry.ssh.as_deref().unwrap_or_default(),
                self.entry.ssh.as_deref().unwrap_or_default()
            ),
            (HostKind::Netns, Some(1)) if last.contains("Cannot open network namespace") => {
                format!(
                    "there is no network namespace {}: see `ip netns list`",
                    self.entry.netns.as_deref().unwrap_or_default()
                )
            }
            _ if last.is_empty() => format!("{operation} failed: {status}"),
            _ => last,
        }
    }
}

fn program<'a>(mut words: impl Iterator<Item = &'a str>) -> Command {
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Quotes a word for a POSIX shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Waits for a process, with all that it prints. Kills it after `at_most`; the status is `None` then.
fn finish(mut child: Child, at_most: Duration) -> std::io::Result<(Option<ExitStatus>, Vec<u8>, Vec<u8>)> {
    let (mut output, mut errors) = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        output.as_mut().map(|output| output.read_to_end(&mut bytes));
        bytes
    });
    let error_reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        errors.as_mut().map(|errors| errors.read_to_end(&mut bytes));
        bytes
    });
    let until = Instant::now() + at_most;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    Ok((status, reader.join().unwrap_or_default(), error_reader.join().unwrap_or_default()))
}
