//! Table of the owners that this node knows, and the questions for those that it does not know.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::ballot::TermBallot;
use group::control::state::GroupState;
use group::message::{ClientMessage, ClientOperation, Message};
use overlay::time::Time;
use overlay::{
    Contact, Epoch, GroupId, GroupRef, HINTS_BYTES_MAX, Hints, KeyRange, NodeId, PeerKey, Point, RingId, Way, next_hop,
};

use crate::api::Class;
use crate::context::Context;
use crate::policies::lifetimes::LifeWatch;
use crate::replicas::{LocalReplicas, ReplicaSerial};
use crate::routing::join::Sampled;
use crate::routing::questions::Questions;
use crate::routing::refresh::Refresh;
use crate::routing::{Astray, Locate, Located, Wanted};
use crate::wire::Frame;

/// Upper limit of the hops of a question, wherever it is then.
const HOPS_MAX: u8 = 32;
/// Shortest time between two questions for the same point.
const ASK_AGAIN: Duration = Duration::from_millis(150);
/// Upper limit of the questions under way at one time.
const ASKED_MAX: usize = 1024;
/// Time without an answer after which a question goes another way.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Time without a connection to any member after which a group is bypassed,
const REACHED_WITHIN: Duration = Duration::from_millis(400);
/// and the time until it is tried again.
const REACHED_AGAIN: Duration = Duration::from_secs(5);
/// Upper limit of groups that one question bypasses.
const ROUND_MAX: usize = 8;
/// Upper limit of questions that wait for a birth here.
const WAITING_MAX: usize = 64;
/// Upper limit of the parts of the ring with a remembered primary.
const KNOWN_MAX: usize = 1 << 12;

/// Knowledge that an operation on a key needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) group: GroupId,
    pub(crate) part: KeyRange,
    pub(crate) ballot: TermBallot,
    /// Horizon of the group, which may have been raised since it was learned.
    pub(crate) horizon: u64,
    learned: Time,
    /// Peer that reported the owner, or passed the report on; `None` if this node knew it itself.
    pub(crate) told_by: Option<PeerKey>,
}

/// News of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// Whether a message waited for the answer.
    pub(crate) is_asked: bool,
    /// Whether another node is known now as the primary: operations that wait for it are due.
    pub(crate) serves: bool,
}

/// All knowledge of other groups.
#[derive(Debug)]
pub(crate) struct RoutingTable {
    pub(crate) hints: Hints,
    pub(crate) refresh: Refresh,
    /// Owners by the start of each part; no two parts overlap.
    known: BTreeMap<Point, Owner>,
    asked: BTreeMap<Point, Time>,
    /// Questions of other peers.
    pub(crate) questions: Questions,
    /// Groups by way of which this node asked for a point, and the time of the first such question, while there is no answer.
    ways: BTreeMap<Point, Vec<(GroupId, Time)>>,
    /// Groups without a connected member, though a message to them was due, and the time since then.
    unreached: BTreeMap<GroupId, Time>,
    /// Questions of other peers for a point here whose owner is still to be born: time, sender and question.
    waiting: Vec<(Time, PeerKey, Locate)>,
    /// Points to ask for with this batch.
    wanted: BTreeSet<Point>,
    /// Operations to send with this batch.
    operations: BTreeMap<(GroupId, NodeId), Vec<ClientOperation>>,
}

impl Default for RoutingTable {
    fn default() -> RoutingTable {
        RoutingTable {
            hints: Hints::new(KeyRange::FULL, HINTS_BYTES_MAX),
            refresh: Refresh::default(),
            known: BTreeMap::new(),
            asked: BTreeMap::new(),
            questions: Questions::default(),
            ways: BTreeMap::new(),
            unreached: BTreeMap::new(),
            waiting: Vec::new(),
            wanted: BTreeSet::new(),
            operations: BTreeMap::new(),
        }
    }
}

impl RoutingTable {
    /// Returns the primary of `point`, if known.
    pub(crate) fn find(&self, point: Point) -> Option<Owner> {
        let before = self.known.range(..=point).next_back().or_else(|| self.known.last_key_value());
        before.map(|(_, owner)| *owner).filter(|owner| owner.part.contains(point))
    }

