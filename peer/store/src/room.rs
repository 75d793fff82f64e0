//! Room on the disk: the low mark, the limit that an administrator set, and the ballast.
//!
//! A full volume also prevents a start: a store that cannot write cannot open. So the store reports low room early, and
//! keeps a file whose only use is the room that its removal frees.

use std::sync::Arc;

use crate::config::StoreConfig;
use crate::disk::{Disk, fill};
use crate::error::{Doing, StoreError};
use crate::table::rebuild::Current;

/// Name of the ballast's file.
pub(crate) const BALLAST: &str = "ballast";

/// The limit that a store with little room has nearly reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The volume is nearly full.
    Volume,
    /// The store has nearly reached [`disk_bytes_max`](StoreConfig::disk_bytes_max), the limit that an administrator
    /// set.
    Given,
}

/// The room of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free on the volume, in bytes.
    pub free: u64,
    /// Taken by this store, in bytes.
    pub used: u64,
    /// The part of `used` that the files of its table take, in bytes.
    pub table: u64,
    /// The limit by which room is below the low mark, if it is: new writes should go elsewhere.
    pub low: Option<Shortage>,
    /// Whether room is low, or not far from it.
    pub is_tight: bool,
    /// Bytes that can be written to the volume before room is low.
    pub above_low: u64,
}

/// Gauge of a store's room.
pub(crate) struct Gauge {
    disk: Arc<dyn Disk>,
    current: Arc<Current>,
    low_bytes: u64,
    used_max: Option<u64>,
    is_low: bool,
}

impl Gauge {
    /// Creates a gauge; `config` is fitted to the volume.
    pub(crate) fn new(disk: Arc<dyn Disk>, current: Arc<Current>, config: &StoreConfig) -> Gauge {
        let low_bytes = config.low_bytes.unwrap_or(0);
        let used_max = config.disk_bytes_max.map(|max| max.saturating_sub(low_bytes));
        Gauge { disk, current, low_bytes, used_max, is_low: false }
    }

    /// Measures the room. Once low, room counts as low until there is an eighth more than the mark asks for, to avoid
    /// flicker. The bytes of tables `beside` the one in use count as used, but not for the limit that an administrator
    /// set: they will soon be free.
    pub(crate) fn read(&mut self, beside: u64) -> Result<Room, StoreError> {
        let free = self.disk.space().doing(|| "measuring the free space".into())?.free;
        let files = self.disk.list().doing(|| "listing the store's directory".into())?;
        let aside = self.disk.bytes_aside().doing(|| "measuring older stores".into())?;
        let table = self.current.get().disk_bytes()?;
        let used = aside + files.iter().map(|(_, bytes)| bytes).sum::<u64>() + table;
        let slack = if self.is_low { self.low_bytes / 8 } else { 0 };
        let low = match self.used_max {
            _ if free < self.low_bytes + slack => Some(Shortage::Volume),
            Some(max) if used + slack > max => Some(Shortage::Given),
            _ => None,
        };
        self.is_low = low.is_some();
        let is_tight = free < 2 * self.low_bytes || self.used_max.is_some_and(|max| used > max / 4 * 3);
        let above_low = free.saturating_sub(self.low_bytes + self.low_bytes / 8);
        Ok(Room { free, used: used + beside, table, low, is_tight, above_low })
    }
}

/// Frees the ballast if there is less room than the ballast takes, before any other write. Low room is still enough to
/// open a store, and the ballast is for a volume without any room.
pub(crate) fn drop_ballast(disk: &dyn Disk, ballast_bytes: u64) -> Result<(), StoreError> {
    let free = disk.space().doing(|| "measuring the free space".into())?.free;
    let there = disk.list().doing(|| "listing the store's directory".into())?.iter().any(|(name, _)| name == BALLAST);
    if there && free < ballast_bytes {
        tracing::warn!(free, "the disk has little room: the ballast file is removed");
        disk.remove(BALLAST).doing(|| "removing the ballast".into())?;
        disk.sync_dir().doing(|| "syncing the store's directory".into())?;
    }
    Ok(())
}

/// Creates the ballast if there is none and plenty of room.
pub(crate) fn take_ballast(disk: &dyn Disk, config: &StoreConfig) -> Result<(), StoreError> {
    let free = disk.space().doing(|| "measuring the free space".into())?.free;
    let files = disk.list().doing(|| "listing the store's directory".into())?;
    let there = files.iter().any(|(name, bytes)| name == BALLAST && *bytes >= config.ballast_bytes);
    if there || config.ballast_bytes == 0 || free < config.low_bytes.unwrap_or(0) + 2 * config.ballast_bytes {
        return Ok(());
    }
    // Bytes that do not compress, for volumes with compression.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let written = disk.create(BALLAST).and_then(|mut file| {
        fill(&mut *file, config.ballast_bytes, |piece| {
            for word in piece.chunks_mut(8) {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                word.copy_from_slice(&noise.to_le_bytes()[..word.len()]);
            }
        })?;
        file.sync()
    });
    written.doing(|| "writing the ballast".into())
}
