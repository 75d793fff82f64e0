//! Messages between the members of a group.
//!
//! Every message travels with its group, the sender's node (peer and incarnation) and the sender's epoch. Any message may be lost, repeated
//! or reordered.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Contact, Epoch, Key, KeyRange, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::{Ballot, LogSlot, Number, TermBallot};
use crate::control::history::History;
use crate::control::recovery::doubt::Doubt;
use crate::control::state::{Entry, GroupState, Member};
use crate::number_set::NumberSet;
use crate::op::{Answer, Op, OpError, ReadMode};
use crate::record::{OpId, Record};
use crate::transaction::driver::GroupEnvelope;
use crate::transaction::successor::handover::Handover;
use overlay::time::WallMillis;

/// One message within a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Serves failure detection, the leader's authority and the clocks (`docs/design/primaries.md`).
    Heartbeat(Box<Heartbeat>),
    /// Reports which data the sender holds durably, once its store has confirmed that.
    Progress(Progress),
    /// Concerns the group's log.
    Log(LogMessage),
    /// Concerns the replication of keys.
    Committee(CommitteeMessage),
    /// Carries client operations and their outcomes.
    Client(ClientMessage),
    /// Asks to join the group as this member.
    Join(Member),
    /// Answers [`Message::Join`]: the request is noted, or there is no room to note it. Ask again after this many milliseconds.
    Wait(u64),
    /// Asks what the sender has acknowledged. Sent after each start on a store, sealed or not.
    AskVouch,
    /// Reports what the sender knows that the receiver has acknowledged.
    Vouch(Vouch),
    /// Carries the sender's whole state to a receiver that is behind or asked for it.
    State(Box<GroupState>),
    /// Asks for the receiver's state, which is newer than the sender's.
    AskState,
    /// Carries the addresses and the name that the sender wants to be known by.
    Contact(Contact),
    /// Carries a message from another group for the leader of this one.
    Envelope(Box<GroupEnvelope>),
    /// Reports, from a learner, that it is in another group by now.
    Declined,
    /// Asks for records, from a member of a neighbour that may come to own a part of this group's range.
    AskCopy(AskCopy),
    /// Answers [`Message::AskCopy`].
    Copied(Box<Copied>),
    /// Carries the handover of a primary whose group ends to all nodes that may succeed it.
    Handover(Box<Handover>),
    /// States, for an administrator, that the members waited for because of a doubt will not return. Members in doubt continue with the
    /// contents of their stores.
    AcceptLoss,
}

/// Request for a page of chosen records, from a node that has no part in their range yet (`docs/design/data.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskCopy {
    /// Piece of the ring with the records; it does not cross point zero.
    pub piece: KeyRange,
    /// The page begins behind this key, in ring order.
    pub after: Option<Key>,
    /// Number of the request, echoed: a page belongs to one request.
    pub number: u64,
}

/// Page of chosen records. Each record was chosen, and nothing else is promised: newer ones may have been chosen, and keys that are absent
/// here may have had records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Echo of the request's piece.
    pub piece: KeyRange,
    /// Echo of the request's key.
    pub after: Option<Key>,
    /// Echo of the request's number.
    pub number: u64,
    /// Records in ring order, tombstones included.
    pub writes: Vec<Write>,
    /// The page has all that the sender holds up to and with this key; `None`: to the end of the piece.
    pub up_to: Option<Key>,
    /// Last slot that the sender had applied when it read the page. The page respects purges up to this slot.
    pub applied: LogSlot,
    /// Last slot up to `applied` that purged tombstones in the piece. A copy as of an earlier slot is of no use.
    pub purged: LogSlot,
}

