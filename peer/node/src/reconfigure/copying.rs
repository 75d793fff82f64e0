//! Copies of data that this node may come to own, made before the transaction that gives it (`docs/design/data.md`). The leader of a
//! group that is to become another with a neighbour orders the copy. Members pull pages from the neighbour's members. The copied
//! records lie in generations of their own until a new group claims them, or they are dropped.
//!
//! # Invariants
//! - A copy counts for nothing: a member of a new group with a copied range lacks its data until it was compared, as if it had none.
//! - A claimed copy holds no key of which a tombstone was purged since it was copied (hazard 14).
//! - The remains of a copy after a crash are dropped.

use alloc::vec::Vec;
use core::time::Duration;

use group::ballot::LogSlot;
use group::config::{Defect, Defects};
use group::control::state::GroupState;
use group::data::catch_up::throttle::Throttle;
use group::data::table::Table;
use group::message::{AskCopy, Copied, Message, Sender};
use overlay::time::Time;
use overlay::{GroupId, GroupRef, IntervalMap, Key, KeyRange, NodeId, PeerKey, RingId};
use serde::{Deserialize, Serialize};

use crate::api::Change;
use crate::config::Durability;
use crate::context::Context;
use crate::reconfigure::preparing::Preparation;
use crate::replicas::LocalReplicas;
use crate::replicas::storage;
use crate::wire::Frame;

/// Upper limit of copies at one time: a node has two neighbours.
const COPIES_MAX: usize = 2;
/// Number of pieces still to be dropped at which no new copy begins.
const LEFT_MAX: usize = 64;
/// Time for which the last order counts as fresh: no other copy takes the place of such a copy.
const ORDERS: Duration = Duration::from_secs(2);
/// Upper limit of ranges in an order.
const RANGES_MAX: usize = 4;
/// Time after its last order at which a copy is dropped: a leader repeats an order as long as it wants the copy.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Time after which a missing page is asked for again, from another member.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Time for which the next page waits while the store has much left to write.
const STORE_PATIENCE: Duration = Duration::from_millis(500);

/// Order of a group's leader that the receiver copy data that it may come to own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOrder {
    /// The ring.
    pub ring: RingId,
    /// Number of the order at the leader.
    pub number: u64,
    /// Neighbour to copy from.
    pub source: GroupId,
    /// Parts of the neighbour's range.
    pub ranges: Vec<KeyRange>,
}

/// Progress of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTold {
    /// The ring.
    pub ring: RingId,
    /// Number of the order at the leader.
    pub number: u64,
    /// Neighbour that is copied from.
    pub source: GroupId,
    /// Number of records copied.
    pub records: u64,
    /// Whether all records are copied.
    pub done: bool,
}

/// A generation, and the range that was lent of it.
type Lent = (u8, KeyRange);

/// Part of a copy that becomes a new group's data.
pub(crate) struct Claim {
    serial: u64,
    /// For each part of the copy: its place in the store, and its usable ranges.
    pub(crate) lots: Vec<(Option<Lent>, Vec<KeyRange>)>,
}

impl Claim {
    /// Returns all usable ranges.
    pub(crate) fn parts(&self) -> impl Iterator<Item = KeyRange> + Clone {
        self.lots.iter().flat_map(|(_, parts)| parts.iter().copied())
    }
}

/// All copies of a node.
#[derive(Default)]
pub(crate) struct Copies {
    all: Vec<Copying>,
    last_serial: u64,
    last_question: u64,
    throttle: Throttle,
    /// Whether the store has no room for copies.
    pub(crate) disk_low: bool,
    /// Whether the store has much left to write.
    pub(crate) store_behind: bool,
}

/// One copy: of some ranges of a neighbour.
struct Copying {
    serial: u64,
    source: GroupId,
    ranges: Vec<KeyRange>,
    /// Leader that ordered it last, number of the order, and time.
    orderer: PeerKey,
    number: u64,
    ordered: Time,
    /// The ranges, in parts that do not cross point zero.
    parts: Vec<Part>,
    /// Number of complete parts, and the key up to which the next part is complete.
    done: usize,
    after: Option<Key>,
    /// The open question, and the time at which it was last asked.
    question: Option<(u64, Time)>,
    turns: usize,
    /// Arrival of the last page, and the name of its batch while that is not durable: copies do not overload a slow disk.
    came: Time,
    written: Option<u64>,
    table: Table,
    records: u64,
}

