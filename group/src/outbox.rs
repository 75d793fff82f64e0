//! What a group wants done, collected while it handles its inputs.
//!
//! What must not be said before it is durable is said by [`Outbox::send_after`]: it leaves when the store has
//! everything that was changed before.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use overlay::{Epoch, IntervalMap, Key, KeyRange, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::{Ballot, Slot, Term, TermBallot};
use crate::committee::Pass;
use crate::doubt::Doubt;
use crate::message::{Base, ClientMessage, Message, Operation, Outcome, Write};
use crate::number_set::NumberSet;
use crate::op::{Answer, OpError};
use crate::state::{Entry, GroupState};
use crate::transaction::dealer::Letter;

/// One thing to be remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durable {
    /// The group's state; replaces the last one.
    State(Box<GroupState>),
    /// The ballot promised in the log of an epoch; replaces the last one.
    LogPromised(Epoch, Option<Ballot>),
    /// An entry accepted; replaces what was accepted in that slot.
    LogAccepted(Slot, Ballot, Entry),
    /// Forget accepted entries up to this slot, or all.
    LogForget(Option<Slot>),
    /// What was promised to primaries; replaces the last map. About 75 bytes for each primary, once for each takeover.
    Promises(IntervalMap<Option<TermBallot>>),
    /// What stays as it is of a committee; replaces the last one of this ballot.
    Committee(CommitteeHead),
    /// What moves of a committee; replaces the last one of this ballot. With each batch, 18 bytes at a million writes
    /// (however many are in flight: they come in order), and 6 more for each gap that a lost message left.
    CommitteeProgress(TermBallot, NumberSet, Option<u64>),
    /// Forget a committee.
    CommitteeForget(TermBallot),
    /// A write accepted, not known to be chosen.
    Accepted(Write),
    /// The accepted writes of this term with these numbers (first to last) are chosen: they are their keys' records.
    Settle(Term, u64, u64),
    /// This accepted write is void, or overtaken.
    Void(Write),
    /// A tombstone that nobody needs any more.
    Purge(Key),
    /// A chosen record that came another way.
    Record(Write),
    /// What this member may have forgotten, or that it is sure to have all; replaces the last word on that.
    Doubt(Option<Doubt>),
}

/// What stays as it is of a committee at one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitteeHead {
    /// Which.
    pub ballot: TermBallot,
    /// Its sub-range.
    pub range: KeyRange,
    /// The base accepted.
    pub base: Option<Arc<Base>>,
    /// Pieces of the sub-range in which something chosen before the base is not held here.
    pub missing: Vec<KeyRange>,
}

/// Who waits for an operation's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// The peer that was asked by the client.
    pub origin: NodeId,
    /// Its count of attempts.
    pub attempt: u64,
}

