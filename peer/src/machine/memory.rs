//! The division of a peer's given memory.

use crate::config::Durability;

/// Memory of a process without data, in bytes.
const AT_REST: u64 = 32 << 20;

/// Memory of the table on disk beside its cache, in bytes, with ten million records.
const INDEX: u64 = 128 << 20;

/// Memory of a table as a multiple of its cache: twice the cache, and twice that while the table is rebuilt.
const CACHES: u64 = 2 * 2;

/// Bytes of `--max-memory` for each large consumer. The rest is for the index of the table on disk, for sockets, and
/// for the loss of allocators, which is a quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    /// Bytes of records in memory; an eighth of that more holds recent writes for members that missed them.
    pub records: u64,
    /// Bytes of changes on their way to the table on disk: they take about a quarter more than they count for.
    pub changes: u64,
    /// Bytes of the cache of the table on disk.
    pub cache: u64,
}

impl MemoryShares {
    /// Divides so many bytes. No consumer gets more than it can use.
    pub fn of(given: u64, durability: Durability) -> MemoryShares {
        let free = given.saturating_sub(AT_REST);
        match durability {
            Durability::Sync => {
                let changes = (free / 8).clamp(4 << 20, 96 << 20);
                let cache = (free / 64).clamp(1 << 20, 64 << 20);
                let index = (free / 10 * 3).min(INDEX);
                let rest = free.saturating_sub(changes / 4 * 5 + CACHES * cache + index);
                MemoryShares { records: rest / 2, changes, cache }
            }
            // There is no table on disk.
            Durability::Memory => MemoryShares { records: free / 4 * 3, changes: 0, cache: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_room_for_what_nobody_counts() {
        for mib in [64, 96, 256, 512, 1 << 10, 4 << 10, 64 << 10] {
            let given = mib << 20;
            for durability in [Durability::Sync, Durability::Memory] {
                let MemoryShares { records, changes, cache } = MemoryShares::of(given, durability);
                let all = AT_REST + records + records / 8 + changes + CACHES * cache;
                assert!(all <= given / 16 * 15, "{all} of {given}, {durability:?}");
                assert!(records >= given / 10, "{records} of {given} for records");
            }
        }
    }
}
