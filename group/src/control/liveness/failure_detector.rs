//! Failure detection (`docs/design/epochs.md`).
//!
//! A wrong suspicion costs time, never safety.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Epoch, NodeId};

use crate::config::Timing;
use crate::message::{Echo, Heartbeat, Parting, Sender};
use overlay::time::{Time, WallMillis};

/// Upper limit of an announced absence, in milliseconds: one week.
const AWAY_MAX_MS: u64 = 7 * 86_400_000;

/// Last signs of life of one node.
#[derive(Clone, Debug)]
struct Heard {
    /// Time of its last message of any kind.
    at: Time,
    /// Time, epoch and content of its last heartbeat.
    heartbeat: Option<(Time, Epoch, Heartbeat)>,
    /// The end of the absence that the member announced; in the past where it announced none.
    away_until: Time,
    /// Time when its connections broke, if nothing has come since.
    broken: Option<Time>,
    /// Average round trip to it, in microseconds.
    round_trip_us: Option<u32>,
    /// Total time of its silences since this node began to watch it; a silence that lasts does not count yet.
    absent: Duration,
}

impl Heard {
    /// Returns for how long the node has been silent; zero if that is too short for a suspicion.
    fn long_silence(&self, timing: &Timing, now: Time) -> Duration {
        let silent = now.since(self.at);
        if silent >= timing.suspicion() { silent } else { Duration::ZERO }
    }

    /// Returns when the process ended: see [`FailureDetector::has_ended`].
    fn ended(&self, timing: &Timing) -> Option<Time> {
        self.broken.filter(|broken| broken.since(self.at) < timing.heartbeat * 2)
    }

    /// Returns whether an announced absence is not over.
    fn is_away(&self, now: Time) -> bool {
        self.away_until > now
    }

    fn is_suspect(&self, timing: &Timing, now: Time) -> bool {
        now.since(self.at) >= timing.suspicion()
            || self.broken.is_some_and(|broken| now.since(broken) >= timing.broken_grace)
    }
}

/// Signs of life of the other nodes, as far as this node can tell.
#[derive(Clone, Debug, Default)]
pub struct FailureDetector {
    heard: BTreeMap<NodeId, Heard>,
}

impl FailureDetector {
    /// Begins to watch exactly these nodes; newcomers count as heard now.
    pub fn watch(&mut self, nodes: &[NodeId], now: Time) {
        self.heard.retain(|node, _| nodes.contains(node));
        for node in nodes {
            self.heard.entry(*node).or_insert(Heard {
                at: now,
                heartbeat: None,
                away_until: Time(0),
                broken: None,
                round_trip_us: None,
                absent: Duration::ZERO,
            });
        }
    }

    /// Notes a message from this node.
    pub fn on_message(&mut self, from: NodeId, timing: &Timing, now: Time) {
        if let Some(heard) = self.heard.get_mut(&from) {
            heard.absent += heard.long_silence(timing, now);
            heard.at = now;
            heard.broken = None;
        }
    }

    /// Returns how long a node has not been heard: silences that are over, and one that lasts, each if it was long enough for a suspicion.
    pub fn absent(&self, node: NodeId, timing: &Timing, now: Time) -> Duration {
        self.heard.get(&node).map_or(Duration::ZERO, |heard| heard.absent + heard.long_silence(timing, now))
    }

    /// Takes a heartbeat. Returns whether its sender is watched; otherwise nothing has changed.
    ///
    /// `group_time` is the present group time, in which absences are told.
    pub fn on_heartbeat(
        &mut self,
        me: NodeId,
        from: Sender,
        heartbeat: Heartbeat,
        group_time: WallMillis,
        now: Time,
        timing: &Timing,
    ) -> bool {
        let Sender { node: from, epoch, .. } = from;
        let Some(heard) = self.heard.get_mut(&from) else { return false };
        if let Some(sample) = round_trip(me, &heartbeat, now, timing) {
            heard.round_trip_us = Some(smooth(heard.round_trip_us, sample));
        }
        heard.away_until = match heartbeat.parting {
            Parting::Stops { away_ms } => now + Duration::from_millis(away_ms.min(AWAY_MAX_MS)),
            Parting::Stays | Parting::Leaves { .. } => Time(0),
        };
        let absences = heartbeat.absences.clone();
        heard.heartbeat = Some((now, epoch, heartbeat));
        self.hear_of_absences(&absences, group_time, now);
        true
    }

