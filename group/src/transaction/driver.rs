//! The leader's part in transactions: the groups that it asks, tells and answers, and the entry that it proposes next.
//!
//! All of this state can be lost with the leader at any moment: the next leader finds the open transactions in the log, and asks and tells
//! anew. Each message names its transaction and is answered from the log, however often and whenever it comes.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Contact, Epoch, GroupId, GroupRef, KeyRange, NodeId};
use serde::{Deserialize, Serialize};

use crate::config::Defect;
use crate::control::agreed::AgreedPolicies;
use crate::control::health::Health;
use crate::transaction::plan::{Plan, View};
use crate::transaction::state::{Decision, Own, TransactionEntry, TransactionState};
use crate::transaction::{Outcome, TransactionId, Vote};
use overlay::time::Time;

/// Time after which a message without an answer is repeated.
pub const SAID_AGAIN: Duration = Duration::from_millis(300);
/// Time after which a transaction without all votes is aborted.
pub const VOTES_PATIENCE: Duration = Duration::from_secs(3);
/// Time after which a group that voted asks for the outcome.
pub const OUTCOME_PATIENCE: Duration = Duration::from_secs(1);
/// Upper limit of the time for which an older transaction waits for a younger one that this group voted for.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two messages that tell a neighbour about this group, although it knows: a group that was cut off, and is a neighbour no
/// more, learns that way.
const PROBED_AGAIN: Duration = Duration::from_secs(1);
/// Time without any message of a neighbour after which its loss may be agreed to.
const SILENT_FOR: Duration = Duration::from_millis(3_500);
/// Age after which a neighbour's health is forgotten.
const HEALTH_AGE_MAX: Duration = Duration::from_secs(4);
/// Upper limit of entries that wait for their turn; further entries are dropped, and the groups that want them repeat their messages.
const WANTED_MAX: usize = 64;

/// Message between two groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupMessage {
    /// The coordinator asks for a vote.
    Prepare(TransactionId, Box<Plan>),
    /// Vote of a participant.
    Vote(TransactionId, Vote),
    /// Outcome.
    Decision(TransactionId, Outcome),
    /// The sender knows the outcome.
    End(TransactionId),
    /// A group that voted, and waits, asks for the outcome.
    Question(TransactionId),
    /// The sender as it is now, with its neighbours; whether it wants to know the same of the receiver; and the sender's health.
    Push(Box<View>, bool, Box<Health>),
    /// The sender knows the receiver as of this epoch.
    Known(Epoch),
}

impl GroupMessage {
    /// Returns whether this message is repeated until it is answered, however long that takes.
    pub fn is_said_again(&self) -> bool {
        matches!(
            self,
            GroupMessage::Decision(_, Outcome::Commit)
                | GroupMessage::Question(_)
                | GroupMessage::Push(..)
                | GroupMessage::Known(Epoch(0))
        )
    }
}

/// Message from one group to another, with its sender and receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEnvelope {
    /// Group in whose name the message is sent, which may be a former one.
    pub from: GroupId,
    /// Group that sends the message and gets the answer; its leader comes first among its members.
    pub by: GroupRef,
    /// Receiving group, where it was known last, or the members of it that are told.
    pub to: GroupRef,
    /// Content.
    pub message: GroupMessage,
}

/// One of the two neighbours, as the leader has heard it.
#[derive(Clone, Debug, Default)]
struct Beside {
    /// Id of the neighbour.
    id: Option<GroupId>,
    /// Epoch of this group as of which the neighbour knows this group.
    knows: Option<Epoch>,
    /// The neighbour as it describes itself, with its own neighbours.
    view: Option<View>,
    /// Health of the neighbour, and when the neighbour told it.
    health: Option<(Time, Box<Health>)>,
    /// Time at which the neighbour was last told of this group.
    told: Option<Time>,
    /// Member that last spoke for the neighbour.
    speaker: Option<NodeId>,
    /// Time of the neighbour's last message, or else the time at which this leader began to listen.
    heard: Time,
}

