//! Reads by any member, scheduled by a switch (`Harmonia §5-§7`; `docs/design/switch.md`): the primary's side.
//!
//! The paper's clients send writes through the switch. Here a primary does that with each write itself, while it has it accepted:
//! the switch numbers the write's object and notes it as dirty, and only what came back counts as chosen, whoever has it. So
//! clients, their retries, expiry and whatever a takeover proposes again come the same way, over connections that prove who
//! speaks; and the way through the switch takes no longer than that to a quorum, which is gone at the same time.
//!
//! What nobody sees yet must not show up after its client was told that nobody knows, and may have read that it was not done (I8). A
//! write that has not come back is not dirty, so members answer as if it were not there: so no grant runs beyond the time at which its
//! client stops to wait. Where grants run for longer already, it is proposed only when it has come back, and comes to nothing when
//! that is too late.
//!
//! # The point
//! Whatever the switch numbered up to the *point* is void or chosen, and every such write is among those up to the chosen
//! mark. The primary tells the switch (a *completion*) and the members (which chosen mark that goes with) whenever it moves.
//! A member that has settled everything up to that mark has executed up to the point: it may answer a read that the switch
//! stamped with this point or a lower one. Both only rise.
//!
//! A number that comes back when the point is there already is void: the switch does not hold its object for dirty any more
//! (hazard 57). The write is passed again. A number that never comes back leaves an object dirty until the point is beyond
//! it: something without an object is passed now and then, and where it shows that others were numbered before, the point moves to
//! it, so that the dirty set drains.
//!
//! # Grants
//! A member answers alone only while it has a *grant*, which is never longer than the primary's own lease: a member counts it
//! from when it confirmed the ballot, in a round that was sent before, and the primary's lease is only promised for later. So
//! whatever keeps a new primary from serving while a lease may be alive keeps it from that while a grant may be. But for one
//! thing: a primary that promises somebody else gives up its lease at once, and cannot take back grants; it says how long they
//! run ([`Acceptor::delegated`]).
//!
//! While grants may be alive every write passes the switch, under the id that they name. Under another id, or none, the
//! primary waits until they are over (hazard 55).
//!
//! [`Acceptor::delegated`]: super::Acceptor

use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Key, NodeId};

use super::acceptor::Acceptor;
use super::passing::{Passing, ToPass};
use super::primary::{Local, Primary};
use crate::ballot::TermBallot;
use crate::config::Defect;
use crate::context::Context;
use crate::message::{CommitteeMessage, Message, Write};
use crate::outbox::GroupOutput;
use crate::time::Time;

/// So often, in the time in which anything unanswered is said again, it is tried whether a switch is there, and so is what a
/// lost number left in the dirty set drained. A switch that gives nothing back for all of that time is taken for gone.
const TRIES: u32 = 3;
/// A primary whose writes found no room in the switch does without it for so long, and for twice as long each time that it does not get
/// on for four times as long.
const REST_FIRST: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(60);
/// The tag of what has no write: no number is as high.
pub const TRIAL: u64 = u64::MAX;

/// What is to be passed through a switch, to come back with a number ([`GroupOutput::Pass`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Whose partition.
    pub ballot: TermBallot,
    /// The object that is written; `None`: nothing is.
    pub key: Option<Key>,
    /// To be given back, both: which it is, and when it left.
    pub tag: u64,
    /// When it left.
    pub sent: Time,
}

/// What came back of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The switch's id.
    pub switch: u32,
    /// What the switch made its number.
    pub number: u64,
    /// As in [`Pass`].
    pub tag: u64,
    /// As in [`Pass`].
    pub sent: Time,
}

/// How a primary stands to its switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// Writes are proposed at once, and nobody else may answer reads.
    #[default]
    Direct,
    /// Writes pass the switch with this id. Grants may be given.
    On(u32),
    /// The same, but no more grants are given; once all are over, writes are direct.
    Ending(u32),
}

/// A primary's dealings with its switch.
#[derive(Clone, Debug, Default)]
pub(super) struct Offload {
    standing: Standing,
    /// The highest id that it stood to. A lower one is never used again.
    id: u32,
    passing: Passing,
    /// What came back, or needs no switch any more, and is to be proposed now.
    ready: Vec<Write>,
    /// What was completed.
    point: u64,
    /// When the switch was last told of that.
    completed: Time,
    /// Behind the point, and up to here, no write was numbered: there is nothing to complete.
    idle: u64,
    /// The chosen mark and the point that members were told last.
    told: (u64, u64),
    /// All that was proposed before writes began to pass is up to here.
    direct: u64,
    /// When it last began to pass writes; until when it does not, since the switch had no room for them; how long that was.
    begun: Time,
    rests_until: Time,
    rest: Duration,
    /// Since when what was tried has not come back.
    unheard: Option<Time>,
    tried: Time,
    /// All grants are over then.
    granted_until: Time,
}

