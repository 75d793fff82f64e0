//! The origin's side of client operations: ids, attempts, retries, and the answer at the deadline (`docs/design/write.md`).
//!
//! # Invariants
//! - An operation has one id through all its attempts, and is answered exactly once.
//! - A write is answered `TryAgain` only if every attempt was refused by its would-be executor, or none was made.
//! - If a stray attempt may still execute an operation after another attempt did, the operation's id is not retired before its horizon has
//!   passed.
//! - Operations of one connection on one key are sent one after another.

pub(crate) mod harmonia;
pub(crate) mod key_use;
pub(crate) mod requester;
pub(crate) mod window;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use group::ballot::TermBallot;
use group::message::{AttemptOutcome, ClientOperation};
use group::op::{Answer, Op, OpError, ReadMode, Refusal};
use group::record::OpId;
use header::Header;
use overlay::time::{Now, Time};
use overlay::{GroupId, Key, KeyRange, NodeId};

use crate::api::{Output, Request, RequestId};
use crate::config::SwitchConfig;
use crate::replicas::LocalReplicas;
use crate::routing::RoutingTable;
use crate::sessions::harmonia::{HarmoniaState, Sent, names, object, question};
use crate::sessions::key_use::KeyUse;
use crate::sessions::requester::{OwnReply, Requester};
use crate::sessions::window::{Few, Window};

/// Upper limit of the time that a client waits.
const PATIENCE_MAX: Duration = Duration::from_secs(3);
/// Pause before a refused operation is tried again: the first one, since the next primary may only be on its way; each later pause is twice
/// as long.
const RETRY_FIRST: Duration = Duration::from_millis(2);
/// Number of times that the pause doubles.
const RETRY_DOUBLINGS: u8 = 3;
/// Time without an answer after which an operation is tried again.
const SILENCE_MAX: Duration = Duration::from_millis(600);
/// Upper limit of the operations of this node's clients; more are refused.
const OPERATIONS_MAX: usize = 1 << 17;

/// Number of ballots with counted attempts that are kept while other groups own a part of the ring; above it, ballots that are not named
/// any more are dropped.
const SERIALS_MAX: usize = 1 << 11;

/// Upper limit of remembered strays: at the limit, writes are refused. A stray that was forgotten could be executed twice. One key may have
/// all of them: ids that are not retired move out of its record.
const STRAYS_MAX: usize = 1 << 16;

/// One operation of a client of this node.
#[derive(Debug)]
struct Session {
    request: Request,
    id: OpId,
    horizon: u64,
    deadline: Time,
    /// Attempt for which an answer is awaited, and its ballot.
    current: Option<(u64, TermBallot)>,
    /// Attempts with an unknown effect, in order.
    unresolved: Few,
    /// Latest primary that may have executed an attempt, and that has answered that it will not execute one any more.
    unknown: Option<TermBallot>,
    /// Answer of an attempt that found nothing to change while another attempt was open, and the ballot of that answer.
    unchanged: Option<(Answer, TermBallot)>,
    /// Progress of a read by way of the switch; at most one attempt of a read goes that way.
    spread: Spread,
    /// Whether this node itself refused a relaxed read: the next attempt goes to the primary.
    ask_primary: bool,
    /// Number of refusals, up to [`RETRY_DOUBLINGS`].
    refused: u8,
    /// Time at which the session is due next, and the queue that holds it.
    due: Time,
    noted: Noted,
    /// Neighbours among the operations of the same connection on the same key: only the first is under way.
    before: Option<u64>,
    after: Option<u64>,
}

/// Progress of a read by way of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    Not,
    UnderWay(Sent),
    /// The read is no longer waited for; its answer still counts.
    Late(Sent),
    Over,
}

/// Queue that holds a session until it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    Nowhere,
    /// In `due`.
    Due,
    /// In `silent`.
    Silent,
}