/// Sign of life of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Last slot that the sender has applied.
    pub applied: LogSlot,
    /// Ballot under which the sender leads, if it leads.
    pub leads: Option<Ballot>,
    /// All slots up to this one are chosen, as far as the sender knows.
    pub chosen: LogSlot,
    /// Members with heartbeats that reached the sender lately.
    pub hears: Vec<NodeId>,
    /// Terms under which the sender serves or takes over.
    pub terms: Vec<crate::ballot::Term>,
    /// Departure that the sender announces.
    pub parting: Parting,
    /// Whether the sender has sealed its epoch: it accepts no more writes in it.
    pub sealed: bool,
    /// Wall clock of the sender.
    pub wall: WallMillis,
    /// Steady clock of the sender, in microseconds, to be echoed.
    pub sent_us: u64,
    /// Echoes of the last heartbeats of the members in `hears`, in that order.
    pub echoes: Vec<Option<Echo>>,
    /// How long the sender waits for a majority of the members, itself counted, in microseconds; `None` where it does not know.
    pub agreement_us: Option<u32>,
    /// Doubt of the sender about its acknowledgements, if any.
    pub doubt: Option<Doubt>,
    /// Operations a minute that came to the sender as a primary, in each of [`crate::control::load::CELLS`] equal pieces of the range. Empty
    /// where there were none, `None` where the sender does not know yet.
    pub load: Option<Vec<u32>>,
    /// Whether the sender has no room for more records: as a primary it refuses writes that need some.
    pub full: bool,
    /// Members with announced absences that are not over, as far as the sender knows, and the ends of these absences in group time.
    pub absences: Vec<(NodeId, WallMillis)>,
    /// Operations a second that the sender can execute as a primary, as it has measured: from 1 to [`crate::control::capacity::CAPACITY_MAX`].
    /// `None` before the first measurement.
    pub capacity: Option<u32>,
    /// Earlier sessions of the sender; `None` where it has none.
    pub history: Option<History>,
    /// Progress of the sender, where it is durable by now; otherwise a [`Message::Progress`] follows once it is.
    pub progress: Option<Progress>,
    /// Terms under which the sender serves and has sent nothing else for half a heartbeat. With each term goes the number up to which all
    /// its writes are chosen, for members that missed the last [`CommitteeMessage::Accept`] or have joined since.
    pub marks: Vec<(crate::ballot::Term, u64)>,
}

/// Echo of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// [`Heartbeat::sent_us`] of that heartbeat.
    pub sent_us: u64,
    /// Time since its arrival, in microseconds.
    pub held_us: u32,
}

/// Departure that a member announces. Other members take over its sub-ranges, unless it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parting {
    /// Announces no departure.
    Stays,
    /// Stops and comes back: it is not removed before it has been silent for at least this time.
    Stops {
        /// Time from its last message, in milliseconds.
        away_ms: u64,
    },
    /// Leaves for good.
    Leaves {
        /// Leaves even where fewer than three members remain.
        force: bool,
    },
}

/// Progress of a node with the current division.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Slot of the state that the progress refers to.
    pub applied: LogSlot,
    /// Terms of that division for which the node holds, durably, all that was chosen before them.
    pub complete: Vec<crate::ballot::Term>,
    /// Each term with the chosen mark up to which the node has everything.
    pub marks: Vec<(crate::ballot::Term, u64)>,
}

/// Multi-Paxos over the group's log (Harmony §3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogMessage {
    /// Asks whether the receiver would promise; changes nothing (pre-vote).
    AskPromise {
        /// Candidate's attempt, echoed.
        round: u64,
    },
    /// Asks the receiver to stand for election at once: it would lead better than the sender, which leads.
    Lead,
    /// Answers that the sender would promise: no leader is alive here either.
    WouldPromise {
        /// Echo of the attempt.
        round: u64,
    },
    /// Phase 1a, for all slots behind the last one that the candidate has applied.
    Prepare {
        /// Ballot of the candidate.
        ballot: Ballot,
        /// Last slot that the candidate has applied.
        applied: LogSlot,
        /// Whether the epoch is to end: a member that promises seals it.
        stop: bool,
    },
    /// Phase 1b.
    Promise {
        /// Ballot that is promised.
        ballot: Ballot,
        /// State of the sender, where it has applied more than the candidate.
        state: Option<Box<GroupState>>,
        /// All entries accepted behind that state.
        accepted: Vec<(LogSlot, Ballot, Entry)>,
        /// Last epoch in which the sender may have forgotten acknowledgements; 0: none.
        doubt: Epoch,
    },
    /// Phase 2a.
    Accept {
        /// Ballot of the leader.
        ballot: Ballot,
        /// Slots and the entries proposed for them.
        entries: Vec<(LogSlot, Entry)>,
        /// All slots up to this one are chosen.
        chosen: LogSlot,
    },
    /// Phase 2b.
    Accepted {
        /// Ballot under which the slots are accepted.
        ballot: Ballot,
        /// Slots that are accepted.
        slots: Vec<LogSlot>,
        /// As in [`LogMessage::Promise`].
        doubt: Epoch,
    },
    /// Refuses a ballot: the sender has promised a higher one.
    Refused {
        /// Ballot that is refused.
        ballot: Ballot,
        /// Ballot that the sender has promised.
        promised: Ballot,
    },
}

