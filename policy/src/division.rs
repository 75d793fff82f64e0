//! Division of a group's range among primaries (Harmony §7.6).

use alloc::vec::Vec;

use overlay::{KeyRange, NodeId, Point};

use crate::density::{Density, LOAD_MIN};
use crate::weights::{Able, Weights, near};

/// Upper limit of sub-ranges for each primary: with more, the range is divided anew.
const PARTS_PER_NODE_MAX: usize = 4;

/// The facts about a group that decide how its range is divided.
#[derive(Clone, Copy, Debug)]
pub struct Divided<'a> {
    /// The range.
    pub range: KeyRange,
    /// The present division: starts and primaries.
    pub current: &'a [(Point, NodeId)],
    /// The members that can be primary, in order.
    pub able: &'a [Able],
    /// The load of each of some equal pieces of the range, in operations a minute; `None` where that is not known.
    pub load: Option<&'a [u32]>,
    /// Whether nothing has changed for a while.
    pub calm: bool,
    /// Whether nothing has changed for so long that a change which is only an improvement may be made.
    pub rested: bool,
}

/// Decides which member is primary of which part of a range.
pub trait Dividing: Sync {
    /// Returns another division; `None` where the present one will do. Each new one costs the clients of redrawn sub-ranges a moment. Quiet
    /// on its own output, for ranges of all lengths: where a range has fewer points than there are members that can be primary, some
    /// members get nothing.
    fn divide(&self, view: &Divided<'_>) -> Option<Vec<(Point, NodeId)>>;
}

/// Gives each member that can be primary an equal share of the range.
///
/// The sub-ranges of a primary that is not able are shared out at once, and all other sub-ranges stay: clients of other primaries notice
/// nothing. Once all is calm, the whole range is evened out, where that changes enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Even;

impl Dividing for Even {
    fn divide(&self, view: &Divided<'_>) -> Option<Vec<(Point, NodeId)>> {
        let able: Vec<NodeId> = view.able.iter().map(|able| able.node).collect();
        let weights = alloc::vec![1; able.len()];
        if view.calm && !able.is_empty() {
            return (!is_whole(view.current, &able, &weights))
                .then(|| shares(view.range, &able))
                .filter(|drawn| drawn != view.current);
        }
        share_orphans(view.range, view.current, &able, &weights)
    }
}

/// Gives each member as much load as its capacity and its weight as a newcomer allow (Harmony §7.6). A newcomer begins without a sub-range
/// and grows in three steps: the likeliest members to die soon should be primary of little.
///
/// The sub-ranges of a primary that is not able are shared out at once among the members that should have sub-ranges. All other changes
/// wait until all is calm. Then each of these members gets a sub-range. Where each has one, the division waits until it has rested. It is
/// drawn anew where it is far from its target: where a member has much more than its due, or, as one that was a newcomer or was weak, much
/// less.
///
/// A member that waits much longer for a majority than the rest is not able: its sub-ranges are shared out at once.
///
/// The papers choose leaders by agreement latency, age or chance (Scatter §6.2, Harmony §7.2), and no primaries: all members are primaries.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByLoad;

/// A division is drawn anew where a member has more than this part of its due, in tenths.
const EXCESS_MIN: u64 = 16;
/// A division is drawn anew where a former newcomer has less than this part of its due, in tenths. A step of a newcomer's weight leaves it
/// with two thirds at most.
const SHARE_MIN: u64 = 7;
/// A division is drawn anew where any other member has less than this part of its due, in tenths: its capacity has more than doubled.
const OLD_SHARE_MIN: u64 = 4;

impl Dividing for ByLoad {
    fn divide(&self, view: &Divided<'_>) -> Option<Vec<(Point, NodeId)>> {
        let near = near(view.able, |node| view.current.iter().any(|(_, primary)| *primary == node));
        let Weights { all: weights, young } = Weights::of(&near);
        let able: Vec<NodeId> = near.iter().map(|able| able.node).collect();
        if !view.calm || able.is_empty() {
            return share_orphans(view.range, view.current, &able, &weights);
        }
        let is_whole = is_whole(view.current, &able, &weights);
        if is_whole && !view.rested {
            return None;
        }
        let demand = Demand::of(view.range, view.load);
        let of = |parts: &[(Point, NodeId)]| {
            (demand.excess(parts, &able, &weights), demand.least_share(parts, &able, &weights, &young))
        };
        let (excess, share) = of(view.current);
        if is_whole && excess <= EXCESS_MIN && share >= SHARE_MIN {
            return None;
        }
        let drawn = demand.draw(view.current, &able, &weights);
        let (excess_then, share_then) = of(&drawn);
        let is_evener = excess > EXCESS_MIN && excess_then * 4 <= excess * 3;
        let has_grown = share < SHARE_MIN && share_then * 3 >= share.max(1) * 4;
        ((!is_whole || is_evener || has_grown) && drawn != view.current).then_some(drawn)
    }
}

/// The demand in each piece of a range.
struct Demand {
    range: KeyRange,
    cells: Vec<u64>,
    /// The start of each cell, from the start of the range, and the end of the last one. A leader asks for shares with each message, and
    /// these divisions by 32 cost more than all that is done with their results.
    edges: Vec<u128>,
    /// The sum of all cells.
    total: u64,
}

/// Number of cells where the load is not known.
const CELLS: usize = 32;

impl Demand {
    /// Returns the demand of a range. A ninth of it is for the keys that are there, independent of the load; all of it where the load is
    /// low.
    fn of(range: KeyRange, load: Option<&[u32]>) -> Demand {
        let load = load.map(|cells| Density { range, cells, capacity: 1 }).filter(|load| load.total() >= LOAD_MIN);
        let cells = match load {
            Some(load) => {
                let each = load.total() / load.cells.len() as u64;
                load.cells.iter().map(|cell| u64::from(*cell) * 8 + each.max(1)).collect()
            }
            None => alloc::vec![1 << 10; CELLS],
        };
        let count = cells.len() as u32;
        let begins = |cell| range.start().distance_to(range.cut_at(cell, count));
        let edges = (0..count).map(begins).chain([range.length().unwrap_or(u128::MAX)]).collect();
        let total = cells.iter().sum();
        Demand { range, cells, edges, total }
    }