    /// Handles an unasked report of a later primary than the known one. The report is not believed: this node asks for the owner, if the
    /// peer also reported the known primary, and as long as that leaves room for other questions.
    pub(crate) fn hear(&mut self, located: &Located, from: PeerKey, now: Time) {
        let is_later = |owner: Owner| located.ballot > owner.ballot && owner.told_by == Some(from);
        if self.find(located.point).is_some_and(is_later) && self.asked.len() < ASKED_MAX / 2 {
            self.want(located.point, now);
        }
    }

    /// Returns the primary of `point` for an operation that is sent now, with a horizon that its group accepts, if groups raise horizons
    /// once a `period` at most. That is the known horizon, or from one period on the next one. An owner of that age is asked for again, and
    /// used meanwhile; an owner of twice that age is not used.
    pub(crate) fn find_fresh(&mut self, point: Point, now: Time, period: Duration) -> Option<Owner> {
        let owner = self.find(point)?;
        let age = now.since(owner.learned);
        if age >= period {
            self.want(owner.part.start(), now);
        }
        let horizon = owner.horizon + u64::from(age >= period);
        (age < period.saturating_mul(2)).then_some(Owner { horizon, ..owner })
    }

    /// Asks for the owner of `point`, unless it was asked for within [`ASK_AGAIN`]. An answer may take longer than the time between two
    /// questions.
    pub(crate) fn want(&mut self, point: Point, now: Time) {
        self.asked.retain(|_, asked| now.since(*asked) < 2 * ANSWERED_WITHIN);
        let is_due = match self.asked.get(&point) {
            Some(asked) => now.since(*asked) >= ASK_AGAIN,
            None => self.asked.len() < ASKED_MAX,
        };
        if is_due {
            self.asked.insert(point, now);
            self.wanted.insert(point);
        }
    }

    /// Notes that the owner of a point was asked for, outside of [`RoutingTable::want`]: its answer counts.
    pub(crate) fn note_asked(&mut self, point: Point, now: Time) {
        if self.asked.len() < ASKED_MAX {
            self.asked.insert(point, now);
        }
    }

    /// Returns whether `point` was asked for because there is a message for its primary.
    fn has_asked(&self, point: Point) -> bool {
        self.asked.contains_key(&point)
    }

    /// Forgets this primary of `point`, which proved wrong or is silent.
    pub(crate) fn forget(&mut self, point: Point, ballot: TermBallot) {
        if let Some(owner) = self.find(point).filter(|owner| owner.ballot == ballot) {
            self.known.remove(&owner.part.start());
        }
    }

    /// Returns whether a known owner has this ballot.
    pub(crate) fn names(&self, ballot: TermBallot) -> bool {
        self.known.values().any(|owner| owner.ballot == ballot)
    }

    /// Queues an operation for the primary of another group.
    pub(crate) fn ask(&mut self, owner: &Owner, operation: ClientOperation) {
        self.operations.entry((owner.group, owner.ballot.node)).or_default().push(operation);
    }

    /// Returns whether this group may be asked for `point`: not if it was asked at least [`ANSWERED_WITHIN`] ago without an answer since.
    fn may_try(&mut self, point: Point, group: GroupId, now: Time) -> bool {
        self.ways.retain(|_, tried| {
            tried.retain(|(_, since)| now.since(*since) < REACHED_AGAIN);
            !tried.is_empty()
        });
        if self.ways.len() >= ASKED_MAX {
            return true;
        }
        let tried = self.ways.entry(point).or_default();
        match tried.iter().find(|(known, _)| *known == group) {
            Some((_, since)) => now.since(*since) < ANSWERED_WITHIN,
            None => {
                tried.push((group, now));
                true
            }
        }
    }

