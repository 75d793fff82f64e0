//! Whom to dial, and when again. A value: it is told what happened and when, and says which dials are due.
//!
//! Pauses double and are jittered, so peers that lost each other at one moment do not come back at one moment. A peer
//! that refused us, or that we refused, is left alone for much longer: nothing changes there by itself.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use libp2p::Multiaddr;
use libp2p::swarm::ConnectionId;
use overlay::PeerKey;

use super::config::Timing;

/// Dials under way at most; the others wait for their turn.
const DIALS_MAX: usize = 64;
/// Addresses of one peer at most.
pub(super) const ADDRESSES_MAX: usize = 8;
/// A peer that was found by chance (mDNS) is given up after so many failures; it will be found again.
const FOUND_FAILURES_MAX: u32 = 3;

/// Who is dialled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// This peer and no other.
    Peer(PeerKey),
    /// Whoever answers there.
    Door(Multiaddr),
}

/// How long somebody is dialled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Until {
    /// A few times.
    Found,
    /// Until then without a connection.
    Wanted(Instant),
    /// As long as this peer runs.
    Forever,
}

/// A dial that is due. Its id is to be told with [`Redial::dialing`].
#[derive(Debug, PartialEq)]
pub(super) struct Due {
    pub(super) target: Target,
    pub(super) addresses: Vec<Multiaddr>,
}

/// See the module.
pub(super) struct Redial {
    timing: Timing,
    entries: HashMap<Target, Entry>,
    random: RandomState,
    draws: u64,
}

struct Entry {
    addresses: Vec<Multiaddr>,
    until: Until,
    state: State,
    failures: u32,
    refusals: u32,
    /// Not before that, after a refusal, whatever else happens: of two simultaneous connections one may still come up, and
    /// go, after the other was refused.
    not_before: Instant,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// To be dialled at this time.
    Idle(Instant),
    Dialing(ConnectionId),
    Connected(PeerKey),
}

impl Redial {
    pub(super) fn new(timing: Timing) -> Redial {
        Redial { timing, entries: HashMap::new(), random: RandomState::new(), draws: 0 }
    }

    /// Dial `target` from now on. Asking again renews the time and the addresses, but does not shorten a pause.
    pub(super) fn want(
        &mut self,
        target: Target,
        mut addresses: Vec<Multiaddr>,
        until: Until,
        connected: bool,
        now: Instant,
    ) {
        addresses.truncate(ADDRESSES_MAX);
        let state = match &target {
            Target::Peer(peer) if connected => State::Connected(*peer),
            _ => State::Idle(now),
        };
        let entry = self.entries.entry(target).or_insert(Entry {
            addresses: Vec::new(),
            until,
            state,
            failures: 0,
            refusals: 0,
            not_before: now,
        });
        entry.until = entry.until.max(until);
        if !addresses.is_empty() && addresses != entry.addresses {
            // New addresses are tried at once, unless the peer itself does not want us.
            if let (State::Idle(at), 0) = (&mut entry.state, entry.refusals) {
                *at = now;
            }
            entry.addresses = addresses;
        }
    }

    /// The same for one address more, beside those that are known: they are tried together.
    pub(super) fn add(&mut self, target: Target, address: Multiaddr, until: Until, connected: bool, now: Instant) {
        let mut addresses = self.entries.get(&target).map(|entry| entry.addresses.clone()).unwrap_or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        self.want(target, addresses, until, connected, now);
    }

