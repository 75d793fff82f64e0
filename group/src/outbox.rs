//! Outputs of a group, collected while it handles its inputs.
//!
//! A message that rests on data which must be durable first goes through [`Outbox::send_after`]: it leaves when the store has everything
//! that was changed before.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use overlay::{Epoch, IntervalMap, Key, KeyRange, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::{Ballot, LogSlot, Term, TermBallot};
use crate::control::recovery::doubt::Doubt;
use crate::control::state::{Entry, GroupState};
use crate::harmonia::WritePass;
use crate::message::{AttemptOutcome, Base, ClientMessage, ClientOperation, Message, Write};
use crate::number_set::NumberSet;
use crate::op::{Answer, OpError};
use crate::transaction::driver::GroupEnvelope;

/// Change that the store must make durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durable {
    /// The group's state; replaces the last one.
    State(Box<GroupState>),
    /// Ballot promised in the log of an epoch; replaces the last one.
    LogPromised(Epoch, Option<Ballot>),
    /// Accepted entry; replaces the one accepted before in that slot.
    LogAccepted(LogSlot, Ballot, Entry),
    /// Forgets accepted entries up to this slot, or all.
    LogForget(Option<LogSlot>),
    /// Promises to primaries; replaces the last map. About 75 bytes for each primary, once for each takeover.
    Promises(IntervalMap<Option<TermBallot>>),
    /// Fixed part of a committee; replaces the last one of this ballot.
    Committee(CommitteeHead),
    /// Progress of a committee; replaces the last one of this ballot. With each batch, 18 bytes at a million writes (however many are in
    /// flight: they come in order), and 6 more for each gap that a lost message left.
    CommitteeProgress(TermBallot, NumberSet, Option<u64>),
    /// Forgets a committee.
    CommitteeForget(TermBallot),
    /// Accepted write that is not known to be chosen.
    Accepted(Write),
    /// The accepted writes of this term with these numbers (first to last) are chosen: they are now their keys' records.
    Settle(Term, u64, u64),
    /// Accepted write that is void or overtaken.
    Void(Write),
    /// Removes a tombstone that no member needs any more.
    Purge(Key),
    /// Chosen record that came another way.
    Record(Write),
    /// Acknowledgements that this member may have forgotten, or `None` if none; replaces the last one.
    Doubt(Option<Doubt>),
}

/// Fixed part of a committee at one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitteeHead {
    /// Ballot of the committee.
    pub ballot: TermBallot,
    /// Sub-range of the committee.
    pub range: KeyRange,
    /// Base that the member accepted.
    pub base: Option<Arc<Base>>,
    /// Pieces of the sub-range in which the member lacks something that was chosen before the base.
    pub missing: Vec<KeyRange>,
}

/// Attempt that waits for an operation's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// Peer that the client asked.
    pub origin: NodeId,
    /// Count of that peer's attempts.
    pub attempt: u64,
}

/// Token of a batch of changes to the store. Each replica counts its own batches, and tokens rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchToken(pub u64);

/// Token of one listing of stored records. Each replica names its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanToken(pub u64);

