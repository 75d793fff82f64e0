//! Repartition: a leader moves the boundary behind its group if one side of it has much more load than the other (Scatter §6.3).
//!
//! Such a move costs clients a moment, and its effect is only known once the load was measured anew. So a move begins only once the
//! averages have called for it for long enough. It does not soon follow another one at the same boundary, and moves are not too frequent in
//! all.

use alloc::collections::VecDeque;
use core::time::Duration;

use group::Group;
use group::transaction::plan::GroupTransaction;
use overlay::time::Time;
use overlay::{Epoch, GroupId, Point};
use policy::density::Density;

use crate::config::NodeConfig;
use crate::context::Context;
use crate::policies::lifetimes::LifeWatch;
use crate::reconfigure::preparing::{Begun, Preparation};
use crate::reconfigure::sizing::resize;

/// Approximate time between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time for which a boundary stays after a move, as a multiple of the time for which a move must have been called for.
const COOL_DOWN: u32 = 6;
/// Upper limit of moves that a leader begins,
const MOVES_MAX: usize = 12;
/// in this multiple of that time: an hour, by default.
const BUDGET_TIME: u32 = 360;

/// A leader's notes about the boundary behind its group.
#[derive(Debug, Default)]
pub(crate) struct LoadWatch {
    /// The group that it leads, and the epoch in which that group was born.
    leads: Option<(GroupId, Epoch)>,
    /// The called-for move, and the time since which it is: true if the group gives up a part of its range, false if its successor does.
    wanted: Option<(bool, Time)>,
    /// Boundary that is being prepared: copies for it are of no use to another boundary.
    prepared: Option<Point>,
    /// Moves that it began: the group, the epoch of its birth, the successor, and the time.
    begun: VecDeque<(GroupId, Epoch, GroupId, Time)>,
    due: Time,
}

impl LoadWatch {
    /// Returns whether the boundary between this group, born in that epoch, and its successor may be moved now.
    fn may_move(&self, (id, born): (GroupId, Epoch), successor: GroupId, now: Time, least: Duration) -> bool {
        let is_warm = |(group, epoch, other, at): &(GroupId, Epoch, GroupId, Time)| {
            // A move without effect may be tried again sooner.
            let moved = *group == id && *epoch != born;
            *group == id && *other == successor && moved && now.since(*at) < least * COOL_DOWN
        };
        self.begun.len() < MOVES_MAX && !self.begun.iter().any(is_warm)
    }
}

impl LoadWatch {
    /// Checks from time to time the load of the group that this node leads, and of the group behind it.
    pub(crate) fn watch(&mut self, cx: &mut Context<'_>, preparation: &mut Preparation, lives: &LifeWatch) {
        let now = cx.now.time;
        if now < self.due {
            return;
        }
        self.due = now + LOOK_EVERY / 2 + cx.rng.duration_below(LOOK_EVERY);
        let least = cx.config.timing.resize_after;
        let leads = cx.replicas.home().filter(|group| group.log().leads());
        let Some((id, born, wanted)) =
            leads.map(|group| (group.state().id, group.state().born, better_end(cx.config, lives, group)))
        else {
            self.leads = None;
            return;
        };
        let watch = &mut *self;
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
        let Some(rank) = cx.replicas.home().map(|group| group.rank(0)) else { return };
        let at = self.prepared.unwrap_or(at);
        // The present obstacle may soon be gone.
        match preparation.begin(cx, id, GroupTransaction::Repartition { at }, rank) {
            Ok(Begun::Yes) => {
                self.begun.push_back((id, born, successor, now));
                (self.wanted, self.prepared) = (None, None);
            }
            Ok(Begun::Copying) => self.prepared = Some(at),
            Err(_) => self.prepared = None,
        }
    }

    /// Returns the time of the next check.
    pub(crate) fn due(&self) -> Time {
        self.due
    }
}

/// Returns the successor, the better end of the group, and whether the group shrinks; `None` while its size calls for a change.
fn better_end(config: &NodeConfig, lives: &LifeWatch, group: &Group) -> Option<(GroupId, Point, bool)> {
    if resize(config, lives, group).is_some() {
        return None;
    }
    let state = group.state();
    let successor = state.transactions.successor()?.id;
    let (load, (range, health)) = (group.load()?, group.successor_health()?);
    let capacities = capacities((group.capacity(), group.strength()), (health.capacity, health.living.len()));
    let own = Density { range: state.range, cells: &load, capacity: capacities[0] };
    let cells = health.load.as_deref()?;
    let other = Density { range, cells, capacity: capacities[1] };
    let at = config.policies.of(group).repartition.1.propose(&own, &other)?;
    Some((successor, at, state.range.contains(at)))
}
/// Returns the capacities of two groups, in one unit: the operations a second of their living members if both are known, or else their
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
