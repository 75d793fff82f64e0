//! Lookups over whole rings of hints: true hints, none, and wrong ones.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::reference::Nearness;
use crate::{
    Contact, Epoch, GroupId, GroupRef, HINTS_BYTES_MAX, Hints, Incarnation, KeyRange, NodeId, PeerKey, Point, Way,
};

fn reference(id: u128, epoch: u64, start: u128, end: u128) -> GroupRef {
    let node = NodeId { peer: PeerKey([id as u8; 32]), incarnation: Incarnation(1) };
    let contact = Contact { node, addresses: alloc::vec![String::from("/ip4/10.0.0.1/tcp/6478")], name: None };
    let range = KeyRange::new(Point(start), Point(end));
    GroupRef { id: GroupId(id), epoch: Epoch(epoch), range, members: alloc::vec![contact; 5] }
}

/// Returns the size of a hint about one of these groups, in bytes.
fn bytes_of_one() -> usize {
    let mut hints = Hints::new(KeyRange::FULL, usize::MAX);
    hints.learn(&reference(0, 0, 0, 0));
    hints.bytes()
}

/// Returns a ring of groups that begin at these points.
fn ring(mut starts: Vec<u128>, epoch: u64, first_id: u128) -> Vec<GroupRef> {
    starts.sort_unstable();
    starts.dedup();
    let next = |index: usize| starts[(index + 1) % starts.len()];
    (0..starts.len()).map(|index| reference(first_id + index as u128, epoch, starts[index], next(index))).collect()
}

struct World {
    groups: Vec<GroupRef>,
    hints: BTreeMap<GroupId, Hints>,
}

impl World {
    fn new(groups: Vec<GroupRef>) -> World {
        let hints = groups.iter().map(|group| (group.id, Hints::new(group.range, HINTS_BYTES_MAX))).collect();
        World { groups, hints }
    }

    fn index(&self, id: GroupId) -> Option<usize> {
        self.groups.iter().position(|group| group.id == id)
    }

    /// Looks a point up from a group. A group that is gone is forgotten, and each asked group answers with its own reference.
    /// Returns the owner and the number of hops.
    fn look_up(&mut self, from: usize, point: Point) -> (usize, u32) {
        let (mut at, mut hops) = (from, 0);
        while !self.groups[at].range.contains(point) {
            let count = self.groups.len();
            let own = self.groups[at].clone();
            let links = [self.groups[(at + count - 1) % count].clone(), self.groups[(at + 1) % count].clone()];
            let hints = self.hints.get_mut(&own.id).expect("each has hints");
            let next = crate::next_hop(point, &own, links, hints, Way::Either).expect("one neighbour is nearer");
            hops += 1;
            assert!(hops < 1000, "no end: from {from} to {point:?}, at {own:?}, next {next:?}");
            match self.index(next.id) {
                // The group is gone, or has another range by now.
                None => self.hints.get_mut(&own.id).expect("each has hints").forget(&next),
                Some(index) => {
                    let said = self.groups[index].clone();
                    self.hints.get_mut(&own.id).expect("each has hints").learn(&said);
                    if Nearness::of(said.range, point) > Nearness::of(own.range, point) {
                        at = index;
                    }
                }
            }
        }
        (at, hops)
    }
}