struct Part {
    range: KeyRange,
    /// Its generation in the store.
    generation: Option<u8>,
    /// Slot up to which every page that came respects purges; `None` before the first page.
    applied: Option<LogSlot>,
}

impl Part {
    fn lent(&self) -> Option<Lent> {
        self.generation.map(|generation| (generation, self.range))
    }
}

impl Copying {
    fn is_done(&self) -> bool {
        self.done == self.parts.len()
    }

    /// Returns the part of this copy that a group in this state can use, in these ranges; `None` if there is none.
    fn claim(&self, state: &GroupState, ranges: &[KeyRange], heeds_purges: bool) -> Option<Claim> {
        let of_use = |part: &Part| -> Vec<KeyRange> {
            let Some(applied) = part.applied else { return Vec::new() };
            let gone = if heeds_purges { state.purged_behind(part.range, applied) } else { Vec::new() };
            let wanted = ranges.iter().flat_map(|range| range.intersection(part.range)).flatten();
            wanted.flat_map(|piece| piece.without(gone.iter().copied())).collect()
        };
        let lots = self.parts.iter().map(|part| (part.lent(), of_use(part))).collect();
        let claim = Claim { serial: self.serial, lots };
        let is_of_use = claim.parts().next().is_some();
        is_of_use.then_some(claim)
    }
}

impl Copies {
    /// Returns the memory of all copies, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.all.iter().map(|copying| copying.table.bytes()).sum()
    }

    /// Returns the copied parts of these ranges that a group in this state can use.
    pub(crate) fn claims(&self, defects: &Defects, state: &GroupState, ranges: &[KeyRange]) -> Vec<Claim> {
        let heeds_purges = !defects.has(Defect::StaleCopies);
        let mut left = ranges.to_vec();
        let mut claims: Vec<Claim> = Vec::new();
        // Two copies may overlap.
        for copying in &self.all {
            claims.extend(copying.claim(state, &left, heeds_purges));
            for part in claims.iter().flat_map(Claim::parts) {
                left = left.into_iter().flat_map(|piece| piece.without([part])).collect();
            }
        }
        claims
    }

    /// Takes the claimed records out of their copies, and ends these copies.
    pub(crate) fn take(&mut self, replicas: &mut LocalReplicas, claims: Vec<Claim>) -> Vec<Table> {
        let mut tables = Vec::new();
        for claim in claims {
            if let Some(index) = self.all.iter().position(|copying| copying.serial == claim.serial) {
                let mut copying = self.all.swap_remove(index);
                tables.extend(claim.parts().map(|part| copying.table.take(part)));
                replicas.sweep.remains.push(copying.table);
            }
        }
        tables
    }

    /// Divides the memory for records among the groups; copies use some of it, too.
    pub(crate) fn share_memory(&self, cx: &mut Context<'_>) {
        cx.replicas.share_memory(cx.config.memory_bytes_max.saturating_sub(self.bytes()));
    }
}

impl Preparation {
    /// Handles an order of the leader of this node's group, or of a neighbour that is to become another group with it.
    pub(crate) fn on_copy_order(&mut self, cx: &mut Context<'_>, from: PeerKey, order: CopyOrder) {
        let apart =
            |(index, range): (usize, &KeyRange)| order.ranges[..index].iter().all(|other| !other.overlaps(*range));
        let is_sound = (1..=RANGES_MAX).contains(&order.ranges.len()) && order.ranges.iter().enumerate().all(apart);
        if cx.ring != Some(order.ring) || !is_sound {
            cx.drop_frame();
            return;
        }
        // Knowledge about neighbours may be old, at either end: the order will be repeated.
        let Some(source) = copy_source(cx, order.source).filter(|source| may_order(cx, from, source)) else {
            return;
        };
        let known = self.copies.all.iter().position(|c| c.source == order.source && c.ranges == order.ranges);
        let Some(index) = known.or_else(|| self.begin_copy(cx, &source, &order.ranges)) else { return };
        let copying = &mut self.copies.all[index];
        (copying.orderer, copying.number, copying.ordered) = (from, order.number, cx.now.time);
        self.tell_copy(cx, index);
        self.go_on_copying(cx);
    }

