//! Driver of the controller: the I/O around `core`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::core::{Answer, Ask, ControllerCore, CoreConfig, Decision};
use super::peer_client;
use super::reports::PeerReport;
use super::tally::Tally;
use crate::p4rt::client::{SwitchClient, SwitchConfig};

/// Interval of requests to each peer.
const POLL: Duration = Duration::from_secs(1);
/// The same while changes are going on.
const POLL_BUSY: Duration = Duration::from_millis(100);
/// Interval of decisions without input: the passing of time alone changes things, for example when a peer is silent.
const TICK: Duration = Duration::from_millis(250);

/// Switch and groups of a controller.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The switch.
    pub switch: SwitchConfig,
    /// Election id: of several controllers the one with the highest writes.
    pub election: u128,
    /// Addresses of the peers with groups that are to have this switch.
    pub peers: Vec<SocketAddr>,
    /// Value of the authorization header for peers, with the administrator's token.
    pub token: Option<HeaderValue>,
}

/// Runs the controller until `stop` is done; the tables then stay as they are. Messages go to `say`, line by line, and the
/// current figures to `show`, several times a second.
pub async fn run(setup: Setup, stop: impl Future<Output = ()>, mut say: impl FnMut(&str), mut show: impl FnMut(Tally)) {
    let began = Instant::now();
    let step = 1 + (setup.election % 997) as u32;
    let mut core = ControllerCore::new(CoreConfig::new(setup.peers.iter().map(ToString::to_string).collect(), step));
    let client = SwitchClient::look(setup.switch.clone(), setup.election);
    let mut state = client.state();
    let (poll, polls) = watch::channel(POLL_BUSY);
    let (reports, mut heard) = mpsc::channel(setup.peers.len().max(1));
    let (answers, mut answered) = mpsc::channel(16);
    let setup = Arc::new(setup);
    // The tasks end when this set is dropped.
    let mut tasks = JoinSet::new();
    for (source, peer) in setup.peers.iter().enumerate() {
        tasks.spawn(listen(source, *peer, reports.clone(), polls.clone()));
    }
    let mut tick = interval(TICK);
    let first = state.borrow_and_update().clone();
    core.switch_changed(&first, began.elapsed(), unix());
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            Some((source, said)) = heard.recv() => core.heard(source, said, began.elapsed()),
            Some((ask, answer)) = answered.recv() => core.answered(&ask, answer, began.elapsed()),
            changed = state.changed() => {
                // The sender lives as long as the controller does.
                if changed.is_err() { return }
                let state = state.borrow_and_update().clone();
                core.switch_changed(&state, began.elapsed(), unix());
            }
            _ = tick.tick() => {}
        }
        while tasks.try_join_next().is_some() {}
        let Decision { wanted, asks, news, is_busy } = core.decide(began.elapsed(), unix());
        news.iter().for_each(|line| say(line));
        show(core.tally(began.elapsed()));
        if let Some((mastership, mark, wanted)) = wanted {
            client.set_during(mastership, mark, wanted);
        }
        for ask in asks {
            say(&format!("group {}: asked to use id {}", ask.group, ask.id));
            tasks.spawn(request(setup.clone(), ask, answers.clone()));
        }
        let next = if is_busy { POLL_BUSY } else { POLL };
        poll.send_if_modified(|poll| std::mem::replace(poll, next) != next);
    }
}

/// Asks a peer for its report, again and again.
async fn listen(
    source: usize,
    peer: SocketAddr,
    reports: mpsc::Sender<(usize, Result<PeerReport, String>)>,
    mut polls: watch::Receiver<Duration>,
) {
    loop {
        let since = Instant::now();
        if reports.send((source, peer_client::report(peer).await)).await.is_err() {
            return;
        }
        loop {
            let wait = *polls.borrow_and_update();
            tokio::select! {
                () = sleep(wait.saturating_sub(since.elapsed())) => break,
                changed = polls.changed() => if changed.is_err() { return },
            }
        }
        // A peer that answers at once is not asked again without a pause.
        sleep(Duration::from_millis(10)).await;
    }
}

async fn request(setup: Arc<Setup>, ask: Ask, answers: mpsc::Sender<(Ask, Answer)>) {
    let answer = peer_client::request_id(setup.peers[ask.source], ask.group, ask.id, setup.token.as_ref()).await;
    let _ = answers.send((ask, answer)).await;
}

/// Returns the wall-clock time, in seconds since 1970.
fn unix() -> u32 {
    u32::try_from(environment::unix_time().as_secs()).unwrap_or(u32::MAX)
}
