//! Leaving for good: the reasons against it, and the steps that it waits for.
//!
//! The group decides when it lets a member go ([`group::control::membership`]). This module reports to the operator: at once, if a
//! leave would fail or do harm, and then step by step.

use core::fmt;

use group::Group;
use group::control::membership::MEMBERS_MIN;
use group::control::state::GroupState;
use overlay::{NodeId, RingId};
use serde::{Deserialize, Serialize};

use crate::api::Event;
use crate::context::{Context, Stage};
use crate::replicas::LocalReplicas;

/// Mode of a leave, by the number of members that may remain. A later variant goes further: once asked for, it stays. Encoded as the
/// flag `force`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum LeaveMode {
    /// The node leaves once at least three other members remain; until then it waits for newcomers.
    Graceful,
    /// The node leaves also where fewer than three members remain, but never as the last one.
    Forced,
}

impl LeaveMode {
    /// Returns whether the node leaves also where fewer than three members remain.
    pub fn is_forced(self) -> bool {
        self == LeaveMode::Forced
    }
}

impl From<bool> for LeaveMode {
    fn from(force: bool) -> LeaveMode {
        if force { LeaveMode::Forced } else { LeaveMode::Graceful }
    }
}

impl From<LeaveMode> for bool {
    fn from(mode: LeaveMode) -> bool {
        mode.is_forced()
    }
}

/// Step that a leave waits for, in about this order. Its text is the one in `/v1/status`: the words are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaveStep {
    /// Too few members would remain.
    OthersToJoin,
    /// Other members take over the sub-ranges of which this node is primary.
    HandingOver,
    /// The group has not yet chosen its members without this node.
    NextEpoch,
    /// No majority of an epoch's members holds all data yet: a majority without this node, if the node is no member in
    /// that epoch.
    Holding,
    /// The node has left.
    Left,
}

impl fmt::Display for LeaveStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeaveStep::OthersToJoin => "waiting for others to join",
            LeaveStep::HandingOver => "handing over primaries",
            LeaveStep::NextEpoch => "waiting for the next epoch",
            LeaveStep::Holding => "waiting until a majority holds everything",
            LeaveStep::Left => "left",
        })
    }
}

/// Progress of a leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaveStatus {
    /// Whether the node leaves also where fewer than three members remain.
    pub force: bool,
    /// Step that the leave waits for.
    pub step: LeaveStep,
    /// Number of members without this node.
    pub remain: usize,
    /// Number of sub-ranges of which this node is primary.
    pub primaries: usize,
}

/// Reason for which a leave does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveRefusal {
    /// The node stops, or its incarnation is over.
    Stopping,
    /// The node is in no network yet.
    Outside,
    /// The node is no voting member yet, or no longer: the group is still deciding whether it needs the node.
    NotMember,
    /// The node is the only member: no other node has the data.
    Last,
    /// Too few of the remaining members are heard to agree: the group would stop.
    Unheard {
        /// Number of members without this node.
        remain: usize,
        /// Number of those that are heard.
        heard: usize,
    },
    /// Fewer than three members would remain, and the leave is not forced.
    Few {
        /// Number of members without this node.
        remain: usize,
    },
}

/// State of a leave.
#[derive(Debug, Default)]
pub(crate) struct Leave {
    /// Mode of the leave; `None` unless the node leaves for good.
    pub(crate) mode: Option<LeaveMode>,
    /// Step that was last reported.
    step: Option<LeaveStep>,
}

impl Leave {
    /// Returns the reason against leaving now, as far as this node knows; `None` if there is none, or if it leaves
    /// already.
    pub(crate) fn refusal(
        &self,
        stage: &Stage,
        replicas: &LocalReplicas,
        ring: Option<RingId>,
        force: bool,
    ) -> Option<LeaveRefusal> {
        if stage.over || stage.stopping.is_some() {
            return Some(LeaveRefusal::Stopping);
        }
        if self.mode.is_some() {
            return None;
        }
        match replicas.home() {
            Some(group) => refusal(group.state(), group, force),
            None if ring.is_none() => Some(LeaveRefusal::Outside),
            None => None,
        }
    }

