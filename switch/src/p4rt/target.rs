//! Target of a P4Runtime server: a switch in software, or a stand-in for one.

use std::net::SocketAddrV4;

use crate::pipeline::Pipeline;
use crate::tables::{Partition, PartitionError, Replica};

/// Outcome of a packet that is counted. The order is that of the counters in the P4 program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Reads that went to any one replica.
    ReadsSingle,
    /// Reads that went to a primary.
    ReadsPrimary,
    /// Writes, by their first packets.
    Writes,
    /// Further packets of writes.
    WriteRests,
    /// Completions that the pipeline accepted.
    Completions,
    /// Answers.
    Replies,
    /// Packets of no partition, or not of its term.
    NoPartition,
    /// Writes without room in the dirty set.
    Full,
    /// Completions that the pipeline did not accept.
    Stale,
    /// Packets for a replica that has no port.
    NoPort,
    /// Packets that claim to be of this protocol, and are not valid.
    Malformed,
}

impl Counted {
    /// All counters, each at its place.
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

/// Error of a port for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has no room for another port")]
pub struct NoRoom;

/// Switch, as far as P4Runtime reaches into it.
///
/// Each call is one change: no packet sees half of it. The pipeline has [`STAGES`](super::p4info::register::STAGES) stages, as
/// many as the P4 program.
pub trait Target: Send + Sync + 'static {
    /// Sets a partition; replaces the partition with this number.
    ///
    /// # Errors
    /// [`PartitionError`], if the partition takes another partition's places, takes places that do not exist, or moves under the
    /// id that it has. Nothing has changed then.
    fn set_partition(&self, number: u32, partition: Partition) -> Result<(), PartitionError>;

    /// Removes a partition, if it is there.
    fn remove_partition(&self, number: u32);

    /// Sets the address of a replica; replaces the former one.
    ///
    /// # Errors
    /// If the replica has no port yet, and there is no room for another one. Nothing has changed then.
    fn set_port(&self, replica: Replica, address: SocketAddrV4) -> Result<(), NoRoom>;

    /// Removes the address of a replica.
    fn remove_port(&self, replica: Replica);

    /// Returns the number of packets of each outcome, in the order of [`Counted::ALL`].
    fn counters(&self) -> [u64; Counted::ALL.len()];

    /// Sets one of these counters.
    fn set_counter(&self, counted: Counted, packets: u64);

    /// Lends the pipeline for access to its registers. No packet passes in the meantime, so use it only for work that takes no
    /// longer than a few packets.
    fn with_pipeline(&self, with: &mut dyn FnMut(&mut Pipeline));
}
