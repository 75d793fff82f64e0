//! The simulated disk's table: as reliable as a table that loses unflushed changes can be.

use std::io;
use std::sync::MutexGuard;

use bytes::Bytes;

use super::state::SimState;
use super::{Fault, SimDisk, Site};
use crate::table::{Table, TableError, Tables};

/// The tables of a [`SimDisk`].
pub struct SimTables {
    pub(crate) disk: SimDisk,
}

impl SimTables {
    /// Returns the entries of the newest table, as a process sees them.
    pub fn entries(&self) -> Vec<(Bytes, Bytes)> {
        let state = self.disk.state();
        let newest = state.tables.values().next_back();
        newest.map_or(Vec::new(), |table| table.seen.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Returns the numbers of all existing tables.
    pub fn numbers(&self) -> Vec<u64> {
        self.disk.state().tables.keys().copied().collect()
    }

    /// Sets or drops an entry of the newest table without the store, durably: damage at rest.
    pub fn tamper(&self, key: Bytes, value: Option<Bytes>) {
        if let Some(table) = self.disk.state().tables.values_mut().next_back() {
            table.apply(vec![(key, value)]);
            table.sync();
        }
    }
}

impl Tables for SimTables {
    fn open(&self, number: u64) -> Result<Box<dyn Table>, TableError> {
        let (mut state, fault) = self.disk.call_at(|_| false)?;
        // Also where it fails: the call may have got that far.
        state.tables.entry(number).or_default();
        match fault {
            Some(fault) => Err(fault.into_error().into()),
            None => Ok(Box::new(SimTable { disk: self.disk.clone(), number })),
        }
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.disk.plain_call()?.remove_table(number);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<u64>> {
        Ok(self.disk.plain_call()?.tables.keys().copied().collect())
    }
}

struct SimTable {
    disk: SimDisk,
    number: u64,
}

impl SimTable {
    fn may_hang(&self) {
        while self.disk.state().table_hangs {
            std::thread::park();
        }
    }

    /// Returns the table of this number: no removed table is in use.
    fn of<'a>(&self, state: &'a mut SimState) -> &'a mut super::state::StoredTable {
        state.tables.get_mut(&self.number).expect("a table in use is there")
    }

    fn call(&self) -> io::Result<MutexGuard<'_, SimState>> {
        self.may_hang();
        self.disk.plain_call()
    }
}

impl Drop for SimTable {
    fn drop(&mut self) {
        self.may_hang();
    }
}

impl Table for SimTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        Ok(self.call()?.tables[&self.number].seen.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError> {
        let state = self.call()?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        for (key, value) in state.tables[&self.number].seen.range::<[u8], _>(range) {
            bytes += key.len() + value.len();
            found.push((key.clone(), value.clone()));
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(found)
    }

    fn last(&self, from: &[u8], upto: &[u8]) -> Result<Option<(Bytes, Bytes)>, TableError> {
        let state = self.call()?;
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Included(upto));
        let last = state.tables[&self.number].seen.range::<[u8], _>(range).next_back();
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }

    fn apply(&self, changes: &[(Bytes, Option<Bytes>)]) -> Result<(), TableError> {
        self.may_hang();
        let (mut state, fault) = self.disk.call_at(|site| site == Site::Apply)?;
        match fault {
            Some(Fault::Error(_)) => (),
            Some(Fault::Crash) | None => self.of(&mut state).apply(changes.to_vec()),
        }
        fault.map_or(Ok(()), |fault| Err(fault.into_error().into()))
    }

    fn flush(&self) -> Result<(), TableError> {
        self.may_hang();
        let (mut state, fault) = self.disk.call_at(|site| site == Site::Flush)?;
        match fault {
            None => self.of(&mut state).sync(),
            Some(Fault::Error(io::ErrorKind::StorageFull)) => (),
            Some(Fault::Error(_)) => self.of(&mut state).forget(),
            Some(Fault::Crash) => (),
        }
        fault.map_or(Ok(()), |fault| Err(fault.into_error().into()))
    }

    fn disk_bytes(&self) -> Result<u64, TableError> {
        let state = self.call()?;
        Ok(state.tables[&self.number].bytes())
    }
}
