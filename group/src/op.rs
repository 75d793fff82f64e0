//! Operations that a client may ask of one key, and their answers.
//!
//! The primary of a key evaluates an operation once; its *result* is replicated (fRSM §3.2). So any deterministic function of one key's
//! value costs one round.

use core::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use overlay::time::WallMillis;

/// Version of a key's state: rises with every change, also over deletion (fRSM §3.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Rises each time the key is created again.
    pub generation: u32,
    /// Rises with each change within a generation.
    pub timestamp: u64,
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Answers about the current state and changes nothing.
    Read(Read),
    /// Sets the value if the condition holds.
    Set {
        /// The new value.
        value: Bytes,
        /// Condition on the state before.
        condition: Condition,
        /// Change of the key's deadline.
        expiry: Expiry,
        /// Whether to answer with the value before ([`Answer::Value`]) instead of [`Answer::Done`] or [`Answer::NotMet`].
        get: bool,
    },
    /// Deletes the key if it exists and the condition holds: [`Answer::Done`], else [`Answer::NotMet`].
    Delete {
        /// Condition on the state before.
        condition: Condition,
        /// Whether to answer with the value before ([`Answer::Value`]).
        get: bool,
    },
    /// Appends bytes; an absent key counts as empty. Answers with the new length, or with [`Answer::NotMet`] and no change where the length
    /// would exceed `max`.
    Append {
        /// Bytes to append.
        value: Bytes,
        /// Upper limit of the resulting value, in bytes, where the caller has a limit of its own.
        max: Option<u32>,
    },
    /// Adds to a decimal integer; an absent key counts as 0. Answers with the new number.
    Add(i64),
    /// Changes only the deadline: [`Answer::Done`], or [`Answer::NotMet`] where the key is absent or `only` forbids the change.
    Expire {
        /// The new deadline. [`Expiry::Clear`] removes it, and is not met by a key without one.
        expiry: Expiry,
        /// Condition on the old deadline.
        only: ExpireOnly,
    },
    /// Answers with the value and changes its deadline (`GETEX`).
    ReadExpire(Expiry),
    /// Acquires or releases a lease.
    Lease(LeaseOp),
}

/// Operation on a client's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseOp {
    /// Takes the lease if it is free, and renews it if its holder asks. Answers with the holder afterwards ([`Answer::Held`]).
    Acquire {
        /// Client that asks for the lease.
        holder: Bytes,
        /// Length of the lease, from the time when the primary evaluates the operation. A renewal does not shorten the rest of the lease: a
        /// late renewal must not take back the time that a later one gave.
        term: Duration,
    },
    /// Gives the lease back: [`Answer::Done`], or [`Answer::NotMet`] where the client is not its holder.
    Release {
        /// Client that gives the lease back.
        holder: Bytes,
    },
}

/// Kind of service that made a key's value. Services of other kinds do not change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Bytes of the store, counters among them.
    #[default]
    Value,
    /// A lease, with its holder.
    Lease,
}

/// Kind of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Read {
    /// [`Answer::Value`].
    Value,
    /// [`Answer::Versioned`].
    Versioned,
    /// [`Answer::Integer`]: 1 if the key exists, else 0.
    Exists,
    /// [`Answer::Integer`]: bytes of the value, 0 if the key is absent.
    Length,
    /// [`Answer::Integer`]: milliseconds until the deadline; -1 without a deadline, -2 if the key is absent (as in Redis).
    TimeToLive,
    /// [`Answer::Kind`].
    Kind,
}

/// Condition on a key's state for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Always holds.
    #[default]
    Always,
    /// The key is absent (`NX`).
    Absent,
    /// The key exists (`XX`).
    Present,
    /// The key exists with exactly this value (`IFEQ`).
    Equals(Bytes),
    /// The key is absent or has another value (`IFNE`).
    Differs(Bytes),
    /// The key exists with exactly this version.
    Version(Version),
}

/// Change of a key's deadline. Deadlines are in group time (`docs/design/primaries.md`), whichever way they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expiry {
    /// Removes the deadline.
    #[default]
    Clear,
    /// Keeps the deadline.
    Keep,
    /// Sets the deadline this long after the primary evaluates the operation.
    In(Duration),
    /// Sets the deadline to this time.
    At(WallMillis),
}

