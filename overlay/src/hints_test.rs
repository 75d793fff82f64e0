//! Lookups over whole rings of hints: true ones, none, and wrong ones.

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
    let contact = Contact { node, addresses: alloc::vec![String::from("/ip4/10.0.0.1/tcp/6478")] };
    let range = KeyRange::new(Point(start), Point(end));
    GroupRef { id: GroupId(id), epoch: Epoch(epoch), range, members: alloc::vec![contact; 5] }
}

/// What a hint of one of these takes.
fn bytes_of_one() -> usize {
    let mut hints = Hints::new(Point(0), usize::MAX);
    hints.learn(&reference(0, 0, 0, 0));
    hints.bytes()
}

/// A ring of groups that begin at these places.
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
        let hints = groups.iter().map(|group| (group.id, Hints::new(group.range.start(), HINTS_BYTES_MAX))).collect();
        World { groups, hints }
    }

    fn index(&self, id: GroupId) -> Option<usize> {
        self.groups.iter().position(|group| group.id == id)
    }

    /// Looks a point up from a group; whoever is not what it was taken for is forgotten, and whoever was asked says what it
    /// is. Returns the owner and how many were asked.
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
                // It is gone, or is not what it was.
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

    /// Where something silent lies in the shorter way, the longer one leads to every place as well, whatever is remembered:
    /// each step is nearer in it.
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

    /// PITFALLS 43, 44: whatever the hints of all groups say, every lookup ends at the only owner.
    #[test]
    fn lookups_end_whatever_the_hints_say(
        now in starts(1..40),
        before in starts(1..40),
        told in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..200),
        asked in proptest::collection::vec((any::<prop::sample::Index>(), any::<u128>()), 1..30),
    ) {
        // Another ring stood here once: some of its groups still exist, elsewhere, and others do not.
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
            // Asked again it is one hop at most, if it is remembered who that is.
            let (again, hops) = world.look_up(owner, Point(point));
            prop_assert_eq!((again, hops), (owner, 0));
        }
    }

    /// No two hints overlap, the newer word of a place stands, and what they take is counted and bounded.
    #[test]
    fn the_newer_word_of_a_place_stands(
        told in proptest::collection::vec((0..50_u128, 0..6_u64, 0..16_u128, 1..16_u128), 1..100),
        kept in 1..6_usize,
    ) {
        let bytes = bytes_of_one();
        let mut hints = Hints::new(Point(5 << 124), kept * bytes);
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
    let mut hints = Hints::new(Point(0), HINTS_BYTES_MAX);
    let (old, new) = (reference(1, 3, 100, 200), reference(1, 4, 100, 200));
    hints.learn(&new);
    hints.forget(&old);
    assert_eq!(hints.find(GroupId(1)), Some(new.with_members(3)));
    hints.learn(&old);
    assert_eq!(hints.find(GroupId(1)), Some(new.with_members(3)));
    hints.forget(&new);
    assert!(hints.is_empty() && hints.bytes() == 0);
}

/// What alone fills its cell stays; of what has company that which was of no use for longest goes first.
#[test]
fn the_table_outlives_what_was_asked_of_late() {
    let bytes = bytes_of_one();
    let mut hints = Hints::new(Point(0), 4 * bytes);
    let cell =
        |column: u128, n: u128| reference(column * 100 + n, 1, (column << 124) + n * 10, (column << 124) + n * 10 + 10);
    for reference in [cell(3, 0), cell(4, 0), cell(5, 0), cell(5, 1), cell(5, 2)] {
        hints.learn(&reference);
    }
    let known: Vec<u128> = hints.iter().map(|known| known.id.0).collect();
    assert_eq!(known, [300, 400, 501, 502]);
    assert_eq!(hints.nearest(Point((5 << 124) + 11), Way::Either).unwrap().id, GroupId(501));
    hints.learn(&cell(5, 3));
    assert_eq!(hints.iter().map(|known| known.id.0).collect::<Vec<_>>(), [300, 400, 501, 503]);
    // Another group's place: the cells are counted anew, and a place to look at is never one's own.
    hints.set_here(Point(5 << 124));
    let refreshed: Vec<Point> = (0..200).map(|n| hints.to_refresh(n)).collect();
    assert!(refreshed.iter().all(|point| *point != Point(5 << 124)));
    let first_row: Vec<u128> = refreshed.iter().map(|point| point.0 >> 124).collect();
    assert!((0..16).all(|column| column == 5 || first_row.contains(&column)), "{first_row:?}");
}
