//! The state of a laboratory on this machine: a directory with the plan, a list of everything that was made, and the control socket.
//!
//! Each entry of the list is written *before* the thing is made. So a builder that is killed at any moment leaves a list that is
//! complete, and [`destroy`] removes all of it; entries of things that were never made do no harm.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::build::{file_of, run};
use super::plan::{LabPlan, check_name};

/// Directory of all laboratories, in memory: a restart of the machine ends namespaces and this directory alike.
const ROOT: &str = "/run/scatter-lab";
/// Name of the list in the directory of a laboratory.
const LIST: &str = "state";
/// Time for which a process may end by itself after SIGTERM, and again after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(2);

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StateEntry {
    /// Namespace by its name.
    Namespace(String),
    /// A process that carries packets, or that was started in a host.
    Process {
        pid: i32,
        /// Start in clock ticks since the start of the machine: another process with this id has another one.
        start: u64,
    },
    /// Everything of the plan is made.
    Ready,
}

/// The open list of one laboratory. While its builder holds this, no other process removes the laboratory.
#[derive(Debug)]
pub(super) struct LabState {
    list: File,
}

/// Returns the directory of a laboratory.
pub(super) fn directory(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

/// Returns the path of the control socket of a laboratory.
pub(super) fn control(name: &str) -> PathBuf {
    directory(name).join("control")
}

impl LabState {
    /// Begins a laboratory: makes its directory, with the plan in it.
    ///
    /// # Errors
    /// A laboratory of this name exists, or the directory cannot be made.
    pub(super) fn begin(plan: &LabPlan) -> Result<LabState, String> {
        let directory = directory(&plan.name);
        let failed = |error: io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(ROOT).map_err(failed)?;
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(format!(
                    "a laboratory {0:?} exists: remove it with `scatter-testnet lab down {0}`, or choose another name",
                    plan.name
                ));
            }
            made => made.map_err(failed)?,
        }
        let list = OpenOptions::new().append(true).create_new(true).open(directory.join(LIST)).map_err(failed)?;
        rustix::fs::flock(&list, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
        let text = serde_json::to_string_pretty(plan).map_err(|error| error.to_string())?;
        fs::write(directory.join("plan.json"), text).map_err(failed)?;
        Ok(LabState { list })
    }

    /// Writes an entry.
    ///
    /// # Errors
    /// The list cannot be written, so the thing must not be made.
    pub(super) fn enter(&mut self, entry: &StateEntry) -> Result<(), String> {
        append(&mut self.list, entry)
    }

    /// Returns a command for a program that makes something. It ends with the builder, and holds the builder's lock until then: no
    /// other process removes the laboratory while the program may still make something.
    pub(super) fn command(&self, program: &str) -> Command {
        let (mut command, list) = (Command::new(program), self.list.as_raw_fd());
        // SAFETY: prctl and fcntl are async-signal-safe and take no pointers; the list is open while this process lives.
        unsafe {
            command.pre_exec(move || {
                let ends = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0;
                match ends && libc::fcntl(list, libc::F_DUPFD, 3) >= 0 {
                    true => Ok(()),
                    false => Err(io::Error::last_os_error()),
                }
            });
        }
        command
    }
}

fn append(list: &mut File, entry: &StateEntry) -> Result<(), String> {
    let line = serde_json::to_string(entry).map_err(|error| error.to_string())?;
    list.write_all(format!("{line}\n").as_bytes()).map_err(|error| format!("the list of the laboratory: {error}"))
}

