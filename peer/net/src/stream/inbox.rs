//! The inputs that wait for the loops, within a budget of bytes per class. Readers wait for room; no other caller waits.
//!
//! A peer has one loop, or one for each of its lanes. Events that are not frames go to all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use environment::lock;
use node::Class;
use node::wire::lane_of;
use overlay::PeerKey;
use tokio::sync::Semaphore;

use crate::config::NetConfig;
use crate::event::NetEvent;

/// Cost of a frame beside its bytes, in bytes: many empty frames are not free either.
const FRAME_COST_BYTES: usize = 64;
/// Upper limit of waiting refusals. Further ones are counted and logged, as all are, but not reported.
const REFUSALS_MAX: usize = 256;

/// Wakes the loop of a lane.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// The inboxes of all lanes; see the module.
pub(crate) struct Inbox {
    lanes: Vec<Lane>,
    /// Bytes that may still come in, by class: bulk that waits for the loop does not keep heartbeats out. The semaphores
    /// are fair, so no peer keeps out another peer.
    room: [Semaphore; 3],
    room_max: [usize; 3],
}

/// The events that wait for one loop.
struct Lane {
    inner: Mutex<InboxState>,
    wake: Wake,
}

#[derive(Default)]
struct InboxState {
    /// Control frames and all events that are not frames, drained before the rest.
    urgent: VecDeque<NetEvent>,
    rest: VecDeque<NetEvent>,
    /// Number of waiting ups and downs of each peer in `urgent`.
    changes: HashMap<PeerKey, u8>,
    refusals: usize,
    taken: [usize; 3],
}

impl Inbox {
    /// Creates the inboxes for the lanes of these wakes; at least one.
    pub(crate) fn new(config: &NetConfig, wakes: Vec<Wake>) -> Inbox {
        let room_max = [Class::Control, Class::Data, Class::Bulk]
            .map(|class| config.class(class).inbound_bytes_max.clamp(1, Semaphore::MAX_PERMITS / 2));
        let lanes = wakes.into_iter().map(|wake| Lane { inner: Mutex::default(), wake }).collect();
        Inbox { lanes, room: room_max.map(Semaphore::new), room_max }
    }

    /// Hands frames to their loops, after a wait for room. Returns `Err` once the network is shut down.
    pub(crate) async fn deliver(&self, peer: PeerKey, class: Class, frames: Vec<Bytes>) -> Result<(), ()> {
        if let [only] = &self.lanes[..] {
            return self.hand_to(only, peer, class, frames).await;
        }
        let mut parts = vec![Vec::new(); self.lanes.len()];
        for frame in frames {
            // An unreadable frame goes to the first lane, which counts it.
            let lane = lane_of(&frame, self.lanes.len()).unwrap_or(0);
            parts[lane].push(frame);
        }
        for (lane, part) in self.lanes.iter().zip(parts).filter(|(_, part)| !part.is_empty()) {
            self.hand_to(lane, peer, class, part).await?;
        }
        Ok(())
    }

    /// Returns the number of lanes.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    async fn hand_to(&self, lane: &Lane, peer: PeerKey, class: Class, frames: Vec<Bytes>) -> Result<(), ()> {
        let bytes: usize = frames.iter().map(|frame| frame.len() + FRAME_COST_BYTES).sum();
        // A batch larger than the whole budget waits until no other bytes wait.
        let cost = bytes.min(self.room_max[class as usize]);
        let room = self.room[class as usize].acquire_many(cost as u32).await.map_err(drop)?;
        room.forget();
        lane.push(|inner| {
            inner.taken[class as usize] += cost;
            let queue = if class == Class::Control { &mut inner.urgent } else { &mut inner.rest };
            queue.push_back(NetEvent::Frames { peer, class, frames });
        });
        Ok(())
    }

    /// Reports an event that is not a frame to the loops. Never waits, and still bounded: see [`InboxState::tell`].
    pub(crate) fn tell(&self, event: NetEvent) {
        for lane in &self.lanes {
            lane.push(|inner| inner.tell(event.clone()));
        }
    }

    /// Appends all events that wait for a lane to `into`.
    pub(crate) fn drain(&self, lane: u8, into: &mut Vec<NetEvent>) -> usize {
        let before = into.len();
        let taken = {
            let mut inner = lock(&self.lanes[usize::from(lane)].inner);
            into.extend(inner.urgent.drain(..));
            into.extend(inner.rest.drain(..));
            inner.changes.clear();
            inner.refusals = 0;
            std::mem::take(&mut inner.taken)
        };
        for (room, taken) in self.room.iter().zip(taken) {
            if taken > 0 {
                room.add_permits(taken);
            }
        }
        into.len() - before
    }

    /// Releases all waiting readers.
    pub(crate) fn close(&self) {
        self.room.iter().for_each(Semaphore::close);
    }
}

impl Lane {
    /// Wakes the loop where it may be asleep: the loop is awake as long as an event waits.
    fn push(&self, add: impl FnOnce(&mut InboxState)) {
        let was_empty = {
            let mut inner = lock(&self.inner);
            let was_empty = inner.urgent.is_empty() && inner.rest.is_empty();
            add(&mut inner);
            was_empty
        };
        if was_empty {
            (self.wake)();
        }
    }
}