impl Beside {
    /// Returns whether the neighbour lacks knowledge of this group, or this group of the neighbour.
    fn lacks(&self, link: &GroupRef, own: Epoch, policies: &AgreedPolicies) -> bool {
        self.id != Some(link.id) || self.knows < Some(own) || !self.is_seen(link) || self.is_behind(policies)
    }

    /// Returns whether the neighbour's policies are lower than these.
    fn is_behind(&self, policies: &AgreedPolicies) -> bool {
        self.health.as_ref().is_some_and(|(_, health)| health.policies < *policies)
    }

    /// Returns when the neighbour is to be told next about this group.
    fn due(&self, link: &GroupRef, own: Epoch, policies: &AgreedPolicies) -> Time {
        let wait = if self.lacks(link, own, policies) { SAID_AGAIN } else { PROBED_AGAIN };
        self.told.map_or(Time(0), |told| told + wait)
    }

    /// Returns whether the neighbour has described itself and its own neighbours since this leader leads.
    fn is_seen(&self, link: &GroupRef) -> bool {
        self.view.as_ref().is_some_and(|view| view.own.id == link.id && view.own.epoch >= link.epoch)
    }
}

/// The leader's part in transactions.
#[derive(Clone, Debug, Default)]
pub struct TransactionDriver {
    wanted: VecDeque<TransactionEntry>,
    /// Open transaction of this group, the time since which it is known to be open, the time of the last question to its participants, and
    /// the votes.
    open: Option<(TransactionId, Plan)>,
    began: Option<Time>,
    asked: Option<Time>,
    votes: BTreeMap<GroupId, Vote>,
    /// For each foreign transaction: the time since which this group waits for the outcome, and the time of the last question.
    waits: BTreeMap<TransactionId, (Time, Time)>,
    /// Time at which each group that must know of a commit was last told.
    told: BTreeMap<(TransactionId, GroupId), Time>,
    beside: [Beside; 2],
    /// The node that leads.
    me: Option<NodeId>,
    /// Health of this group, which neighbours are told.
    pub(crate) health: Health,
    /// Time of the last tick.
    now: Time,
    envelopes: Vec<GroupEnvelope>,
    /// Number of picks of members that are told, see `two_of`.
    turns: u64,
}

impl TransactionDriver {
    /// Returns the state for a node that has come to lead.
    pub fn of(me: NodeId) -> TransactionDriver {
        TransactionDriver { me: Some(me), ..TransactionDriver::default() }
    }

    /// Takes the messages to send.
    pub fn take_envelopes(&mut self) -> Vec<GroupEnvelope> {
        core::mem::take(&mut self.envelopes)
    }

    /// Takes the entry to propose next, if it is still of use, and not too early.
    pub fn take_wanted(
        &mut self,
        own: &Own,
        transactions: &TransactionState,
        is_due: impl Fn(&TransactionEntry) -> bool,
    ) -> Option<TransactionEntry> {
        self.wanted.retain(|entry| is_of_use(own, transactions, entry));
        self.give_way(own, transactions);
        let first = self.wanted.iter().position(is_due)?;
        self.wanted.remove(first)
    }

    /// Returns a neighbour as it described itself, with its own neighbours: the basis of a plan for both groups. `None` until it has
    /// described itself since this leader leads, or where the log knows a later epoch.
    pub fn view_of(&self, link: &GroupRef) -> Option<&View> {
        let views = self.beside.iter().filter_map(|beside| beside.view.as_ref());
        views.filter(|view| view.own.id == link.id && view.own.epoch >= link.epoch).max_by_key(|view| view.own.epoch)
    }

    /// Returns the health of a neighbour as its leader told it recently, with the neighbour's range.
    pub fn health_of(&self, link: &GroupRef, now: Time) -> Option<(KeyRange, &Health)> {
        let is_now = |view: &View| view.own.id == link.id && view.own.epoch == link.epoch;
        self.beside.iter().find_map(|beside| {
            let view = beside.view.as_ref().filter(|view| is_now(view))?;
            let (told, health) = beside.health.as_ref()?;
            (now.since(*told) <= HEALTH_AGE_MAX).then_some((view.own.range, &**health))
        })
    }

