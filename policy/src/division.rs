//! Who is primary of how much (Harmony §7.6).

use alloc::vec::Vec;
use core::time::Duration;

use overlay::{KeyRange, NodeId, Point};

use crate::density::{Density, LOAD_MIN};

/// More sub-ranges than so many for each primary are not left lying about.
const PARTS_PER_NODE_MAX: usize = 4;

/// A member that can be primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Able {
    /// Who.
    pub node: NodeId,
    /// How long it has been a member: whoever has stayed for long will.
    pub age: Duration,
}

/// What is known of a group when its range is to be divided.
#[derive(Clone, Copy, Debug)]
pub struct Divided<'a> {
    /// The range.
    pub range: KeyRange,
    /// The division that there is: starts and primaries.
    pub current: &'a [(Point, NodeId)],
    /// Who can be primary, in order.
    pub able: &'a [Able],
    /// What is asked of each of some equal pieces of the range; `None` where that is not known.
    pub load: Option<&'a [u32]>,
    /// Nothing has changed for a while,
    pub calm: bool,
    /// and for so long that what only would be better may be done.
    pub rested: bool,
}

/// Decides who is primary of how much.
pub trait Dividing: Sync {
    /// Another division; `None` where the current one will do. Each new one costs clients of what is redrawn a moment. Quiet on
    /// its own output, for ranges of all lengths: where a range has fewer points than there are members that can be primary, some get nothing.
    fn divide(&self, view: &Divided<'_>) -> Option<Vec<(Point, NodeId)>>;
}

/// Equal shares of the ring for everyone able.
///
/// What a primary that is not able leaves behind is shared out at once, without touching the others' sub-ranges: nobody
/// else's clients notice. When all is calm the whole range is evened out, if that changes anything worth it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Even;

impl Dividing for Even {
    fn divide(&self, view: &Divided<'_>) -> Option<Vec<(Point, NodeId)>> {
        let able: Vec<NodeId> = view.able.iter().map(|able| able.node).collect();
        if view.calm && !able.is_empty() {
            return (!is_one_each(view.current, &able))
                .then(|| shares(view.range, &able))
                .filter(|drawn| drawn != view.current);
        }
        share_orphans(view.range, view.current, &able)
    }
}

/// As much asked of everyone able as of the others; less of whoever came just now, since it is the likeliest to be gone soon.
///
/// What a primary that is not able leaves behind is shared out at once. All else waits until all is calm; and where each has a
/// sub-range, until the division has rested, and is far from what it should be.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByLoad;

/// Of somebody so much more is asked than should be, in tenths, before the range is divided anew.
const EXCESS_MIN: u64 = 16;
/// Whoever has been a member for so long is no newcomer anywhere;
const OLD: Duration = Duration::from_secs(3_600);
/// and nobody is one where all came at about the same time.
const TOGETHER: Duration = Duration::from_secs(60);

impl Dividing for ByLoad {
    fn divide(&self, view: &Divided<'_>) -> Option<Vec<(Point, NodeId)>> {
        let able: Vec<NodeId> = view.able.iter().map(|able| able.node).collect();
        if !view.calm || able.is_empty() {
            return share_orphans(view.range, view.current, &able);
        }
        let demand = Demand::of(view.range, view.load);
        let weights = weights(view.able);
        let is_whole = is_one_each(view.current, &able);
        let excess = |parts: &[(Point, NodeId)]| demand.excess(parts, &able, &weights);
        if is_whole && !(view.rested && excess(view.current) > EXCESS_MIN) {
            return None;
        }
        // In the order in which they are on the ring now: so most keep something of what they had.
        let mut order: Vec<usize> = (0..able.len()).collect();
        let place = |index: &usize| view.current.iter().position(|(_, node)| *node == able[*index]);
        order.sort_by_key(|index| (place(index).is_none(), place(index), *index));
        // Equal shares keep that order, too: another order would be another division to begin with at the next look.
        let in_order = || order.iter().map(|index| able[*index]).collect::<Vec<_>>();
        let drawn = demand.divide(&order, &able, &weights).unwrap_or_else(|| shares(view.range, &in_order()));
        let is_better = !is_whole || excess(&drawn) * 4 <= excess(view.current) * 3;
        (is_better && drawn != view.current).then_some(drawn)
    }
}

/// What a newcomer gets beside the others, in quarters of what they get. Only steps: nothing is redrawn because time goes by.
fn weights(able: &[Able]) -> Vec<u64> {
    let age = |able: &Able| (able.age.min(OLD) + TOGETHER).as_millis() as u64;
    let mut ages: Vec<u64> = able.iter().map(age).collect();
    ages.sort_unstable();
    let median = ages.get(ages.len() / 2).copied().unwrap_or(0);
    let weight = |able: &Able| match age(able) {
        age if age * 4 < median => 1,
        age if age * 2 < median => 2,
        _ => 4,
    };
    able.iter().map(weight).collect()
}

/// How much there is to do, where in a range.
struct Demand {
    range: KeyRange,
    cells: Vec<u64>,
}

/// Pieces, where nothing is known of what is asked.
const CELLS: usize = 32;

impl Demand {
    /// A ninth of it is for the keys that are there, wherever what is asked goes; all of it where little is asked.
    fn of(range: KeyRange, load: Option<&[u32]>) -> Demand {
        let load = load.map(|cells| Density { range, cells, capacity: 1 }).filter(|load| load.total() >= LOAD_MIN);
        let cells = match load {
            Some(load) => {
                let each = load.total() / load.cells.len() as u64;
                load.cells.iter().map(|cell| u64::from(*cell) * 8 + each.max(1)).collect()
            }
            None => alloc::vec![1 << 10; CELLS],
        };
        Demand { range, cells }
    }

