//! Supervision of all lanes of a peer.
//!
//! A peer runs a node for each lane, with its own loop and its own ring: no decision of one lane affects another lane. The
//! lanes share the machine's resources: the network's connections, the journal, the endpoints. They also share the peer's
//! life: the peer is ready when all lanes are, leaves with all of them, and ends when one of them has to end. Most peers have
//! one lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use group::op::Refusal;
use net::Net;
use node::{AdminOutcome, AdminRequest, Event, LeaveMode, LeaveRefusal, LeaveStatus, NodeStatus, Request, RingWalk};
use overlay::{GroupId, Key, Point};
use tokio::sync::{mpsc, oneshot};

use super::clocks::Clocks;
use super::data_dir::peer_state::{PeerState, SharedPeerState};
use super::data_dir::sessions::Keeper;
use super::drive::LoopEnd;
use super::mailbox::{Ask, Mailbox};
use super::status_board::{StatusBoard, leaving_of};
use super::store_port::SharedStore;
use crate::admin::{Admin, LeaveError};
use crate::daemon::News;
use crate::resp::{Backend, Rejected};
use crate::status::LeavingStatus;

/// Time that the threads of a discarded store may take to stop. A process whose store failed ends within 10 s.
const ABANDON_MAX: Duration = Duration::from_secs(3);

/// The caller that asked for a leave, and gets the answer.
type Asker = oneshot::Sender<Result<LeavingStatus, LeaveError>>;

/// Message of a peer's own threads to [`Supervisor`].
pub(crate) enum Word {
    /// An event happened in a lane.
    Happened(u8, Event),
    /// The loop of a lane has ended.
    Ended(u8, LoopEnd, Option<Box<NodeStatus>>),
    /// A request that this peer leaves.
    Leave(LeaveMode, Asker),
}

/// Handle of other threads to a peer's lanes.
pub(crate) struct Lanes {
    mailboxes: Vec<Arc<Mailbox>>,
    words: Sender<Word>,
    stopping: Arc<AtomicBool>,
}

impl Lanes {
    /// Asks all loops to hand over and stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(|mailbox| mailbox.stop());
    }
}

impl Backend for Lanes {
    fn submit(&self, batch: Vec<Request>) -> Result<(), Rejected> {
        let lanes = self.mailboxes.len();
        if lanes == 1 {
            return self.mailboxes[0].submit(batch);
        }
        let mut parts = vec![Vec::new(); lanes];
        for request in batch {
            parts[request.key.lane(lanes)].push(request);
        }
        let each = || self.mailboxes.iter().zip(&parts).filter(|(_, part)| !part.is_empty());
        if let Some(why) = each().find_map(|(mailbox, part)| mailbox.refuses(part.len())) {
            return Err(Rejected { batch: parts.concat(), why });
        }
        // A lane that is told to stop at this moment gives its requests back.
        let parts = self.mailboxes.iter().zip(parts).filter(|(_, part)| !part.is_empty());
        let batch: Vec<Request> = parts.filter_map(|(mailbox, part)| mailbox.put(part).err()).flatten().collect();
        if batch.is_empty() { Ok(()) } else { Err(Rejected { batch, why: Refusal::Stopping }) }
    }
}

impl Admin for Lanes {
    fn leave(&self, force: bool) -> oneshot::Receiver<Result<LeavingStatus, LeaveError>> {
        let (asker, answer) = oneshot::channel();
        // Where no receiver listens any more the asker is dropped, which its receiver notices.
        let _ = self.words.send(Word::Leave(force.into(), asker));
        answer
    }

    fn request(&self, group: GroupId, request: AdminRequest) -> mpsc::UnboundedReceiver<AdminOutcome> {
        #[expect(clippy::disallowed_methods, reason = "one answer of each lane")]
        let (asker, answers) = mpsc::unbounded_channel();
        self.mailboxes.iter().for_each(|mailbox| mailbox.ask(Ask::AdminRequest(group, request.clone(), asker.clone())));
        answers
    }

    fn walk_ring(&self, lane: u8, from: Option<Point>, count: usize) -> oneshot::Receiver<RingWalk> {
        let (asker, answer) = oneshot::channel();
        if let Some(mailbox) = self.mailboxes.get(usize::from(lane)) {
            mailbox.ask(Ask::RingWalk(from, count, asker));
        }
        answer
    }

    fn locate(&self, key: &Key) -> oneshot::Receiver<RingWalk> {
        let lane = key.lane(self.mailboxes.len());
        self.walk_ring(lane as u8, Some(key.point()), 1)
    }
}

