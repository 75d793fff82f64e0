//! The state that the loop, the swarm task and the stream tasks share.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use environment::lock;
use libp2p::PeerId;
use libp2p::swarm::ConnectionId;
use overlay::{PeerKey, RingId};
use tokio::sync::Notify;

use super::config::NetConfig;
use super::hello::{Instance, Membership};
use super::inbox::{Inbox, Wake};
use super::link::Links;
use super::stats::Counters;
use super::tried::Tried;

/// The shared state; see the module.
pub(super) struct SharedNet {
    pub(super) me: PeerKey,
    pub(super) config: NetConfig,
    pub(super) links: Links,
    pub(super) inbox: Inbox,
    pub(super) counters: Counters,
    pub(super) orders: Orders,
    ring: Mutex<Option<RingId>>,
    instance: Instance,
    tried: Mutex<Vec<Tried>>,
}

/// Orders to the swarm task. Bounded by the number of peers and connections: each is named once, for any number of
/// orders.
#[derive(Default)]
pub(super) struct Orders {
    pending: Mutex<PendingOrders>,
    ready: Notify,
}

/// Orders that are not yet carried out.
#[derive(Default)]
pub(super) struct PendingOrders {
    /// Connect to these peers.
    pub(super) dial: HashMap<PeerKey, Vec<String>>,
    /// These connections broke in a stream.
    pub(super) close: HashSet<(PeerId, ConnectionId)>,
    /// Send the hello again to every peer: this peer's ring is known now.
    pub(super) check: bool,
    /// End.
    pub(super) stop: bool,
}

impl SharedNet {
    pub(super) fn new(me: PeerKey, config: NetConfig, wakes: Vec<Wake>) -> SharedNet {
        SharedNet {
            me,
            links: Links::new(&config),
            inbox: Inbox::new(&config, wakes),
            counters: Counters::default(),
            orders: Orders::default(),
            ring: Mutex::new(config.ring),
            // Keyed anew by the system, so the hashed value does not matter.
            instance: Instance(RandomState::new().hash_one(0)),
            tried: Mutex::default(),
            config,
        }
    }

    /// Returns the dials while no peer is connected, with their results, as of the last second.
    pub(super) fn tried(&self) -> Vec<Tried> {
        lock(&self.tried).clone()
    }

    pub(super) fn set_tried(&self, tried: Vec<Tried>) {
        *lock(&self.tried) = tried;
    }

    /// Returns the values that are compared with other peers, as of now.
    pub(super) fn membership(&self) -> Membership {
        Membership {
            network: self.config.network.clone(),
            key: self.config.network_key.clone(),
            ring: *lock(&self.ring),
            lanes: self.inbox.lanes() as u8,
            durable: self.config.durable,
            instance: self.instance,
        }
    }

    /// Sets the ring, and returns whether it is new.
    pub(super) fn set_ring(&self, ring: RingId) -> bool {
        lock(&self.ring).replace(ring) != Some(ring)
    }
}

impl Orders {
    pub(super) fn give(&self, order: impl FnOnce(&mut PendingOrders)) {
        order(&mut lock(&self.pending));
        self.ready.notify_one();
    }

    /// Waits for orders and takes them all. No order is lost where the wait is given up.
    pub(super) async fn take(&self) -> PendingOrders {
        self.ready.notified().await;
        std::mem::take(&mut lock(&self.pending))
    }
}