    /// Takes absences that another member reports. Only of members from which no heartbeat ever came here: each other one has told this
    /// node itself whether it stays.
    fn hear_of_absences(&mut self, absences: &[(NodeId, WallMillis)], group_time: WallMillis, now: Time) {
        for (node, until) in absences {
            if let Some(heard) = self.heard.get_mut(node).filter(|heard| heard.heartbeat.is_none()) {
                let left = until.0.saturating_sub(group_time.0).min(AWAY_MAX_MS);
                heard.away_until = now + Duration::from_millis(left);
            }
        }
    }

    /// Returns the members with announced absences that are not over, and the ends of these, in group time.
    pub fn absences(&self, group_time: WallMillis, now: Time) -> Vec<(NodeId, WallMillis)> {
        let away = self.heard.iter().filter(|(_, heard)| heard.is_away(now));
        let until = |heard: &Heard| group_time.0.saturating_add(heard.away_until.since(now).as_millis() as u64);
        away.map(|(node, heard)| (*node, WallMillis(until(heard)))).collect()
    }

    /// Returns whether this node announced an absence that is not over.
    pub fn is_away(&self, node: NodeId, now: Time) -> bool {
        self.heard.get(&node).is_some_and(|heard| heard.is_away(now))
    }

    /// Returns the echoes of these nodes' last heartbeats.
    pub fn echoes(&self, nodes: &[NodeId], now: Time) -> Vec<Option<Echo>> {
        let echo = |node: &NodeId| {
            let (at, _, heartbeat) = self.heard.get(node)?.heartbeat.as_ref()?;
            let held_us = u32::try_from(now.since(*at).as_micros()).ok()?;
            Some(Echo { sent_us: heartbeat.sent_us, held_us })
        };
        nodes.iter().map(echo).collect()
    }

    /// Returns the time until `count` of these other nodes have answered, in microseconds; `None` where unknown.
    pub fn agreement_us(&self, others: impl Iterator<Item = NodeId>, count: usize) -> Option<u32> {
        let mut ways: Vec<u32> = others.filter_map(|node| self.heard.get(&node)?.round_trip_us).collect();
        ways.sort_unstable();
        match count.checked_sub(1) {
            None => Some(0),
            Some(last) => ways.get(last).copied(),
        }
    }

    /// Returns the average round trip to this node; `None` before the first measurement.
    pub fn round_trip(&self, node: NodeId) -> Option<Duration> {
        self.heard.get(&node)?.round_trip_us.map(|us| Duration::from_micros(u64::from(us)))
    }

    /// Notes that all connections to this peer broke.
    pub fn on_broken(&mut self, peer: overlay::PeerKey, now: Time) {
        for (_, heard) in self.heard.iter_mut().filter(|(node, _)| node.peer == peer) {
            heard.broken.get_or_insert(now);
        }
    }

    /// Returns whether the process of this node ended, as far as its connections tell: all of them closed within two heartbeats of the last
    /// message, and it has been silent since. A system closes the connections of a process that ends; those of an overloaded or unreachable
    /// process stay open until they time out. A device on the way may close them, too, so this alone proves nothing.
    pub fn has_ended(&self, node: NodeId, timing: &Timing) -> bool {
        self.heard.get(&node).is_some_and(|heard| heard.ended(timing).is_some())
    }

    /// Returns whether this node is suspected.
    pub fn suspects(&self, node: NodeId, timing: &Timing, now: Time) -> bool {
        self.heard.get(&node).is_none_or(|heard| heard.is_suspect(timing, now))
    }

