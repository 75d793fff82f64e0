//! `scatter demo`: a small network on this machine, each peer a process of its own.
//!
//! The peers end with the demo, however it ends: each holds the other end of a pipe from it. A peer that was killed is
//! not started again, as that is for the person at the terminal to play with; its command line is printed for that.

mod peer;

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Exit, web};
use crate::status::{GroupStatus, Status};
use peer::{DemoPeer, quoted};

/// How long all peers may take to stop.
const STOP_MAX: Duration = Duration::from_secs(11);

/// How long it may take until every peer is a member.
const FULL_MAX: Duration = Duration::from_secs(60);

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

/// Runs the demo until it is interrupted.
pub fn run(args: &DemoArgs) -> ExitCode {
    let directory = match tempfile::Builder::new().prefix("scatter-demo-").tempdir() {
        Ok(directory) => directory,
        Err(error) => return fail(&format!("cannot make a directory for the peers: {error}")),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
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
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let network = format!("demo-{}", std::process::id());
    peers.extend((0..usize::from(args.peers)).map(|index| DemoPeer::new(index, directory, &network)));
    let Some((first, others)) = peers.split_first_mut() else {
        return Ok(());
    };
    first.enter = vec!["--new".into()];
    first.start(&program)?;
    let entrance = first.ready(&program).await?;
    for peer in &mut *others {
        peer.enter = vec!["--join".into(), entrance.clone()];
        peer.start(&program)?;
    }
    for (index, peer) in others.iter_mut().enumerate() {
        let address = peer.ready(&program).await?;
        if index == 0 {
            // To be started again the first one enters through another: should its store be gone, it must not found a
            // second network.
            first.enter = vec!["--join".into(), address];
        }
    }
    full(peers).await?;
    announce(peers, directory, &program);
    watch(peers, &program).await;
    Ok(())
}

/// Waits until every peer is a member: from then on any minority of them may be killed.
async fn full(peers: &[DemoPeer]) -> Result<(), String> {
    let Some(first) = peers.first() else { return Ok(()) };
    let since = Instant::now();
    while since.elapsed() < FULL_MAX {
        let status = web::get(&first.http().to_string(), "/v1/status")
            .ok()
            .and_then(|(_, body)| serde_json::from_slice(&body).ok());
        let groups = status.map(|status: Status| status.groups).unwrap_or_default();
        let voters = |group: &GroupStatus| group.members.iter().filter(|member| member.role != "learner").count();
        if groups.iter().any(|group| group.established && voters(group) == peers.len()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("not all peers became members within {} s", FULL_MAX.as_secs()))
}

/// What a person needs to know.
fn announce(peers: &[DemoPeer], directory: &Path, program: &Path) {
    let mut out = std::io::stdout().lock();
    let mut text = String::new();
    for peer in peers {
        let pid = peer.child.as_ref().map_or(0, Child::id);
        text +=
            &format!("{}: resp={} http={} pid={pid} log={}\n", peer.name, peer.resp(), peer.http(), peer.log.display());
    }
    text += "\nTo kill a peer: kill -9 PID. To start it again, in another terminal:\n";
    for peer in peers {
        text += &format!("{}: {}\n", peer.name, peer.command_line(program));
    }
    text += &format!(
        "\nTry: {} set --addr {} greeting hello\nData is in {} until the demo ends: press Ctrl-C for that.\ndemo ready\n",
        quoted(&program.display().to_string()),
        peers[0].resp(),
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
            let ended = peer.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                peer.child = None;
                eprintln!("{} ended ({status}); to start it again: {}", peer.name, peer.command_line(program));
            }
        }
    }
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
    let mut running: Vec<&mut Child> = peers.iter_mut().filter_map(|peer| peer.child.as_mut()).collect();
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
    let in_use = peers.iter().any(|peer| TcpStream::connect_timeout(&peer.resp(), Duration::from_millis(200)).is_ok());
    if in_use {
        let kept = directory.keep();
        eprintln!("a peer that was started by hand still runs: its data stays in {}", kept.display());
    }
}
