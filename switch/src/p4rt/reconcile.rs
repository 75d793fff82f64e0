//! What is to be in a switch's tables, and what has to be written so that it is.
//!
//! Whatever is there, and in whatever order updates of one batch are done: no update of ours fails, what is left out in between is
//! safe (a packet without a partition is dropped, a read without replicas goes to the primary), and a second look finds nothing to
//! write. Which ids partitions may have at all, after what there was before, is up to [`Ids`](super::ids::Ids).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddrV4};

use super::entry::{Key, NextHop, Setting, Value, WEIGHTS_MAX};
use super::proto::p4::v1::{self, update};
use crate::tables::{Partition, Replica};

/// So many updates go at once: what is said of each of them, where some fail, has room in an answer.
pub const UPDATES_MAX: usize = 64;

/// So many replicas may share a partition's reads; the rest gets none.
const REPLICAS_MAX: usize = 100;

/// One life of a switch's registers: from when its program was loaded until it is lost or loaded anew. A number made up by whoever
/// loaded it, kept as the program's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// What is to be in a switch's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// All partitions. No two have the same registers.
    pub partitions: BTreeMap<u32, Partition>,
    /// Where their replicas are.
    pub ports: BTreeMap<Replica, SocketAddrV4>,
    /// Ordinary routes, by prefixes; `None`: they are somebody else's.
    pub routes: Option<BTreeMap<(IpAddr, u8), NextHop>>,
    /// For which life of the switch the switch ids are. In any other one it numbers nothing: registers that begin anew under an id
    /// that has been used would give the same numbers again.
    pub lives: Option<Incarnation>,
}

impl Wanted {
    /// All entries, for a switch that is in this life.
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

    /// Whether entries like this one are ours to change.
    pub fn owns(&self, key: Key) -> bool {
        self.routes.is_some() || !matches!(key, Key::Ipv4(..) | Key::Ipv6(..))
    }
}

/// Those that have a weight, in proportion, but so that all of them together fit into an entry.
fn weighed(replicas: &[(Replica, u8)]) -> Vec<(Replica, u8)> {
    let some: Vec<_> = replicas.iter().copied().filter(|(_, weight)| *weight > 0).take(REPLICAS_MAX).collect();
    let all: u32 = some.iter().map(|(_, weight)| u32::from(*weight)).sum();
    if all <= WEIGHTS_MAX {
        return some;
    }
    // Each is rounded up to at least one.
    let room = WEIGHTS_MAX - some.len() as u32;
    some.into_iter().map(|(replica, weight)| (replica, (u32::from(weight) * room / all).max(1) as u8)).collect()
}

/// What has to be written, batch by batch, so that what is there becomes what is wanted. A partition that goes elsewhere under the id
/// that it has must have been held back before ([`Ids::hold`](super::ids::Ids::hold)): nothing here would keep it from that.
pub fn plan(present: &BTreeMap<Key, Value>, wanted: &BTreeMap<Key, Value>) -> Vec<Vec<v1::Update>> {
    let is_gone = |key: &&Key| !wanted.contains_key(key);
    let is_partition = |key: &&Key| matches!(key, Key::Partition(_));
    // First whatever holds registers or slots that others are to have: it cannot be modified in one go with theirs.
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
    // Then where replicas are before partitions name them, and what nobody names any more last.
    let phases = [
        freed.iter().map(delete).collect(),
        set(&|key| !matches!(key, Key::Partition(_) | Key::Replicas(_))),
        set(&|key| matches!(key, Key::Replicas(_))),
        set(&|key| matches!(key, Key::Partition(_))),
        present.keys().filter(|key| is_gone(key) && !is_partition(key)).map(delete).collect(),
    ];
    phases.iter().flat_map(|phase: &Vec<v1::Update>| phase.chunks(UPDATES_MAX).map(<[v1::Update]>::to_vec)).collect()
}

/// Whether a partition holds something that another one is to have.
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
