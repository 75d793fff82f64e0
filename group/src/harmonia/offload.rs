//! Reads by any member, scheduled by a switch (`Harmonia §5-§7`; `docs/design/switch.md`): the primary's side.
//!
//! In the paper, clients send writes through the switch. Here the primary passes each write itself, while it has the write accepted. The
//! switch numbers the write's object and marks it as dirty. A write counts as chosen only after it came back from the switch, even if a
//! quorum has it. So operations of clients, their retries, expiry and re-proposals of a takeover take the same way, over connections that
//! prove the sender. The way through the switch adds no time unless it is longer than the way to a quorum, which the write goes at the same
//! time.
//!
//! A write that is not yet visible must not take effect after its client got `UNCERTAIN`, because the client may have read that the write
//! was not done (I8). The object of a write that has not come back is not dirty, so members answer as if the write did not exist. So no
//! grant runs beyond the time at which the write's client stops waiting. Where grants run longer already, the primary proposes the write
//! only when it has come back, and voids it when that is too late.
//!
//! # The point
//! Each number that the switch gave up to the *point* is void, or its write is chosen and among the writes up to the chosen mark. Whenever
//! the point moves, the primary tells the switch (a *completion*) and the members (with the chosen mark that belongs to the point). A
//! member that has settled everything up to that mark has executed up to the point. It may answer a read that the switch stamped with this
//! point or a lower one. Both only rise.
//!
//! A number that comes back when the point has reached it already is void: the switch does not hold its object as dirty any more
//! (hazard 57). The primary passes the write again. A number that never comes back leaves an object dirty until the point is beyond it. So
//! the primary passes a probe without an object now and then. Where the probe's number shows that other writes were numbered before, the
//! point moves to it, so that the dirty set drains.
//!
//! # Grants
//! A member answers alone only while it has a *grant*, which is never longer than the primary's own lease. The member counts a grant from
//! its confirmation of the ballot, in a round that was sent before, and the primary's lease is promised only for longer. So the rule that
//! keeps a new primary from serving while a lease may be alive also covers grants, with one exception. A primary that promises another node
//! gives up its lease at once, but cannot take back grants: its promise states how long they run ([`Acceptor::delegated`]).
//!
//! While grants may be alive, every write passes the switch, under the id that they name. For another id, or for none, the primary waits
//! until the grants are over (hazard 55).
//!
//! [`Acceptor::delegated`]: crate::data::Acceptor

use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Key, NodeId};

use crate::ballot::TermBallot;
use crate::config::Defect;
use crate::context::Context;
use crate::data::acceptor::Acceptor;
use crate::data::primary::{Local, Primary};
use crate::harmonia::write_pass::{NextPass, WritePasses};
use crate::message::{CommitteeMessage, Message, Write};
use crate::outbox::GroupOutput;
use overlay::time::Time;

/// Number of times, within the time after which an unanswered message is repeated, that the primary probes for a switch and drains the
/// entries that a lost number left in the dirty set. A switch that returns nothing for all of that time counts as gone.
const TRIES: u32 = 3;
/// First rest of a primary that found no room in the switch for its writes: it does without the switch for so long. Each further rest is
/// twice as long, up to `REST_MAX`, until an offload lasts four times as long as the last rest.
const REST_FIRST: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(60);
/// Sentinel tag of a probe packet that carries no write. No write has so high a number.
pub const TRIAL: u64 = u64::MAX;

/// Packet to pass through a switch, which returns it with a number ([`GroupOutput::Pass`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePass {
    /// Ballot of the partition.
    pub ballot: TermBallot,
    /// Object that is written; `None` in a probe.
    pub key: Option<Key>,
    /// Number of the write, or [`TRIAL`]. The switch returns it.
    pub tag: u64,
    /// Time at which the packet left. The switch returns it.
    pub sent: Time,
}

/// Write that came back from a switch (*WriteFirst*): the end of its write pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedWrite {
    /// Id of the switch.
    pub switch: u32,
    /// Number that the switch gave to the packet.
    pub number: u64,
    /// As in [`WritePass`].
    pub tag: u64,
    /// As in [`WritePass`].
    pub sent: Time,
}

/// Mode of a primary towards its switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// Writes are proposed at once, and no other member may answer reads.
    #[default]
    Direct,
    /// Writes pass the switch with this id. The primary may give grants.
    On(u32),
    /// Writes pass the switch, but the primary gives no more grants; once all grants are over, writes are direct.
    Ending(u32),
}

