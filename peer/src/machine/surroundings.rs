//! The resources that a peer uses, the limits that it was given, and the other peers that it is connected with.

use net::{ClassStats, NetHandle, PeerStats, Via, peer_id_of};
use store::StoreStats;

use crate::config::{Config, Entry};
use crate::status::{Budget, Budgets, PeerTraffic};

/// Sources of these values.
pub(crate) struct Surroundings {
    net: NetHandle,
    /// `None` where nothing is durable.
    store: Option<Box<dyn Fn() -> StoreStats + Send + Sync>>,
    given: Given,
    /// Whether no other peers may be found than the named ones: with `--join`, and without the local network.
    only_named: bool,
}

/// The limits that an administrator set.
struct Given {
    disk: u64,
    memory: u64,
    bandwidth: Option<u64>,
    connections: u64,
}

impl Surroundings {
    /// Creates the sources from this network and store, with the limits of these settings.
    pub fn new(
        config: &Config,
        net: NetHandle,
        store: Option<impl Fn() -> StoreStats + Send + Sync + 'static>,
    ) -> Surroundings {
        let given = Given {
            disk: config.max_disk,
            memory: config.max_memory,
            bandwidth: config.max_bandwidth,
            connections: u64::from(config.max_connections),
        };
        let store = store.map(|store| Box::new(store) as Box<dyn Fn() -> StoreStats + Send + Sync>);
        let only_named = matches!(config.entry, Entry::Join(_)) && !config.mdns;
        Surroundings { net, store, given, only_named }
    }

    /// Returns whether other peers are connected, with the dials that were tried: for readiness.
    pub fn reach(&self) -> (bool, String) {
        let up = self.net.stats().peers.iter().filter(|peer| peer.up).count();
        let tried = self.net.tried();
        let words = match (up, tried.is_empty()) {
            (1.., _) => format!("{up} peers connected"),
            (0, true) => "no peer is connected or dialled: name one with --join".into(),
            (0, false) => format!("no peer is connected: {}", net::told(&tried)),
        };
        (up > 0, words)
    }

    /// Returns the reason for which no peer will ever admit this newcomer, where there is one.
    pub fn hopeless(&self) -> Option<String> {
        net::hopeless(&self.net.tried()).filter(|_| self.only_named)
    }

    /// Returns the other peers.
    pub fn peers(&self) -> Vec<PeerTraffic> {
        self.net.stats().peers.iter().map(traffic).collect()
    }

    /// Returns the used and the given resources.
    pub fn budgets(&self) -> Budgets {
        let Given { disk, memory, bandwidth, connections } = self.given;
        Budgets {
            disk: Budget { used: Some(self.store.as_ref().map_or(0, |store| store().used_bytes)), given: Some(disk) },
            // Only where the system reports it.
            memory: Budget { used: load::resident_bytes(std::process::id()), given: Some(memory) },
            bandwidth: Budget { used: None, given: bandwidth },
            connections: Budget { used: Some(self.net.stats().connections), given: Some(connections) },
        }
    }
}

fn traffic(peer: &PeerStats) -> PeerTraffic {
    let sum = |of: fn(&ClassStats) -> u64| peer.classes.iter().map(of).sum::<u64>();
    let via = peer.via.filter(|_| peer.up).map(|via| match via {
        Via::Tcp => "tcp",
        Via::Quic => "quic",
    });
    PeerTraffic {
        peer_id: peer_id_of(&peer.peer).to_string(),
        name: None,
        up: peer.up,
        via: via.map(str::to_owned),
        rtt_ms: peer.rtt.filter(|_| peer.up).map(|rtt| rtt.as_secs_f64() * 1e3),
        sent_frames: sum(|class| class.sent_frames),
        sent_bytes: sum(|class| class.sent_bytes),
        received_frames: sum(|class| class.received_frames),
        received_bytes: sum(|class| class.received_bytes),
        queued_bytes: sum(|class| class.queued_bytes as u64),
        dropped_frames: sum(|class| class.dropped_full + class.dropped_late),
    }
}