/// All operations of this node's clients.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Random number of this run of the process: an incarnation may have several runs.
    run: u64,
    next_sequence: u64,
    next_attempt: u64,
    sessions: Window<Box<Session>>,
    /// Session of each attempt, and the ballot under which the attempt was made.
    attempts: Window<(u64, Option<TermBallot>)>,
    keys: BTreeMap<Key, KeyUse>,
    serials: BTreeMap<TermBallot, u64>,
    due: BTreeSet<(Time, u64)>,
    /// Sessions that wait for the answer to an attempt, in the order of their attempts. Some have been answered since.
    silent: VecDeque<(Time, u64)>,
    /// Strays by the horizon under which they were first sent.
    strays: BTreeSet<(u64, u64, Key)>,
}

/// Context of the sessions while they handle one input.
pub struct SessionContext<'a> {
    /// The time.
    pub now: Now,
    /// Groups of this node; none before it is in one.
    pub(crate) replicas: &'a mut LocalReplicas,
    /// Knowledge about other groups.
    pub(crate) routing: &'a mut RoutingTable,
    /// Queue of outputs.
    pub outputs: &'a mut VecDeque<Output>,
    /// Answers to the node's own requests.
    pub(crate) own_replies: &'a mut Vec<OwnReply>,
    /// Number of answers to clients so far.
    pub(crate) answered: &'a mut u64,
    /// State of reads by way of a switch: whether the switch answers.
    pub(crate) harmonia: &'a mut HarmoniaState,
    pub(crate) switch: Option<SwitchConfig>,
    /// This node.
    pub me: NodeId,
}

impl SessionContext<'_> {
    /// Answers a request.
    fn reply(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        match Requester::of(id) {
            Requester::Client(id) => {
                *self.answered += 1;
                self.outputs.push_back(Output::Reply { id, result });
            }
            own => self.own_replies.push((own, result)),
        }
    }
}

impl Sessions {
    /// Creates sessions without operations. `run` distinguishes this run of the process from all other runs, also in the names of its
    /// attempts.
    pub fn new(run: u64) -> Sessions {
        Sessions { run, next_attempt: run, ..Sessions::default() }
    }

    /// Returns the number of operations under way.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether no operation is under way, apart from those of this requester.
    pub fn is_empty_but(&self, requester: Requester) -> bool {
        self.sessions.iter().all(|(_, session)| Requester::of(session.request.id) == requester)
    }

    /// Returns the time at which [`Sessions::tick`] is due next.
    pub fn next_timeout(&self) -> Time {
        let [due, silent] = [self.due.first(), self.silent.front()].map(|next| next.map_or(Time::NEVER, |(at, _)| *at));
        due.min(silent)
    }

    /// Takes an operation of a client.
    pub fn submit(&mut self, ctx: &mut SessionContext<'_>, request: Request) {
        if self.sessions.len() >= OPERATIONS_MAX || self.is_strayed(&request) {
            let result = Err(OpError::TryAgain(Refusal::Busy));
            return ctx.reply(request.id, result);
        }
        self.next_sequence += 1;
        let sequence = self.next_sequence;
        let id = match &request.once {
            Some(id) => OpId::Client(id.clone()),
            None => OpId::Origin { node: ctx.me, run: self.run, sequence },
        };
        let deadline = ctx.now.time + request.patience.min(PATIENCE_MAX);
        let horizon = ctx.replicas.at(request.key.point()).map_or(0, |group| group.state().horizon);
        let used = self.keys.entry(request.key.clone()).or_default();
        used.live.push(sequence);
        let before = used.follow(request.connection, sequence);
        if let Some(before) = before.and_then(|before| self.sessions.get_mut(before)) {
            before.after = Some(sequence);
        }
        let session = Session {
            request,
            id,
            horizon,
            deadline,
            current: None,
            unresolved: Few::default(),
            unknown: None,
            unchanged: None,
            spread: Spread::Not,
            ask_primary: false,
            refused: 0,
            due: Time::NEVER,
            noted: Noted::Nowhere,
            before,
            after: None,
        };
        self.sessions.push(sequence, Box::new(session));
        match before {
            None => self.attempt(ctx, sequence),
            Some(_) => self.set_due(sequence, deadline),
        }
    }