/// State of a primary towards its switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offload {
    standing: Standing,
    /// Highest switch id that the primary used. It never uses a lower one again.
    id: u32,
    passes: WritePasses,
    /// Writes that came back, or need no switch any more, and are to be proposed now.
    ready: Vec<Write>,
    /// Point that the switch and the members are told.
    point: u64,
    /// Time of the last completion to the switch.
    completed: Time,
    /// Numbers after the point and up to here belong to no write: there is nothing to complete.
    idle: u64,
    /// Chosen mark and point that members were told last.
    told: (u64, u64),
    /// Upper limit of the numbers of writes that were proposed before writes began to pass.
    direct: u64,
    /// Begin of the current offload; end of the rest after the switch had no room for writes; length of that rest.
    begun: Time,
    rests_until: Time,
    rest: Duration,
    /// Time of the first probe since the last one that came back.
    unheard: Option<Time>,
    tried: Time,
    /// End of the last grant.
    granted_until: Time,
}

impl Offload {
    /// Returns whether a write has not come back: then it is not chosen, even if a quorum has it.
    pub(crate) fn is_away(&self, n: u64) -> bool {
        self.passes.is_away(n)
    }

    /// Returns whether a write has not come back, and is proposed to no member before it does.
    pub(crate) fn is_held(&self, n: u64) -> bool {
        self.passes.is_held(n)
    }

    /// Returns the end of the last grant.
    pub(crate) fn granted_until(&self) -> Time {
        self.granted_until
    }

    /// Returns the id under which members may answer reads, for display.
    pub(crate) fn active(&self) -> Option<u32> {
        match self.standing {
            Standing::On(id) => Some(id),
            Standing::Direct | Standing::Ending(_) => None,
        }
    }

    /// Returns the id under which writes pass, if they do.
    fn passes(&self) -> Option<u32> {
        match self.standing {
            Standing::On(id) | Standing::Ending(id) => Some(id),
            Standing::Direct => None,
        }
    }

    /// Ends the offload; grants that were given may still run.
    pub(crate) fn end(&mut self) {
        *self = Offload { granted_until: self.granted_until, ..Offload::default() };
    }

    /// Sets the rest after an offload that ends because the switch has no room for its writes (`is_stuck`); after any other end there is no
    /// rest.
    fn rest_after(&mut self, now: Time, is_stuck: bool) {
        let was_long = now.since(self.begun) >= self.rest * 4;
        self.rest = match (is_stuck, was_long) {
            (false, _) => Duration::ZERO,
            (true, true) => REST_FIRST,
            (true, false) => (self.rest * 2).min(REST_MAX),
        };
        self.rests_until = now + self.rest;
    }

    /// Adds a write to those that are to be proposed now.
    pub(crate) fn make_ready(&mut self, write: Option<Write>) {
        self.ready.extend(write);
    }

    /// Notes that a write is chosen.
    pub(crate) fn on_chosen(&mut self, n: u64, now: Time) {
        self.passes.on_chosen(n, now);
    }

