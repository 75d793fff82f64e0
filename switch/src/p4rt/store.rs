//! Tables of a switch as controllers see them, and their mapping to the pipeline.
//!
//! The pipeline has one item where P4 has two tables: a [`Partition`](crate::tables::Partition) is an entry of `partitions` and
//! one of `replicas`. So each change of either sets the whole partition anew. Routes have no effect in a switch in software, and
//! are kept only to be read again.
//!
//! # Invariants
//! - The pipeline has exactly the partitions and ports that are in the store.

use std::collections::BTreeMap;

use tonic::Code;

use super::entry::{Key, Setting, Value};
use super::p4info::{p4info, table};
use super::problem::Problem;
use super::proto::p4::v1::{self, update};
use super::target::Target;
use crate::tables::{PartitionError, Replica};

/// Entry with the controller's own metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    value: Value,
    controller_metadata: u64,
    metadata: Vec<u8>,
}

/// All entries.
#[derive(Debug, Default)]
pub struct Store {
    tables: BTreeMap<u32, BTreeMap<Key, Stored>>,
}

/// Returns the upper limit of entries in a table, according to its description.
fn room(id: u32) -> usize {
    let is_it = |table: &&super::proto::p4::config::v1::Table| {
        table.preamble.as_ref().is_some_and(|preamble| preamble.id == id)
    };
    p4info().tables.iter().find(is_it).map_or(0, |table| table.size as usize)
}

impl Store {
    fn get(&self, key: Key) -> Option<&Stored> {
        self.tables.get(&key.table())?.get(&key)
    }

    /// Changes one entry, here and in the pipeline.
    ///
    /// # Errors
    /// The reason for which the entry was not changed; nothing has changed then.
    pub fn write(&mut self, kind: update::Type, entry: &v1::TableEntry, target: &dyn Target) -> Result<(), Problem> {
        if entry.is_default_action {
            return Err(default_entry(kind, entry));
        }
        let key = Key::of(entry)?;
        let is_there = self.get(key).is_some();
        match kind {
            update::Type::Unspecified => return Err(Problem::invalid("an update has no type")),
            update::Type::Insert if is_there => {
                return Err(Problem::new(Code::AlreadyExists, "the entry exists already"));
            }
            update::Type::Modify | update::Type::Delete if !is_there => {
                return Err(Problem::new(Code::NotFound, "the entry does not exist"));
            }
            _ => {}
        }
        if entry.is_const {
            return Err(Problem::invalid("constant entries are not supported"));
        }
        if kind == update::Type::Delete {
            return self.replace(key, None, target);
        }
        plain(entry)?;
        let value = match &entry.action {
            Some(action) => Value::of(entry.table_id, action)?,
            None => {
                let kept = self.get(key).map(|stored| stored.value.clone());
                kept.ok_or_else(|| Problem::invalid("a new entry needs an action"))?
            }
        };
        if !is_there && self.tables.get(&entry.table_id).map_or(0, BTreeMap::len) >= room(entry.table_id) {
            return Err(Problem::new(Code::ResourceExhausted, "the table is full"));
        }
        let (controller_metadata, metadata) = (entry.controller_metadata, entry.metadata.clone());
        self.replace(key, Some(Stored { value, controller_metadata, metadata }), target)
    }

    fn replace(&mut self, key: Key, with: Option<Stored>, target: &dyn Target) -> Result<(), Problem> {
        let table = self.tables.entry(key.table()).or_default();
        let was = match with {
            Some(stored) => table.insert(key, stored),
            None => table.remove(&key),
        };
        let done = self.apply(key, target);
        if done.is_err() {
            let table = self.tables.entry(key.table()).or_default();
            match was {
                Some(stored) => table.insert(key, stored),
                None => table.remove(&key),
            };
        }
        done
    }

    /// Brings the part of the pipeline that depends on this entry in line with the store, or leaves it unchanged.
    fn apply(&self, key: Key, target: &dyn Target) -> Result<(), Problem> {
        match key {
            Key::Partition(number) | Key::Replicas(number) => match self.setting(number) {
                None => target.remove_partition(number),
                Some(setting) => {
                    let partition = setting.with(self.replicas(number));
                    target.set_partition(number, partition).map_err(|error| self.refused(number, error))?;
                }
            },
            Key::Port(replica) => match self.get(key).map(|stored| &stored.value) {
                Some(Value::Port(address)) => target
                    .set_port(replica, *address)
                    .map_err(|no_room| Problem::new(Code::ResourceExhausted, no_room.to_string()))?,
                _ => target.remove_port(replica),
            },
            Key::Ipv4(..) | Key::Ipv6(..) => {}
        }
        Ok(())
    }

    fn setting(&self, number: u32) -> Option<Setting> {
        match self.get(Key::Partition(number))?.value {
            Value::Partition(setting) => Some(setting),
            _ => None,
        }
    }

