//! Division of the limit of open files: the store and the loop come first, then monitoring and peers, and clients get the rest.
//!
//! A store that finds no descriptor fails, and the peer with it; a client that finds none only tries again.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the store's files, also those of a checkpoint or a new start, and for standard streams, listeners, timers, switches
/// and reads of `/proc`.
const OWN: u64 = 96;
/// Descriptors for connections that are being refused or closed, beyond all places.
const CLOSING: u64 = 24;
/// Limit to try where the system reports none, and then refuses to go so far.
const MODEST: u64 = 10_240;

/// Upper limits of connections of the endpoints and the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Clients of `--resp` that have given the password, where there is one.
    pub clients: usize,
    /// Clients that have not given the password yet.
    pub strangers: usize,
    /// Connections of `--http`.
    pub http: usize,
    /// Connections with peers. As many more may be in their handshake.
    pub peers: usize,
}

impl Shares {
    /// Returns the number of descriptors that these connections take.
    fn descriptors(&self) -> u64 {
        (self.clients + self.strangers + self.http + 2 * self.peers) as u64
    }

    /// Returns the shares within `limit` open files: all, or clients are cut down first, and peers and monitoring only where that
    /// leaves clients less than a third.
    pub fn within(self, limit: Option<u64>) -> Shares {
        let Some(limit) = limit else { return self };
        let rest = limit.saturating_sub(OWN + CLOSING);
        if self.descriptors() <= rest {
            return self;
        }
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        let http = self.http.min(rest / 6).max(4);
        let peers = self.peers.min(rest / 5).max(8);
        let strangers = self.strangers.min(rest / 12).max(4);
        let clients = self.clients.min(rest.saturating_sub(http + 2 * peers + strangers)).max(4);
        Shares { clients, strangers, http, peers }
    }
}

/// Registers gauges of the limits in force, so that monitoring shows how near to them a peer is. The limit of open files is left out
/// where there is none.
pub(crate) fn register_limits(registry: &mut Registry, shares: Shares, open_files: Option<u64>) {
    let limits = [
        ("resp_clients_limit", "Client connections at once, at most (maxclients)", Some(shares.clients as u64)),
        ("http_connections_limit", "HTTP connections at once, at most", Some(shares.http as u64)),
        ("open_files_limit", "Open files of the process, at most (ulimit -n)", open_files),
    ];
    for (name, help, limit) in limits.into_iter().filter_map(|(name, help, limit)| Some((name, help, limit?))) {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(limit).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    }
}

/// Returns the limit of open files that is in force; `None` where there is none.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the limit of open files as far as this process may: each client and each peer is one, and shells give 1024.
/// Returns the limit in force; `None` where there is none.
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let wanted = [limit.maximum, Some(limit.maximum.unwrap_or(MODEST).min(MODEST))];
    for current in wanted {
        let is_higher = limit.current.is_some_and(|now| current.is_none_or(|wanted| wanted > now));
        if is_higher && setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum }).is_ok() {
            break;
        }
    }
    self::limit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Shares = Shares { clients: 4096, strangers: 128, http: 128, peers: 256 };

    #[test]
    fn what_is_wanted_is_given_where_it_fits() {
        let enough = OWN + CLOSING + WANTED.descriptors();
        for limit in [None, Some(enough), Some(1 << 20)] {
            assert_eq!(WANTED.within(limit), WANTED);
        }
        let shares = WANTED.within(Some(enough - 1));
        assert_eq!(shares, Shares { clients: 4095, ..WANTED });
    }

    #[test]
    fn limits_are_metrics() {
        let text = |open_files| {
            let (mut registry, mut text) = (Registry::with_prefix("scatter"), String::new());
            register_limits(&mut registry, WANTED, open_files);
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let limited = text(Some(1024));
        for line in ["resp_clients_limit 4096", "http_connections_limit 128", "open_files_limit 1024"] {
            assert!(limited.contains(&format!("\nscatter_{line}\n")), "{line} in {limited}");
        }
        assert!(!text(None).contains("open_files_limit"));
    }

    #[test]
    fn every_limit_that_a_peer_can_run_with_holds_all_shares() {
        for limit in 200..6000 {
            for wanted in [WANTED, Shares { peers: 8, ..WANTED }, Shares { peers: 1024, http: 4, ..WANTED }] {
                let shares = wanted.within(Some(limit));
                assert!(shares.descriptors() + OWN + CLOSING <= limit, "{shares:?} within {limit}");
                let least = wanted.descriptors().min(limit - OWN - CLOSING) as usize / 4;
                assert!(shares.clients >= least.min(wanted.clients), "{shares:?} within {limit}");
                assert!(shares.peers <= wanted.peers && shares.http <= wanted.http);
            }
        }
    }
}