    fn total(&self) -> u64 {
        self.cells.iter().sum()
    }

    /// Where each cell begins, from the start of the range, and where the last one ends.
    fn edges(&self) -> Vec<u128> {
        let count = self.cells.len() as u32;
        let begins = |cell| self.range.start().distance_to(self.range.cut_at(cell, count));
        (0..count).map(begins).chain([self.range.length().unwrap_or(u128::MAX)]).collect()
    }

    /// How much there is before a place, in 256ths.
    fn before(&self, at: Point) -> u64 {
        let (edges, offset) = (self.edges(), self.range.start().distance_to(at));
        let mut sum = 0;
        for (cell, edge) in self.cells.iter().zip(edges.windows(2)) {
            if offset >= edge[1] {
                sum += cell << 8;
            } else {
                let part = (offset - edge[0]) / ((edge[1] - edge[0]) >> 8).max(1);
                return sum + cell * (part as u64).min(256);
            }
        }
        sum
    }

    /// The first place before which there is so much, in 256ths.
    fn place(&self, mut sought: u64) -> Point {
        let edges = self.edges();
        for (cell, edge) in self.cells.iter().zip(edges.windows(2)) {
            if sought < cell << 8 {
                let offset = edge[0] + ((edge[1] - edge[0]) >> 8).max(1) * u128::from(sought / cell);
                return Point(self.range.start().0.wrapping_add(offset));
            }
            sought -= cell << 8;
        }
        self.range.end()
    }

    /// So much in tenths has whoever is worst off of what it should have.
    fn excess(&self, parts: &[(Point, NodeId)], able: &[NodeId], weights: &[u64]) -> u64 {
        let ends = parts.iter().skip(1).map(|(at, _)| self.before(*at)).chain([self.total() << 8]);
        let all: u64 = weights.iter().sum();
        let excess = |((at, node), end): (&(Point, NodeId), u64)| {
            let weight = able.iter().position(|able| able == node).map_or(1, |index| weights[index]);
            let should = ((self.total() << 8) / all * weight).max(1);
            end.saturating_sub(self.before(*at)).saturating_mul(10) / should
        };
        parts.iter().zip(ends).map(excess).max().unwrap_or(0)
    }

