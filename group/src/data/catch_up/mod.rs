//! Catch-up of a member that lacks records: from the window of recent writes, or by a comparison of clocks.
//!
//! The member pulls one page at a time, and asks another source for a page that was lost. Each copied record is chosen, and replaces only
//! older records. The source need not be complete: a primary that finds no complete member compares with a quorum of every configuration
//! that may be the only holder of a record.
//!
//! A base has a piece for each history, and after some divisions there are dozens. The member asks for pieces in several lanes at the same
//! time, each with one page in flight.

pub(crate) mod copying;
pub(crate) mod job;
pub(crate) mod source;
pub mod throttle;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use overlay::{Epoch, Key, KeyRange, NodeId, Point};

use crate::ballot::{LogSlot, Number, TermBallot};
use crate::config::Defect;
use crate::context::Context;
use crate::control::recovery::doubt::{decides, meets_majorities};
use crate::control::state::EpochConfig;
use crate::data::acceptor::Acceptor;
use crate::data::acceptor::window::Committee;
use crate::data::catch_up::copying::tell_copy;
use crate::data::catch_up::job::{CatchUpStage, CatchUpStatus, Job, Lane, Then};
use crate::data::catch_up::source::SourceQuery;
use crate::data::catch_up::throttle::Throttle;
use crate::data::table::Table;
use crate::message::{AskCompare, AskCopy, Base, CommitteeMessage, Compared, Message, Since, Write};
use crate::outbox::{Durable, GroupOutput, ScanToken};
use crate::record::Record;
use crate::validate::Violation;
use overlay::time::Time;

/// Upper limit of keys listed in one page of a scan.
pub(crate) const PAGE_KEYS_MAX: usize = 2000;

/// Upper limit of records that a source looks at for one page of an answer.
pub(crate) const LOOKED_MAX: usize = 4 * PAGE_KEYS_MAX;
/// Cost of a record that is only compared, in bytes that are copied: it takes its source and this node as much time.
const LOOKED_COST: u64 = 64;
/// Rate at which compared records count at least, in bytes a second.
const LOOKED_RATE: u64 = 8 << 20;

/// Upper limit of the pause between pages while the store has much left to write: catch-up ends all the same.
const STORE_PATIENCE: Duration = Duration::from_millis(500);

/// Upper limit of the time that a job waits for a page before it asks another source.
const PAGE_PATIENCE_MAX: Duration = Duration::from_secs(10);

/// Upper limit of pages of the store that are read at one time: each keeps a question in memory.
pub(crate) const SCANS_MAX: usize = 64;

/// Upper limit of pieces of one sub-range that are asked for at the same time.
const LANES_MAX: usize = 8;

/// Number of sources with windows that do not reach back far enough, after which clocks are compared. Each further question takes a round
/// trip, and a comparison of one piece takes few.
const SHORT_MAX: usize = 2;

/// Handicap of a source that was compared with and lacked records: it is asked again once each other source was left so much more often.
/// The source may hold everything by now, and the other sources may be gone. But a comparison begins from the start with each source, and a
/// single lost page must not cause that.
const COMPARED_BEFORE: u32 = 2;
/// The same for a member that is silent to this node: dead former members are asked for as long as nothing is established.
const SILENT: u32 = 3;

/// Use of a page of the store.
#[derive(Clone, Debug)]
pub(crate) enum ScanUse {
    /// This node's own clocks, for its question.
    Mine(Lane),
    /// Answer to another member's comparison.
    Theirs { from: NodeId, asked: Box<SourceQuery> },
    /// Copy for a neighbour's member, as of the first slot and with purges up to the second.
    Copy { from: NodeId, ask: AskCopy, as_of: (LogSlot, LogSlot) },
}

/// All catch-up of one member.
#[derive(Clone, Debug, Default)]
pub struct CatchUp {
    jobs: BTreeMap<Lane, Job>,
    pub(crate) scans: BTreeMap<ScanToken, ScanUse>,
    /// Token of the last scan; 0 before the first.
    last_scan: ScanToken,
    throttle: Throttle,
    /// Whether the store has much left to write: writes of clients would wait behind copied records.
    store_behind: bool,
    /// Members from which this node hears nothing.
    silent: BTreeSet<NodeId>,
    /// Number of turns of all jobs, so that not all of them go to the same source.
    turns: usize,
    /// Twice the time that pages have taken recently. A page that takes longer than the job's patience is asked for again, of another
    /// source, and dropped when it comes.
    patience: Duration,
}