impl Offload {
    /// It has not come back: so it is not chosen, whoever has it.
    pub(super) fn is_away(&self, n: u64) -> bool {
        self.passing.is_away(n)
    }

    /// It has not come back, and is proposed to nobody before it does.
    pub(super) fn is_held(&self, n: u64) -> bool {
        self.passing.is_held(n)
    }

    /// All grants are over then.
    pub(super) fn granted_until(&self) -> Time {
        self.granted_until
    }

    /// The id under which members may answer reads, for a person to see.
    pub(super) fn active(&self) -> Option<u32> {
        match self.standing {
            Standing::On(id) => Some(id),
            Standing::Direct | Standing::Ending(_) => None,
        }
    }

    /// The id under which writes pass, if they do.
    fn passes(&self) -> Option<u32> {
        match self.standing {
            Standing::On(id) | Standing::Ending(id) => Some(id),
            Standing::Direct => None,
        }
    }

    /// It is over; grants that were given may not be.
    pub(super) fn end(&mut self) {
        *self = Offload { granted_until: self.granted_until, ..Offload::default() };
    }

    /// It ends, because the switch has no room for what is written, or for another reason.
    fn rest_after(&mut self, now: Time, is_stuck: bool) {
        let was_long = now.since(self.begun) >= self.rest * 4;
        self.rest = match (is_stuck, was_long) {
            (false, _) => Duration::ZERO,
            (true, true) => REST_FIRST,
            (true, false) => (self.rest * 2).min(REST_MAX),
        };
        self.rests_until = now + self.rest;
    }

    /// This is to be proposed now.
    pub(super) fn make_ready(&mut self, write: Option<Write>) {
        self.ready.extend(write);
    }

    /// This write is chosen.
    pub(super) fn on_chosen(&mut self, n: u64, now: Time) {
        self.passing.on_chosen(n, now);
    }

    pub(super) fn next_timeout(&self, wanted: Option<u32>, resend: Duration) -> Time {
        let again = self.passing.next_timeout(resend / TRIES);
        let next_try = self.tried + resend / TRIES;
        let tried = match self.standing {
            Standing::Direct if wanted.is_none() => Time::NEVER,
            Standing::Direct | Standing::On(_) => next_try,
            Standing::Ending(_) => self.granted_until,
        };
        again.min(tried)
    }
}

impl Primary {
    /// The id of the switch that the group wants this primary to use, where it can be used.
    fn wanted_switch(&self, ctx: &Context<'_>) -> Option<u32> {
        let may = self.is_serving() && ctx.state.may_offload();
        may.then(|| ctx.state.switch.wanted()).flatten()
    }

    /// Members that may answer reads under which switch's id, where there are such.
    pub fn switch(&self) -> Option<u32> {
        self.offload.active()
    }

    /// The id of the switch that writes pass, while they do, and when all grants that were given are over, for checks.
    pub fn granted(&self) -> (Option<u32>, Time) {
        (self.offload.passes(), self.offload.granted_until)
    }

    /// When [`Primary::tick_offload`] has something to do next.
    pub(super) fn offload_due(&self, ctx: &Context<'_>) -> Time {
        self.offload.next_timeout(self.wanted_switch(ctx), ctx.config.timing.resend)
    }

    /// What of this, which was evaluated just now, is to be proposed at once, and what is ready of what was to pass the switch first.
    pub(super) fn pass_writes(&mut self, ctx: &mut Context<'_>, writes: Vec<Write>) -> Vec<Write> {
        if self.offload.standing == Standing::Direct {
            self.offload.ready.extend(writes);
        } else {
            for write in writes {
                let n = write.record.number.n;
                let is_held =
                    self.deadline(n) < self.offload.granted_until && !ctx.config.defects.has(Defect::LateWrites);
                self.offload.passing.add(n, write.key.clone(), is_held);
                if !is_held {
                    self.offload.ready.push(write);
                }
            }
        }
        self.pass_next(ctx);
        core::mem::take(&mut self.offload.ready)
    }

    /// Passes what the switch has room for.
    fn pass_next(&mut self, ctx: &mut Context<'_>) {
        let next = self.offload.passing.next(ctx.now.time);
        self.send_passes(ctx, next);
    }

    fn send_passes(&self, ctx: &mut Context<'_>, passes: ToPass) {
        passes.into_iter().for_each(|(n, key)| self.send_pass(ctx, Some(key), n));
    }

    fn send_pass(&self, ctx: &mut Context<'_>, key: Option<Key>, tag: u64) {
        ctx.out.push(GroupOutput::Pass(Pass { ballot: self.ballot, key, tag, sent: ctx.now.time }));
    }

