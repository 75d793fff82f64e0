//! A disk for tests and simulations: it loses what was not synced, it fails on command, and it is one with its table.
//!
//! Every call is counted. A test lets the n-th call fail or the power go out in the middle of it, for n = 1, 2, … until a
//! run has no n-th call: then no place was left out.

mod disk;
mod state;
mod table;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use state::State;

pub use table::SimTables;

/// What the n-th call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this error. A write may have been done in part; a failed sync has dropped what it should have
    /// written, as Linux does, and shows it nevertheless until the machine restarts.
    Error(io::ErrorKind),
    /// The machine stops in the middle of it; everything fails until [`SimDisk::restart`].
    Crash,
}

/// Which call meets a fault, whenever it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A file is made whose name begins so.
    Create(&'static str),
    /// Such a file is written to.
    Write(&'static str),
    /// Such a file is synced.
    Sync(&'static str),
    /// A file gets such a name instead of another.
    Rename(&'static str),
    /// The directory is synced.
    SyncDir,
    /// A batch is written to the table.
    Apply,
    /// The table is flushed.
    Flush,
}

/// What is left after a restart of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Only the process ended: everything written is readable, and still not durable.
    Process,
    /// A power cut that took all of it.
    All,
    /// A power cut that took none of it: the disk had been quick.
    None,
    /// A power cut that took part of it, by chance from this seed: of a file's writes any sectors, or the end from some
    /// byte on; of the names any, or the end; of the table's batches the end.
    Some(u64),
}

/// A simulated disk of one directory, with a simulated table in it ([`SimDisk::tables`]). Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Mutex<State>>,
    /// What this handle belongs to: a process that was stopped must not write afterwards.
    process: u64,
}

impl Default for SimDisk {
    fn default() -> Self {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk of 1 TiB.
    pub fn new() -> SimDisk {
        SimDisk { shared: Arc::new(Mutex::new(State::new())), process: 0 }
    }

    /// The table that lives on this disk.
    pub fn tables(&self) -> SimTables {
        SimTables { disk: self.clone() }
    }

    /// Calls made since the start or since [`SimDisk::plan`].
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Counts calls from 0 again and lets the `nth` (from 1) meet `fault`.
    pub fn plan(&self, nth: u64, fault: Fault) {
        let mut state = self.state();
        state.calls = 0;
        state.plan = Some((nth, fault));
    }

    /// Lets the next call at this site meet `fault`.
    pub fn plan_at(&self, site: Site, fault: Fault) {
        self.state().plan_at = Some((site, fault));
    }

    /// Lets every call to the table from now on wait for ever, its destructor included: so does a table that waits for a write
    /// that failed.
    pub fn hang_table(&self) {
        self.state().table_hangs = true;
    }

    /// Takes the planned fault back; whether it had happened.
    pub fn unplan(&self) -> bool {
        let mut state = self.state();
        state.plan.take().is_none() && state.plan_at.take().is_none()
    }

    /// Ends the process that uses the disk, and with [`Loss::All`], [`Loss::None`] and [`Loss::Some`] the machine too.
    /// Old handles fail from now on; the result is for the next process.
    pub fn restart(&self, loss: Loss) -> SimDisk {
        let mut state = self.state();
        state.restart(loss);
        SimDisk { shared: self.shared.clone(), process: state.process }
    }

    /// How large the volume is; a write that does not fit fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// A second disk in the same state, crash and plan included.
    pub fn fork(&self) -> SimDisk {
        SimDisk { shared: Arc::new(Mutex::new(self.state().clone())), process: self.process }
    }

    /// The files and their contents, as a process sees them.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        state.names.iter().map(|(name, id)| (name.clone(), state.files[id].seen.clone())).collect()
    }

    /// Replaces a file's content, durably: damage at rest.
    pub fn overwrite(&self, name: &str, content: Vec<u8>) {
        let mut state = self.state();
        if let Some(id) = state.names.get(name).copied()
            && let Some(file) = state.files.get_mut(&id)
        {
            *file = state::File { seen: content.clone(), durable: content, unsynced: Vec::new() };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts a call at a site and lets it meet its fault. `Ok(Some(_))` is the fault of this very call.
    fn call_at(&self, is_here: impl Fn(Site) -> bool) -> io::Result<(MutexGuard<'_, State>, Option<Fault>)> {
        let mut state = self.state();
        if state.down || state.process != self.process {
            return Err(io::Error::other("the machine stopped"));
        }
        state.calls += 1;
        let fault = match state.plan {
            Some((nth, fault)) if nth == state.calls => {
                state.plan = None;
                state.down = fault == Fault::Crash;
                Some(fault)
            }
            _ => None,
        };
        let fault = fault.or_else(|| {
            let (_, fault) = state.plan_at.take_if(|(site, _)| is_here(*site))?;
            state.down = fault == Fault::Crash;
            Some(fault)
        });
        Ok((state, fault))
    }

    /// The same, for calls that do nothing when they fail.
    fn plain_call(&self) -> io::Result<MutexGuard<'_, State>> {
        self.plain_call_at(|_| false)
    }

    fn plain_call_at(&self, is_here: impl Fn(Site) -> bool) -> io::Result<MutexGuard<'_, State>> {
        let (state, fault) = self.call_at(is_here)?;
        match fault {
            None => Ok(state),
            Some(fault) => Err(fault.into_error()),
        }
    }
}

impl Fault {
    fn into_error(self) -> io::Error {
        match self {
            Fault::Error(kind) => io::Error::new(kind, "planned"),
            Fault::Crash => io::Error::other("the machine stopped"),
        }
    }
}