    /// Returns the greatest policies that a neighbour told and to which these own ones give way.
    pub(crate) fn heard_policies(&self, own: &AgreedPolicies) -> Option<&AgreedPolicies> {
        let heard = self.beside.iter().filter_map(|beside| Some(&beside.health.as_ref()?.1.policies));
        heard.filter(|heard| own.gives_way_to(heard)).max()
    }

    /// Returns whether this neighbour told recently that its groups are to have the same sizes.
    pub(crate) fn has_same_sizes(&self, link: &GroupRef) -> bool {
        let mut told = self.beside.iter().filter(|beside| beside.id == Some(link.id));
        let own = &self.health.policies;
        told.any(|beside| beside.health.as_ref().is_some_and(|(_, health)| !health.policies.has_other_sizes(own)))
    }

    /// Asks the neighbours anew to describe themselves, because their descriptions may be old: with the next tick, unless they were asked a
    /// moment ago.
    pub fn look_again(&mut self) {
        let now = self.now;
        for beside in &mut self.beside {
            beside.view = None;
            beside.told = beside.told.filter(|told| now.since(*told) < SAID_AGAIN / 3);
        }
    }

    /// Returns whether each of these neighbours knows this group as it was in the epoch `since` or in a later one.
    pub fn is_known(&self, since: Epoch, transactions: &TransactionState, which: impl Fn(GroupId) -> bool) -> bool {
        let is_known = |link: &GroupRef| {
            self.beside.iter().any(|beside| beside.id == Some(link.id) && beside.knows >= Some(since))
        };
        transactions.neighbours().filter(|link| which(link.id)).all(is_known)
    }

    /// Returns whether no message has come for a while from the neighbours that are on this list.
    pub fn are_silent(&self, lost: &[GroupId]) -> bool {
        let mut beside = self.beside.iter().filter(|beside| beside.id.is_some_and(|id| lost.contains(&id))).peekable();
        let listens = lost.is_empty() || beside.peek().is_some();
        listens && beside.all(|beside| self.now.since(beside.heard) >= SILENT_FOR)
    }

    /// Handles a message to this group, or to a former one for which it answers. `me`: this group as other groups should know it.
    pub fn on_envelope(&mut self, own: &Own, me: &GroupRef, transactions: &TransactionState, envelope: GroupEnvelope) {
        let GroupEnvelope { from, by, to, message } = envelope;
        // A member that hears no member of its own group sends this, and the message is no sign of life.
        if message != GroupMessage::Known(Epoch(0)) {
            for beside in self.beside.iter_mut().filter(|beside| beside.id == Some(from)) {
                beside.heard = self.now;
                beside.speaker = by.nodes().next().filter(|_| by.id == from);
            }
        }
        if to.id != own.id {
            if transactions.is_heir_of(to.id) {
                self.answer_for(to.id, own, me, transactions, (from, by), message);
            }
            return;
        }
        match message {
            GroupMessage::Prepare(id, plan) => self.on_prepare(own, me, transactions, id, plan),
            GroupMessage::Vote(id, vote) => self.on_vote(own, me, transactions, from, (id, vote)),
            GroupMessage::Decision(id, outcome) => match (transactions.vote(id), outcome) {
                (Some(Vote::Yes), Outcome::Commit) if transactions.is_touched(own, id) => {
                    self.want(TransactionEntry::Ending(id));
                }
                (Some(Vote::Yes), _) | (None, Outcome::Abort) => self.want(TransactionEntry::Decided(id, outcome)),
                (Some(Vote::No), Outcome::Commit) => self.say(own.id, me, &by, GroupMessage::End(id)),
                (Some(Vote::No), Outcome::Abort) | (None, Outcome::Commit) => {}
            },
            GroupMessage::End(id) => self.want(TransactionEntry::Ended(id, from)),
            GroupMessage::Question(id) => self.on_question(own, me, transactions, &by, id),
            GroupMessage::Push(view, asks, health) => self.on_push(own, me, transactions, &by, *view, (asks, health)),
            GroupMessage::Known(epoch) => {
                for beside in self.beside.iter_mut().filter(|beside| beside.id == Some(from)) {
                    beside.knows = beside.knows.max(Some(epoch));
                }
            }
        }
    }

