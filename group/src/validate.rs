//! Checks of messages that no honest member sends. Such a message is dropped and counted: whether sent by mistake or on
//! purpose, it must not stop this node, nor make it store data without bound.
//!
//! This module checks the message by itself. Checks that need the receiver's state are where that state is.

use alloc::string::String;
use alloc::vec::Vec;

use overlay::{Contact, Epoch, GroupRef, Key, KeyRange, NodeId};

use crate::ballot::{Ballot, LogSlot, Term};
use crate::control::capacity;
use crate::control::history::History;
use crate::control::load;
use crate::control::state::{Entry, Member};
use crate::data::CHAIN_LENGTH_MAX;
use crate::harmonia::switch::Switch;
use crate::message::{
    Base, Chain, ClientMessage, ClientOperation, CommitteeMessage, CommitteeReport, Compared, Copied, Heartbeat,
    LogMessage, Message, Progress, Since, Vouch, Write,
};
use crate::op::{Op, ReadMode};
use crate::record::{CLIENT_ID_BYTES_MAX, LIVE_IDS_MAX, OpId, Record};
use crate::transaction::driver::{GroupEnvelope, GroupMessage};
use crate::transaction::plan::{Plan, View};
use crate::transaction::state::{TransactionEntry, TransactionState};
use crate::transaction::successor::handover::Handover;

/// Upper limit of nodes in a heartbeat's list of heard nodes. Far more than any group has; it bounds the notes on each
/// member.
const HEARD_MAX: usize = 1 << 12;
/// Upper limits of addresses of one node, and of the bytes of each address and of its cluster's name: they become part
/// of the group's state.
pub const ADDRESSES_MAX: usize = 32;
const TEXT_BYTES_MAX: usize = 1 << 10;
/// Upper limit of the parts of a promise. Each holds at least one write, and no more writes are in flight than this.
const PROMISE_PARTS_MAX: u32 = 1 << 16;
/// Upper limit of outstanding grants of one member: one per primary of its group.
const LEASES_MAX: usize = 1 << 10;
/// Upper limit of a primary's numbers ahead of its chosen mark, and so of the unsettled writes of a term that an
/// acceptor may have to hold. A primary has some thousands in flight; one write that is stuck holds the mark back until
/// it is sent again. A primary stops itself at half of this.
pub(crate) const NUMBERS_AHEAD_MAX: u64 = 1 << 20;

/// Reason why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Its sender does not own the ballot that it proposes under.
    NotItsBallot,
    /// Numbers or lists that no honest node reaches.
    Malformed,
    /// Ranges or keys that do not fit together.
    Misplaced,
    /// A slot, term or number that is impossibly far ahead.
    Far,
    /// Sound as far as the receiver can see, but there is no room for more of its kind.
    NoRoom,
    /// Impossible together with a value that this member accepted before.
    Contradiction,
}

impl Violation {
    /// All reasons, in order.
    pub const ALL: [Violation; 6] = [
        Violation::NotItsBallot,
        Violation::Malformed,
        Violation::Misplaced,
        Violation::Far,
        Violation::NoRoom,
        Violation::Contradiction,
    ];

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Violation::NotItsBallot => "not_its_ballot",
            Violation::Malformed => "malformed",
            Violation::Misplaced => "misplaced",
            Violation::Far => "far",
            Violation::NoRoom => "no_room",
            Violation::Contradiction => "contradiction",
        }
    }
}

/// Counts of dropped messages since the start, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped([u64; Violation::ALL.len()]);

impl Dropped {
    /// Counts one more.
    pub fn note(&mut self, violation: Violation) {
        self.0[violation as usize] += 1;
    }

    /// Returns the count for this reason.
    pub fn of(&self, violation: Violation) -> u64 {
        self.0[violation as usize]
    }

    /// Returns the count for all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Returns `violation` unless the condition holds.
fn unless(holds: bool, violation: Violation) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(violation) }
}