    /// Leaves all groups that this node has a part in. Force, once given, stays. Returns whether the node has left at once, since it has
    /// a part in none.
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>, force: bool) -> bool {
        let asked = LeaveMode::from(force);
        let mode = self.mode.map_or(asked, |earlier| earlier.max(asked));
        self.mode = Some(mode);
        cx.replicas.each(|group| group.leave(mode.is_forced()));
        cx.replicas.is_empty()
    }

    /// Notes that the node has left: its end is reported instead of this step.
    pub(crate) fn note_left(&mut self) {
        self.step = Some(LeaveStep::Left);
    }

    /// Reports the progress of the leave to the log.
    pub(crate) fn tell(&mut self, cx: &mut Context<'_>) {
        let step = self.status(cx.replicas, cx.me).map(|status| status.step);
        if self.step != step {
            self.step = step;
            if let Some(step) = step {
                cx.event(Event::Note(alloc::format!("leaves the group: {step}")));
            }
        }
    }

    /// Returns the progress of the leave of the node `me`, if there is one.
    pub(crate) fn status(&self, replicas: &LocalReplicas, me: NodeId) -> Option<LeaveStatus> {
        let force = self.mode?.is_forced();
        let state = replicas.home().map(Group::state);
        let step = match state {
            _ if self.step == Some(LeaveStep::Left) => LeaveStep::Left,
            Some(state) => step(state, me, force),
            None => LeaveStep::Left,
        };
        let remain = state.map_or(0, |state| state.members.iter().filter(|member| member.node != me).count());
        let primaries = state.map_or(0, |state| state.division.iter().filter(|part| part.node == me).count());
        Some(LeaveStatus { force, step, remain, primaries })
    }
}

/// Returns the step that the leave of the node `me` waits for.
fn step(state: &GroupState, me: NodeId, force: bool) -> LeaveStep {
    let remain = state.members.len().saturating_sub(1);
    if !state.is_member(me) || !state.recovery.is_empty() {
        LeaveStep::Holding
    } else if remain == 0 || (remain < MEMBERS_MIN && !force) {
        LeaveStep::OthersToJoin
    } else if state.division.iter().any(|part| part.node == me) {
        LeaveStep::HandingOver
    } else {
        LeaveStep::NextEpoch
    }
}