    /// Handles the outcome of an attempt.
    pub fn on_outcome(&mut self, ctx: &mut SessionContext<'_>, attempt: u64, outcome: AttemptOutcome) {
        let Some((sequence, ballot)) = self.attempts.remove(attempt) else { return };
        let Some(session) = self.sessions.get_mut(sequence) else { return };
        let current = session.current.filter(|(current, _)| *current == attempt);
        let is_current = current.is_some();
        if let Some((_, ballot)) = current {
            session.current = None;
            if matches!(outcome, AttemptOutcome::NotPrimary | AttemptOutcome::Unknown) {
                ctx.routing.forget(session.request.key.point(), ballot);
            }
        }
        match outcome {
            AttemptOutcome::Done(answer) => {
                session.unresolved.remove(attempt);
                // An earlier attempt was executed, and its answer is lost.
                let result = if answer == Answer::NotKept { Err(OpError::Uncertain) } else { Ok(answer) };
                self.finish(ctx, sequence, result);
            }
            AttemptOutcome::Unchanged(answer) => {
                session.unresolved.remove(attempt);
                let open = |ballot| session.may_yet_execute(&self.attempts, ballot);
                if let Some(ballot) = ballot.filter(|ballot| open(*ballot)) {
                    // Another attempt may still find something to change, or did: its answer counts.
                    session.unchanged = Some((answer, ballot));
                    self.retry_later(sequence, is_current, ctx.now.time);
                } else {
                    self.finish(ctx, sequence, Ok(answer));
                }
            }
            AttemptOutcome::Refused(error) => {
                session.unresolved.remove(attempt);
                let point = session.request.key.point();
                match error {
                    // This node may know an old horizon of another group. The operation was not executed and never will be, or it is a
                    // read, and several attempts of a read do no harm. So the operation may begin as if it came now.
                    OpError::TryAgain(Refusal::TooOld)
                        if (session.unresolved.is_empty() || session.is_read()) && ctx.replicas.at(point).is_none() =>
                    {
                        session.horizon = 0;
                        if let Some((_, ballot)) = current {
                            ctx.routing.forget(point, ballot);
                        }
                        self.retry(sequence, is_current, ctx.now.time);
                        self.tick(ctx);
                    }
                    OpError::TryAgain(Refusal::TooOld) | OpError::Limit(_) => {
                        let error = if session.is_unresolved() { OpError::Uncertain } else { error };
                        self.finish(ctx, sequence, Err(error));
                    }
                    _ => self.retry_later(sequence, is_current, ctx.now.time),
                }
            }
            AttemptOutcome::NotPrimary => {
                session.unresolved.remove(attempt);
                let open = |ballot| session.may_yet_execute(&self.attempts, ballot);
                if let Some((answer, _)) = session.unchanged.clone().filter(|(_, ballot)| !open(*ballot)) {
                    return self.finish(ctx, sequence, Ok(answer));
                }
                session.ask_primary = true;
                self.retry_later(sequence, is_current, ctx.now.time);
            }
            AttemptOutcome::Unknown => {
                session.unknown = session.unknown.max(ballot);
                self.retry_later(sequence, is_current, ctx.now.time);
            }
        }
    }

