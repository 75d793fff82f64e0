//! How the memory that a person gives is divided.

use crate::config::Durability;

/// What a process takes that holds nothing.
const AT_REST: u64 = 32 << 20;

/// What the table on disk takes beside its cache, with ten million records.
const INDEX: u64 = 128 << 20;

/// So many times its cache a table takes, and twice as much for as long as it is rebuilt.
const CACHES: u64 = 2 * 2;

/// Bytes of `--max-memory` for each of those who hold much. What they leave is for the index of the table on disk, for
/// sockets, and for what allocators lose, which is a quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Records in memory, and an eighth of that more for recent writes, which are kept for those who missed them.
    pub records: u64,
    /// Changes on their way to the table on disk: they take about a quarter more than they count for.
    pub changes: u64,
    /// The cache of the table on disk.
    pub cache: u64,
}

impl Shares {
    /// Divides so many bytes. Nobody gets more than is of use.
    pub fn of(given: u64, durability: Durability) -> Shares {
        let free = given.saturating_sub(AT_REST);
        match durability {
            Durability::Sync => {
                let changes = (free / 8).clamp(4 << 20, 96 << 20);
                let cache = (free / 64).clamp(1 << 20, 64 << 20);
                let index = (free / 10 * 3).min(INDEX);
                let rest = free.saturating_sub(changes / 4 * 5 + CACHES * cache + index);
                Shares { records: rest / 2, changes, cache }
            }
            // There is no table on disk.
            Durability::Memory => Shares { records: free / 4 * 3, changes: 0, cache: 0 },
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
                let Shares { records, changes, cache } = Shares::of(given, durability);
                let all = AT_REST + records + records / 8 + changes + CACHES * cache;
                assert!(all <= given / 16 * 15, "{all} of {given}, {durability:?}");
                assert!(records >= given / 10, "{records} of {given} for records");
            }
        }
    }
}
