//! What members of a group say to each other.
//!
//! Every message travels with its group, the sender's node (peer and incarnation) and the sender's epoch. Any may be
//! lost, repeated or reordered.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Contact, Epoch, Key, KeyRange, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::{Ballot, Number, Slot, TermBallot};
use crate::doubt::Doubt;
use crate::handover::Handover;
use crate::history::History;
use crate::number_set::NumberSet;
use crate::op::{Answer, Op, OpError, ReadMode};
use crate::record::{OpId, Record};
use crate::state::{Entry, GroupState, Member};
use crate::time::WallMillis;
use crate::transaction::dealer::Letter;

/// One message within a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Failure detection, the leader's authority, clocks (`docs/design/primaries.md`).
    Heartbeat(Box<Heartbeat>),
    /// What this node has durably; after its store said so.
    Progress(Progress),
    /// The group's log.
    Log(LogMessage),
    /// Replication of keys.
    Committee(CommitteeMessage),
    /// Client operations and their outcomes.
    Client(ClientMessage),
    /// Somebody asks to become a member.
    Join(Member),
    /// To who asked to become a member: it is noted, or there is no room to note it; ask again after so many
    /// milliseconds.
    Wait(u64),
    /// What have I acknowledged? Asked after a stop that did not seal the store.
    AskVouch,
    /// What the sender knows that the receiver has acknowledged.
    Vouch(Vouch),
    /// You are behind, or asked: the sender's whole state.
    State(Box<GroupState>),
    /// Send me your state: mine is older than your message.
    AskState,
    /// The sender's addresses and name, as it wants them known.
    Contact(Contact),
    /// What another group says to this one, for whoever leads it.
    Letter(Box<Letter>),
    /// From a learner: it is in another group by now.
    Declined,
    /// A neighbour's member, which may come to own some of this group's range, asks for what is there.
    AskCopy(AskCopy),
    /// Answers [`Message::AskCopy`].
    Copied(Box<Copied>),
    /// From a primary of a group that ends, to whoever may follow it.
    Handover(Box<Handover>),
    /// Who is waited for because members are in doubt will not come back, somebody says: go on with what is there.
    AcceptLoss,
}

/// A question for a page of chosen records, before whoever asks has anything to do with them (`docs/design/data.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskCopy {
    /// Where they lie: not across point zero.
    pub piece: KeyRange,
    /// Keys behind this one, in ring order.
    pub after: Option<Key>,
    /// To be given back: a page belongs to one question.
    pub number: u64,
}

/// A page of chosen records. Nothing is promised of them but that each was chosen: newer ones may have been, and records that
/// are not here may have been and be gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// As asked.
    pub piece: KeyRange,
    /// As asked.
    pub after: Option<Key>,
    /// As asked.
    pub number: u64,
    /// The records, tombstones too, in ring order.
    pub writes: Vec<Write>,
    /// All that the sender holds up to and with this key; `None`: to the end of the piece.
    pub up_to: Option<Key>,
    /// What the sender had applied when it looked: purges up to there are heeded in what is here.
    pub applied: Slot,
    /// The last slot up to there that let go of tombstones in the piece: what was copied as of an earlier one is of no use.
    pub purged: Slot,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's last applied slot.
    pub applied: Slot,
    /// The ballot the sender leads under, if it leads.
    pub leads: Option<Ballot>,
    /// All slots up to this one are chosen, as the sender knows.
    pub chosen: Slot,
    /// The members whose heartbeats the sender has heard of late.
    pub hears: Vec<NodeId>,
    /// Terms under which the sender serves or is taking over.
    pub terms: Vec<crate::ballot::Term>,
    /// What the sender is about to do.
    pub parting: Parting,
    /// The sender has sealed its epoch: it accepts no more writes in it.
    pub sealed: bool,
    /// The sender's wall clock.
    pub wall: WallMillis,
    /// The sender's steady clock, in microseconds: to be given back.
    pub sent_us: u64,
    /// For those in `hears`, in that order, what their last heartbeats showed.
    pub echoes: Vec<Option<Echo>>,
    /// How long the sender waits for a majority of the members, itself counted, in microseconds; `None` where it does not
    /// know.
    pub agreement_us: Option<u32>,
    /// What the sender may have forgotten.
    pub doubt: Option<Doubt>,
    /// Operations a minute that came to the sender as a primary, in each of [`crate::load::CELLS`] equal pieces of the range;
    /// empty where there were none, `None` where it does not know yet.
    pub load: Option<Vec<u32>>,
    /// The sender has no room for more records: as a primary it refuses writes that need some.
    pub full: bool,
    /// The members that announced an absence which is not over, as the sender knows, and when it is over, in group time.
    pub absences: Vec<(NodeId, WallMillis)>,
    /// Operations a second that the sender can execute as a primary, as it has measured: from 1 to [`crate::capacity::CAPACITY_MAX`]. `None`
    /// before it has measured that.
    pub capacity: Option<u32>,
    /// The sender's earlier sessions; `None` where it has none.
    pub history: Option<History>,
    /// How far the sender has come, where that is durable by now; else a [`Message::Progress`] follows once it is.
    pub progress: Option<Progress>,
    /// The terms under which the sender serves and has told nothing else for half a heartbeat, each with the number up to which all its writes
    /// are chosen: for members that missed the last [`CommitteeMessage::Accept`], or have come since.
    pub marks: Vec<(crate::ballot::Term, u64)>,
}