    /// Handles a possible change of the division. Retries operations under way to a node that is no longer primary of their key, and
    /// operations that found no primary.
    pub fn on_division(&mut self, ctx: &mut SessionContext<'_>) {
        let replicas = &*ctx.replicas;
        let moved = |session: &Session| {
            let point = session.request.key.point();
            let primary = match replicas.at(point) {
                Some(group) => group.primary_of(point),
                None => ctx.routing.find(point).map(|owner| owner.ballot),
            };
            match session.current {
                Some((_, ballot)) => primary != Some(ballot),
                // The operation is on its way by the switch, which is as good as before.
                None if session.is_spread_to(primary) => false,
                // The awaited primary may be there now.
                None => session.before.is_none() && session.noted == Noted::Due && primary.is_some(),
            }
        };
        let moved: Vec<u64> =
            self.sessions.iter().filter(|(_, session)| moved(session)).map(|(sequence, _)| sequence).collect();
        // A term that no division names any more never comes back.
        let is_granted =
            |ballot| replicas.living().any(|group| group.state().parts().any(|(_, granted)| granted == ballot));
        let is_named = |ballot| is_granted(ballot) || ctx.routing.names(ballot);
        // A primary of another group may be asked again, also after its entry was forgotten.
        if self.serials.len() > SERIALS_MAX || !replicas.is_partial() {
            self.serials.retain(|ballot, _| is_named(*ballot));
        }
        let horizon = |point| match replicas.at(point) {
            Some(group) => group.state().horizon,
            None => ctx.routing.find(point).map_or(0, |owner| owner.horizon),
        };
        self.forget_strays(|key| horizon(key.point()));
        for sequence in moved {
            self.retry(sequence, true, ctx.now.time);
        }
        self.tick(ctx);
    }

    /// Runs the timers.
    pub fn tick(&mut self, ctx: &mut SessionContext<'_>) {
        while let Some(sequence) = self.next_due(ctx.now.time) {
            let Some(session) = self.sessions.get_mut(sequence) else { continue };
            if ctx.now.time >= session.deadline {
                let error = if session.is_unresolved() {
                    OpError::Uncertain
                } else if ctx.replicas.is_empty() {
                    OpError::TryAgain(Refusal::NotInGroup)
                } else {
                    OpError::TryAgain(Refusal::NoPrimary)
                };
                self.finish(ctx, sequence, Err(error));
                continue;
            }
            if let Some((_, ballot)) = session.current.take() {
                // After silence, another node may be primary of the key.
                ctx.routing.forget(session.request.key.point(), ballot);
            }
            self.attempt(ctx, sequence);
        }
    }

    /// Handles a report of the owner of `part`: tries the operations that wait for it, and those under way to an earlier primary.
    pub(crate) fn on_located(&mut self, ctx: &mut SessionContext<'_>, part: KeyRange, ballot: TermBallot) {
        let waits = |session: &Session| {
            let is_first = session.before.is_none() && !matches!(session.spread, Spread::UnderWay(_));
            let is_earlier = session.current.is_none_or(|(_, current)| current < ballot);
            is_first && is_earlier && part.contains(session.request.key.point())
        };
        let waiting: Vec<u64> =
            self.sessions.iter().filter(|(_, session)| waits(session)).map(|(sequence, _)| sequence).collect();
        for sequence in waiting {
            self.retry(sequence, true, ctx.now.time);
        }
        self.tick(ctx);
    }

    /// Takes out one session that is due.
    fn next_due(&mut self, now: Time) -> Option<u64> {
        self.drop_heard();
        let silent = self.silent.front().is_some_and(|(at, _)| *at <= now);
        let next =
            if silent { self.silent.pop_front() } else { self.due.first().copied().filter(|(at, _)| *at <= now) };
        let next @ (_, sequence) = next?;
        self.due.remove(&next);
        if let Some(session) = self.sessions.get_mut(sequence) {
            session.noted = Noted::Nowhere;
        }
        Some(sequence)
    }

    /// Drops the front entries of `silent` that were answered since, or have asked again.
    fn drop_heard(&mut self) {
        let is_silent = |session: &Session, at| session.noted == Noted::Silent && session.due == at;
        while let Some((at, sequence)) = self.silent.front()
            && !self.sessions.get(*sequence).is_some_and(|session| is_silent(session, *at))
        {
            self.silent.pop_front();
        }
    }

