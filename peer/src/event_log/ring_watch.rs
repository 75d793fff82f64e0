//! Observer of the whole ring (Harmony §6): the ranges that no group serves, since when, and their last known members.
//!
//! A peer knows its own groups and their neighbours. [`RingWatch`] walks the whole ring at intervals, so that every peer sees a range that
//! is not served, and remembers it after the last hint of its group has faded. The observer reassigns nothing: only an administrator can
//! know that the members will not return (`scatter group repair`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use environment::lock;
use node::RingWalk;
use overlay::{GroupRef, KeyRange};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

use crate::admin::Admin;
use crate::status::{Located, Ring, SilentRange, StatusSource, part_of_ring};

/// Shortest pause between two walks.
const WALK_EVERY: Duration = Duration::from_secs(30);
/// Shortest pause per group of the ring. A walk asks each group once; on large rings walks are further apart, so that a peer asks two
/// groups per second at most.
const WALK_EVERY_PER_GROUP: Duration = Duration::from_millis(500);
/// Upper limit of groups that a walk meets.
pub const GROUPS_MAX: usize = 4096;
/// Number of walks in a row after which a range counts as not served: a single walk may have met a group that was changing.
const WALKS_MIN: u32 = 2;

/// Results of the walks.
#[derive(Debug, Default)]
pub struct RingWatch {
    by_lane: Mutex<BTreeMap<u8, Vec<Unserved>>>,
}

/// Range that was not served at the last walk.
#[derive(Clone, Debug)]
struct Unserved {
    range: KeyRange,
    /// Group that owned the range when it was last heard of.
    group: Option<GroupRef>,
    /// Time of the first walk that found the range unserved, in milliseconds of Unix time.
    since_ms: u64,
    /// Number of walks in a row that found it so.
    walks: u32,
}