/// History of terms of a piece of the ring: the previous term and the ones before it, newest first.
///
/// `(term, mark)`: exactly the writes of that term up to the mark were chosen under it.
pub type Chain = Vec<(crate::ballot::Term, u64)>;

/// Statement of a new primary that says which writes of older terms stand, for each piece of its sub-range.
///
/// A write of an older term above its mark is void if it was not re-proposed. An acceptor accepts a base only if it has all re-proposals,
/// or once the base is known to be chosen. A quorum accepts the base before any write of the term is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Sub-range of the base.
    pub range: KeyRange,
    /// Pieces of the sub-range with their histories.
    pub pieces: Vec<(KeyRange, Chain)>,
    /// Numbers 1 to this one are re-proposals.
    pub reproposed: u64,
}

/// Knowledge of an acceptor about one committee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitteeReport {
    /// Ballot of the committee.
    pub ballot: TermBallot,
    /// Base that the acceptor accepted.
    pub base: Option<Arc<Base>>,
    /// All writes up to this number are chosen; `None` where the acceptor does not know whether the base is.
    pub chosen: Option<u64>,
}

/// Write that is proposed or chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Key of the write.
    pub key: Key,
    /// State of the key after the write, with the write's number.
    pub record: Arc<Record>,
}

impl Write {
    /// Returns a hash of key, number and value, to compare sent with held data. It gives no protection against a node that forges equal
    /// hashes.
    pub fn digest(&self) -> u64 {
        const PRIME: u64 = 0x100_0000_01b3;
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let number = self.record.number;
        let words = [number.term.0, number.n, self.record.value.is_some().into(), self.record.done.len() as u64];
        words.into_iter().for_each(|word| hash = (hash ^ word).wrapping_mul(PRIME).rotate_left(29));
        let bytes = self.key.encoded().iter().chain(self.record.value.iter().flatten());
        bytes.for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
        hash
    }
}