    /// Those to dial now. Forgets those whose time is over.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Due> {
        self.entries.retain(|_, entry| match (entry.until, entry.state) {
            (Until::Forever, _) | (_, State::Connected(_) | State::Dialing(_)) => true,
            (Until::Wanted(until), State::Idle(_)) => until > now,
            (Until::Found, State::Idle(at)) => match entry.refusals {
                0 => entry.failures < FOUND_FAILURES_MAX,
                // Kept through the pause: found again meanwhile, it is not dialled again.
                _ => at > now,
            },
        });
        let due = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.state, State::Idle(at) if at <= now) && !entry.addresses.is_empty());
        let dialing = self.entries.values().filter(|entry| matches!(entry.state, State::Dialing(_))).count();
        due.take(DIALS_MAX.saturating_sub(dialing))
            .map(|(target, entry)| Due { target: target.clone(), addresses: entry.addresses.clone() })
            .collect()
    }

    /// When the next dial is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let idle = self.entries.values().filter(|entry| !entry.addresses.is_empty());
        idle.filter_map(|entry| if let State::Idle(at) = entry.state { Some(at) } else { None }).min()
    }

    pub(super) fn is_wanted(&self, peer: &PeerKey) -> bool {
        self.entries.contains_key(&Target::Peer(*peer))
    }

    /// A dial of `target` began.
    pub(super) fn dialing(&mut self, target: &Target, id: ConnectionId) {
        if let Some(entry) = self.entries.get_mut(target) {
            entry.state = State::Dialing(id);
        }
    }

    /// That dial failed.
    pub(super) fn failed(&mut self, id: ConnectionId, now: Instant) {
        let target =
            self.entries.iter().find(|(_, entry)| entry.state == State::Dialing(id)).map(|(target, _)| target.clone());
        if let Some(target) = target {
            self.pause(&target, now);
        }
    }

    /// A dial of `target` could not even begin, or failed.
    pub(super) fn pause(&mut self, target: &Target, now: Instant) {
        let draw = self.draw();
        if let Some(entry) = self.entries.get_mut(target) {
            let pause = backoff(self.timing.redial_min, self.timing.redial_max, entry.failures, draw);
            entry.state = State::Idle((now + pause).max(entry.not_before));
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    /// A connection to `peer` is established, by a dial or by its own.
    pub(super) fn connected(&mut self, peer: PeerKey, id: ConnectionId) {
        for (target, entry) in &mut self.entries {
            if *target == Target::Peer(peer) || entry.state == State::Dialing(id) {
                entry.state = State::Connected(peer);
            }
        }
    }

    /// A hello was accepted: from now on it is worth coming back soon.
    pub(super) fn accepted(&mut self, peer: PeerKey, now: Instant) {
        for entry in self.entries.values_mut().filter(|entry| entry.state == State::Connected(peer)) {
            entry.failures = 0;
            entry.refusals = 0;
            entry.not_before = now;
            if let Until::Wanted(until) = &mut entry.until {
                *until = (*until).max(now + self.timing.wanted);
            }
        }
    }

    /// The last connection to `peer` is gone.
    pub(super) fn gone(&mut self, peer: PeerKey, now: Instant) {
        for target in self.connected_to(peer) {
            if let Some(Entry { until: Until::Wanted(until), .. }) = self.entries.get_mut(&target) {
                *until = (*until).max(now + self.timing.wanted);
            }
            self.pause(&target, now);
        }
    }

    /// One of us does not want the other.
    pub(super) fn refused(&mut self, peer: PeerKey, now: Instant) {
        for target in self.connected_to(peer) {
            let draw = self.draw();
            let Some(entry) = self.entries.get_mut(&target) else {
                continue;
            };
            // Refused on both of two connections is refused once.
            if entry.refusals == 0 || now >= entry.not_before {
                let pause = backoff(self.timing.refused_min, self.timing.refused_max, entry.refusals, draw);
                entry.not_before = now + pause;
                entry.refusals = entry.refusals.saturating_add(1);
            }
            entry.state = State::Idle(entry.not_before);
        }
    }

    fn connected_to(&self, peer: PeerKey) -> Vec<Target> {
        let connected = self.entries.iter().filter(|(_, entry)| entry.state == State::Connected(peer));
        connected.map(|(target, _)| target.clone()).collect()
    }

    /// A number out of 1024.
    fn draw(&mut self) -> u32 {
        self.draws += 1;
        (self.random.hash_one(self.draws) % 1024) as u32
    }
}

/// Between half and all of `min`, doubled for each failure, up to `max`.
fn backoff(min: Duration, max: Duration, failures: u32, draw: u32) -> Duration {
    let full = min.saturating_mul(1 << failures.min(16)).min(max);
    full / 2 + full / 2 * draw / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerKey = PeerKey([1; 32]);

    struct Bench {
        redial: Redial,
        now: Instant,
        ids: usize,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { redial: Redial::new(Timing::default()), now: Instant::now(), ids: 0 }
        }

        fn want(&mut self, until: Until) {
            let address = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
            self.redial.want(Target::Peer(A), vec![address], until, false, self.now);
        }

        /// Waits for the next dial, begins it and says how long the wait was.
        fn dial(&mut self) -> Option<(Duration, ConnectionId)> {
            let at = self.redial.next()?.max(self.now);
            let waited = at - self.now;
            self.now = at;
            let due = self.redial.due(self.now);
            let due = due.first()?;
            self.ids += 1;
            let id = ConnectionId::new_unchecked(self.ids);
            self.redial.dialing(&due.target, id);
            assert!(self.redial.due(self.now).is_empty(), "one dial at a time");
            Some((waited, id))
        }
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_anew_after_a_success() {
        let mut bench = Bench::new();
        bench.want(Until::Forever);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let (waited, id) = bench.dial().unwrap();
            waits.push(waited);
            bench.redial.failed(id, bench.now);
        }
        assert_eq!(waits[0], Duration::ZERO);
        assert!(waits[1] >= Duration::from_millis(50) && waits[1] <= Duration::from_millis(100));
        assert!(waits[11] >= Duration::from_millis(2500) && waits[11] <= Duration::from_secs(5));
        let (_, id) = bench.dial().unwrap();
        bench.redial.connected(A, id);
        assert_eq!(bench.redial.next(), None);
        bench.redial.accepted(A, bench.now);
        bench.redial.gone(A, bench.now);
        assert!(bench.dial().unwrap().0 <= Duration::from_millis(100));
    }

    #[test]
    fn a_refusal_is_not_forgotten_when_the_connection_goes() {
        let mut bench = Bench::new();
        bench.want(Until::Forever);
        let (_, id) = bench.dial().unwrap();
        bench.redial.connected(A, id);
        bench.redial.refused(A, bench.now);
        // Another connection, dialled at the same time, comes up and goes.
        bench.redial.connected(A, ConnectionId::new_unchecked(1000));
        bench.redial.refused(A, bench.now);
        bench.redial.connected(A, ConnectionId::new_unchecked(1001));
        bench.redial.gone(A, bench.now);
        bench.want(Until::Forever);
        let waited = bench.dial().unwrap().0;
        assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_secs(60));
    }

    #[test]
    fn who_was_only_found_or_wanted_is_given_up() {
        let mut bench = Bench::new();
        bench.want(Until::Found);
        for _ in 0..FOUND_FAILURES_MAX {
            let (_, id) = bench.dial().unwrap();
            bench.redial.failed(id, bench.now);
        }
        assert!(bench.dial().is_none());
        assert!(!bench.redial.is_wanted(&A));

        bench.want(Until::Wanted(bench.now + Duration::from_secs(60)));
        let began = bench.now;
        while let Some((_, id)) = bench.dial() {
            bench.redial.failed(id, bench.now);
        }
        assert!(bench.now - began > Duration::from_secs(50) && bench.now - began < Duration::from_secs(66));
        assert!(!bench.redial.is_wanted(&A));
    }

    #[test]
    fn a_door_is_open_again_when_whoever_stood_behind_it_is_gone() {
        let mut bench = Bench::new();
        let door: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        bench.redial.want(Target::Door(door.clone()), vec![door], Until::Forever, false, bench.now);
        let (_, id) = bench.dial().unwrap();
        bench.redial.connected(A, id);
        assert!(bench.dial().is_none());
        bench.redial.gone(A, bench.now);
        assert!(bench.dial().is_some());
    }
}