    /// Answers for a former group, which learned the outcome of every transaction that it had voted for.
    fn answer_for(
        &mut self,
        gone: GroupId,
        own: &Own,
        me: &GroupRef,
        transactions: &TransactionState,
        (from, by): (GroupId, GroupRef),
        message: GroupMessage,
    ) {
        match message {
            GroupMessage::Prepare(id, _) => self.say(gone, me, &by, GroupMessage::Vote(id, Vote::No)),
            GroupMessage::Decision(id, Outcome::Commit) => self.say(gone, me, &by, GroupMessage::End(id)),
            GroupMessage::End(id) => self.want(TransactionEntry::Ended(id, from)),
            GroupMessage::Question(id) => self.on_question(own, me, transactions, &by, id),
            _ => {}
        }
    }

    fn on_question(
        &mut self,
        own: &Own,
        me: &GroupRef,
        transactions: &TransactionState,
        by: &GroupRef,
        id: TransactionId,
    ) {
        if let Some(outcome) = transactions.outcome(own, id) {
            self.say(id.group, me, by, GroupMessage::Decision(id, outcome));
        }
    }

    fn on_prepare(
        &mut self,
        own: &Own,
        me: &GroupRef,
        transactions: &TransactionState,
        id: TransactionId,
        plan: Box<Plan>,
    ) {
        if let Some(vote) = transactions.vote(id) {
            return self.say(own.id, me, plan.coordinator(), GroupMessage::Vote(id, vote));
        }
        if let Some(younger) = self.waits_for(own, transactions, id, &plan) {
            return self.give_up(transactions, younger);
        }
        if own.defects.has(Defect::VoteBeforeChosen) {
            self.say(own.id, me, plan.coordinator(), GroupMessage::Vote(id, Vote::Yes));
        }
        self.want(TransactionEntry::Asked(id, plan));
    }

    /// Returns a younger transaction that holds locks of this one (see [`TransactionState::younger_holder`]), if this one is to wait for it
    /// and not to be refused. If the younger one is the group's own, it is given up. A younger one of another group ends soon, because it is
    /// refused wherever an older one holds a lock. No answer is sent meanwhile, and the coordinator asks again. Only older transactions wait
    /// for younger ones, so they do not wait for each other. The oldest of all is refused nowhere (hazard 34), except where the younger one's
    /// coordinator seems to be lost.
    fn waits_for(
        &self,
        own: &Own,
        transactions: &TransactionState,
        id: TransactionId,
        plan: &Plan,
    ) -> Option<TransactionId> {
        let is_open_for_long = |younger: &TransactionId| {
            self.waits.get(younger).is_some_and(|(since, _)| self.now.since(*since) >= LOCK_PATIENCE)
        };
        transactions.younger_holder(own, id, plan).filter(|younger| !is_open_for_long(younger))
    }

    /// Gives up the younger transaction where it is the group's own.
    fn give_up(&mut self, transactions: &TransactionState, younger: TransactionId) {
        if transactions.coordinates().is_some_and(|(open, _)| open == younger) {
            self.want(TransactionEntry::Outcome(younger, Outcome::Abort));
        }
    }

    /// Removes entries that must wait for a younger transaction. A transaction that this group began while other groups asked it is in the
    /// log by now, perhaps before theirs.
    fn give_way(&mut self, own: &Own, transactions: &TransactionState) {
        let mut wanted = core::mem::take(&mut self.wanted);
        let mut younger = Vec::new();
        wanted.retain(|entry| {
            let TransactionEntry::Asked(id, plan) = entry else { return true };
            let waits_for = self.waits_for(own, transactions, *id, plan);
            younger.extend(waits_for);
            waits_for.is_none()
        });
        self.wanted = wanted;
        younger.into_iter().for_each(|younger| self.give_up(transactions, younger));
    }