    /// Returns the demand before a point, in 256ths.
    fn before(&self, at: Point) -> u64 {
        let offset = self.range.start().distance_to(at);
        let mut sum = 0;
        for (cell, edge) in self.cells.iter().zip(self.edges.windows(2)) {
            if offset >= edge[1] {
                sum += cell << 8;
            } else {
                let part = (offset - edge[0]) / ((edge[1] - edge[0]) >> 8).max(1);
                return sum + cell * (part as u64).min(256);
            }
        }
        sum
    }

    /// Returns the first point before which there is this demand, in 256ths.
    fn place(&self, mut sought: u64) -> Point {
        for (cell, edge) in self.cells.iter().zip(self.edges.windows(2)) {
            if sought < cell << 8 {
                let offset = edge[0] + ((edge[1] - edge[0]) >> 8).max(1) * u128::from(sought / cell);
                return Point(self.range.start().0.wrapping_add(offset));
            }
            sought -= cell << 8;
        }
        self.range.end()
    }

    /// Returns the due of a member of this weight, in 256ths.
    fn due(&self, weight: u64, weights: &[u64]) -> u64 {
        ((self.total << 8) / weights.iter().sum::<u64>().max(1) * weight).max(1)
    }

    /// Returns the demand in each part, in 256ths, with its primary.
    fn shares<'a>(&'a self, parts: &'a [(Point, NodeId)]) -> impl Iterator<Item = (NodeId, u64)> + 'a {
        let ends = parts.iter().skip(1).map(|(at, _)| self.before(*at)).chain([self.total << 8]);
        parts.iter().zip(ends).map(|((at, node), end)| (*node, end.saturating_sub(self.before(*at))))
    }

    /// Returns the most that a primary has of its due, in tenths.
    fn excess(&self, parts: &[(Point, NodeId)], able: &[NodeId], weights: &[u64]) -> u64 {
        let excess = |(node, share): (NodeId, u64)| {
            let weight = able.iter().position(|able| *able == node).map_or(1, |index| weights[index]);
            share.saturating_mul(10) / self.due(weight, weights)
        };
        self.shares(parts).map(excess).max().unwrap_or(0)
    }

