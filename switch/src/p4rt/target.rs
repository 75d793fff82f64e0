//! What a server of P4Runtime sets and reads: a switch in software, or a stand-in for one.

use std::net::SocketAddrV4;

use crate::pipeline::Pipeline;
use crate::tables::{Partition, Replica, Unfit};

/// What packets come to. The order is that of the counters in the P4 program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Reads that went to any one replica.
    ReadsSingle,
    /// Reads that went to a primary.
    ReadsPrimary,
    /// Writes, by their first packets.
    Writes,
    /// Their other packets.
    WriteRests,
    /// Completions that were believed.
    Completions,
    /// Answers.
    Replies,
    /// They are of no partition, or not of its term.
    NoPartition,
    /// There was no room in the dirty set.
    Full,
    /// Completions that were not believed.
    Stale,
    /// They are for a replica that has no port.
    NoPort,
    /// They are no packets of this protocol, though they claim to be.
    Malformed,
}

impl Counted {
    /// All of them, each at its place.
    pub const ALL: [Counted; 11] = [
        Counted::ReadsSingle,
        Counted::ReadsPrimary,
        Counted::Writes,
        Counted::WriteRests,
        Counted::Completions,
        Counted::Replies,
        Counted::NoPartition,
        Counted::Full,
        Counted::Stale,
        Counted::NoPort,
        Counted::Malformed,
    ];
}

/// There is no room for another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for another port")]
pub struct NoRoom;

/// A switch, as far as P4Runtime reaches into it.
///
/// Each call is one change: no packet sees half of it. Its pipeline has [`STAGES`](super::p4info::register::STAGES) stages, for so
/// many are in the P4 program.
pub trait Target: Send + Sync + 'static {
    /// Sets a partition, in place of that with this number.
    ///
    /// # Errors
    /// Where it takes what is another's, or not there, or moves under the id that it has; nothing has changed then.
    fn set_partition(&self, number: u32, partition: Partition) -> Result<(), Unfit>;

    /// Takes a partition out, if it is there.
    fn remove_partition(&self, number: u32);

    /// Says where a replica is, in place of where it was.
    ///
    /// # Errors
    /// Where it has no place yet, and there is no room for another one.
    fn set_port(&self, replica: Replica, address: SocketAddrV4) -> Result<(), NoRoom>;

    /// Forgets where a replica is.
    fn remove_port(&self, replica: Replica);

    /// How many packets came to what, in the order of [`Counted::ALL`].
    fn counters(&self) -> [u64; Counted::ALL.len()];

    /// Sets one of these counters.
    fn set_counter(&self, counted: Counted, packets: u64);

    /// Lends the pipeline for its registers' sake: no packet passes in the meantime, so only for what takes no longer than a few
    /// packets do.
    fn with_pipeline(&self, with: &mut dyn FnMut(&mut Pipeline));
}
