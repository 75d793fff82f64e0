//! How large a store's parts may become.

use super::pieces::PIECE_BYTES;

/// What a store may use. The defaults suit a machine with a few gigabytes; on a smaller volume, or under a smaller
/// [`disk_bytes_max`](StoreConfig::disk_bytes_max), everything on disk shrinks by itself.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// What the store may take on disk. Near this mark it says [`DiskLow`](super::StoreEvent::DiskLow). Default: the
    /// volume is the limit.
    pub disk_bytes_max: Option<u64>,
    /// Cache of the table. Default 64 MiB.
    pub cache_bytes: u64,
    /// Changed records that wait in memory for the write-behind; beyond it commits wait. Default 96 MiB.
    pub pending_bytes_max: usize,
    /// Records written behind at once. Default 128 KiB: small enough that a read that must wait for it does so for about a
    /// hundredth of a second. sled takes a quarter less time for a record than in portions of 4 MiB, and half the memory.
    pub behind_bytes: usize,
    /// One file of the journal. Default 8 MiB.
    pub segment_bytes: u64,
    /// A checkpoint is due when the journal has grown by this much. Default 128 MiB, read and sorted in half a second at a
    /// start: with half of it, 100,000 keys that are all changed again and again would be written to the table twice as
    /// often, for a tenth of a server's time. There may be twice as much after a kill in the middle of a sweep.
    pub checkpoint_bytes: u64,
    /// Below so much room the disk counts as low. Default: what the pending changes, a checkpoint and the ballast could
    /// still need.
    pub low_bytes: Option<u64>,
    /// A file kept only to be freed when a start finds no room. Default 16 MiB.
    pub ballast_bytes: u64,
    /// Records that lie beside each other and share an entry of the table. Default 2 KiB: sled takes about 450 bytes of
    /// memory for an entry, and writes an entry anew, and now and then its 15 neighbours, for each record that changes.
    pub block_bytes: usize,
    /// Longer entries of the table are divided. Default 5,000 bytes: sled keeps pages over 128 KiB in files that it never
    /// syncs.
    pub piece_bytes: usize,
    /// Blocks in one range of the table's books. Default 2048: read in a few milliseconds.
    pub range_blocks_max: u64,
    /// Bytes in one such range. Default 4 MiB.
    pub range_bytes_max: u64,
    /// Mixed into the journal's checksums, so that nobody can forge a frame inside a value. Drawn by chance where it is
    /// `None`; simulations set it.
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
    /// The same, fitted to a volume of `total` bytes.
    pub(crate) fn fitted(&self, total: u64) -> StoreConfig {
        let total = self.disk_bytes_max.map_or(total, |max| max.min(total));
        // Together about half of it: the journal up to its limit is 2/8 + 1/16, half as much again for a while after a
        // start that found it there, and the ballast 1/16.
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

    /// Bytes of the journal that may lie behind the last checkpoint; beyond it commits wait.
    pub(crate) fn backlog_bytes_max(&self) -> u64 {
        2 * self.checkpoint_bytes + self.pending_bytes_max as u64
    }

    /// Bytes of changes after which the write-behind begins: late, so that a record that is changed often is written
    /// once, and early enough to be done before commits must wait.
    pub(crate) fn behind_mark(&self) -> usize {
        (self.pending_bytes_max / 2).max(self.behind_bytes).min(self.pending_bytes_max)
    }

    /// Bytes of changes that may wait before the write-behind counts as behind.
    pub(crate) fn behind_max(&self) -> usize {
        self.pending_bytes_max / 4 * 3
    }

    /// Bytes of changes, and bytes of the journal behind the last checkpoint, from which on the write-behind does not
    /// rest: commits would soon have to wait. The journal's room comes back only at the end of a sweep.
    pub(crate) fn pressing(&self) -> (usize, u64) {
        (self.pending_bytes_max / 8 * 7, self.backlog_bytes_max() / 2)
    }
}