    /// Ends all operations under way: the node stops.
    pub fn stop(&mut self, ctx: &mut SessionContext<'_>) {
        let all: Vec<u64> = self.sessions.iter().map(|(sequence, _)| sequence).collect();
        // The last ones end first, so that no end begins the attempt of a later operation.
        for sequence in all.into_iter().rev() {
            let uncertain = self.sessions.get(sequence).is_some_and(|session| session.is_unresolved());
            let error = if uncertain { OpError::Uncertain } else { OpError::TryAgain(Refusal::Stopping) };
            self.finish(ctx, sequence, Err(error));
        }
    }

    /// Returns whether there are too many strays to take one more write, which may become a stray.
    fn is_strayed(&self, request: &Request) -> bool {
        !matches!(request.op, Op::Read(_)) && self.strays.len() >= STRAYS_MAX
    }

    /// Calls [`Sessions::retry`] after a pause.
    fn retry_later(&mut self, sequence: u64, is_current: bool, now: Time) {
        if let Some(session) = self.sessions.get_mut(sequence) {
            let after = session.next_pause();
            self.retry(sequence, is_current, now + after);
        }
    }

    fn retry(&mut self, sequence: u64, is_current: bool, at: Time) {
        let Some(session) = self.sessions.get_mut(sequence) else { return };
        if is_current || session.current.is_none() {
            session.current = None;
            self.set_due(sequence, at);
        }
    }

    /// Makes a session due at this time, and at its deadline at the latest.
    fn set_due(&mut self, sequence: u64, at: Time) {
        let Some(session) = self.sessions.get_mut(sequence) else { return };
        session.forget(sequence, &mut self.due);
        (session.due, session.noted) = (at.min(session.deadline), Noted::Due);
        self.due.insert((session.due, sequence));
    }

    /// Makes a session wait for an answer until this time. Such times rise, except for those that a deadline cuts short.
    fn set_silent(&mut self, sequence: u64, at: Time) {
        let Some(session) = self.sessions.get_mut(sequence) else { return };
        let at = at.min(session.deadline);
        if self.silent.back().is_some_and(|(last, _)| at < *last) {
            return self.set_due(sequence, at);
        }
        session.forget(sequence, &mut self.due);
        (session.due, session.noted) = (at, Noted::Silent);
        self.silent.push_back((at, sequence));
    }

    /// Sends an operation to the current primary of its key.
    fn attempt(&mut self, ctx: &mut SessionContext<'_>, sequence: u64) {
        let Some(session) = self.sessions.get_mut(sequence) else { return };
        let point = session.request.key.point();
        let group = ctx.replicas.at(point);
        let elsewhere = match group {
            Some(_) => None,
            None => ctx.routing.find_fresh(point, ctx.now.time, ctx.replicas.horizon_period()),
        };
        let horizon = group.map(|group| group.state().horizon).or(elsewhere.map(|owner| owner.horizon));
        if session.horizon == 0 {
            session.horizon = horizon.unwrap_or(0);
        }
        // A node has no old state of a group in which it has no part.
        let relaxed =
            session.request.mode == ReadMode::Relaxed && session.is_read() && !session.ask_primary && group.is_some();
        let ballot = match group {
            _ if relaxed => None,
            Some(group) => group.primary_of(point),
            // The known primary is this node itself, in a group that is about to be born here; there is no node to ask.
            None => elsewhere.map(|owner| owner.ballot).filter(|ballot| ballot.node != ctx.me),
        };
        if ballot.is_none() && !relaxed {
            if group.is_none() {
                ctx.routing.want(point, ctx.now.time);
            }
            let after = session.next_pause();
            self.set_due(sequence, ctx.now.time + after);
            return;
        }
        let owner = group.map(|group| group.state().id).or(elsewhere.as_ref().map(|owner| owner.group));
        if let (Some(owner), Some(ballot)) = (owner, ballot)
            && self.spread(ctx, sequence, owner, ballot)
        {
            return;
        }
        let mode = if relaxed { ReadMode::Relaxed } else { ReadMode::Linearizable };
        let Some(operation) = self.begin_attempt(sequence, ballot, mode, ctx.now.time) else { return };
        self.set_silent(sequence, ctx.now.time + SILENCE_MAX);
        match (ctx.replicas.at_mut(point), ballot, elsewhere) {
            (Some(group), Some(ballot), _) if ballot.node != ctx.me => group.ask(ballot.node, operation),
            (Some(group), ..) => group.operate(ctx.me, operation),
            (None, _, Some(owner)) => ctx.routing.ask(&owner, operation),
            (None, _, None) => {}
        }
    }

