//! The schedule of dials. A value: it is told the events and their times, and returns the dials that are due.
//!
//! Pauses double and are jittered, so peers that lost each other at one moment do not come back at one moment. After a
//! refusal, by us or by the peer, the pause is much longer: no refusal ends without a change by an administrator.
//!
//! A peer with TCP and QUIC addresses is dialled by TCP. QUIC is dialled when TCP has failed, or has not succeeded in a
//! second; a later success of TCP is used still. While a peer is connected by QUIC alone, TCP is tried again, each time
//! after a longer pause. Where TCP connections break soon after they came up, twice in a row, QUIC goes first for a time
//! that grows as well. So a path that carries handshakes and nothing else does not make a peer come and go.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use libp2p::Multiaddr;
use libp2p::swarm::{ConnectionId, DialError};
use overlay::PeerKey;

use crate::config::Timing;
use crate::dial::addresses::via;
use crate::dial::tried::{DialOutcome, Tried};
use crate::event::Via;

/// Upper limit of dials under way; further dials wait.
const DIALS_MAX: usize = 64;
/// TCP connections in a row that may break soon without consequence: bad luck, or a peer that was restarted.
const TCP_BREAKS_MAX: u32 = 1;
/// Upper limit of addresses of one peer.
pub(crate) const ADDRESSES_MAX: usize = 8;
/// Failures after which a peer that mDNS found is given up; mDNS will find it again.
const FOUND_FAILURES_MAX: u32 = 3;

/// The target of a dial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// This peer and no other.
    Peer(PeerKey),
    /// Any peer that answers at this address.
    Door(Multiaddr),
}

/// How long a target is dialled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Until {
    /// For `FOUND_FAILURES_MAX` failures.
    Found,
    /// Until this time without a connection.
    Wanted(Instant),
    /// As long as this peer runs.
    Forever,
}

/// A dial that is due. The caller reports its id with [`Redial::dialing`].
#[derive(Debug, PartialEq)]
pub(crate) struct Due {
    pub(crate) target: Target,
    pub(crate) addresses: Vec<Multiaddr>,
    pub(crate) attempt: Attempt,
}

/// The purpose of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// To reach a peer that is not connected: as a rule by TCP, where it has such addresses.
    First,
    /// To reach it by QUIC, because TCP is slow or failed; or the other way about.
    Second,
    /// To reach it by TCP, beside a QUIC connection.
    Better,
}

/// The schedule of all dials; see the module.
pub(crate) struct Redial {
    timing: Timing,
    entries: HashMap<Target, DialEntry>,
    random: RandomState,
    draws: u64,
}

struct DialEntry {
    addresses: Vec<Multiaddr>,
    until: Until,
    state: DialState,
    failures: u32,
    refusals: u32,
    /// The number of dials, and the last result, for administrators.
    dials: u32,
    outcome: Option<DialOutcome>,
    /// No dial before this time, after a refusal: of two simultaneous connections one may still come up and end after the
    /// other was refused.
    not_before: Instant,
    /// Since when it is connected by TCP.
    tcp_since: Option<Instant>,
    /// TCP connections that broke soon, in a row.
    tcp_breaks: u32,
    /// QUIC goes first until this time.
    quic_until: Instant,
}

#[derive(Clone, Copy, PartialEq)]
enum DialState {
    /// The target is to be dialled at this time.
    Idle(Instant),
    Dialing(Dialing),
    Connected {
        peer: PeerKey,
        /// The next attempt by TCP, where it is connected by QUIC alone.
        better: Option<Better>,
    },
}

/// Dials under way.
#[derive(Clone, Copy, PartialEq)]
struct Dialing {
    first: Option<ConnectionId>,
    second: Option<ConnectionId>,
    /// When the addresses of the other transport, `second_by`, are dialled too.
    second_at: Option<Instant>,
    second_by: Via,
}

/// The schedule of TCP attempts beside a QUIC connection.
#[derive(Clone, Copy, PartialEq)]
struct Better {
    at: Instant,
    tries: u32,
}

impl DialEntry {
    fn addresses(&self, by: Via) -> Vec<Multiaddr> {
        self.addresses.iter().filter(|address| via(address) == Some(by)).cloned().collect()
    }

    fn has(&self, by: Via) -> bool {
        self.addresses.iter().any(|address| via(address) == Some(by))
    }

    /// Returns when the next dial is due.
    fn at(&self) -> Option<Instant> {
        match self.state {
            DialState::Idle(at) => Some(at).filter(|_| !self.addresses.is_empty()),
            DialState::Dialing(dialing) => dialing.second_at,
            DialState::Connected { better, .. } => better.map(|better| better.at).filter(|_| self.has(Via::Tcp)),
        }
    }

    /// Returns the dial that is then due, with its addresses.
    fn due(&self, now: Instant) -> (Attempt, Vec<Multiaddr>) {
        match self.state {
            DialState::Idle(_) => (Attempt::First, self.addresses(self.order(now).0)),
            DialState::Dialing(dialing) => (Attempt::Second, self.addresses(dialing.second_by)),
            DialState::Connected { .. } => (Attempt::Better, self.addresses(Via::Tcp)),
        }
    }

