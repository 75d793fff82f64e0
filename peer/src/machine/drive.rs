//! The loop: drains everything that waits, hands it to the node, and does what the node wants done.
//!
//! One thread, one wake-up for a drained batch, no lock or task for an operation (§8 of the design).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use group::time::{Now, Time};
use node::{Event, Input, Node, Output};
use tokio::sync::mpsc;

use super::clocks::Clocks;
use super::mailbox::Mailbox;
use super::memo::Memo;
use super::show::{Showcase, leaving_status};
use crate::admin::LeaveError;
use crate::net::{Net, NetEvent, Outgoing, Transport};
use crate::priority::step_back;
use crate::resp::Replies;
use crate::status::LeavingStatus;
use crate::store::{StoreEvent, StoreThread};

/// Between two pictures for people to see.
const PICTURE_EVERY: Duration = Duration::from_millis(200);
/// Inputs handed in before outputs are pulled, at most: so that no queue starves another.
const BATCH_MAX: usize = 4096;
/// Without a timer the loop looks up so often all the same.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// How far the loop steps back, in the kernel's terms, behind the threads of sockets and journal: what these bring
/// while it waits makes one larger batch, and others wait for what they send.
const LOOP_NICE: i32 = 1;

/// Why the loop ended.
#[derive(Debug)]
pub enum End {
    /// It was asked to; the store is sealed.
    Stopped,
    /// It has left for good, and that is remembered; the store is of no more use.
    Left,
    /// It cannot go on; the text says why.
    Fatal(String),
    /// This life is over: the peer starts anew with an empty store.
    Reincarnate(String),
}

/// Everything that the loop works with.
pub struct Drive {
    /// The node.
    pub node: Node,
    /// The machine's clocks.
    pub clocks: Clocks,
    /// The network.
    pub net: Net,
    /// The store; none where nothing is durable.
    pub store: Option<StoreThread>,
    /// What waits.
    pub mailbox: Arc<Mailbox>,
    /// Answers to clients.
    pub replies: Replies,
    /// What is remembered beside the store.
    pub memo: Memo,
    /// What people see.
    pub showcase: Arc<Showcase>,
    /// What the daemon hears.
    pub events: mpsc::UnboundedSender<Event>,
    /// Network events that came before the loop began.
    pub early: Vec<NetEvent>,
}

impl Drive {
    /// Runs until the node ends.
    pub fn run(mut self) -> End {
        self.mailbox.adopt();
        step_back(LOOP_NICE);
        let (mut events, mut requests, mut stored) = (std::mem::take(&mut self.early), Vec::new(), Vec::new());
        let mut wake_at = Time(0);
        let mut pictured = Time(0);
        let mut stopping = false;
        let mut outgoing: Vec<Outgoing> = Vec::new();
        if let Some(force) = self.memo.leaving() {
            tracing::info!("this peer was leaving when it ended, and goes on leaving");
            self.node.handle(self.clocks.now(), Input::Leave { force });
        }
        loop {
            self.net.drain(&mut events);
            self.mailbox.take(&mut requests, &mut stored);
            let leaves = self.mailbox.take_leaves();
            let stop = self.mailbox.take_stop();
            stopping |= stop;
            let mut now = self.clocks.now();
            let idle = events.is_empty() && requests.is_empty() && stored.is_empty() && leaves.is_empty() && !stop;
            if idle && now.time < wake_at {
                thread::park_timeout(wake_at.since(now.time).min(SLEEP_MAX));
                now = self.clocks.now();
                if now.time >= wake_at {
                    self.node.handle(now, Input::Tick);
                }
            }
            let mut count = 0;
            for event in stored.drain(..) {
                if let StoreEvent::Failed(error) = &event
                    && error.is_damage()
                {
                    return self.end(End::Reincarnate(error.to_string()), stopping);
                }
                self.node.handle(now, store_input(event));
            }
            for event in events.drain(..) {
                count += self.on_net_event(now, event);
                if count >= BATCH_MAX {
                    // Pulled more often, the outputs are still batches.
                    if let Some(end) = self.pull(&mut wake_at, &mut outgoing) {
                        return self.end(end, stopping);
                    }
                    count = 0;
                }
            }
            for request in requests.drain(..) {
                self.node.handle(now, Input::Request(request));
            }
            for (force, asker) in leaves {
                // Who asked may have gone.
                let _ = asker.send(self.leave(now, force));
                pictured = Time(0);
            }
            if stop {
                self.node.handle(now, Input::Stop);
            }
            if now.time >= wake_at {
                self.node.handle(now, Input::Tick);
            }
            if let Some(end) = self.pull(&mut wake_at, &mut outgoing) {
                return self.end(end, stopping);
            }
            if now.time.since(pictured) >= PICTURE_EVERY {
                pictured = now.time;
                self.showcase.set(self.node.status(), now.wall.0 / 1000);
                if let Err(why) = self.memo.save() {
                    tracing::warn!("{why}");
                }
            }
        }
    }

    /// Begins to leave. Remembered before anybody is told: whoever dies in the middle of it must not come back as a member.
    fn leave(&mut self, now: Now, force: bool) -> Result<LeavingStatus, LeaveError> {
        if let Some(refusal) = self.node.refuses_leave(force) {
            return Err(LeaveError::Refused(refusal));
        }
        let before = self.memo.leaving();
        self.memo.set_leaving(Some(force || before == Some(true)));
        if let Err(why) = self.memo.save() {
            self.memo.set_leaving(before);
            return Err(LeaveError::Forgotten(why));
        }
        self.node.handle(now, Input::Leave { force });
        Ok(self.node.status().leaving.map(leaving_status).unwrap_or_default())
    }

