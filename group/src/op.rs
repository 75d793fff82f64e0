//! What a client may ask of one key, and what it is answered.
//!
//! An operation is evaluated once, at the primary of its key; its *result* is replicated (fRSM §3.2). So any
//! deterministic function of one key's value costs one round.

use core::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::time::WallMillis;

/// What distinguishes the states of one key: goes up with every change, also over deletion (fRSM §3.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Goes up each time the key is created again.
    pub generation: u32,
    /// Goes up with each change within a generation.
    pub timestamp: u64,
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Answers about the current state, changes nothing.
    Read(Read),
    /// Sets the value if the condition holds.
    Set {
        /// The new value.
        value: Bytes,
        /// What must hold of the state before.
        condition: Condition,
        /// What becomes of the key's deadline.
        expiry: Expiry,
        /// Answer with the value before ([`Answer::Value`]) instead of [`Answer::Done`] or [`Answer::NotMet`].
        get: bool,
    },
    /// Deletes the key if it is there and the condition holds: [`Answer::Done`], else [`Answer::NotMet`].
    Delete {
        /// What must hold of the state before.
        condition: Condition,
        /// Answer with the value before ([`Answer::Value`]).
        get: bool,
    },
    /// Adds bytes at the end; an absent key counts as empty. Answers with the new length, or [`Answer::NotMet`] and no
    /// change where it would exceed `max`.
    Append {
        /// What to add.
        value: Bytes,
        /// The longest value that may result, in bytes, where the caller has a limit of its own.
        max: Option<u32>,
    },
    /// Adds to a decimal integer; an absent key counts as 0. Answers with the new number.
    Add(i64),
    /// Changes the deadline alone: [`Answer::Done`], or [`Answer::NotMet`] where the key is absent or `only` forbids.
    Expire {
        /// The new deadline. [`Expiry::Clear`] takes it away, and is not met by a key that has none.
        expiry: Expiry,
        /// Only where this holds of the old deadline.
        only: ExpireOnly,
    },
    /// Answers with the value and changes its deadline (`GETEX`).
    ReadExpire(Expiry),
    /// About a lease.
    Lease(LeaseOp),
}

/// What may be asked of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseOp {
    /// Takes it if nobody has it, and renews it if its holder asks. Answers with whoever has it then ([`Answer::Held`]).
    Acquire {
        /// Who wants it.
        holder: Bytes,
        /// For how long, from when the primary evaluates this; a renewal does not
        /// shorten what was left: one that was late must not take from its holder what a younger one gave.
        term: Duration,
    },
    /// Gives it back: [`Answer::Done`], or [`Answer::NotMet`] where it is not this one who has it.
    Release {
        /// Who has it.
        holder: Bytes,
    },
}

/// Whose a key's value is: what kind of service made it. Others do not touch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Bytes of the store, counters among them.
    #[default]
    Value,
    /// A lease: its holder.
    Lease,
}

/// What a read wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Read {
    /// [`Answer::Value`].
    Value,
    /// [`Answer::Versioned`].
    Versioned,
    /// [`Answer::Integer`]: 1 if it is there, else 0.
    Exists,
    /// [`Answer::Integer`]: bytes, 0 if it is absent.
    Length,
    /// [`Answer::Integer`]: milliseconds until its deadline; -1 if it has none, -2 if it is absent (as Redis has it).
    TimeToLive,
    /// [`Answer::Kind`].
    Kind,
}

/// What must hold of a key's state for a change to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The key is absent (`NX`).
    Absent,
    /// The key is there (`XX`).
    Present,
    /// The key is there with exactly this value (`IFEQ`).
    Equals(Bytes),
    /// The key is absent or has another value (`IFNE`).
    Differs(Bytes),
    /// The key is there with exactly this version.
    Version(Version),
}

/// What becomes of a key's deadline. Deadlines are group time (`docs/design/primaries.md`), whatever their origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiry {
    /// It has none from now on.
    #[default]
    Clear,
    /// It keeps what it has.
    Keep,
    /// So long from when the primary evaluates the operation.
    In(Duration),
    /// At that time.
    At(WallMillis),
}