    /// Keeps the data of a former incarnation as a copy, until this node enters a group: the records of these states' ranges, each
    /// as of the slot that was applied there. Chosen writes stay chosen. Purges behind that slot tell which keys may have been
    /// deleted without a trace since, as for any copy.
    pub(crate) fn keep_former(&mut self, cx: &mut Context<'_>, states: &[(GroupState, Vec<KeyRange>)]) {
        let ranges: Vec<KeyRange> = states.iter().flat_map(|(_, ranges)| ranges.iter().copied()).collect();
        let applied = |piece: KeyRange| {
            let holds = |ranges: &Vec<KeyRange>| ranges.iter().any(|range| range.contains_range(piece));
            states.iter().find(|(_, ranges)| holds(ranges)).map(|(state, _)| state.applied)
        };
        let lent = cx.replicas.keyspace.lend_former(&ranges);
        let parts: Vec<Part> = lent
            .into_iter()
            .map(|(generation, range)| Part { range, generation: Some(generation), applied: applied(range) })
            .collect();
        let Some((source, _)) = states.first().filter(|_| !parts.is_empty()) else { return };
        self.copies.last_serial += 1;
        self.copies.all.push(Copying {
            serial: self.copies.last_serial,
            source: source.id,
            ranges,
            orderer: cx.me.peer,
            number: 0,
            // No leader has to order it.
            ordered: Time::NEVER,
            done: parts.len(),
            parts,
            after: None,
            question: None,
            turns: 0,
            came: Time(0),
            written: None,
            table: Table::new(cx.config.memory_bytes_max / 8, false, false),
            records: 0,
        });
    }

    /// Drops all copies.
    pub(crate) fn end_copies(&mut self, cx: &mut Context<'_>) {
        while !self.copies.all.is_empty() {
            self.end_copy(cx, 0);
        }
    }

    fn begin_copy(&mut self, cx: &mut Context<'_>, source: &GroupRef, ranges: &[KeyRange]) -> Option<usize> {
        let is_here = |range: &KeyRange| cx.replicas.living().any(|group| group.state().range.overlaps(*range));
        let is_there = |range: &KeyRange| source.range.contains_range(*range) && !is_here(range);
        let full = self.copies.disk_low || cx.replicas.keyspace.left() >= LEFT_MAX;
        if full || !ranges.iter().all(is_there) {
            return None;
        }
        let oldest = (0..self.copies.all.len()).min_by_key(|index| self.copies.all[*index].ordered);
        let oldest = oldest.filter(|_| self.copies.all.len() >= COPIES_MAX);
        if oldest.is_some_and(|index| cx.now.time.since(self.copies.all[index].ordered) < ORDERS) {
            return None;
        }
        let durable = cx.config.durability == Durability::Sync;
        let mut keyspace = cx.replicas.keyspace.clone();
        let mut parts = Vec::new();
        for (range, ()) in ranges.iter().flat_map(|range| IntervalMap::new(()).pieces(*range)) {
            let generation = if durable { Some(keyspace.lend(range)?) } else { None };
            parts.push(Part { range, generation, applied: None });
        }
        cx.replicas.keyspace = keyspace;
        oldest.into_iter().for_each(|index| self.end_copy(cx, index));
        if cx.replicas.keyspace_due.is_none() {
            // After a crash the remains must be found. If a group's first batch is to store the generations, no earlier batch does.
            let changes = alloc::vec![cx.space().keyspace(&cx.replicas.keyspace)];
            cx.persist_own(changes);
        }
        self.copies.last_serial += 1;
        let share = if durable { 8 } else { 4 };
        self.copies.all.push(Copying {
            serial: self.copies.last_serial,
            source: source.id,
            ranges: ranges.to_vec(),
            orderer: cx.me.peer,
            number: 0,
            ordered: cx.now.time,
            parts,
            done: 0,
            after: None,
            question: None,
            turns: cx.rng.below(1 << 16) as usize,
            came: Time(0),
            written: None,
            table: Table::new(cx.config.memory_bytes_max / share, true, !durable),
            records: 0,
        });
        Some(self.copies.all.len() - 1)
    }

