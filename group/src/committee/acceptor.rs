//! The acceptor's side of all committees of a group: promises, accepts, bases.
//!
//! # Invariants
//! - What is promised at a point never goes down, and nothing below it is accepted there.
//! - Unsettled writes of terms older than the newest base are told to nobody: that base has those that matter.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{IntervalMap, Key, KeyRange, NodeId};

use super::all::Committees;
use super::catch_up::CatchUp;
use super::leases::{Grants, granters_length};
use super::replica::{Replicas, Told};
use super::standing::AskedBases;
use super::window::Committee;
use crate::ballot::{Term, TermBallot};
use crate::config::Defect;
use crate::context::Context;
use crate::message::{CommitteeMessage, CommitteeReport, Message, Since, Write};
use crate::nonsense::Nonsense;
use crate::number_set::NumberSet;
use crate::outbox::{CommitteeHead, Durable};
use crate::table::{Lookup, Table};
use crate::time::Time;
use crate::violation::{Contradicts, Disowned, contradiction, is_same_value};

/// Questions for records that wait for the store. A primary asks for a key at a time of each client that waits.
pub(super) const ASKED_MAX: usize = 1 << 12;
/// Committees at most, and intervals of promises. A group has one committee for each primary and some that are not
/// settled yet; who names more makes them up. At the limit nothing new is promised.
pub(super) const COMMITTEES_MAX: usize = 1 << 10;
const INTERVALS_MAX: usize = 1 << 12;

/// Who asked for a record, as primary of which ballot, in which attempt.
pub(super) type Asker = (NodeId, TermBallot, u64);

/// One node's acceptor in all committees.
#[derive(Clone, Debug)]
pub struct Acceptor {
    pub(super) promises: IntervalMap<Option<TermBallot>>,
    /// The newest base accepted at each point.
    pub(super) bases: IntervalMap<Option<TermBallot>>,
    pub(super) committees: Committees,
    pub(super) grants: Grants,
    pub(super) replicas: Replicas,
    /// Before this a member that may have forgotten a grant promises nothing (`docs/design/durability.md`).
    pub(super) quiet_until: Time,
    pub(super) catch_up: CatchUp,
    pub(super) asked_bases: AskedBases,
    /// Keys whose record was asked for by a primary and is being loaded.
    pub(super) asked: BTreeSet<(Key, Asker)>,
    /// Ballots under which something was proposed twice.
    pub(super) disowned: Disowned<TermBallot>,
}

impl Acceptor {
    /// One that has promised nothing.
    pub fn new(quiet_until: Time) -> Acceptor {
        Acceptor {
            promises: IntervalMap::new(None),
            bases: IntervalMap::new(None),
            committees: Committees::default(),
            grants: Grants::default(),
            replicas: Replicas::default(),
            quiet_until,
            catch_up: CatchUp::default(),
            asked_bases: AskedBases::default(),
            asked: BTreeSet::new(),
            disowned: Disowned::default(),
        }
    }

    /// As it was stored.
    pub fn restored(
        quiet_until: Time,
        promises: Option<IntervalMap<Option<TermBallot>>>,
        heads: Vec<(CommitteeHead, NumberSet, Option<u64>)>,
        mut unsettled: BTreeMap<Term, Vec<Write>>,
    ) -> Acceptor {
        let mut acceptor = Acceptor::new(quiet_until);
        acceptor.promises = promises.unwrap_or(IntervalMap::new(None));
        for (head, received, chosen) in heads {
            let (ballot, range, based) = (head.ballot, head.range, head.base.is_some());
            let writes = unsettled.remove(&ballot.term).unwrap_or_default();
            let mut committee = Committee::restored(head, received, chosen, writes);
            let promised = acceptor.promises.pieces(range);
            if promised.iter().any(|(_, promised)| promised.is_some_and(|promised| promised > ballot)) {
                committee.supersede();
            }
            if based {
                acceptor.bases.update(range, |known| (*known).max(Some(ballot)));
            }
            acceptor.committees.insert(ballot, committee);
        }
        acceptor
    }

