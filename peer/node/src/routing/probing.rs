//! Measurement of groups by a newcomer, which finds the group that would agree the quickest with it. In each group it acts as if it
//! were a primary that has a no-op to propose (Scatter §6.2).
//!
//! Each member of each group answers some no-ops, in order with its other work, and the newcomer takes the least delay of each member.
//! A no-op commits no member to anything: it carries no ballot and no number, and nothing of it is stored. A member answers each
//! newcomer at a limited rate.
//!
//! # Invariants
//! - The clock of a no-op starts when it is sent over an open connection. The time that it takes to connect says nothing about the
//!   group.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::time::Time;
use overlay::{Contact, PeerKey, RingId};

use crate::api::Class;
use crate::context::Context;
use crate::routing::join::{JoinSearch, Sampled};
use crate::wire::Frame;

/// Time after which an answer may be lost: another no-op is sent.
const SEND_AGAIN: Duration = Duration::from_millis(150);
/// Number of answers of each member. The least delay counts, as the first no-op may have waited behind other work.
const ROUNDS: u8 = 3;
/// Time after which the choice is made with the answers that are in. A member without an answer counts as slow.
const PATIENCE: Duration = Duration::from_millis(750);

/// A newcomer's probes.
#[derive(Debug)]
pub(crate) struct Probing {
    /// The sampled groups.
    pub(crate) sampled: Vec<Sampled>,
    members: BTreeMap<PeerKey, Probed>,
    /// The groups that are probed, by their indices in `sampled`.
    probed: Vec<usize>,
    /// Number of the first no-op; later ones have the next numbers.
    number: u64,
    /// Receiver and time of each no-op.
    sent: Vec<(PeerKey, Time)>,
    until: Time,
}

/// A member of a group that is probed.
#[derive(Debug)]
struct Probed {
    ring: RingId,
    contact: Contact,
    /// Time of the last no-op, while its answer has not come.
    waits_since: Option<Time>,
    answers: u8,
    least: Option<Duration>,
}

impl Probing {
    /// Begins probes. `number` is drawn at random.
    pub(crate) fn new(sampled: Vec<Sampled>, probed: Vec<usize>, number: u64, now: Time) -> Probing {
        let mut members = BTreeMap::new();
        for group in probed.iter().filter_map(|index| sampled.get(*index)) {
            for contact in &group.group.members {
                let known =
                    Probed { ring: group.ring, contact: contact.clone(), waits_since: None, answers: 0, least: None };
                members.entry(contact.node.peer).or_insert(known);
            }
        }
        // All later numbers must fit.
        Probing { sampled, members, probed, number: number >> 1, sent: Vec::new(), until: now + PATIENCE }
    }

    /// Returns whether all members have answered often enough, or the time is over.
    fn is_over(&self, now: Time) -> bool {
        now >= self.until || self.members.values().all(|member| member.answers >= ROUNDS)
    }

    /// Returns the members that have not answered often enough.
    fn unfinished(&self) -> impl Iterator<Item = (PeerKey, &Probed)> {
        self.members.iter().filter(|(_, member)| member.answers < ROUNDS).map(|(peer, member)| (*peer, member))
    }

    /// Returns the no-op to send to this peer now, if one is due. The peer must be connected.
    fn next_to(&mut self, peer: PeerKey, now: Time) -> Option<Frame> {
        let member = self.members.get_mut(&peer).filter(|member| member.answers < ROUNDS)?;
        if member.waits_since.is_some_and(|since| now.since(since) < SEND_AGAIN) {
            return None;
        }
        member.waits_since = Some(now);
        let number = self.number + self.sent.len() as u64;
        self.sent.push((peer, now));
        Some(Frame::Probe { ring: member.ring, number })
    }

    /// Handles an answer. Late ones count, too: the time of each no-op is known.
    fn on_answer(&mut self, from: PeerKey, number: u64, now: Time) {
        let place = number.checked_sub(self.number).and_then(|place| usize::try_from(place).ok());
        let sent = place.and_then(|place| self.sent.get_mut(place)).filter(|(peer, at)| *peer == from && *at > Time(0));
        let (Some((_, at)), Some(member)) = (sent, self.members.get_mut(&from)) else { return };
        let took = now.since(core::mem::replace(at, Time(0))); // Each no-op is answered once.
        member.least = Some(member.least.map_or(took, |least| least.min(took)));
        member.answers = member.answers.saturating_add(1);
        member.waits_since = None;
    }

