//! The state that the loop, the swarm task and the stream tasks share.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use environment::lock;
use libp2p::PeerId;
use libp2p::swarm::ConnectionId;
use overlay::{PeerKey, RingId};
use tokio::sync::Notify;

use crate::config::NetConfig;
use crate::dial::tried::Tried;
use crate::stats::Counters;
use crate::stream::hello::{Instance, Membership};
use crate::stream::inbox::{Inbox, Wake};
use crate::stream::link::Links;

/// The shared state; see the module.
pub(crate) struct SharedNet {
    pub(crate) me: PeerKey,
    pub(crate) config: NetConfig,
    pub(crate) links: Links,
    pub(crate) inbox: Inbox,
    pub(crate) counters: Counters,
    pub(crate) orders: Orders,
    ring: Mutex<Option<RingId>>,
    instance: Instance,
    tried: Mutex<Vec<Tried>>,
}

/// Orders to the swarm task. Bounded by the number of peers and connections: each is named once, for any number of
/// orders.
#[derive(Default)]
pub(crate) struct Orders {
    pending: Mutex<PendingOrders>,
    ready: Notify,
}

/// Orders that are not yet carried out.
#[derive(Default)]
pub(crate) struct PendingOrders {
    /// Connect to these peers.
    pub(crate) dial: HashMap<PeerKey, Vec<String>>,
    /// These connections broke in a stream.
    pub(crate) close: HashSet<(PeerId, ConnectionId)>,
    /// Send the hello again to every peer: this peer's ring is known now.
    pub(crate) check: bool,
    /// End.
    pub(crate) stop: bool,
}

impl SharedNet {
    pub(crate) fn new(me: PeerKey, config: NetConfig, wakes: Vec<Wake>) -> SharedNet {
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
    pub(crate) fn tried(&self) -> Vec<Tried> {
        lock(&self.tried).clone()
    }

    pub(crate) fn set_tried(&self, tried: Vec<Tried>) {
        *lock(&self.tried) = tried;
    }

    /// Returns the values that are compared with other peers, as of now.
    pub(crate) fn membership(&self) -> Membership {
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
    pub(crate) fn set_ring(&self, ring: RingId) -> bool {
        lock(&self.ring).replace(ring) != Some(ring)
    }
}

impl Orders {
    pub(crate) fn give(&self, order: impl FnOnce(&mut PendingOrders)) {
        order(&mut lock(&self.pending));
        self.ready.notify_one();
    }

    /// Waits for orders and takes them all. No order is lost where the wait is given up.
    pub(crate) async fn take(&self) -> PendingOrders {
        self.ready.notified().await;
        std::mem::take(&mut lock(&self.pending))
    }
}