impl RingWatch {
    /// Walks along the ring of each lane until `stop` becomes true.
    pub async fn keep(
        self: Arc<RingWatch>,
        status: Arc<dyn StatusSource>,
        admin: Arc<dyn Admin>,
        mut stop: watch::Receiver<bool>,
    ) {
        let walks = async {
            loop {
                let mut pause = WALK_EVERY;
                let lanes: BTreeSet<u8> = status.status().groups.iter().map(|group| group.lane.unwrap_or(0)).collect();
                for lane in lanes {
                    // Without an answer the peer is stopping.
                    let Ok(walk) = admin.walk_ring(lane, None, GROUPS_MAX).await else { return };
                    let groups = u32::try_from(walk.groups.len()).unwrap_or(u32::MAX);
                    pause = pause.max(WALK_EVERY_PER_GROUP.saturating_mul(groups));
                    self.learn(lane, &walk, environment::unix_ms());
                }
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            () = walks => {}
            // An error means that the sender is gone, so no stop can follow.
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Takes the result of a walk at `now_ms`, in milliseconds of Unix time. A range that the walk did not reach stays as it was.
    pub fn learn(&self, lane: u8, walk: &RingWalk, now_ms: u64) {
        let has_majority = |located: &&node::routing::Located| located.heard.is_quorum();
        let served: Vec<KeyRange> =
            walk.groups.iter().filter(has_majority).map(|located| located.group.range).collect();
        let without = walk.groups.iter().filter(|located| !has_majority(located));
        let without = without.map(|located| (located.group.range, Some(located.group.clone())));
        let silent = walk.silent.iter().map(|silent| (silent.range, silent.group.clone()));
        let mut by_lane = lock(&self.by_lane);
        let before = by_lane.remove(&lane).unwrap_or_default();
        let mut now: Vec<Unserved> =
            silent.chain(without).map(|(range, group)| Unserved::found(range, group, &before, now_ms)).collect();
        now.iter().filter(|found| found.walks == WALKS_MIN).for_each(Unserved::warn);
        let is_unreached = |known: &Unserved| {
            let mut reached = served.iter().copied().chain(now.iter().map(|found| found.range));
            !reached.any(|range| range.overlaps(known.range))
        };
        let unreached: Vec<Unserved> = before.into_iter().filter(is_unreached).collect();
        now.extend(unreached);
        now.truncate(GROUPS_MAX);
        by_lane.insert(lane, now);
    }

    /// Adds to a ring the times since which its ranges are not served, and the last known group of a range whose group the walk did not
    /// know.
    pub(crate) fn fill_in(&self, lane: u8, ring: &mut Ring) {
        let by_lane = lock(&self.by_lane);
        let known = by_lane.get(&lane).map_or(&[][..], Vec::as_slice);
        let of = |range: Option<KeyRange>| known.iter().find(|known| range.is_some_and(|range| range == known.range));
        for silent in &mut ring.silent {
            let Some(known) = of(silent.range.arc()) else { continue };
            silent.since_ms = Some(known.since_ms);
            if silent.group.is_none() && known.group.is_some() {
                let group = known.group.clone();
                let remembered = SilentRange::of(&node::Silent { range: known.range, group });
                *silent = SilentRange { since_ms: silent.since_ms, ..remembered };
            }
        }
        let is_lost = |located: &&mut Located| located.quorum.as_ref().is_some_and(|quorum| !quorum.held);
        for located in ring.groups.iter_mut().filter(is_lost) {
            located.unserved_since_ms = of(located.range.arc()).map(|known| known.since_ms);
        }
    }

    /// Returns the number of ranges that are not served, their share of the keys (0 to 1), and the time since which the first of them is
    /// not served, in milliseconds of Unix time. Lanes count alike.
    fn sums(&self) -> (usize, f64, Option<u64>) {
        let by_lane = lock(&self.by_lane);
        let all = || by_lane.values().flatten().filter(|known| known.walks >= WALKS_MIN);
        let part: f64 = all().map(|known| part_of_ring(known.range)).sum();
        (all().count(), part / by_lane.len().max(1) as f64, all().map(|known| known.since_ms).min())
    }
}

impl Unserved {
    /// Returns a range that a walk found unserved. It counts since the first walk that found some of it so, and has the group of an earlier
    /// walk where this one knew none.
    fn found(range: KeyRange, group: Option<GroupRef>, before: &[Unserved], now_ms: u64) -> Unserved {
        let known = || before.iter().filter(|known| known.range.overlaps(range));
        let same = || before.iter().find(|known| known.range == range);
        Unserved {
            range,
            group: group.or_else(|| same()?.group.clone()),
            since_ms: known().map(|known| known.since_ms).min().unwrap_or(now_ms),
            walks: known().map(|known| known.walks).max().unwrap_or(0).saturating_add(1),
        }
    }

    fn warn(&self) {
        let Unserved { range, group, .. } = self;
        let share = 100.0 * part_of_ring(*range);
        match group {
            Some(group) => tracing::warn!(
                group = %group.id,
                "no operation on {share:.2}% of the keys, from {} to {}, is answered: {} lacks a majority of its {} members; scatter ring \
                 names them",
                range.start(),
                range.end(),
                group.id.called(),
                group.members.len()
            ),
            None => tracing::warn!(
                "no operation on {share:.2}% of the keys, from {} to {}, is answered: their group is not known",
                range.start(),
                range.end()
            ),
        }
    }
}

/// Sums of [`RingWatch`] as metrics.
#[derive(Debug)]
pub struct RingMetrics(pub Arc<RingWatch>);

impl Collector for RingMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (ranges, part, since_ms) = self.0.sums();
        let seconds = since_ms.map_or(0.0, |since| environment::unix_ms().saturating_sub(since) as f64 / 1000.0);
        let values = [
            (
                "ring_unserved_ranges",
                "Ranges of the ring that no group serves, as this peer's last walk found",
                ranges as f64,
            ),
            ("ring_unserved_ratio", "The part of all keys in these ranges, from 0 to 1", part),
            (
                "ring_unserved_seconds",
                "Time since this peer found the first of these ranges without service; 0 if all are served",
                seconds,
            ),
        ];
        values.into_iter().try_for_each(|(name, help, value)| {
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        })
    }
}

#[cfg(test)]
mod tests {
    use group::ballot::{LogSlot, Term, TermBallot};
    use node::routing;
    use overlay::{Contact, Epoch, GroupId, Incarnation, NodeId, PeerKey, Point, RingId};