impl InboxState {
    /// Adds an event, within bounds: two changes per peer (down and up again, or up and down), a few hundred refusals, one
    /// set of addresses.
    fn tell(&mut self, event: NetEvent) {
        match &event {
            NetEvent::PeerUp(peer) | NetEvent::PeerDown(peer) => {
                let waiting = self.changes.entry(*peer).or_default();
                if *waiting == 2 {
                    // Ups and downs alternate: this one cancels the last of those two.
                    *waiting = 1;
                    let peer = *peer;
                    let same =
                        |event: &NetEvent| matches!(event, NetEvent::PeerUp(p) | NetEvent::PeerDown(p) if *p == peer);
                    if let Some(last) = self.urgent.iter().rposition(same) {
                        self.urgent.remove(last);
                    }
                    return;
                }
                *waiting += 1;
            }
            NetEvent::Refused { .. } if self.refusals == REFUSALS_MAX => return,
            NetEvent::Refused { .. } => self.refusals += 1,
            NetEvent::Addresses(_) => self.urgent.retain(|event| !matches!(event, NetEvent::Addresses(_))),
            NetEvent::Frames { .. } => {}
        }
        self.urgent.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use group::message::{Message, Sender};
    use node::wire::{self, Frame};
    use overlay::{Epoch, GroupId, Incarnation, NodeId, RingId};

    use super::*;

    const SENDER: Sender =
        Sender { node: NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(1) }, epoch: Epoch(1) };

    fn inbox(bytes: usize) -> (Arc<Inbox>, Arc<AtomicUsize>) {
        let mut config = NetConfig::new("net");
        config.data.inbound_bytes_max = bytes;
        let wakes = Arc::new(AtomicUsize::new(0));
        let count = wakes.clone();
        let inbox = Inbox::new(&config, vec![Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed))]);
        (Arc::new(inbox), wakes)
    }

    fn drain(inbox: &Inbox) -> Vec<String> {
        let mut events = Vec::new();
        inbox.drain(0, &mut events);
        let name = |event: &NetEvent| match event {
            NetEvent::Frames { class, frames, .. } => format!("{class:?} {}", frames.len()),
            NetEvent::PeerUp(peer) => format!("up {}", peer.0[0]),
            NetEvent::PeerDown(peer) => format!("down {}", peer.0[0]),
            NetEvent::Addresses(addresses) => addresses.concat(),
            NetEvent::Refused { .. } => "refused".into(),
        };
        events.iter().map(name).collect()
    }

    #[tokio::test]
    async fn a_full_class_waits_and_others_do_not() {
        let (inbox, wakes) = inbox(1000);
        let peer = PeerKey([1; 32]);
        let frames = |bytes: usize| vec![Bytes::from(vec![0; bytes])];
        inbox.deliver(peer, Class::Data, frames(5000)).await.unwrap();
        inbox.deliver(peer, Class::Bulk, frames(5000)).await.unwrap();
        let waiting = tokio::spawn({
            let (inbox, frames) = (inbox.clone(), frames(10));
            async move { inbox.deliver(peer, Class::Data, frames).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        inbox.deliver(peer, Class::Control, frames(10)).await.unwrap();
        assert_eq!(drain(&inbox), ["Control 1", "Data 1", "Bulk 1"]);
        waiting.await.unwrap().unwrap();
        assert_eq!(drain(&inbox), ["Data 1"]);
        assert_eq!(wakes.load(Ordering::Relaxed), 2, "once for each time that it was empty");
    }

    #[tokio::test]
    async fn every_lane_gets_what_is_for_it() {
        let wakes = (0..2).map(|_| Box::new(|| ()) as Wake).collect();
        let inbox = Inbox::new(&NetConfig::new("net"), wakes);
        let peer = PeerKey([1; 32]);
        let frame = |lane| {
            let join = Frame::Group { ring: RingId(1), group: GroupId(1), sender: SENDER, message: Message::AskState };
            wire::encode(&wire::Stamp::default(), &join, lane)
        };
        let nonsense = Bytes::from_static(&[0x85, 1]);
        let frames = vec![frame(Some(1)), frame(Some(0)), frame(None), frame(Some(1)), nonsense];
        inbox.deliver(peer, Class::Data, frames).await.unwrap();
        inbox.tell(NetEvent::PeerDown(peer));
        let frames = |lane| {
            let mut events = Vec::new();
            inbox.drain(lane, &mut events);
            assert!(matches!(events[0], NetEvent::PeerDown(_)), "what concerns all is told to all");
            let NetEvent::Frames { frames, .. } = events.remove(1) else { panic!("{events:?}") };
            frames.iter().map(|frame| wire::decode(frame, Some(lane)).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(frames(1), [true, true]);
        assert_eq!(frames(0), [true, false, false], "nonsense is there to be counted");
        let room = Class::Data as usize;
        assert_eq!(inbox.room[room].available_permits(), inbox.room_max[room]);
    }

    #[test]
    fn a_flapping_peer_leaves_two_changes_at_most() {
        let (inbox, _) = inbox(1000);
        let (a, b) = (PeerKey([1; 32]), PeerKey([2; 32]));
        inbox.tell(NetEvent::PeerUp(b));
        for _ in 0..10 {
            inbox.tell(NetEvent::PeerUp(a));
            inbox.tell(NetEvent::PeerDown(a));
        }
        inbox.tell(NetEvent::PeerUp(a));
        inbox.tell(NetEvent::Addresses(vec!["old".into()]));
        inbox.tell(NetEvent::Addresses(vec!["new".into()]));
        assert_eq!(drain(&inbox), ["up 2", "up 1", "new"]);
        for _ in 0..10 {
            inbox.tell(NetEvent::PeerDown(a));
            inbox.tell(NetEvent::PeerUp(a));
        }
        assert_eq!(drain(&inbox), ["down 1", "up 1"]);
    }
}