/// Which deadlines `EXPIRE` may replace, as Redis has it; no deadline counts as an infinite one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpireOnly {
    /// Any.
    #[default]
    Always,
    /// Only where there is none (`NX`).
    Without,
    /// Only where there is one (`XX`).
    With,
    /// Only if the new one is later; none is later than all (`GT`).
    Later,
    /// Only if the new one is earlier; none is later than all (`LT`).
    Earlier,
    /// Only where there is one, and the new one is earlier (`XX LT`).
    WithEarlier,
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The change was made.
    Done,
    /// The condition did not hold; nothing was changed.
    NotMet,
    /// The value, or that of before the change.
    Value(Option<Bytes>),
    /// The value and its version.
    Versioned(Option<(Bytes, Version)>),
    /// A number.
    Integer(i64),
    /// What the key is, if it is there.
    Kind(Option<Kind>),
    /// Who has a lease. The holder counts from when it asked: then it never believes in it for too long.
    Held {
        /// Whoever asked, or somebody else.
        holder: Bytes,
        /// So long from when the question was evaluated, in milliseconds.
        left_ms: u64,
    },
    /// The operation does not fit the value; nothing was changed.
    Unfit(Unfit),
    /// The operation was executed before, and its answer was too large to be kept: told to a peer that repeats it, and never to a
    /// client.
    NotKept,
}

impl Op {
    /// The bytes that a client gave with it.
    pub fn bytes(&self) -> usize {
        let condition = |condition: &Condition| match condition {
            Condition::Equals(value) | Condition::Differs(value) => value.len(),
            Condition::Always | Condition::Absent | Condition::Present | Condition::Version(_) => 0,
        };
        match self {
            Op::Set { value, condition: of, .. } => value.len() + condition(of),
            Op::Delete { condition: of, .. } => condition(of),
            Op::Append { value, .. } => value.len(),
            Op::Lease(LeaseOp::Acquire { holder, .. } | LeaseOp::Release { holder }) => holder.len(),
            Op::Read(_) | Op::Add(_) | Op::Expire { .. } | Op::ReadExpire(_) => 0,
        }
    }
}

impl Answer {
    /// The bytes of the value in it.
    pub fn bytes(&self) -> usize {
        match self {
            Answer::Value(Some(value)) | Answer::Versioned(Some((value, _))) => value.len(),
            Answer::Held { holder, .. } => holder.len(),
            _ => 0,
        }
    }
}

/// Why an operation does not fit the value it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unfit {
    /// Not a decimal integer of 64 bits.
    NotAnInteger,
    /// The sum would overflow.
    Overflow,
    /// The value would be longer than the network's limit.
    TooLong,
    /// The key has a value of another [`Kind`].
    OtherKind,
}

/// How a read is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadMode {
    /// Linearizable: confirmed by a quorum, or under a lease where the network has them.
    #[default]
    Linearizable,
    /// By any member from its own chosen state, which may be old.
    Relaxed,
}

/// Why an operation was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Had no effect and never will have: safe to repeat.
    #[error("nothing was done: {0}")]
    TryAgain(Refusal),
    /// May have taken effect, or may do so yet. Never shown to a person as a failure.
    #[error("the outcome is not known")]
    Uncertain,
    /// Had no effect: a limit stands in the way.
    #[error("nothing was done: out of {0}")]
    Limit(Limit),
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// This peer is not part of a group yet.
    #[error("this peer is not in a group yet")]
    NotInGroup,
    /// No primary of the key could be reached in time.
    #[error("no primary of the key answered in time")]
    NoPrimary,
    /// Too much is waiting already.
    #[error("too many operations are waiting")]
    Busy,
    /// The operation's horizon has passed.
    #[error("the operation is too old to be told from a repetition")]
    TooOld,
    /// The peer is stopping.
    #[error("this peer is stopping")]
    Stopping,
}

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The disk. Said only where no other member has room.
    #[error("disk space (the disks of the key's group are nearly full)")]
    Disk,
    /// Memory, or what the volunteer gives of it.
    #[error("memory")]
    Memory,
    /// What the volunteer gives of the disk (`--max-disk`). Said only where no other member has room.
    #[error("disk space (the store has reached --max-disk)")]
    MaxDisk,
    /// The part of memory that ids of `SCATTER.ONCE` and their answers may take.
    #[error("room for ids of SCATTER.ONCE, which may take a quarter of --max-memory")]
    Ids,
}