impl CatchUp {
    /// Returns how long a job waits for its page: longer with each source that has been silent since the last page came.
    fn patience(&self, job: &Job, resend: Duration) -> Duration {
        (self.patience.max(resend) * (1 << job.silent.min(5))).min(PAGE_PATIENCE_MAX)
    }

    /// Notes that a job's page came, and how long it took.
    fn note_page(&mut self, lane: Lane, now: Time) {
        let Some(job) = self.jobs.get_mut(&lane) else { return };
        job.silent = 0;
        let twice = (2 * now.since(job.asked)).min(PAGE_PATIENCE_MAX);
        self.patience = twice.max(self.patience - self.patience.saturating_sub(twice) / 8);
    }

    /// Returns the lanes in which a committee's pieces are asked for.
    fn lanes(&self, ballot: TermBallot) -> impl Iterator<Item = (Lane, &Job)> {
        self.jobs.range((ballot, 0)..=(ballot, u8::MAX)).map(|(lane, job)| (*lane, job))
    }

    /// Returns the lane that an answer is for.
    fn lane_of(&self, ballot: TermBallot, attempt: u64) -> Option<Lane> {
        self.lanes(ballot).find(|(_, job)| job.attempt == attempt).map(|(lane, _)| lane)
    }
}

impl Acceptor {
    /// Begins jobs that are needed, and repeats questions that are due.
    pub fn drive_catch_up(&mut self, ctx: &mut Context<'_>, table: &mut Table) {
        let live = |committee: &&Committee| !committee.is_superseded() && committee.chosen().is_some();
        let needy: Vec<TermBallot> = self
            .committees()
            .filter(live)
            .filter(|c| !c.missing().is_empty() || c.received().mark() < c.chosen().unwrap_or(0))
            .map(Committee::ballot)
            .collect();
        self.catch_up.jobs.retain(|(ballot, _), _| needy.contains(ballot));
        // The job that has waited longest asks first: a job that begins again and again does not keep the rest from asking.
        let mut lanes: Vec<Lane> = self.catch_up.jobs.keys().copied().collect();
        lanes.sort_by_key(|lane| self.catch_up.jobs[lane].asked);
        for ballot in needy {
            if self.catch_up.lanes(ballot).next().is_none() {
                self.begin_jobs(ctx, table, ballot);
            }
        }
        for lane in lanes {
            match self.catch_up.jobs.get(&lane) {
                Some(job) if job.held_back => self.ask(ctx, table, lane),
                Some(job) if job.then.is_some() || job.waiting_for_scan => {}
                Some(job) if ctx.now.time.since(job.asked) < self.catch_up.patience(job, ctx.config.timing.resend) => {}
                Some(_) => {
                    self.catch_up.jobs.entry(lane).and_modify(|job| job.silent += 1);
                    self.turn(ctx, lane);
                    self.ask(ctx, table, lane);
                }
                None => {}
            }
        }
    }

    /// Returns the progress of catch-up, once for each sub-range.
    pub fn catch_up_status(&self) -> Vec<CatchUpStatus> {
        let range = |ballot| self.committee(ballot).map_or(KeyRange::FULL, Committee::range);
        let mut all: Vec<CatchUpStatus> = Vec::new();
        for ((ballot, _), job) in &self.catch_up.jobs {
            let status = job.status(*ballot, range(*ballot));
            match all.last_mut().filter(|last| last.ballot == *ballot) {
                Some(last) => last.add(status),
                None => all.push(status),
            }
        }
        all
    }

    /// Notes whether the store has much left to write: copying waits for it.
    pub fn set_store_behind(&mut self, store_behind: bool) {
        self.catch_up.store_behind = store_behind;
    }

    /// Returns whether any catch-up is in progress.
    pub fn catches_up(&self) -> bool {
        !self.catch_up.jobs.is_empty()
    }

    /// Replaces the set of silent members: each is asked once all other sources were asked several times.
    pub fn set_silent(&mut self, silent: BTreeSet<NodeId>) {
        self.catch_up.silent = silent;
    }