/// Replication of keys (fRSM §3.3, with promises for whole ranges).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitteeMessage {
    /// Phase 1a for a whole sub-range.
    Prepare {
        /// Ballot of the new primary.
        ballot: TermBallot,
        /// Sub-range of the new primary.
        range: KeyRange,
    },
    /// Phase 1b, in parts, since it grows with the writes in flight.
    Promise {
        /// Ballot that is promised.
        ballot: TermBallot,
        /// Index of this part, from 0.
        part: u32,
        /// Number of parts.
        parts: u32,
        /// Number of writes in all parts together: parts of different answers do not go together.
        total: u64,
        /// Committees that matter in the sub-range (first part only).
        committees: Vec<CommitteeReport>,
        /// Writes that the sender accepted and does not know to be chosen.
        unsettled: Vec<Write>,
        /// Remaining time, in milliseconds, for which older primaries may rely on the sender's lease grants.
        leases: Vec<(TermBallot, u64)>,
        /// Remaining time, in milliseconds, for which members may answer reads by the sender's own grants as a primary (first part only).
        delegated: Vec<(TermBallot, u64)>,
        /// As in [`LogMessage::Promise`].
        doubt: Epoch,
    },
    /// Refuses a ballot: the sender has promised a higher one, or its epoch is over.
    Refused {
        /// Ballot that is refused.
        ballot: TermBallot,
        /// Ballot that the sender has promised somewhere in that sub-range.
        promised: TermBallot,
    },
    /// Phase 2a for any number of keys.
    Accept {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// All its writes up to this number are chosen; `None` until its base is.
        chosen: Option<u64>,
        /// Writes to accept.
        writes: Vec<Write>,
    },
    /// Phase 2b: the writes with these numbers are durable at the sender.
    Accepted {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Ranges of numbers, each with its first and last number.
        numbers: Vec<(u64, u64)>,
    },
    /// Proposes the base of a new term.
    Base {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Base of the term.
        base: Arc<Base>,
        /// All its writes up to this number are chosen; `None` until the base is.
        chosen: Option<u64>,
    },
    /// Accepts a base: it is durable at the sender, with all its re-proposals.
    BaseAccepted {
        /// Ballot of the primary.
        ballot: TermBallot,
    },
    /// Asks for the base of this ballot, which the sender lacks.
    AskBase {
        /// Ballot of the primary.
        ballot: TermBallot,
    },
    /// Asks whether this is still the highest ballot that the receiver has promised in the primary's sub-range. Each attempt has an id of
    /// its own, never used again.
    Confirm {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Id of the attempt.
        attempt: u64,
        /// Whether a lease is asked for too.
        lease: bool,
        /// All its writes up to this number are chosen.
        chosen: Option<u64>,
    },
    /// Answers [`CommitteeMessage::Confirm`] with yes.
    Confirmed {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Id of the attempt.
        attempt: u64,
    },
    /// States that each number that the switch gave up to this point is void, or its write is chosen and among the writes up to this mark.
    Point {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Id of the switch.
        switch: u32,
        /// All its writes up to this number are chosen.
        chosen: u64,
        /// Number of the switch up to which this holds.
        point: u64,
    },
    /// Lets the receiver answer reads alone that this switch has stamped, for a limited time.
    Grant {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Id of the switch.
        switch: u32,
        /// Attempt in which the receiver confirmed the ballot; the time counts from then.
        attempt: u64,
        /// Length of the grant, in microseconds.
        left_us: u64,
        /// As in [`CommitteeMessage::Point`]. Writes that did not pass the switch are among the writes up to this mark, too.
        chosen: u64,
        /// As in [`CommitteeMessage::Point`].
        point: u64,
    },
    /// Asks for the record of a key (quorum read).
    AskRecord {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Key to read.
        key: Key,
        /// Attempt to read it, echoed.
        attempt: u64,
    },
    /// Answers with the chosen record, as the sender has it.
    RecordIs {
        /// Ballot of the primary.
        ballot: TermBallot,
        /// Key of the record.
        key: Key,
        /// Echo of the attempt.
        attempt: u64,
        /// The record; `None`: the sender has none.
        record: Option<Arc<Record>>,
        /// As in [`LogMessage::Promise`].
        doubt: Epoch,
    },
    /// Asks for writes behind this one (the window of recent writes).
    AskSince {
        /// Ballot of the current term.
        ballot: TermBallot,
        /// Piece of interest.
        piece: KeyRange,
        /// Last write that the asker has, with all before it.
        since: Number,
        /// Attempt of the asker; its id is used for no other attempt.
        attempt: u64,
    },
    /// Answers [`CommitteeMessage::AskSince`].
    Since(Since),
    /// Asks for records that are newer than the asker's, by a comparison of clocks (scan of clocks).
    AskCompare(Box<AskCompare>),
    /// Answers [`CommitteeMessage::AskCompare`].
    Compared(Box<Compared>),
}

/// Page of recent writes behind one write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// Ballot of the current term.
    pub ballot: TermBallot,
    /// Piece of the page.
    pub piece: KeyRange,
    /// Echo of the request's write.
    pub since: Number,
    /// Echo of the attempt: pages of different attempts do not go together.
    pub attempt: u64,
    /// Chosen writes in order. Not all of them: a later write of a key stands for the earlier ones.
    pub writes: Vec<Write>,
    /// With this page the asker has everything up to this number; `None` where the window does not reach back far enough.
    pub up_to: Option<Number>,
    /// Whether this is the last page.
    pub done: bool,
}

/// Request for records that are newer than the asker's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskCompare {
    /// Ballot of the current term.
    pub ballot: TermBallot,
    /// Piece of interest.
    pub piece: KeyRange,
    /// The comparison begins behind this key, in ring order.
    pub after: Option<Key>,
    /// Keys and numbers that the asker holds there, in order, without gaps up to `until`.
    pub held: Vec<(Key, Number)>,
    /// The asker holds nothing else up to and with this key; `None`: up to the end of the piece.
    pub until: Option<Key>,
    /// Attempt of the asker; its id is used for no other attempt.
    pub attempt: u64,
}

