//! What a node remembers of a key while operations of its clients on it are under way.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use group::record::LIVE_IDS_MAX;

use crate::api::ConnectionId;
use crate::window::Few;

/// What is remembered of a key while operations on it are under way.
#[derive(Debug, Default)]
pub(crate) struct KeyUse {
    /// Under way or waiting, in order.
    pub(crate) live: Few,
    /// The last one of each connection.
    tails: Vec<(ConnectionId, u64)>,
    /// Answered, but a stray attempt may yet be executed: with their horizons.
    pub(crate) stray: BTreeMap<u64, u64>,
}

impl KeyUse {
    /// An operation of this connection comes: which one it follows.
    pub(crate) fn follow(&mut self, connection: ConnectionId, sequence: u64) -> Option<u64> {
        match self.tails.iter_mut().find(|(of, _)| *of == connection) {
            Some((_, tail)) => Some(core::mem::replace(tail, sequence)),
            None => {
                self.tails.push((connection, sequence));
                None
            }
        }
    }

    /// It is over; it followed `before`.
    pub(crate) fn leave(&mut self, connection: ConnectionId, sequence: u64, before: Option<u64>) {
        let Some(place) = self.tails.iter().position(|tail| *tail == (connection, sequence)) else { return };
        match before {
            Some(before) => self.tails[place].1 = before,
            None => drop(self.tails.swap_remove(place)),
        }
    }

    /// Below which sequence number nothing is ever sent again when `sequence` is, and but for what.
    pub(crate) fn retired(&self, sequence: u64) -> (u64, Vec<u64>) {
        let below = self.live.first().unwrap_or(sequence);
        let mut except: Vec<u64> = self.stray.range(..below).map(|(stray, _)| *stray).take(LIVE_IDS_MAX + 1).collect();
        // Those that were under way when the limit was reached are strays too, and a longer list is nobody's to believe.
        // To retire less is always right.
        let Some(first) = except.get(LIVE_IDS_MAX).copied() else { return (below, except) };
        except.truncate(LIVE_IDS_MAX);
        (first, except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_retired_than_its_exceptions_can_name() {
        let mut used = KeyUse::default();
        used.live.push(5000);
        used.stray.extend((1..=1500).map(|stray| (2 * stray, 7)));
        let (below, except) = used.retired(6000);
        assert_eq!(except.len(), LIVE_IDS_MAX);
        assert!(used.stray.keys().all(|stray| *stray >= below || except.contains(stray)));
        used.stray.clear();
        assert_eq!(used.retired(6000), (5000, Vec::new()));
    }
}
