//! A leader has the boundary behind its group moved where much more is asked of one side of it than of the other (Scatter §6.3).
//!
//! Such a move costs clients a moment, and what comes of it is only known when it has been measured anew: so it is made when
//! the averages have called for it for long enough, not soon again at the same boundary, and not too often at all.

use alloc::collections::VecDeque;
use core::time::Duration;

use group::Group;
use group::time::Time;
use group::transaction::plan::Operation;
use overlay::{Epoch, GroupId, Point};
use policy::density::Density;

use crate::node::Node;
use crate::preparing::Begun;

/// Between two looks, about.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A boundary that was moved stays for so many times as long as a move must have been called for.
const COOL_DOWN: u32 = 6;
/// So many moves a leader begins at most,
const MOVES_MAX: usize = 12;
/// in so many times that time: an hour, by default.
const BUDGET_TIME: u32 = 360;

/// What a leader notes about the boundary behind its group.
#[derive(Debug, Default)]
pub(crate) struct LoadWatch {
    /// The group that it leads, and since when that is what it is.
    leads: Option<(GroupId, Epoch)>,
    /// A move is called for, of its own end or of its successor's start, and since when.
    wanted: Option<(bool, Time)>,
    /// To there, where that is being prepared: what is copied is of no use to another.
    prepared: Option<Point>,
    /// What it began: of which group as what it was, at the boundary with which, and when.
    begun: VecDeque<(GroupId, Epoch, GroupId, Time)>,
    due: Time,
}

impl LoadWatch {
    /// May the boundary be moved now, between this group, as what it is since then, and that one?
    fn may_move(&self, (id, born): (GroupId, Epoch), successor: GroupId, now: Time, least: Duration) -> bool {
        let is_warm = |(group, epoch, other, at): &(GroupId, Epoch, GroupId, Time)| {
            // What came to nothing may be tried again sooner.
            let moved = *group == id && *epoch != born;
            *group == id && *other == successor && moved && now.since(*at) < least * COOL_DOWN
        };
        self.begun.len() < MOVES_MAX && !self.begun.iter().any(is_warm)
    }
}

impl Node {
    /// Looks from time to time at what is asked of the group that this node leads, and of the one behind it.
    pub(crate) fn watch_load(&mut self) {
        let now = self.now.time;
        if now < self.load_watch.due {
            return;
        }
        self.load_watch.due = now + LOOK_EVERY / 2 + self.rng.duration_below(LOOK_EVERY);
        let least = self.config.timing.resize_after;
        let leads = self.hosts.home().filter(|group| group.log().leads());
        let Some((id, born, wanted)) =
            leads.map(|group| (group.state().id, group.state().born, self.better_end(group)))
        else {
            self.load_watch.leads = None;
            return;
        };
        let watch = &mut self.load_watch;
        watch.begun.retain(|(.., at)| now.since(*at) < least * BUDGET_TIME);
        if watch.leads != Some((id, born)) {
            (watch.leads, watch.wanted, watch.prepared) = (Some((id, born)), None, None);
        }
        let Some((successor, at, shrinks)) = wanted else {
            (watch.wanted, watch.prepared) = (None, None);
            return;
        };
        let since = watch.wanted.filter(|(before, _)| *before == shrinks).map_or(now, |(_, since)| since);
        if since == now {
            watch.prepared = None;
        }
        watch.wanted = Some((shrinks, since));
        if now.since(since) < least || !watch.may_move((id, born), successor, now, least) {
            return;
        }
        let Some(rank) = self.hosts.home().map(|group| group.rank(0)) else { return };
        let at = self.load_watch.prepared.unwrap_or(at);
        // What stands against it now may not soon.
        match self.begin_prepared(id, Operation::Repartition { at }, rank) {
            Ok(Begun::Yes) => {
                self.load_watch.begun.push_back((id, born, successor, now));
                (self.load_watch.wanted, self.load_watch.prepared) = (None, None);
            }
            Ok(Begun::Copying) => self.load_watch.prepared = Some(at),
            Err(_) => self.load_watch.prepared = None,
        }
    }

    /// When it looks next.
    pub(crate) fn load_due(&self) -> Time {
        self.load_watch.due
    }

    /// Where the group should end instead, beside which other one, and whether it gives something; not before its size is as
    /// it should be.
    fn better_end(&self, group: &Group) -> Option<(GroupId, Point, bool)> {
        if self.resize(group).is_some() {
            return None;
        }
        let state = group.state();
        let successor = state.dealings.successor()?.id;
        let (load, (range, health)) = (group.load()?, group.successor_health()?);
        let capacities = capacities((group.capacity(), group.strength()), (health.capacity, health.living.len()));
        let own = Density { range: state.range, cells: &load, capacity: capacities[0] };
        let cells = health.load.as_deref()?;
        let other = Density { range, cells, capacity: capacities[1] };
        let at = self.config.policies.of(group).repartition.1.propose(&own, &other)?;
        Some((successor, at, state.range.contains(at)))
    }
}

/// Returns what two groups can do, in one unit: the operations a second of their living members where both groups know these, or else their
/// numbers of living members.
fn capacities(own: (Option<u32>, usize), other: (Option<u32>, usize)) -> [u32; 2] {
    match (own.0, other.0) {
        (Some(own), Some(other)) => [own, other],
        _ => [own.1, other.1].map(|members| u32::try_from(members).unwrap_or(u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_compared_in_one_unit() {
        assert_eq!(capacities((Some(9_000), 5), (Some(20_000), 7)), [9_000, 20_000]);
        assert_eq!(capacities((Some(9_000), 5), (None, 7)), [5, 7]);
        assert_eq!(capacities((None, 5), (Some(20_000), 7)), [5, 7]);
    }

    #[test]
    fn a_boundary_cools_down_and_moves_are_few() {
        let (own, other) = (GroupId(1), GroupId(2));
        let least = Duration::from_secs(10);
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let mut watch = LoadWatch::default();
        assert!(watch.may_move((own, Epoch(3)), other, at(0), least));
        watch.begun.push_back((own, Epoch(3), other, at(0)));
        assert!(watch.may_move((own, Epoch(3)), other, at(1), least), "it came to nothing");
        assert!(!watch.may_move((own, Epoch(4)), other, at(59), least), "it was moved");
        assert!(watch.may_move((own, Epoch(4)), GroupId(5), at(1), least), "another boundary");
        assert!(watch.may_move((own, Epoch(4)), other, at(60), least));
        (1..12).for_each(|n| watch.begun.push_back((own, Epoch(3), other, at(n))));
        assert!(!watch.may_move((own, Epoch(4)), GroupId(5), at(3_000), least), "enough for an hour");
    }
}
