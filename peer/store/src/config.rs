//! Limits on the sizes of a store's parts.

use crate::table::pieces::PIECE_BYTES;

/// Limits on the resources of a store. The defaults suit a machine with a few gigabytes. On a smaller volume, or under a
/// smaller [`disk_bytes_max`](StoreConfig::disk_bytes_max), all limits on disk shrink automatically.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Upper limit of the store on disk, in bytes. Near it the store reports [`DiskLow`](crate::StoreEvent::DiskLow).
    /// Default: the volume is the limit.
    pub disk_bytes_max: Option<u64>,
    /// Cache of the table, in bytes. Default 64 MiB.
    pub cache_bytes: u64,
    /// Bytes of changed records that wait in memory for the write-behind; beyond it commits wait. Default 96 MiB.
    pub pending_bytes_max: usize,
    /// Bytes of records that are written behind at once. Default 128 KiB: a read that must wait for such a portion waits
    /// about a hundredth of a second. sled takes a quarter less time for a record than in portions of 4 MiB, and half the
    /// memory.
    pub behind_bytes: usize,
    /// Size of one file of the journal, in bytes. Default 8 MiB.
    pub segment_bytes: u64,
    /// Growth of the journal, in bytes, after which a checkpoint is due. Default 128 MiB, which a start reads and sorts in
    /// half a second. With half of it, 100,000 keys that all change again and again would be written to the table twice as
    /// often, for a tenth of a server's time. After a kill in the middle of a sweep the journal may be twice as long.
    pub checkpoint_bytes: u64,
    /// Free bytes below which the disk counts as low. Default: the bytes that the pending changes, a checkpoint and the
    /// ballast could still need.
    pub low_bytes: Option<u64>,
    /// Size of a file that is kept only to be freed when a start finds no room, in bytes. Default 16 MiB.
    pub ballast_bytes: u64,
    /// Bytes of neighbouring records that share an entry of the table. Default 2 KiB: sled takes about 450 bytes of memory
    /// for an entry. For each record that changes, sled rewrites the entry, and sometimes its 15 neighbours.
    pub block_bytes: usize,
    /// Length of a table's entry, in bytes, beyond which it is divided. Default 5,000 bytes: sled keeps pages over 128 KiB
    /// in files that it never syncs.
    pub piece_bytes: usize,
    /// Upper limit of blocks in one range of the table's books. Default 2048: read in a few milliseconds.
    pub range_blocks_max: u64,
    /// Upper limit of bytes in one such range. Default 4 MiB.
    pub range_bytes_max: u64,
    /// Salt of the journal's checksums, so that no client can forge a frame inside a value. `None` draws it at random;
    /// simulations set it.
    pub salt: Option<u64>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            disk_bytes_max: None,
            cache_bytes: 64 << 20,
            pending_bytes_max: 96 << 20,
            behind_bytes: 128 << 10,
            segment_bytes: 8 << 20,
            checkpoint_bytes: 128 << 20,
            low_bytes: None,
            ballast_bytes: 16 << 20,
            block_bytes: 2 << 10,
            piece_bytes: PIECE_BYTES,
            range_blocks_max: 2048,
            range_bytes_max: 4 << 20,
            salt: None,
        }
    }
}

impl StoreConfig {
    /// Returns the same configuration, fitted to a volume of `total` bytes.
    pub(crate) fn fitted(&self, total: u64) -> StoreConfig {
        let total = self.disk_bytes_max.map_or(total, |max| max.min(total));
        // Together about half of the volume: the journal up to its limit is 2/8 + 1/16, half as much again for a while
        // after a start that found it there, and the ballast 1/16.
        let segment_bytes = self.segment_bytes.min((total / 64).max(64 << 10)).max(1024).next_multiple_of(512);
        let pending_bytes_max = self.pending_bytes_max.min(usize::try_from(total / 16).unwrap_or(usize::MAX));
        let ballast_bytes = self.ballast_bytes.min(total / 16);
        let needed = 2 * pending_bytes_max as u64 + 2 * segment_bytes + ballast_bytes;
        StoreConfig {
            segment_bytes,
            pending_bytes_max,
            ballast_bytes,
            behind_bytes: self.behind_bytes.min(pending_bytes_max),
            checkpoint_bytes: self.checkpoint_bytes.min((total / 8).max(2 * segment_bytes)),
            low_bytes: Some(self.low_bytes.unwrap_or(needed.min(total / 8))),
            ..self.clone()
        }
    }

    /// Returns the bytes of the journal that may lie behind the last checkpoint; beyond them commits wait.
    pub(crate) fn backlog_bytes_max(&self) -> u64 {
        2 * self.checkpoint_bytes + self.pending_bytes_max as u64
    }

    /// Returns the bytes of changes after which the write-behind begins: late, so that a record that changes often is
    /// written once, and early enough to end before commits must wait.
    pub(crate) fn behind_mark(&self) -> usize {
        (self.pending_bytes_max / 2).max(self.behind_bytes).min(self.pending_bytes_max)
    }

    /// Returns the bytes of changes that may wait before the write-behind counts as behind.
    pub(crate) fn behind_max(&self) -> usize {
        self.pending_bytes_max / 4 * 3
    }

    /// Returns the bytes of changes, and the bytes of the journal behind the last checkpoint, from which on the
    /// write-behind does not rest: commits would soon have to wait. The journal's room is freed only at the end of a
    /// sweep.
    pub(crate) fn pressing(&self) -> (usize, u64) {
        (self.pending_bytes_max / 8 * 7, self.backlog_bytes_max() / 2)
    }
}
