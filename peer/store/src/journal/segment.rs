//! The journal's files: written full of zeros ahead of time, so that a commit changes no length and allocates nothing,
//! and one `fdatasync` of it touches no metadata.
//!
//! A segment's name holds its id and its length, `journal-<id>-<bytes>`; a file gets that name once it is zeroed and synced. So a
//! shorter file was cut short by another cause, which is damage. Ids rise by one and are never used again. A retired file is used
//! again under a new id: its old bytes do not parse there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile, fill};
use crate::error::{Doing, StoreError};
use crate::journal::frame::FRAME_BODY_MAX;

/// Upper limit of a segment, in bytes: one frame of the greatest length.
pub(crate) const SEGMENT_BYTES_MAX: u64 = FRAME_BODY_MAX as u64 + 4096;

/// Number of segments made ahead: the second one is for a journal that fills the first while the write-behind is busy.
const READY_MAX: usize = 2;

/// Upper limit of retired files that are kept for reuse.
const RETIRED_MAX: usize = 4;

const TEMPORARY: &str = "segment.tmp";

/// The parts of a segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    pub(crate) id: u64,
    pub(crate) bytes: u64,
}

impl SegmentName {
    pub(crate) fn file(&self) -> String {
        format!("journal-{:016x}-{}", self.id, self.bytes)
    }

    /// Parses a file's name; `None` for a file that is no segment.
    pub(crate) fn parse(name: &str) -> Option<SegmentName> {
        let (id, bytes) = name.strip_prefix("journal-")?.split_once('-')?;
        let name_of = SegmentName { id: u64::from_str_radix(id, 16).ok()?, bytes: bytes.parse().ok()? };
        // One spelling only, or two files could claim one id.
        (name_of.file() == name).then_some(name_of)
    }
}

/// Returns whether `name` is a leftover of an unfinished segment.
pub(crate) fn is_temporary(name: &str) -> bool {
    name == TEMPORARY
}

/// A segment ready to be written from its start.
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    pub(crate) file: Box<dyn DiskFile>,
}

/// Pool of segments: makes them ahead of need and takes retired ones back.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    bytes: u64,
    pool: Mutex<Pool>,
}

struct Pool {
    next_id: u64,
    ready: VecDeque<Segment>,
    retired: Vec<SegmentName>,
}

impl Pool {
    /// Takes a retired file of exactly `bytes` bytes.
    fn take_retired(&mut self, bytes: u64) -> Option<SegmentName> {
        let at = self.retired.iter().position(|retired| retired.bytes == bytes)?;
        Some(self.retired.swap_remove(at))
    }
}

impl Segments {
    /// Creates a pool of segments of `bytes` bytes, with ids from `next_id` on.
    pub(crate) fn new(disk: Arc<dyn Disk>, bytes: u64, next_id: u64) -> Segments {
        Segments { disk, bytes, pool: Mutex::new(Pool { next_id, ready: VecDeque::new(), retired: Vec::new() }) }
    }

    /// Returns the usual length of a segment, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes over a segment that an earlier process made and never used.
    pub(crate) fn adopt(&self, name: SegmentName) -> Result<bool, StoreError> {
        let mut pool = self.pool();
        if pool.ready.len() >= READY_MAX || name.id != pool.next_id || name.bytes < self.bytes {
            return Ok(false);
        }
        let file = self.disk.open(&name.file()).doing(|| format!("opening {}", name.file()))?;
        pool.next_id += 1;
        pool.ready.push_back(Segment { name, file });
        Ok(true)
    }

    /// Makes the missing next segments now, as far as the disk has room for them: without room, the journal goes on in those that it
    /// has. Returns whether all exist. Not for the journal's own thread: the call writes and syncs whole segments.
    pub(crate) fn prepare(&self) -> Result<bool, StoreError> {
        loop {
            // The lock is released in between: the journal may be waiting for the segment just made.
            let mut pool = self.pool();
            if pool.ready.len() >= READY_MAX {
                return Ok(true);
            }
            let made = match pool.take_retired(self.bytes) {
                Some(retired) => self.name(&mut pool, &retired.file(), self.bytes, None),
                None => match self.zeroed(self.bytes) {
                    Ok(zeroed) => self.name(&mut pool, TEMPORARY, self.bytes, Some(zeroed)),
                    Err(error) if error.is_full() => {
                        // The bytes written so far take room from other files. The file may not exist.
                        let _ = self.disk.remove(TEMPORARY);
                        return Ok(false);
                    }
                    Err(error) => Err(error),
                },
            };
            pool.ready.push_back(made?);
        }
    }