    /// Keeps a question that cannot be answered or passed on now. If there are too many, the oldest is dropped: its origin will ask again.
    fn keep(&mut self, from: PeerKey, locate: Locate, now: Time) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.remove(0);
        }
        self.waiting.push((now, from, locate));
    }

    /// Learns from an answer. Returns false if a newer primary is known, or the point was not asked for.
    fn learn(&mut self, located: &Located, from: PeerKey, now: Time) -> bool {
        let Located { point, ref group, part, ballot, horizon, .. } = *located;
        if !part.contains(point) {
            return false;
        }
        let asked = self.asked.remove(&point).is_some();
        if !(asked || self.refresh.looks_at(point)) {
            return false;
        }
        self.hints.learn(group);
        if !asked {
            return false; // A periodic look-up: no operation needs the primary, so the node does not connect to it.
        }
        self.note(part, Owner { group: group.id, part, ballot, horizon, learned: now, told_by: Some(from) })
    }

    /// Notes the primaries of a group in which this node has no part, or soon will have none: it need not ask for them.
    pub(crate) fn note_parts(&mut self, state: &GroupState, now: Time) {
        self.hints.learn(&state.reference());
        let (group, horizon) = (state.id, state.horizon);
        for (part, ballot) in state.parts() {
            self.note(part, Owner { group, part, ballot, horizon, learned: now, told_by: None });
        }
    }

    /// Notes a primary. Returns false if a newer one is known.
    fn note(&mut self, part: KeyRange, owner: Owner) -> bool {
        let ballot = owner.ballot;
        if self.known.values().any(|owner| owner.part.overlaps(part) && owner.ballot > ballot) {
            return false;
        }
        // A lagging member may report an older horizon than is known.
        let of_group = self.known.values().filter(|known| known.group == owner.group);
        let horizon = of_group.map(|known| known.horizon).fold(owner.horizon, u64::max);
        let owner = Owner { horizon, ..owner };
        self.known.retain(|_, owner| !owner.part.overlaps(part));
        if self.known.len() >= KNOWN_MAX {
            self.known.pop_first();
        }
        self.known.insert(part.start(), owner);
        true
    }
}