    /// Notes a new attempt in its session, and returns its message: to the primary of `ballot`, or to this node itself for a relaxed read.
    fn begin_attempt(
        &mut self,
        sequence: u64,
        ballot: Option<TermBallot>,
        mode: ReadMode,
        now: Time,
    ) -> Option<ClientOperation> {
        let session = self.sessions.get_mut(sequence)?;
        self.next_attempt = self.next_attempt.wrapping_add(1);
        let attempt = self.next_attempt;
        let serial = ballot.map_or(0, |ballot| {
            let serial = self.serials.entry(ballot).or_default();
            *serial += 1;
            *serial
        });
        let used = self.keys.entry(session.request.key.clone()).or_default();
        let (retired_below, retired_except) = used.retired(sequence);
        let left = session.deadline.since(now);
        self.attempts.push(attempt, (sequence, ballot));
        session.unresolved.push(attempt);
        if let Some(ballot) = ballot {
            session.current = Some((attempt, ballot));
        }
        Some(ClientOperation {
            attempt,
            ballot,
            run: self.run,
            serial,
            retired_below,
            retired_except,
            id: session.id.clone(),
            horizon: session.horizon,
            patience_ms: u32::try_from(left.as_millis()).unwrap_or(u32::MAX),
            key: session.request.key.clone(),
            op: session.request.op.clone(),
            mode,
        })
    }

    /// Sends a read by way of the switch, if there is a switch and the read has not gone that way before. Returns whether it was sent: then
    /// nothing else is sent for now.
    fn spread(&mut self, ctx: &mut SessionContext<'_>, sequence: u64, owner: GroupId, ballot: TermBallot) -> bool {
        let (Some(session), Some(switch)) = (self.sessions.get_mut(sequence), ctx.switch) else { return false };
        let now = ctx.now.time;
        if let Spread::UnderWay(sent) = session.spread {
            ctx.harmonia.missed(sent, now);
            session.spread = Spread::Late(sent);
        }
        let Request { id, key, op, mode, .. } = &session.request;
        // A member leaves such a read to the primary, so it would only go round.
        let is_new = session.spread == Spread::Not && matches!(Requester::of(*id), Requester::Client(_));
        let is_fit = is_new && session.is_read() && *mode == ReadMode::Linearizable;
        if !is_fit || ballot.node == ctx.me || !ctx.harmonia.may_spread(ballot, key, now) {
            return false;
        }
        let tag = self.next_attempt.wrapping_add(1);
        let Some(bytes) = question(owner, ballot, key, op, tag, switch.here) else { return false };
        self.next_attempt = tag;
        ctx.harmonia.counts.sent += 1;
        ctx.outputs.push_back(Output::Packet { to: switch.at, bytes });
        self.attempts.push(tag, (sequence, None));
        session.unresolved.push(tag);
        session.spread = Spread::UnderWay(Sent { tag, group: owner, ballot, at: now });
        self.set_due(sequence, now + ctx.harmonia.patience());
        true
    }