    /// Returns when [`Acceptor::drive_catch_up`] has to be called next.
    pub fn catch_up_due(&self, ctx: &Context<'_>) -> Time {
        let resend = ctx.config.timing.resend;
        let due = |job: &Job| match job {
            Job { held_back: true, .. } => self.catch_up.opens(ctx, job),
            Job { then: Some(_), .. } | Job { waiting_for_scan: true, .. } => ctx.now.time + resend,
            _ => job.asked + self.catch_up.patience(job, resend),
        };
        self.catch_up.jobs.values().map(due).min().unwrap_or(Time::NEVER)
    }

    fn begin_jobs(&mut self, ctx: &mut Context<'_>, table: &mut Table, ballot: TermBallot) {
        let committee = self.committee(ballot).expect("it needs something");
        let Some(base) = committee.base() else { return };
        let gap = committee.missing().is_empty();
        let pieces = if gap { alloc::vec![base.range] } else { committee.missing().to_vec() };
        let covers_all = pieces.len() == base.pieces.len();
        let pieces = if gap { pieces } else { self.joined(base, pieces) };
        let lanes = LANES_MAX.min(pieces.len());
        for lane in 0..lanes {
            let pieces = pieces.iter().skip(lane).step_by(lanes).copied().collect();
            let job = Job::new(ctx.rng.draw(), pieces, covers_all, gap, ballot.node);
            self.catch_up.jobs.insert((ballot, lane as u8), job);
        }
        (0..lanes as u8).for_each(|lane| self.begin_piece(ctx, table, (ballot, lane)));
    }

    /// Begins the current piece at the youngest term of its chain in which this node is complete, if there is one.
    fn begin_piece(&mut self, ctx: &mut Context<'_>, table: &mut Table, lane: Lane) {
        let ballot = lane.0;
        let job = &self.catch_up.jobs[&lane];
        let piece = *job.pieces.last().expect("a job has a piece");
        let committee = self.committee(ballot).expect("a job has a committee");
        let since = if job.gap {
            Some(Number { term: ballot.term, n: committee.received().mark() })
        } else {
            let base = committee.base().expect("a job has a base");
            self.held_of(base, piece)
        };
        let since = since.filter(|since| !is_before_purge(ctx, piece, *since));
        if since.is_none() && job.gap {
            return self.compare_all(ctx, table, ballot);
        }
        let stage = since.map_or(CatchUpStage::Compare(None), CatchUpStage::Window);
        let job = self.catch_up.jobs.get_mut(&lane).expect("just seen");
        job.stage = stage;
        job.too_short.clear();
        job.compared.clear();
        job.pass.forget();
        job.asks = asked_configs(ctx, piece);
        job.source = ballot.node;
        if ballot.node == ctx.me {
            self.turn(ctx, lane);
        }
        self.ask(ctx, table, lane);
    }

    /// Compares everything: no window makes up for a gap of numbers.
    fn compare_all(&mut self, ctx: &mut Context<'_>, table: &mut Table, ballot: TermBallot) {
        let committee = self.committee_mut(ballot).expect("a job has a committee");
        let range = committee.range();
        let note = alloc::format!("lacks writes of {ballot:?} that no window covers: compares all of {range:?}");
        ctx.out.push(GroupOutput::Note(note.into()));
        committee.unfill(ctx.out);
        self.catch_up.forget(ballot);
        self.begin_jobs(ctx, table, ballot);
    }

    /// Returns the youngest number of a piece's history up to which this node holds everything.
    fn held_of(&self, base: &Base, piece: KeyRange) -> Option<Number> {
        let (_, chain) = base.pieces.iter().find(|(range, _)| *range == piece)?;
        chain.iter().find_map(|(term, mark)| {
            let older = self.committee_of(*term, piece)?;
            let n = older.received().mark().min(*mark);
            older.lacks_nothing_before(piece).then_some(Number { term: *term, n })
        })
    }