/// What a group wants done, in this order.
#[derive(Clone, Debug)]
#[must_use]
pub enum GroupOutput {
    /// Say this to each of these nodes, never to oneself, as of this epoch.
    Send(Vec<NodeId>, Message, Epoch),
    /// Make these changes durable, together; answered by a call of `persisted` with the token.
    Persist(u64, Vec<Durable>),
    /// Look up a key's record; answered by `loaded`, also where it was asked for twice.
    Load {
        /// Whose.
        key: Key,
        /// An operation waits for it: before those that only catching up waits for.
        urgent: bool,
    },
    /// List records from there on, about so many bytes, and one at least; answered by `scanned`.
    Scan(u64, Bound<Key>, usize),
    /// An operation of this node's own came to this.
    Outcome(u64, crate::message::Outcome),
    /// Have this pass the switch, and come back by `passed`. It may be lost.
    Pass(Pass),
    /// Tell the switch that all it numbered for this ballot up to here is complete. It may be lost.
    Complete {
        /// Whose partition.
        ballot: TermBallot,
        /// The switch's id.
        switch: u32,
        /// Its number.
        number: u64,
    },
    /// A read that a switch sent here: the answer, or nothing where it is for the primary to answer.
    Read(u64, Option<Answer>),
    /// The group's state changed.
    Changed,
    /// Say this to the group that it names.
    Letter(Box<Letter>),
    /// The group has ended with a transaction: what comes of it is to begin as soon as all that the transaction touched are
    /// known to have ended.
    Ended,
    /// It has left for good, as it wanted: nobody needs it any more.
    Left,
    /// This incarnation is over: the group goes on without it; says why.
    Over(&'static str),
    /// This incarnation is over: its store lost something; says what.
    Lost(&'static str),
    /// This member serves its group no more, and takes no part in it, until its process starts again: a peer
    /// contradicted what is chosen. The text says which peer, and how.
    Halted(Box<str>),
    /// A line for the log.
    Note(Box<str>),
}

/// So many bytes about clients' operations fill a message: what follows goes into the next one.
const TALK_BYTES_MAX: usize = 64 << 10;

/// A message, its receivers, and the epoch in which it was meant.
type Addressed = (Vec<NodeId>, Message, Epoch);

/// What is said to one node about clients' operations, in one message for a drained batch.
#[derive(Clone, Debug)]
struct Talk {
    to: NodeId,
    bytes: usize,
    message: ClientMessage,
}

/// Collects outputs; see the module's text.
#[derive(Clone, Debug)]
pub struct Outbox {
    me: NodeId,
    durable: bool,
    ready: VecDeque<GroupOutput>,
    loopback: VecDeque<(Message, Epoch)>,
    /// What is said belongs to this epoch, also if it leaves in a later one: votes count where they were cast.
    epoch: Epoch,
    changes: Vec<Durable>,
    talks: Vec<Talk>,
    /// Follows the changes collected now.
    behind: Vec<GroupOutput>,
    /// Waits for the changes collected now.
    after: Vec<Addressed>,
    /// Waits for batches handed out; tokens ascend.
    waiting: VecDeque<(u64, Vec<Addressed>)>,
    next_token: u64,
    /// The highest token that is durable.
    persisted: u64,
    /// What was accepted since somebody last looked, if anybody looks.
    watched: Option<Vec<Write>>,
    /// Nothing is remembered any more.
    closed: bool,
    /// A peer contradicted what is chosen.
    halted: Option<Box<str>>,
}

impl Outbox {
    /// An empty one.
    pub fn new(me: NodeId, durable: bool) -> Outbox {
        Outbox {
            me,
            durable,
            ready: VecDeque::new(),
            loopback: VecDeque::new(),
            epoch: Epoch(0),
            changes: Vec::new(),
            talks: Vec::new(),
            behind: Vec::new(),
            after: Vec::new(),
            waiting: VecDeque::new(),
            next_token: 1,
            persisted: 0,
            watched: None,
            closed: false,
            halted: None,
        }
    }

    /// Says it at once. What goes to oneself is handled after everything that came before.
    pub fn send(&mut self, to: &[NodeId], message: Message) {
        self.send_as_of(to, message, self.epoch);
    }

    /// From now on this node is in this epoch.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    fn send_as_of(&mut self, to: &[NodeId], message: Message, epoch: Epoch) {
        let others: Vec<NodeId> = to.iter().copied().filter(|node| *node != self.me).collect();
        if others.len() < to.len() {
            self.loopback.push_back((message.clone(), epoch));
        }
        if !others.is_empty() {
            self.ready.push_back(GroupOutput::Send(others, message, epoch));
        }
    }

    /// Says it once everything that was changed so far is durable.
    pub fn send_after(&mut self, to: &[NodeId], message: Message) {
        if self.closed {
            return;
        }
        self.after.push((to.to_vec(), message, self.epoch));
    }

    /// Remembers this.
    pub fn persist(&mut self, change: Durable) {
        if self.durable && !self.closed {
            self.changes.push(change);
        }
    }

    /// Remembers nothing of what was changed and not handed out yet, nor anything from now on: on disk this life stands
    /// where it stood.
    pub fn close(&mut self) {
        self.closed = true;
        self.changes.clear();
        self.after.clear();
        self.behind.clear();
    }

    /// Whether nothing is remembered any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// A peer contradicted what is chosen: nothing more is remembered, or said that rests on what is. The first reason
    /// stays.
    pub(crate) fn halt(&mut self, why: Box<str>) {
        if self.halted.is_none() {
            self.halted = Some(why.clone());
            self.close();
            self.push(GroupOutput::Halted(why));
        }
    }

    /// Why this member serves its group no more, if it does not.
    pub(crate) fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// A write is accepted: remembered.
    pub fn accept(&mut self, write: &Write) {
        if let Some(watched) = &mut self.watched {
            watched.push(write.clone());
        }
        self.persist(Durable::Accepted(write.clone()));
    }

    /// Notes what is accepted from now on, for checks; returns what was noted so far.
    pub fn watch(&mut self) -> Vec<Write> {
        self.watched.replace(Vec::new()).unwrap_or_default()
    }

    /// Wants something done that needs no waiting.
    pub fn push(&mut self, output: GroupOutput) {
        self.ready.push_back(output);
    }

    /// Wants something done of the store that must see everything that was changed so far.
    pub fn push_behind(&mut self, output: GroupOutput) {
        self.behind.push(output);
    }

    /// Says to a client of this node's, or to another node's, what came of an attempt.
    pub fn outcome(&mut self, attempt: Attempt, outcome: Outcome) {
        if attempt.origin == self.me {
            return self.push(GroupOutput::Outcome(attempt.attempt, outcome));
        }
        let bytes = outcome.bytes();
        self.talk(attempt.origin, bytes, |message| message.outcomes.push((attempt.attempt, outcome)));
    }

    /// As [`Outbox::outcome`], for an attempt that had no effect.
    pub fn refuse(&mut self, attempt: Attempt, error: OpError) {
        self.outcome(attempt, Outcome::Refused(error));
    }

    /// Asks another node to do this.
    pub fn ask(&mut self, primary: NodeId, operation: Operation) {
        let bytes = operation.bytes();
        self.talk(primary, bytes, |message| message.operations.push(operation));
    }

    /// Adds to what is said to a node about clients' operations with the next flush, or at once where that is much.
    fn talk(&mut self, to: NodeId, bytes: usize, add: impl FnOnce(&mut ClientMessage)) {
        let index = self.talks.iter().position(|talk| talk.to == to).unwrap_or_else(|| {
            self.talks.push(Talk { to, bytes: 0, message: ClientMessage::default() });
            self.talks.len() - 1
        });
        let talk = &mut self.talks[index];
        talk.bytes += bytes;
        add(&mut talk.message);
        if talk.bytes >= TALK_BYTES_MAX {
            let talk = self.talks.swap_remove(index);
            self.send(&[talk.to], Message::Client(talk.message));
        }
    }

    /// The store has everything up to this token.
    pub fn persisted(&mut self, token: u64) {
        self.persisted = self.persisted.max(token);
        while self.waiting.front().is_some_and(|(token, _)| *token <= self.persisted) {
            let (_, messages) = self.waiting.pop_front().expect("just seen");
            for (to, message, epoch) in messages {
                self.send_as_of(&to, message, epoch);
            }
        }
    }

    /// How many batches are not durable yet.
    pub fn batches_waiting(&self) -> u64 {
        self.next_token - 1 - self.persisted
    }

    /// Whether everything that was changed so far is durable, and no message waits for that.
    pub fn is_durable(&self) -> bool {
        !self.closed && self.changes.is_empty() && self.after.is_empty() && self.batches_waiting() == 0
    }

    /// Are there changes that the store has not been given yet?
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Hands the changes collected so far to the store; was there anything to do?
    pub fn flush(&mut self) -> bool {
        for talk in core::mem::take(&mut self.talks) {
            self.send(&[talk.to], Message::Client(talk.message));
        }
        if self.changes.is_empty() && self.after.is_empty() && self.behind.is_empty() {
            return false;
        }
        let after = core::mem::take(&mut self.after);
        if !self.changes.is_empty() {
            let token = self.next_token;
            self.next_token += 1;
            self.ready.push_back(GroupOutput::Persist(token, core::mem::take(&mut self.changes)));
        }
        self.ready.extend(self.behind.drain(..));
        if self.batches_waiting() == 0 {
            for (to, message, epoch) in after {
                self.send_as_of(&to, message, epoch);
            }
        } else if !after.is_empty() {
            self.waiting.push_back((self.next_token - 1, after));
        }
        true
    }

    /// Is there anything to poll?
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty() || !self.loopback.is_empty()
    }

    /// The next message to oneself.
    pub fn poll_loopback(&mut self) -> Option<(Message, Epoch)> {
        self.loopback.pop_front()
    }

    /// The next thing to do.
    pub fn poll_ready(&mut self) -> Option<GroupOutput> {
        self.ready.pop_front()
    }
}