fn fits(n: u64) -> bool {
    n < LogSlot::MAX.0
}

fn is_mark(mark: &Option<u64>) -> bool {
    mark.is_none_or(fits)
}

fn is_slot(slot: &LogSlot) -> bool {
    fits(slot.0)
}

fn is_round(ballot: &Ballot) -> bool {
    fits(ballot.round)
}

/// Returns whether a group's horizon can have reached this value.
pub fn is_horizon(horizon: u64) -> bool {
    horizon < u64::MAX / 2
}

/// Returns whether a key's record can have these numbers. Later records continue from them.
fn is_numbered(record: &Record) -> bool {
    let Record { number, version, horizon, done, .. } = record;
    number.n > 0
        && fits(number.n)
        && version.generation < u32::MAX
        && version.timestamp < u64::MAX
        && is_horizon(*horizon)
        && done.iter().all(|done| is_horizon(done.horizon))
}

fn is_written(write: &Write) -> bool {
    is_numbered(&write.record)
}

fn all_within(writes: &[Write], piece: KeyRange) -> bool {
    writes.iter().all(|write| piece.contains(write.key.point()))
}

impl Message {
    /// Checks that an honest node can have sent this. `from` is proven.
    ///
    /// # Errors
    /// Returns the reason to drop the message.
    pub fn check(&self, from: NodeId) -> Result<(), Violation> {
        match self {
            Message::Heartbeat(heartbeat) => heartbeat.check(from),
            Message::Progress(progress) => progress.check(),
            Message::Log(message) => message.check(from),
            Message::Committee(message) => message.check(from),
            Message::Client(ClientMessage { operations, .. }) => operations.iter().try_for_each(ClientOperation::check),
            Message::Join(member) => unless(member.is_sound(), Violation::Malformed),
            Message::Contact(contact) => {
                // Each node speaks only for itself.
                unless(contact.node == from && are_addresses(&contact.addresses), Violation::Malformed)
            }
            Message::State(state) => unless(state.is_sound(), Violation::Malformed),
            Message::Vouch(vouch) => vouch.check(),
            Message::Envelope(envelope) => unless(envelope.is_sound(), Violation::Malformed),
            Message::Handover(handover) => handover.check(from),
            Message::Copied(copied) => copied.check(),
            Message::AskCopy(_)
            | Message::AskVouch
            | Message::AcceptLoss
            | Message::AskState
            | Message::Wait(_)
            | Message::Declined => Ok(()),
        }
    }
}

impl Copied {
    fn check(&self) -> Result<(), Violation> {
        let Copied { piece, after, writes, up_to, applied, purged, .. } = self;
        unless(all_within(writes, *piece), Violation::Misplaced)?;
        let ordered = writes.windows(2).all(|pair| pair[0].key < pair[1].key);
        let behind = |key: &Key| after.as_ref().is_none_or(|after| after < key);
        let begins = writes.first().is_none_or(|first| behind(&first.key));
        let onward = up_to.as_ref().is_none_or(|up_to| {
            behind(up_to) && piece.contains(up_to.point()) && writes.last().is_none_or(|last| last.key <= *up_to)
        });
        let sound = is_slot(applied) && purged <= applied && writes.iter().all(is_written);
        unless(ordered && begins && onward && sound, Violation::Malformed)
    }
}

impl Member {
    /// Returns whether it is small enough to become part of the group's state.
    pub fn is_sound(&self) -> bool {
        are_addresses(&self.addresses) && self.cluster.len() <= TEXT_BYTES_MAX
    }
}

/// Returns whether these addresses are few and short enough for a message.
pub fn are_addresses(addresses: &[String]) -> bool {
    addresses.len() <= ADDRESSES_MAX && addresses.iter().all(|address| address.len() <= TEXT_BYTES_MAX)
}

