//! One switch in software: a pipeline, ports and counters, shared by the packet loop and the table service.
//!
//! All state is behind one lock. The packet loop takes the lock for a whole batch, so a change of the tables falls between two
//! batches. No packet sees half of a change.

mod counters;
mod ports;

use std::sync::{Mutex, MutexGuard, PoisonError};

use header::{Header, Operation};

pub use counters::{BATCH_BOUNDS, Counters, Cut, PartitionCounters};
pub use ports::{NoPort, PORTS_MAX, Ports};

use crate::dirty::Shape;
use crate::pipeline::{Pipeline, Verdict, Why};
use crate::tables::{Partition, PartitionError};

/// Switch state that is shared between threads.
#[derive(Debug)]
pub struct Device {
    state: Mutex<DeviceState>,
}

/// State behind the lock.
///
/// # Invariants
/// - Only partitions of the pipeline have counters, so there are at most as many of these as registers.
#[derive(Debug)]
pub struct DeviceState {
    pipeline: Pipeline,
    /// Addresses of replicas.
    pub ports: Ports,
    /// Counters of all packets.
    pub counters: Counters,
    /// Counters of partitions, in the order of their numbers.
    partitions: Vec<(u32, PartitionCounters)>,
    /// Position of the last partition: most packets are of the same partition as the one before.
    last: usize,
}

impl Device {
    /// Returns a switch without partitions and ports.
    pub fn new(shape: Shape, registers: usize) -> Device {
        let state = DeviceState {
            pipeline: Pipeline::new(shape, registers),
            ports: Ports::default(),
            counters: Counters::default(),
            partitions: Vec::new(),
            last: 0,
        };
        Device { state: Mutex::new(state) }
    }

    /// Takes the lock. No packet moves until it is released: use it only for work that takes no longer than a batch of packets.
    pub fn lock(&self) -> MutexGuard<'_, DeviceState> {
        // The state is valid between any two statements, even if the last holder of the lock panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceState {
    /// Returns the pipeline.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the pipeline for changes of its registers and dirty set. Use the methods below to set and remove partitions: they
    /// keep the counters.
    pub fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Sets a partition, as [`Pipeline::set`] does.
    ///
    /// # Errors
    /// As [`Pipeline::set`]; nothing has changed then.
    pub fn set_partition(&mut self, number: u32, partition: Partition) -> Result<(), PartitionError> {
        self.pipeline.set(number, partition)?;
        if let Err(place) = self.partitions.binary_search_by_key(&number, |(number, _)| *number) {
            self.partitions.insert(place, (number, PartitionCounters::default()));
        }
        Ok(())
    }

    /// Removes a partition, as [`Pipeline::remove`] does, and its counters.
    pub fn remove_partition(&mut self, number: u32) -> Option<Partition> {
        self.partitions.retain(|(other, _)| *other != number);
        self.pipeline.remove(number)
    }

    /// Returns the counters of each partition.
    pub fn partitions(&self) -> &[(u32, PartitionCounters)] {
        &self.partitions
    }

    /// Processes a packet, as [`Pipeline::process`] does, and counts it by kind. The caller counts the total of dropped packets
    /// ([`Counters::cut`]).
    pub fn process(&mut self, header: &mut Header, chance: u32) -> Verdict {
        let verdict = self.pipeline.process(header, chance);
        let total = &mut self.counters;
        if header.operation == Operation::Reply {
            total.replies += 1;
            return verdict;
        }
        if verdict == Verdict::Drop(Why::NoPartition) {
            return verdict;
        }
        if self.partitions.get(self.last).is_none_or(|(number, _)| *number != header.partition) {
            let found = self.partitions.binary_search_by_key(&header.partition, |(number, _)| *number);
            // Each partition of the pipeline is in this list: see the invariant.
            let Ok(place) = found else { return verdict };
            self.last = place;
        }
        let own = &mut self.partitions[self.last].1;
        match (verdict, header.operation) {
            (Verdict::Drop(Why::Full), _) => own.full += 1,
            (Verdict::Drop(_), _) => own.stale += 1,
            (_, Operation::FastRead) => {
                (own.reads_single, total.reads_single) = (own.reads_single + 1, total.reads_single + 1)
            }
            (_, Operation::Completion) => {
                (own.completions, total.completions) = (own.completions + 1, total.completions + 1)
            }
            (_, Operation::WriteFirst) => (own.writes, total.writes) = (own.writes + 1, total.writes + 1),
            (_, Operation::WriteRest) => total.write_rests += 1,
            // Replies have returned above; a read that is not fast by now goes to the primary.
            (_, Operation::Read | Operation::Reply) => {
                (own.reads_primary, total.reads_primary) = (own.reads_primary + 1, total.reads_primary + 1);
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirty::Region;

    #[test]
    fn partitions_are_counted_as_long_as_they_are_there() {
        let device = Device::new(Shape { stages: 1, slots: 8 }, 2);
        let mut state = device.lock();
        let partition = |index: u32| Partition {
            index,
            region: Region { first: 4 * index, slots: 4 },
            term: 1,
            switch: 1,
            active: true,
            primary: 1,
            replicas: vec![(2, 1)],
        };
        state.set_partition(9, partition(0)).unwrap();
        state.set_partition(5, partition(1)).unwrap();
        assert_eq!(state.set_partition(6, partition(1)), Err(PartitionError::Index(1)));
        let header = |operation, partition, sequence| Header {
            operation,
            partition,
            object: 1,
            switch: 1,
            term: 1,
            sequence,
            committed: 0,
            tag: 0,
        };
        for (operation, of, sequence) in [
            (Operation::Read, 9, 0),
            (Operation::WriteFirst, 9, 0),
            (Operation::WriteRest, 9, 0),
            (Operation::Completion, 9, 1),
            (Operation::Completion, 9, 7),
            (Operation::Read, 9, 0),
            (Operation::Read, 5, 0),
            (Operation::Read, 6, 0),
            (Operation::Reply, 6, 0),
        ] {
            state.process(&mut header(operation, of, sequence), 0);
        }
        let nine =
            PartitionCounters { reads_single: 1, reads_primary: 1, writes: 1, completions: 1, full: 0, stale: 1 };
        let five = PartitionCounters { reads_primary: 1, ..PartitionCounters::default() };
        assert_eq!(state.partitions(), [(5, five), (9, nine)]);
        let counters = &state.counters;
        assert_eq!((counters.reads_single, counters.reads_primary, counters.writes), (1, 2, 1));
        assert_eq!((counters.write_rests, counters.completions, counters.replies), (1, 1, 1));
        // The partition of the last packet is removed, and another one takes its position.
        state.process(&mut header(Operation::Read, 9, 0), 0);
        assert!(state.remove_partition(5).is_some());
        state.process(&mut header(Operation::Read, 5, 0), 0);
        state.process(&mut header(Operation::Read, 9, 0), 0);
        assert_eq!(state.partitions(), [(9, PartitionCounters { reads_single: 3, ..nine })]);
    }
}
