//! Treatment of a packet (`Harmonia` Algorithm 1).

use header::{Header, NO_OBJECT, Operation};

use crate::dirty::{DirtySet, Mark, Shape};
use crate::tables::{Partition, PartitionError, Replica, Tables};

/// Default number of registers: the upper limit of partitions in the table.
pub const REGISTERS: usize = 256;

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward the packet to this replica.
    To(Replica),
    /// Forward the packet to its own destination.
    On,
    /// Drop the packet.
    Drop(Why),
}

/// Reason for which a packet is dropped. Its sender asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No partition has this number and term.
    NoPartition,
    /// The dirty set has no room: a write that is not in it must not be forwarded (hazard 56).
    Full,
    /// A completion of a write that another switch numbered, or of no write.
    Stale,
}

/// Fields of one partition that packets change. They count only for a partition with the same mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    /// Mark of the partition to which the fields belong.
    pub mark: Mark,
    /// Last number given to a write.
    pub sequence: u64,
    /// All writes up to this number are complete. At 0 no write is complete yet, and no read may go to any one replica.
    pub committed: u64,
}

/// Switch: tables, registers and the dirty set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pipeline {
    tables: Tables,
    registers: Box<[Register]>,
    dirty: DirtySet,
}

impl Pipeline {
    /// Returns a pipeline without partitions.
    pub fn new(shape: Shape, registers: usize) -> Pipeline {
        let registers = vec![Register::default(); registers].into();
        Pipeline { tables: Tables::default(), registers, dirty: DirtySet::new(shape) }
    }

    /// Sets a partition; replaces the partition with this number.
    ///
    /// # Errors
    /// [`PartitionError`], if the partition takes another partition's places, takes places that do not exist, or moves under the
    /// id that it has. Nothing has changed then.
    pub fn set(&mut self, number: u32, partition: Partition) -> Result<(), PartitionError> {
        self.tables.set(number, partition, self.registers.len(), self.dirty.slots())
    }

    /// Removes a partition and returns it.
    pub fn remove(&mut self, number: u32) -> Option<Partition> {
        self.tables.remove(number)
    }

    /// Returns a partition as it was set.
    pub fn partition(&self, number: u32) -> Option<&Partition> {
        self.tables.get(number)
    }

    /// Returns whether this object has writes in that partition that are not complete.
    pub fn is_dirty(&self, number: u32, object: u32) -> bool {
        let Some(partition) = self.tables.get(number) else { return false };
        let mark = partition.mark(number);
        let register = self.registers[partition.index as usize];
        let committed = if register.mark == mark { register.committed } else { 0 };
        self.dirty.contains(partition.region, mark, object, committed)
    }

    /// Returns the registers, by [`Partition::index`].
    pub fn registers(&self) -> &[Register] {
        &self.registers
    }

    /// Returns the registers for changes by hand: a number that was already given must not be given again.
    pub fn registers_mut(&mut self) -> &mut [Register] {
        &mut self.registers
    }

    /// Returns the dirty set.
    pub fn dirty(&self) -> &DirtySet {
        &self.dirty
    }

    /// Returns the dirty set for changes by hand: an object that is taken out is not found dirty any more.
    pub fn dirty_mut(&mut self) -> &mut DirtySet {
        &mut self.dirty
    }

    /// Processes one packet. The header then has the fields that the switch writes; `chance` selects one of the replicas.
    pub fn process(&mut self, header: &mut Header, chance: u32) -> Verdict {
        if header.operation == Operation::Reply {
            return Verdict::On;
        }
        let found = self.tables.get(header.partition).filter(|partition| partition.term == header.term);
        let Some(partition) = found else { return Verdict::Drop(Why::NoPartition) };
        let mark = partition.mark(header.partition);
        let register = &mut self.registers[partition.index as usize];
        if register.mark != mark {
            *register = Register { mark, ..Register::default() };
        }
        match header.operation {
            Operation::WriteFirst if partition.switch > 0 => {
                let sequence = register.sequence + 1;
                let is_object = header.object != NO_OBJECT;
                if is_object && !self.dirty.insert(partition.region, mark, header.object, sequence, register.committed)
                {
                    return Verdict::Drop(Why::Full);
                }
                register.sequence = sequence;
                (header.switch, header.sequence) = (mark.switch, sequence);
                Verdict::To(partition.primary)
            }
            // The group has not forsworn other switches yet, or wants no switch: it keeps writes in order itself. Or this is not
            // a write's first packet.
            Operation::WriteFirst | Operation::WriteRest => {
                // A number of the sender's own would pass for a number that this switch gave.
                (header.switch, header.sequence) = (0, 0);
                Verdict::To(partition.primary)
            }
            Operation::Completion => {
                // A number beyond those given belongs to no write: if it counted, it would hide later writes that get such
                // numbers.
                if header.switch != mark.switch || !(1..=register.sequence).contains(&header.sequence) {
                    return Verdict::Drop(Why::Stale);
                }
                register.committed = register.committed.max(header.sequence);
                Verdict::On
            }
            // A read that claims to be fast counts as an ordinary one: its stamp is not from this switch.
            _ => {
                header.operation = Operation::Read;
                let is_clean = partition.active
                    && register.committed > 0
                    && !self.dirty.contains(partition.region, mark, header.object, register.committed);
                match partition.replica(chance).filter(|_| is_clean) {
                    None => Verdict::To(partition.primary),
                    Some(replica) => {
                        header.operation = Operation::FastRead;
                        (header.switch, header.committed) = (mark.switch, register.committed);
                        Verdict::To(replica)
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "pipeline_test.rs"]
mod tests;
