//! Wanted content of a switch's tables, and the updates that lead to it.
//!
//! The following holds for any present content, and for any order in which the updates of one batch are done. No update of ours
//! fails. An intermediate state is safe: a packet without a partition is dropped, and a read without replicas goes to the
//! primary. A second comparison finds nothing to write. `Ids` decides which ids partitions may have at all,
//! after those that they had before.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddrV4};

use super::entry::{Key, NextHop, Setting, Value, WEIGHTS_MAX};
use super::proto::p4::v1::{self, update};
use crate::tables::{Partition, Replica};

/// Upper limit of updates in one batch: an answer has room for the error of each.
pub(crate) const UPDATES_MAX: usize = 64;

/// Upper limit of replicas that share a partition's reads; further ones get none.
const REPLICAS_MAX: usize = 100;

/// One life of a switch's registers: from the load of its program until it is lost or loaded anew. The number is chosen by the
/// controller that loaded the program, and kept as the program's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Wanted content of a switch's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// All partitions. No two have the same register.
    pub partitions: BTreeMap<u32, Partition>,
    /// Addresses of their replicas.
    pub ports: BTreeMap<Replica, SocketAddrV4>,
    /// Ordinary routes, by prefixes; `None` if another program owns them.
    pub routes: Option<BTreeMap<(IpAddr, u8), NextHop>>,
    /// Life of the switch for which the switch ids are. In any other life the switch numbers nothing: registers that begin anew
    /// under a used id would give the same numbers again.
    pub lives: Option<Incarnation>,
}

impl Wanted {
    /// Returns all entries, for a switch in this life.
    pub fn entries(&self, now: Incarnation) -> BTreeMap<Key, Value> {
        let mut entries = BTreeMap::new();
        for (number, partition) in &self.partitions {
            let mut setting = Setting::of(partition);
            if self.lives != Some(now) {
                (setting.switch, setting.active) = (0, false);
            }
            entries.insert(Key::Partition(*number), Value::Partition(setting));
            let replicas = weighed(&partition.replicas);
            if !replicas.is_empty() {
                entries.insert(Key::Replicas(*number), Value::Replicas(replicas));
            }
        }
        entries.extend(self.ports.iter().map(|(replica, address)| (Key::Port(*replica), Value::Port(*address))));
        for ((prefix, length), hop) in self.routes.iter().flatten() {
            let key = match prefix {
                IpAddr::V4(prefix) => Key::Ipv4(*prefix, *length),
                IpAddr::V6(prefix) => Key::Ipv6(*prefix, *length),
            };
            entries.insert(key, Value::Forward(*hop));
        }
        entries
    }

    /// Returns whether an entry with this key is ours to change.
    pub fn owns(&self, key: Key) -> bool {
        self.routes.is_some() || !matches!(key, Key::Ipv4(..) | Key::Ipv6(..))
    }
}

/// Returns the replicas with a weight, scaled so that the sum of the weights fits into an entry.
fn weighed(replicas: &[(Replica, u8)]) -> Vec<(Replica, u8)> {
    let some: Vec<_> = replicas.iter().copied().filter(|(_, weight)| *weight > 0).take(REPLICAS_MAX).collect();
    let all: u32 = some.iter().map(|(_, weight)| u32::from(*weight)).sum();
    if all <= WEIGHTS_MAX {
        return some;
    }
    // Each weight is rounded up to at least one.
    let room = WEIGHTS_MAX - some.len() as u32;
    some.into_iter().map(|(replica, weight)| (replica, (u32::from(weight) * room / all).max(1) as u8)).collect()
}

/// Returns the updates that turn the present content into the wanted one, batch by batch. A partition that would move under the
/// id that it has must have been held back before (`Ids::hold`): this function does not prevent that.
pub fn plan(present: &BTreeMap<Key, Value>, wanted: &BTreeMap<Key, Value>) -> Vec<Vec<v1::Update>> {
    let is_gone = |key: &&Key| !wanted.contains_key(key);
    let is_partition = |key: &&Key| matches!(key, Key::Partition(_));
    // First the partitions with registers or slots that another partition is to have: one batch cannot modify both.
    let freed: Vec<Key> = present
        .iter()
        .filter(|(key, value)| is_partition(key) && (is_gone(key) || is_in_the_way(**key, value, wanted)))
        .map(|(key, _)| *key)
        .collect();
    let set = |is_it: &dyn Fn(Key) -> bool| -> Vec<v1::Update> {
        let differs = |(key, value): &(&Key, &Value)| freed.contains(key) || present.get(key) != Some(value);
        let due = wanted.iter().filter(|(key, _)| is_it(**key)).filter(differs);
        due.map(|(key, value)| {
            let kind = match present.contains_key(key) && !freed.contains(key) {
                true => update::Type::Modify,
                false => update::Type::Insert,
            };
            update(kind, v1::TableEntry { action: Some(value.action()), ..key.entry() })
        })
        .collect()
    };
    let delete = |key: &Key| update(update::Type::Delete, key.entry());
    // Then addresses before partitions name them; entries that are not named any more come last.
    let phases = [
        freed.iter().map(delete).collect(),
        set(&|key| !matches!(key, Key::Partition(_) | Key::Replicas(_))),
        set(&|key| matches!(key, Key::Replicas(_))),
        set(&|key| matches!(key, Key::Partition(_))),
        present.keys().filter(|key| is_gone(key) && !is_partition(key)).map(delete).collect(),
    ];
    phases.iter().flat_map(|phase: &Vec<v1::Update>| phase.chunks(UPDATES_MAX).map(<[v1::Update]>::to_vec)).collect()
}

/// Returns whether a partition holds a register or slots that another one is to have.
fn is_in_the_way(key: Key, value: &Value, wanted: &BTreeMap<Key, Value>) -> bool {
    let Value::Partition(held) = value else { return false };
    wanted.iter().any(|(other, value)| match value {
        Value::Partition(wanted) if *other != key => held.index == wanted.index || held.region.meets(wanted.region),
        _ => false,
    })
}

fn update(kind: update::Type, entry: v1::TableEntry) -> v1::Update {
    let entity = Some(v1::Entity { entity: Some(v1::entity::Entity::TableEntry(entry)) });
    v1::Update { r#type: kind as i32, entity }
}

#[cfg(test)]
#[path = "reconcile_test.rs"]
mod tests;