    /// Something came back from a switch, with this number.
    pub fn on_passed(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, passed: &Passed) {
        let Passed { switch, number, tag, sent } = *passed;
        if !self.is_serving() {
            return;
        }
        if self.offload.standing == Standing::Direct {
            return self.begin_offload(ctx, switch, number);
        }
        let (Standing::On(id) | Standing::Ending(id)) = self.offload.standing else { return };
        if switch != id {
            return;
        }
        self.offload.passing.note_heard(sent, ctx.now.time);
        if tag == TRIAL {
            self.offload.unheard = None;
        }
        if self.offload.passing.is_others(number, tag) {
            // One number for two writes: the switch has forgotten what it numbered, and so what is dirty.
            self.offload.standing = Standing::Ending(id);
            return;
        }
        if tag == TRIAL && self.offload.idle.max(self.offload.point).checked_add(1) == Some(number) {
            // Nothing else was numbered since: so nothing is dirty that should not be, unless the switch was not told.
            self.offload.idle = number;
            self.offload.passing.note(number);
            if ctx.now.time.since(self.offload.completed) >= ctx.config.timing.resend {
                self.complete(ctx, id);
            }
            return;
        }
        // At or below the point it is void: what it made dirty is not any more.
        if number <= self.offload.point && !ctx.config.defects.has(Defect::VoidNumberTaken) {
            let again = self.offload.passing.again(tag, ctx.now.time);
            return self.send_passes(ctx, again);
        }
        self.offload.passing.note(number);
        match self.offload.passing.come_back(tag, number) {
            None => {}
            Some(true) => {
                let write = self.released(ctx, tag);
                self.offload.ready.extend(write);
            }
            Some(false) => self.choose(ctx, local, &[tag]),
        }
        self.move_point(ctx);
    }

    /// A switch is there: from now on every write passes it.
    fn begin_offload(&mut self, ctx: &mut Context<'_>, switch: u32, number: u64) {
        let is_wanted = self.wanted_switch(ctx) == Some(switch) && ctx.now.time >= self.offload.rests_until;
        // Under an id that was used before, numbers go on; if they do not, its registers are not what they were.
        let is_new = switch > self.offload.id;
        let goes_on = switch == self.offload.id && number > self.offload.passing.highest();
        if !is_wanted || !(is_new || goes_on) {
            return;
        }
        let (point, told) = if is_new { (0, (0, 0)) } else { (self.offload.point, self.offload.told) };
        // What is in flight was not passed: it holds the point, and grants, until it is chosen.
        let (standing, direct) = (Standing::On(switch), self.next_n - 1);
        let passing = Passing::behind(number);
        let begun = Offload { standing, id: switch, passing, point, told, direct, ..Offload::default() };
        let before = core::mem::replace(&mut self.offload, begun);
        (self.offload.ready, self.offload.granted_until) = (before.ready, before.granted_until);
        (self.offload.begun, self.offload.rest) = (ctx.now.time, before.rest);
        self.offload.tried = ctx.now.time;
        self.move_point(ctx);
    }

    /// Tells the switch and the members of a point that has moved. It goes with the chosen mark, below which a coarse group has
    /// chosen everything: in another one a point could be beyond what is.
    pub(super) fn move_point(&mut self, ctx: &mut Context<'_>) {
        let (Standing::On(id) | Standing::Ending(id)) = self.offload.standing else { return };
        let is_early = ctx.config.defects.has(Defect::EarlyCompletion);
        if self.chosen.mark() < self.offload.direct && !is_early {
            return;
        }
        let open = self.offload.passing.lowest_open().filter(|_| !is_early);
        let point = open.map_or(self.offload.passing.highest(), |lowest| lowest - 1);
        if point > self.offload.point {
            self.offload.point = point;
            self.complete(ctx, id);
        }
        if self.offload.told.1 < self.offload.point {
            self.tell_point(ctx, id);
        }
    }

    /// Tells the switch of the point. That may be lost: it is said again while nothing else is.
    fn complete(&mut self, ctx: &mut Context<'_>, switch: u32) {
        self.offload.completed = ctx.now.time;
        ctx.out.push(GroupOutput::Complete { ballot: self.ballot, switch, number: self.offload.point });
    }

    fn tell_point(&mut self, ctx: &mut Context<'_>, switch: u32) {
        self.announced = (self.chosen.mark(), ctx.now.time);
        self.offload.told = (self.chosen.mark(), self.offload.point);
        let (chosen, point) = self.offload.told;
        let message = CommitteeMessage::Point { ballot: self.ballot, switch, chosen, point };
        let to = ctx.others();
        ctx.out.send(&to, Message::Committee(message));
    }