/// A heartbeat that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// Its [`Heartbeat::sent_us`].
    pub sent_us: u64,
    /// How long ago it came, in microseconds.
    pub held_us: u32,
}

/// What a member is about to do. Others take over what it is primary of, unless it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parting {
    /// Nothing.
    Stays,
    /// Stop, and come back: it is missed for at least so many milliseconds before it is excluded.
    Stops {
        /// Milliseconds from its last word.
        away_ms: u64,
    },
    /// Leave for good.
    Leaves {
        /// Also where fewer than three members remain.
        force: bool,
    },
}

/// How far a node has come with the current division.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The state that this speaks of.
    pub applied: Slot,
    /// Terms of that division for which the node holds, durably, all that was chosen before them.
    pub complete: Vec<crate::ballot::Term>,
    /// Per term, the chosen mark up to which the node has everything.
    pub marks: Vec<(crate::ballot::Term, u64)>,
}

/// Multi-Paxos over the group's log (Harmony §3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogMessage {
    /// Would you promise? Changes nothing (pre-vote).
    AskPromise {
        /// The candidate's attempt, echoed.
        round: u64,
    },
    /// Whoever is told leads better than the sender, which leads: it should stand at once.
    Lead,
    /// Yes: no leader is alive here either.
    WouldPromise {
        /// As asked.
        round: u64,
    },
    /// Phase 1a, for all slots behind the candidate's applied one.
    Prepare {
        /// The candidate's ballot.
        ballot: Ballot,
        /// What it has applied.
        applied: Slot,
        /// The epoch is to end: who promises seals it.
        stop: bool,
    },
    /// Phase 1b.
    Promise {
        /// The ballot promised.
        ballot: Ballot,
        /// The sender's state, where it has applied more than the candidate.
        state: Option<Box<GroupState>>,
        /// Everything accepted behind that.
        accepted: Vec<(Slot, Ballot, Entry)>,
        /// The last epoch about which the sender's word is in doubt; 0: none.
        doubt: Epoch,
    },
    /// Phase 2a.
    Accept {
        /// The leader's ballot.
        ballot: Ballot,
        /// Slots and what is proposed for them.
        entries: Vec<(Slot, Entry)>,
        /// All slots up to this one are chosen.
        chosen: Slot,
    },
    /// Phase 2b.
    Accepted {
        /// The ballot accepted.
        ballot: Ballot,
        /// The slots.
        slots: Vec<Slot>,
        /// As in [`LogMessage::Promise`].
        doubt: Epoch,
    },
    /// The sender has promised more.
    Refused {
        /// The ballot refused.
        ballot: Ballot,
        /// What it has promised.
        promised: Ballot,
    },
}

/// Where a piece of the ring stands in the history of terms: the term before, and those before that.
///
/// `(term, mark)`: of that term's writes exactly those up to the mark were chosen under it; newest first.
pub type Chain = Vec<(crate::ballot::Term, u64)>;