    pub(crate) fn next_timeout(&self, wanted: Option<u32>, resend: Duration) -> Time {
        let again = self.passes.next_timeout(resend / TRIES);
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
    /// Returns the id of the switch that the group wants this primary to use, where a switch can be used.
    fn wanted_switch(&self, ctx: &Context<'_>) -> Option<u32> {
        let may = self.is_serving() && ctx.state.may_offload();
        may.then(|| ctx.state.switch.wanted()).flatten()
    }

    /// Returns the id of the switch under which members may answer reads, if they may.
    pub fn switch(&self) -> Option<u32> {
        self.offload.active()
    }

    /// Returns the id of the switch that writes pass, while they do, and the end of the last grant, for checks.
    pub fn granted(&self) -> (Option<u32>, Time) {
        (self.offload.passes(), self.offload.granted_until)
    }

    /// Returns when [`Primary::tick_offload`] has to be called next.
    pub(crate) fn offload_due(&self, ctx: &Context<'_>) -> Time {
        self.offload.next_timeout(self.wanted_switch(ctx), ctx.config.timing.resend)
    }

    /// Returns the writes to propose at once: of these, which were evaluated just now, and of those that had to pass the switch first.
    pub(crate) fn pass_writes(&mut self, ctx: &mut Context<'_>, writes: Vec<Write>) -> Vec<Write> {
        if self.offload.standing == Standing::Direct {
            self.offload.ready.extend(writes);
        } else {
            for write in writes {
                let n = write.record.number.n;
                let is_held =
                    self.deadline(n) < self.offload.granted_until && !ctx.config.defects.has(Defect::LateWrites);
                self.offload.passes.add(n, write.key.clone(), is_held);
                if !is_held {
                    self.offload.ready.push(write);
                }
            }
        }
        self.pass_next(ctx);
        core::mem::take(&mut self.offload.ready)
    }

    /// Passes as many writes as the switch has room for.
    fn pass_next(&mut self, ctx: &mut Context<'_>) {
        let next = self.offload.passes.next(ctx.now.time);
        self.send_passes(ctx, next);
    }

    fn send_passes(&self, ctx: &mut Context<'_>, passes: NextPass) {
        passes.into_iter().for_each(|(n, key)| self.send_pass(ctx, Some(key), n));
    }

    fn send_pass(&self, ctx: &mut Context<'_>, key: Option<Key>, tag: u64) {
        ctx.out.push(GroupOutput::Pass(WritePass { ballot: self.ballot, key, tag, sent: ctx.now.time }));
    }

    /// Handles a packet that came back from a switch.
    pub fn on_passed(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>, returned: &ReturnedWrite) {
        let ReturnedWrite { switch, number, tag, sent } = *returned;
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
        self.offload.passes.note_heard(sent, ctx.now.time);
        if tag == TRIAL {
            self.offload.unheard = None;
        }
        if self.offload.passes.is_others(number, tag) {
            // One number for two writes: the switch has forgotten its numbers, and so its dirty set.
            self.offload.standing = Standing::Ending(id);
            return;
        }
        if tag == TRIAL && self.offload.idle.max(self.offload.point).checked_add(1) == Some(number) {
            // No other packet was numbered since: so no object is dirty that should not be, unless a completion was lost.
            self.offload.idle = number;
            self.offload.passes.note(number);
            if ctx.now.time.since(self.offload.completed) >= ctx.config.timing.resend {
                self.complete(ctx, id);
            }
            return;
        }
        // A number at or below the point is void: the object that it made dirty is not dirty any more.
        if number <= self.offload.point && !ctx.config.defects.has(Defect::VoidNumberTaken) {
            let again = self.offload.passes.again(tag, ctx.now.time);
            return self.send_passes(ctx, again);
        }
        self.offload.passes.note(number);
        match self.offload.passes.come_back(tag, number) {
            None => {}
            Some(true) => {
                let write = self.released(ctx, tag);
                self.offload.ready.extend(write);
            }
            Some(false) => self.choose(ctx, local, &[tag]),
        }
        self.move_point(ctx);
    }

    /// Begins to pass every write: a switch is there.
    fn begin_offload(&mut self, ctx: &mut Context<'_>, switch: u32, number: u64) {
        let is_wanted = self.wanted_switch(ctx) == Some(switch) && ctx.now.time >= self.offload.rests_until;
        // Under an id that was used before, numbers continue. If they do not, the switch has lost its registers.
        let is_new = switch > self.offload.id;
        let goes_on = switch == self.offload.id && number > self.offload.passes.highest();
        if !is_wanted || !(is_new || goes_on) {
            return;
        }
        let (point, told) = if is_new { (0, (0, 0)) } else { (self.offload.point, self.offload.told) };
        // Writes in flight were not passed: they hold back the point, and grants, until they are chosen.
        let (standing, direct) = (Standing::On(switch), self.next_n - 1);
        let passes = WritePasses::behind(number);
        let begun = Offload { standing, id: switch, passes, point, told, direct, ..Offload::default() };
        let before = core::mem::replace(&mut self.offload, begun);
        (self.offload.ready, self.offload.granted_until) = (before.ready, before.granted_until);
        (self.offload.begun, self.offload.rest) = (ctx.now.time, before.rest);
        self.offload.tried = ctx.now.time;
        self.move_point(ctx);
    }

    /// Tells the switch and the members of a point that has moved. The point goes with the chosen mark, below which a coarse group has
    /// chosen everything. In a group that is not coarse, the point could pass writes that are not chosen.
    pub(crate) fn move_point(&mut self, ctx: &mut Context<'_>) {
        let (Standing::On(id) | Standing::Ending(id)) = self.offload.standing else { return };
        let is_early = ctx.config.defects.has(Defect::EarlyCompletion);
        if self.chosen.mark() < self.offload.direct && !is_early {
            return;
        }
        let open = self.offload.passes.lowest_open().filter(|_| !is_early);
        let point = open.map_or(self.offload.passes.highest(), |lowest| lowest - 1);
        if point > self.offload.point {
            self.offload.point = point;
            self.complete(ctx, id);
        }
        if self.offload.told.1 < self.offload.point {
            self.tell_point(ctx, id);
        }
    }

    /// Tells the switch of the point. The message may be lost: it is repeated while no other completion is sent.
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

    /// Grants a member to answer reads for a while: it has confirmed the ballot in a round for the lease.
    pub(crate) fn grant(&mut self, ctx: &mut Context<'_>, acceptor: &mut Acceptor, to: NodeId, attempt: u64) {
        let Standing::On(switch) = self.offload.standing else { return };
        let until = self.reads.lease_until.min(self.grants_end_by(ctx));
        if !self.reads.asked_for_lease(attempt) || !ctx.state.is_member(to) {
            return;
        }
        let left_us = until.since(ctx.now.time).as_micros() as u64;
        // A member that has settled all writes chosen by now lacks no write that did not pass the switch.
        let is_settled = self.chosen.mark() >= self.offload.direct;
        if to == ctx.me || ctx.now.time >= until || !is_settled || self.wanted_switch(ctx) != Some(switch) {
            return;
        }
        self.offload.granted_until = self.offload.granted_until.max(until);
        acceptor.replicas.delegate(self.ballot, self.range, self.offload.granted_until, ctx.now.time);
        let (chosen, point) = (self.chosen.mark(), self.offload.point);
        let message = CommitteeMessage::Grant { ballot: self.ballot, switch, attempt, left_us, chosen, point };
        ctx.out.send(&[to], Message::Committee(message));
    }

    /// Returns the time beyond which no grant may run. A write that is proposed and has not come back would not be visible when its client
    /// stops waiting.
    fn grants_end_by(&self, ctx: &Context<'_>) -> Time {
        let deadlines = self.offload.passes.proposed().map(|n| self.deadline(n));
        deadlines.min().filter(|_| !ctx.config.defects.has(Defect::LateWrites)).unwrap_or(Time::NEVER)
    }

    /// Gives up the numbers of all writes that are not chosen, where there is no room for all. Does nothing where such a write would have
    /// to come back before it is proposed, or where a write that did not pass the switch is not chosen.
    fn release(&mut self, ctx: &mut Context<'_>, switch: u32) {
        let is_settled = self.chosen.mark() >= self.offload.direct;
        let ends_late =
            |n: u64| ctx.now.time < self.offload.granted_until && self.deadline(n) < self.offload.granted_until;
        if !is_settled || self.offload.passes.numbered().any(ends_late) {
            return;
        }
        let in_flight = &self.in_flight;
        self.offload.passes.release(ctx.now.time, |n| in_flight[&n].write.key.clone());
        self.offload.point = self.offload.point.max(self.offload.passes.highest());
        self.complete(ctx, switch);
        self.tell_point(ctx, switch);
    }

    /// Passes writes again that have not come back, probes for a switch, and gives a switch up.
    pub(crate) fn tick_offload(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        let wanted = self.wanted_switch(ctx);
        let now = ctx.now.time;
        if let Standing::On(id) = self.offload.standing {
            let oldest = self.offload.passes.stuck_since();
            let is_late = |since: &Time| now.since(*since) >= ctx.config.timing.resend;
            let is_gone = self.offload.unheard.as_ref().is_some_and(is_late);
            let is_stuck = oldest.as_ref().is_some_and(is_late);
            if wanted != Some(id) || is_gone || is_stuck {
                self.offload.standing = Standing::Ending(id);
                // The switch answers, and has no room for the writes of this sub-range: to use it again at once would fail the same way.
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
            && self.offload.passes.has_no_room()
        {
            self.release(ctx, id);
        }
        let overdue = self.offload.passes.overdue(ctx.now.time, ctx.config.timing.resend / TRIES);
        self.send_passes(ctx, overdue);
        self.pass_next(ctx);
    }

    /// Does without the switch, also for the writes that wait for it: no grant is alive.
    fn go_direct(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        self.offload.standing = Standing::Direct;
        self.offload.unheard = None;
        for n in self.offload.passes.end() {
            let write = self.released(ctx, n);
            self.offload.ready.extend(write);
        }
        self.choose_voted(ctx, local);
    }
}