    /// To each, in this order, what it should have; `None` where the range is too small for that.
    fn divide(&self, order: &[usize], able: &[NodeId], weights: &[u64]) -> Option<Vec<(Point, NodeId)>> {
        let all: u64 = weights.iter().sum();
        let mut given = 0;
        let mut parts: Vec<(Point, NodeId)> = Vec::with_capacity(order.len());
        for index in order {
            let at = self.place((self.total() << 8) / all * given);
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

/// What those leave behind who are not able, to the others; `None` where there is nothing, or nobody.
fn share_orphans(range: KeyRange, current: &[(Point, NodeId)], able: &[NodeId]) -> Option<Vec<(Point, NodeId)>> {
    let orphaned = current.iter().any(|(_, node)| !able.contains(node));
    if able.is_empty() || !orphaned {
        return None;
    }
    let shared = share_out(range, current, able);
    // Primaries that come and go faster than it ever gets calm must not grind the range to dust.
    Some(if shared.len() > PARTS_PER_NODE_MAX * able.len() { shares(range, able) } else { shared })
}

/// One sub-range each?
fn is_one_each(current: &[(Point, NodeId)], able: &[NodeId]) -> bool {
    current.len() == able.len() && able.iter().all(|node| current.iter().any(|(_, primary)| primary == node))
}

/// Equal shares in this order. Of a range with fewer points than members, each of the first members has one point, and the
/// rest have none.
fn shares(range: KeyRange, able: &[NodeId]) -> Vec<(Point, NodeId)> {
    let points = range.length().map_or(usize::MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let able = &able[..able.len().min(points)];
    let count = able.len() as u32;
    able.iter().zip(0..).map(|(node, part)| (range.cut_at(part, count), *node)).collect()
}

fn share_out(range: KeyRange, current: &[(Point, NodeId)], able: &[NodeId]) -> Vec<(Point, NodeId)> {
    let mut parts = Vec::new();
    for (index, (start, node)) in current.iter().enumerate() {
        if able.contains(node) {
            parts.push((*start, *node));
            continue;
        }
        let end = current.get(index + 1).map_or(range.end(), |next| next.0);
        let orphan = KeyRange::new(*start, end);
        parts.extend(shares(orphan, able));
    }
    parts
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};
    use proptest::prelude::*;

    use super::*;

    fn node(n: u8) -> NodeId {
        NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) }
    }

    /// Members of these ages in seconds.
    fn members(ages: &[u64]) -> Vec<Able> {
        let able = |(n, age): (u8, &u64)| Able { node: node(n), age: Duration::from_secs(*age) };
        (0..).zip(ages).map(able).collect()
    }

    /// How much of a range of 100 each has.
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
        // All but a ninth is asked in the first quarter.
        let load: Vec<u32> = (0..32).map(|cell| if cell < 8 { 4_500 } else { 0 }).collect();
        assert_eq!(percent(&able, Some(&load), &nobody), Some(alloc::vec![7, 7, 7, 80]));
    }

    #[test]
    fn newcomers_get_less_until_they_have_stayed() {
        let nobody = [(Point(0), node(9))];
        assert_eq!(percent(&members(&[9_000, 9_000, 0]), None, &nobody), Some(alloc::vec![44, 44, 11]));
        assert_eq!(percent(&members(&[9_000, 9_000, 900]), None, &nobody), Some(alloc::vec![40, 40, 20]));
        assert_eq!(percent(&members(&[9_000, 90_000, 1_800]), None, &nobody), Some(alloc::vec![33; 3]));
        assert_eq!(percent(&members(&[30, 20, 0]), None, &nobody), Some(alloc::vec![33; 3]), "all came together");
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
        let able =
            [(0, 2_057), (1, 0), (7, 2_057)].map(|(n, age)| Able { node: node(n), age: Duration::from_secs(age) });
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
        /// PITFALLS 49: a policy is quiet on its own output.
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
            let able: Vec<Able> =
                able.into_iter().map(|(n, age)| Able { node: node(n), age: Duration::from_secs(age) }).collect();
            let policy: &dyn Dividing = if by_load { &ByLoad } else { &Even };
            let is_able = |node: &NodeId| able.iter().any(|able| able.node == *node);
            let (load, rested) = (load.as_deref(), calm && rested);
            let view = Divided { range, current: &current, able: &able, load, calm, rested };
            if let Some(parts) = policy.divide(&view) {
                prop_assert_eq!(parts[0].0, range.start());
                let offsets: Vec<u128> = parts.iter().map(|(at, _)| range.start().distance_to(*at)).collect();
                prop_assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", parts);
                prop_assert!(parts.iter().all(|(_, primary)| is_able(primary)));
                prop_assert_eq!(policy.divide(&Divided { current: &parts, ..view }), None);
                if calm && length != 0 && length > 1 << 100 {
                    // Nor does it do anything about what is measured a little differently each time, however long that takes.
                    let again: Option<Vec<u32>> =
                        load.map(|load| load.iter().zip(&noise).map(|(cell, noise)| cell * noise / 100).collect());
                    let view = Divided { current: &parts, load: again.as_deref(), rested: true, ..view };
                    prop_assert_eq!(policy.divide(&view), None);
                }
                let ground = parts.len() == able.len();
                for (at, primary) in current.iter().filter(|(_, primary)| !calm && is_able(primary)) {
                    prop_assert!(ground || parts.contains(&(*at, *primary)), "{:?} kept its place", primary);
                }
            } else {
                prop_assert!(current.iter().all(|(_, primary)| is_able(primary)));
            }
        }
    }
}