    /// Takes the next segment, with room for at least `bytes_min`. Waits while one is being made.
    pub(crate) fn take(&self, bytes_min: u64) -> Result<Segment, StoreError> {
        let bytes = if bytes_min <= self.bytes { self.bytes } else { bytes_min.next_multiple_of(4096) };
        let mut pool = self.pool();
        match pool.ready.pop_front() {
            Some(ready) if ready.name.bytes >= bytes_min => return Ok(ready),
            Some(short) => {
                // Too short for this one frame. No id must be skipped (a gap would look like a lost segment), so the segments made
                // ahead are made again later.
                pool.next_id = short.name.id;
                let later = std::mem::take(&mut pool.ready);
                let unused: Vec<SegmentName> = [short].iter().chain(&later).map(|segment| segment.name).collect();
                remove_unused(&*self.disk, &unused)?;
            }
            None => (),
        }
        self.make(&mut pool, bytes)
    }

    /// Takes back a segment that no start will read again.
    pub(crate) fn retire(&self, name: SegmentName) -> Result<(), StoreError> {
        let mut pool = self.pool();
        if name.bytes == self.bytes && pool.retired.len() < RETIRED_MAX {
            pool.retired.push(name);
            return Ok(());
        }
        self.disk.remove(&name.file()).doing(|| format!("removing {}", name.file()))
    }

    fn make(&self, pool: &mut Pool, bytes: u64) -> Result<Segment, StoreError> {
        match pool.take_retired(bytes) {
            Some(retired) => self.name(pool, &retired.file(), bytes, None),
            None => {
                let zeroed = self.zeroed(bytes)?;
                self.name(pool, TEMPORARY, bytes, Some(zeroed))
            }
        }
    }

    /// Creates a file of zeros, under a temporary name.
    fn zeroed(&self, bytes: u64) -> Result<Box<dyn DiskFile>, StoreError> {
        let mut file = self.disk.create(TEMPORARY).doing(|| format!("creating {TEMPORARY}"))?;
        fill(&mut *file, bytes, |_| ()).doing(|| format!("writing {TEMPORARY}, the journal's next segment, ahead"))?;
        file.sync().doing(|| format!("syncing {TEMPORARY}"))?;
        Ok(file)
    }

    /// Makes the next segment from the file `old`, which may be open as `file`. A failure leaves a name that this process must not
    /// use again: it ends the store.
    fn name(
        &self,
        pool: &mut Pool,
        old: &str,
        bytes: u64,
        file: Option<Box<dyn DiskFile>>,
    ) -> Result<Segment, StoreError> {
        let name = SegmentName { id: pool.next_id, bytes };
        let new = name.file();
        self.disk.rename(old, &new).doing(|| format!("renaming {old} to {new}"))?;
        let file = file.map_or_else(|| self.disk.open(&new).doing(|| format!("opening {new}")), Ok)?;
        self.disk.sync_dir().doing(|| "syncing the store's directory".into())?;
        pool.next_id += 1;
        Ok(Segment { name, file })
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // A panic in between leaves at worst a file that the next start removes.
        self.pool.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Removes unused segments, given in the order of their ids: the last one first, and each removal durable before the next. A segment
/// without its predecessor would look like a lost segment, at any end of the process or the power.
pub(crate) fn remove_unused(disk: &dyn Disk, segments: &[SegmentName]) -> Result<(), StoreError> {
    for name in segments.iter().rev().map(SegmentName::file) {
        disk.remove(&name).doing(|| format!("removing {name}"))?;
        disk.sync_dir().doing(|| "syncing the store's directory".into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_spelling() {
        let name = SegmentName { id: 0x1f, bytes: 4096 };
        assert_eq!(name.file(), "journal-000000000000001f-4096");
        assert_eq!(SegmentName::parse(&name.file()), Some(name));
        for other in
            ["journal-1f-4096", "journal-000000000000001F-4096", "journal-000000000000001f-+4096", "journal-", "x"]
        {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }
}
