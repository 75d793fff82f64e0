//! The acceptor's side of all committees of a group: promises, accepts, bases.
//!
//! # Invariants
//! - The promise at a point never goes down, and the acceptor accepts nothing below the promise there.
//! - Unsettled writes of terms older than the newest base are reported to no node: that base has those that matter.

pub(crate) mod bases;
pub(crate) mod chain;
pub(crate) mod committees;
mod inherit;
pub(crate) mod leases;
mod numbered;
pub(crate) mod standing;
pub(crate) mod window;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{IntervalMap, Key, KeyRange, NodeId};

use crate::ballot::{Term, TermBallot};
use crate::config::Defect;
use crate::context::Context;
use crate::contradiction::{Contradicts, Disowned, contradiction, is_same_value};
use crate::data::acceptor::committees::Committees;
use crate::data::acceptor::leases::{Grants, granters_length};
use crate::data::acceptor::standing::AskedBases;
use crate::data::acceptor::window::Committee;
use crate::data::catch_up::CatchUp;
use crate::data::table::{Lookup, Table};
use crate::harmonia::replica::{Replicas, Told};
use crate::message::{CommitteeMessage, CommitteeReport, Message, Since, Write};
use crate::number_set::NumberSet;
use crate::outbox::{CommitteeHead, Durable};
use crate::validate::Violation;
use overlay::time::Time;

/// Upper limit of questions for records that wait for the store. A primary asks for one key at a time for each waiting client.
pub(crate) const ASKED_MAX: usize = 1 << 12;
/// Upper limit of committees. A group has one committee for each primary, and some that are not settled yet; a peer that names more invents
/// them. At this limit, and at that of intervals of promises, the acceptor promises nothing new, except to the primary of a part that the
/// log has chosen.
pub(crate) const COMMITTEES_MAX: usize = 1 << 10;
const INTERVALS_MAX: usize = 1 << 12;

/// Primary that asked for a record, its ballot, and its attempt.
pub(crate) type Asker = (NodeId, TermBallot, u64);

/// Acceptor of one node in all committees.
#[derive(Clone, Debug)]
pub struct Acceptor {
    pub(crate) promises: IntervalMap<Option<TermBallot>>,
    /// Ballot of the newest base accepted at each point.
    pub(crate) bases: IntervalMap<Option<TermBallot>>,
    pub(crate) committees: Committees,
    pub(crate) grants: Grants,
    pub(crate) replicas: Replicas,
    /// A member that may have forgotten a grant promises nothing before this time (`docs/design/durability.md`).
    pub(crate) quiet_until: Time,
    pub(crate) catch_up: CatchUp,
    pub(crate) asked_bases: AskedBases,
    /// Keys with a record that a primary asked for and that is being loaded.
    pub(crate) asked: BTreeSet<(Key, Asker)>,
    /// Ballots under which there were two proposals in one place: two writes with one number, or two bases.
    pub(crate) disowned: Disowned<TermBallot>,
}

impl Acceptor {
    /// Returns an acceptor that has promised nothing.
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

    /// Returns an acceptor as it was stored.
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

    /// Returns whether the acceptor must not promise anything yet, where leases are on.
    pub fn keeps_quiet(&self, now: Time) -> bool {
        now < self.quiet_until
    }

    /// Returns the committee of a ballot.
    pub fn committee(&self, ballot: TermBallot) -> Option<&Committee> {
        self.committees.get(&ballot)
    }

    pub(crate) fn committee_mut(&mut self, ballot: TermBallot) -> Option<&mut Committee> {
        self.committees.get_mut(&ballot)
    }

    /// Returns the committee of a term in a piece of the ring. The term alone is ambiguous: groups that came of one group number their
    /// terms alike, and may become one group again.
    pub(crate) fn committee_of(&self, term: Term, piece: KeyRange) -> Option<&Committee> {
        self.committees()
            .rev()
            .find(|committee| committee.ballot().term == term && committee.range().contains_range(piece))
    }

    /// Returns all committees, oldest first.
    pub fn committees(&self) -> impl DoubleEndedIterator<Item = &Committee> {
        self.committees.values()
    }

    /// Returns the promises, for checks.
    pub fn promises(&self) -> &IntervalMap<Option<TermBallot>> {
        &self.promises
    }

    /// Returns the ballot of the newest base at a key's point.
    pub fn base_at(&self, point: overlay::Point) -> Option<TermBallot> {
        *self.bases.get(point)
    }

    /// Returns the highest ballot promised somewhere in a range.
    pub(crate) fn highest_promise(&self, range: KeyRange) -> Option<TermBallot> {
        self.promises.pieces(range).into_iter().filter_map(|(_, promised)| promised).max()
    }

