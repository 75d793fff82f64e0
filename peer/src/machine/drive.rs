//! The loop: drains all waiting inputs, hands them to the node, and carries out the node's outputs.
//!
//! One thread, one wake-up for a drained batch, no lock or task for an operation (`ARCHITECTURE.md`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use environment::{Seldom, step_back};
use group::op::{Limit, OpError, Refusal};
use net::{NetEvent, NetPort, Outgoing, Transport, peer_id_of};
use node::{AdminOutcome, Event, Input, Node, NodeStatus, Output, Request, RingWalk};
use overlay::Incarnation;
use overlay::time::{Now, Time};
use store::{Shortage, StoreError, StoreEvent};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::busy::BusyMeter;
use super::clocks::Clocks;
use super::data_dir::peer_state::{PeerState, SharedPeerState};
use super::data_dir::remembered::{Agreed, agreed_policies, contradictions};
use super::mailbox::{Ask, Mailbox};
use super::packets::PacketPort;
use super::status_board::StatusBoard;
use super::store_port::StorePort;
use super::supervisor::Word;
use crate::config::Config;
use crate::resp::Replies;

/// Interval between two status snapshots for administrators.
const PICTURE_EVERY: Duration = Duration::from_millis(200);
/// Upper limit of inputs that are handed in before outputs are pulled, so that no queue starves another queue.
const BATCH_MAX: usize = 4096;
/// Longest sleep of the loop, also where no timer or only a later one is set.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Niceness of the loop, in the kernel's scale, behind the threads of sockets and journal. Inputs that these threads add while
/// the loop waits form one larger batch, and other peers wait for the frames that these threads send.
const LOOP_NICE: i32 = 1;

/// Environment variable for experiments, in microseconds. The loop sleeps this time for each operation that this peer executes
/// as a primary, and for each read that it answers alone, one after the other. So a machine with few cores can imitate many
/// machines.
const SLEEP_PER_OPERATION: &str = "SCATTER_TEST_SLEEP_PER_OPERATION_US";

/// Sleep per operation, where [`SLEEP_PER_OPERATION`] asks for it.
struct Slowness {
    per_operation: Duration,
    taken: u64,
}

impl Slowness {
    fn from_env() -> Option<Slowness> {
        let micros = std::env::var(SLEEP_PER_OPERATION).ok()?.parse().ok()?;
        Some(Slowness { per_operation: Duration::from_micros(micros), taken: 0 })
    }

    fn sleep(&mut self, taken: u64) {
        let new = taken.saturating_sub(self.taken);
        self.taken = taken;
        thread::sleep(self.per_operation.saturating_mul(u32::try_from(new).unwrap_or(u32::MAX)));
    }
}

/// Reason for the end of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    /// The loop was asked to stop.
    Stopped,
    /// The node has left for good, and does not need its store any more.
    Left,
    /// The loop cannot go on; the text gives the reason.
    Fatal(String),
    /// The store failed: its disk is full or broken.
    StoreFailed(String),
    /// This incarnation is over, as after a long sleep, and the store is sound: the peer starts anew on it. Holds the reason,
    /// and the incarnations that are over, with their lanes.
    Reincarnate(String, Vec<(u8, Incarnation)>),
    /// The peer starts again on its store, as the same member: it is in doubt about the acknowledgements that the store lacks.
    StartAgain(String),
    /// This incarnation is over because its store is damaged: the peer starts anew with an empty store.
    Damaged(String),
    /// Like `Damaged`, and the store's content was declared lost: it is kept aside, where no process serves it.
    Quarantine(String),
    /// Another lane of this peer has ended.
    Halted,
}

/// The node of a lane, with the ports that its loop uses.
pub(crate) struct Drive {
    /// Index of the lane among the peer's lanes, from 0.
    pub lane: u8,
    /// The node.
    pub node: Node,
    /// The machine's clocks.
    pub clocks: Clocks,
    /// The network.
    pub net: NetPort,
    /// The port to the switch; `None` where no switch is configured.
    pub packets: Option<PacketPort>,
    /// The store; `None` where nothing is durable.
    pub store: Option<StorePort>,
    /// The inputs that wait.
    pub mailbox: Arc<Mailbox>,
    /// Answers to clients.
    pub replies: Replies,
    /// The peer's state beside the store.
    pub peer_state: Arc<SharedPeerState>,
    /// The status that administrators see.
    pub status_board: Arc<StatusBoard>,
    /// The peer's settings, as they were given.
    pub config: Arc<Config>,
    /// The channel for reports of events.
    pub words: Sender<Word>,
    /// Network events that came before the loop began.
    pub early: Vec<NetEvent>,
    /// The callers that wait for the node's answers.
    pub askers: Askers,
    /// The load of this lane.
    pub busy: BusyMeter,
}