    /// Handles the outcome of a read that went by way of the switch.
    pub(crate) fn on_spread(&mut self, ctx: &mut SessionContext<'_>, header: &Header, outcome: AttemptOutcome) {
        let tag = header.tag;
        let Some((sequence, None)) = self.attempts.get(tag).copied() else { return };
        let Some(session) = self.sessions.get_mut(sequence) else { return };
        let (Spread::UnderWay(sent) | Spread::Late(sent)) = session.spread else { return };
        // The answer to another question is no answer to this one.
        let is_its = names(header, sent.group, sent.ballot) && header.object == object(&session.request.key);
        if sent.tag != tag || !is_its {
            return;
        }
        let is_awaited = matches!(session.spread, Spread::UnderWay(_));
        session.spread = Spread::Over;
        ctx.harmonia.answered(sent, ctx.now.time);
        if matches!(outcome, AttemptOutcome::Unchanged(_)) {
            self.on_outcome(ctx, tag, outcome);
        } else if is_awaited {
            // The read arrived, but its answer does not fit into a packet, or cannot be sent in one: the ordinary way comes next.
            self.set_due(sequence, ctx.now.time);
            self.tick(ctx);
        }
    }

    fn finish(&mut self, ctx: &mut SessionContext<'_>, sequence: u64, result: Result<Answer, OpError>) {
        let Some(mut session) = self.sessions.remove(sequence) else { return };
        session.forget(sequence, &mut self.due);
        self.drop_heard();
        let key = session.request.key.clone();
        let may_stray = !session.is_read()
            && !session.unresolved.is_empty()
            && (result.is_ok() || session.unresolved.len() > 1)
            && matches!(session.id, OpId::Origin { .. });
        if let Some(used) = self.keys.get_mut(&key) {
            used.live.remove(sequence);
            used.leave(session.request.connection, sequence, session.before);
            if may_stray {
                used.stray.insert(sequence, session.horizon);
                self.strays.insert((session.horizon, sequence, key.clone()));
            }
            if used.live.is_empty() && used.stray.is_empty() {
                self.keys.remove(&key);
            }
        }
        for attempt in session.unresolved.iter() {
            self.attempts.remove(attempt);
        }
        ctx.reply(session.request.id, result);
        if let Some(before) = session.before.and_then(|before| self.sessions.get_mut(before)) {
            before.after = session.after;
        }
        if let Some(after) = session.after
            && let Some(next) = self.sessions.get_mut(after)
        {
            next.before = session.before;
            if session.before.is_none() && ctx.now.time < next.deadline {
                self.attempt(ctx, after);
            }
        }
    }

    /// Forgets the strays of horizons that the group of their key refuses now: they cannot be executed any more.
    fn forget_strays(&mut self, horizon: impl Fn(&Key) -> u64) {
        let over: Vec<_> = self.strays.iter().filter(|(first, _, key)| first + 2 <= horizon(key)).cloned().collect();
        for stray in over {
            self.strays.remove(&stray);
            let (_, sequence, key) = stray;
            if let Some(used) = self.keys.get_mut(&key) {
                used.stray.remove(&sequence);
                if used.live.is_empty() && used.stray.is_empty() {
                    self.keys.remove(&key);
                }
            }
        }
    }
}

impl Session {
    /// Returns whether the read is on its way by the switch, under this primary's ballot.
    fn is_spread_to(&self, primary: Option<TermBallot>) -> bool {
        matches!(self.spread, Spread::UnderWay(sent) if Some(sent.ballot) == primary)
    }

    /// Returns the pause before the next attempt, after a refusal.
    fn next_pause(&mut self) -> Duration {
        let pause = RETRY_FIRST * (1 << self.refused);
        self.refused = (self.refused + 1).min(RETRY_DOUBLINGS);
        pause
    }

    /// Takes the session out of `due`; an entry in `silent` becomes void.
    fn forget(&mut self, sequence: u64, due: &mut BTreeSet<(Time, u64)>) {
        if core::mem::replace(&mut self.noted, Noted::Nowhere) == Noted::Due {
            due.remove(&(self.due, sequence));
        }
    }

    fn is_read(&self) -> bool {
        matches!(self.request.op, Op::Read(_))
    }

