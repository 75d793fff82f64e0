//! Counters of packets.

use header::Malformed;

use crate::pipeline::Why;

/// Upper bounds of the classes into which sizes of batches are counted, in packets.
pub const BATCH_BOUNDS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Reason for which a packet was not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// [`Malformed::Size`]
    Size,
    /// [`Malformed::Magic`]
    Magic,
    /// [`Malformed::Version`]
    Version,
    /// [`Malformed::Operation`]
    Operation,
    /// [`Malformed::Lengths`]
    Lengths,
    /// [`Why::NoPartition`]
    NoPartition,
    /// [`Why::Full`]
    Full,
    /// [`Why::Stale`]
    Stale,
    /// The destination is a replica that has no port.
    NoPort,
    /// A request whose answer should go to an address other than its source.
    ForeignReply,
    /// A packet of a write, an answer or a completion that comes from no replica.
    Stranger,
    /// An answer without an address, or to a client that sent no request lately.
    UnknownClient,
    /// The system had no buffer space to send it.
    SendFull,
    /// The system did not send it, for example for want of a route.
    SendFailed,
}

impl Cut {
    /// All reasons, in the order of their places in [`Counters`].
    pub const ALL: [Cut; 14] = [
        Cut::Size,
        Cut::Magic,
        Cut::Version,
        Cut::Operation,
        Cut::Lengths,
        Cut::NoPartition,
        Cut::Full,
        Cut::Stale,
        Cut::NoPort,
        Cut::ForeignReply,
        Cut::Stranger,
        Cut::UnknownClient,
        Cut::SendFull,
        Cut::SendFailed,
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cut::Size => "malformed_size",
            Cut::Magic => "malformed_magic",
            Cut::Version => "malformed_version",
            Cut::Operation => "malformed_operation",
            Cut::Lengths => "malformed_lengths",
            Cut::NoPartition => "no_partition",
            Cut::Full => "full",
            Cut::Stale => "stale",
            Cut::NoPort => "no_port",
            Cut::ForeignReply => "foreign_reply_address",
            Cut::Stranger => "stranger",
            Cut::UnknownClient => "unknown_client",
            Cut::SendFull => "send_buffer_full",
            Cut::SendFailed => "send_failed",
        }
    }
}

impl From<Malformed> for Cut {
    fn from(malformed: Malformed) -> Cut {
        match malformed {
            Malformed::Size(_) => Cut::Size,
            Malformed::Magic => Cut::Magic,
            Malformed::Version(_) => Cut::Version,
            Malformed::Operation(_) => Cut::Operation,
            Malformed::Lengths => Cut::Lengths,
        }
    }
}

impl From<Why> for Cut {
    fn from(why: Why) -> Cut {
        match why {
            Why::NoPartition => Cut::NoPartition,
            Why::Full => Cut::Full,
            Why::Stale => Cut::Stale,
        }
    }
}

/// Counters of a whole switch, since its start.
///
/// Each packet that was received is, in the end, counted once: as forwarded, as absorbed, or as one of the cuts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were received.
    pub received: u64,
    /// Packets that the system accepted for sending.
    pub forwarded: u64,
    /// Completions that were for the switch alone.
    pub absorbed: u64,
    cuts: [u64; Cut::ALL.len()],
    /// Reads that the pipeline sent to any one replica.
    pub reads_single: u64,
    /// Reads that the pipeline sent to primaries.
    pub reads_primary: u64,
    /// Writes, by their first packets.
    pub writes: u64,
    /// Further packets of writes.
    pub write_rests: u64,
    /// Completions that the pipeline accepted.
    pub completions: u64,
    /// Answers from replicas.
    pub replies: u64,
    /// Batches by size; the classes are those of [`BATCH_BOUNDS`].
    pub batches: [u64; BATCH_BOUNDS.len()],
    /// Clients that were forgotten before their time, because other clients needed the place.
    pub clients_evicted: u64,
    /// Failed attempts to receive.
    pub receive_errors: u64,
}

impl Counters {
    /// Counts a packet that is not forwarded.
    pub fn cut(&mut self, cut: Cut) {
        self.cut_many(cut, 1);
    }

    /// Counts `packets` that are not forwarded.
    pub(crate) fn cut_many(&mut self, cut: Cut, packets: u64) {
        self.cuts[cut as usize] += packets;
    }

    /// Returns the number of packets that were not forwarded for this reason.
    pub fn of(&self, cut: Cut) -> u64 {
        self.cuts[cut as usize]
    }

    /// Counts a batch of at least one received packet.
    pub fn batch(&mut self, packets: usize) {
        let place = BATCH_BOUNDS.iter().position(|bound| packets <= *bound).unwrap_or(BATCH_BOUNDS.len() - 1);
        self.batches[place] += 1;
        self.received += packets as u64;
    }
}

/// Counters of one partition, since it was set. Packets without a partition in the table, and answers, are only in [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionCounters {
    /// See [`Counters::reads_single`].
    pub reads_single: u64,
    /// See [`Counters::reads_primary`].
    pub reads_primary: u64,
    /// See [`Counters::writes`].
    pub writes: u64,
    /// See [`Counters::completions`].
    pub completions: u64,
    /// See [`Cut::Full`].
    pub full: u64,
    /// See [`Cut::Stale`].
    pub stale: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cut_has_a_place_and_a_name() {
        let mut names: Vec<&str> = Cut::ALL.iter().map(|cut| cut.name()).collect();
        assert!(Cut::ALL.iter().enumerate().all(|(place, cut)| *cut as usize == place));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Cut::ALL.len());
    }

    #[test]
    fn batches_are_counted_by_size() {
        let mut counters = Counters::default();
        [1, 2, 3, 64, 64].into_iter().for_each(|packets| counters.batch(packets));
        assert_eq!((counters.batches, counters.received), ([1, 1, 1, 0, 0, 0, 2], 134));
    }
}