/// Output of a group; the driver executes them in this order.
#[derive(Clone, Debug)]
#[must_use]
pub enum GroupOutput {
    /// Send this message, as of this epoch, to each of these nodes; this node is never among them.
    Send(Vec<NodeId>, Message, Epoch),
    /// Make these changes durable, together; answered by a call of `persisted` with the token.
    Persist(BatchToken, Vec<Durable>),
    /// Look up a key's record; answered by `loaded`, once for each request.
    Load {
        /// Key of the record.
        key: Key,
        /// Whether an operation waits for it: such lookups come before those for catching up.
        urgent: bool,
    },
    /// List records from this key on, about this many bytes, and at least one; answered by `scanned`.
    Scan(ScanToken, Bound<Key>, usize),
    /// Outcome of an operation of this node's own, for its attempt.
    Outcome(u64, crate::message::AttemptOutcome),
    /// Send this pass through the switch, from where it comes back by `passed`. It may be lost.
    Pass(WritePass),
    /// Tell the switch that all writes which it numbered for this ballot up to this number are complete. It may be lost.
    Complete {
        /// Ballot of the partition's primary.
        ballot: TermBallot,
        /// Id of the switch.
        switch: u32,
        /// Last complete number of the switch.
        number: u64,
    },
    /// Result of a read that a switch sent here: the answer, or `None` where the primary must answer.
    Read(u64, Option<Answer>),
    /// The group's state changed.
    Changed,
    /// Send this envelope to the group that it names.
    Envelope(Box<GroupEnvelope>),
    /// The group has ended with a transaction: start its successors as soon as all groups that the transaction touched are known to have
    /// ended.
    Ended,
    /// This node has left for good, as requested: the group does not need it any more.
    Left,
    /// This incarnation is over, for this reason: the group continues without it.
    Over(&'static str),
    /// This incarnation is over: its store lost data, as the text says.
    Lost(&'static str),
    /// This member serves its group no more, and takes no part in it, until its process starts again: a peer contradicted a chosen value.
    /// The text names the peer and the contradiction.
    Halted(Box<str>),
    /// Line for the log.
    Note(Box<str>),
}

/// Size of client operations and outcomes, in bytes, at which a message is full and is sent.
const TALK_BYTES_MAX: usize = 64 << 10;

/// Message with its receivers and the epoch in which it was made.
type Addressed = (Vec<NodeId>, Message, Epoch);

/// Client operations and outcomes for one node, in one message for a drained batch.
#[derive(Clone, Debug)]
struct Talk {
    to: NodeId,
    bytes: usize,
    message: ClientMessage,
}

/// Collects outputs; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Outbox {
    me: NodeId,
    durable: bool,
    ready: VecDeque<GroupOutput>,
    loopback: VecDeque<(Message, Epoch)>,
    /// Epoch of the messages, also of those that leave in a later one: votes count where they were cast.
    epoch: Epoch,
    changes: Vec<Durable>,
    talks: Vec<Talk>,
    /// Outputs that follow the changes collected now.
    behind: Vec<GroupOutput>,
    /// Messages that wait for the changes collected now.
    after: Vec<Addressed>,
    /// Messages that wait for batches handed out; tokens ascend.
    waiting: VecDeque<(BatchToken, Vec<Addressed>)>,
    /// Token of the last batch that was handed out; 0 before the first.
    last_token: BatchToken,
    /// Highest token that is durable.
    persisted: BatchToken,
    /// Writes accepted since the last call of [`Outbox::watch`]; `None` before the first.
    watched: Option<Vec<Write>>,
    /// Whether changes are ignored from now on.
    closed: bool,
    /// Reason of a halt: a peer contradicted a chosen value.
    halted: Option<Box<str>>,
}

impl Outbox {
    /// Creates an empty outbox.
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
            last_token: BatchToken(0),
            persisted: BatchToken(0),
            watched: None,
            closed: false,
            halted: None,
        }
    }

    /// Sends a message at once. A message to this node itself is handled after everything that came before.
    pub fn send(&mut self, to: &[NodeId], message: Message) {
        self.send_as_of(to, message, self.epoch);
    }

    /// Sets the epoch of later messages.
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

    /// Sends a message once everything that was changed so far is durable.
    pub fn send_after(&mut self, to: &[NodeId], message: Message) {
        if self.closed {
            return;
        }
        self.after.push((to.to_vec(), message, self.epoch));
    }

    /// Adds a change for the store.
    pub fn persist(&mut self, change: Durable) {
        if self.durable && !self.closed {
            self.changes.push(change);
        }
    }

    /// Drops all changes that were not handed out yet, and ignores later ones: on disk this incarnation stays as it is.
    pub fn close(&mut self) {
        self.closed = true;
        self.changes.clear();
        self.after.clear();
        self.behind.clear();
    }

    /// Returns whether changes are ignored.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Halts: a peer contradicted a chosen value. No change is stored any more, and no message that rests on one is sent. The first reason
    /// is kept.
    pub(crate) fn halt(&mut self, why: Box<str>) {
        if self.halted.is_none() {
            self.halted = Some(why.clone());
            self.close();
            self.push(GroupOutput::Halted(why));
        }
    }

    /// Returns the reason why this member serves its group no more; `None` if it does.
    pub(crate) fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// Stores an accepted write.
    pub fn accept(&mut self, write: &Write) {
        if let Some(watched) = &mut self.watched {
            watched.push(write.clone());
        }
        self.persist(Durable::Accepted(write.clone()));
    }

    /// Notes writes accepted from now on, for checks; returns those noted so far.
    pub fn watch(&mut self) -> Vec<Write> {
        self.watched.replace(Vec::new()).unwrap_or_default()
    }

    /// Adds an output that need not wait.
    pub fn push(&mut self, output: GroupOutput) {
        self.ready.push_back(output);
    }

    /// Adds an output for the store that must come after everything changed so far.
    pub fn push_behind(&mut self, output: GroupOutput) {
        self.behind.push(output);
    }

    /// Sends the outcome of an attempt to a client of this node, or to another node.
    pub fn outcome(&mut self, attempt: Attempt, outcome: AttemptOutcome) {
        if attempt.origin == self.me {
            return self.push(GroupOutput::Outcome(attempt.attempt, outcome));
        }
        let bytes = outcome.bytes();
        self.talk(attempt.origin, bytes, |message| message.outcomes.push((attempt.attempt, outcome)));
    }

    /// Sends the outcome of an attempt that had no effect.
    pub fn refuse(&mut self, attempt: Attempt, error: OpError) {
        self.outcome(attempt, AttemptOutcome::Refused(error));
    }

    /// Asks another node to execute this operation.
    pub fn ask(&mut self, primary: NodeId, operation: ClientOperation) {
        let bytes = operation.bytes();
        self.talk(primary, bytes, |message| message.operations.push(operation));
    }

    /// Adds to the next message to a node about client operations. It leaves with the next flush, or at once above a limit of bytes.
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

    /// Releases messages that waited for this token: the store has everything up to it.
    pub fn persisted(&mut self, token: BatchToken) {
        self.persisted = self.persisted.max(token);
        while self.waiting.front().is_some_and(|(token, _)| *token <= self.persisted) {
            let (_, messages) = self.waiting.pop_front().expect("just seen");
            for (to, message, epoch) in messages {
                self.send_as_of(&to, message, epoch);
            }
        }
    }

    /// Returns the number of batches that are not durable yet.
    pub fn batches_waiting(&self) -> u64 {
        self.last_token.0 - self.persisted.0
    }

    /// Returns whether everything changed so far is durable, and no message waits for that.
    pub fn is_durable(&self) -> bool {
        !self.closed && self.changes.is_empty() && self.after.is_empty() && self.batches_waiting() == 0
    }

    /// Returns whether there are changes that the store has not been given yet.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Hands the collected changes to the store. Returns whether there was anything to do.
    pub fn flush(&mut self) -> bool {
        for talk in core::mem::take(&mut self.talks) {
            self.send(&[talk.to], Message::Client(talk.message));
        }
        if self.changes.is_empty() && self.after.is_empty() && self.behind.is_empty() {
            return false;
        }
        let after = core::mem::take(&mut self.after);
        if !self.changes.is_empty() {
            self.last_token.0 += 1;
            self.ready.push_back(GroupOutput::Persist(self.last_token, core::mem::take(&mut self.changes)));
        }
        self.ready.extend(self.behind.drain(..));
        if self.batches_waiting() == 0 {
            for (to, message, epoch) in after {
                self.send_as_of(&to, message, epoch);
            }
        } else if !after.is_empty() {
            self.waiting.push_back((self.last_token, after));
        }
        true
    }

    /// Returns whether there is an output to poll.
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty() || !self.loopback.is_empty()
    }

    /// Returns the next message to this node itself.
    pub fn poll_loopback(&mut self) -> Option<(Message, Epoch)> {
        self.loopback.pop_front()
    }

    /// Returns the next output.
    pub fn poll_ready(&mut self) -> Option<GroupOutput> {
        self.ready.pop_front()
    }
}