    /// Joins neighbouring pieces of which nothing is held, so that a newcomer does not ask for each one alone.
    fn joined(&self, base: &Base, pieces: Vec<KeyRange>) -> Vec<KeyRange> {
        let mut joined: Vec<(KeyRange, bool)> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let fresh = self.held_of(base, piece).is_none();
            match joined.last_mut() {
                // Never across point zero: records are read in ring order from there.
                Some((before, true)) if fresh && before.end() == piece.start() && piece.start() != Point(0) => {
                    *before = KeyRange::new(before.start(), piece.end());
                }
                _ => joined.push((piece, fresh)),
            }
        }
        joined.into_iter().map(|(piece, _)| piece).collect()
    }

    /// Turns to another source: one of those that this job has left least often, and that are heard. A count of all jobs cannot tell which
    /// source is next: jobs that wait ask in step, so each may come to the same source every time, and that source may be gone.
    fn turn(&mut self, ctx: &mut Context<'_>, lane: Lane) {
        let job = self.catch_up.jobs.get_mut(&lane).expect("only of a job");
        *job.left.entry(job.source).or_default() += 1;
        let weight = |node: NodeId| {
            let compared = if job.compared.contains_key(&node) { COMPARED_BEFORE } else { 0 };
            let silent = if self.catch_up.silent.contains(&node) { SILENT } else { 0 };
            job.left.get(&node).copied().unwrap_or(0) + compared + silent
        };
        let Some(least) = job.sources(ctx, |_| true).into_iter().map(weight).min() else { return };
        let sources = job.sources(ctx, |node| weight(node) == least);
        self.catch_up.turns += 1;
        job.source = sources[self.catch_up.turns % sources.len()];
    }

    /// Handles a source with recent writes that do not reach back far enough. Another source may have kept more: a source that was away
    /// itself has kept none. Clocks are compared where several sources say so, or where one says it `again` while the rest is silent. For a
    /// gap of numbers all sources must say so: then everything is compared.
    fn window_too_short(&mut self, ctx: &mut Context<'_>, table: &mut Table, lane: Lane, again: bool) {
        let job = self.catch_up.jobs.get_mut(&lane).expect("only of a job");
        let others = job.sources(ctx, |node| !job.too_short.contains(&node));
        let other = others.into_iter().min_by_key(|node| self.catch_up.silent.contains(node));
        let enough = again || !job.gap && job.too_short.len() >= SHORT_MAX;
        if let Some(other) = other.filter(|_| !enough) {
            job.source = other;
            return self.ask(ctx, table, lane);
        }
        if job.gap {
            return self.compare_all(ctx, table, lane.0);
        }
        let (since, piece) = (&job.stage, job.pieces.last());
        let note = alloc::format!("no recent writes reach back to {since:?} in {piece:?}: compares all of it");
        ctx.out.push(GroupOutput::Note(note.into()));
        job.stage = CatchUpStage::Compare(None);
        self.ask(ctx, table, lane);
    }

    fn ask(&mut self, ctx: &mut Context<'_>, table: &mut Table, lane: Lane) {
        let Some(job) = self.catch_up.jobs.get(&lane) else { return };
        let held_back = self.catch_up.opens(ctx, job) > ctx.now.time;
        let job = self.catch_up.jobs.get_mut(&lane).expect("just seen");
        job.held_back = held_back;
        if held_back {
            return;
        }
        job.asked = ctx.now.time;
        let piece = *job.pieces.last().expect("a job has a piece");
        match &job.stage {
            CatchUpStage::Window(since) => {
                let ballot = lane.0;
                let message = CommitteeMessage::AskSince { ballot, piece, since: *since, attempt: job.attempt };
                // All earlier pages are durable then, so a slow disk is not overrun.
                ctx.out.send_after(&[job.source], Message::Committee(message));
            }
            CatchUpStage::Compare(after) => {
                if table.is_whole() {
                    let mut records =
                        table.scan(piece, after.as_ref()).map(|(key, record)| (key.clone(), record.number));
                    let held: Vec<_> = records.by_ref().take(PAGE_KEYS_MAX).collect();
                    let more = records.next().is_some();
                    drop(records);
                    self.send_compare(ctx, lane, held, more);
                } else {
                    job.waiting_for_scan = true;
                    let from = scan_from(after.as_ref(), piece);
                    let token = self.catch_up.begin_scan(ScanUse::Mine(lane));
                    ctx.out.push_behind(GroupOutput::Scan(token, from, page_bytes(ctx)));
                }
            }
        }
    }

    fn send_compare(&mut self, ctx: &mut Context<'_>, lane: Lane, mut held: Vec<(Key, Number)>, mut more: bool) {
        let Some(job) = self.catch_up.jobs.get_mut(&lane) else { return };
        let CatchUpStage::Compare(after) = &job.stage else { return };
        let fits = keys_that_fit(&held, ctx.config.message_bytes_max);
        more |= fits < held.len();
        held.truncate(fits);
        let until = if more { held.last().map(|(key, _)| key.clone()) } else { None };
        job.listed = held.iter().map(|(key, _)| key.clone()).collect();
        let piece = *job.pieces.last().expect("a job has a piece");
        let (after, attempt) = (after.clone(), job.attempt);
        let ask = AskCompare { ballot: lane.0, piece, after, held, until, attempt };
        let message = CommitteeMessage::AskCompare(ask.into());
        ctx.out.send_after(&[job.source], Message::Committee(message));
    }

    /// Handles a page of the store. Returns false if the page was not asked for here.
    pub fn on_scanned(
        &mut self,
        ctx: &mut Context<'_>,
        token: ScanToken,
        records: Vec<(Key, Arc<Record>)>,
        done: bool,
    ) -> bool {
        let Some(scan) = self.catch_up.scans.remove(&token) else { return false };
        match scan {
            ScanUse::Mine(lane) => {
                let Some(job) = self.catch_up.jobs.get_mut(&lane) else { return true };
                job.waiting_for_scan = false;
                job.asked = ctx.now.time;
                let CatchUpStage::Compare(after) = &job.stage else { return true };
                let piece = *job.pieces.last().expect("a job has a piece");
                let after = after.clone();
                let (held, more) = within(records, piece, after.as_ref(), done);
                let held = held.into_iter().map(|(key, record)| (key, record.number)).collect();
                self.send_compare(ctx, lane, held, more);
            }
            ScanUse::Theirs { from, asked } => {
                let (records, more) = within(records, asked.ask.piece, asked.ask.after.as_ref(), done);
                self.answer_compare(ctx, from, &asked, records.iter().map(|(key, record)| (key, record)), more);
            }
            ScanUse::Copy { from, ask, as_of } => {
                let (records, more) = within(records, ask.piece, ask.after.as_ref(), done);
                let records = records.iter().map(|(key, record)| (key, record));
                tell_copy(ctx, from, ask, as_of, records, more);
            }
        }
        true
    }

    pub(crate) fn on_since(&mut self, ctx: &mut Context<'_>, table: &mut Table, from: NodeId, answer: Since) {
        let Since { ballot, piece, since, attempt, writes, up_to, done } = answer;
        self.install_late(ctx, table, &writes);
        let Some(lane) = self.catch_up.lane_of(ballot, attempt) else { return };
        let job = self.catch_up.jobs.get_mut(&lane).expect("just found");
        if job.then.is_some()
            || job.source != from
            || job.pieces.last() != Some(&piece)
            || job.stage != CatchUpStage::Window(since)
        {
            return;
        }
        self.catch_up.note_page(lane, ctx.now.time);
        if self.has_enough(ballot) {
            return ctx.dropped.note(Violation::NoRoom);
        }
        let job = self.catch_up.jobs.get_mut(&lane).expect("just seen");
        let Some(up_to) = up_to else {
            let again = !job.too_short.insert(from);
            return self.window_too_short(ctx, table, lane, again);
        };
        // Later writes came by themselves, and continue to come: a job that waited for their end might wait for ever.
        let done = done || up_to.term == ballot.term && self.has_all_behind(ballot, up_to.n);
        let job = self.catch_up.jobs.get_mut(&lane).expect("just seen");
        if done && up_to.term == ballot.term {
            job.reached(up_to.n);
        }
        // Other sources may reach back to here.
        job.too_short.clear();
        let then = if done { Then::PieceDone } else { Then::Continue(CatchUpStage::Window(up_to)) };
        let bytes = job.came(writes, then);
        self.catch_up.take_page(ctx, bytes);
        self.install_deferred(ctx, table);
    }

    pub(crate) fn on_compared(&mut self, ctx: &mut Context<'_>, table: &mut Table, from: NodeId, answer: Compared) {
        self.install_late(ctx, table, &answer.writes);
        let (ballot, mark, complete) = (answer.ballot, answer.mark, answer.complete);
        let Some(lane) = self.catch_up.lane_of(ballot, answer.attempt) else { return };
        let job = self.catch_up.jobs.get_mut(&lane).expect("just found");
        if job.then.is_some()
            || job.source != from
            || job.pieces.last() != Some(&answer.piece)
            || job.stage != CatchUpStage::Compare(answer.after.clone())
        {
            return;
        }
        self.catch_up.note_page(lane, ctx.now.time);
        if self.has_enough(ballot) {
            return ctx.dropped.note(Violation::NoRoom);
        }
        let job = self.catch_up.jobs.get_mut(&lane).expect("just seen");
        let asks = asked_configs(ctx, answer.piece);
        if job.asks != asks && !(complete && job.all_complete) {
            // A former source may have held records that earlier sources lacked. It is asked no more, and the sources that are asked now
            // have those records.
            (job.asks, job.attempt, job.stage) = (asks, ctx.rng.draw(), CatchUpStage::Compare(None));
            job.compared.clear();
            job.pass.restart();
            return self.ask(ctx, table, lane);
        }
        if answer.after.is_none() {
            job.answered.clear();
            job.all_complete = true;
            job.pass.restart();
        }
        job.pass.page(&answer, job.listed_up_to(answer.up_to.as_ref()));
        job.answered.insert(from);
        if !job.compared.contains_key(&from) {
            job.left.remove(&from); // The source makes progress: a lost page is no reason to begin with another source.
        }
        job.all_complete &= complete;
        job.reached(if complete { mark } else { 0 });
        // Parts compared with different sources make a whole only where each source was complete.
        let mixed = job.answered.len() > 1 && !job.all_complete;
        let (then, turns) = match answer.up_to.clone() {
            _ if mixed => (Then::Continue(CatchUpStage::Compare(None)), false),
            Some(key) => (Then::Continue(CatchUpStage::Compare(Some(key))), false),
            None => job.end_pass(ctx, from, &answer),
        };
        let bytes = job.came(answer.writes, then);
        let looked = answer.looked.min(LOOKED_MAX as u64) * LOOKED_COST;
        self.catch_up.take_page(ctx, bytes);
        // The cost of comparing is no bandwidth: it counts at no lower rate than `LOOKED_RATE`, even where the configured bandwidth is
        // small.
        self.catch_up.throttle.take(ctx.now.time, looked, ctx.config.transfer_bytes_per_s.max(LOOKED_RATE));
        if turns {
            self.turn(ctx, lane);
        }
        self.install_deferred(ctx, table);
    }

    /// Installs late writes as if they were newer than the records that are held.
    fn install_late(&mut self, ctx: &mut Context<'_>, table: &mut Table, writes: &[Write]) {
        if ctx.config.defects.has(Defect::LateChunk) {
            for write in writes {
                table.purge(&write.key, &write.record);
                table.put(&write.key, write.record.clone());
                ctx.out.persist(Durable::Record(write.clone()));
            }
        }
    }

    /// Installs the records of the last pages, and continues where no record waits any more.
    pub(crate) fn install_deferred(&mut self, ctx: &mut Context<'_>, table: &mut Table) {
        let lanes: Vec<Lane> =
            self.catch_up.jobs.iter().filter(|(_, job)| job.then.is_some()).map(|(lane, _)| *lane).collect();
        for lane in lanes {
            // A lane that ended, or began anew, when an earlier lane was done.
            let Some(job) = self.catch_up.jobs.get_mut(&lane) else { continue };
            let (writes, source) = (core::mem::take(&mut job.deferred), job.source);
            let mut waiting = Vec::new();
            for write in writes {
                if !self.install(ctx, table, source, &write, false) {
                    waiting.push(write);
                }
            }
            let job = self.catch_up.jobs.get_mut(&lane).expect("just seen");
            job.deferred = waiting;
            if !job.deferred.is_empty() {
                continue;
            }
            match job.then.take() {
                Some(Then::Continue(stage)) => {
                    job.stage = stage;
                    self.ask(ctx, table, lane);
                }
                Some(Then::PieceDone) => self.piece_done(ctx, table, lane),
                None => {}
            }
        }
    }

    /// Returns whether all writes of the term after this number have come that are known to be chosen.
    fn has_all_behind(&self, ballot: TermBallot, n: u64) -> bool {
        let committee = self.committee(ballot).expect("a job has a committee");
        let (received, chosen) = (committee.received(), committee.chosen().unwrap_or(0));
        let covers = |(first, last): (u64, u64)| first <= n.saturating_add(1) && last >= chosen;
        n <= chosen && (covers((1, received.mark())) || received.ranges_above().into_iter().any(covers))
    }

    /// Returns whether no more is taken until the primary's next mark. Pages are then asked for again.
    fn has_enough(&self, ballot: TermBallot) -> bool {
        self.committee(ballot).is_some_and(Committee::is_ahead_enough)
    }

    fn piece_done(&mut self, ctx: &mut Context<'_>, table: &mut Table, lane: Lane) {
        let ballot = lane.0;
        let job = self.catch_up.jobs.get_mut(&lane).expect("only of a job");
        let piece = job.pieces.pop().expect("a job has a piece");
        let (last, gap, covers_all, mark) = (job.pieces.is_empty(), job.gap, job.covers_all, job.mark);
        let committee = self.committee_mut(ballot).expect("a job has a committee");
        if !gap {
            committee.fill(piece, ctx.out);
        }
        if !last {
            return self.begin_piece(ctx, table, lane);
        }
        if self.catch_up.end_lane(lane) {
            return;
        }
        let committee = self.committee_mut(ballot).expect("a job has a committee");
        if let Some(mark) = mark.filter(|_| gap || covers_all) {
            committee.make_up(1, mark);
        }
        let (held, chosen) = (committee.received().mark(), committee.chosen().unwrap_or(0));
        let job = self.catch_up.jobs.get_mut(&lane).expect("just seen");
        // The source has not heard yet how far the term's writes are chosen. If asked at once, it would say so as fast as it is asked. So
        // this counts as a lost page: another source is asked after the same pause.
        if gap && held < chosen && matches!(job.stage, CatchUpStage::Window(since) if held <= since.n) {
            job.pieces.push(piece);
            job.mark = None;
            return;
        }
        self.catch_up.jobs.remove(&lane);
        self.drive_catch_up(ctx, table);
    }
}