    /// Handles one message of a committee; the caller has checked the sender. Messages for primaries are not handled here.
    pub fn on_message(&mut self, ctx: &mut Context<'_>, table: &mut Table, from: NodeId, message: CommitteeMessage) {
        if message.is_of_primary() && self.disowned.has(&message.ballot()) {
            return ctx.dropped.note(Violation::Contradiction);
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
                self.replicas.on_point(ballot, Told { switch, chosen, point });
            }
            CommitteeMessage::Grant { ballot, switch, attempt, left_us, chosen, point } => {
                self.settle_up_to(ctx, table, ballot, chosen);
                let (left, told) = (Duration::from_micros(left_us), Told { switch, chosen, point });
                self.replicas.on_grant(ctx, ballot, attempt, left, told);
            }
            _ => {}
        }
    }

    /// Promises a whole sub-range to a primary (phase 1b).
    fn on_prepare(&mut self, ctx: &mut Context<'_>, from: NodeId, ballot: TermBallot, range: KeyRange) {
        if ctx.state.settings.leases && ctx.now.time < self.quiet_until {
            return; // The acceptor may have granted a lease before its restart (hazard 16).
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
        let delegated = self.replicas.delegated(ctx, ballot, range);
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

    /// Checks that this is the sub-range of that ballot, as far as this node knows, and that there is room for its committee. A term has
    /// one sub-range and one primary.
    ///
    /// # Errors
    /// [`Violation::Misplaced`] for another sub-range or primary, [`Violation::NoRoom`] for a committee too many. No committee is added.
    pub(crate) fn admit(
        &mut self,
        ctx: &mut Context<'_>,
        ballot: TermBallot,
        range: KeyRange,
    ) -> Result<(), Violation> {
        if let Some(known) = self.committees.get(&ballot) {
            return if known.range() == range { Ok(()) } else { Err(Violation::Misplaced) };
        }
        let mut parts = ctx.state.parts();
        let fits = match parts.find(|(_, known)| known.term == ballot.term) {
            // The log has chosen this part, so there is always room.
            Some((part, known)) if part == range && known.node == ballot.node => return Ok(()),
            Some(_) => false,
            None => ctx.state.range.contains_range(range), // The sender may be ahead of this node.
        };
        if !fits {
            return Err(Violation::Misplaced);
        }
        if !self.has_room() {
            self.drop_closed(ctx);
        }
        if self.has_room() { Ok(()) } else { Err(Violation::NoRoom) }
    }

    fn has_room(&self) -> bool {
        self.committees.len() < COMMITTEES_MAX && self.promises.len() < INTERVALS_MAX
    }

    /// Raises the promise of a range in which no promise is higher.
    pub(crate) fn promise(&mut self, ctx: &mut Context<'_>, ballot: TermBallot, range: KeyRange) {
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
            self.drop_closed(ctx); // Takeovers that never finish leave some behind.
        }
    }

    /// Returns unsettled writes that the newest base at their key does not settle; or all of them, if `every` is set.
    fn open_writes(&self, range: KeyRange, every: bool) -> impl Iterator<Item = &Write> {
        let base_at = |write: &Write| self.bases.get(write.key.point()).map(|base| base.term);
        let writes = self.committees.values().flat_map(move |committee| committee.unsettled(range));
        writes.filter(move |write| every || Some(write.record.number.term) >= base_at(write))
    }

    /// Returns the reports that a new primary of this range must have: each newest base, and each committee with unsettled writes.
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

    /// Returns the mark to settle up to, where a heartbeat says that everything up to `mark` is chosen under this ballot.
    pub(crate) fn heed(&mut self, ballot: TermBallot, mark: u64, patience: Duration, now: Time) -> Option<u64> {
        match self.committees.get_mut(&ballot) {
            Some(committee) => committee.heed(mark, patience, now),
            None => Some(mark), // Without a committee, the member asks for the base.
        }
    }

    /// Accepts writes (phase 2b). Checks the promise first, for the whole sub-range at once (hazard 7).
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
        // Where a write of a term is chosen, the term's base was chosen before.
        let lacks_base = committee.base().is_none() && chosen.is_some();
        for write in writes {
            let n = write.record.number.n;
            if !committee.range().contains(write.key.point()) {
                ctx.dropped.note(Violation::Misplaced);
                continue;
            }
            if lacks_base {
                break;
            }
            if !committee.has_room_for(n) {
                ctx.dropped.note(Violation::NoRoom);
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
            // A write that came ahead of a gap is acknowledged when the gap is closed, or when the write comes again after that.
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
            self.replicas.note_confirmed(ballot, attempt, ctx.now.time);
        }
        ctx.out.send(&[from], Message::Committee(CommitteeMessage::Confirmed { ballot, attempt }));
    }

    /// Installs a record that is known to be chosen and did not come as a settled write. Returns false where the key's own record has to be
    /// loaded first; the load is `urgent` if an operation waits for it.
    pub(crate) fn install(
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

    /// Returns whether this is a record of a key that this member held and dropped by a purge. An older state of the key would bring it
    /// back.
    fn is_gone(&self, ctx: &Context<'_>, write: &Write) -> bool {
        let held = ctx.state.held_since_purge(ctx.me, write.key.point());
        held.is_some_and(|held| write.record.number <= held) && !ctx.config.defects.has(Defect::PurgeEarly)
    }

    /// Persists changed progress before a batch goes to the store, and drops recent writes beyond the limit of their size.
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

    /// Returns the time before which the acceptor promises nothing, where leases are on.
    pub fn quiet_after(start: Time, settings: &crate::control::state::Settings) -> Time {
        start + granters_length(settings)
    }
}

pub(crate) fn refused(ballot: TermBallot, promised: TermBallot) -> Message {
    Message::Committee(CommitteeMessage::Refused { ballot, promised })
}