    /// Returns the least that a member has of its due, in tenths; 10 where no member has one. Shares of members that are not young are
    /// scaled such that [`OLD_SHARE_MIN`] of them count as [`SHARE_MIN`]. The possible loss by rounding counts as theirs: points within a
    /// piece are known to a 256th of it.
    fn least_share(&self, parts: &[(Point, NodeId)], able: &[NodeId], weights: &[u64], young: &[bool]) -> u64 {
        let rounding = 2 * self.cells.iter().copied().max().unwrap_or(0);
        let shares: Vec<(NodeId, u64)> = self.shares(parts).collect();
        let share = |index: usize| {
            let has: u64 = shares.iter().filter(|(node, _)| *node == able[index]).map(|(_, share)| share).sum();
            let tenths = (has + rounding).saturating_mul(10) / self.due(weights[index], weights);
            if young[index] { tenths } else { tenths.saturating_mul(SHARE_MIN) / OLD_SHARE_MIN }
        };
        (0..able.len()).filter(|index| weights[*index] > 0).map(share).min().unwrap_or(10)
    }

    /// Draws a division anew. Members keep the order that they have on the ring now, so most keep some of their sub-ranges. Equal shares
    /// keep that order, too, or they would be drawn anew at the next look.
    fn draw(&self, current: &[(Point, NodeId)], able: &[NodeId], weights: &[u64]) -> Vec<(Point, NodeId)> {
        let mut order: Vec<usize> = (0..able.len()).filter(|index| weights[*index] > 0).collect();
        let place = |index: &usize| current.iter().position(|(_, node)| *node == able[*index]);
        order.sort_by_key(|index| (place(index).is_none(), place(index), *index));
        let in_order = || order.iter().map(|index| able[*index]).collect::<Vec<_>>();
        self.divide(&order, able, weights).unwrap_or_else(|| shares(self.range, &in_order()))
    }

    /// Gives each member its due, in this order; `None` where the range is too small for that.
    fn divide(&self, order: &[usize], able: &[NodeId], weights: &[u64]) -> Option<Vec<(Point, NodeId)>> {
        let all: u64 = weights.iter().sum();
        let mut given = 0;
        let mut parts: Vec<(Point, NodeId)> = Vec::with_capacity(order.len());
        for index in order {
            let at = self.place((self.total << 8) / all * given);
            let offset = |at: Point| self.range.start().distance_to(at);
            if parts.last().is_some_and(|(before, _)| offset(*before) >= offset(at)) {
                return None;
            }
            parts.push((at, able[*index]));
            given += weights[*index];
        }
        (parts.first()?.0 == self.range.start()).then_some(parts)
    }
}

/// Gives the sub-ranges of primaries that are not able to the members with a weight above 0; `None` where there are no such sub-ranges, or
/// no able members.
fn share_orphans(
    range: KeyRange,
    current: &[(Point, NodeId)],
    able: &[NodeId],
    weights: &[u64],
) -> Option<Vec<(Point, NodeId)>> {
    let orphaned = current.iter().any(|(_, node)| !able.contains(node));
    if able.is_empty() || !orphaned {
        return None;
    }
    let heirs: Vec<NodeId> =
        able.iter().zip(weights).filter(|(_, weight)| **weight > 0).map(|(node, _)| *node).collect();
    let shared = share_out(range, current, able, &heirs);
    // Primaries that come and go faster than all gets calm must not grind the range to dust.
    Some(if shared.len() > PARTS_PER_NODE_MAX * able.len() { shares(range, &heirs) } else { shared })
}

/// Returns whether each member whose weight is not 0 has one sub-range, and no other member more than one.
fn is_whole(current: &[(Point, NodeId)], able: &[NodeId], weights: &[u64]) -> bool {
    let parts_of = |node: &NodeId| current.iter().filter(|(_, primary)| primary == node).count();
    let is_fit = |(node, weight): (&NodeId, &u64)| parts_of(node) == 1 || (*weight == 0 && parts_of(node) == 0);
    current.iter().all(|(_, primary)| able.contains(primary)) && able.iter().zip(weights).all(is_fit)
}

/// Returns equal shares in this order. Of a range with fewer points than members, each of the first members has one point, and the rest
/// have none.
fn shares(range: KeyRange, able: &[NodeId]) -> Vec<(Point, NodeId)> {
    let points = range.length().map_or(usize::MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let able = &able[..able.len().min(points)];
    let count = able.len() as u32;
    able.iter().zip(0..).map(|(node, part)| (range.cut_at(part, count), *node)).collect()
}

fn share_out(range: KeyRange, current: &[(Point, NodeId)], able: &[NodeId], heirs: &[NodeId]) -> Vec<(Point, NodeId)> {
    let mut parts = Vec::new();
    for (index, (start, node)) in current.iter().enumerate() {
        if able.contains(node) {
            parts.push((*start, *node));
            continue;
        }
        let end = current.get(index + 1).map_or(range.end(), |next| next.0);
        let orphan = KeyRange::new(*start, end);
        parts.extend(shares(orphan, heirs));
    }
    parts
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use overlay::{Incarnation, PeerKey};
    use proptest::prelude::*;

    use super::*;
    use crate::weights::Capacity;

    fn node(n: u8) -> NodeId {
        NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) }
    }

