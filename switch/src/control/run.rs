//! The controller at work: what [`brain`](super::brain) has no hands for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::brain::{Answer, Ask, Brain, Config, Decision};
use super::http;
use super::metrics::Tally;
use super::word::Word;
use crate::p4rt::controller::{self, Controller};

/// Peers are asked this often.
const POLL: Duration = Duration::from_secs(1);
/// And so often while things change.
const POLL_BUSY: Duration = Duration::from_millis(100);
/// Time alone changes things, too: who is silent, say.
const TICK: Duration = Duration::from_millis(250);

/// Which switch, for which groups.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The switch.
    pub switch: controller::Config,
    /// As whom: of several controllers that one writes which has the highest.
    pub election: u128,
    /// Where the peers answer whose groups are to have this switch.
    pub peers: Vec<SocketAddr>,
    /// What peers want to be told by administrators, as it is sent.
    pub token: Option<HeaderValue>,
}

/// Works until `stop` is done; the tables stay as they are then. What there is to be said goes to `say`, line by line, and how
/// things stand to `show`, several times a second.
pub async fn run(setup: Setup, stop: impl Future<Output = ()>, mut say: impl FnMut(&str), mut show: impl FnMut(Tally)) {
    let began = Instant::now();
    let step = 1 + (setup.election % 997) as u32;
    let mut brain = Brain::new(Config::new(setup.peers.iter().map(ToString::to_string).collect(), step));
    let controller = Controller::look(setup.switch.clone(), setup.election);
    let mut link = controller.link();
    let (poll, polls) = watch::channel(POLL_BUSY);
    let (words, mut heard) = mpsc::channel(setup.peers.len().max(1));
    let (answers, mut answered) = mpsc::channel(16);
    let setup = Arc::new(setup);
    // Dropped with this, they end.
    let mut tasks = JoinSet::new();
    for (source, peer) in setup.peers.iter().enumerate() {
        tasks.spawn(listen(source, *peer, words.clone(), polls.clone()));
    }
    let mut tick = interval(TICK);
    let first = link.borrow_and_update().clone();
    brain.link(&first, began.elapsed(), unix());
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            Some((source, said)) = heard.recv() => brain.heard(source, said, began.elapsed()),
            Some((ask, answer)) = answered.recv() => brain.answered(&ask, answer, began.elapsed()),
            changed = link.changed() => {
                // It lives as long as this does.
                if changed.is_err() { return }
                let link = link.borrow_and_update().clone();
                brain.link(&link, began.elapsed(), unix());
            }
            _ = tick.tick() => {}
        }
        while tasks.try_join_next().is_some() {}
        let Decision { wanted, asks, news, is_busy } = brain.decide(began.elapsed(), unix());
        news.iter().for_each(|line| say(line));
        show(brain.tally(began.elapsed()));
        if let Some((reign, mark, wanted)) = wanted {
            controller.set_during(reign, mark, wanted);
        }
        for ask in asks {
            say(&format!("group {}: is asked for id {}", ask.group, ask.id));
            tasks.spawn(request(setup.clone(), ask, answers.clone()));
        }
        let next = if is_busy { POLL_BUSY } else { POLL };
        poll.send_if_modified(|poll| std::mem::replace(poll, next) != next);
    }
}

/// Asks a peer what its groups are, again and again.
async fn listen(
    source: usize,
    peer: SocketAddr,
    words: mpsc::Sender<(usize, Result<Word, String>)>,
    mut polls: watch::Receiver<Duration>,
) {
    loop {
        let since = Instant::now();
        if words.send((source, http::word(peer).await)).await.is_err() {
            return;
        }
        loop {
            let wait = *polls.borrow_and_update();
            tokio::select! {
                () = sleep(wait.saturating_sub(since.elapsed())) => break,
                changed = polls.changed() => if changed.is_err() { return },
            }
        }
        // Whoever answers at once is not asked without a rest.
        sleep(Duration::from_millis(10)).await;
    }
}

async fn request(setup: Arc<Setup>, ask: Ask, answers: mpsc::Sender<(Ask, Answer)>) {
    let answer = http::give(setup.peers[ask.source], ask.group, ask.id, setup.token.as_ref()).await;
    let _ = answers.send((ask, answer)).await;
}

/// Seconds by everybody's clock.
fn unix() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
