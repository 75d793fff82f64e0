//! One switch in software: a pipeline, ports, and counters, between those who move packets and those who set tables.
//!
//! All of it is behind one lock. Whoever moves packets takes it for a batch of them at a time, so a change of the tables falls
//! between two batches, and no packet sees half of one.

mod counters;
mod ports;

use std::sync::{Mutex, MutexGuard, PoisonError};

use header::{Header, Operation};

pub use counters::{BATCH_BOUNDS, Counters, Cut, PartitionCounters};
pub use ports::{NoPort, PORTS_MAX, Ports};

use crate::dirty::Shape;
use crate::pipeline::{Pipeline, Verdict, Why};
use crate::tables::{Partition, Unfit};

/// What is shared.
#[derive(Debug)]
pub struct Device {
    state: Mutex<State>,
}

/// What is behind the lock.
///
/// # Invariants
/// - Only partitions that are in the pipeline have counters, so there are no more of these than registers.
#[derive(Debug)]
pub struct State {
    pipeline: Pipeline,
    /// Where replicas are.
    pub ports: Ports,
    /// What all packets came to.
    pub counters: Counters,
    /// By the partitions' numbers, which only go up here.
    partitions: Vec<(u32, PartitionCounters)>,
    /// Where the last one was: most packets are of the partition that the one before was of.
    last: usize,
}

impl Device {
    /// Without partitions and ports.
    pub fn new(shape: Shape, registers: usize) -> Device {
        let state = State {
            pipeline: Pipeline::new(shape, registers),
            ports: Ports::default(),
            counters: Counters::default(),
            partitions: Vec::new(),
            last: 0,
        };
        Device { state: Mutex::new(state) }
    }

    /// Takes the lock. No packet moves until it is given back: only for what takes no longer than a batch of packets.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // What is behind it holds between any two statements, whatever became of whoever held it last.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The pipeline, to look at.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The pipeline, to change what packets change. Partitions are set and removed by what follows, which sees to their counters.
    pub fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// As [`Pipeline::set`].
    ///
    /// # Errors
    /// As there.
    pub fn set_partition(&mut self, number: u32, partition: Partition) -> Result<(), Unfit> {
        self.pipeline.set(number, partition)?;
        if let Err(place) = self.partitions.binary_search_by_key(&number, |(number, _)| *number) {
            self.partitions.insert(place, (number, PartitionCounters::default()));
        }
        Ok(())
    }

    /// As [`Pipeline::remove`]; its counters go, too.
    pub fn remove_partition(&mut self, number: u32) -> Option<Partition> {
        self.partitions.retain(|(other, _)| *other != number);
        self.pipeline.remove(number)
    }

    /// What packets of each partition came to.
    pub fn partitions(&self) -> &[(u32, PartitionCounters)] {
        &self.partitions
    }

    /// As [`Pipeline::process`], counted by kinds; what goes no further is counted in all by whoever says so ([`Counters::cut`]).
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
            // What is in the pipeline is here: see above.
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
            // Replies are gone, and what is no fast read by now is none.
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
        assert_eq!(state.set_partition(6, partition(1)), Err(Unfit::Index(1)));
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
        // The number that came last is gone, and another one has its place.
        state.process(&mut header(Operation::Read, 9, 0), 0);
        assert!(state.remove_partition(5).is_some());
        state.process(&mut header(Operation::Read, 5, 0), 0);
        state.process(&mut header(Operation::Read, 9, 0), 0);
        assert_eq!(state.partitions(), [(9, PartitionCounters { reads_single: 3, ..nine })]);
    }
}
