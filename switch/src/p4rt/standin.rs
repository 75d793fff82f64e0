//! Stand-in for a switch, for tests of controllers: packets pass it only if a test feeds them by hand.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::target::{Counted, NoRoom, Target};
use crate::dirty::Shape;
use crate::pipeline::Pipeline;
use crate::tables::{Partition, PartitionError, Replica};

/// Stand-in for a switch.
#[derive(Debug)]
pub struct Standin {
    state: Mutex<StandinState>,
}

/// Content of the stand-in.
#[derive(Debug)]
pub struct StandinState {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// Addresses of replicas.
    pub ports: BTreeMap<Replica, SocketAddrV4>,
    /// Counters, which are set by hand.
    pub counters: [u64; Counted::ALL.len()],
}

impl Standin {
    /// Returns a stand-in with a pipeline of this shape, and without partitions.
    pub fn new(shape: Shape, registers: usize) -> Standin {
        let pipeline = Pipeline::new(shape, registers);
        Standin {
            state: Mutex::new(StandinState { pipeline, ports: BTreeMap::new(), counters: [0; Counted::ALL.len()] }),
        }
    }

    /// Returns the content.
    pub fn lock(&self) -> MutexGuard<'_, StandinState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Standin {
    fn set_partition(&self, number: u32, partition: Partition) -> Result<(), PartitionError> {
        self.lock().pipeline.set(number, partition)
    }

    fn remove_partition(&self, number: u32) {
        self.lock().pipeline.remove(number);
    }

    fn set_port(&self, replica: Replica, address: SocketAddrV4) -> Result<(), NoRoom> {
        self.lock().ports.insert(replica, address);
        Ok(())
    }

    fn remove_port(&self, replica: Replica) {
        self.lock().ports.remove(&replica);
    }

    fn counters(&self) -> [u64; Counted::ALL.len()] {
        self.lock().counters
    }

    fn set_counter(&self, counted: Counted, packets: u64) {
        self.lock().counters[counted as usize] = packets;
    }

    fn with_pipeline(&self, with: &mut dyn FnMut(&mut Pipeline)) {
        with(&mut self.lock().pipeline);
    }
}
