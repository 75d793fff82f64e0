//! The state of one peer that outlives its connections, and the table of all peers.
//!
//! Links are added where a connection is established or the loop asks for a peer, and removed by the swarm task alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use environment::lock;
use libp2p::swarm::ConnectionId;
use node::Class;
use overlay::PeerKey;

use crate::config::NetConfig;
use crate::event::{NetEvent, Via};
use crate::stats::{ClassStats, PeerStats};
use crate::stream::hello::Instance;
use crate::stream::inbox::Inbox;
use crate::stream::queue::{Keep, Memory, Queue};

pub(crate) const CLASSES: [Class; 3] = [Class::Control, Class::Data, Class::Bulk];

/// The state of one peer.
pub(crate) struct Link {
    pub(crate) peer: PeerKey,
    queues: [Queue; 3],
    received: [Received; 3],
    /// Round trip of the last ping in microseconds, plus one; 0 before the first.
    rtt_us: AtomicU64,
    /// Whether the loop, the settings or mDNS asked for this peer. Such a peer finds a place when strangers no longer
    /// do.
    pub(crate) wanted: AtomicBool,
    /// Whether the loop asked for this peer and the swarm task does not know it yet: the peer must not be forgotten
    /// meanwhile.
    pub(crate) asked: AtomicBool,
    /// Connections on which a hello was accepted. The peer is up while there are any.
    accepted: Mutex<HashMap<ConnectionId, Instance>>,
    /// The transport of the connection that the local peer writes on; `None` while there is none.
    via: Mutex<Option<Via>>,
}

#[derive(Default)]
struct Received {
    frames: AtomicU64,
    bytes: AtomicU64,
}

/// All peers that are connected or asked for.
pub(crate) struct Links {
    config: NetConfig,
    memory: Memory,
    map: RwLock<HashMap<PeerKey, Arc<Link>>>,
}

impl Link {
    fn new(peer: PeerKey, config: &NetConfig, memory: &Memory) -> Link {
        let queue = |class| {
            let keep = if class == Class::Control { Keep::Newest } else { Keep::Oldest };
            Queue::new(config.class(class).clone(), keep, memory.clone())
        };
        Link {
            peer,
            queues: CLASSES.map(queue),
            received: Default::default(),
            rtt_us: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            accepted: Mutex::default(),
            via: Mutex::default(),
        }
    }

    pub(crate) fn queue(&self, class: Class) -> &Queue {
        &self.queues[class as usize]
    }

    /// Notes that a hello was accepted on this connection. Called before the first frame of it is delivered, so the
    /// loop gets `PeerUp` before the frames. Returns connections of an earlier start of the peer: they are dead, though
    /// this may take long to show, and frames written to them are lost.
    pub(crate) fn accept(&self, connection: ConnectionId, instance: Instance, inbox: &Inbox) -> Vec<ConnectionId> {
        let mut accepted = lock(&self.accepted);
        let dead: Vec<ConnectionId> =
            accepted.iter().filter(|(_, other)| **other != instance).map(|(id, _)| *id).collect();
        if !dead.is_empty() {
            accepted.clear();
            inbox.tell(NetEvent::PeerDown(self.peer));
        }
        let first = accepted.is_empty();
        if accepted.insert(connection, instance).is_none() && first {
            inbox.tell(NetEvent::PeerUp(self.peer));
        }
        dead
    }

    /// Notes that this connection is gone. The peer is down when none is left: two simultaneous dials make two
    /// connections.
    pub(crate) fn closed(&self, connection: ConnectionId, inbox: &Inbox) {
        let mut accepted = lock(&self.accepted);
        if accepted.remove(&connection).is_some() && accepted.is_empty() {
            inbox.tell(NetEvent::PeerDown(self.peer));
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        !lock(&self.accepted).is_empty()
    }

    pub(crate) fn received(&self, class: Class, frames: usize, bytes: usize) {
        let received = &self.received[class as usize];
        received.frames.fetch_add(frames as u64, Ordering::Relaxed);
        received.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_via(&self, via: Option<Via>) {
        *lock(&self.via) = via;
    }

    pub(crate) fn set_rtt(&self, rtt: Duration) {
        self.rtt_us.store(rtt.as_micros() as u64 + 1, Ordering::Relaxed);
    }

    pub(crate) fn expire(&self, now: Instant) {
        self.queues.iter().for_each(|queue| queue.expire(now));
    }

    /// Returns whether no frame waits to be written.
    pub(crate) fn is_drained(&self) -> bool {
        self.queues.iter().all(Queue::is_drained)
    }

    pub(crate) fn stats(&self) -> PeerStats {
        let rtt = self.rtt_us.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros);
        let classes = CLASSES.map(|class| self.class_stats(class));
        PeerStats { peer: self.peer, up: self.is_up(), via: *lock(&self.via), rtt, classes }
    }

    fn class_stats(&self, class: Class) -> ClassStats {
        let (queue, received) = (self.queue(class), &self.received[class as usize]);
        let (depth, counts) = (queue.depth(), queue.counts());
        ClassStats {
            queued_frames: depth.0,
            queued_bytes: depth.1,
            sent_frames: counts.sent_frames,
            sent_bytes: counts.sent_bytes,
            received_frames: received.frames.load(Ordering::Relaxed),
            received_bytes: received.bytes.load(Ordering::Relaxed),
            dropped_full: counts.dropped_full,
            dropped_late: counts.dropped_late,
            lost: counts.lost,
        }
    }
}

impl Links {
    pub(crate) fn new(config: &NetConfig) -> Links {
        Links { config: config.clone(), memory: Memory::new(config.queued_bytes_max), map: RwLock::default() }
    }

    pub(crate) fn get(&self, peer: &PeerKey) -> Option<Arc<Link>> {
        self.read().get(peer).cloned()
    }

    pub(crate) fn get_or_add(&self, peer: PeerKey) -> Arc<Link> {
        self.write().entry(peer).or_insert_with(|| self.new_link(peer)).clone()
    }

    /// Notes that the loop asks for this peer. Returns whether there was room for it among [`NetConfig::peers_max`].
    pub(crate) fn ask(&self, peer: PeerKey) -> bool {
        // Marked under the lock under which the swarm task forgets peers: frames queued from now on are not forgotten
        // with it.
        let mut map = self.write();
        if map.len() >= self.config.peers_max && !map.contains_key(&peer) {
            return false;
        }
        let link = map.entry(peer).or_insert_with(|| self.new_link(peer));
        link.asked.store(true, Ordering::Relaxed);
        link.wanted.store(true, Ordering::Relaxed);
        true
    }

    /// Forgets the links that `keep` rejects and that the loop has not just asked for.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&Link) -> bool) {
        self.write().retain(|_, link| keep(link) || link.asked.load(Ordering::Relaxed));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.read().values().cloned().collect()
    }

    fn new_link(&self, peer: PeerKey) -> Arc<Link> {
        Arc::new(Link::new(peer, &self.config, &self.memory))
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<PeerKey, Arc<Link>>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<PeerKey, Arc<Link>>> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes in all outgoing queues.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.memory.used()
    }
}