/// The callers that wait for answers that take the node some time.
#[derive(Default)]
pub(crate) struct Askers {
    last: u64,
    requests: HashMap<u64, UnboundedSender<AdminOutcome>>,
    ring_walks: HashMap<u64, oneshot::Sender<RingWalk>>,
}

impl Askers {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// Returns the damage that the store reports in this event, if any.
fn damage_in(event: &StoreEvent) -> Option<String> {
    match event {
        StoreEvent::Failed(error) if error.is_damage() => Some(error.to_string()),
        _ => None,
    }
}

impl Drive {
    /// Runs until the node ends, and returns the reason with the node's last status.
    pub fn run(mut self) -> (LoopEnd, NodeStatus) {
        self.mailbox.adopt();
        step_back(LOOP_NICE);
        let mut packets = Vec::new();
        let mut slowness = Slowness::from_env();
        let (mut events, mut requests, mut stored) = (std::mem::take(&mut self.early), Vec::new(), Vec::new());
        let mut wake_at = Time(0);
        let mut pictured = Time(0);
        let mut unsaved = Seldom::default();
        let mut outgoing: Vec<Outgoing> = Vec::new();
        self.go_on_leaving();
        loop {
            self.net.drain(&mut events);
            self.mailbox.take(&mut requests, &mut stored);
            let asks = self.mailbox.take_asks();
            let stop = self.mailbox.take_stop();
            self.packets.iter().for_each(|port| port.drain(&mut packets));
            // The clock is read after all inputs to be handled have come. A member that may answer a read alone at this time
            // may answer a read that came before (hazard 55).
            let mut now = self.clocks.now();
            let idle = events.is_empty() && requests.is_empty() && stored.is_empty() && asks.is_empty() && !stop;
            if idle && packets.is_empty() && now.time < wake_at {
                now = self.park(now, wake_at);
            }
            self.tell_busy(now);
            let mut count = 0;
            for event in stored.drain(..) {
                if let Some(damage) = damage_in(&event) {
                    return self.end(LoopEnd::Damaged(damage), requests);
                }
                self.node.handle(now, store_input(event));
            }
            for event in events.drain(..) {
                count += self.on_net_event(now, event);
                if count >= BATCH_MAX {
                    // Pulled more often, the outputs still form batches.
                    if let Some(end) = self.pull(&mut wake_at, &mut outgoing) {
                        return self.end(end, requests);
                    }
                    count = 0;
                }
            }
            self.on_packets(now, &mut packets);
            for request in requests.drain(..) {
                self.node.handle(now, Input::Routecast(request));
            }
            for ask in asks {
                if self.on_ask(now, ask, &mut pictured) {
                    return self.end(LoopEnd::Halted, requests);
                }
            }
            if stop {
                self.node.handle(now, Input::Stop);
            }
            if now.time >= wake_at {
                self.node.handle(now, Input::Tick);
            }
            if let Some(slowness) = &mut slowness {
                slowness.sleep(self.node.operations_taken());
            }
            if let Some(end) = self.pull(&mut wake_at, &mut outgoing) {
                return self.end(end, requests);
            }
            if now.time.since(pictured) >= PICTURE_EVERY {
                pictured = now.time;
                self.picture();
                self.save(&mut unsaved);
            }
        }
    }

    /// Goes on leaving, where this peer was leaving when its process ended.
    fn go_on_leaving(&mut self) {
        if let Some(mode) = self.peer_state.with(|peer_state| peer_state.leaving()) {
            tracing::info!("this peer was leaving when its process ended, and continues to leave");
            self.node.handle(self.clocks.now(), Input::Leave { force: mode.is_forced() });
        }
    }