impl CatchUp {
    /// Returns when the next page may be asked for. Pages in flight have their share of the bandwidth, too: otherwise all committees of a
    /// group that has just begun would ask at once.
    fn opens(&self, ctx: &Context<'_>, job: &Job) -> Time {
        let now = ctx.now.time;
        let store = if self.store_behind { job.asked + STORE_PATIENCE } else { now };
        let mut throttle = self.throttle;
        let asked = self.jobs.values().filter(|other| other.attempt != job.attempt && other.awaits_page());
        let (page_max, per_second) = (ctx.config.message_bytes_max as u64, ctx.config.transfer_bytes_per_s);
        asked.for_each(|other| throttle.expect(other.asked, page_max, per_second));
        throttle.opens(now).max(store)
    }

    fn take_page(&mut self, ctx: &Context<'_>, bytes: u64) {
        let (page_max, per_second) = (ctx.config.message_bytes_max as u64, ctx.config.transfer_bytes_per_s);
        self.throttle.take_page(ctx.now.time, bytes, page_max, per_second);
    }

    /// Returns the state for a group that is born: it keeps only the knowledge about the store and the bandwidth.
    pub(crate) fn heir(&self) -> CatchUp {
        CatchUp { store_behind: self.store_behind, throttle: self.throttle, ..CatchUp::default() }
    }

