//! Whom to dial, and when again. A value: it is told what happened and when, and says which dials are due.
//!
//! Pauses double and are jittered, so peers that lost each other at one moment do not come back at one moment. A peer
//! that refused us, or that we refused, is left alone for much longer: nothing changes there by itself.
//!
//! A peer that can be reached by TCP and by QUIC is dialled by TCP. QUIC has its turn when that has failed, or has not
//! succeeded in a second; what TCP comes to after that is welcome still. While a peer is connected by QUIC alone, TCP is
//! tried again, each time after a longer pause. And where connections by TCP break soon after they came up, twice in a
//! row, QUIC goes first for a time that grows as well: a path that carries handshakes and nothing else does not have a
//! peer come and go.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use libp2p::Multiaddr;
use libp2p::swarm::{ConnectionId, DialError};
use overlay::PeerKey;

use super::addresses::via;
use super::config::Timing;
use super::event::Via;
use super::tried::{Outcome, Tried};

/// Dials under way at most; the others wait for their turn.
const DIALS_MAX: usize = 64;
/// So many connections by TCP in a row that break soon are bad luck, or a peer that was started anew.
const TCP_BREAKS_MAX: u32 = 1;
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
    pub(super) attempt: Attempt,
}

/// What a dial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// To reach a peer that is not connected: as a rule by TCP, where it has such addresses.
    First,
    /// To reach it by QUIC, as TCP takes its time or failed; or the other way about.
    Second,
    /// To reach it by TCP, too.
    Better,
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
    /// How often it was dialled, and what came of it last, for a person.
    dials: u32,
    outcome: Option<Outcome>,
    /// Not before that, after a refusal, whatever else happens: of two simultaneous connections one may still come up, and
    /// go, after the other was refused.
    not_before: Instant,
    /// Since when it is connected by TCP.
    tcp_since: Option<Instant>,
    /// Connections by TCP that broke soon, in a row.
    tcp_breaks: u32,
    /// Until then QUIC goes first.
    quic_until: Instant,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// To be dialled at this time.
    Idle(Instant),
    Dialing(Dialing),
    Connected {
        peer: PeerKey,
        /// Where it is by QUIC alone.
        better: Option<Better>,
    },
}

/// Dials under way.
#[derive(Clone, Copy, PartialEq)]
struct Dialing {
    first: Option<ConnectionId>,
    second: Option<ConnectionId>,
    /// When the other kind of addresses is dialled, too: this one.
    second_at: Option<Instant>,
    second_by: Via,
}

/// TCP, beside a connection by QUIC.
#[derive(Clone, Copy, PartialEq)]
struct Better {
    at: Instant,
    tries: u32,
}

impl Entry {
    fn addresses(&self, by: Via) -> Vec<Multiaddr> {
        self.addresses.iter().filter(|address| via(address) == Some(by)).cloned().collect()
    }

    fn has(&self, by: Via) -> bool {
        self.addresses.iter().any(|address| via(address) == Some(by))
    }

    /// When something is to be dialled.
    fn at(&self) -> Option<Instant> {
        match self.state {
            State::Idle(at) => Some(at).filter(|_| !self.addresses.is_empty()),
            State::Dialing(dialing) => dialing.second_at,
            State::Connected { better, .. } => better.map(|better| better.at).filter(|_| self.has(Via::Tcp)),
        }
    }

    /// What is dialled then.
    fn due(&self, now: Instant) -> (Attempt, Vec<Multiaddr>) {
        match self.state {
            State::Idle(_) => (Attempt::First, self.addresses(self.order(now).0)),
            State::Dialing(dialing) => (Attempt::Second, self.addresses(dialing.second_by)),
            State::Connected { .. } => (Attempt::Better, self.addresses(Via::Tcp)),
        }
    }

    /// What goes first, of what it has, and what after that.
    fn order(&self, now: Instant) -> (Via, Via) {
        let tcp_first = self.quic_until <= now;
        match (self.has(Via::Tcp), self.has(Via::Quic)) {
            (true, true) if tcp_first => (Via::Tcp, Via::Quic),
            (true, false) => (Via::Tcp, Via::Quic),
            _ => (Via::Quic, Via::Tcp),
        }
    }

    /// The last connection by TCP is gone, or the last of all. If TCP was among what there was, it may be to blame.
    fn tcp_gone(&mut self, timing: &Timing, draw: u32, now: Instant) {
        let Some(since) = self.tcp_since.take() else {
            return;
        };
        if now.duration_since(since) >= timing.tcp_retry_min {
            self.tcp_breaks = 0;
            return;
        }
        self.tcp_breaks = self.tcp_breaks.saturating_add(1);
        if self.tcp_breaks > TCP_BREAKS_MAX {
            self.quic_until = now + backoff(timing.tcp_retry_min, timing.tcp_retry_max, self.tcp_breaks, draw);
        }
    }