    /// Waits for an input, or until the node wants to be woken. Returns the time after that.
    fn park(&mut self, now: Now, wake_at: Time) -> Now {
        let parked = now.time;
        thread::park_timeout(wake_at.since(now.time).min(SLEEP_MAX));
        let now = self.clocks.now();
        self.busy.park(now.time.since(parked));
        if now.time >= wake_at {
            self.node.handle(now, Input::Tick);
        }
        now
    }

    /// Hands the packets of a switch to the node.
    fn on_packets(&mut self, now: Now, packets: &mut Vec<Bytes>) {
        if let Some(from) = self.packets.as_ref().map(|port| port.config().at) {
            for bytes in packets.drain(..) {
                self.node.handle(now, Input::Packet { from, bytes });
            }
        }
    }

    /// Hands a question of another thread to the node. Returns whether the loop shall end at once.
    fn on_ask(&mut self, now: Now, ask: Ask, pictured: &mut Time) -> bool {
        // The caller that asked may have gone.
        match ask {
            Ask::MayLeave(mode, asker) => {
                let _ = asker.send(self.node.refuses_leave(mode.is_forced()));
            }
            Ask::Leave(mode, asker) => {
                self.node.handle(now, Input::Leave { force: mode.is_forced() });
                let _ = asker.send(self.node.status().leaving);
                *pictured = Time(0);
            }
            Ask::AdminRequest(group, request, asker) => {
                let number = self.askers.next();
                self.askers.requests.insert(number, asker);
                self.node.handle(now, Input::AdminRequest { number, group, request });
            }
            Ask::RingWalk(from, count, asker) => {
                let number = self.askers.next();
                self.askers.ring_walks.insert(number, asker);
                self.node.handle(now, Input::RingWalk { number, from, count });
            }
            Ask::Halt => return true,
        }
        false
    }

    /// Writes the state beside the store, where it has changed.
    fn save(&self, unsaved: &mut Seldom) {
        if let Err(why) = self.peer_state.with(PeerState::save)
            && let Some(failures) = unsaved.failed(Instant::now())
        {
            tracing::warn!(failures, "{why}");
        }
    }

    /// Reports the load of this lane to the node, once a window of measurement is over.
    fn tell_busy(&mut self, now: Now) {
        if let Some((window, busy)) = self.busy.end(now.time, || self.store.as_ref().map(StorePort::stats)) {
            self.node.handle(now, Input::Busy { window, busy });
        }
    }

    fn picture(&self) {
        let status = self.node.status();
        self.agree(&status);
        self.status_board.set(self.lane, status, self.clocks.now().wall.0 / 1000);
    }

    /// Remembers the network's agreed settings; logs once where this peer's settings contradict them.
    fn agree(&self, status: &NodeStatus) {
        let Some(settings) = status.group.as_ref().map(|group| &group.settings).filter(|_| self.lane == 0) else {
            return;
        };
        let (agreed, policies) = (Agreed::from(settings), agreed_policies(settings));
        if !self.peer_state.agree(agreed, &policies) {
            return;
        }
        let overruled = contradictions(&self.config, agreed, &policies);
        if !overruled.is_empty() {
            tracing::warn!("the network's agreed settings replace this peer's: {}", overruled.join(", "));
        }
    }

    fn on_net_event(&mut self, now: Now, event: NetEvent) -> usize {
        match event {
            NetEvent::Frames { peer, frames, .. } => {
                let count = frames.len();
                for frame in frames {
                    self.busy.carry(frame.len());
                    self.node.handle(now, Input::Frame { from: peer, frame });
                }
                return count;
            }
            NetEvent::PeerUp(peer) => self.node.handle(now, Input::PeerUp(peer)),
            NetEvent::PeerDown(peer) => self.node.handle(now, Input::PeerDown(peer)),
            NetEvent::Addresses(addresses) => self.node.handle(now, Input::Addresses(addresses)),
            NetEvent::Refused { peer, reason, by } => {
                // The network layer has logged it, with the values of both sides.
                tracing::debug!(peer = %net::peer_id_of(&peer), ?by, "refused: {reason}");
            }
        }
        1
    }