    /// Must it not promise anything yet, where leases are on?
    pub fn keeps_quiet(&self, now: Time) -> bool {
        now < self.quiet_until
    }

    /// The committee of a ballot.
    pub fn committee(&self, ballot: TermBallot) -> Option<&Committee> {
        self.committees.get(&ballot)
    }

    pub(super) fn committee_mut(&mut self, ballot: TermBallot) -> Option<&mut Committee> {
        self.committees.get_mut(&ballot)
    }

    /// The committee of a term in a piece of the ring. The term alone does not tell: groups that came of one number theirs
    /// alike, and may be one again.
    pub(super) fn committee_of(&self, term: Term, piece: KeyRange) -> Option<&Committee> {
        self.committees()
            .rev()
            .find(|committee| committee.ballot().term == term && committee.range().contains_range(piece))
    }

    /// All committees, oldest first.
    pub fn committees(&self) -> impl DoubleEndedIterator<Item = &Committee> {
        self.committees.values()
    }

    /// What is promised, for checks.
    pub fn promises(&self) -> &IntervalMap<Option<TermBallot>> {
        &self.promises
    }

    /// The newest base's ballot at a key's point.
    pub fn base_at(&self, point: overlay::Point) -> Option<TermBallot> {
        *self.bases.get(point)
    }

    /// The highest ballot promised somewhere in a range.
    pub(super) fn highest_promise(&self, range: KeyRange) -> Option<TermBallot> {
        self.promises.pieces(range).into_iter().filter_map(|(_, promised)| promised).max()
    }

    /// One message of a committee; the caller has checked the sender. Messages for primaries are not handled here.
    pub fn on_message(&mut self, ctx: &mut Context<'_>, table: &mut Table, from: NodeId, message: CommitteeMessage) {
        if message.is_of_primary() && self.disowned.has(&message.ballot()) {
            return ctx.dropped.note(Nonsense::Contradiction);
        }
        match message {
            CommitteeMessage::Prepare { ballot, range } => self.on_prepare(ctx, from, ballot, range),
            CommitteeMessage::Accept { ballot, chosen, writes } => {
                self.on_accept(ctx, table, from, ballot, chosen, writes);
            }
            CommitteeMessage::Base { ballot, base, chosen } => self.on_base(ctx, table, from, ballot, base, chosen),
            CommitteeMessage::Confirm { ballot, attempt, lease, chosen } => {
                self.on_confirm(ctx, table, from, ballot, attempt, lease, chosen);
            }
            CommitteeMessage::AskRecord { ballot, key, attempt } => {
                self.on_ask_record(ctx, table, (from, ballot, attempt), key);
            }
            CommitteeMessage::AskSince { ballot, piece, since, attempt } => {
                let answer = Since { ballot, piece, since, attempt, writes: Vec::new(), up_to: None, done: false };
                self.on_ask_since(ctx, from, answer);
            }
            CommitteeMessage::Since(since) => self.on_since(ctx, table, from, since),
            CommitteeMessage::AskCompare(ask) => self.on_ask_compare(ctx, table, from, *ask),
            CommitteeMessage::Compared(compared) => self.on_compared(ctx, table, from, *compared),
            CommitteeMessage::Point { ballot, switch, chosen, point } => {
                self.settle_up_to(ctx, table, ballot, chosen);
                self.on_point(ballot, Told { switch, chosen, point });
            }
            CommitteeMessage::Grant { ballot, switch, attempt, left_us, chosen, point } => {
                self.settle_up_to(ctx, table, ballot, chosen);
                let (left, told) = (Duration::from_micros(left_us), Told { switch, chosen, point });
                self.on_grant(ctx, ballot, attempt, left, told);
            }
            _ => {}
        }
    }

