//! The simulated disk's files.

use std::io;

use super::state::File;
use super::{Fault, SimDisk, Site};
use crate::disk::{Disk, DiskFile, DiskLock, Space};

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.plain_call_at(|site| matches!(site, Site::Create(of) if name.starts_with(of)))?;
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, File::default());
        state.set_name(name, id);
        Ok(Box::new(SimFile { disk: self.clone(), id, name: name.into() }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let state = self.plain_call()?;
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile { disk: self.clone(), id, name: name.into() }))
    }

    fn head(&self, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let state = self.plain_call()?;
        let Some(id) = state.names.get(name) else { return Ok(None) };
        let seen = &state.files[id].seen;
        Ok(Some(seen[..seen.len().min(bytes_max)].to_vec()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self.plain_call_at(|site| matches!(site, Site::Rename(of) if to.starts_with(of)))?.rename(from, to) {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.plain_call()?.drop_name(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.plain_call_at(|site| site == Site::SyncDir)?.sync_names();
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let state = self.plain_call()?;
        Ok(state.names.iter().map(|(name, id)| (name.clone(), state.files[id].seen.len() as u64)).collect())
    }

    fn space(&self) -> io::Result<Space> {
        let state = self.plain_call()?;
        Ok(Space { free: state.capacity.saturating_sub(state.used()), total: state.capacity })
    }

    fn lock(&self) -> io::Result<Option<DiskLock>> {
        let mut state = self.plain_call()?;
        if state.locked == Some(self.process) {
            return Ok(None);
        }
        state.locked = Some(self.process);
        Ok(Some(DiskLock::new(Unlock(self.clone()))))
    }
}

/// Guard that frees the directory when dropped, unless a later process has it.
struct Unlock(SimDisk);

impl Drop for Unlock {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.locked == Some(self.0.process) {
            state.locked = None;
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: u64,
    /// The file's name when it was opened.
    name: String,
}

impl DiskFile for SimFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let name = &self.name;
        let (mut state, fault) = self.disk.call_at(|site| matches!(site, Site::Write(of) if name.starts_with(of)))?;
        let free = state.capacity.saturating_sub(state.used());
        let file = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        let grows = (at + bytes.len()).saturating_sub(file.seen.len()) as u64;
        match fault {
            // Half of it, as a disk that fills up does; the power cut decides later how much of the rest is left.
            Some(Fault::Error(_)) => file.write(at, &bytes[..bytes.len() / 2]),
            None if grows > free => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Crash) | None => file.write(at, bytes),
        }
        fault.map_or(Ok(()), |fault| Err(fault.into_error()))
    }

    fn sync(&mut self) -> io::Result<()> {
        let name = &self.name;
        let (mut state, fault) = self.disk.call_at(|site| matches!(site, Site::Sync(of) if name.starts_with(of)))?;
        let file = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        match fault {
            None => file.sync(),
            Some(Fault::Error(_)) => file.unsynced.clear(),
            Some(Fault::Crash) => (),
        }
        fault.map_or(Ok(()), |fault| Err(fault.into_error()))
    }

    fn read_all(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let state = self.disk.plain_call()?;
        let file = state.files.get(&self.id).ok_or(io::ErrorKind::NotFound)?;
        if file.seen.len() as u64 > bytes_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(file.seen.clone())
    }
}