/// Supervisor of a peer's lanes until the peer's end.
pub(crate) struct Supervisor {
    mailboxes: Vec<Arc<Mailbox>>,
    words: Receiver<Word>,
    stopping: Arc<AtomicBool>,
    ready: Vec<bool>,
    ended: Vec<Option<LoopEnd>>,
    /// The last status of each lane, in the order of the lanes.
    last: Vec<Option<Box<NodeStatus>>>,
}

/// Parts that a peer has once, for any number of lanes.
pub(crate) struct Common {
    /// The machine's clocks.
    pub clocks: Clocks,
    /// The network.
    pub net: Net,
    /// The store; `None` where nothing is durable.
    pub store: Option<SharedStore>,
    /// The peer's state beside the store.
    pub peer_state: Arc<SharedPeerState>,
    /// The status that administrators see.
    pub status_board: Arc<StatusBoard>,
    /// The channel to the daemon.
    pub news: mpsc::UnboundedSender<News>,
}

impl Supervisor {
    /// Creates the supervisor for the loops of these mailboxes, which report through the returned sender.
    pub fn new(mailboxes: Vec<Arc<Mailbox>>) -> (Supervisor, Arc<Lanes>, Sender<Word>) {
        #[expect(clippy::disallowed_methods, reason = "a loop must not wait for the supervisor, which waits for loops")]
        let (sender, words) = channel();
        let (count, stopping) = (mailboxes.len(), Arc::new(AtomicBool::new(false)));
        let lanes = Lanes { mailboxes: mailboxes.clone(), words: sender.clone(), stopping: stopping.clone() };
        let (ready, ended, last) = (vec![false; count], vec![None; count], vec![None; count]);
        (Supervisor { mailboxes, words, stopping, ready, ended, last }, Arc::new(lanes), sender)
    }

    /// Runs until all lanes have ended, does the last steps, and returns how the peer ended.
    pub fn run(mut self, common: Common, session: Keeper) -> LoopEnd {
        // The daemon may have ended already.
        let end = self.follow(&common.peer_state, |event| drop(common.news.send(News::Happened(event))));
        let end = self.end(end, common);
        if matches!(end, LoopEnd::Stopped | LoopEnd::Left | LoopEnd::Reincarnate(..) | LoopEnd::StartAgain(_)) {
            session.end();
        }
        end
    }

    /// Follows the lanes until all have ended, and returns the outcome.
    fn follow(&mut self, peer_state: &SharedPeerState, mut tell: impl FnMut(Event)) -> LoopEnd {
        while self.ended.iter().any(Option::is_none) {
            // The loops hold senders, and report when they end.
            let Ok(word) = self.words.recv() else { break };
            match word {
                Word::Happened(lane, event) => self.pass_on(lane, event, &mut tell),
                Word::Leave(mode, asker) => {
                    // The caller that asked may have gone.
                    let _ = asker.send(self.leave(mode, peer_state));
                }
                Word::Ended(lane, end, last) => {
                    let lane = usize::from(lane);
                    if !matches!(end, LoopEnd::Stopped | LoopEnd::Left | LoopEnd::Halted) {
                        self.mailboxes.iter().for_each(|mailbox| mailbox.ask(Ask::Halt));
                    }
                    (self.ended[lane], self.last[lane]) = (Some(end), last);
                }
            }
        }
        self.outcome()
    }

    /// Passes an event on. The peer is ready when all lanes are, and not ready when one lane is not.
    fn pass_on(&mut self, lane: u8, event: Event, tell: &mut impl FnMut(Event)) {
        let before = self.ready.iter().all(|ready| *ready);
        match event {
            Event::Ready => self.ready[usize::from(lane)] = true,
            Event::NotReady => self.ready[usize::from(lane)] = false,
            _ => {}
        }
        let now = self.ready.iter().all(|ready| *ready);
        if !matches!(event, Event::Ready | Event::NotReady) || before != now {
            tell(event);
        }
    }

    /// Begins to leave, with all lanes or none. The leave is written down before any caller is told: a peer that dies in the
    /// middle of it must not come back as a member.
    fn leave(&self, mode: LeaveMode, peer_state: &SharedPeerState) -> Result<LeavingStatus, LeaveError> {
        let answers = self.ask_all(|asker| Ask::MayLeave(mode, asker));
        for answer in answers {
            // A lane that has ended does not answer.
            if let Some(refusal) = answer.unwrap_or(Some(LeaveRefusal::Stopping)) {
                return Err(LeaveError::Refused(refusal));
            }
        }
        peer_state
            .with(|peer_state| {
                let before = peer_state.leaving();
                peer_state.set_leaving(before.max(Some(mode)));
                peer_state.save().inspect_err(|_| peer_state.set_leaving(before))
            })
            .map_err(LeaveError::Forgotten)?;
        let begun = self.ask_all(|asker| Ask::Leave(mode, asker));
        let begun: Vec<LeaveStatus> = begun.into_iter().flatten().flatten().collect();
        Ok(leaving_of(begun.iter().copied()).unwrap_or_default())
    }