    fn on_net_event(&mut self, now: Now, event: NetEvent) -> usize {
        match event {
            NetEvent::Frames { peer, frames, .. } => {
                let count = frames.len();
                for frame in frames {
                    self.node.handle(now, Input::Frame { from: peer, frame });
                }
                return count;
            }
            NetEvent::PeerUp(peer) => self.node.handle(now, Input::PeerUp(peer)),
            NetEvent::PeerDown(peer) => self.node.handle(now, Input::PeerDown(peer)),
            NetEvent::Addresses(addresses) => self.node.handle(now, Input::Addresses(addresses)),
            NetEvent::Refused { peer, reason, by } => {
                tracing::warn!(peer = %crate::net::peer_id_of(&peer), ?by, "refused: {reason}");
            }
        }
        1
    }

    /// Does what the node wants done; says if it has ended.
    fn pull(&mut self, wake_at: &mut Time, outgoing: &mut Vec<Outgoing>) -> Option<End> {
        let mut end = None;
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Send { to, class, frame } => outgoing.push(Outgoing { to, class, frame }),
                Output::Persist { token, changes } => match &mut self.store {
                    Some(store) => store.persist(token, changes),
                    None => tracing::error!(token, "a node without a store wants something stored"),
                },
                Output::Load { record_key, urgent } => {
                    self.store.iter().for_each(|store| store.load(record_key.clone(), urgent));
                }
                Output::Scan { token, from, bytes_max } => {
                    self.store.iter().for_each(|store| store.scan(token, from.clone(), bytes_max));
                }
                Output::Reply { id, result } => self.replies.push(id, result),
                Output::WakeAt(at) => *wake_at = at,
                Output::Dial { peer, addresses } => {
                    self.memo.learn(peer, &addresses);
                    self.net.dial(peer, &addresses);
                }
                Output::Event(event) => end = end.or(self.on_event(event)),
            }
        }
        // Requests leave before the local sync: it overlaps with theirs (§6.2 of the design).
        self.net.send_batch(outgoing);
        if let Some(store) = &mut self.store {
            store.submit();
        }
        self.replies.flush();
        end
    }

    fn on_event(&mut self, event: Event) -> Option<End> {
        let end = match &event {
            Event::Stopped => Some(End::Stopped),
            Event::Left => Some(End::Left),
            Event::Fatal(why) => Some(End::Fatal(why.clone())),
            Event::Reincarnate(why) => Some(End::Reincarnate(why.clone())),
            Event::InRing(ring) => {
                self.net.set_ring(*ring);
                self.memo.set_ring(*ring);
                if let Err(why) = self.memo.save() {
                    return Some(End::Fatal(why));
                }
                None
            }
            _ => None,
        };
        if end.is_none() {
            // The daemon may have ended already.
            let _ = self.events.send(event);
        }
        end
    }

    /// The last things: the store is sealed after a stop, and only left alone after anything else. `stopping`: it was
    /// asked to stop.
    fn end(mut self, end: End, stopping: bool) -> End {
        self.mailbox.end();
        self.replies.flush();
        let (last, wall_s) = (self.node.status(), self.clocks.now().wall.0 / 1000);
        let end = match (end, self.store.take()) {
            (End::Stopped, Some(store)) => match store.seal() {
                Ok(()) => End::Stopped,
                Err(error) => End::Fatal(format!("the store could not be sealed: {error}")),
            },
            // A new life is for the next start: this process was told to end. Without a seal, that start looks again.
            (End::Reincarnate(why), store) if stopping => {
                drop(store);
                tracing::warn!("{why}; this peer stops, as it was asked to");
                End::Stopped
            }
            (end, _) => end,
        };
        match end {
            End::Left => self.memo.set_left(),
            End::Stopped if self.memo.leaving().is_some() => {
                tracing::warn!("it has not left yet: it goes on leaving with its next start");
            }
            _ => {}
        }
        let saved = self.memo.save();
        // Not before that is written down: who follows a leave sees its end here.
        self.showcase.set(last, wall_s);
        self.net.shutdown();
        match (end, saved) {
            (End::Left, Err(why)) => End::Fatal(format!(
                "this peer has left its network, but cannot write that down ({why}): make room and start it once more"
            )),
            (end, Err(why)) => {
                tracing::warn!("{why}");
                end
            }
            (end, Ok(())) => end,
        }
    }
}

fn store_input(event: StoreEvent) -> Input {
    match event {
        StoreEvent::Persisted(token) => Input::Persisted(token),
        StoreEvent::Failed(error) if error.is_full() => Input::StoreFailed(format!(
            "the disk is full ({error}); nothing that was acknowledged is lost: make room, then start this peer again"
        )),
        StoreEvent::Failed(error) => Input::StoreFailed(error.to_string()),
        StoreEvent::Loaded { record_key, record } => Input::Loaded { record_key, record },
        StoreEvent::Scanned { token, records, done } => Input::Scanned { token, records, done },
        StoreEvent::DiskLow(low) => Input::DiskLow(low),
        StoreEvent::Behind(behind) => Input::StoreBehind(behind),
    }
}