    /// Returns when the next suspicion arises if nothing more is heard.
    pub fn next_suspicion(&self, timing: &Timing, now: Time) -> Option<Time> {
        let due = |heard: &Heard| {
            let silent = heard.at + timing.suspicion();
            heard.broken.map_or(silent, |broken| silent.min(broken + timing.broken_grace))
        };
        self.heard.values().map(due).filter(|at| *at > now).min()
    }

    /// Returns the nodes that are not suspected, in order.
    pub fn hears(&self, timing: &Timing, now: Time) -> Vec<NodeId> {
        self.those_heard(timing, now).collect()
    }

    /// Iterates over the nodes that are not suspected, in order.
    pub(crate) fn those_heard(&self, timing: &Timing, now: Time) -> impl Iterator<Item = NodeId> {
        let is_heard = move |heard: &Heard| !heard.is_suspect(timing, now);
        self.heard.iter().filter(move |(_, heard)| is_heard(heard)).map(|(node, _)| *node)
    }

    /// Returns the last heartbeat of a node, if it is not older than `age_max`.
    pub fn heartbeat(&self, node: NodeId, age_max: Duration, now: Time) -> Option<&Heartbeat> {
        let (at, _, heartbeat) = self.heard.get(&node)?.heartbeat.as_ref()?;
        (now.since(*at) <= age_max).then_some(heartbeat)
    }

    /// Returns the last heartbeat of a node, of any age and epoch.
    pub fn last_heartbeat(&self, node: NodeId) -> Option<&Heartbeat> {
        self.heard.get(&node)?.heartbeat.as_ref().map(|(_, _, heartbeat)| heartbeat)
    }

    /// Returns the last heartbeat of a node, of any age, if it is of this epoch.
    pub fn heartbeat_of(&self, node: NodeId, epoch: Epoch) -> Option<&Heartbeat> {
        let (_, of, heartbeat) = self.heard.get(&node)?.heartbeat.as_ref()?;
        (*of == epoch).then_some(heartbeat)
    }

    /// Returns the last heartbeat of a node, if it is not older than `age_max`, and of this epoch or a later one.
    pub fn heartbeat_since(&self, node: NodeId, since: Epoch, age_max: Duration, now: Time) -> Option<&Heartbeat> {
        let (at, of, heartbeat) = self.heard.get(&node)?.heartbeat.as_ref()?;
        (*of >= since && now.since(*at) <= age_max).then_some(heartbeat)
    }

    /// Returns when this node may be removed, if nothing more is heard of it: not before its announced absence is over. `ended`: whether an
    /// ended process counts.
    pub fn dead_at(&self, node: NodeId, timing: &Timing, ended: bool) -> Time {
        let Some(heard) = self.heard.get(&node) else { return Time::NEVER };
        let silent = heard.at + timing.exclude_after;
        let ended = heard.ended(timing).filter(|_| ended).map(|at| at + timing.ended_after());
        ended.map_or(silent, |ended| ended.min(silent)).max(heard.away_until)
    }
}

/// Returns how long this node's heartbeat and the one that echoes it were under way, in microseconds; `None` where the numbers cannot be
/// true.
fn round_trip(me: NodeId, heartbeat: &Heartbeat, now: Time, timing: &Timing) -> Option<u32> {
    let place = heartbeat.hears.iter().position(|node| *node == me)?;
    let echo = (*heartbeat.echoes.get(place)?)?;
    let sample = (now.0 / 1_000).checked_sub(echo.sent_us)?.checked_sub(u64::from(echo.held_us))?;
    u32::try_from(sample).ok().filter(|sample| u128::from(*sample) < timing.suspicion().as_micros())
}

/// Averages a sample. A longer round trip may only have waited in a queue: it raises the average slowly.
fn smooth(before: Option<u32>, sample: u32) -> u32 {
    match before {
        Some(before) if before < sample => before + (sample - before).div_ceil(8),
        _ => sample,
    }
}