/// Page of newer records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Ballot of the current term.
    pub ballot: TermBallot,
    /// Piece of the page.
    pub piece: KeyRange,
    /// Echo of the request's key.
    pub after: Option<Key>,
    /// Echo of the attempt: pages of different attempts do not go together.
    pub attempt: u64,
    /// Records that are newer at the sender.
    pub writes: Vec<Write>,
    /// Number of records that the sender holds in the compared part.
    pub looked: u64,
    /// The sum of [`Write::digest`] over `writes`.
    pub digest: u64,
    /// The comparison is done up to and with this key; `None`: to the end of the piece.
    pub up_to: Option<Key>,
    /// Chosen mark of the sender at the time of the comparison.
    pub mark: u64,
    /// Whether the sender holds everything chosen in the piece before this term.
    pub complete: bool,
    /// As in [`LogMessage::Promise`].
    pub doubt: Epoch,
}

/// Client operations and outcomes between the asked peer and the primary (`docs/design/write.md`): all that a node has for another one
/// after a drained batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMessage {
    /// Operations to execute, in this order. Each is executed only under exactly its ballot.
    pub operations: Vec<ClientOperation>,
    /// Outcomes of the receiver's attempts, with the attempts' ids.
    pub outcomes: Vec<(u64, AttemptOutcome)>,
}

/// One attempt to have an operation executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientOperation {
    /// Id of the attempt, unique at its origin; echoed.
    pub attempt: u64,
    /// Ballot of the primary that it is meant for; `None` for relaxed reads, which any member serves.
    pub ballot: Option<TermBallot>,
    /// Run of the origin's process, drawn at random at its start.
    pub run: u64,
    /// Count of that run's attempts under that ballot, from 1. It tells a late copy from a new attempt.
    pub serial: u64,
    /// The origin will never again send an operation on this key with a sequence number below this …
    pub retired_below: u64,
    /// … except these.
    pub retired_except: Vec<u64>,
    /// Id of the operation, the same in all attempts.
    pub id: OpId,
    /// Horizon that the origin knew when it first sent the operation.
    pub horizon: u64,
    /// Time that the client still waits, in milliseconds.
    pub patience_ms: u32,
    /// Key of the operation.
    pub key: Key,
    /// The operation itself.
    pub op: Op,
    /// Service level of reads.
    pub mode: ReadMode,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptOutcome {
    /// Executed by this attempt or an earlier one; the key's record remembers it.
    Done(Answer),
    /// This attempt found nothing to change, and changed nothing. Another attempt of the same operation may find otherwise: this is no
    /// answer while one may be under way.
    Unchanged(Answer),
    /// This attempt had no effect and never will have. Another attempt may.
    Refused(OpError),
    /// This attempt had no effect: another member is primary of the key, or will be.
    NotPrimary,
    /// This attempt may have had an effect.
    Unknown,
}

impl ClientOperation {
    /// Returns its approximate size in a message, in bytes.
    pub fn bytes(&self) -> usize {
        160 + self.key.encoded().len() + self.op.bytes() + 8 * self.retired_except.len()
    }
}

impl AttemptOutcome {
    /// Returns its approximate size in a message, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            AttemptOutcome::Done(answer) | AttemptOutcome::Unchanged(answer) => 16 + answer.bytes(),
            AttemptOutcome::Refused(_) | AttemptOutcome::NotPrimary | AttemptOutcome::Unknown => 16,
        }
    }
}

/// Knowledge of the sender about the receiver's acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vouch {
    /// Last slot that the sender has applied.
    pub applied: LogSlot,
    /// Epoch of the log that `promised` and `accepted` refer to.
    pub epoch: Epoch,
    /// Highest ballot of the log that the receiver promised.
    pub promised: Option<Ballot>,
    /// Slots of the log that the receiver accepted, each under the highest ballot, unless it is known to have applied them.
    pub accepted: Vec<(LogSlot, Ballot)>,
    /// Committees in which the receiver promised.
    pub committees: Vec<VouchedCommittee>,
    /// Last progress that the receiver reported.
    pub progress: Option<Progress>,
    /// Number of the receiver's latest runs, the present one included, that the sender has followed from their first message, in one run of
    /// its own.
    pub followed: u32,
    /// Last epoch that may have begun, as far as the sender knows.
    pub last: Epoch,
    /// Highest round of the log's ballots that the sender has seen.
    pub round: u64,
    /// Last slot of the log in which the sender has accepted an entry, or that it has applied.
    pub slot: LogSlot,
    /// Committees in which the sender itself has accepted something: with numbers where the receiver is the primary, and elsewhere only
    /// where the sender has the base.
    pub held: Vec<VouchedCommittee>,
    /// Whether the sender's store is older than what other members know ([`crate::control::recovery::doubt::Doubt::older`]).
    pub older: bool,
}

