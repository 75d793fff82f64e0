//! `scatter demo`: a small network on this machine, each peer a process of its own.
//!
//! The peers end with the demo, however it ends: each holds the other end of a pipe from it. A peer that was killed is
//! not started again, as that is for the person at the terminal to play with; its command line is printed for that.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Exit;

/// How long a peer may take to serve.
const START_MAX: Duration = Duration::from_secs(60);
/// How long all peers may take to stop.
const STOP_MAX: Duration = Duration::from_secs(11);

/// Arguments of `scatter demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many peers
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=64))]
    peers: u16,
    /// Print where the peers are instead of showing a dashboard
    #[arg(long)]
    no_ui: bool,
}

/// One peer of the demo.
struct DemoPeer {
    name: String,
    /// Its arguments, without the ones that tie it to the demo.
    arguments: Vec<String>,
    resp: SocketAddr,
    http: SocketAddr,
    log: PathBuf,
    child: Option<Child>,
}

/// What a peer said when it began to serve.
#[derive(serde::Deserialize)]
struct ReadyLine {
    listen: Vec<String>,
}

/// Runs the demo until it is interrupted.
pub fn run(args: &DemoArgs) -> ExitCode {
    let directory = match tempfile::Builder::new().prefix("scatter-demo-").tempdir() {
        Ok(directory) => directory,
        Err(error) => return fail(&format!("cannot make a directory for the peers: {error}")),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    let mut peers = Vec::new();
    let result = runtime.block_on(async {
        // Before the first peer: an interrupt must not leave any behind.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
        let interrupted = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(())
        };
        tokio::select! {
            result = live(args, directory.path(), &mut peers) => result,
            result = interrupted => result,
        }
    });
    let second = std::thread::spawn(move || {
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt()).ok()?;
            let mut terminate = signal(SignalKind::terminate()).ok()?;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Some(())
        })
    });
    stop(&mut peers, || second.is_finished());
    tidy(directory, &peers);
    match result {
        Ok(()) => Exit::Done.into(),
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("scatter: {why}");
    ExitCode::FAILURE
}

/// Starts the peers, says where they are, and watches over them. Ends only where something goes wrong at the start.
async fn live(args: &DemoArgs, directory: &Path, peers: &mut Vec<DemoPeer>) -> Result<(), String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let network = format!("demo-{}", std::process::id());
    let count = usize::from(args.peers);
    let ports = free_ports(count)?;

    let first = DemoPeer::new(0, directory, &network, ports[0]);
    peers.push(first);
    let enter = peers[0]
        .start(&program, &["--new".into()], START_MAX)?
        .wait()
        .await?;
    for (index, ports) in ports.iter().enumerate().skip(1) {
        let mut peer = DemoPeer::new(index, directory, &network, *ports);
        peer.arguments.extend(["--join".into(), enter.clone()]);
        peers.push(peer);
    }
    let mut starting = Vec::new();
    for peer in &mut peers[1..] {
        starting.push(peer.start(&program, &[], START_MAX)?);
    }
    let mut others = Vec::new();
    for start in starting {
        others.push(start.wait().await?);
    }
    // To be started again it enters through another peer: should its store be gone, it must not found a second network.
    match others.first() {
        Some(other) => peers[0].arguments.extend(["--join".into(), other.clone()]),
        None => peers[0].arguments.push("--new".into()),
    }
    announce(peers, directory, &program);
    watch(peers, &program).await;
    Ok(())
}

/// What a person needs to know.
fn announce(peers: &[DemoPeer], directory: &Path, program: &Path) {
    let mut out = std::io::stdout().lock();
    let mut text = String::new();
    for peer in peers {
        let pid = peer.child.as_ref().map_or(0, Child::id);
        text += &format!(
            "{}: resp={} http={} pid={pid} log={}\n",
            peer.name,
            peer.resp,
            peer.http,
            peer.log.display()
        );
    }
    text += "\nTo kill a peer: kill -9 PID. To start it again, in another terminal:\n";
    for peer in peers {
        text += &format!("{}: {}\n", peer.name, peer.command_line(program));
    }
    text += &format!(
        "\nTry: {} set --addr {} greeting hello\nData is in {} until the demo ends: press Ctrl-C for that.\ndemo ready\n",
        quoted(&program.display().to_string()),
        peers[0].resp,
        directory.display(),
    );
    // Nobody may be reading; the demo goes on.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says when a peer has ended.
async fn watch(peers: &mut [DemoPeer], program: &Path) {
    let mut ticks = tokio::time::interval(Duration::from_millis(250));
    loop {
        ticks.tick().await;
        for peer in &mut *peers {
            let ended = peer
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                peer.child = None;
                eprintln!(
                    "{} ended ({status}); to start it again: {}",
                    peer.name,
                    peer.command_line(program)
                );
            }
        }
    }
}

/// A peer that has been started and does not serve yet.
struct Starting {
    name: String,
    log: PathBuf,
    line: mpsc::Receiver<String>,
    until: Instant,
}