    /// Reports the progress to the leader that ordered the copy.
    fn tell_copy(&mut self, cx: &mut Context<'_>, index: usize) {
        let Some(ring) = cx.ring else { return };
        let copying = &self.copies.all[index];
        let (number, source, records) = (copying.number, copying.source, copying.records);
        let told = CopyTold { ring, number, source, records, done: copying.is_done() };
        match copying.orderer {
            me if me == cx.me.peer => self.on_copy_told(cx, me, told),
            other => cx.say_to(other, &Frame::CopyTold(told.into())),
        }
    }

    fn end_copy(&mut self, cx: &mut Context<'_>, index: usize) {
        let over = self.copies.all.swap_remove(index);
        over.parts.iter().filter_map(Part::lent).for_each(|lent| cx.replicas.keyspace.give_back(lent));
        cx.replicas.sweep.remains.push(over.table);
        self.copies.share_memory(cx);
    }

    /// Begins a copy anew, after a purge behind its pages: all its records are unusable.
    fn copy_anew(&mut self, cx: &mut Context<'_>, index: usize) {
        let Copying { source, ranges, orderer, number, ordered, .. } = &self.copies.all[index];
        let (source, ranges, order) = (*source, ranges.clone(), (*orderer, *number, *ordered));
        self.end_copy(cx, index);
        let Some(source) = copy_source(cx, source) else { return };
        if let Some(index) = self.begin_copy(cx, &source, &ranges) {
            let copying = &mut self.copies.all[index];
            (copying.orderer, copying.number, copying.ordered) = order;
        }
    }

    /// Asks for due pages, and drops copies that are no longer ordered.
    pub(crate) fn go_on_copying(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.time;
        while let Some(index) = self.copies.all.iter().position(|copying| now.since(copying.ordered) >= KEPT_FOR) {
            self.end_copy(cx, index);
        }
        for index in 0..self.copies.all.len() {
            if self.copy_due(cx, &self.copies.all[index]) <= now {
                self.ask_for_copy(cx, index);
            }
        }
    }

    /// Returns the time at which a copy must ask for a page, or be dropped.
    pub(crate) fn copies_due(&self, cx: &Context<'_>) -> Time {
        let due = |copying: &Copying| self.copy_due(cx, copying).min(copying.ordered + KEPT_FOR);
        self.copies.all.iter().map(due).min().unwrap_or(Time::NEVER)
    }

    fn copy_due(&self, cx: &Context<'_>, copying: &Copying) -> Time {
        let waits = copying.is_done() || copying.table.is_full() || copying.written.is_some();
        match copying.question {
            _ if waits || self.copies.disk_low => Time::NEVER,
            Some((_, asked)) => asked + ASK_AGAIN,
            None => {
                let store = if self.copies.store_behind { copying.came + STORE_PATIENCE } else { Time(0) };
                self.copies.throttle.opens(cx.now.time).max(store)
            }
        }
    }