    fn ask_all<T>(&self, ask: impl Fn(SyncSender<T>) -> Ask) -> Vec<Option<T>> {
        let asked = self.mailboxes.iter().map(|mailbox| {
            let (asker, answer) = sync_channel(1);
            mailbox.ask(ask(asker));
            answer
        });
        // All lanes are asked before the first answer is awaited. They answer at once, or have ended.
        asked.collect::<Vec<_>>().into_iter().map(|answer| answer.recv().ok()).collect()
    }

    /// Returns how the peer ended: a lane that cannot go on decides, and the peer has left only if all lanes have left.
    fn outcome(&mut self) -> LoopEnd {
        let ends: Vec<LoopEnd> = self.ended.iter_mut().filter_map(Option::take).collect();
        let find = |wanted: fn(&LoopEnd) -> bool| ends.iter().find(|end| wanted(end)).cloned();
        find(|end| matches!(end, LoopEnd::Fatal(_)))
            .or_else(|| find(|end| matches!(end, LoopEnd::StoreFailed(_))))
            .or_else(|| find(|end| matches!(end, LoopEnd::Quarantine(_))))
            .or_else(|| find(|end| matches!(end, LoopEnd::Damaged(_))))
            .or_else(|| reincarnates(&ends))
            .or_else(|| find(|end| matches!(end, LoopEnd::StartAgain(_))))
            .or_else(|| find(|end| *end != LoopEnd::Left))
            .unwrap_or(LoopEnd::Left)
    }

    /// Does the last steps: the store is sealed after a stop, and only abandoned after any other end.
    fn end(mut self, end: LoopEnd, common: Common) -> LoopEnd {
        let Common { clocks, net, store, peer_state, status_board, .. } = common;
        let wall_s = clocks.now().wall.0 / 1000;
        // The loops are over, and with them all other holders of the store.
        let store = store.and_then(Arc::into_inner).map(|store| store.into_inner().unwrap_or_else(|e| e.into_inner()));
        let end = match (end, store) {
            (LoopEnd::Stopped, Some(store)) => match store.seal() {
                Ok(()) => LoopEnd::Stopped,
                Err(error) => LoopEnd::StoreFailed(format!("the store could not be sealed: {error}")),
            },
            (end, store) => {
                store.into_iter().for_each(|store| store.abandon(ABANDON_MAX));
                match end {
                    // A new incarnation is for the next start: this process was told to end. Without a seal, that start
                    // checks the store again.
                    LoopEnd::Reincarnate(why, _)
                    | LoopEnd::Damaged(why)
                    | LoopEnd::Quarantine(why)
                    | LoopEnd::StartAgain(why)
                        if self.stopping.load(Ordering::Acquire) =>
                    {
                        tracing::warn!("{why}; this peer stops as requested");
                        LoopEnd::Stopped
                    }
                    end => end,
                }
            }
        };
        match end {
            LoopEnd::Left => peer_state.with(PeerState::set_left),
            LoopEnd::Stopped if peer_state.with(|peer_state| peer_state.leaving().is_some()) => {
                tracing::warn!("this peer has not left yet: it continues to leave at its next start");
            }
            _ => {}
        }
        let saved = peer_state.with(PeerState::save);
        // Not before the end is written down: a caller that follows a leave sees the end here.
        for (lane, last) in self.last.drain(..).enumerate() {
            last.into_iter().for_each(|last| status_board.set(lane as u8, *last, wall_s));
        }
        net.shutdown();
        match (end, saved) {
            (LoopEnd::Left, Err(why)) => LoopEnd::Fatal(format!(
                "this peer has left its network, but cannot record that ({why}): make room and start it once more"
            )),
            (end, Err(why)) => {
                tracing::warn!("{why}");
                end
            }
            (end, Ok(())) => end,
        }
    }
}

/// Returns the new start of a peer of which some lanes' incarnations are over, if there are such lanes.
fn reincarnates(ends: &[LoopEnd]) -> Option<LoopEnd> {
    let lives = ends.iter().filter_map(|end| match end {
        LoopEnd::Reincarnate(why, former) => Some((why, former)),
        _ => None,
    });
    let (why, _) = lives.clone().next()?;
    Some(LoopEnd::Reincarnate(why.clone(), lives.flat_map(|(_, former)| former.iter().copied()).collect()))
}

/// Guard that reports a panic of its thread: a peer with a dead loop must not look like a slow peer.
pub(crate) struct LoopGuard {
    /// The lane of the loop.
    pub lane: u8,
    /// The channel to the supervisor.
    pub words: Sender<Word>,
    /// The mailbox whose requests the loop leaves unanswered.
    pub mailbox: Arc<Mailbox>,
}