/// Returns those of a node's own addresses that other nodes accept.
pub fn acceptable(mut addresses: Vec<String>) -> Vec<String> {
    addresses.retain(|address| address.len() <= TEXT_BYTES_MAX);
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

impl Heartbeat {
    fn check(&self, from: NodeId) -> Result<(), Violation> {
        unless(self.leads.is_none_or(|ballot| ballot.node == from), Violation::NotItsBallot)?;
        let sound = self.leads.as_ref().is_none_or(is_round) && is_slot(&self.applied) && is_slot(&self.chosen);
        // Heard nodes count towards a quorum: none may be listed twice.
        let hears = self.hears.len() <= HEARD_MAX && self.hears.windows(2).all(|pair| pair[0] < pair[1]);
        let hears = hears && self.echoes.len() <= self.hears.len() && self.absences.len() <= HEARD_MAX;
        let load = self.load.as_deref().is_none_or(load::is_sound);
        let capacity = self.capacity.is_none_or(capacity::is_sound);
        let history = self.history.as_ref().is_none_or(History::is_sound);
        let marks = self.marks.len() <= Term::PARTS_MAX
            && self.marks.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && self.marks.iter().all(|(_, mark)| fits(*mark));
        let terms = self.terms.len() <= Term::PARTS_MAX && marks;
        unless(sound && hears && load && capacity && history && terms, Violation::Malformed)?;
        self.progress.as_ref().map_or(Ok(()), Progress::check)
    }
}

impl Vouch {
    fn check(&self) -> Result<(), Violation> {
        let bounded = self.committees.len().max(self.held.len()) <= Term::PARTS_MAX && is_slot(&self.slot);
        unless(bounded && fits(self.round) && self.last.0 < u64::MAX / 2, Violation::Malformed)?;
        self.progress.as_ref().map_or(Ok(()), Progress::check)
    }
}

impl Progress {
    fn check(&self) -> Result<(), Violation> {
        let bounded = self.complete.len() <= Term::PARTS_MAX && self.marks.len() <= Term::PARTS_MAX;
        unless(bounded && is_slot(&self.applied), Violation::Malformed)
    }
}

impl ClientOperation {
    fn check(&self) -> Result<(), Violation> {
        // Any member may answer a relaxed operation, and no such answer changes anything.
        let relaxed = self.mode == ReadMode::Relaxed;
        let id = match &self.id {
            OpId::Client(id) => id.len() <= CLIENT_ID_BYTES_MAX,
            OpId::Origin { .. } => true,
        };
        let sound = (!relaxed || matches!(self.op, Op::Read(_)))
            && id
            && self.retired_except.len() <= LIVE_IDS_MAX
            && is_horizon(self.horizon)
            && !self.key.is_companion();
        unless(sound, Violation::Malformed)
    }
}

impl LogMessage {
    fn check(&self, from: NodeId) -> Result<(), Violation> {
        let sound = match self {
            LogMessage::AskPromise { .. } | LogMessage::WouldPromise { .. } => true,
            LogMessage::Prepare { ballot, applied, .. } => {
                unless(ballot.node == from, Violation::NotItsBallot)?;
                is_round(ballot) && is_slot(applied)
            }
            LogMessage::Promise { ballot, state, accepted, .. } => {
                let state = state.as_ref().is_none_or(|state| state.is_sound());
                let sound = |(slot, ballot, entry): &(LogSlot, Ballot, Entry)| {
                    is_slot(slot) && is_round(ballot) && entry.is_sound()
                };
                state && is_round(ballot) && accepted.iter().all(sound)
            }
            LogMessage::Accept { ballot, entries, chosen } => {
                unless(ballot.node == from, Violation::NotItsBallot)?;
                let sound = |(slot, entry): &(LogSlot, Entry)| is_slot(slot) && entry.is_sound();
                // A slot that is listed twice could have two values.
                let ordered = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
                ordered && is_round(ballot) && is_slot(chosen) && entries.iter().all(sound)
            }
            LogMessage::Accepted { ballot, slots, .. } => is_round(ballot) && slots.iter().all(is_slot),
            LogMessage::Lead => true,
            LogMessage::Refused { ballot, promised } => is_round(ballot) && is_round(promised),
        };
        unless(sound, Violation::Malformed)
    }
}

impl Entry {
    /// Returns whether it leaves a sound state sound.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            // Members were checked when they asked, and their number is bounded by the size of a message.
            Entry::Noop | Entry::DropLearner(_) | Entry::Learners(_) | Entry::Next(_) => true,
            Entry::Division { parts, kept } => parts.len() <= Term::PARTS_MAX && kept.len() <= Term::PARTS_MAX,
            Entry::Established(_, ranges) => ranges.len() <= Term::PARTS_MAX,
            Entry::Horizon(horizon) => is_horizon(*horizon),
            Entry::Switch(switch) => Switch::is_id(switch.id),
            Entry::Policies(policies) => policies.is_sound(),
            Entry::Purge { bounds, floor, .. } => bounds.len() <= Term::PARTS_MAX && *floor < u32::MAX / 2,
            Entry::Contact(contact) => are_addresses(&contact.addresses),
            Entry::Transaction(entry) => entry.is_sound(),
        }
    }
}