    fn is_dialing(&self) -> bool {
        matches!(self.state, State::Dialing(_))
    }

    fn is_connected_to(&self, peer: PeerKey) -> bool {
        matches!(self.state, State::Connected { peer: connected, .. } if connected == peer)
    }
}

impl Better {
    /// When TCP is tried beside a connection by this.
    fn beside(by: Via, tries: u32, timing: &Timing, draw: u32, now: Instant) -> Option<Better> {
        let pause = backoff(timing.tcp_retry_min, timing.tcp_retry_max, tries, draw);
        Some(Better { at: now + pause, tries }).filter(|_| by == Via::Quic)
    }
}

impl Dialing {
    fn has(&self, id: ConnectionId) -> bool {
        self.first == Some(id) || self.second == Some(id)
    }
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
        connected: Option<Via>,
        now: Instant,
    ) {
        addresses.truncate(ADDRESSES_MAX);
        let draw = self.draw();
        let state = match (&target, connected) {
            (Target::Peer(peer), Some(by)) => {
                State::Connected { peer: *peer, better: Better::beside(by, 0, &self.timing, draw, now) }
            }
            _ => State::Idle(now),
        };
        let entry = self.entries.entry(target).or_insert(Entry {
            addresses: Vec::new(),
            until,
            state,
            failures: 0,
            refusals: 0,
            dials: 0,
            outcome: None,
            not_before: now,
            tcp_since: Some(now).filter(|_| connected == Some(Via::Tcp)),
            tcp_breaks: 0,
            quic_until: now,
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
    pub(super) fn add(
        &mut self,
        target: Target,
        address: Multiaddr,
        until: Until,
        connected: Option<Via>,
        now: Instant,
    ) {
        let mut addresses = self.entries.get(&target).map(|entry| entry.addresses.clone()).unwrap_or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        self.want(target, addresses, until, connected, now);
    }

    /// Those to dial now. Forgets those whose time is over.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Due> {
        self.entries.retain(|_, entry| match (entry.until, entry.state) {
            (Until::Forever, _) | (_, State::Connected { .. } | State::Dialing(_)) => true,
            (Until::Wanted(until), State::Idle(_)) => until > now,
            (Until::Found, State::Idle(at)) => match entry.refusals {
                0 => entry.failures < FOUND_FAILURES_MAX,
                // Kept through the pause: found again meanwhile, it is not dialled again.
                _ => at > now,
            },
        });
        let mut room = DIALS_MAX.saturating_sub(self.entries.values().filter(|entry| entry.is_dialing()).count());
        let due = self.entries.iter().filter(|(_, entry)| entry.at().is_some_and(|at| at <= now));
        due.filter_map(|(target, entry)| {
            let (attempt, addresses) = entry.due(now);
            // One that is under way already takes no more room.
            if attempt != Attempt::Second {
                room = room.checked_sub(1)?;
            }
            Some(Due { target: target.clone(), addresses, attempt })
        })
        .collect()
    }

    /// When the next dial is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.values().filter_map(Entry::at).min()
    }

    pub(super) fn is_wanted(&self, peer: &PeerKey) -> bool {
        self.entries.contains_key(&Target::Peer(*peer))
    }

    /// A dial that was due began.
    pub(super) fn dialing(&mut self, due: &Due, id: ConnectionId, now: Instant) {
        let (start, draw) = (self.timing.tcp_start, self.draw());
        let Some(entry) = self.entries.get_mut(&due.target) else {
            return;
        };
        match (&mut entry.state, due.attempt) {
            (State::Dialing(dialing), _) => {
                dialing.second = Some(id);
                dialing.second_at = None;
            }
            // Whatever comes of it: the next one has its time. One that comes up is told by `connected`.
            (State::Connected { better: Some(better), .. }, _) => {
                better.at = now + backoff(self.timing.tcp_retry_min, self.timing.tcp_retry_max, better.tries + 1, draw);
                better.tries = better.tries.saturating_add(1);
            }
            (State::Connected { better: None, .. }, _) => {}
            (State::Idle(_), _) => {
                let (_, second_by) = entry.order(now);
                entry.dials = entry.dials.saturating_add(1);
                let second_at = Some(now + start).filter(|_| entry.has(second_by));
                entry.state = State::Dialing(Dialing { first: Some(id), second: None, second_at, second_by });
            }
        }
    }

    /// What came of a dial, for a person: said before [`Redial::failed`].
    pub(super) fn note_dial(&mut self, id: ConnectionId, error: &DialError) {
        let is_its = |entry: &&mut Entry| matches!(entry.state, State::Dialing(dialing) if dialing.has(id));
        if let Some(entry) = self.entries.values_mut().find(is_its) {
            entry.outcome = Some(Outcome::of(error, !entry.addresses.is_empty()));
        }
    }

    /// What came of a connection to `peer`, for a person; `None` where all is well.
    pub(super) fn note_peer(&mut self, peer: PeerKey, outcome: Option<Outcome>) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_connected_to(peer)) {
            entry.outcome = outcome.clone();
        }
    }

    /// All that is dialled, the places that the settings name first.
    pub(super) fn tried(&self) -> Vec<Tried> {
        let tried = |entry: &Entry| Tried {
            addresses: entry.addresses.clone(),
            named: entry.until == Until::Forever,
            dials: entry.dials,
            outcome: entry.outcome.clone(),
        };
        let mut all: Vec<Tried> = self.entries.values().map(tried).collect();
        all.sort_by(|one, other| other.named.cmp(&one.named).then_with(|| one.addresses.cmp(&other.addresses)));
        all
    }

    /// That dial failed, or could not even begin.
    pub(super) fn failed(&mut self, id: ConnectionId, now: Instant) {
        let failed = self.entries.iter_mut().find_map(|(target, entry)| match &mut entry.state {
            State::Dialing(dialing) if dialing.has(id) => Some((target, dialing)),
            _ => None,
        });
        let Some((target, dialing)) = failed else {
            return;
        };
        if dialing.first == Some(id) {
            dialing.first = None;
        } else {
            dialing.second = None;
        }
        if let Some(second_at) = &mut dialing.second_at {
            *second_at = now;
        } else if dialing.first.is_none() && dialing.second.is_none() {
            let target = target.clone();
            self.pause(&target, now);
        }
    }

    /// A dial of `target` failed altogether, or its connection is gone.
    fn pause(&mut self, target: &Target, now: Instant) {
        let draw = self.draw();
        if let Some(entry) = self.entries.get_mut(target) {
            let pause = backoff(self.timing.redial_min, self.timing.redial_max, entry.failures, draw);
            entry.state = State::Idle((now + pause).max(entry.not_before));
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    /// A connection to `peer` is established, by a dial or by its own.
    pub(super) fn connected(&mut self, peer: PeerKey, id: ConnectionId, by: Via, now: Instant) {
        let draw = self.draw();
        for (target, entry) in &mut self.entries {
            let dialled = matches!(entry.state, State::Dialing(dialing) if dialing.has(id));
            if *target == Target::Peer(peer) || dialled {
                let better = match entry.state {
                    // Of two connections the better one counts, and how often it was tried.
                    State::Connected { better, .. } => better.filter(|_| by == Via::Quic),
                    _ => Better::beside(by, entry.tcp_breaks, &self.timing, draw, now),
                };
                entry.state = State::Connected { peer, better };
                if by == Via::Tcp {
                    entry.tcp_since.get_or_insert(now);
                }
            }
        }
    }

    /// A hello was accepted: from now on it is worth coming back soon.
    pub(super) fn accepted(&mut self, peer: PeerKey, now: Instant) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_connected_to(peer)) {
            entry.failures = 0;
            entry.refusals = 0;
            entry.not_before = now;
            if let Until::Wanted(until) = &mut entry.until {
                *until = (*until).max(now + self.timing.wanted);
            }
        }
    }

    /// The last connection by TCP to `peer` is gone, and there is one by QUIC.
    pub(super) fn tcp_gone(&mut self, peer: PeerKey, now: Instant) {
        for target in self.connected_to(peer) {
            let draw = self.draw();
            if let Some(entry) = self.entries.get_mut(&target) {
                entry.tcp_gone(&self.timing, draw, now);
                let better = Better::beside(Via::Quic, entry.tcp_breaks, &self.timing, draw, now);
                entry.state = State::Connected { peer, better };
            }
        }
    }

    /// The last connection to `peer` is gone.
    pub(super) fn gone(&mut self, peer: PeerKey, now: Instant) {
        for target in self.connected_to(peer) {
            let draw = self.draw();
            if let Some(entry) = self.entries.get_mut(&target) {
                if let Until::Wanted(until) = &mut entry.until {
                    *until = (*until).max(now + self.timing.wanted);
                }
                entry.tcp_gone(&self.timing, draw, now);
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
        let connected = self.entries.iter().filter(|(_, entry)| entry.is_connected_to(peer));
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
#[path = "redial_test.rs"]
mod tests;