impl Drop for LoopGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.mailbox.end();
            let end = LoopEnd::Fatal("a thread of this peer panicked: please report the log lines above".into());
            let _ = self.words.send(Word::Ended(self.lane, end, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::data_dir::remembered::Network;
    use super::*;

    fn supervisor() -> (Supervisor, Arc<Lanes>, Sender<Word>, Vec<Arc<Mailbox>>) {
        let mailboxes: Vec<_> = (0..2).map(|_| Arc::new(Mailbox::default())).collect();
        let (supervisor, lanes, words) = Supervisor::new(mailboxes.clone());
        (supervisor, lanes, words, mailboxes)
    }

    fn peer_state() -> SharedPeerState {
        let dir = tempfile::tempdir().unwrap();
        let network = Network {
            name: "mine".into(),
            key: None,
            founded: false,
            durability: "sync".into(),
            lanes: 2,
            agreed: None,
            policies: Vec::new(),
        };
        SharedPeerState::new(PeerState::load(dir.path()).unwrap(), network)
    }

    fn halted(mailbox: &Mailbox) -> bool {
        mailbox.take_asks().iter().any(|ask| matches!(ask, Ask::Halt))
    }

    #[test]
    fn a_loop_that_panics_ends_the_peer() {
        let (mut supervisor, _lanes, words, mailboxes) = supervisor();
        let watch = LoopGuard { lane: 1, words: words.clone(), mailbox: mailboxes[1].clone() };
        let panics = thread::spawn(move || {
            let _watch = watch;
            panic!("on purpose");
        });
        assert!(panics.join().is_err());
        let other = mailboxes[0].clone();
        let halts = thread::spawn(move || {
            while !halted(&other) {
                thread::yield_now();
            }
            words.send(Word::Ended(0, LoopEnd::Halted, None)).unwrap();
        });
        assert!(matches!(supervisor.follow(&peer_state(), drop), LoopEnd::Fatal(_)));
        halts.join().unwrap();
        // No caller waits for an answer that the lane does not give.
        let (asker, answer) = sync_channel(1);
        mailboxes[1].ask(Ask::MayLeave(LeaveMode::Graceful, asker));
        assert!(answer.recv().is_err());
    }

    #[test]
    fn it_is_ready_when_all_lanes_are() {
        let (mut supervisor, _lanes, words, _) = supervisor();
        let happen = |lane, event| words.send(Word::Happened(lane, event)).unwrap();
        happen(0, Event::Ready);
        happen(0, Event::Note("one is ready".into()));
        happen(1, Event::Ready);
        happen(0, Event::NotReady);
        happen(1, Event::NotReady);
        happen(0, Event::Ready);
        happen(1, Event::Ready);
        words.send(Word::Ended(1, LoopEnd::Stopped, None)).unwrap();
        words.send(Word::Ended(0, LoopEnd::Left, None)).unwrap();
        let mut told = Vec::new();
        let end = supervisor.follow(&peer_state(), |event| told.push(event));
        assert_eq!(told, [Event::Note("one is ready".into()), Event::Ready, Event::NotReady, Event::Ready]);
        assert_eq!(end, LoopEnd::Stopped, "it has not left with all its lanes");
    }

    #[test]
    fn no_lane_leaves_where_one_may_not() {
        let (mut supervisor, lanes, words, mailboxes) = supervisor();
        let answer = lanes.leave(false);
        let loops = thread::spawn(move || {
            let refusals = [None, Some(LeaveRefusal::Few { remain: 2 })];
            for (mailbox, refusal) in mailboxes.iter().zip(refusals) {
                let mut asks = Vec::new();
                while asks.is_empty() {
                    asks = mailbox.take_asks();
                }
                let Some(Ask::MayLeave(LeaveMode::Graceful, asker)) = asks.pop() else { panic!("{asks:?}") };
                asker.send(refusal).unwrap();
            }
            let refused = answer.blocking_recv().unwrap();
            assert_eq!(refused, Err(LeaveError::Refused(LeaveRefusal::Few { remain: 2 })));
            assert!(mailboxes.iter().all(|mailbox| mailbox.take_asks().is_empty()), "none was asked to go");
            (0..2).for_each(|lane| words.send(Word::Ended(lane, LoopEnd::Left, None)).unwrap());
        });
        let peer_state = peer_state();
        assert_eq!(supervisor.follow(&peer_state, drop), LoopEnd::Left);
        assert_eq!(peer_state.with(|peer_state| peer_state.leaving()), None);
        loops.join().unwrap();
    }
}