    /// Returns whether an attempt may still change data, or may have changed it unseen, although the primary of `ballot` found neither this
    /// operation executed nor anything to change. It cannot if all attempts were made under earlier ballots: when that primary began to
    /// serve, it knew all writes that were chosen under those, and they choose nothing any more.
    fn may_yet_execute(&self, attempts: &Window<(u64, Option<TermBallot>)>, ballot: TermBallot) -> bool {
        let is_over = |attempt| match attempts.get(attempt) {
            Some((_, made_under)) => made_under.is_some_and(|made_under| made_under < ballot),
            None => self.unknown < Some(ballot),
        };
        !self.is_read() && !self.unresolved.iter().all(is_over)
    }

    /// Returns whether an attempt may have changed data, or may still do so.
    fn is_unresolved(&self) -> bool {
        !self.is_read() && !self.unresolved.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use group::op::Read;
    use group::record::LIVE_IDS_MAX;
    use overlay::{Incarnation, PeerKey};

    use super::*;
    use crate::api::{ConnectionId, RequestId};

    /// Returns the outputs of `act` at a node that is in no group.
    fn at_a_lonely_node(act: impl FnOnce(&mut SessionContext<'_>)) -> Vec<Output> {
        let mut outputs = VecDeque::new();
        let me = NodeId { peer: PeerKey([1; 32]), incarnation: Incarnation(1) };
        let (mut replicas, mut routing) = (LocalReplicas::default(), RoutingTable::default());
        let (mut switched, mut own_replies, mut answered) = (HarmoniaState::new(0), Vec::new(), 0);
        let mut ctx = SessionContext {
            now: Now::default(),
            replicas: &mut replicas,
            routing: &mut routing,
            outputs: &mut outputs,
            own_replies: &mut own_replies,
            answered: &mut answered,
            harmonia: &mut switched,
            switch: None,
            me,
        };
        act(&mut ctx);
        outputs.into()
    }

    /// Submits one operation at a node that is in no group; returns whether it was refused at once.
    fn is_refused(sessions: &mut Sessions, name: &str, op: Op) -> bool {
        let request = Request {
            id: RequestId(1),
            connection: ConnectionId(1),
            key: Key::new(name.as_bytes()).unwrap(),
            op,
            mode: ReadMode::Linearizable,
            patience: PATIENCE_MAX,
            once: None,
        };
        let outputs = at_a_lonely_node(|ctx| sessions.submit(ctx, request));
        matches!(outputs.first(), Some(Output::Reply { result: Err(OpError::TryAgain(Refusal::Busy)), .. }))
    }

    /// A primary answers that an earlier attempt was executed, and that its answer was too large to be kept.
    #[test]
    fn an_answer_that_was_not_kept_is_uncertain() {
        let mut sessions = Sessions::new(1);
        assert!(!is_refused(&mut sessions, "k", Op::Add(1)));
        let attempt = 1 << 40;
        sessions.attempts.push(attempt, (1, None));
        let answers = at_a_lonely_node(|ctx| sessions.on_outcome(ctx, attempt, AttemptOutcome::Done(Answer::NotKept)));
        assert!(matches!(answers[..], [Output::Reply { result: Err(OpError::Uncertain), .. }]), "{answers:?}");
    }

    #[test]
    fn with_too_many_strays_writes_are_refused() {
        let mut sessions = Sessions::new(1);
        let key = Key::new(b"full").unwrap();
        let strays = &mut sessions.keys.entry(key.clone()).or_default().stray;
        strays.extend((1..=2 * LIVE_IDS_MAX as u64).map(|sequence| (sequence, 1)));
        assert!(!is_refused(&mut sessions, "full", Op::Add(1)), "no key is closed by its own");
        sessions.strays = (1..=STRAYS_MAX as u64).map(|sequence| (1, sequence, key.clone())).collect();
        assert!(is_refused(&mut sessions, "other", Op::Add(1)));
        assert!(!is_refused(&mut sessions, "other", Op::Read(Read::Value)), "reads leave nothing behind");
        sessions.forget_strays(|_| 3);
        assert!(!is_refused(&mut sessions, "other", Op::Add(1)));
        assert!(!is_refused(&mut sessions, "full", Op::Add(1)));
    }
}
