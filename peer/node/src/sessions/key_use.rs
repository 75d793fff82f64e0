//! State of a key while operations of this node's clients on it are under way.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use group::record::LIVE_IDS_MAX;

use crate::api::ConnectionId;
use crate::sessions::window::Few;

/// State of a key while operations on it are under way.
#[derive(Debug, Default)]
pub(crate) struct KeyUse {
    /// Operations under way or waiting, in order.
    pub(crate) live: Few,
    /// The last operation of each connection.
    tails: Vec<(ConnectionId, u64)>,
    /// Operations that were answered, but that a stray attempt may still execute, with their horizons.
    pub(crate) stray: BTreeMap<u64, u64>,
}

impl KeyUse {
    /// Adds an operation of this connection; returns the one that it follows.
    pub(crate) fn follow(&mut self, connection: ConnectionId, sequence: u64) -> Option<u64> {
        match self.tails.iter_mut().find(|(of, _)| *of == connection) {
            Some((_, tail)) => Some(core::mem::replace(tail, sequence)),
            None => {
                self.tails.push((connection, sequence));
                None
            }
        }
    }

    /// Removes an operation that is over; it followed `before`.
    pub(crate) fn leave(&mut self, connection: ConnectionId, sequence: u64, before: Option<u64>) {
        let Some(place) = self.tails.iter().position(|tail| *tail == (connection, sequence)) else { return };
        match before {
            Some(before) => self.tails[place].1 = before,
            None => drop(self.tails.swap_remove(place)),
        }
    }

    /// Returns the sequence number below which no operation is sent again once `sequence` is sent, and the exceptions.
    pub(crate) fn retired(&self, sequence: u64) -> (u64, Vec<u64>) {
        let below = self.live.first().unwrap_or(sequence);
        let mut except: Vec<u64> = self.stray.range(..below).map(|(stray, _)| *stray).take(LIVE_IDS_MAX + 1).collect();
        // Operations that were under way when the limit was reached are strays too, and a longer list would not be
        // believed. To retire fewer ids is always right.
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