impl Starting {
    /// Waits until it serves: an address to enter the network through.
    async fn wait(self) -> Result<String, String> {
        let problem = |what: &str| {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(5).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            format!(
                "{} {what}; the end of its log:\n{}",
                self.name,
                last.join("\n")
            )
        };
        let line = loop {
            match self.line.try_recv() {
                Ok(line) => break line,
                Err(mpsc::TryRecvError::Disconnected) => {
                    return Err(problem("ended before it served"));
                }
                Err(mpsc::TryRecvError::Empty) if Instant::now() > self.until => {
                    return Err(problem(&format!(
                        "does not serve after {} s",
                        START_MAX.as_secs()
                    )));
                }
                Err(mpsc::TryRecvError::Empty) => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
            }
        };
        let ready: ReadyLine =
            serde_json::from_str(&line).map_err(|_| problem("printed something else"))?;
        ready
            .listen
            .iter()
            .find(|listen| listen.starts_with("/ip4/127.0.0.1/"))
            .or(ready.listen.first())
            .cloned()
            .ok_or_else(|| problem("has no address"))
    }
}

impl DemoPeer {
    fn new(
        index: usize,
        directory: &Path,
        network: &str,
        [listen, resp, http]: [SocketAddr; 3],
    ) -> DemoPeer {
        let name = format!("peer {}", index + 1);
        let home = directory.join(format!("peer-{}", index + 1));
        let arguments = vec![
            "run".into(),
            "--data-dir".into(),
            home.display().to_string(),
            "--network".into(),
            network.into(),
            "--listen".into(),
            format!("/ip4/127.0.0.1/tcp/{}", listen.port()),
            "--resp".into(),
            resp.to_string(),
            "--http".into(),
            http.to_string(),
            "--cluster".into(),
            format!("demo-{}", index + 1),
        ];
        let log = directory.join(format!("peer-{}.log", index + 1));
        DemoPeer {
            name,
            arguments,
            resp,
            http,
            log,
            child: None,
        }
    }

    /// What a person types to start it again.
    fn command_line(&self, program: &Path) -> String {
        let words =
            std::iter::once(program.display().to_string()).chain(self.arguments.iter().cloned());
        words
            .map(|word| quoted(&word))
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn start(
        &mut self,
        program: &Path,
        more: &[String],
        at_most: Duration,
    ) -> Result<Starting, String> {
        let problem = |error: std::io::Error| format!("cannot start {}: {error}", self.name);
        let log = std::fs::File::create(&self.log).map_err(problem)?;
        let mut command = Command::new(program);
        command
            .args(&self.arguments)
            .args(more)
            .args(["--output", "json", "--stop-with-stdin"])
            // The pipe that it watches: its end here closes when this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        for (name, _) in std::env::vars_os() {
            // Settings meant for a peer of the person's own.
            if name.to_string_lossy().starts_with("SCATTER_") {
                command.env_remove(name);
            }
        }
        // An interrupt at the terminal is for the demo, which tells its peers.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(problem)?;
        let (sender, line) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Read on when nobody wants more, so that the peer never blocks.
                    let _ = sender.send(line);
                }
            });
        }
        self.child = Some(child);
        Ok(Starting {
            name: self.name.clone(),
            log: self.log.clone(),
            line,
            until: Instant::now() + at_most,
        })
    }
}

/// Three free ports on loopback for each peer, of which the first gets the ones that client commands try by themselves.
fn free_ports(peers: usize) -> Result<Vec<[SocketAddr; 3]>, String> {
    // Held until all are chosen, so that none is chosen twice.
    let mut held = Vec::new();
    let mut port = |wanted: u16| {
        let listener = TcpListener::bind(("127.0.0.1", wanted))
            .or_else(|_| TcpListener::bind(("127.0.0.1", 0)))
            .map_err(|error| format!("no free port: {error}"))?;
        let address = listener
            .local_addr()
            .map_err(|error| format!("no free port: {error}"))?;
        held.push(listener);
        Ok::<_, String>(address)
    };
    (0..peers)
        .map(|index| match index {
            0 => Ok([port(6478)?, port(6479)?, port(6480)?]),
            _ => Ok([port(0)?, port(0)?, port(0)?]),
        })
        .collect()
}

/// A word as a shell takes it back.
fn quoted(word: &str) -> String {
    if !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./:,=@%+".contains(&byte))
    {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Ends all peers: politely, then not.
fn stop(peers: &mut [DemoPeer], at_once: impl Fn() -> bool) {
    use rustix::process::{Pid, Signal, kill_process};
    for child in peers.iter().filter_map(|peer| peer.child.as_ref()) {
        // It has not been waited for, so its number is still its own.
        if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    let until = Instant::now() + STOP_MAX;
    let mut running: Vec<&mut Child> = peers
        .iter_mut()
        .filter_map(|peer| peer.child.as_mut())
        .collect();
    while !running.is_empty() && Instant::now() < until && !at_once() {
        running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        std::thread::sleep(Duration::from_millis(20));
    }
    for child in running {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Removes the peers' data, unless a peer that was started by hand is still at it.
fn tidy(directory: tempfile::TempDir, peers: &[DemoPeer]) {
    let in_use = peers
        .iter()
        .any(|peer| TcpStream::connect_timeout(&peer.resp, Duration::from_millis(200)).is_ok());
    if in_use {
        let kept = directory.keep();
        eprintln!(
            "a peer that was started by hand still runs: its data stays in {}",
            kept.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in ["", "a b", "it's", "$HOME", "/ip4/127.0.0.1/tcp/1", "*"] {
            let out = Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quoted(word)))
                .output()
                .unwrap();
            assert_eq!(out.stdout, word.as_bytes());
        }
    }

    #[test]
    fn ports_are_all_different() {
        let mut ports: Vec<_> = free_ports(8).unwrap().into_iter().flatten().collect();
        ports.sort();
        ports.dedup();
        assert_eq!(ports.len(), 24);
    }
}
