//! `scatter demo`: a small network on this machine, each peer a process of its own, and a few simulated users.
//!
//! The peers end with the demo, however it ends: each holds the other end of a pipe from it. A peer that was killed is
//! not started again: the user at the terminal may do that.

mod demo_peer;
mod network;
mod people;
mod show;
mod victim;

use std::io::Write as _;
use std::process::{Child, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use environment::lock;
use tokio::signal::unix::{Signal, SignalKind, signal};

use demo_peer::{DemoPeer, quoted};
use network::{DemoNetwork, Gone, PEERS_MAX};
use peer::exit::Exit;

/// Number of peers with a dashboard: enough for several groups.
const PEERS_TO_LOOK_AT: u16 = 8;
/// Number of peers without a dashboard.
const PEERS: u16 = 5;
const WATCH: Duration = Duration::from_millis(250);

/// Arguments of `scatter demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Number of peers; by default 5, or with a dashboard 8: from 6 on there are several groups
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=PEERS_MAX as i64))]
    peers: Option<u16>,
    /// Print the peers' addresses instead of showing a dashboard
    #[arg(long)]
    no_ui: bool,
}

/// The network, shared by the tasks that watch and change it.
type SharedNetwork = Arc<Mutex<DemoNetwork>>;

/// Runs the demo until it is interrupted.
pub fn run(args: &DemoArgs) -> ExitCode {
    let shows = !args.no_ui && screen::terminal::can_enter().is_ok();
    let directory = match tempfile::Builder::new().prefix("scatter-demo-").tempdir() {
        Ok(directory) => directory,
        Err(error) => return fail(&format!("cannot make a directory for the peers: {error}")),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    let peers = args.peers.unwrap_or(if shows { PEERS_TO_LOOK_AT } else { PEERS });
    let mut network = match DemoNetwork::new(usize::from(peers), directory.path()) {
        Ok(network) => network,
        Err(why) => return fail(&why),
    };
    // Before the first peer, and kept: an interrupt must not leave any behind, nor be lost between two tasks that wait
    // for it.
    let mut interrupts = match runtime.block_on(async { Interrupts::watch() }) {
        Ok(interrupts) => interrupts,
        Err(why) => return fail(&why),
    };
    let begun = runtime.block_on(async {
        tokio::select! {
            begun = begin(&mut network, shows) => begun.map(|()| true),
            () = interrupts.next() => Ok(false),
        }
    });
    let network = Arc::new(Mutex::new(network));
    let result = match begun {
        Ok(true) if shows => show::show(&network),
        Ok(true) => {
            runtime.block_on(go_on(&network, &mut interrupts));
            Ok(())
        }
        Ok(false) => Ok(()),
        Err(why) => Err(why),
    };
    let second = std::thread::spawn(move || {
        runtime.block_on(async {
            // Watched anew: an interrupt that ended the dashboard is not the second.
            if let Ok(mut interrupts) = Interrupts::watch() {
                interrupts.next().await;
            }
        });
    });
    if shows {
        say("all peers stop …");
    }
    let mut network = lock(&network);
    network.stop(|| second.is_finished());
    tidy(directory, &network.peers);
    match result {
        Ok(()) => Exit::Done.into(),
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    say(&format!("scatter: {why}"));
    ExitCode::FAILURE
}

/// Prints to stderr. Where the terminal has gone the error is ignored: no step is left out because of it.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// SIGINT, SIGTERM and SIGHUP: the peers' data would stay behind. SIGHUP not where it is ignored, as under `nohup`.
struct Interrupts(Signal, Signal, Option<Signal>);

impl Interrupts {
    fn watch() -> Result<Interrupts, String> {
        let watch = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
        let hangup = (!environment::is_hangup_ignored()).then(|| watch(SignalKind::hangup())).transpose()?;
        Ok(Interrupts(watch(SignalKind::interrupt())?, watch(SignalKind::terminate())?, hangup))
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.2 {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Starts all peers and users, and reports progress to stderr meanwhile.
async fn begin(network: &mut DemoNetwork, shows: bool) -> Result<(), String> {
    let tell = |what: &str| {
        if shows {
            say(&format!("{what} …"));
        }
    };
    tell(&format!("{} peers start and form groups", network.peers.len()));
    network.begin().await?;
    tell("people sign up");
    let settled = people::settle(&network.resp()).await;
    settled.map_err(|error| format!("people could not sign up: {error}"))
}

/// Runs without a dashboard until an interrupt.
async fn go_on(network: &SharedNetwork, interrupts: &mut Interrupts) {
    announce(&lock(network));
    let peers = || lock(network).resp();
    tokio::select! {
        () = interrupts.next() => {}
        () = people::talk(peers, None) => {}
        () = watch(network, |gone| say(&format!("{} ended ({}); to start it again: {}", gone.name, gone.status, gone.again))) => {}
    }
}

/// Prints the addresses and commands that the user needs.
fn announce(network: &DemoNetwork) {
    let mut out = std::io::stdout().lock();
    let mut text = String::new();
    // Scripts look for these lines.
    for (peer, number) in network.peers.iter().zip(1..) {
        let pid = peer.child.as_ref().map_or(0, Child::id);
        text +=
            &format!("peer {number}: resp={} http={} pid={pid} log={}\n", peer.resp(), peer.http(), peer.log.display());
    }
    text += "\nTo kill a peer: kill -9 PID. To start it again, in another terminal:\n";
    for (peer, number) in network.peers.iter().zip(1..) {
        text += &format!("peer {number}: {}\n", peer.command_line(network.program()));
    }
    let program = quoted(&network.program().display().to_string());
    // Built beside this program, unless only this one was.
    let chirp = Some(network.program().with_file_name("chirp")).filter(|chirp| chirp.is_file());
    let chirp =
        chirp.map_or("cargo run --release -p chirp-app --".into(), |chirp| quoted(&chirp.display().to_string()));
    let resp = network.peers[0].resp();
    text += &format!(
        "\nTry: {program} set --addr {resp} greeting hello\nTry: {chirp} --addr {resp} --user {} timeline --watch\nData is in \
         {} until the demo ends: press Ctrl-C for that.\ndemo ready\n",
        people::READER,
        network.directory().display(),
    );
    // Without a reader the demo goes on.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Watches for peers that have ended, and reports them.
async fn watch(network: &SharedNetwork, tell: impl Fn(Gone)) {
    let mut ticks = tokio::time::interval(WATCH);
    loop {
        ticks.tick().await;
        let gone = lock(network).ended();
        gone.into_iter().for_each(&tell);
    }
}

/// Removes the peers' data, unless a peer that was started by hand still uses it.
fn tidy(directory: tempfile::TempDir, peers: &[DemoPeer]) {
    if peers.iter().any(DemoPeer::is_at_work) {
        let kept = directory.keep();
        say(&format!("a peer that was started by hand still runs: its data stays in {}", kept.display()));
    }
}