/// A new primary's ground: which writes of older terms stand, for each piece of its sub-range.
///
/// A write of an older term above its mark that was not re-proposed is void. Accepted only by who has all re-proposals,
/// and by a quorum before anything else is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The sub-range.
    pub range: KeyRange,
    /// Each piece of it with its history.
    pub pieces: Vec<(KeyRange, Chain)>,
    /// Numbers 1 to this one are re-proposals.
    pub reproposed: u64,
}

/// What an acceptor knows of one committee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitteeReport {
    /// Which.
    pub ballot: TermBallot,
    /// The base it accepted.
    pub base: Option<Arc<Base>>,
    /// All writes up to this one are chosen; `None` where it is not known whether the base is.
    pub chosen: Option<u64>,
}

/// One write on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// Its state from then on, with the write's number.
    pub record: Arc<Record>,
}

impl Write {
    /// A number that differs where keys, numbers or values do: for comparing what was sent with what is held, not against
    /// anybody who wants it to be the same.
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
        /// The new primary's ballot.
        ballot: TermBallot,
        /// Its sub-range.
        range: KeyRange,
    },
    /// Phase 1b; in parts, since it grows with what is in flight.
    Promise {
        /// The ballot promised.
        ballot: TermBallot,
        /// Which part, from 0.
        part: u32,
        /// How many parts there are.
        parts: u32,
        /// How many writes all parts together hold: parts of different answers do not go together.
        total: u64,
        /// The committees that matter in the sub-range (first part only).
        committees: Vec<CommitteeReport>,
        /// Writes that the sender accepted and does not know to be chosen.
        unsettled: Vec<Write>,
        /// For how many more milliseconds the sender's grants to older primaries may be relied on, by them.
        leases: Vec<(TermBallot, u64)>,
        /// For how many more milliseconds those whom the sender, as a primary, has granted to answer reads may do so
        /// (first part only).
        delegated: Vec<(TermBallot, u64)>,
        /// As in [`LogMessage::Promise`].
        doubt: Epoch,
    },
    /// The sender has promised more, or its epoch is over.
    Refused {
        /// The ballot refused.
        ballot: TermBallot,
        /// What it has promised somewhere in that sub-range.
        promised: TermBallot,
    },
    /// Phase 2a for any number of keys.
    Accept {
        /// The primary's ballot.
        ballot: TermBallot,
        /// All its writes up to this one are chosen; `None` until its base is.
        chosen: Option<u64>,
        /// The writes.
        writes: Vec<Write>,
    },
    /// Phase 2b: these numbers are durable here, first to last of each range.
    Accepted {
        /// The ballot.
        ballot: TermBallot,
        /// Ranges of numbers.
        numbers: Vec<(u64, u64)>,
    },
    /// The ground of a new term.
    Base {
        /// The primary's ballot.
        ballot: TermBallot,
        /// What it stands on.
        base: Arc<Base>,
        /// All its writes up to this one are chosen; `None` until the base is.
        chosen: Option<u64>,
    },
    /// The base is durable here, and all that it re-proposes.
    BaseAccepted {
        /// The ballot.
        ballot: TermBallot,
    },
    /// The sender lacks the base of this ballot.
    AskBase {
        /// The ballot.
        ballot: TermBallot,
    },
    /// Is this still the highest ballot you have promised in my sub-range? One id an attempt, never used again.
    Confirm {
        /// The primary's ballot.
        ballot: TermBallot,
        /// The attempt.
        attempt: u64,
        /// Grant a lease as well.
        lease: bool,
        /// All its writes up to this one are chosen.
        chosen: Option<u64>,
    },
    /// Yes.
    Confirmed {
        /// The ballot.
        ballot: TermBallot,
        /// The attempt.
        attempt: u64,
    },
    /// Whatever the switch numbered up to this point is chosen, and among the writes up to this mark.
    Point {
        /// The primary's ballot.
        ballot: TermBallot,
        /// The switch's id.
        switch: u32,
        /// All its writes up to this one are chosen.
        chosen: u64,
        /// The switch's number.
        point: u64,
    },
    /// The receiver may answer reads alone that this switch has stamped, for a while.
    Grant {
        /// The primary's ballot.
        ballot: TermBallot,
        /// The switch's id.
        switch: u32,
        /// Counted from when the receiver confirmed the ballot in this attempt.
        attempt: u64,
        /// For so many microseconds.
        left_us: u64,
        /// As in [`CommitteeMessage::Point`]; and what did not pass the switch is among the writes up to here.
        chosen: u64,
        /// As there.
        point: u64,
    },
    /// What do you hold of this key? (Quorum read.)
    AskRecord {
        /// The primary's ballot.
        ballot: TermBallot,
        /// The key.
        key: Key,
        /// Which attempt to read it; echoed.
        attempt: u64,
    },
    /// The chosen record, as the sender has it.
    RecordIs {
        /// The ballot.
        ballot: TermBallot,
        /// The key.
        key: Key,
        /// As asked.
        attempt: u64,
        /// `None`: none.
        record: Option<Arc<Record>>,
        /// As in [`LogMessage::Promise`].
        doubt: Epoch,
    },
    /// Give me your writes behind this one (the window of recent writes).
    AskSince {
        /// The current term's ballot.
        ballot: TermBallot,
        /// The piece of interest.
        piece: KeyRange,
        /// The last write that the asker has, with all before it.
        since: Number,
        /// The asker's attempt; its name is used for no other.
        attempt: u64,
    },
    /// Answers [`CommitteeMessage::AskSince`].
    Since(Since),
    /// Compare these clocks with yours and give me what I lack (scan of clocks).
    AskCompare(Box<AskCompare>),
    /// Answers [`CommitteeMessage::AskCompare`].
    Compared(Box<Compared>),
}