    fn on_vote(
        &mut self,
        own: &Own,
        me: &GroupRef,
        transactions: &TransactionState,
        from: GroupId,
        (id, vote): (TransactionId, Vote),
    ) {
        let is_meant = |open: TransactionId| open == id || own.defects.has(Defect::AnyAttempt);
        let Some((open, plan)) = transactions.coordinates().filter(|(open, _)| is_meant(*open)) else { return };
        if plan.party(from).is_none() {
            return;
        }
        self.follow(open, plan);
        // A group votes once. A vote that says otherwise is wrong, and a refusal harms no group.
        let known = self.votes.entry(from).or_insert(vote);
        if vote == Vote::No {
            *known = Vote::No;
        }
        self.decide(own, me, open, plan);
    }

    /// Follows this open transaction from now on.
    fn follow(&mut self, id: TransactionId, plan: &Plan) {
        if self.open.as_ref().is_none_or(|(open, _)| *open != id) {
            self.open = Some((id, plan.clone()));
            self.votes.clear();
            (self.began, self.asked) = (None, None);
        }
    }

    fn decide(&mut self, own: &Own, me: &GroupRef, id: TransactionId, plan: &Plan) {
        if self.votes.values().any(|vote| *vote == Vote::No) {
            self.want(TransactionEntry::Outcome(id, Outcome::Abort));
        } else if plan.asked().all(|party| self.votes.contains_key(&party.group.id))
            || own.defects.has(Defect::OneVote) && !self.votes.is_empty()
        {
            if own.defects.has(Defect::OutcomeBeforeChosen) {
                plan.asked()
                    .for_each(|party| self.say(own.id, me, &party.group, GroupMessage::Decision(id, Outcome::Commit)));
            }
            self.want(TransactionEntry::Outcome(id, Outcome::Commit));
        }
    }

    fn on_push(
        &mut self,
        own: &Own,
        me: &GroupRef,
        transactions: &TransactionState,
        by: &GroupRef,
        view: View,
        (asks, health): (bool, Box<Health>),
    ) {
        let links = [transactions.predecessor(), transactions.successor()];
        for (link, beside) in links.into_iter().zip(&mut self.beside) {
            let Some(link) = link.filter(|link| link.id == view.own.id) else { continue };
            if beside.id != Some(link.id) {
                let speaker = by.nodes().next();
                *beside = Beside { id: Some(link.id), heard: self.now, speaker, ..Beside::default() };
            }
            if beside.view.as_ref().is_none_or(|known| known.own.epoch <= view.own.epoch) {
                beside.view = Some(view.clone());
                beside.health = Some((self.now, health.clone()));
            }
        }
        if transactions.is_mended_by(own, &view.own) {
            return self.want(TransactionEntry::Neighbour(view.own));
        }
        let is_link = |link: &&GroupRef| link.id == view.own.id;
        let Some(link) = links.into_iter().flatten().find(is_link) else { return };
        // If neither of these two members hears the answer, the neighbour asks again.
        let to = two_of(by, by.nodes().next(), self.turn());
        if asks {
            let mine = transactions.view(me);
            self.say(own.id, me, &to, GroupMessage::Push(Box::new(mine), false, Box::new(self.health.clone())));
        }
        let newer = link.epoch <= view.own.epoch || own.defects.has(Defect::ByArrival);
        if newer && *link != view.own {
            self.want(TransactionEntry::Neighbour(view.own));
        } else if link.epoch == view.own.epoch {
            self.say(own.id, me, &to, GroupMessage::Known(view.own.epoch));
        }
    }

