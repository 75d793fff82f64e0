//! A built laboratory: its hosts, and commands to its path.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::build;
use super::layout::{HostPlace, Layout};
use super::path::{PathLoop, run_path};
use super::plan::LabPlan;
use super::running;
use super::state::{self, LabState, StateEntry};
use crate::live::Namespace;

/// Time for which a path may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Place where the path of a laboratory runs.
#[derive(Clone, Debug)]
pub enum PathMode {
    /// A thread of this process. The laboratory is taken down with its handle.
    Thread,
    /// A process of its own: this program is started with the arguments `lab path NAME`. The laboratory stays until it is destroyed.
    Process(PathBuf),
}

/// A laboratory that is built.
#[derive(Debug)]
pub struct Lab {
    plan: LabPlan,
    layout: Layout,
    thread: Option<PathThread>,
}

/// The path in a thread of this process, which ends with the connection.
#[derive(Debug)]
struct PathThread {
    connection: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for PathThread {
    fn drop(&mut self) {
        drop(self.connection.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Lab {
    /// Builds a laboratory. If a step fails, everything that was made is removed again.
    ///
    /// # Errors
    /// The plan is not valid, a laboratory or namespace of such a name exists, or a right or a program is missing.
    pub fn build(plan: LabPlan, mode: &PathMode) -> Result<Lab, String> {
        plan.validate()?;
        if let Some(why) = build::missing(&plan) {
            return Err(why);
        }
        let mut state = LabState::begin(&plan)?;
        let name = plan.name.clone();
        match Lab::build_all(plan, mode, &mut state) {
            Ok(lab) => Ok(lab),
            Err(why) => {
                drop(state);
                match state::destroy(&name) {
                    Ok(()) => Err(why),
                    Err(rest) => Err(format!("{why}; and not everything could be removed: {rest}")),
                }
            }
        }
    }

    fn build_all(plan: LabPlan, mode: &PathMode, state: &mut LabState) -> Result<Lab, String> {
        let layout = Layout::new(&plan);
        build::build(&plan, &layout, state)?;
        let mut lab = Lab { plan, layout, thread: None };
        let thread = match mode {
            PathMode::Thread => Some(start_thread(&lab.plan)?),
            PathMode::Process(program) => {
                start_process(&lab.plan.name, program)?;
                None
            }
        };
        lab.tell("stats")?;
        running::wait(&lab.layout)?;
        state.enter(&StateEntry::Ready)?;
        // From now on the laboratory ends with its handle.
        lab.thread = thread;
        Ok(lab)
    }

    /// Opens a laboratory that another process built.
    ///
    /// # Errors
    /// There is no such laboratory, or it was not built to the end.
    pub fn open(name: &str) -> Result<Lab, String> {
        let plan = state::plan_of(name)?;
        Ok(Lab { layout: Layout::new(&plan), plan, thread: None })
    }

    /// Removes a laboratory: its processes, its namespaces with all that is in them, and its state. Does nothing if there is none.
    /// Processes that were started in its hosts without [`Lab::exec`] are not ended; they keep their namespaces alive.
    ///
    /// # Errors
    /// The laboratory is being built, or a step fails; the call can be repeated.
    pub fn destroy(name: &str) -> Result<(), String> {
        state::destroy(name)
    }

    /// Returns the names of all laboratories on this machine, also of those that were not built to the end.
    pub fn names() -> Vec<String> {
        state::names()
    }

    /// Returns the plan.
    pub fn plan(&self) -> &LabPlan {
        &self.plan
    }

    /// Returns all places and addresses.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the place of a host.
    ///
    /// # Errors
    /// There is no such host; the error lists the hosts.
    pub fn host(&self, name: &str) -> Result<&HostPlace, String> {
        self.layout.host(name).ok_or_else(|| {
            let known: Vec<&str> = self.layout.hosts.iter().map(|host| host.name.as_str()).collect();
            format!("laboratory {:?} has no host {name:?}; it has: {}", self.plan.name, known.join(", "))
        })
    }

    /// Opens the namespace of a host.
    ///
    /// # Errors
    /// There is no such host, or its namespace is gone.
    pub fn namespace(&self, host: &str) -> Result<Namespace, String> {
        build::open(&self.host(host)?.namespace)
    }

    /// Returns a command whose process runs in a host. The caller ends that process.
    ///
    /// # Errors
    /// There is no such host, or its namespace is gone.
    pub fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Result<Command, String> {
        let mut command = Command::new(program);
        self.namespace(host)?.put(&mut command);
        Ok(command)
    }

    /// Replaces this process by a command in a host. The command ends with the laboratory.
    ///
    /// # Errors
    /// There is no such host, or the command cannot be started.
    pub fn exec(&self, host: &str, words: &[std::ffi::OsString]) -> Result<std::convert::Infallible, String> {
        use std::os::unix::process::CommandExt as _;
        let (program, arguments) = words.split_first().ok_or("name a command after --")?;
        let mut command = self.command(host, program)?;
        state::enter_this_process(&self.plan.name, false)?;
        let error = command.args(arguments).exec();
        Err(format!("{} cannot be started: {error}", program.to_string_lossy()))
    }

    /// Sends a command to the path, and returns its answer: `ok`, or the counters as JSON for `stats`.
    ///
    /// # Errors
    /// The path does not run, or refuses the command; the error lists the known ones.
    pub fn tell(&self, line: &str) -> Result<String, String> {
        let name = &self.plan.name;
        let silent = |error: std::io::Error| {
            format!("the path of laboratory {name:?} does not answer ({error}): take it down, and build it anew")
        };
        let stream = UnixStream::connect(state::control(name)).map_err(silent)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
        (&stream).write_all(format!("{line}\n").as_bytes()).map_err(silent)?;
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).map_err(silent)?;
        match (answer.trim(), answer.trim().strip_prefix("error: ")) {
            (_, Some(why)) => Err(why.into()),
            ("", _) => Err(silent(std::io::ErrorKind::UnexpectedEof.into())),
            (answer, None) => Ok(answer.into()),
        }
    }

    /// Cuts the links from `from` to `to`, one way. Each is a host, a router, all of a site (`@SITE`), or all hosts (`*`).
    ///
    /// # Errors
    /// A name is unknown, or the path does not run.
    pub fn cut(&self, from: &str, to: &str) -> Result<(), String> {
        self.tell(&format!("cut {from} {to}")).map(drop)
    }

    /// Makes all links as planned again: cuts, delays and loss.
    ///
    /// # Errors
    /// The path does not run.
    pub fn heal(&self) -> Result<(), String> {
        self.tell("heal").map(drop)
    }

    /// Sets the one-way delay from `from` to `to`.
    ///
    /// # Errors
    /// A name is unknown, or the path does not run.
    pub fn delay(&self, from: &str, to: &str, delay: Duration) -> Result<(), String> {
        self.tell(&format!("delay {from} {to} {}", delay.as_secs_f64() * 1e3)).map(drop)
    }

    /// Sets the loss from `from` to `to`, in packets of 1,000.
    ///
    /// # Errors
    /// A name is unknown, or the path does not run.
    pub fn loss(&self, from: &str, to: &str, per_mille: u16) -> Result<(), String> {
        self.tell(&format!("loss {from} {to} {per_mille}")).map(drop)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread);
            if let Err(why) = state::destroy(&self.plan.name) {
                eprintln!("laboratory {:?}: {why}", self.plan.name);
            }
        }
    }
}

fn bind(control: &Path) -> Result<UnixListener, String> {
    UnixListener::bind(control).map_err(|error| format!("{}: {error}", control.display()))
}

fn start_thread(plan: &LabPlan) -> Result<PathThread, String> {
    let (own, its) = UnixStream::pair().map_err(|error| format!("no socket for the path: {error}"))?;
    let path = PathLoop::open(plan, bind(&state::control(&plan.name))?, Some(its))?;
    let name = plan.name.clone();
    let run = move || {
        if let Err(error) = path.run() {
            eprintln!("the path of laboratory {name:?} ends: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("lab path".into()).spawn(run);
    let thread = thread.map_err(|error| format!("no thread for the path: {error}"))?;
    Ok(PathThread { connection: Some(own), thread: Some(thread) })
}

/// Starts the path as a process that outlives this one, and waits until it answers. It enters itself in the list.
fn start_process(name: &str, program: &Path) -> Result<(), String> {
    use std::os::unix::process::CommandExt as _;
    let log = state::directory(name).join("path.log");
    let file = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut command = Command::new(program);
    command.args(["lab", "path", name]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    // A signal from the terminal is for the builder.
    let started = command.process_group(0).spawn();
    let mut child = started.map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    let end = Instant::now() + PATIENCE;
    while UnixStream::connect(state::control(name)).is_err() {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        if ended.is_some() || Instant::now() > end {
            let told = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("the path of laboratory {name:?} does not start: {}", told.trim()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // A builder that lives on takes notice of its end.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Runs the path of a laboratory that another process is building, until the laboratory is taken down.
///
/// # Errors
/// There is no such laboratory, or its path cannot run.
pub fn serve_path(name: &str) -> Result<(), String> {
    state::enter_this_process(name, true)?;
    let plan = state::plan_in(name)?;
    run_path(&plan, &state::control(name))
}