    /// Members of these ages in seconds.
    fn members(ages: &[u64]) -> Vec<Able> {
        let able = |(n, age): (u8, &u64)| Able::new(node(n), Duration::from_secs(*age));
        (0..).zip(ages).map(able).collect()
    }

    /// Returns how much of a range of 100 each member gets.
    fn percent(able: &[Able], load: Option<&[u32]>, current: &[(Point, NodeId)]) -> Option<Vec<u128>> {
        let range = KeyRange::new(Point(0), Point(100 << 100));
        let view = Divided { range, current, able, load, calm: true, rested: true };
        let parts = ByLoad.divide(&view)?;
        let ends = parts.iter().skip(1).map(|part| part.0.0).chain([100 << 100]);
        let mut all: Vec<(NodeId, u128)> =
            parts.iter().zip(ends).map(|((at, node), end)| (*node, (end - at.0 + (1 << 99)) >> 100)).collect();
        all.sort_unstable();
        Some(all.into_iter().map(|(_, length)| length).collect())
    }

    #[test]
    fn as_much_is_asked_of_each() {
        let able = members(&[100; 4]);
        let nobody = [(Point(0), node(9))];
        assert_eq!(percent(&able, None, &nobody), Some(alloc::vec![25; 4]));
        assert_eq!(percent(&able, Some(&[]), &nobody), Some(alloc::vec![25; 4]), "idle");
        // All but a ninth of the demand is in the first quarter.
        let load: Vec<u32> = (0..32).map(|cell| if cell < 8 { 4_500 } else { 0 }).collect();
        assert_eq!(percent(&able, Some(&load), &nobody), Some(alloc::vec![7, 7, 7, 80]));
    }

    #[test]
    fn newcomers_get_less_until_they_have_stayed() {
        let nobody = [(Point(0), node(9))];
        assert_eq!(percent(&members(&[9_000, 9_000, 0]), None, &nobody), Some(alloc::vec![50, 50]), "nothing at first");
        assert_eq!(percent(&members(&[9_000, 9_000, 30]), None, &nobody), Some(alloc::vec![44, 44, 11]));
        assert_eq!(percent(&members(&[9_000, 9_000, 900]), None, &nobody), Some(alloc::vec![40, 40, 20]));
        assert_eq!(percent(&members(&[9_000, 90_000, 1_800]), None, &nobody), Some(alloc::vec![33; 3]));
        assert_eq!(percent(&members(&[30, 20, 0]), None, &nobody), Some(alloc::vec![33; 3]), "all came together");
    }

    /// A member that can do three times as much gets three times as much.
    #[test]
    fn capacity_counts() {
        let mut able = members(&[100; 3]);
        able[1].capacity = Capacity::of(3.0);
        assert_eq!(percent(&able, None, &[(Point(0), node(9))]), Some(alloc::vec![20, 60, 20]));
        able[0].capacity = Capacity::of(0.0);
        assert_eq!(percent(&able, None, &[(Point(0), node(9))]), Some(alloc::vec![6, 71, 24]), "a quarter at least");
    }

