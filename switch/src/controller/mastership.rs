//! Content of a switch's tables in one mastership, and the ids that partitions may have there (rule S1; see [`super`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::time::Duration;

use super::allocator::{Allocation, Allocator};
use super::reports::Group;
use crate::p4rt::client::Synced;
use crate::p4rt::entry::{Key, Value};
use crate::p4rt::ids::Spent;
use crate::p4rt::reconcile::Incarnation;
use crate::tables::Replica;

/// Partition with an allocation in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Registers and slots of the partition.
    pub allocation: Allocation,
    /// Term of the partition.
    pub term: u64,
    /// Id under which the partition is in the tables; 0 for none.
    pub id: u32,
}

/// Time in which this controller alone writes.
#[derive(Debug)]
pub struct Mastership {
    /// Number of the mastership ([`Synced::mastership`]).
    pub number: u64,
    /// Life of the switch.
    pub life: Incarnation,
    /// Start of the mastership.
    pub since: Duration,
    /// Start of the mastership by the wall clock, in seconds since 1970.
    pub unix: u32,
    allocator: Allocator,
    placed: BTreeMap<u32, Placed>,
    ports: BTreeMap<SocketAddrV4, Replica>,
    port_next: Replica,
    /// Ids that groups were given in this mastership.
    given: BTreeMap<Group, u32>,
    spent: Spent,
}

impl Mastership {
    /// Starts a mastership with the found content of the tables.
    pub fn adopt(found: &Synced, (since, unix): (Duration, u32), mut allocator: Allocator, spent: Spent) -> Mastership {
        let (mut placed, mut ports) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in found.present.iter() {
            match (key, value) {
                (Key::Partition(number), Value::Partition(setting)) => {
                    let allocation = Allocation { index: setting.index, region: setting.region };
                    if allocator.reserve(allocation) {
                        placed.insert(*number, Placed { allocation, term: setting.term, id: setting.switch });
                    }
                }
                (Key::Port(replica), Value::Port(address)) => {
                    ports.insert(*address, *replica);
                }
                _ => {}
            }
        }
        let port_next = ports.values().max().map_or(1, |last| last.wrapping_add(1).max(1));
        Mastership {
            number: found.mastership,
            life: found.incarnation,
            since,
            unix,
            allocator,
            placed,
            ports,
            port_next,
            given: BTreeMap::new(),
            spent,
        }
    }

    /// Returns whether a partition is in the tables.
    pub fn has(&self, partition: u32) -> bool {
        self.placed.contains_key(&partition)
    }

    /// Records that a group has chosen this id because this controller asked for it.
    pub fn give(&mut self, group: Group, id: u32) {
        self.given.insert(group, id);
    }

    /// Returns the id that a group was given last, or 0.
    pub fn given(&self, group: Group) -> u32 {
        self.given.get(&group).copied().unwrap_or(0)
    }

    /// Returns the highest id up to which all ids are over, for every partition.
    pub fn floor(&self) -> u32 {
        self.spent.floor()
    }

    /// Removes all other partitions; they do not come back under the ids that they had.
    pub fn keep_only(&mut self, wanted: &BTreeSet<u32>) {
        let gone: Vec<u32> = self.placed.keys().filter(|number| !wanted.contains(number)).copied().collect();
        for number in gone {
            if let Some(Placed { allocation, id, .. }) = self.placed.remove(&number) {
                self.spent.add(number, id);
                self.allocator.free(allocation);
            }
        }
    }

    /// Places a partition of this group in the tables, in this term. `named` is the id that the group's log names (0 for none).
    /// Returns the allocation and the id that the partition may have, or `None` if there is no room.
    pub fn place(&mut self, number: u32, group: Group, term: u64, named: u32) -> Option<Placed> {
        let given = self.given(group);
        let placed = match self.placed.entry(number) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Placed { allocation: self.allocator.allocate()?, term, id: 0 })
            }
        };
        let goes_on = placed.id > 0 && placed.id == named && placed.term == term;
        if !goes_on {
            self.spent.add(number, placed.id);
            let is_new = named > 0 && given == named && !self.spent.has(number, named);
            (placed.term, placed.id) = (term, if is_new { named } else { 0 });
        }
        Some(*placed)
    }

    /// Compares the wanted tables with the switch's. An id that was held back there, or removed by another writer, is over.
    pub fn compare(&mut self, present: &BTreeMap<Key, Value>) {
        for (number, placed) in self.placed.iter_mut().filter(|(_, placed)| placed.id > 0) {
            let is_there = matches!(present.get(&Key::Partition(*number)),
                Some(Value::Partition(setting)) if setting.switch == placed.id);
            if !is_there {
                self.spent.add(*number, placed.id);
                placed.id = 0;
            }
        }
    }

    /// Returns the number by which the switch knows an address. No number is used twice.
    pub fn port(&mut self, address: SocketAddrV4) -> Replica {
        *self.ports.entry(address).or_insert_with(|| {
            let number = self.port_next;
            self.port_next = number.wrapping_add(1).max(1);
            number
        })
    }

    /// Forgets the addresses of all other numbers.
    pub fn keep_ports(&mut self, wanted: &BTreeMap<Replica, SocketAddrV4>) {
        self.ports.retain(|_, replica| wanted.contains_key(replica));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mastership(spent_max: usize) -> Mastership {
        let found = Synced {
            mastership: 1,
            mark: None,
            present: BTreeMap::new().into(),
            incarnation: Incarnation(5),
            updates: 0,
            looks: 1,
        };
        Mastership::adopt(&found, (Duration::ZERO, 1000), Allocator::new(4, 1024), Spent::new(spent_max))
    }

    /// Groups may have the same id, since their partitions have different numbers; and where they have not, that is detected.
    #[test]
    fn a_name_that_two_groups_share_does_not_come_back_under_one_id() {
        let mut mastership = mastership(8);
        let (one, other) = (Group(1), Group(2));
        mastership.give(one, 7);
        mastership.give(other, 7);
        assert_eq!(mastership.place(11, one, 1, 7).unwrap().id, 7);
        assert_eq!(mastership.place(12, other, 1, 7).unwrap().id, 7);
        assert_eq!(mastership.place(11, other, 2, 7).unwrap().id, 0);
        mastership.keep_only(&BTreeSet::new());
        assert_eq!(mastership.place(12, one, 3, 7).unwrap().id, 0);
        mastership.give(other, 8);
        assert_eq!(mastership.place(11, other, 2, 8).unwrap().id, 8);
    }
}