/// Enters this process in the list of a laboratory: it ends with the laboratory. Waits for a process that removes the laboratory,
/// unless this process belongs to the builder, who holds the same lock.
///
/// # Errors
/// There is no such laboratory, or it is being removed.
pub(super) fn enter_this_process(name: &str, is_builders: bool) -> Result<(), String> {
    let path = directory(name).join(LIST);
    let mut list = OpenOptions::new().append(true).open(&path).map_err(|_| unknown(name))?;
    if !is_builders {
        rustix::fs::flock(&list, FlockOperation::LockShared).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let start = start_of(pid).ok_or("this process has no entry in /proc")?;
    append(&mut list, &StateEntry::Process { pid, start })?;
    // A list that was removed meanwhile had no entry of this process.
    match path.exists() {
        true => Ok(()),
        false => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    let known = names();
    match known.is_empty() {
        true => format!("there is no laboratory {name:?}, nor any other: build one with `scatter-testnet lab up PLAN`"),
        false => format!("there is no laboratory {name:?}; there are: {}", known.join(", ")),
    }
}

/// Returns the names of all laboratories on this machine, also of those that were not built to the end.
pub(super) fn names() -> Vec<String> {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the plan of a laboratory that was built to the end.
///
/// # Errors
/// There is no such laboratory, or it was not built to the end; the error says how to go on.
pub(super) fn plan_of(name: &str) -> Result<LabPlan, String> {
    check_name("the name of the laboratory", name)?;
    let entries = entries(name).ok_or_else(|| unknown(name))?;
    if !entries.contains(&StateEntry::Ready) {
        return Err(format!(
            "the laboratory {name:?} was not built to the end: remove it with `scatter-testnet lab down {name}`"
        ));
    }
    plan_in(name)
}

/// Returns the plan of a laboratory, also while it is built.
pub(super) fn plan_in(name: &str) -> Result<LabPlan, String> {
    let file = directory(name).join("plan.json");
    let text = fs::read_to_string(&file).map_err(|_| unknown(name))?;
    LabPlan::parse(&text).map_err(|why| format!("{}: {why}", file.display()))
}

/// Returns the entries of a list; `None` if there is none. The last line may be torn; its thing was not made then.
fn entries(name: &str) -> Option<Vec<StateEntry>> {
    let text = fs::read_to_string(directory(name).join(LIST)).ok()?;
    Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Removes a laboratory: ends its processes, and removes its namespaces and its directory. Does nothing if there is none.
///
/// # Errors
/// The laboratory is being built, or a step fails. The list stays then, so the call can be repeated.
pub(super) fn destroy(name: &str) -> Result<(), String> {
    check_name("the name of the laboratory", name)?;
    let path = directory(name).join(LIST);
    let list = File::open(&path).ok();
    if !list.as_ref().is_none_or(lock) {
        return Err(format!("the laboratory {name:?} is being built: wait for the builder, or end its process first"));
    }
    let mut done = 0;
    // Processes may enter themselves meanwhile.
    while let Some(all) = entries(name).filter(|all| all.len() > done) {
        all[done..].iter().for_each(|entry| signal(entry, Signal::TERM));
        wait_for(&all[done..]);
        all[done..].iter().for_each(|entry| signal(entry, Signal::KILL));
        wait_for(&all[done..]);
        for entry in &all[done..] {
            if let StateEntry::Namespace(namespace) = entry
                && file_of(namespace).exists()
            {
                run(Command::new("ip").args(["netns", "del", namespace]), "")?;
            }
        }
        done = all.len();
    }
    match fs::remove_dir_all(directory(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", directory(name).display()));
        }
        _ => {}
    }
    // Other laboratories keep it.
    let _ = fs::remove_dir(ROOT);
    Ok(())
}

/// Locks a list, and returns whether that succeeded. The programs of a builder that was killed may hold it for a moment.
fn lock(list: &File) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(list, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(_) if Instant::now() > end => return false,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends a signal to the process of an entry, if that process still runs.
fn signal(entry: &StateEntry, signal: Signal) {
    let StateEntry::Process { pid, start } = *entry else { return };
    let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
    // The handle is of the process that had the id when it was opened, so the order of these steps matters.
    if start_of(pid) == Some(start) {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// Waits until no process of these entries runs, for a limited time.
fn wait_for(entries: &[StateEntry]) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && entries.iter().any(runs) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether the process of an entry runs.
fn runs(entry: &StateEntry) -> bool {
    matches!(*entry, StateEntry::Process { pid, start } if start_of(pid) == Some(start))
}

/// Returns the start of a process in clock ticks; `None` if it has ended, also if its parent was not told yet.
fn start_of(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may have spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    let start = fields.nth(18)?.parse().ok()?;
    is_alive.then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        let start = start_of(own).expect("this process runs");
        assert!(runs(&StateEntry::Process { pid: own, start }));
        assert!(!runs(&StateEntry::Process { pid: own, start: start + 1 }));
        // A signal to a process of another start would end this one.
        signal(&StateEntry::Process { pid: own, start: start + 1 }, Signal::KILL);
        let mut child = Command::new("true").spawn().expect("a process");
        let pid = i32::try_from(child.id()).expect("a process id");
        let end = Instant::now() + Duration::from_secs(20);
        while start_of(pid).is_some() {
            assert!(Instant::now() < end, "a process that has ended does not run");
        }
        child.wait().expect("it has ended");
    }

    #[test]
    fn the_name_of_a_laboratory_is_no_path() {
        for name in ["", "..", "a/b", "A", "-x"] {
            assert!(destroy(name).expect_err("no name").contains("is no name"), "{name}");
        }
    }
}