    /// Drops the jobs of a committee that was dropped.
    pub(crate) fn forget(&mut self, ballot: TermBallot) {
        self.jobs.retain(|(other, _), _| *other != ballot);
    }

    /// Ends a lane whose pieces are done, and adds its mark, records and bytes to another lane of the same committee. Returns false, and
    /// changes nothing, where this is the last lane.
    fn end_lane(&mut self, lane: Lane) -> bool {
        let Some(other) = self.lanes(lane.0).map(|(other, _)| other).find(|other| *other != lane) else { return false };
        let ended = self.jobs.remove(&lane).expect("a lane ends once");
        let other = self.jobs.get_mut(&other).expect("just found");
        ended.mark.into_iter().for_each(|mark| other.reached(mark));
        other.records += ended.records;
        other.bytes += ended.bytes;
        true
    }

    /// Returns whether a page of the store may be read for a neighbour's member. The same page is not read twice, where the store is slow
    /// and the member asks again. At most `scans_max` pages are read at one time: a refused member asks again, or asks another one.
    pub(crate) fn may_copy(&self, node: NodeId, number: u64, scans_max: usize) -> bool {
        let mut copies = self.scans.values().filter_map(|scan| match scan {
            ScanUse::Copy { from, ask, .. } => Some((*from, ask.number)),
            _ => None,
        });
        copies.clone().count() < scans_max && !copies.any(|known| known == (node, number))
    }