    fn ask_for_copy(&mut self, cx: &mut Context<'_>, index: usize) {
        let source = copy_source(cx, self.copies.all[index].source);
        let copying = &mut self.copies.all[index];
        // A page may take longer than that: the question keeps its number.
        let number = copying.question.map(|(number, _)| number).unwrap_or_else(|| {
            self.copies.last_question += 1;
            self.copies.last_question
        });
        copying.turns += usize::from(copying.question.is_some());
        copying.question = Some((number, cx.now.time));
        let Some(source) = source else { return };
        let nodes: Vec<NodeId> = source.nodes().filter(|node| node.peer != cx.me.peer).collect();
        if nodes.is_empty() {
            return;
        }
        let node = nodes[copying.turns % nodes.len()];
        let ask = AskCopy { piece: copying.parts[copying.done].range, after: copying.after.clone(), number };
        source.members.iter().filter(|contact| contact.node == node).for_each(|contact| cx.reach(contact));
        cx.send_as(source.id, &[node], Message::AskCopy(ask), source.epoch);
    }

    /// Handles a page. A page of a node that does not know its group's present state is dropped.
    pub(crate) fn on_copied(&mut self, cx: &mut Context<'_>, source: GroupId, from: Sender, message: Message) {
        let is_sound = message.check(from.node).is_ok();
        let Message::Copied(page) = message else { return };
        let known = copy_source(cx, source);
        let is_member =
            known.is_some_and(|group| from.epoch >= group.epoch && group.nodes().any(|node| node == from.node));
        let is_asked = |copying: &Copying| {
            let here = copying.question.is_some_and(|(number, _)| number == page.number);
            let part = copying.parts.get(copying.done).map(|part| part.range);
            here && copying.source == source && part == Some(page.piece) && copying.after == page.after
        };
        let index = self.copies.all.iter().position(is_asked);
        let Some(index) = index.filter(|_| is_sound && is_member) else {
            // It may be late.
            *cx.frames_dropped += u64::from(!is_sound);
            return;
        };
        let part = &self.copies.all[index].parts[self.copies.all[index].done];
        if part.applied.is_some_and(|applied| applied < page.purged) {
            self.copy_anew(cx, index);
        } else {
            self.take_page(cx, index, *page);
        }
        self.go_on_copying(cx);
    }

    fn take_page(&mut self, cx: &mut Context<'_>, index: usize, page: Copied) {
        let (space, copying) = (cx.space(), &mut self.copies.all[index]);
        let part = &mut copying.parts[copying.done];
        part.applied = Some(part.applied.map_or(page.applied, |applied| applied.min(page.applied)));
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for write in &page.writes {
            bytes += (write.record.bytes() + write.key.encoded().len()) as u64;
            copying.table.put_stored(&write.key, write.record.clone());
            changes.extend(part.generation.map(|generation| {
                Change::PutRecord(space.record_key(generation, &write.key), storage::encode_record(&write.record))
            }));
        }
        copying.table.evict();
        copying.records += page.writes.len() as u64;
        copying.question = None;
        copying.came = cx.now.time;
        copying.after = page.up_to;
        copying.done += usize::from(copying.after.is_none());
        let (is_done, written) = (copying.is_done(), !changes.is_empty());
        copying.written = written.then_some(page.number);
        self.copies.throttle.take(cx.now.time, bytes, cx.config.transfer_bytes_per_s);
        if written {
            cx.persist_named(page.number, changes);
        }
        if is_done {
            self.tell_copy(cx, index);
        }
    }

    /// Handles the report that all batches under names up to this one are durable.
    pub(crate) fn on_copy_persisted(&mut self, cx: &mut Context<'_>, name: u64) {
        for copying in &mut self.copies.all {
            copying.written.take_if(|written| *written <= name);
        }
        self.go_on_copying(cx);
    }
}

/// Returns whether the sender may be the leader of one of the two groups.
fn may_order(cx: &Context<'_>, from: PeerKey, source: &GroupRef) -> bool {
    let home = cx.replicas.home().map(|group| group.state().nodes()).unwrap_or_default();
    home.contains(&cx.me) && home.into_iter().chain(source.nodes()).any(|node| node.peer == from)
}

/// Returns a neighbour of this node's group.
fn copy_source(cx: &Context<'_>, id: GroupId) -> Option<GroupRef> {
    let transactions = &cx.replicas.home()?.state().transactions;
    transactions.neighbours().find(|link| link.id == id).cloned()
}

#[cfg(test)]
#[path = "copying_test.rs"]
mod tests;