fn starts(count: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<u128>> {
    let place = prop_oneof![4 => any::<u128>(), 1 => 0..4_u128, 1 => (u128::MAX - 3)..=u128::MAX];
    proptest::collection::vec(place, count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Where a silent group lies in the shorter direction, the longer one leads to every place as well, with any hints: each
    /// step is nearer in that direction.
    #[test]
    fn each_way_round_the_ring_comes_to_its_end(
        now in starts(1..40),
        told in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..100),
        asked in proptest::collection::vec((any::<prop::sample::Index>(), any::<u128>(), any::<bool>()), 1..30),
    ) {
        let mut world = World::new(ring(now, 7, 0));
        for (to, what) in told {
            let (to, what) = (to.get(&world.groups).id, what.get(&world.groups).clone());
            world.hints.get_mut(&to).unwrap().learn(&what);
        }
        let count = world.groups.len();
        for (from, point, up) in asked {
            let (mut at, point, way) = (from.index(count), Point(point), if up { Way::Up } else { Way::Down });
            for hops in 0.. {
                let own = world.groups[at].clone();
                if own.range.contains(point) {
                    break;
                }
                prop_assert!(hops < count, "no end: at {own:?}, to {point:?}");
                let link = if up { (at + 1) % count } else { (at + count - 1) % count };
                let links = [world.groups[link].clone()];
                let hints = world.hints.get_mut(&own.id).unwrap();
                let next = crate::next_hop(point, &own, links, hints, way).expect("the neighbour is nearer");
                at = world.index(next.id).unwrap();
            }
        }
    }

    /// Hazards 43, 44: with any hints at all groups, every lookup ends at the only owner.
    #[test]
    fn lookups_end_whatever_the_hints_say(
        now in starts(1..40),
        before in starts(1..40),
        told in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..200),
        asked in proptest::collection::vec((any::<prop::sample::Index>(), any::<u128>()), 1..30),
    ) {
        // Another ring stood here once: some of its groups still exist, elsewhere, and the rest do not.
        let (now, before) = (ring(now, 7, 0), ring(before, 3, 20));
        let mut world = World::new(now);
        for (to, what) in told {
            let to = to.get(&world.groups).id;
            let all: Vec<_> = before.iter().chain(&world.groups).cloned().collect();
            world.hints.get_mut(&to).unwrap().learn(what.get(&all));
        }
        for (from, point) in asked {
            let from = from.index(world.groups.len());
            let (owner, _) = world.look_up(from, Point(point));
            prop_assert!(world.groups[owner].range.contains(Point(point)));
            // The owner itself finds the point without a hop.
            let (again, hops) = world.look_up(owner, Point(point));
            prop_assert_eq!((again, hops), (owner, 0));
        }
    }

    /// No two hints overlap, the newer report about a place stands, and the size of all hints is counted and bounded.
    #[test]
    fn the_newer_word_of_a_place_stands(
        told in proptest::collection::vec((0..50_u128, 0..6_u64, 0..16_u128, 1..16_u128), 1..100),
        kept in 1..6_usize,
    ) {
        let bytes = bytes_of_one();
        let mut hints = Hints::new(KeyRange::at(Point(5 << 124)), kept * bytes);
        for (id, epoch, start, length) in told {
            let said = reference(id, epoch, start << 124, ((start + length) % 16) << 124);
            let contradicts = |known: &GroupRef| {
                known.epoch.0 > epoch && (known.range.overlaps(said.range) || known.id == said.id)
            };
            let refused = hints.iter().any(|known| contradicts(&known));
            hints.learn(&said);
            prop_assert!(refused || hints.iter().any(|known| known == said.with_members(3)) || hints.len() == kept);
            let all: Vec<_> = hints.iter().collect();
            for (index, one) in all.iter().enumerate() {
                prop_assert!(all[index + 1..].iter().all(|other| !one.range.overlaps(other.range)), "{:?}", all);
            }
            prop_assert_eq!(hints.bytes(), hints.len() * bytes);
            prop_assert!(hints.len() <= kept);
        }
    }
}

#[test]
fn what_does_not_answer_is_forgotten_unless_something_newer_is_known() {
    let mut hints = Hints::new(KeyRange::at(Point(0)), HINTS_BYTES_MAX);
    let (old, new) = (reference(1, 3, 100, 200), reference(1, 4, 100, 200));
    hints.learn(&new);
    hints.forget(&old);
    assert_eq!(hints.find(GroupId(1)), Some(new.with_members(3)));
    hints.learn(&old);
    assert_eq!(hints.find(GroupId(1)), Some(new.with_members(3)));
    hints.forget(&new);
    assert!(hints.is_empty() && hints.bytes() == 0);
}

/// Hints that the table needs stay; of the rest, the hint that was not used for longest is dropped first.
#[test]
fn the_table_outlives_what_was_asked_of_late() {
    let bytes = bytes_of_one();
    // Far from zero, and from the ends of cells.
    let here = KeyRange::new(Point(0x111 << 116), Point(0x112 << 116));
    let mut hints = Hints::new(here, 6 * bytes);
    // The place of a cell differs from the own place in that digit only.
    let in_row_0 = |column: u128, n: u128| {
        let start = (0x011 << 116) + (column << 124) + n * 10;
        reference(column * 100 + n, 1, start, start + 10)
    };
    for reference in [in_row_0(3, 0), in_row_0(4, 0), in_row_0(5, 0), in_row_0(5, 1), in_row_0(5, 2), in_row_0(5, 3)] {
        hints.learn(&reference);
    }
    let known = |hints: &Hints| hints.iter().map(|known| known.id.0).collect::<Vec<_>>();
    assert_eq!(hints.nearest(Point((0x511 << 116) + 11), Way::Either).unwrap().id, GroupId(501));
    hints.learn(&in_row_0(5, 4));
    assert_eq!(known(&hints), [300, 400, 500, 501, 503, 504]);
    // A quarter of the room is left for owners that were asked recently.
    (6..11).for_each(|column| hints.learn(&in_row_0(column, 0)));
    assert_eq!(known(&hints).iter().filter(|id| *id % 100 > 0).count(), 1);
    // For another own group other places are needed.
    hints.set_here(KeyRange::new(Point((0x511 << 116) + 20), Point((0x511 << 116) + 30)));
    hints.learn(&in_row_0(5, 1));
    hints.learn(&in_row_0(5, 3));
    hints.learn(&in_row_0(5, 0));
    assert_eq!(known(&hints).iter().filter(|id| (500..600).contains(*id)).count(), 3);
}