    pub(crate) fn begin_scan(&mut self, scan: ScanUse) -> ScanToken {
        self.last_scan.0 += 1;
        self.scans.insert(self.last_scan, scan);
        self.last_scan
    }
}

/// Returns whether a purge in this piece dropped tombstones above this number. A window that begins before those tombstones has the writes
/// that they replaced. A reader of half of such a window has a key that is gone, and no comparison reveals it.
fn is_before_purge(ctx: &Context<'_>, piece: KeyRange, since: Number) -> bool {
    ctx.state.purged.bounds.pieces(piece).iter().any(|(_, purged)| purged.is_some_and(|purge| since < purge.up_to))
}

/// Configurations: half of each of them together tells everything.
pub(crate) type Asks = Vec<(Epoch, Vec<NodeId>)>;

/// Returns the configurations that recovery asks in this range now.
pub(crate) fn asked_configs(ctx: &Context<'_>, range: KeyRange) -> Asks {
    ctx.state.configs(range).into_iter().map(|config| (config.epoch, config.members)).collect()
}

/// Returns whether these nodes, together with this node, tell everything that majorities accepted, in every configuration that recovery
/// asks in this range.
///
/// `nodes`: each node with the last epoch about which its statements are in doubt.
pub(crate) fn covers_quorums(ctx: &Context<'_>, range: KeyRange, nodes: &BTreeMap<NodeId, Epoch>) -> bool {
    let forgets = ctx.config.defects.has(Defect::OneReplicaState);
    let asked = |config: &&EpochConfig| !forgets || config.epoch == ctx.state.epoch;
    let answer = |node: NodeId| if node == ctx.me { Some(ctx.doubt) } else { nodes.get(&node).copied() };
    let is_told = |config: &EpochConfig| {
        // Half of a former configuration is enough. Of the present one a majority is needed anyway. The member that a majority has beyond a
        // half makes up for one that forgot a record in an epoch of the same members that recovery had no room to list.
        let tells = if config.epoch == ctx.state.epoch { decides } else { meets_majorities };
        tells(&config.members, config.epoch, ctx.config.defects, &answer)
    };
    ctx.state.configs(range).iter().filter(asked).all(is_told)
}

