//! Attempts of client operations that came to a primary: a copy that comes later is not executed, although the operation's id may be
//! forgotten by then (`docs/design/write.md`).

use alloc::collections::BTreeMap;
use core::time::Duration;

use overlay::{Incarnation, NodeId, PeerKey};

use crate::data::operations::PATIENCE_MAX;
use crate::number_set::NumberSet;
use overlay::time::Time;

/// Upper limit of origins' runs that one primary remembers. A run is one life of a peer's process, and a group has tens of peers; a peer
/// that names more invents them. An attempt of a further run is dropped: if it were refused, a later copy of it might be executed.
const RUNS_MAX: usize = 1 << 10;
/// Upper limit of runs of one peer among them: a peer that invents more shuts only itself out.
const RUNS_OF_ONE_MAX: usize = 64;
/// Upper limit of attempts of one run that may be outstanding before one that came.
const GAPS_MAX: usize = 4096;
/// Time between two searches for runs that need not be remembered.
const LOOK_EVERY: Duration = PATIENCE_MAX;

/// Attempt, as its origin names it.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// Node that made the attempt.
    pub origin: NodeId,
    /// Run of the origin's process.
    pub run: u64,
    /// Number of the attempt among those of the run under that ballot.
    pub serial: u64,
    /// Horizon that the operation was first sent under.
    pub horizon: u64,
}

/// Kind of an attempt that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The attempt has not come before.
    First,
    /// The attempt came before, and is or was answered then.
    Copy,
    /// The attempt cannot be remembered: it must count as lost.
    NoRoom,
}

/// One run of one origin.
#[derive(Clone, Debug, Default)]
struct Run {
    serials: NumberSet,
    /// Latest horizon of an attempt that came.
    horizon: u64,
    /// Time at which the last attempt came.
    last: Time,
}

/// Attempts that came to one primary.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    runs: BTreeMap<(NodeId, u64), Run>,
    looked: Time,
}

impl Seen {
    /// Notes an attempt that arrives.
    pub fn arrive(&mut self, name: Name, now: Time) -> Arrival {
        let of = (name.origin, name.run);
        if !self.runs.contains_key(&of) && !self.has_room(name.origin.peer) {
            return Arrival::NoRoom;
        }
        let run = self.runs.entry(of).or_default();
        run.last = now;
        run.horizon = run.horizon.max(name.horizon);
        if !run.serials.insert(name.serial) {
            return Arrival::Copy;
        }
        if run.serials.gaps() > GAPS_MAX {
            // An attempt that has not come by now is not taken any more: its origin hears nothing, and asks anew.
            let mark = run.serials.last().saturating_sub(GAPS_MAX as u64);
            run.serials.insert_range(1, mark);
        }
        Arrival::First
    }

    fn has_room(&self, peer: PeerKey) -> bool {
        let [first, last] = [0, u64::MAX].map(|end| (NodeId { peer, incarnation: Incarnation(end) }, end));
        self.runs.len() < RUNS_MAX && self.runs.range(first..=last).count() < RUNS_OF_ONE_MAX
    }

    /// Returns whether this attempt came.
    pub fn contains(&self, name: Name) -> bool {
        self.runs.get(&(name.origin, name.run)).is_some_and(|run| run.serials.contains(name.serial))
    }

    /// Forgets runs with operations that are refused as too old from now on, and for which no client waits any more: then the refusal of a
    /// copy misleads no client.
    pub fn forget(&mut self, horizon: u64, now: Time) {
        if now.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        self.runs.retain(|_, run| run.horizon + 1 >= horizon || now.since(run.last) < PATIENCE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(peer: u8) -> NodeId {
        NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
    }

    /// A peer that invents runs until no more is remembered of it shuts out no other peer.
    #[test]
    fn nobody_fills_the_room_of_others() {
        let name = |peer, run| Name { origin: origin(peer), run, serial: 1, horizon: 5 };
        let mut seen = Seen::default();
        for run in 0..RUNS_MAX as u64 {
            let life = NodeId { incarnation: Incarnation(run), ..origin(1) };
            let is_first = seen.arrive(Name { origin: life, ..name(1, run) }, Time(0)) == Arrival::First;
            assert_eq!(is_first, run < RUNS_OF_ONE_MAX as u64);
        }
        assert_eq!(seen.arrive(name(2, 1), Time(0)), Arrival::First);
    }

    #[test]
    fn runs_are_bounded_and_leave() {
        let name = |run, horizon| Name { origin: origin((run % 17) as u8), run, serial: 1, horizon };
        let (mut seen, begin) = (Seen::default(), Time(1_000_000_000));
        for run in 0..RUNS_MAX as u64 {
            assert_eq!(seen.arrive(name(run, 5), begin), Arrival::First);
        }
        assert_eq!(seen.arrive(name(u64::MAX, 5), begin), Arrival::NoRoom);
        assert_eq!(seen.arrive(name(7, 5), begin), Arrival::Copy);
        seen.forget(6, begin + PATIENCE_MAX);
        assert!(seen.contains(name(7, 5)), "an operation of that horizon may still be executed");
        let later = begin + PATIENCE_MAX * 2;
        assert_eq!(seen.arrive(name(8, 5), later), Arrival::Copy);
        seen.forget(7, later);
        assert!(!seen.contains(name(7, 5)));
        assert!(seen.contains(name(8, 5)), "somebody may still wait for it");
        assert_eq!(seen.arrive(name(u64::MAX, 7), later), Arrival::First);
    }
}