    /// A member has confirmed the ballot in a round for the lease: it may answer reads for a while.
    pub(super) fn grant(&mut self, ctx: &mut Context<'_>, acceptor: &mut Acceptor, to: NodeId, attempt: u64) {
        let Standing::On(switch) = self.offload.standing else { return };
        let until = self.reads.lease_until.min(self.grants_end_by(ctx));
        if !self.reads.asked_for_lease(attempt) || !ctx.state.is_member(to) {
            return;
        }
        let left_us = until.since(ctx.now.time).as_micros() as u64;
        // Whoever has settled what is chosen by now lacks nothing that did not pass the switch.
        let is_settled = self.chosen.mark() >= self.offload.direct;
        if to == ctx.me || ctx.now.time >= until || !is_settled || self.wanted_switch(ctx) != Some(switch) {
            return;
        }
        self.offload.granted_until = self.offload.granted_until.max(until);
        acceptor.delegate(self.ballot, self.range, self.offload.granted_until, ctx.now.time);
        let (chosen, point) = (self.chosen.mark(), self.offload.point);
        let message = CommitteeMessage::Grant { ballot: self.ballot, switch, attempt, left_us, chosen, point };
        ctx.out.send(&[to], Message::Committee(message));
    }

    /// No grant may run for longer: what is proposed and has not come back would not be seen, when nobody waits for it any more.
    fn grants_end_by(&self, ctx: &Context<'_>) -> Time {
        let deadlines = self.offload.passing.proposed().map(|n| self.deadline(n));
        deadlines.min().filter(|_| !ctx.config.defects.has(Defect::LateWrites)).unwrap_or(Time::NEVER)
    }

    /// Lets go of the numbers of all that is not chosen, where there is no room for all. Not where something of that would not be
    /// proposed before it is back, nor where what did not pass the switch is not chosen.
    fn let_go(&mut self, ctx: &mut Context<'_>, switch: u32) {
        let is_settled = self.chosen.mark() >= self.offload.direct;
        let ends_late =
            |n: u64| ctx.now.time < self.offload.granted_until && self.deadline(n) < self.offload.granted_until;
        if !is_settled || self.offload.passing.numbered().any(ends_late) {
            return;
        }
        let in_flight = &self.in_flight;
        self.offload.passing.let_go(ctx.now.time, |n| in_flight[&n].write.key.clone());
        self.offload.point = self.offload.point.max(self.offload.passing.highest());
        self.complete(ctx, switch);
        self.tell_point(ctx, switch);
    }

    /// Passes again what has not come back, tries whether there is a switch, gives one up.
    pub(super) fn tick_offload(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        let wanted = self.wanted_switch(ctx);
        let now = ctx.now.time;
        if let Standing::On(id) = self.offload.standing {
            let oldest = self.offload.passing.stuck_since();
            let is_late = |since: &Time| now.since(*since) >= ctx.config.timing.resend;
            let is_gone = self.offload.unheard.as_ref().is_some_and(is_late);
            let is_stuck = oldest.as_ref().is_some_and(is_late);
            if wanted != Some(id) || is_gone || is_stuck {
                self.offload.standing = Standing::Ending(id);
                // It answers, and has no room for what is written here: to stand to it again at once would be as bad.
                self.offload.rest_after(now, is_stuck && !is_gone);
            }
        }
        let waits = now < self.offload.granted_until && !ctx.config.defects.has(Defect::GrantsForgotten);
        if matches!(self.offload.standing, Standing::Ending(_)) && !waits {
            self.go_direct(ctx, local);
        }
        self.pass_again(ctx);
        if now.since(self.offload.tried) >= ctx.config.timing.resend / TRIES {
            let tries = match self.offload.standing {
                Standing::Direct => wanted.is_some(),
                Standing::On(_) => true,
                Standing::Ending(_) => false,
            };
            if tries {
                self.offload.tried = now;
                self.offload.unheard.get_or_insert(now);
                self.send_pass(ctx, None, TRIAL);
            }
        }
    }

    fn pass_again(&mut self, ctx: &mut Context<'_>) {
        if let Standing::On(id) = self.offload.standing
            && self.offload.passing.has_no_room()
        {
            self.let_go(ctx, id);
        }
        let overdue = self.offload.passing.overdue(ctx.now.time, ctx.config.timing.resend / TRIES);
        self.send_passes(ctx, overdue);
        self.pass_next(ctx);
    }

    /// No grant is alive: what waits for the switch does without it.
    fn go_direct(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        self.offload.standing = Standing::Direct;
        self.offload.unheard = None;
        for n in self.offload.passing.end() {
            let write = self.released(ctx, n);
            self.offload.ready.extend(write);
        }
        self.choose_voted(ctx, local);
    }
}