/// Upper limit of members in a reference to a group. Far more than a group has.
const CONTACTS_MAX: usize = 1 << 8;

/// Returns whether a group can have sent this as its reference.
pub fn is_reference(group: &GroupRef) -> bool {
    is_epoch(group.epoch) && are_contacts(&group.members, CONTACTS_MAX)
}

/// Returns whether a group can come to this epoch: later ones would leave no room above.
fn is_epoch(epoch: Epoch) -> bool {
    epoch.0 < u64::MAX / 2
}

/// Returns whether there is at least one contact, and at most `max`.
fn are_contacts(contacts: &[Contact], max: usize) -> bool {
    (1..=max).contains(&contacts.len()) && contacts.iter().all(|contact| are_addresses(&contact.addresses))
}

fn is_plan(plan: &Plan) -> bool {
    plan.is_sound()
        && plan.parties.iter().all(|party| is_reference(&party.group))
        && plan.above().is_none_or(is_epoch)
        && plan.births.iter().all(|birth| are_contacts(&birth.members, 2 * CONTACTS_MAX))
}

impl View {
    fn is_sound(&self) -> bool {
        [&self.own, &self.predecessor, &self.successor].into_iter().all(is_reference)
    }
}

impl TransactionEntry {
    fn is_sound(&self) -> bool {
        match self {
            TransactionEntry::Begin(plan) | TransactionEntry::Asked(_, plan) => is_plan(plan),
            TransactionEntry::Neighbour(group) => is_reference(group),
            TransactionEntry::Outcome(..)
            | TransactionEntry::Decided(..)
            | TransactionEntry::Ending(_)
            | TransactionEntry::Ended(..) => true,
        }
    }
}

impl GroupEnvelope {
    /// Returns whether an honest group can have sent this.
    pub fn is_sound(&self) -> bool {
        let is_sound = match &self.message {
            GroupMessage::Prepare(_, plan) => is_plan(plan),
            GroupMessage::Push(view, _, health) => view.is_sound() && health.is_sound(CONTACTS_MAX, TEXT_BYTES_MAX),
            GroupMessage::Vote(..)
            | GroupMessage::Decision(..)
            | GroupMessage::End(_)
            | GroupMessage::Question(_)
            | GroupMessage::Known(_) => true,
        };
        is_sound && is_reference(&self.by) && is_reference(&self.to)
    }
}

impl TransactionState {
    /// Returns whether a log can have led to this state.
    pub(crate) fn is_sound(&self) -> bool {
        let open = self.coordinates().into_iter().chain(self.voted());
        let links = [self.predecessor(), self.successor()];
        links.into_iter().flatten().all(is_reference)
            && open.map(|(_, plan)| plan).chain(self.decided().iter().map(|known| &known.plan)).all(is_plan)
            && self.is_bounded()
    }
}

