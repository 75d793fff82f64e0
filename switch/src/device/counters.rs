//! What packets came to, in numbers.

use header::Malformed;

use crate::pipeline::Why;

/// Sizes of batches are counted up to these.
pub const BATCH_BOUNDS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Why a packet went no further.
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
    /// It is for a replica that has no port.
    NoPort,
    /// A question that wants its answer to go to somebody else.
    ForeignReply,
    /// A packet of a write, an answer or a completion that comes from no replica.
    Stranger,
    /// An answer to nobody, or to whom nothing was heard of lately.
    UnknownClient,
    /// The system had no room for it.
    SendFull,
    /// The system did not send it: no way leads there, say.
    SendFailed,
}

impl Cut {
    /// All of them.
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

    /// What it is called where metrics are read.
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

/// Of a whole switch, since it began.
///
/// Each packet that was received is, in the end, in one of forwarded, absorbed and the cuts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that came.
    pub received: u64,
    /// What the system has taken to send.
    pub forwarded: u64,
    /// Completions that were for the switch alone.
    pub absorbed: u64,
    cuts: [u64; Cut::ALL.len()],
    /// Reads that the pipeline gave to any one replica.
    pub reads_single: u64,
    /// Reads that it gave to primaries.
    pub reads_primary: u64,
    /// Writes, by their first packets.
    pub writes: u64,
    /// Their other packets.
    pub write_rests: u64,
    /// Completions that were believed.
    pub completions: u64,
    /// Answers from replicas.
    pub replies: u64,
    /// Batches of at most so many packets as [`BATCH_BOUNDS`] says.
    pub batches: [u64; BATCH_BOUNDS.len()],
    /// Clients that were forgotten before their time, because others needed the place.
    pub clients_evicted: u64,
    /// Receiving that failed.
    pub receive_errors: u64,
}

impl Counters {
    /// A packet goes no further.
    pub fn cut(&mut self, cut: Cut) {
        self.cut_many(cut, 1);
    }

    /// So many packets go no further.
    pub fn cut_many(&mut self, cut: Cut, packets: u64) {
        self.cuts[cut as usize] += packets;
    }

    /// So many packets went no further for this reason.
    pub fn of(&self, cut: Cut) -> u64 {
        self.cuts[cut as usize]
    }

    /// So many packets came at once, at least one.
    pub fn batch(&mut self, packets: usize) {
        let place = BATCH_BOUNDS.iter().position(|bound| packets <= *bound).unwrap_or(BATCH_BOUNDS.len() - 1);
        self.batches[place] += 1;
        self.received += packets as u64;
    }
}

/// Of one partition, since it was set. What is of no partition or no partition's (answers) is only in [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionCounters {
    /// As [`Counters::reads_single`].
    pub reads_single: u64,
    /// As [`Counters::reads_primary`].
    pub reads_primary: u64,
    /// As [`Counters::writes`].
    pub writes: u64,
    /// As [`Counters::completions`].
    pub completions: u64,
    /// As [`Cut::Full`].
    pub full: u64,
    /// As [`Cut::Stale`].
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