    fn replicas(&self, number: u32) -> Vec<(Replica, u8)> {
        match self.get(Key::Replicas(number)).map(|stored| &stored.value) {
            Some(Value::Replicas(replicas)) => replicas.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns the problem for a partition that the pipeline refused. A place of another partition may become free later; a place
    /// that does not exist never will. The specification has `FAILED_PRECONDITION` for a request that the present state forbids,
    /// and `INVALID_ARGUMENT` for one that is wrong in any state.
    fn refused(&self, number: u32, error: PartitionError) -> Problem {
        let settings = self.tables.get(&table::PARTITIONS).into_iter().flatten();
        let mut others = settings.filter_map(|(key, stored)| match (key, &stored.value) {
            (Key::Partition(other), Value::Partition(setting)) if *other != number => Some(setting),
            _ => None,
        });
        let may_be_later = match error {
            PartitionError::Index(index) => others.any(|other| other.index == index),
            PartitionError::Region(region) => {
                region.slots.is_power_of_two() && others.any(|other| other.region.meets(region))
            }
            // Under another id the partition may move there.
            PartitionError::Moves(_) => true,
        };
        let code = if may_be_later { Code::FailedPrecondition } else { Code::InvalidArgument };
        Problem::new(code, error.to_string())
    }

    /// Returns all entries that match a request.
    ///
    /// # Errors
    /// If the request is not valid.
    pub fn read(&self, asked: &v1::TableEntry) -> Result<Vec<v1::TableEntry>, Problem> {
        if asked.table_id == 0 {
            if *asked != v1::TableEntry::default() {
                return Err(Problem::invalid("a read of all tables takes no match fields"));
            }
            return Ok(self.tables.values().flatten().map(entry).collect());
        }
        if asked.is_default_action {
            return default_of(asked).map(|entry| vec![entry]);
        }
        plain(asked)?;
        if asked.priority != 0 {
            return Err(Problem::invalid("this device has no tables with priorities"));
        }
        let key = if asked.r#match.is_empty() { None } else { Some(Key::of(asked)?) };
        if room(asked.table_id) == 0 {
            return Err(Problem::invalid(format!("there is no table {:#010x}", asked.table_id)));
        }
        let action = asked.action.as_ref().and_then(|action| match &action.r#type {
            Some(v1::table_action::Type::Action(action)) => Some(action.action_id),
            _ => None,
        });
        let fits = |(own, stored): &(&Key, &Stored)| {
            key.is_none_or(|key| key == **own)
                && action.is_none_or(|action| stored.value.action_id() == Some(action))
                && (asked.controller_metadata == 0 || asked.controller_metadata == stored.controller_metadata)
                && (asked.metadata.is_empty() || asked.metadata == stored.metadata)
        };
        Ok(self.tables.get(&asked.table_id).into_iter().flatten().filter(fits).map(entry).collect())
    }

    /// Removes all entries, here and in the pipeline.
    pub fn clear(&mut self, target: &dyn Target) {
        for key in std::mem::take(&mut self.tables).into_values().flat_map(BTreeMap::into_keys) {
            match key {
                Key::Partition(number) => target.remove_partition(number),
                Key::Port(replica) => target.remove_port(replica),
                Key::Replicas(_) | Key::Ipv4(..) | Key::Ipv6(..) => {}
            }
        }
    }
}

fn entry((key, stored): (&Key, &Stored)) -> v1::TableEntry {
    v1::TableEntry {
        action: Some(stored.value.action()),
        controller_metadata: stored.controller_metadata,
        metadata: stored.metadata.clone(),
        ..key.entry()
    }
}

/// Checks that a request names no feature that no table here has.
fn plain(entry: &v1::TableEntry) -> Result<(), Problem> {
    if entry.idle_timeout_ns != 0 || entry.time_since_last_hit.is_some() {
        return Err(Problem::invalid("idle times of entries are not supported"));
    }
    if entry.meter_config.is_some() || entry.meter_counter_data.is_some() || entry.counter_data.is_some() {
        return Err(Problem::invalid("direct counters and meters are not supported"));
    }
    Ok(())
}

/// Returns the problem of a change of a default entry: these are constant here.
fn default_entry(kind: update::Type, entry: &v1::TableEntry) -> Problem {
    if kind != update::Type::Modify || !entry.r#match.is_empty() || entry.priority != 0 {
        return Problem::invalid("a default entry has no key, and can only be modified");
    }
    match default_of(entry) {
        Ok(_) => Problem::new(Code::PermissionDenied, "this table's default entry is constant"),
        Err(problem) => problem,
    }
}

fn default_of(asked: &v1::TableEntry) -> Result<v1::TableEntry, Problem> {
    if !asked.r#match.is_empty() || asked.priority != 0 {
        return Err(Problem::invalid("a default entry has no key"));
    }
    plain(asked)?;
    let is_it = |table: &&super::proto::p4::config::v1::Table| {
        table.preamble.as_ref().is_some_and(|preamble| preamble.id == asked.table_id)
    };
    let table = p4info().tables.iter().find(is_it);
    let table = table.ok_or_else(|| Problem::invalid(format!("there is no table {:#010x}", asked.table_id)))?;
    let action = v1::Action { action_id: table.const_default_action_id, params: Vec::new() };
    Ok(v1::TableEntry {
        table_id: asked.table_id,
        action: Some(v1::TableAction { r#type: Some(v1::table_action::Type::Action(action)) }),
        is_default_action: true,
        ..v1::TableEntry::default()
    })
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