    /// Returns another number each time. Of every second or third of these numbers, too, no remainder is left out.
    fn turn(&mut self) -> usize {
        self.turns = self.turns.wrapping_add(1);
        (self.turns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize
    }

    /// Does all that is due: after an entry was applied, when this node comes to lead, and from time to time. `me`: this group as other
    /// groups should know it.
    pub fn tick(&mut self, own: &Own, me: &GroupRef, transactions: &TransactionState, now: Time) {
        self.now = now;
        self.coordinate(own, me, transactions, now);
        self.ask_outcomes(me, transactions, now);
        self.tell_outcomes(me, transactions, now);
        self.tell_neighbours(me, transactions, now);
    }

    /// Returns when [`TransactionDriver::tick`] may have to be called next.
    pub fn next_timeout(&self, own: &Own, transactions: &TransactionState) -> Time {
        let again = |said: Option<&Time>| said.map_or(Time(0), |said| *said + SAID_AGAIN);
        let coordinates = transactions.coordinates().map(|_| again(self.asked.as_ref()));
        let waits = transactions
            .voted()
            .map(|(id, _)| self.waits.get(&id).map_or(Time(0), |(_, asked)| *asked + OUTCOME_PATIENCE));
        let told = self.told.values().map(|told| again(Some(told)));
        let links = [transactions.predecessor(), transactions.successor()].into_iter().zip(&self.beside);
        let pushes = links.filter_map(|(link, beside)| Some(beside.due(link?, own.epoch, &self.health.policies)));
        coordinates.into_iter().chain(waits).chain(told).chain(pushes).min().unwrap_or(Time::NEVER)
    }

    fn coordinate(&mut self, own: &Own, me: &GroupRef, transactions: &TransactionState, now: Time) {
        let open = transactions.coordinates();
        if let Some((over, plan)) = self.open.take_if(|(known, _)| open.is_none_or(|(id, _)| id != *known)) {
            // A participant that misses this will ask. The basis of the plan may be the reason, so the neighbours are asked for it anew.
            if transactions.outcome(own, over) == Some(Outcome::Abort) {
                self.look_again();
                for party in plan.asked() {
                    self.say(own.id, me, &party.group, GroupMessage::Decision(over, Outcome::Abort));
                }
            }
        }
        let Some((id, plan)) = open else { return };
        self.follow(id, plan);
        if now.since(*self.began.get_or_insert(now)) >= VOTES_PATIENCE {
            return self.want(TransactionEntry::Outcome(id, Outcome::Abort));
        }
        if self.asked.is_none_or(|asked| now.since(asked) >= SAID_AGAIN) {
            self.asked = Some(now);
            let silent = plan.asked().filter(|party| !self.votes.contains_key(&party.group.id));
            for party in silent.map(|party| party.group.clone()).collect::<Vec<_>>() {
                self.say(own.id, me, &party, GroupMessage::Prepare(id, Box::new(plan.clone())));
            }
        }
        self.decide(own, me, id, plan);
    }

    fn ask_outcomes(&mut self, me: &GroupRef, transactions: &TransactionState, now: Time) {
        self.waits.retain(|id, _| transactions.voted().any(|(voted, _)| voted == *id));
        for (id, plan) in transactions.voted() {
            let (since, message) = match self.waits.get(&id) {
                None => (now, GroupMessage::Vote(id, Vote::Yes)),
                Some((since, asked)) if now.since(*asked) >= OUTCOME_PATIENCE => (*since, GroupMessage::Question(id)),
                Some(_) => continue,
            };
            self.waits.insert(id, (since, now));
            self.say(me.id, me, plan.coordinator(), message);
        }
    }

    /// Tells commits to all participants that have not confirmed that they know.
    pub fn tell_outcomes(&mut self, me: &GroupRef, transactions: &TransactionState, now: Time) {
        let due = |decision: &Decision, group: &GroupId| decision.unconfirmed.contains(group);
        self.told
            .retain(|(id, group), _| transactions.decided().iter().any(|known| known.id == *id && due(known, group)));
        for decision in transactions.decided() {
            for party in decision.unconfirmed.iter().filter_map(|group| decision.plan.party(*group)) {
                let told = self.told.get(&(decision.id, party.group.id));
                if told.is_none_or(|told| now.since(*told) >= SAID_AGAIN) {
                    self.told.insert((decision.id, party.group.id), now);
                    self.say(decision.id.group, me, &party.group, GroupMessage::Decision(decision.id, Outcome::Commit));
                }
            }
        }
    }

    fn tell_neighbours(&mut self, me: &GroupRef, transactions: &TransactionState, now: Time) {
        let links = [transactions.predecessor(), transactions.successor()];
        for (index, link) in links.into_iter().enumerate() {
            let turn = self.turn();
            let beside = &mut self.beside[index];
            if beside.id != link.map(|link| link.id) {
                *beside = Beside { id: link.map(|link| link.id), heard: now, ..Beside::default() };
            }
            if let Some(link) = link
                && beside.due(link, me.epoch, &self.health.policies) <= now
            {
                // The neighbour reports policies that it has taken over when it is asked.
                let asks = !beside.is_seen(link) || beside.is_behind(&self.health.policies);
                beside.told = Some(now);
                let lacks = beside.lacks(link, me.epoch, &self.health.policies);
                let to = if lacks { link.clone() } else { two_of(link, beside.speaker, turn) };
                self.say(
                    me.id,
                    me,
                    &to,
                    GroupMessage::Push(Box::new(transactions.view(me)), asks, Box::new(self.health.clone())),
                );
            }
        }
    }

    fn want(&mut self, entry: TransactionEntry) {
        if self.wanted.len() < WANTED_MAX && !self.wanted.contains(&entry) {
            self.wanted.push_back(entry);
        }
    }

    fn say(&mut self, from: GroupId, me: &GroupRef, to: &GroupRef, message: GroupMessage) {
        let mut by = me.clone();
        if let Some(first) = by.members.iter().position(|contact| Some(contact.node) == self.me) {
            by.members[..=first].rotate_right(1);
        }
        self.envelopes.push(GroupEnvelope { from, by, to: to.clone(), message });
    }
}

/// Returns a group with only two of its members: the one that speaks for it, and another one, a different one each time, that informs the
/// present leader. Returns all members where it is not known which one speaks.
fn two_of(group: &GroupRef, speaker: Option<NodeId>, turn: usize) -> GroupRef {
    let mut others: Vec<&Contact> = group.members.iter().collect();
    let Some(first) = others.iter().position(|contact| Some(contact.node) == speaker) else { return group.clone() };
    let first = others.remove(first);
    let second = others.get(turn % others.len().max(1)).copied();
    let members = core::iter::once(first).chain(second).cloned().collect();
    GroupRef { id: group.id, epoch: group.epoch, range: group.range, members }
}

/// Returns whether the application of this entry would have an effect.
fn is_of_use(own: &Own, transactions: &TransactionState, entry: &TransactionEntry) -> bool {
    match entry {
        TransactionEntry::Begin(plan) => transactions.refuses_begin(own, plan).is_none(),
        TransactionEntry::Asked(id, _) => transactions.vote(*id).is_none(),
        TransactionEntry::Outcome(id, _) => transactions.coordinates().is_some_and(|(open, _)| open == *id),
        TransactionEntry::Decided(id, _) => transactions.vote(*id) != Some(Vote::No),
        TransactionEntry::Ending(id) => transactions.is_touched(own, *id),
        TransactionEntry::Ended(id, group) => {
            transactions.decided().iter().any(|known| known.id == *id && known.unconfirmed.contains(group))
        }
        TransactionEntry::Neighbour(group) => {
            let links = [transactions.predecessor(), transactions.successor()];
            let newest = own.defects.has(Defect::ByArrival);
            let is_new = |link: &GroupRef| (link.epoch <= group.epoch || newest) && link != group;
            transactions.is_mended_by(own, group)
                || links.into_iter().flatten().any(|link| link.id == group.id && is_new(link))
        }
    }
}