    /// Returns the transport that goes first, among those it has, and the second one.
    fn order(&self, now: Instant) -> (Via, Via) {
        let tcp_first = self.quic_until <= now;
        match (self.has(Via::Tcp), self.has(Via::Quic)) {
            (true, true) if tcp_first => (Via::Tcp, Via::Quic),
            (true, false) => (Via::Tcp, Via::Quic),
            _ => (Via::Quic, Via::Tcp),
        }
    }

    /// Notes that its last TCP connection is gone, or its last connection. If TCP was among them, TCP may be the cause.
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
        matches!(self.state, DialState::Dialing(_))
    }

    fn is_connected_to(&self, peer: PeerKey) -> bool {
        matches!(self.state, DialState::Connected { peer: connected, .. } if connected == peer)
    }
}

impl Better {
    /// Returns the schedule of TCP beside a connection by `by`; `None` where that is TCP.
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
    pub(crate) fn new(timing: Timing) -> Redial {
        Redial { timing, entries: HashMap::new(), random: RandomState::new(), draws: 0 }
    }

    /// Dials `target` from now on. A repeated call renews the time and the addresses, but does not shorten a pause.
    pub(crate) fn want(
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
                DialState::Connected { peer: *peer, better: Better::beside(by, 0, &self.timing, draw, now) }
            }
            _ => DialState::Idle(now),
        };
        let entry = self.entries.entry(target).or_insert(DialEntry {
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
            // New addresses are tried at once, unless the peer itself refuses us.
            if let (DialState::Idle(at), 0) = (&mut entry.state, entry.refusals) {
                *at = now;
            }
            entry.addresses = addresses;
        }
    }

    /// Like [`Redial::want`] for one more address, which is tried together with the known ones.
    pub(crate) fn add(
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

    /// Returns the dials that are due now. Forgets the targets whose time is over.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Due> {
        self.entries.retain(|_, entry| match (entry.until, entry.state) {
            (Until::Forever, _) | (_, DialState::Connected { .. } | DialState::Dialing(_)) => true,
            (Until::Wanted(until), DialState::Idle(_)) => until > now,
            (Until::Found, DialState::Idle(at)) => match entry.refusals {
                0 => entry.failures < FOUND_FAILURES_MAX,
                // Kept through the pause: a target that is found again meanwhile is not dialled again.
                _ => at > now,
            },
        });
        let mut room = DIALS_MAX.saturating_sub(self.entries.values().filter(|entry| entry.is_dialing()).count());
        let due = self.entries.iter().filter(|(_, entry)| entry.at().is_some_and(|at| at <= now));
        due.filter_map(|(target, entry)| {
            let (attempt, addresses) = entry.due(now);
            // A target with a dial under way takes no more room.
            if attempt != Attempt::Second {
                room = room.checked_sub(1)?;
            }
            Some(Due { target: target.clone(), addresses, attempt })
        })
        .collect()
    }

    /// Returns when the next dial is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.values().filter_map(DialEntry::at).min()
    }

    pub(crate) fn is_wanted(&self, peer: &PeerKey) -> bool {
        self.entries.contains_key(&Target::Peer(*peer))
    }

    /// Notes that a due dial began.
    pub(crate) fn dialing(&mut self, due: &Due, id: ConnectionId, now: Instant) {
        let (start, draw) = (self.timing.tcp_start, self.draw());
        let Some(entry) = self.entries.get_mut(&due.target) else {
            return;
        };
        match (&mut entry.state, due.attempt) {
            (DialState::Dialing(dialing), _) => {
                dialing.second = Some(id);
                dialing.second_at = None;
            }
            // With any result: the next attempt has its time. `connected` reports a success.
            (DialState::Connected { better: Some(better), .. }, _) => {
                better.at = now + backoff(self.timing.tcp_retry_min, self.timing.tcp_retry_max, better.tries + 1, draw);
                better.tries = better.tries.saturating_add(1);
            }
            (DialState::Connected { better: None, .. }, _) => {}
            (DialState::Idle(_), _) => {
                let (_, second_by) = entry.order(now);
                entry.dials = entry.dials.saturating_add(1);
                let second_at = Some(now + start).filter(|_| entry.has(second_by));
                entry.state = DialState::Dialing(Dialing { first: Some(id), second: None, second_at, second_by });
            }
        }
    }

    /// Notes the error of a dial, for administrators: called before [`Redial::failed`].
    pub(crate) fn note_dial(&mut self, id: ConnectionId, error: &DialError) {
        let is_its = |entry: &&mut DialEntry| matches!(entry.state, DialState::Dialing(dialing) if dialing.has(id));
        if let Some(entry) = self.entries.values_mut().find(is_its) {
            entry.outcome = Some(DialOutcome::of(error, !entry.addresses.is_empty()));
        }
    }

    /// Notes the state of a connection to `peer`, for administrators; `None` where it is sound.
    pub(crate) fn note_peer(&mut self, peer: PeerKey, outcome: Option<DialOutcome>) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_connected_to(peer)) {
            entry.outcome = outcome.clone();
        }
    }

    /// Returns all targets, those that the settings name first.
    pub(crate) fn tried(&self) -> Vec<Tried> {
        let tried = |entry: &DialEntry| Tried {
            addresses: entry.addresses.clone(),
            named: entry.until == Until::Forever,
            dials: entry.dials,
            outcome: entry.outcome.clone(),
        };
        let mut all: Vec<Tried> = self.entries.values().map(tried).collect();
        all.sort_by(|one, other| other.named.cmp(&one.named).then_with(|| one.addresses.cmp(&other.addresses)));
        all
    }

    /// Notes that a dial failed, or could not even begin.
    pub(crate) fn failed(&mut self, id: ConnectionId, now: Instant) {
        let failed = self.entries.iter_mut().find_map(|(target, entry)| match &mut entry.state {
            DialState::Dialing(dialing) if dialing.has(id) => Some((target, dialing)),
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

    /// Schedules the next dial of `target`, whose dials all failed or whose connection is gone.
    fn pause(&mut self, target: &Target, now: Instant) {
        let draw = self.draw();
        if let Some(entry) = self.entries.get_mut(target) {
            let pause = backoff(self.timing.redial_min, self.timing.redial_max, entry.failures, draw);
            entry.state = DialState::Idle((now + pause).max(entry.not_before));
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    /// Notes that a connection to `peer` is established, which either side dialled.
    pub(crate) fn connected(&mut self, peer: PeerKey, id: ConnectionId, by: Via, now: Instant) {
        let draw = self.draw();
        for (target, entry) in &mut self.entries {
            let dialled = matches!(entry.state, DialState::Dialing(dialing) if dialing.has(id));
            if *target == Target::Peer(peer) || dialled {
                let better = match entry.state {
                    // Of two connections the better one counts, and the number of its attempts.
                    DialState::Connected { better, .. } => better.filter(|_| by == Via::Quic),
                    _ => Better::beside(by, entry.tcp_breaks, &self.timing, draw, now),
                };
                entry.state = DialState::Connected { peer, better };
                if by == Via::Tcp {
                    entry.tcp_since.get_or_insert(now);
                }
            }
        }
    }

    /// Notes that a hello was accepted: from now on it pays to dial again soon.
    pub(crate) fn accepted(&mut self, peer: PeerKey, now: Instant) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_connected_to(peer)) {
            entry.failures = 0;
            entry.refusals = 0;
            entry.not_before = now;
            if let Until::Wanted(until) = &mut entry.until {
                *until = (*until).max(now + self.timing.wanted);
            }
        }
    }

    /// Notes that the last TCP connection to `peer` is gone, and that a QUIC connection remains.
    pub(crate) fn tcp_gone(&mut self, peer: PeerKey, now: Instant) {
        for target in self.connected_to(peer) {
            let draw = self.draw();
            if let Some(entry) = self.entries.get_mut(&target) {
                entry.tcp_gone(&self.timing, draw, now);
                let better = Better::beside(Via::Quic, entry.tcp_breaks, &self.timing, draw, now);
                entry.state = DialState::Connected { peer, better };
            }
        }
    }

    /// Notes that the last connection to `peer` is gone.
    pub(crate) fn gone(&mut self, peer: PeerKey, now: Instant) {
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

    /// Notes that one side refused the other.
    pub(crate) fn refused(&mut self, peer: PeerKey, now: Instant) {
        for target in self.connected_to(peer) {
            let draw = self.draw();
            let Some(entry) = self.entries.get_mut(&target) else {
                continue;
            };
            // Refusals on both of two connections count as one refusal.
            if entry.refusals == 0 || now >= entry.not_before {
                let pause = backoff(self.timing.refused_min, self.timing.refused_max, entry.refusals, draw);
                entry.not_before = now + pause;
                entry.refusals = entry.refusals.saturating_add(1);
            }
            entry.state = DialState::Idle(entry.not_before);
        }
    }

    fn connected_to(&self, peer: PeerKey) -> Vec<Target> {
        let connected = self.entries.iter().filter(|(_, entry)| entry.is_connected_to(peer));
        connected.map(|(target, _)| target.clone()).collect()
    }

    /// Draws a number below 1024.
    fn draw(&mut self) -> u32 {
        self.draws += 1;
        (self.random.hash_one(self.draws) % 1024) as u32
    }
}

/// Returns between half and all of `min`, doubled for each failure, up to `max`.
fn backoff(min: Duration, max: Duration, failures: u32, draw: u32) -> Duration {
    let full = min.saturating_mul(1 << failures.min(16)).min(max);
    full / 2 + full / 2 * draw / 1024
}

#[cfg(test)]
#[path = "redial_test.rs"]
mod tests;