    /// A member that had the least capacity gets a whole share back once it has as much capacity as the rest, though no other member has
    /// far too much meanwhile.
    #[test]
    fn a_member_that_recovers_gets_its_share_back() {
        let mut able = members(&[9_000; 5]);
        able[2].capacity = Capacity::MIN;
        let divide = |able: &[Able], current: &[(Point, NodeId)]| {
            let range = KeyRange::new(Point(0), Point(1 << 100));
            ByLoad.divide(&Divided { range, current, able, load: None, calm: true, rested: true })
        };
        let weak = divide(&able, &[(Point(0), node(9))]).expect("member 9 cannot be primary");
        able[2].capacity = Capacity::TYPICAL;
        let even = divide(&able, &weak).expect("member 2 has a quarter of what it should");
        let lengths = even.windows(2).map(|pair| (pair[1].0.0 - pair[0].0.0) >> 90);
        assert!(lengths.eq([204; 4]) && divide(&able, &even).is_none(), "{even:?}");
    }

    /// The sub-range of a primary that died goes to the members that are no newcomers, also before all is calm.
    #[test]
    fn newcomers_inherit_nothing() {
        let able = members(&[9_000, 9_000, 5]);
        let current = [(Point(0), node(0)), (Point(30), node(8)), (Point(60), node(1))];
        let range = KeyRange::new(Point(0), Point(90));
        let view = Divided { range, current: &current, able: &able, load: None, calm: false, rested: false };
        let heirs = ByLoad.divide(&view).expect("member 8 is gone");
        assert_eq!(heirs, [(Point(0), node(0)), (Point(30), node(0)), (Point(45), node(1)), (Point(60), node(1))]);
        let even = Even.divide(&view).expect("member 8 is gone");
        assert!(even.iter().any(|(_, primary)| *primary == node(2)), "{even:?}");
    }

    /// Simulates four hours of a group in steps of ten seconds, with members that come at these times in seconds and stay. Returns for each
    /// division the number of members that had come, and the last division. Members report loads with an error of up to a tenth.
    fn grow(comes: &[u64], noise: &[u32]) -> (Vec<usize>, Vec<(Point, NodeId)>) {
        let range = KeyRange::new(Point(0), Point(100 << 100));
        let mut current = alloc::vec![(Point(0), node(0))];
        let (mut changed, mut divisions) = (0, Vec::new());
        for now in (0..14_400).step_by(10) {
            let ages: Vec<u64> = comes.iter().filter(|at| **at <= now).map(|at| now - at).collect();
            changed = comes.iter().copied().filter(|at| *at <= now).fold(changed, u64::max);
            let able = members(&ages);
            let load: Vec<u32> =
                (0..32).map(|cell| 1_000 * noise[(cell + now as usize / 10) % noise.len()] / 100).collect();
            let (calm, rested) = (now >= changed + 2, now >= changed + 30);
            let view = Divided { range, current: &current, able: &able, load: Some(&load), calm, rested };
            if let Some(parts) = ByLoad.divide(&view) {
                (current, changed) = (parts, now);
                divisions.push(ages.len());
            }
        }
        (divisions, current)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Time alone redraws a division at most three times for each newcomer, at any noise, and in the end the newcomer has as much as
        /// any member.
        #[test]
        fn time_redraws_a_few_times(
            (old, newcomers) in (1usize..8, proptest::collection::btree_set(500u64..8_000, 1..4)),
            noise in proptest::collection::vec(90u32..110, 32),
        ) {
            let comes: Vec<u64> = core::iter::repeat_n(0, old).chain(newcomers.iter().copied()).collect();
            let (divisions, last) = grow(&comes, &noise);
            let after = divisions.iter().filter(|members| **members > old).count();
            prop_assert!(after <= 3 * newcomers.len(), "{divisions:?}");
            let range = KeyRange::new(Point(0), Point(100 << 100));
            let demand = Demand::of(range, None);
            prop_assert_eq!(last.len(), comes.len());
            let each = (demand.total << 8) / comes.len() as u64;
            for (primary, share) in demand.shares(&last) {
                prop_assert!(share * 10 > each * 6 && share * 10 < each * 17, "{primary:?}: {share} of {each}");
            }
        }
    }

