//! Switch in software, as the target of P4Runtime.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};

use super::target::{Counted, NoRoom, Target};
use crate::device::{Counters, Cut, Device};
use crate::pipeline::Pipeline;
use crate::tables::{Partition, PartitionError, Replica};

/// Values of all counters.
type Counts = [u64; Counted::ALL.len()];

/// Device for controllers.
///
/// The device's counters only go up, because they have other readers too. If a controller sets a counter, the difference is kept
/// here. Entries that were set otherwise (by hand, at the start) are not in a controller's tables; they still hold their places.
#[derive(Debug)]
pub struct Controlled {
    device: Arc<Device>,
    /// Each device counter at the time when the controller set it, less the value that the controller set; modulo 2^64.
    behind: Mutex<Counts>,
}

impl Controlled {
    /// Returns the target for this device.
    pub fn new(device: Arc<Device>) -> Controlled {
        Controlled { device, behind: Mutex::default() }
    }

    fn counted(&self) -> Counts {
        let state = self.device.lock();
        Counted::ALL.map(|counted| count(&state.counters, counted))
    }
}

fn count(counters: &Counters, counted: Counted) -> u64 {
    match counted {
        Counted::ReadsSingle => counters.reads_single,
        Counted::ReadsPrimary => counters.reads_primary,
        Counted::Writes => counters.writes,
        Counted::WriteRests => counters.write_rests,
        Counted::Completions => counters.completions,
        Counted::Replies => counters.replies,
        Counted::NoPartition => counters.of(Cut::NoPartition),
        Counted::Full => counters.of(Cut::Full),
        Counted::Stale => counters.of(Cut::Stale),
        Counted::NoPort => counters.of(Cut::NoPort),
        Counted::Malformed => {
            [Cut::Size, Cut::Magic, Cut::Version, Cut::Operation, Cut::Lengths].map(|cut| counters.of(cut)).iter().sum()
        }
    }
}

impl Target for Controlled {
    fn set_partition(&self, number: u32, partition: Partition) -> Result<(), PartitionError> {
        self.device.lock().set_partition(number, partition)
    }

    fn remove_partition(&self, number: u32) {
        self.device.lock().remove_partition(number);
    }

    fn set_port(&self, replica: Replica, address: SocketAddrV4) -> Result<(), NoRoom> {
        // No entry has port 0, so only want of room can be the reason.
        self.device.lock().ports.set(replica, SocketAddr::V4(address)).map_err(|_| NoRoom)
    }

    fn remove_port(&self, replica: Replica) {
        self.device.lock().ports.remove(replica);
    }

    fn counters(&self) -> Counts {
        let behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.counted();
        counts.iter_mut().zip(behind.iter()).for_each(|(count, behind)| *count = count.wrapping_sub(*behind));
        counts
    }

    fn set_counter(&self, counted: Counted, packets: u64) {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        behind[counted as usize] = self.counted()[counted as usize].wrapping_sub(packets);
    }

    fn with_pipeline(&self, with: &mut dyn FnMut(&mut Pipeline)) {
        with(self.device.lock().pipeline_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirty::Shape;

    #[test]
    fn counters_that_are_set_do_not_go_back_elsewhere() {
        let device = Arc::new(Device::new(Shape { stages: 3, slots: 8 }, 1));
        let controlled = Controlled::new(device.clone());
        device.lock().counters.writes = 5;
        device.lock().counters.cut(Cut::Size);
        device.lock().counters.cut(Cut::Magic);
        let get = |counted| controlled.counters()[counted as usize];
        assert_eq!((get(Counted::Writes), get(Counted::Malformed), get(Counted::Full)), (5, 2, 0));
        for (set, then) in [(0, 3), (100, 103)] {
            controlled.set_counter(Counted::Writes, set);
            assert_eq!(get(Counted::Writes), set);
            device.lock().counters.writes += 3;
            assert_eq!(get(Counted::Writes), then);
        }
        assert_eq!(device.lock().counters.writes, 11);
    }

    #[test]
    fn there_is_an_end_to_ports() {
        let controlled = Controlled::new(Arc::new(Device::new(Shape { stages: 3, slots: 8 }, 1)));
        let address = "127.0.0.1:1".parse().unwrap();
        for replica in 0..4096 {
            controlled.set_port(replica, address).unwrap();
        }
        assert_eq!(controlled.set_port(4096, address), Err(NoRoom));
        controlled.remove_port(0);
        controlled.set_port(4096, address).unwrap();
    }
}