/// Recent writes, for who asked for those behind one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// The ballot.
    pub ballot: TermBallot,
    /// The piece.
    pub piece: KeyRange,
    /// As asked.
    pub since: Number,
    /// As asked: pages of different attempts do not go together.
    pub attempt: u64,
    /// Chosen writes in order; not all of them (later ones of the same key stand for earlier ones).
    pub writes: Vec<Write>,
    /// The asker has everything up to here now; `None` where the window does not reach back so far.
    pub up_to: Option<Number>,
    /// That is all there is.
    pub done: bool,
}

/// A question for what is newer than what the asker holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskCompare {
    /// The current term's ballot.
    pub ballot: TermBallot,
    /// The piece of interest.
    pub piece: KeyRange,
    /// Keys behind this one, in ring order.
    pub after: Option<Key>,
    /// What the asker holds there, in order, without gaps up to `until`.
    pub held: Vec<(Key, Number)>,
    /// The asker holds nothing else up to and with this key; `None`: up to the end of the piece.
    pub until: Option<Key>,
    /// The asker's attempt; its name is used for no other.
    pub attempt: u64,
}

/// What was newer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The ballot.
    pub ballot: TermBallot,
    /// The piece.
    pub piece: KeyRange,
    /// As asked.
    pub after: Option<Key>,
    /// As asked: pages of different attempts do not go together.
    pub attempt: u64,
    /// Records that are newer here.
    pub writes: Vec<Write>,
    /// How many records the sender holds where it compared.
    pub looked: u64,
    /// The sum of [`Write::digest`] over `writes`.
    pub digest: u64,
    /// The comparison is done up to and with this key; `None`: to the end of the piece.
    pub up_to: Option<Key>,
    /// The sender's chosen mark when it compared.
    pub mark: u64,
    /// The sender holds everything chosen before this term in the piece.
    pub complete: bool,
    /// As in [`LogMessage::Promise`].
    pub doubt: Epoch,
}

/// Client operations between the peer that was asked and the primary (`docs/design/write.md`): all that one node has to say
/// to another of them after a drained batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMessage {
    /// Do these, in this order. Each is executed only under its very ballot.
    pub operations: Vec<Operation>,
    /// What came of attempts of the receiver's, by their names.
    pub outcomes: Vec<(u64, Outcome)>,
}