    #[test]
    fn what_will_do_is_left_as_it_is() {
        let able = members(&[100; 2]);
        let halves = [(Point(0), node(0)), (Point(50 << 100), node(1))];
        let load = |first: u32| -> Vec<u32> { (0..32).map(|cell| if cell < 16 { first } else { 1_000 }).collect() };
        assert_eq!(percent(&able, Some(&load(3_000)), &halves), None, "1.5 times too much");
        assert_eq!(percent(&able, Some(&load(9_000)), &halves), Some(alloc::vec![29, 71]));
        let view = |load, rested| {
            let range = KeyRange::new(Point(0), Point(100 << 100));
            ByLoad.divide(&Divided { range, current: &halves, able: &able, load, calm: true, rested })
        };
        let much = load(9_000);
        assert_eq!(view(Some(&much), false), None, "not soon after the last");
        assert_eq!(view(None, true), None);
    }

    /// The range of ten points from 0, of which member 7 is primary alone, with two old members and a new one.
    #[test]
    fn equal_shares_of_a_tiny_range_are_final() {
        let range = KeyRange::new(Point(0), Point(10));
        let able = [(0, 2_057), (1, 60), (7, 2_057)].map(|(n, age)| Able::new(node(n), Duration::from_secs(age)));
        let load = [
            36_560, 17_892, 38_231, 40_486, 83_124, 5_667, 17_647, 41_823, 53_766, 10_568, 62_382, 34_504, 72_830,
            24_826, 25_303, 66_376, 66_889, 86_847, 0, 21_753, 2_363, 48_626, 5_211, 8_639, 45_394, 57_917, 3_519,
            53_478, 67_409, 44_562, 65_570, 86_367,
        ];
        let divide = |current: &[(Point, NodeId)]| {
            ByLoad.divide(&Divided { range, current, able: &able, load: Some(&load), calm: true, rested: true })
        };
        let parts = divide(&[(Point(0), node(7))]).expect("member 7 has all, and three can be primary");
        assert_eq!(parts.iter().map(|part| part.1).collect::<Vec<_>>(), [node(7), node(0), node(1)], "{parts:?}");
        assert_eq!(divide(&parts), None);
    }