/// Returns the part of a page that lies in the piece behind `after`, and whether the piece may hold more behind it.
fn within(
    records: Vec<(Key, Arc<Record>)>,
    piece: KeyRange,
    after: Option<&Key>,
    done: bool,
) -> (Vec<(Key, Arc<Record>)>, bool) {
    let ended = records.last().is_some_and(|(key, _)| !piece.contains(key.point()));
    let inside = |key: &Key| piece.contains(key.point()) && after.is_none_or(|after| key > after);
    (records.into_iter().filter(|(key, _)| inside(key)).collect(), !done && !ended)
}

/// Returns how many of these keys one question names: no frame takes the question if its keys are too long together.
fn keys_that_fit(held: &[(Key, Number)], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = held.iter().take(PAGE_KEYS_MAX).take_while(|(key, _)| {
        bytes += key.encoded().len();
        bytes <= bytes_max
    });
    fits.count().max(1)
}

/// Returns where the store's page begins: behind the last key, never with it. The record of that key may be all that a page holds.
pub(crate) fn scan_from(after: Option<&Key>, piece: KeyRange) -> Bound<Key> {
    match after {
        Some(after) => Bound::Excluded(after.clone()),
        None => Bound::Included(Key::first_at(piece.start())),
    }
}

/// Returns the size of a page of the store, in bytes, that makes progress regardless of the records' sizes.
pub(crate) fn page_bytes(ctx: &Context<'_>) -> usize {
    ctx.config.message_bytes_max.max(8 * ctx.state.settings.value_bytes_max as usize)
}