impl RoutingTable {
    /// Sends the questions and operations of this batch. Returns whether there were any.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) -> bool {
        let wanted = core::mem::take(&mut self.wanted);
        let operations = core::mem::take(&mut self.operations);
        let busy = !wanted.is_empty() || !operations.is_empty();
        let Some(ring) = cx.ring else { return busy };
        for point in wanted {
            let origin = cx.contact();
            self.pass_on(cx, Locate::new(ring, point, origin, Wanted::Owner));
        }
        for ((group, primary), operations) in operations {
            let message = ClientMessage { operations, outcomes: Vec::new() };
            cx.send_as(group, &[primary], Message::Client(message), Epoch(0));
        }
        busy
    }

    /// Handles a question of another peer.
    pub(crate) fn on_locate(&mut self, cx: &mut Context<'_>, lives: &LifeWatch, from: PeerKey, locate: Locate) {
        let Locate { ring, point, ref origin, wanted, hops, taken_for, .. } = locate;
        if cx.ring != Some(ring) || hops >= HOPS_MAX || !group::validate::are_addresses(&origin.addresses) {
            cx.drop_frame();
            return;
        }
        let located = Located::here(cx.replicas, point);
        if located.is_none() && cx.replicas.at(point).is_some_and(|group| group.state().ended.is_some()) {
            // No peer here knows yet the successor of a group that has ended, and other peers would send the question back.
            return self.keep(from, locate, cx.now.time);
        }
        // A peer that asks for itself learns of its error from the answer.
        if let Some(taken_for) = taken_for.filter(|_| located.is_none() || origin.node.peer != from) {
            self.tell_astray(cx, from, ring, taken_for);
        }
        if wanted == Wanted::Owner && origin.node.peer != cx.me.peer {
            self.questions.note(point, origin, from, cx.now.time);
        }
        let Some(located) = located else { return self.pass_on(cx, Locate { hops: hops + 1, ..locate }) };
        match wanted {
            Wanted::Owner => self.send_back(cx, None, &located),
            Wanted::Sample => {
                if let Some(sampled) = Sampled::of(cx.replicas, cx.config, lives, point) {
                    cx.tell(origin, &Frame::Sampled(sampled.into()));
                }
            }
        }
    }

    /// Answers the questions that waited: a group was born here, or the point belongs to another group now.
    pub(crate) fn resume_questions(&mut self, cx: &mut Context<'_>, lives: &LifeWatch) {
        for (asked, from, locate) in core::mem::take(&mut self.waiting) {
            // The origin of an older question has asked again since.
            if cx.now.time.since(asked) < ASK_AGAIN {
                self.on_locate(cx, lives, from, locate);
            }
        }
    }

    /// Corrects a peer that took this node for a member of a group, if it is none, or if that group has a later epoch by now.
    fn tell_astray(&mut self, cx: &mut Context<'_>, from: PeerKey, ring: RingId, (id, epoch): (GroupId, Epoch)) {
        let here = cx.replicas.living().map(Group::state).find(|state| state.id == id).map(GroupState::reference);
        if here.as_ref().is_some_and(|group| group.epoch <= epoch) {
            return;
        }
        let later = || self.hints.find(id).filter(|group| group.epoch > epoch);
        let group = here.or_else(later).or_else(|| cx.replicas.home().map(|group| group.state().reference()));
        let frame = Frame::Astray(Astray { ring, taken_for: (id, epoch), group }.into());
        cx.post(from, Class::Control, &frame);
    }

    /// Handles the report that a peer is not a member of the group that it was taken for. Only a peer that is a member according to the
    /// hint is believed.
    pub(crate) fn on_astray(&mut self, cx: &mut Context<'_>, from: PeerKey, astray: Astray) {
        let Astray { ring, taken_for: (id, epoch), group } = astray;
        if cx.ring != Some(ring) || !group.as_ref().is_none_or(group::validate::is_reference) {
            cx.drop_frame();
            return;
        }
        let hints = &mut self.hints;
        let is_member = |known: &GroupRef| known.nodes().any(|node| node.peer == from);
        if let Some(known) = hints.find(id).filter(|known| known.epoch <= epoch && is_member(known)) {
            hints.forget(&known);
            group.iter().for_each(|group| hints.learn(group));
        }
    }

    /// Passes a question on to a peer that is nearer to the point than all groups here. A group of which no member could be reached for a
    /// while is bypassed, and forgotten. A group that this node asked for the same point in vain is bypassed.
    pub(crate) fn pass_on(&mut self, cx: &mut Context<'_>, locate: Locate) {
        let Some(home) = cx.replicas.home() else { return };
        self.hints.set_here(home.state().range);
        let here: Vec<GroupRef> = cx.replicas.living().map(|group| group.state().reference()).collect();
        let links = cx.replicas.living().map(|group| &group.state().transactions);
        let links = links.flat_map(|transactions| transactions.neighbours());
        let mut beside: Vec<GroupRef> =
            links.filter(|link| here.iter().all(|own| own.id != link.id)).cloned().collect();
        let (mut silent, mut passed, mut way) = (None::<GroupRef>, Vec::new(), locate.way);
        for _ in 0..ROUND_MAX {
            let Some(own) = here.iter().min_by_key(|own| way.distance(own.range, locate.point)) else { return };
            let next = next_hop(locate.point, own, beside.iter().cloned(), &mut self.hints, way);
            let Some(next) = next else {
                match (&silent, way) {
                    (Some(silent), Way::Either) => way = way_round(own.range, silent.range),
                    _ => break,
                }
                continue;
            };
            let now = cx.now.time;
            let may_try = locate.hops > 0 || self.may_try(locate.point, next.id, now);
            if let Some(contact) = may_try.then(|| self.reachable(cx, &next)).flatten() {
                passed.iter().for_each(|group| self.hints.learn(group));
                return self.pass_to(cx, &contact, &next, Locate { way, ..locate });
            }
            self.hints.forget(&next);
            beside.retain(|group| group.id != next.id);
            if next.nodes().all(|node| node.peer == cx.me.peer) {
                continue; // A former group of this node is no reason to go another way.
            }
            if !may_try {
                passed.push(next.clone());
            }
            silent.get_or_insert(next);
        }
        // A group that is of no use for this point is remembered for other points.
        passed.iter().for_each(|group| self.hints.learn(group));
        // No other group is nearer: perhaps this one answers now.
        if let Some((silent, contact)) = silent.and_then(|group| Some((group.clone(), cx.some_member(&group, false)?)))
        {
            self.pass_to(cx, &contact, &silent, locate);
        }
    }

    /// Passes a question to a member of this group.
    fn pass_to(&mut self, cx: &mut Context<'_>, contact: &Contact, group: &GroupRef, locate: Locate) {
        let taken_for = Some((group.id, group.epoch));
        self.questions.note_passed(locate.point, locate.origin.node.peer, contact.node.peer);
        cx.tell(contact, &Frame::Locate(Locate { taken_for, ..locate }.into()));
    }

    /// Returns a member of a group that is connected, or that may still be reached.
    pub(crate) fn reachable(&mut self, cx: &mut Context<'_>, group: &GroupRef) -> Option<Contact> {
        if let Some(contact) = cx.some_member(group, true) {
            self.unreached.remove(&group.id);
            return Some(contact);
        }
        let now = cx.now.time;
        self.unreached.retain(|_, since| now.since(*since) < REACHED_AGAIN);
        let since = *self.unreached.entry(group.id).or_insert(now);
        if now.since(since) >= REACHED_WITHIN { None } else { cx.some_member(group, false) }
    }

    /// Remembers the groups beside those here. Returns whether the node's place on the ring has changed, or some of the groups are new.
    pub(crate) fn learn_neighbours(&mut self, cx: &mut Context<'_>, serial: ReplicaSerial) -> bool {
        let hints = &mut self.hints;
        let mut changed = cx.replicas.home().is_some_and(|home| hints.set_here(home.state().range));
        let Some(replica) = cx.replicas.by_serial(serial) else { return changed };
        let transactions = &replica.group.state().transactions;
        for beside in transactions.neighbours() {
            changed |= hints.find(beside.id).is_none();
            hints.learn(beside);
        }
        changed
    }

    /// Asks for the owner of a point at once.
    pub(crate) fn ask_where(&mut self, cx: &mut Context<'_>, point: Point) {
        let Some(ring) = cx.ring else { return };
        let origin = cx.contact();
        self.pass_on(cx, Locate::new(ring, point, origin, Wanted::Owner));
    }

    /// Returns the last known owner of a point: a neighbour, or a group that hints name.
    pub(crate) fn known_at(&self, replicas: &LocalReplicas, point: Point) -> Option<GroupRef> {
        let links = replicas.living().map(|group| &group.state().transactions);
        let mut links = links.flat_map(|transactions| transactions.neighbours());
        let link = links.find(|link| link.range.contains(point)).cloned();
        link.or_else(|| self.hints.at(point))
    }

    /// Handles the answer to a question. Returns the news of it, unless the answer is not sound.
    pub(crate) fn on_located(&mut self, cx: &mut Context<'_>, from: PeerKey, located: &Located) -> Option<Answered> {
        let Located { ring, ref group, part, ballot, .. } = *located;
        let is_sound = group::validate::is_reference(group) && group.range.contains_range(part) && located.is_sound();
        if cx.ring != Some(ring) || !is_sound {
            cx.drop_frame();
            return None;
        }
        self.send_back(cx, Some(from), located);
        let is_asked = self.has_asked(located.point);
        if is_asked && let Some(primary) = group.members.iter().find(|contact| contact.node == ballot.node) {
            cx.reach(primary);
        }
        self.ways.remove(&located.point);
        let is_new = self.learn(located, from, cx.now.time);
        // This primary is still to begin here, and wakes the waiting operations when it does: no further question is needed so soon.
        if is_new && ballot.node == cx.me {
            self.asked.insert(located.point, cx.now.time);
        }
        Some(Answered { is_asked, serves: is_new && ballot.node != cx.me })
    }
}

/// Returns the direction round the ring that does not pass the silent range first.
fn way_round(own: KeyRange, silent: KeyRange) -> Way {
    let ahead = own.end().distance_to(silent.start()) <= silent.end().distance_to(own.start());
    if ahead { Way::Down } else { Way::Up }
}