    /// A member that is far loses its sub-range at once, gets none while it is only a little nearer, and gets one back when it is near.
    #[test]
    fn a_far_member_is_primary_of_nothing() {
        let (range, at) =
            (KeyRange::FULL, |node: &NodeId, all: &[(Point, NodeId)]| all.iter().any(|(_, it)| it == node));
        let able = |far_ms: u64| -> Vec<Able> {
            let agreement = |n: u8| Some(Duration::from_millis(if n == 2 { far_ms } else { 120 + u64::from(n) }));
            (0..5).map(|n| Able { agreement: agreement(n), ..Able::new(node(n), Duration::from_secs(9_000)) }).collect()
        };
        let divide = |current: &[(Point, NodeId)], far_ms, calm| {
            let view = Divided { range, current, able: &able(far_ms), load: None, calm, rested: calm };
            ByLoad.divide(&view)
        };
        let whole = shares(range, &(0..5).map(node).collect::<Vec<_>>());
        let shares_stay = |before: &[(Point, NodeId)], after: &[(Point, NodeId)]| {
            before.iter().all(|part| part.1 == node(2) || after.contains(part))
        };
        assert_eq!(divide(&whole, 300, false), None, "not far enough to lose it");
        let without = divide(&whole, 310, false).expect("it loses it at once");
        assert!(!at(&node(2), &without) && shares_stay(&whole, &without), "{without:?}");
        let evened = divide(&without, 310, true).expect("another one has two");
        assert!(!at(&node(2), &evened) && evened.len() == 4, "{evened:?}");
        assert_eq!(divide(&evened, 230, true), None, "not near enough to get one");
        assert!(at(&node(2), &divide(&evened, 220, true).expect("it is near")));
        let lan = |far_us| {
            (0..5)
                .map(|n| Able {
                    agreement: Some(Duration::from_micros(if n == 2 { far_us } else { 200 })),
                    ..Able::new(node(n), Duration::ZERO)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(near(&lan(90_000), |_| false).len(), 5, "nobody notices a tenth of a second");
        assert_eq!(near(&lan(110_000), |_| true).len(), 4);
    }

    #[test]
    fn a_range_of_fewer_points_than_members_comes_to_rest() {
        let (range, able) = (KeyRange::new(Point(5), Point(7)), members(&[9_000, 100, 9_000, 9_000]));
        for policy in [&ByLoad as &dyn Dividing, &Even] {
            let divide = |current: &[(Point, NodeId)]| {
                policy.divide(&Divided { range, current, able: &able, load: None, calm: true, rested: true })
            };
            let parts = divide(&[(Point(5), node(9))]).expect("member 9 cannot be primary");
            assert_eq!(parts.iter().map(|part| part.0).collect::<Vec<_>>(), [Point(5), Point(6)]);
            assert_eq!(divide(&parts), None);
        }
    }

    proptest! {
        /// Hazard 49: a policy is quiet on its own output.
        #[test]
        fn covers_the_range_and_is_quiet_then(
            start: u128,
            length in prop_oneof![Just(0u128), 1u128..40, any::<u128>()],
            current in proptest::collection::vec(0u8..8, 1..6),
            able in proptest::collection::btree_map(0u8..8, 0u64..10_000, 1..6),
            load in proptest::option::of(proptest::collection::vec(0u32..100_000, 32)),
            (by_load, calm, rested) in any::<(bool, bool, bool)>(),
            noise in proptest::collection::vec(90u32..110, 32),
        ) {
            let range = KeyRange::new(Point(start), Point(start.wrapping_add(length)));
            let current = shares(range, &current.iter().map(|n| node(*n)).collect::<Vec<_>>());
            // Some members have more capacity than the rest, of some ages.
            let capacity = |age: u64| Capacity::of(if age.is_multiple_of(2) { 1.0 } else { (age % 32) as f64 / 4.0 });
            // Some members are far, or would be if they were primaries of nothing.
            let agreement = |age: u64| [None, Some(1_000), Some(250), Some(124)][age as usize % 4].map(Duration::from_millis);
            let view = |(n, age)| Able {
                capacity: capacity(age),
                agreement: agreement(age / 2),
                ..Able::new(node(n), Duration::from_secs(age))
            };
            let able: Vec<Able> = able.into_iter().map(view).collect();
            let policy: &dyn Dividing = if by_load { &ByLoad } else { &Even };
            let near = near(&able, |node| current.iter().any(|(_, primary)| *primary == node));
            let able_now = if by_load { near } else { able.clone() };
            let is_able = |node: &NodeId| able_now.iter().any(|able| able.node == *node);
            let (load, rested) = (load.as_deref(), calm && rested);
            let view = Divided { range, current: &current, able: &able, load, calm, rested };
            if let Some(parts) = policy.divide(&view) {
                prop_assert_eq!(parts[0].0, range.start());
                let offsets: Vec<u128> = parts.iter().map(|(at, _)| range.start().distance_to(*at)).collect();
                prop_assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", parts);
                prop_assert!(parts.iter().all(|(_, primary)| is_able(primary)));
                prop_assert_eq!(policy.divide(&Divided { current: &parts, ..view }), None);
                if calm && length != 0 && length > 1 << 100 {
                    // Nor does it react to measurements that differ a little each time, for any length of time.
                    let again: Option<Vec<u32>> =
                        load.map(|load| load.iter().zip(&noise).map(|(cell, noise)| cell * noise / 100).collect());
                    let view = Divided { current: &parts, load: again.as_deref(), rested: true, ..view };
                    prop_assert_eq!(policy.divide(&view), None);
                }
                let ground = parts.len() == able_now.len();
                for (at, primary) in current.iter().filter(|(_, primary)| !calm && is_able(primary)) {
                    prop_assert!(ground || parts.contains(&(*at, *primary)), "{:?} kept its place", primary);
                }
            } else {
                prop_assert!(current.iter().all(|(_, primary)| is_able(primary)));
            }
        }
    }
}