fn refusal(state: &GroupState, group: &Group, force: bool) -> Option<LeaveRefusal> {
    if !state.is_member(group.me()) {
        return Some(LeaveRefusal::NotMember);
    }
    let remain = state.members.len() - 1;
    let hears = group.hears();
    let heard = state.members.iter().filter(|member| hears.contains(&member.node)).count();
    match remain {
        0 => Some(LeaveRefusal::Last),
        _ if heard < remain / 2 + 1 => Some(LeaveRefusal::Unheard { remain, heard }),
        _ if remain < MEMBERS_MIN && !force => Some(LeaveRefusal::Few { remain }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use overlay::Incarnation;
    use overlay::time::{Now, Time, WallMillis};

    use super::*;
    use crate::api::{Input, Output};
    use crate::config::{Durability, NodeConfig, Restored};
    use crate::node::Node;
    use crate::tests::small_net::{Net, key};

    #[test]
    fn one_of_four_leaves_step_by_step_and_three_stay() {
        let mut net = Net::of(4);
        net.run_until(|net| net.nodes.iter().all(|node| node.status().ready));
        assert_eq!((net.nodes[1].refuses_leave(false), net.step(1)), (None, None));
        net.leave(1, false);
        net.run_until(|net| net.has_left(1));
        assert_eq!(net.step(1), Some(LeaveStep::Left));
        let told = |event: &Event| match event {
            Event::Note(line) => line.strip_prefix("leaves the group: ").map(alloc::string::String::from),
            _ => None,
        };
        let told: Vec<_> = net.events[1].iter().filter_map(told).collect();
        assert_eq!(
            told.last().map(|step| step.as_str()),
            Some("waiting until a majority holds everything"),
            "{told:?}"
        );
        assert_eq!(net.events[1].iter().filter(|event| **event == Event::Left).count(), 1);
        let members = net.nodes[0].group().expect("it stays").state().nodes();
        assert_eq!(members.iter().map(|node| node.peer).collect::<Vec<_>>(), [key(0), key(2), key(3)]);
        // Below three members a leave needs force.
        assert_eq!(net.nodes[0].refuses_leave(false), Some(LeaveRefusal::Few { remain: 2 }));
        net.leave(0, false);
        assert_eq!(net.step(0), Some(LeaveStep::OthersToJoin));
        assert_eq!(net.nodes[0].refuses_leave(true), None, "it may come to insist");
        net.leave(0, true);
        net.leave(0, false);
        assert!(net.nodes[0].status().leaving.is_some_and(|leaving| leaving.force), "what was insisted on stays so");
        net.run_until(|net| net.has_left(0));
    }

    #[test]
    fn whoever_has_all_the_data_stays() {
        let mut net = Net::of(2);
        assert_eq!(net.nodes[0].refuses_leave(true), None);
        net.leave(0, true);
        net.run_until(|net| net.has_left(0));
        assert_eq!(net.nodes[1].refuses_leave(false), Some(LeaveRefusal::Last));
        assert_eq!(net.nodes[1].refuses_leave(true), Some(LeaveRefusal::Last));
    }

    /// Of four members two are silent, so the group cannot agree. If one of the others left, one of the three remaining
    /// would be heard.
    #[test]
    fn nobody_leaves_the_silent_alone() {
        let mut net = Net::of(4);
        net.cut[2] = true;
        net.run_until(|net| net.nodes[0].group().is_some_and(|group| group.hears().len() == 2));
        assert_eq!(net.nodes[0].refuses_leave(false), None);
        net.cut[3] = true;
        net.run_until(|net| net.nodes[0].group().is_some_and(|group| group.hears().len() == 1));
        let refusal = Some(LeaveRefusal::Unheard { remain: 3, heard: 1 });
        assert_eq!((net.nodes[0].refuses_leave(false), net.nodes[0].refuses_leave(true)), (refusal, refusal));
    }

    #[test]
    fn what_is_in_no_group_has_left_at_once() {
        let now = Now { time: Time(1), awake: Time(1), wall: WallMillis(1) };
        let config = NodeConfig { durability: Durability::Memory, ..NodeConfig::new(key(0), Incarnation(2)) };
        let stranger = Node::new(config.clone(), 1, now, Restored::empty());
        assert_eq!(stranger.refuses_leave(true), Some(LeaveRefusal::Outside));
        // This node was in a group and lost all its data.
        let mut node = Node::new(NodeConfig { ring: Some(RingId(7)), ..config }, 1, now, Restored::empty());
        assert_eq!(node.refuses_leave(false), None);
        node.handle(now, Input::Leave { force: false });
        let mut outputs = core::iter::from_fn(|| node.poll_output());
        assert!(outputs.any(|output| matches!(output, Output::Event(Event::Left))));
        assert_eq!(node.refuses_leave(false), Some(LeaveRefusal::Stopping));
    }

    #[test]
    fn a_stop_goes_before_a_leave() {
        let mut net = Net::of(4);
        net.nodes[3].handle(net.now, Input::Stop);
        assert_eq!(net.nodes[3].refuses_leave(true), Some(LeaveRefusal::Stopping));
        net.leave(3, false);
        assert_eq!(net.step(3), None);
        net.run_until(|net| net.events[3].contains(&Event::Stopped));
        // In the other order, the node stops as one that does not come back.
        net.leave(2, false);
        net.nodes[2].handle(net.now, Input::Stop);
        net.run_until(|net| net.events[2].contains(&Event::Stopped) || net.has_left(2));
        assert!(!net.events[2].iter().any(|event| matches!(event, Event::Reincarnate { .. } | Event::Damaged(_))));
    }
}