/// Deadlines that `EXPIRE` may replace, as in Redis; no deadline counts as an infinite one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpireOnly {
    /// Any.
    #[default]
    Always,
    /// Only a missing one (`NX`).
    Without,
    /// Only an existing one (`XX`).
    With,
    /// Only an earlier one than the new one; a missing one is later than all (`GT`).
    Later,
    /// Only a later one than the new one; a missing one is later than all (`LT`).
    Earlier,
    /// Only an existing one that is later than the new one (`XX LT`).
    WithEarlier,
}

/// Answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The change was made.
    Done,
    /// The condition did not hold; nothing was changed.
    NotMet,
    /// The value, or the value before the change.
    Value(Option<Bytes>),
    /// The value and its version.
    Versioned(Option<(Bytes, Version)>),
    /// A number.
    Integer(i64),
    /// The kind of the key's value, if the key exists.
    Kind(Option<Kind>),
    /// The holder of a lease. The holder counts the rest from when it asked, so it never believes in the lease for too long.
    Held {
        /// Client that holds the lease: the one that asked, or another one.
        holder: Bytes,
        /// Rest of the lease from the evaluation of the operation, in milliseconds.
        left_ms: u64,
    },
    /// The operation does not fit the value; nothing was changed.
    Unfit(Unfit),
    /// The operation was executed before, and its answer was too large to be kept. Only a peer that repeats the operation gets this answer,
    /// never a client.
    NotKept,
}

impl Op {
    /// Returns the number of bytes that the client gave with it.
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
    /// Returns the number of bytes of the value, or of the lease's holder, in it.
    pub fn bytes(&self) -> usize {
        match self {
            Answer::Value(Some(value)) | Answer::Versioned(Some((value, _))) => value.len(),
            Answer::Held { holder, .. } => holder.len(),
            _ => 0,
        }
    }
}

/// Reason why an operation does not fit the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unfit {
    /// The value is not a decimal integer of 64 bits.
    NotAnInteger,
    /// The sum would overflow.
    Overflow,
    /// The value would be longer than the network's limit.
    TooLong,
    /// The key has a value of another [`Kind`].
    OtherKind,
}

/// Service level of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadMode {
    /// Linearizable: a quorum confirms the read, or a lease covers it where the network has leases.
    #[default]
    Linearizable,
    /// Relaxed: any member answers from its own chosen state, which may be old.
    Relaxed,
}

/// Reason why an operation was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Had no effect and never will have: safe to repeat.
    #[error("nothing was done: {0}")]
    TryAgain(Refusal),
    /// May have taken effect, or may do so later. Never shown to a person as a failure.
    #[error("the outcome is not known")]
    Uncertain,
    /// Had no effect: a limit was reached.
    #[error("nothing was done: out of {0}")]
    Limit(Limit),
}

/// Reason why an operation was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// This peer is not part of a group yet.
    #[error("this peer is not in a group yet")]
    NotInGroup,
    /// No primary of the key could be reached in time.
    #[error("no primary of the key answered in time")]
    NoPrimary,
    /// Too many operations are waiting already.
    #[error("too many operations are waiting")]
    Busy,
    /// The operation's horizon has passed.
    #[error("the operation is too old to be told from a repetition")]
    TooOld,
    /// The peer is stopping.
    #[error("this peer is stopping")]
    Stopping,
}

/// Resource that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The disk. Reported only where no other member has room.
    #[error("disk space (the disks of the key's group are nearly full)")]
    Disk,
    /// Memory, or the part of it that the volunteer gives.
    #[error("memory")]
    Memory,
    /// The part of the disk that the volunteer gives (`--max-disk`). Reported only where no other member has room.
    #[error("disk space (the store has reached --max-disk)")]
    MaxDisk,
    /// The part of memory that ids of `SCATTER.ONCE` and their answers may take.
    #[error("room for ids of SCATTER.ONCE, which may take a quarter of --max-memory")]
    Ids,
}