    /// Carries out the node's outputs; returns the reason if the node has ended.
    fn pull(&mut self, wake_at: &mut Time, outgoing: &mut Vec<Outgoing>) -> Option<LoopEnd> {
        let mut end = None;
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Send { to, class, frame } => {
                    self.busy.carry(frame.len());
                    outgoing.push(Outgoing { to, class, frame });
                }
                Output::Persist { .. } | Output::Load { .. } | Output::Scan { .. } => match &mut self.store {
                    Some(store) => store.push(output),
                    None => tracing::error!("a node without a store has something for it"),
                },
                Output::Packet { bytes, .. } => match &self.packets {
                    Some(port) => port.send(&bytes),
                    None => tracing::error!("a node without a switch has something for one"),
                },
                Output::Reply { id, result } => self.replies.push(id, result),
                Output::WakeAt(at) => *wake_at = at,
                // The caller that asked may have gone.
                Output::AdminOutcome { number, outcome } => {
                    // A caller that is told of a change may look at once.
                    self.picture();
                    let _ = self.askers.requests.remove(&number).map(|asker| asker.send(outcome));
                }
                Output::RingWalked { number, walk } => {
                    let _ = self.askers.ring_walks.remove(&number).map(|asker| asker.send(walk));
                }
                Output::Dial { peer, addresses } => {
                    self.peer_state.with(|peer_state| peer_state.learn(peer, &addresses));
                    self.net.dial(peer, &addresses);
                }
                Output::Event(event) => end = end.or(self.on_event(event)),
            }
        }
        // Requests leave before the local sync: it overlaps with the syncs of other members (`docs/design/write.md`).
        self.net.send_batch(outgoing);
        if let Some(store) = &mut self.store {
            store.flush();
        }
        self.replies.flush();
        end
    }

    fn on_event(&mut self, event: Event) -> Option<LoopEnd> {
        let end = match &event {
            Event::Stopped => Some(LoopEnd::Stopped),
            Event::Left => Some(LoopEnd::Left),
            Event::Fatal(why) => Some(LoopEnd::StoreFailed(why.clone())),
            Event::Reincarnate { why, former } => Some(LoopEnd::Reincarnate(why.clone(), vec![(self.lane, *former)])),
            Event::StartAgain(why) => Some(LoopEnd::StartAgain(why.clone())),
            Event::Damaged(why) => Some(LoopEnd::Damaged(why.clone())),
            Event::Twin(why) => Some(LoopEnd::Fatal(format!("peer {}: {why}", peer_id_of(&self.node.id().peer)))),
            Event::Quarantine(why) => Some(LoopEnd::Quarantine(why.clone())),
            Event::InRing(ring) => match self.peer_state.enter(self.lane, *ring) {
                Err(why) => return Some(LoopEnd::Fatal(why)),
                Ok(Some(network)) => {
                    self.net.set_ring(network);
                    None
                }
                Ok(None) => None,
            },
            _ => None,
        };
        if end.is_none() {
            // The receiver may have ended already.
            let _ = self.words.send(Word::Happened(self.lane, event));
        }
        end
    }

    /// Does the last steps of this lane; the supervisor does those of the whole peer. Requests that the node was never given
    /// had no effect.
    fn end(mut self, end: LoopEnd, mut requests: Vec<Request>) -> (LoopEnd, NodeStatus) {
        requests.append(&mut self.mailbox.end());
        for request in requests {
            self.replies.push(request.id, Err(OpError::TryAgain(Refusal::Stopping)));
        }
        self.replies.flush();
        let status = self.node.status();
        self.agree(&status);
        (end, status)
    }
}

fn store_input(event: StoreEvent) -> Input {
    match event {
        StoreEvent::Persisted(token) => Input::Persisted(token),
        StoreEvent::Failed(error) => Input::StoreFailed(what_to_do(&error)),
        StoreEvent::Loaded { record_key, record } => Input::Loaded { record_key, record },
        StoreEvent::Scanned { token, records, done } => Input::Scanned { token, records, done },
        StoreEvent::DiskLow(low) => Input::DiskLow(low.map(|shortage| match shortage {
            Shortage::Volume => Limit::Disk,
            Shortage::Given => Limit::MaxDisk,
        })),
        StoreEvent::Behind(behind) => Input::StoreBehind(behind),
    }
}

/// Returns the text for the administrator who has to repair a disk.
pub(super) fn what_to_do(error: &StoreError) -> String {
    if error.is_full() {
        return format!(
            "the disk is full ({error}); no acknowledged write is lost: make room on the volume of --data-dir, then \
            restart this peer"
        );
    }
    format!(
        "the store failed ({error}); no acknowledged write is lost: check the disk of --data-dir, then restart this \
        peer"
    )
}