    /// Returns the time that the newcomer would wait for a majority in this group, itself included; `None` if it is not known.
    pub(crate) fn agreement(&self, index: usize) -> Option<Duration> {
        let members = &self.sampled.get(index).filter(|_| self.probed.contains(&index))?.group.members;
        let ways = members.iter().filter_map(|contact| self.members.get(&contact.node.peer)?.least);
        let mut ways: Vec<Duration> = ways.collect();
        ways.sort_unstable();
        // The majority is that of the members together with the newcomer.
        ways.get(members.len().div_ceil(2).checked_sub(1)?).copied()
    }
}

impl JoinSearch {
    /// Connects to the members that are probed, and sends the no-ops that are due. Returns `false` once the probes are over.
    pub(crate) fn go_on_probing(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now.time;
        let Some(probing) = self.probing.as_ref().filter(|probing| !probing.is_over(now)) else {
            return false;
        };
        self.due = probing.until.min(now + SEND_AGAIN);
        let contacts: Vec<Contact> = probing.unfinished().map(|(_, member)| member.contact.clone()).collect();
        for contact in contacts {
            cx.reach(&contact);
            self.send_no_op(cx, contact.node.peer);
        }
        true
    }

    /// Sends this peer a no-op if one is due and the connection is open.
    pub(crate) fn send_no_op(&mut self, cx: &mut Context<'_>, peer: PeerKey) {
        let now = cx.now.time;
        if cx.is_connected_to(peer)
            && let Some(frame) = self.probing.as_mut().and_then(|probing| probing.next_to(peer, now))
        {
            cx.post(peer, Class::Control, &frame);
        }
    }

    /// Handles an answer to a no-op.
    pub(crate) fn on_probed(&mut self, cx: &mut Context<'_>, from: PeerKey, number: u64) {
        let now = cx.now.time;
        let Some(probing) = &mut self.probing else { return };
        probing.on_answer(from, number, now);
        if probing.is_over(now) {
            return self.end_probing(cx);
        }
        self.send_no_op(cx, from);
    }
}

/// Upper limit of no-ops that a member answers of one newcomer in [`WINDOW`]: more than an honest newcomer sends.
const ANSWERS_MAX: u32 = 32;
const WINDOW: Duration = Duration::from_secs(1);
/// Upper limit of newcomers that are counted at a time; further ones are not answered.
const NEWCOMERS_MAX: usize = 256;

/// Number of no-ops that each newcomer has sent to this member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    since: BTreeMap<PeerKey, (Time, u32)>,
}

impl Probes {
    /// Answers a no-op of a newcomer, as if the newcomer were its primary.
    pub(crate) fn on_probe(&mut self, cx: &mut Context<'_>, from: PeerKey, ring: RingId, number: u64) {
        if cx.replicas.is_empty() || cx.ring != Some(ring) || !self.allows(from, cx.now.time) {
            cx.drop_frame();
            return;
        }
        cx.post(from, Class::Control, &Frame::Probed { ring, number });
    }