/// Acknowledgements that a node knows of another one to a primary: the promise, and those listed here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VouchedCommittee {
    /// Ballot of the primary.
    pub ballot: TermBallot,
    /// Sub-range of the primary.
    pub range: KeyRange,
    /// Whether the base was accepted.
    pub based: bool,
    /// Numbers of the accepted writes.
    pub accepted: NumberSet,
}

impl Vouch {
    /// Returns an answer without any acknowledgements.
    pub fn silent(applied: LogSlot, epoch: Epoch) -> Vouch {
        Vouch {
            applied,
            epoch,
            promised: None,
            accepted: Vec::new(),
            committees: Vec::new(),
            progress: None,
            followed: 0,
            last: epoch,
            round: 0,
            slot: applied,
            held: Vec::new(),
            older: false,
        }
    }
}

/// Sender of a message, with its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// Node of the sender: its peer and incarnation.
    pub node: NodeId,
    /// Epoch of its group, as far as it knows.
    pub epoch: Epoch,
}

impl Message {
    /// Returns whether this is one of the first messages of an epoch, which come together with its state or before it.
    pub fn begins_epoch(&self) -> bool {
        matches!(
            self,
            Message::Log(LogMessage::Prepare { .. } | LogMessage::Accept { .. })
                | Message::Committee(
                    CommitteeMessage::Prepare { .. }
                        | CommitteeMessage::Accept { chosen: None, .. }
                        | CommitteeMessage::Base { .. }
                )
        )
    }
}

impl LogMessage {
    /// Returns whether it asks to promise, or to accept, the end of the epoch.
    pub fn ends_epoch(&self) -> bool {
        match self {
            LogMessage::Prepare { stop, .. } => *stop,
            LogMessage::Accept { entries, .. } => entries.iter().any(|(_, entry)| entry.ends_epoch()),
            _ => false,
        }
    }
}

impl CommitteeMessage {
    /// Returns the ballot that the message refers to.
    pub fn ballot(&self) -> TermBallot {
        match self {
            CommitteeMessage::Prepare { ballot, .. }
            | CommitteeMessage::Promise { ballot, .. }
            | CommitteeMessage::Refused { ballot, .. }
            | CommitteeMessage::Accept { ballot, .. }
            | CommitteeMessage::Accepted { ballot, .. }
            | CommitteeMessage::Base { ballot, .. }
            | CommitteeMessage::BaseAccepted { ballot }
            | CommitteeMessage::AskBase { ballot }
            | CommitteeMessage::Confirm { ballot, .. }
            | CommitteeMessage::Confirmed { ballot, .. }
            | CommitteeMessage::AskRecord { ballot, .. }
            | CommitteeMessage::RecordIs { ballot, .. }
            | CommitteeMessage::Point { ballot, .. }
            | CommitteeMessage::Grant { ballot, .. }
            | CommitteeMessage::AskSince { ballot, .. }
            | CommitteeMessage::Since(Since { ballot, .. }) => *ballot,
            CommitteeMessage::AskCompare(ask) => ask.ballot,
            CommitteeMessage::Compared(answer) => answer.ballot,
        }
    }

    /// Returns whether it is meant for the primary of that ballot, not for an acceptor.
    pub fn is_for_primary(&self) -> bool {
        matches!(
            self,
            CommitteeMessage::Promise { .. }
                | CommitteeMessage::Refused { .. }
                | CommitteeMessage::Accepted { .. }
                | CommitteeMessage::BaseAccepted { .. }
                | CommitteeMessage::AskBase { .. }
                | CommitteeMessage::Confirmed { .. }
                | CommitteeMessage::RecordIs { .. }
        )
    }
}