/// One attempt to have an operation executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The attempt's name, unique to its origin; echoed.
    pub attempt: u64,
    /// The ballot it is meant for; `None` for relaxed reads, which any member serves.
    pub ballot: Option<TermBallot>,
    /// Which run of the origin's process this is; drawn by chance at its start.
    pub run: u64,
    /// That run's count of attempts under that ballot, from 1: a copy on the way is told from a new attempt.
    pub serial: u64,
    /// The origin will never again send an operation on this key with a sequence number below this …
    pub retired_below: u64,
    /// … except these.
    pub retired_except: Vec<u64>,
    /// The same in all attempts.
    pub id: OpId,
    /// The horizon that the origin knew when it first sent it.
    pub horizon: u64,
    /// How long the client still waits, in milliseconds.
    pub patience_ms: u32,
    /// The key.
    pub key: Key,
    /// What to do.
    pub op: Op,
    /// How reads are served.
    pub mode: ReadMode,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Done, or found to be done already; the key's record remembers it.
    Done(Answer),
    /// This attempt found that there is nothing to change, and changed nothing. Another attempt of the same operation
    /// may find otherwise: not an answer while one may be under way.
    Unchanged(Answer),
    /// This attempt had no effect and never will have. Another may.
    Refused(OpError),
    /// This attempt had no effect: another primary has the key, or will have it.
    NotPrimary,
    /// This attempt may have had an effect.
    Unknown,
}

impl Operation {
    /// What it takes in a message, roughly, in bytes.
    pub fn bytes(&self) -> usize {
        160 + self.key.encoded().len() + self.op.bytes() + 8 * self.retired_except.len()
    }
}

impl Outcome {
    /// What it takes in a message, roughly, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Outcome::Done(answer) | Outcome::Unchanged(answer) => 16 + answer.bytes(),
            Outcome::Refused(_) | Outcome::NotPrimary | Outcome::Unknown => 16,
        }
    }
}

/// What a node knows of another's acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vouch {
    /// The sender's last applied slot.
    pub applied: Slot,
    /// The epoch that the log's part speaks of.
    pub epoch: Epoch,
    /// The highest ballot of the log it promised.
    pub promised: Option<Ballot>,
    /// The slots of the log it accepted, each under the highest ballot, as far as it is not known to have applied them.
    pub accepted: Vec<(Slot, Ballot)>,
    /// Committees in which it promised.
    pub committees: Vec<VouchedCommittee>,
    /// How far it said that it has come.
    pub progress: Option<Progress>,
    /// So many of its runs, the present one last, the sender has followed from their first message on, in one run of its own.
    pub followed: u32,
    /// The last epoch that may have begun, as far as the sender knows.
    pub last: Epoch,
    /// The highest round of the log's ballots that the sender has seen.
    pub round: u64,
    /// The last slot of the log in which the sender has accepted something, or that it has applied.
    pub slot: Slot,
    /// Committees in which the sender itself has accepted something: of those whose primary it speaks to with the numbers, of
    /// others only where it has the base.
    pub held: Vec<VouchedCommittee>,
    /// The sender's store is older than what other members know ([`crate::doubt::Doubt::older`]).
    pub older: bool,
}

/// What a node knows of another's acknowledgements to one of its primaries: that it promised, and more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VouchedCommittee {
    /// The primary's ballot.
    pub ballot: TermBallot,
    /// Its sub-range.
    pub range: KeyRange,
    /// It accepted the base.
    pub based: bool,
    /// The numbers it accepted.
    pub accepted: NumberSet,
}

impl Vouch {
    /// Nothing to tell.
    pub fn silent(applied: Slot, epoch: Epoch) -> Vouch {
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

/// The sender of a message and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// Who, in which life.
    pub node: NodeId,
    /// Its group's epoch as it knows it.
    pub epoch: Epoch,
}

impl Message {
    /// Is it one of the first words of an epoch? They come together with its state, or before.
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
    /// Does it ask to promise, or to accept, the end of the epoch?
    pub fn ends_epoch(&self) -> bool {
        match self {
            LogMessage::Prepare { stop, .. } => *stop,
            LogMessage::Accept { entries, .. } => entries.iter().any(|(_, entry)| entry.ends_epoch()),
            _ => false,
        }
    }
}

impl CommitteeMessage {
    /// The ballot it speaks of.
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

    /// Is it meant for the primary of that ballot, not for an acceptor?
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