impl CommitteeMessage {
    fn check(&self, from: NodeId) -> Result<(), Violation> {
        unless(!self.is_of_primary() || self.ballot().node == from, Violation::NotItsBallot)?;
        let sound = match self {
            CommitteeMessage::Accept { ballot, chosen, writes } => {
                let last = chosen.unwrap_or(0).saturating_add(NUMBERS_AHEAD_MAX);
                unless(writes.iter().all(|write| write.record.number.n <= last), Violation::Far)?;
                let own = |write: &Write| is_written(write) && write.record.number.term == ballot.term;
                is_mark(chosen) && writes.iter().all(own)
            }
            CommitteeMessage::Base { base, chosen, .. } => {
                base.check()?;
                is_mark(chosen)
            }
            CommitteeMessage::Promise { part, parts, committees, unsettled, leases, delegated, .. } => {
                for base in committees.iter().filter_map(|report| report.base.as_ref()) {
                    base.check()?;
                }
                let reported = |report: &CommitteeReport| is_mark(&report.chosen);
                let small =
                    part < parts && *parts <= PROMISE_PARTS_MAX && leases.len().max(delegated.len()) <= LEASES_MAX;
                // Lists that do not grow with the writes in flight come once, in the first part.
                let first = *part == 0 || (committees.is_empty() && leases.is_empty() && delegated.is_empty());
                small && first && committees.iter().all(reported) && unsettled.iter().all(is_written)
            }
            CommitteeMessage::Accepted { numbers, .. } => {
                let ordered = numbers.windows(2).all(|pair| pair[0].1 < pair[1].0);
                ordered && numbers.iter().all(|(first, last)| first <= last && fits(*last))
            }
            CommitteeMessage::Confirm { chosen, .. } => is_mark(chosen),
            CommitteeMessage::Point { switch, chosen, .. } => *switch > 0 && fits(*chosen),
            CommitteeMessage::Grant { switch, chosen, left_us, .. } => {
                *switch > 0 && fits(*chosen) && *left_us < 1 << 40
            }
            CommitteeMessage::RecordIs { record, .. } => record.as_deref().is_none_or(is_numbered),
            CommitteeMessage::AskSince { since, .. } => fits(since.n),
            CommitteeMessage::Since(Since { piece, writes, up_to, .. }) => {
                unless(all_within(writes, *piece), Violation::Misplaced)?;
                writes.iter().all(is_written) && up_to.is_none_or(|up_to| fits(up_to.n))
            }
            CommitteeMessage::Compared(answer) => {
                let Compared { piece, after, writes, looked, digest, up_to, mark, .. } = &**answer;
                unless(all_within(writes, *piece), Violation::Misplaced)?;
                let onward = up_to.as_ref().is_none_or(|up_to| after.as_ref().is_none_or(|after| after < up_to));
                let whole = writes.iter().fold(0_u64, |sum, write| sum.wrapping_add(write.digest())) == *digest;
                onward && whole && *looked >= writes.len() as u64 && writes.iter().all(is_written) && fits(*mark)
            }
            CommitteeMessage::Prepare { .. }
            | CommitteeMessage::Refused { .. }
            | CommitteeMessage::BaseAccepted { .. }
            | CommitteeMessage::AskBase { .. }
            | CommitteeMessage::Confirmed { .. }
            | CommitteeMessage::AskRecord { .. }
            | CommitteeMessage::AskCompare { .. } => true,
        };
        unless(sound, Violation::Malformed)
    }

    /// Returns whether only the owner of the ballot sends this.
    pub(crate) fn is_of_primary(&self) -> bool {
        matches!(
            self,
            CommitteeMessage::Prepare { .. }
                | CommitteeMessage::Accept { .. }
                | CommitteeMessage::Base { .. }
                | CommitteeMessage::Confirm { .. }
                | CommitteeMessage::Point { .. }
                | CommitteeMessage::Grant { .. }
                | CommitteeMessage::AskRecord { .. }
        )
    }
}