    /// Phase 1b for a whole sub-range.
    fn on_prepare(&mut self, ctx: &mut Context<'_>, from: NodeId, ballot: TermBallot, range: KeyRange) {
        if ctx.state.settings.leases && ctx.now.time < self.quiet_until {
            return; // It may have granted a lease in its last life (hazard 16).
        }
        if let Err(why) = self.admit(ctx, ballot, range) {
            return ctx.dropped.note(why);
        }
        if let Some(promised) = self.highest_promise(range).filter(|promised| *promised > ballot) {
            ctx.out.send(&[from], refused(ballot, promised));
            return;
        }
        self.promise(ctx, ballot, range);
        let leases = self.grants.left(ballot, range, ctx.now.time);
        let delegated = self.delegated(ctx, ballot, range);
        let every = ctx.config.defects.has(Defect::VoidComesBack);
        let committees = self.reports(range, every);
        let mut parts: Vec<Vec<Write>> = alloc::vec![Vec::new()];
        let mut bytes = 0;
        for write in self.open_writes(range, every) {
            if bytes > ctx.config.message_bytes_max {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += write.record.bytes() + write.key.encoded().len();
            parts.last_mut().expect("never empty").push(write.clone());
        }
        let count = parts.len() as u32;
        let total = parts.iter().map(|part| part.len() as u64).sum();
        for (part, unsettled) in parts.into_iter().enumerate() {
            let first = part == 0;
            let message = CommitteeMessage::Promise {
                ballot,
                part: part as u32,
                parts: count,
                total,
                committees: if first { committees.clone() } else { Vec::new() },
                unsettled,
                leases: if first { leases.clone() } else { Vec::new() },
                delegated: if first { delegated.clone() } else { Vec::new() },
                doubt: ctx.doubt,
            };
            ctx.out.send_after(&[from], Message::Committee(message));
        }
    }

    /// Is this the sub-range of that ballot, as far as this node knows, and is there room for its committee? A term has
    /// one sub-range and one primary.
    pub(super) fn admit(&mut self, ctx: &mut Context<'_>, ballot: TermBallot, range: KeyRange) -> Result<(), Nonsense> {
        if let Some(known) = self.committees.get(&ballot) {
            return if known.range() == range { Ok(()) } else { Err(Nonsense::Misplaced) };
        }
        let mut parts = ctx.state.parts();
        let fits = match parts.find(|(_, known)| known.term == ballot.term) {
            // Nobody made it up: there is always room.
            Some((part, known)) if part == range && known.node == ballot.node => return Ok(()),
            Some(_) => false,
            None => ctx.state.range.contains_range(range), // It may be ahead of this node.
        };
        if !fits {
            return Err(Nonsense::Misplaced);
        }
        if !self.has_room() {
            self.drop_closed(ctx);
        }
        if self.has_room() { Ok(()) } else { Err(Nonsense::NoRoom) }
    }

    fn has_room(&self) -> bool {
        self.committees.len() < COMMITTEES_MAX && self.promises.len() < INTERVALS_MAX
    }

    /// Raises the promise of a range, which holds nothing higher.
    pub(super) fn promise(&mut self, ctx: &mut Context<'_>, ballot: TermBallot, range: KeyRange) {
        let known = self.promises.pieces(range).iter().all(|(_, promised)| *promised == Some(ballot));
        if !known {
            self.promises.set(range, Some(ballot));
            ctx.out.persist(Durable::Promises(self.promises.clone()));
            for (_, committee) in self.committees.range_mut(..ballot) {
                if committee.range().overlaps(range) {
                    committee.supersede();
                }
            }
        }
        let begins = !self.committees.contains_key(&ballot);
        self.committees.entry(ballot).or_insert_with(|| {
            let committee = Committee::new(ballot, range);
            committee.persist_head(ctx.out);
            committee
        });
        if begins {
            self.drop_closed(ctx); // Takeovers that come to nothing leave some behind.
        }
    }

    /// Unsettled writes that the newest base at their key does not settle; or `every` one.
    fn open_writes(&self, range: KeyRange, every: bool) -> impl Iterator<Item = &Write> {
        let base_at = |write: &Write| self.bases.get(write.key.point()).map(|base| base.term);
        let writes = self.committees.values().flat_map(move |committee| committee.unsettled(range));
        writes.filter(move |write| every || Some(write.record.number.term) >= base_at(write))
    }

    /// What a new primary of this range must know: every newest base, and whoever has unsettled writes.
    fn reports(&self, range: KeyRange, every: bool) -> Vec<CommitteeReport> {
        let newest: Vec<TermBallot> = self.bases.pieces(range).into_iter().filter_map(|(_, ballot)| ballot).collect();
        let open: BTreeSet<Term> = self.open_writes(range, every).map(|write| write.record.number.term).collect();
        let matters =
            |committee: &&Committee| newest.contains(&committee.ballot()) || open.contains(&committee.ballot().term);
        let report = |committee: &Committee| CommitteeReport {
            ballot: committee.ballot(),
            base: committee.base().cloned(),
            chosen: committee.chosen(),
        };
        self.committees.values().filter(matters).map(report).collect()
    }

    /// Returns the mark to heed, where a heartbeat says that everything up to `mark` is chosen under this ballot.
    pub(crate) fn heed(&mut self, ballot: TermBallot, mark: u64, patience: Duration, now: Time) -> Option<u64> {
        match self.committees.get_mut(&ballot) {
            Some(committee) => committee.heed(mark, patience, now),
            None => Some(mark), // It asks for the base.
        }
    }

    /// Phase 2b. The promise is looked at first, for the whole sub-range at once (hazard 7).
    fn on_accept(
        &mut self,
        ctx: &mut Context<'_>,
        table: &mut Table,
        from: NodeId,
        ballot: TermBallot,
        chosen: Option<u64>,
        writes: Vec<Write>,
    ) {
        let Some(committee) = self.committees.get_mut(&ballot) else {
            self.asked_bases.ask(ctx, from, ballot);
            return;
        };
        if committee.is_superseded() && !ctx.config.defects.has(Defect::PromiseIgnored) {
            if !writes.is_empty() {
                let range = committee.range();
                let promised = self.highest_promise(range).expect("superseded by somebody");
                ctx.out.send(&[from], refused(ballot, promised));
            }
            return;
        }
        if let Some((n, of)) = writes.iter().find_map(|w| Some((w.record.number.n, committee.contradicted(w)?))) {
            self.disowned.add(ballot);
            return contradiction(ctx, of, from, format_args!("gives number {n} under {ballot:?} to another write"));
        }
        let mut accepted = NumberSet::default();
        // Where something of a term is chosen, its base was before.
        let lacks_base = committee.base().is_none() && chosen.is_some();
        for write in writes {
            let n = write.record.number.n;
            if !committee.range().contains(write.key.point()) {
                ctx.dropped.note(Nonsense::Misplaced);
                continue;
            }
            if lacks_base {
                break;
            }
            if !committee.has_room_for(n) {
                ctx.dropped.note(Nonsense::NoRoom);
                continue;
            }
            if committee.accept(write, ctx.out) {
                accepted.insert(n);
            }
        }
        let received = committee.received().mark();
        if lacks_base {
            self.asked_bases.ask(ctx, from, ballot);
        }
        if let Some(mark) = chosen {
            self.settle_up_to(ctx, table, ballot, mark);
        }
        let mut numbers = accepted.ranges_above();
        if accepted.mark() > 0 {
            numbers.insert(0, (1, accepted.mark()));
        }
        if ctx.state.settings.coarse {
            // What came ahead of a gap is acknowledged when that is closed, or when it comes again after that.
            let first = numbers.first().map(|(first, _)| *first).filter(|first| *first <= received);
            numbers = first.map(|first| (first, received)).into_iter().collect();
        }
        if !numbers.is_empty() {
            let message = CommitteeMessage::Accepted { ballot, numbers };
            ctx.out.send_after(&[from], Message::Committee(message));
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn on_confirm(
        &mut self,
        ctx: &mut Context<'_>,
        table: &mut Table,
        from: NodeId,
        ballot: TermBallot,
        attempt: u64,
        lease: bool,
        chosen: Option<u64>,
    ) {
        let Some(committee) = self.committees.get_mut(&ballot) else {
            self.asked_bases.ask(ctx, from, ballot);
            return;
        };
        if committee.is_superseded() {
            let range = committee.range();
            let promised = self.highest_promise(range).expect("superseded by somebody");
            ctx.out.send(&[from], refused(ballot, promised));
            return;
        }
        if let Some(mark) = chosen {
            if committee.base().is_none() {
                self.asked_bases.ask(ctx, from, ballot);
            }
            self.settle_up_to(ctx, table, ballot, mark);
        }
        if lease && from == ballot.node {
            let range = self.committees[&ballot].range();
            self.grants.grant(ballot, range, &ctx.state.settings, ctx.now.time);
            self.note_confirmed(ballot, attempt, ctx.now.time);
        }
        ctx.out.send(&[from], Message::Committee(CommitteeMessage::Confirmed { ballot, attempt }));
    }

    /// A record that is known to be chosen came another way than by a write's settling. False: it has to be loaded first,
    /// `urgent` if an operation waits for that.
    pub(super) fn install(
        &mut self,
        ctx: &mut Context<'_>,
        table: &mut Table,
        from: NodeId,
        write: &Write,
        urgent: bool,
    ) -> bool {
        match table.get(&write.key, urgent, ctx.out) {
            Lookup::Loading => return false,
            Lookup::Known(Some(known)) if known.number >= write.record.number => {
                if known.number == write.record.number && !is_same_value(&known, &write.record) {
                    let (of, key, number) = (Contradicts::Chosen, &write.key, known.number);
                    contradiction(ctx, of, from, format_args!("holds another record of {key:?} at {number:?}"));
                }
                return true;
            }
            Lookup::Known(None) if self.is_gone(ctx, write) => return true,
            Lookup::Known(_) => {}
        }
        for committee in self.committees.values_mut() {
            committee.overtake(write, ctx.out);
        }
        table.put_stored(&write.key, write.record.clone());
        ctx.out.persist(Durable::Record(write.clone()));
        true
    }

    /// Is it a record of a key that this member held, and let go of? An older state of it would bring it back.
    fn is_gone(&self, ctx: &Context<'_>, write: &Write) -> bool {
        let held = ctx.state.held_since_purge(ctx.me, write.key.point());
        held.is_some_and(|held| write.record.number <= held) && !ctx.config.defects.has(Defect::PurgeEarly)
    }

    /// Before a batch goes to the store: what moved, and no more recent writes than there is room for.
    pub fn flush(&mut self, ctx: &mut Context<'_>) {
        let Some(committees) = self.committees.take_unflushed() else { return };
        for committee in committees.values_mut() {
            committee.flush(ctx.out);
        }
        let total: usize = committees.values().map(Committee::window_bytes).sum();
        let mut excess = total.saturating_sub(ctx.config.window_bytes_max);
        for committee in committees.values_mut() {
            let before = committee.window_bytes();
            committee.trim(before.saturating_sub(excess));
            excess = excess.saturating_sub(before - committee.window_bytes());
        }
    }

    /// The time before which nothing is promised, where leases are on.
    pub fn quiet_after(start: Time, settings: &crate::state::Settings) -> Time {
        start + granters_length(settings)
    }
}

pub(super) fn refused(ballot: TermBallot, promised: TermBallot) -> Message {
    Message::Committee(CommitteeMessage::Refused { ballot, promised })
}