    /// Counts one more no-op of this newcomer; returns whether it is to be answered.
    fn allows(&mut self, from: PeerKey, now: Time) -> bool {
        if self.since.len() >= NEWCOMERS_MAX && !self.since.contains_key(&from) {
            self.since.retain(|_, (since, _)| now.since(*since) < WINDOW);
            if self.since.len() >= NEWCOMERS_MAX {
                return false;
            }
        }
        let (since, count) = self.since.entry(from).or_insert((now, 0));
        if now.since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= ANSWERS_MAX
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;

    use overlay::{Epoch, GroupId, GroupRef, Incarnation, KeyRange, NodeId, Point};

    use super::*;
    use crate::policies::Policies;

    fn peer(index: u8) -> PeerKey {
        PeerKey([index; 32])
    }

    /// Returns a group of these peers.
    fn sampled(peers: &[u8]) -> Sampled {
        let contact = |index: &u8| Contact {
            node: NodeId { peer: peer(*index), incarnation: Incarnation(1) },
            addresses: vec!["/ip4/10.0.0.1/tcp/1".into()],
            name: None,
        };
        let members = peers.iter().map(contact).collect();
        let group = GroupRef { id: GroupId(u128::from(peers[0])), epoch: Epoch(1), range: KeyRange::FULL, members };
        let clusters = vec![String::new(); peers.len()];
        Sampled {
            ring: RingId(7),
            point: Point(u128::from(peers[0])),
            group,
            clusters,
            own: false,
            risk: None,
            load: None,
            policies: Policies::default().agreed_on(5, 12),
            capacity: None,
        }
    }

    fn ms(at: u64) -> Time {
        Time(1_000_000_000) + Duration::from_millis(at)
    }

    fn number(frame: Option<Frame>) -> u64 {
        match frame {
            Some(Frame::Probe { number, .. }) => number,
            other => panic!("no probe: {other:?}"),
        }
    }

    #[test]
    fn the_clock_starts_with_the_connection_and_the_least_delay_counts() {
        let mut probing = Probing::new(vec![sampled(&[1, 2, 3])], vec![0], u64::MAX, ms(0));
        assert_eq!(probing.agreement(0), None);
        // The connections open after 400 ms.
        let mut at = [400, 420, 440];
        for takes in [[90, 25, 5], [30, 80, 5], [40, 60, 5]] {
            for ((member, at), takes) in (1u8..).zip(&mut at).zip(takes) {
                let number = number(probing.next_to(peer(member), ms(*at)));
                assert!(probing.next_to(peer(member), ms(*at)).is_none(), "one at a time");
                *at += takes;
                probing.on_answer(peer(member), number, ms(*at));
            }
        }
        // With the newcomer there are four, so a majority is the newcomer and two more.
        assert_eq!(probing.agreement(0), Some(Duration::from_millis(25)));
        assert!(probing.is_over(ms(700)) && probing.unfinished().count() == 0);
        assert!(probing.next_to(peer(1), ms(700)).is_none(), "it has answered often enough");
    }

    #[test]
    fn a_lost_no_op_is_sent_again_and_a_late_answer_counts_once() {
        let mut probing = Probing::new(vec![sampled(&[1])], vec![0], 0, ms(0));
        let first = number(probing.next_to(peer(1), ms(0)));
        assert!(probing.next_to(peer(1), ms(149)).is_none());
        let second = number(probing.next_to(peer(1), ms(150)));
        assert_ne!(first, second);
        probing.on_answer(peer(1), first, ms(200));
        probing.on_answer(peer(1), first, ms(201));
        probing.on_answer(peer(2), second, ms(201));
        probing.on_answer(peer(1), second + 1, ms(201));
        assert_eq!(probing.agreement(0), Some(Duration::from_millis(200)), "only the first answer counts");
        assert!(!probing.is_over(ms(749)) && probing.is_over(ms(750)), "the choice is not put off for ever");
    }

    #[test]
    fn a_newcomer_is_answered_at_a_limited_rate() {
        let mut probes = Probes::default();
        let answered =
            |probes: &mut Probes, from: u8, at: u64| (0..100).filter(|_| probes.allows(peer(from), ms(at))).count();
        assert_eq!(answered(&mut probes, 1, 0), 32);
        assert_eq!(answered(&mut probes, 2, 0), 32, "each newcomer by itself");
        assert_eq!((answered(&mut probes, 1, 999), answered(&mut probes, 1, 1000)), (0, 32));
        let many =
            |index: u16| PeerKey([[1; 30].as_slice(), &index.to_be_bytes()].concat().try_into().expect("32 bytes"));
        (0..2000).for_each(|index| _ = probes.allows(many(index), ms(1500)));
        assert_eq!(probes.since.len(), NEWCOMERS_MAX);
        assert!(probes.allows(many(1999), ms(2500)), "those that are quiet again make room");
    }
}