    use super::*;

    const MIDDLE: Point = Point(1 << 127);

    fn nodes(count: u8) -> Vec<NodeId> {
        (1..=count).map(|peer| NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }).collect()
    }

    fn group(id: u128, range: KeyRange) -> GroupRef {
        let contact = |node| Contact { node, addresses: Vec::new(), name: None };
        GroupRef { id: GroupId(id), epoch: Epoch(3), range, members: nodes(3).into_iter().map(contact).collect() }
    }

    /// Returns a group of three, of which `unheard` members are not heard.
    fn located(id: u128, range: KeyRange, unheard: u8) -> routing::Located {
        routing::Located {
            ring: RingId(1),
            point: range.start(),
            group: group(id, range),
            part: range,
            ballot: TermBallot { epoch: Epoch(3), term: Term::new(LogSlot(1), 0), node: nodes(1)[0] },
            horizon: 0,
            unheard: nodes(unheard),
            heard: routing::Heard { epoch: Epoch(3), members: 3 - u32::from(unheard), needed: 2, of: 3 },
            policies: 0,
        }
    }

    fn halves() -> (KeyRange, KeyRange) {
        (KeyRange::new(Point(0), MIDDLE), KeyRange::new(MIDDLE, Point(0)))
    }

    fn shown(watch: &RingWatch, walk: &RingWalk) -> Ring {
        let mut ring = Ring::of(walk);
        watch.fill_in(0, &mut ring);
        ring
    }

    #[test]
    fn a_range_is_unserved_since_the_first_walk_that_found_it_so() {
        let (first, second) = halves();
        let watch = RingWatch::default();
        let ring = |group: Option<GroupRef>| RingWalk {
            groups: vec![located(1, first, 0)],
            silent: vec![node::Silent { range: second, group }],
            ..RingWalk::default()
        };
        watch.learn(0, &ring(Some(group(2, second))), 1_000);
        assert_eq!(watch.sums(), (0, 0.0, None), "one walk may have met a group that was changing");
        // The last hint of the group has faded.
        watch.learn(0, &ring(None), 31_000);
        assert_eq!(watch.sums(), (1, 0.5, Some(1_000)));
        let silent = shown(&watch, &ring(None)).silent.remove(0);
        assert_eq!((silent.since_ms, silent.members.len()), (Some(1_000), 3), "{silent:?}");
        assert_eq!(silent.group, Some(GroupId(2).to_string()));
        // A member of the group is back, and hears no majority.
        let back = RingWalk { groups: vec![located(1, first, 0), located(2, second, 2)], ..RingWalk::default() };
        watch.learn(0, &back, 61_000);
        assert_eq!(watch.sums(), (1, 0.5, Some(1_000)));
        assert_eq!(shown(&watch, &back).groups[1].unserved_since_ms, Some(1_000));
        watch.learn(1, &RingWalk::default(), 61_000);
        assert_eq!(watch.sums().1, 0.25, "of two lanes");
        let well = RingWalk { groups: vec![located(1, first, 0), located(2, second, 1)], ..RingWalk::default() };
        watch.learn(0, &well, 91_000);
        assert_eq!(watch.sums(), (0, 0.0, None));
        assert_eq!(shown(&watch, &well).groups[1].unserved_since_ms, None);
    }

    #[test]
    fn a_walk_that_ends_early_changes_nothing_behind_its_end() {
        let (first, second) = halves();
        let watch = RingWatch::default();
        let silent = vec![node::Silent { range: second, group: None }];
        let whole = RingWalk { groups: vec![located(1, first, 0)], silent, ..RingWalk::default() };
        let short = RingWalk { groups: vec![located(1, first, 0)], ..RingWalk::default() };
        [&whole, &whole, &short].iter().for_each(|walk| watch.learn(0, walk, 1_000));
        assert_eq!(watch.sums(), (1, 0.5, Some(1_000)));
    }
}
