//! A disk for tests and simulations: it loses unsynced writes, it fails on command, and it includes its table.
//!
//! Every call is counted. A test makes the n-th call fail, or the power go out in the middle of it. It does so for n = 1, 2, …
//! until a run has no n-th call: then every place was tested.

mod disk;
mod state;
mod table;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use state::SimState;

pub use table::SimTables;

/// A fault of the n-th call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this error. A write may have been done in part. A failed sync drops the bytes that it should have
    /// written, as Linux does, and still shows them until the machine restarts.
    Error(io::ErrorKind),
    /// The machine stops in the middle of the call; all calls fail until [`SimDisk::restart`].
    Crash,
}

/// The call that meets a fault, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// The creation of a file whose name begins with this prefix.
    Create(&'static str),
    /// A write to such a file.
    Write(&'static str),
    /// A sync of such a file.
    Sync(&'static str),
    /// A rename to such a name.
    Rename(&'static str),
    /// A sync of the directory.
    SyncDir,
    /// A write of a batch to the table.
    Apply,
    /// A flush of the table.
    Flush,
}

/// The part of the unsynced writes that is left after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Only the process ended: everything written is readable, and still not durable.
    Process,
    /// A power cut that took all of them.
    All,
    /// A power cut that took none of them: the disk had been quick.
    None,
    /// A power cut that took part of them, at random from this seed. Of a file's writes any sectors, or the end from some byte
    /// on; of the names any, or the end; of the table's batches the end.
    Some(u64),
}

/// A simulated disk of one directory, with a simulated table in it ([`SimDisk::tables`]). Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Mutex<SimState>>,
    /// The process that this handle belongs to: a process that was stopped must not write afterwards.
    process: u64,
}

impl Default for SimDisk {
    fn default() -> Self {
        SimDisk::new()
    }
}

impl SimDisk {
    /// Creates an empty disk of 1 TiB.
    pub fn new() -> SimDisk {
        SimDisk { shared: Arc::new(Mutex::new(SimState::new())), process: 0 }
    }

    /// Returns the tables on this disk.
    pub fn tables(&self) -> SimTables {
        SimTables { disk: self.clone() }
    }

    /// Returns the number of calls since the start or since [`SimDisk::plan`].
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Counts calls from 0 again, and plans `fault` for the `nth` call (from 1).
    pub fn plan(&self, nth: u64, fault: Fault) {
        let mut state = self.state();
        state.calls = 0;
        state.plan = Some((nth, fault));
    }

    /// Plans `fault` for the next call at this site.
    pub fn plan_at(&self, site: Site, fault: Fault) {
        self.state().plan_at = Some((site, fault));
    }

    /// Makes every later call to the table wait for ever, its destructor included: a table that waits for a failed write does
    /// so.
    pub fn hang_table(&self) {
        self.state().table_hangs = true;
    }

    /// Cancels the planned faults, and returns whether they had happened.
    pub fn unplan(&self) -> bool {
        let mut state = self.state();
        state.plan.take().is_none() && state.plan_at.take().is_none()
    }

    /// Ends the process that uses the disk, and with [`Loss::All`], [`Loss::None`] and [`Loss::Some`] the machine too. Old
    /// handles fail from now on; the result is for the next process.
    pub fn restart(&self, loss: Loss) -> SimDisk {
        let mut state = self.state();
        state.restart(loss);
        SimDisk { shared: self.shared.clone(), process: state.process }
    }

    /// Sets the size of the volume in bytes; a write that does not fit fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Returns a second disk in the same state, crash and plan included.
    pub fn fork(&self) -> SimDisk {
        SimDisk { shared: Arc::new(Mutex::new(self.state().clone())), process: self.process }
    }

    /// Returns the files and their contents, as a process sees them.
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

    fn state(&self) -> MutexGuard<'_, SimState> {
        self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts a call at a site and applies its fault. `Ok(Some(_))` is the fault of this very call.
    fn call_at(&self, is_here: impl Fn(Site) -> bool) -> io::Result<(MutexGuard<'_, SimState>, Option<Fault>)> {
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

    /// Like [`SimDisk::call_at`], for calls that do nothing when they fail.
    fn plain_call(&self) -> io::Result<MutexGuard<'_, SimState>> {
        self.plain_call_at(|_| false)
    }

    fn plain_call_at(&self, is_here: impl Fn(Site) -> bool) -> io::Result<MutexGuard<'_, SimState>> {
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