/// Looks up the places that a peer of the group `from` should know; returns the owners that it found.
fn look_around(groups: &[GroupRef], from: usize, hints: &mut Hints, looks: u64) -> Vec<usize> {
    let owner = |point: Point| groups.iter().position(|group| group.range.contains(point)).expect("somebody owns it");
    let look = |n| {
        let owner = owner(hints.to_look_at(n)?.point);
        assert_ne!(owner, from);
        hints.learn(&groups[owner]);
        Some(owner)
    };
    (0..looks).map_while(look).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// A peer that looks up the places it should soon knows all their owners. After that it looks up the known ones again, one
    /// after the other, except for the neighbours, which report their changes themselves.
    #[test]
    fn whoever_looks_around_soon_knows_what_it_should(at in starts(1..120), from in any::<prop::sample::Index>()) {
        let groups = ring(at, 7, 0);
        let (count, from) = (groups.len(), from.index(groups.len()));
        let links = [(from + count - 1) % count, (from + 1) % count];
        let mut hints = Hints::new(groups[from].range, HINTS_BYTES_MAX);
        if count > 1 {
            links.iter().for_each(|link| hints.learn(&groups[*link]));
        }
        look_around(&groups, from, &mut hints, 8 * count as u64);
        prop_assert!(hints.to_look_at(0).is_none_or(|look| !look.is_lacking), "{:?}", hints.to_look_at(0));
        prop_assert_eq!(hints.to_look_at(0).is_none(), count <= 3);
        // All groups next to it are known.
        for far in 0..count.min(13) {
            let beside = [(from + far) % count, (from + count - far) % count];
            prop_assert!(beside.iter().all(|beside| *beside == from || hints.find(groups[*beside].id).is_some()));
        }
        let known = hints.len();
        let again = look_around(&groups, from, &mut hints, 1000);
        prop_assert!(again.iter().all(|seen| !links.contains(seen)));
        let seen: alloc::collections::BTreeSet<usize> = again.into_iter().collect();
        prop_assert_eq!((seen.len(), hints.len()), (known - links.len().min(count - 1).min(known), known));
    }
}

/// The owner of a place may not be found for long. All other missing places are looked up all the same, for any number of them,
/// and so are the known ones.
#[test]
fn whatever_is_missing_is_looked_at_though_the_rest_of_it_cannot_be_found() {
    let groups = ring((0..200).map(|n| n << 120).collect(), 7, 0);
    for count in 1..12 {
        let missing: Vec<usize> = (1..=count).map(|column| 9 ^ column << 4).collect();
        let mut hints = Hints::new(groups[9].range, usize::MAX);
        let known = groups.iter().enumerate().filter(|(index, _)| !missing.contains(index));
        known.for_each(|(_, group)| hints.learn(group));
        let looks = (0..8 * count as u64).filter_map(|n| hints.to_look_at(n));
        let looked_at: Vec<usize> = looks.map(|look| (look.point.0 >> 120) as usize).collect();
        assert!(missing.iter().all(|index| looked_at.contains(index)), "{missing:?}, {looked_at:?}");
        assert!(looked_at.iter().any(|index| !missing.contains(index)), "{looked_at:?}");
    }
}

/// Missing owners are looked up although there is little room for them, and never at the cost of all hints that were used
/// recently.
#[test]
fn a_table_without_room_is_no_hurry() {
    let groups = ring((0..200).map(|n| n << 120).collect(), 7, 0);
    let mut hints = Hints::new(groups[9].range, 20 * bytes_of_one());
    look_around(&groups, 9, &mut hints, 500);
    assert!(hints.len() <= 20);
    // The peer should know more owners; but it looks for them at the pace of known ones.
    assert!((0..20).all(|n| hints.to_look_at(n).is_some_and(|look| !look.is_lacking)));
}

/// Hazard 44: two groups that each take the other one for the owner of a place. The first answer of either ends that.
#[test]
fn two_who_take_each_other_for_the_owner_do_not_send_a_lookup_back_and_forth() {
    // Five equal arcs; the third one owns the place.
    let fifth = u128::MAX / 5;
    let mut world = World::new(ring((0..5).map(|n| n * fifth).collect(), 7, 0));
    let place = Point(2 * fifth + 5);
    let says = |id: usize, epoch: u64| {
        let GroupRef { range, .. } = world.groups[2];
        GroupRef { epoch: Epoch(epoch), range, ..world.groups[id].clone() }
    };
    let (of_0, of_4) = (says(0, 6), says(4, 5));
    world.hints.get_mut(&GroupId(0)).unwrap().learn(&of_4);
    world.hints.get_mut(&GroupId(4)).unwrap().learn(&of_0);
    for from in [0, 4] {
        assert_eq!(world.look_up(from, place).0, 2);
    }
    assert!(world.hints[&GroupId(0)].find(GroupId(4)).is_none_or(|known| !known.range.contains(place)));
}