impl Handover {
    /// Checks that it is its sender's own, and of its own sub-range and term.
    ///
    /// # Errors
    /// Returns the reason to drop the message.
    pub fn check(&self, from: NodeId) -> Result<(), Violation> {
        unless(self.ballot.node == from, Violation::NotItsBallot)?;
        self.base.check()?;
        unless(all_within(&self.unsettled, self.range()), Violation::Misplaced)?;
        let numbers = || self.unsettled.iter().map(|write| write.record.number);
        let beyond = numbers().all(|number| number.term == self.ballot.term && number.n > self.chosen);
        let ordered = numbers().zip(numbers().skip(1)).all(|(one, next)| one < next);
        let sound = fits(self.chosen) && beyond && ordered && self.unsettled.iter().all(is_written);
        unless(sound, Violation::Malformed)
    }
}

impl Base {
    /// Checks that its pieces cover its range exactly, and that a primary can reach its numbers.
    fn check(&self) -> Result<(), Violation> {
        unless(tile(self.range, &self.pieces), Violation::Misplaced)?;
        let known = |(_, chain): &(KeyRange, Chain)| {
            chain.len() <= CHAIN_LENGTH_MAX && chain.iter().all(|(_, mark)| fits(*mark))
        };
        unless(self.reproposed <= NUMBERS_AHEAD_MAX && self.pieces.iter().all(known), Violation::Malformed)
    }
}

/// Returns whether these pieces cover the range without gap or overlap, in any order.
fn tile(range: KeyRange, pieces: &[(KeyRange, Chain)]) -> bool {
    let mut pieces: Vec<KeyRange> = pieces.iter().map(|(piece, _)| *piece).collect();
    // The whole ring may be cut at any point.
    let first = if range.is_full() { pieces.iter().map(|piece| piece.start()).min() } else { Some(range.start()) };
    let Some(first) = first else { return false };
    pieces.sort_unstable_by_key(|piece| first.distance_to(piece.start()));
    let mut at = first;
    for piece in &pieces {
        if piece.start() != at || !range.contains_range(*piece) || (piece.is_full() && pieces.len() > 1) {
            return false;
        }
        at = piece.end();
    }
    at == if range.is_full() { first } else { range.end() }
}

#[cfg(test)]
mod tests {
    use overlay::Point;

    use super::*;

    #[test]
    fn a_base_covers_its_range_exactly() {
        let arc = |start, end| KeyRange::new(Point(start), Point(end));
        let tiles = |range, pieces: &[KeyRange]| {
            tile(range, &pieces.iter().map(|piece| (*piece, Chain::new())).collect::<Vec<_>>())
        };
        let range = arc(100, 20);
        assert!(tiles(range, &[range]));
        assert!(tiles(range, &[arc(100, 0), arc(0, 20)]));
        assert!(tiles(range, &[arc(0, 20), arc(100, 0)]), "in whatever order");
        assert!(!tiles(range, &[arc(100, 0), arc(1, 20)]), "a gap");
        assert!(!tiles(range, &[arc(100, 5), arc(0, 20)]), "an overlap");
        assert!(!tiles(range, &[arc(100, 30), arc(30, 20)]), "beyond its end");
        assert!(!tiles(range, &[arc(100, 0)]), "too little");
        assert!(!tiles(range, &[range, range]), "twice");
        assert!(!tiles(range, &[]), "nothing");
        assert!(!tiles(range, &[KeyRange::FULL]), "more than all");
        assert!(tiles(KeyRange::FULL, &[KeyRange::FULL]));
        assert!(tiles(KeyRange::FULL, &[arc(7, 9), arc(9, 7)]), "cut anywhere");
        assert!(!tiles(KeyRange::FULL, &[arc(7, 9), arc(9, 6)]));
        assert!(!tiles(KeyRange::FULL, &[KeyRange::FULL, KeyRange::FULL]));
    }
}
