//! What becomes of a packet (`Harmonia` Algorithm 1).

use header::{Header, NO_OBJECT, Operation};

use crate::dirty::{DirtySet, Mark, Shape};
use crate::tables::{Partition, Replica, Tables, Unfit};

/// So many partitions may be in the table, unless told otherwise.
pub const REGISTERS: usize = 256;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to this one.
    To(Replica),
    /// It goes where it is addressed to.
    On,
    /// It goes nowhere.
    Drop(Why),
}

/// Why a packet goes nowhere. Whoever sent it asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No such partition, or not in this term.
    NoPartition,
    /// There is no room in the dirty set: a write that is not in it must not go on (hazard 56).
    Full,
    /// A completion of a write that another switch numbered, or none.
    Stale,
}

/// What packets change, of one partition. It counts only for whoever has its mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    /// Whose it is.
    pub mark: Mark,
    /// The last number given.
    pub sequence: u64,
    /// Everything up to here is complete; 0: nothing has been yet, and no read may go to any one replica.
    pub committed: u64,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pipeline {
    tables: Tables,
    registers: Box<[Register]>,
    dirty: DirtySet,
}

impl Pipeline {
    /// Without partitions.
    pub fn new(shape: Shape, registers: usize) -> Pipeline {
        let registers = vec![Register::default(); registers].into();
        Pipeline { tables: Tables::default(), registers, dirty: DirtySet::new(shape) }
    }

    /// Sets a partition, in place of that with this number.
    ///
    /// # Errors
    /// Where it takes what is another's, or not there, or moves under the id that it has; nothing has changed then.
    pub fn set(&mut self, number: u32, partition: Partition) -> Result<(), Unfit> {
        self.tables.set(number, partition, self.registers.len(), self.dirty.slots())
    }

    /// Takes a partition out.
    pub fn remove(&mut self, number: u32) -> Option<Partition> {
        self.tables.remove(number)
    }

    /// A partition, as it was set.
    pub fn partition(&self, number: u32) -> Option<&Partition> {
        self.tables.get(number)
    }

    /// Whether this object has writes in that partition that are not complete.
    pub fn is_dirty(&self, number: u32, object: u32) -> bool {
        let Some(partition) = self.tables.get(number) else { return false };
        let mark = partition.mark(number);
        let register = self.registers[partition.index as usize];
        let committed = if register.mark == mark { register.committed } else { 0 };
        self.dirty.contains(partition.region, mark, object, committed)
    }

    /// What packets have changed, by [`Partition::index`].
    pub fn registers(&self) -> &[Register] {
        &self.registers
    }

    /// The same, for who changes it by hand: numbers that were given already must not be given again.
    pub fn registers_mut(&mut self) -> &mut [Register] {
        &mut self.registers
    }

    /// The dirty set.
    pub fn dirty(&self) -> &DirtySet {
        &self.dirty
    }

    /// The same, for who changes it by hand: what is taken out is not found dirty any more.
    pub fn dirty_mut(&mut self) -> &mut DirtySet {
        &mut self.dirty
    }

    /// One packet passes. What the switch writes into it is in the header then; `chance` decides among replicas.
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
            // The group has not forsworn other switches yet, or wants none, and sees to order by itself; or it is no first packet.
            Operation::WriteFirst | Operation::WriteRest => {
                // What its sender put there would pass for a number that was given here.
                (header.switch, header.sequence) = (0, 0);
                Verdict::To(partition.primary)
            }
            Operation::Completion => {
                // Numbers beyond those given are nobody's: believed, they would hide what is given them later.
                if header.switch != mark.switch || !(1..=register.sequence).contains(&header.sequence) {
                    return Verdict::Drop(Why::Stale);
                }
                register.committed = register.committed.max(header.sequence);
                Verdict::On
            }
            // A read that claims to be fast is held for one that is not: what it was stamped with is not from here.
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
