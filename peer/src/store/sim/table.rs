//! The simulated disk's table: as honest as a table can be that loses what was not flushed.

use std::io;
use std::sync::MutexGuard;

use bytes::Bytes;

use super::super::table::{Table, TableError, Tables};
use super::state::State;
use super::{Fault, SimDisk, Site};

/// The table of a [`SimDisk`].
pub struct SimTables {
    pub(super) disk: SimDisk,
}

impl SimTables {
    /// The entries, as a process sees them.
    pub fn entries(&self) -> Vec<(Bytes, Bytes)> {
        self.disk.state().table.seen.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Sets or drops an entry behind everybody's back, durably: damage at rest.
    pub fn tamper(&self, key: Bytes, value: Option<Bytes>) {
        let mut state = self.disk.state();
        state.table.apply(vec![(key, value)]);
        state.table.sync();
    }
}

impl Tables for SimTables {
    fn open(&self) -> Result<Box<dyn Table>, TableError> {
        self.disk.plain_call()?.table.exists = true;
        Ok(Box::new(SimTable { disk: self.disk.clone() }))
    }

    fn remove(&self) -> io::Result<()> {
        self.disk.plain_call()?.table = Default::default();
        Ok(())
    }

    fn exists(&self) -> io::Result<bool> {
        Ok(self.disk.plain_call()?.table.exists)
    }
}

struct SimTable {
    disk: SimDisk,
}

impl SimTable {
    fn may_hang(&self) {
        while self.disk.state().table_hangs {
            std::thread::park();
        }
    }

    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
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
        Ok(self.call()?.table.seen.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, TableError> {
        let state = self.call()?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        for (key, value) in state.table.seen.range::<[u8], _>(range) {
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
        let last = state.table.seen.range::<[u8], _>(range).next_back();
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }

    fn apply(&self, changes: &[(Bytes, Option<Bytes>)]) -> Result<(), TableError> {
        self.may_hang();
        let (mut state, fault) = self.disk.call_at(|site| site == Site::Apply)?;
        match fault {
            Some(Fault::Error(_)) => (),
            Some(Fault::Crash) | None => state.table.apply(changes.to_vec()),
        }
        fault.map_or(Ok(()), |fault| Err(fault.into_error().into()))
    }

    fn flush(&self) -> Result<(), TableError> {
        self.may_hang();
        let (mut state, fault) = self.disk.call_at(|site| site == Site::Flush)?;
        match fault {
            None => state.table.sync(),
            Some(Fault::Error(io::ErrorKind::StorageFull)) => (),
            Some(Fault::Error(_)) => state.table.forget(),
            Some(Fault::Crash) => (),
        }
        fault.map_or(Ok(()), |fault| Err(fault.into_error().into()))
    }

    fn disk_bytes(&self) -> Result<u64, TableError> {
        let state = self.call()?;
        Ok(state.table.seen.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum())
    }
}
