//! Leaving for good: what stands against it, and what it waits for.
//!
//! When the group lets a member go is the group's affair ([`group::membership`]). Here is what a person is told: at once,
//! where a leave would come to nothing or to harm, and then step by step.

use core::fmt;

use group::Group;
use group::membership::MEMBERS_MIN;
use group::state::GroupState;

use crate::api::Event;
use crate::node::Node;

/// What a leave waits for, in about this order. As text it is what `/v1/status` says: the words are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaveStep {
    /// Too few members would remain.
    OthersToJoin,
    /// Others take over what this node is primary of.
    HandingOver,
    /// The group has not yet chosen its members without this node.
    NextEpoch,
    /// A majority of an epoch's members does not hold everything yet: without it this node, if the epoch is the one that
    /// it is no member of.
    Holding,
    /// Nothing any more: it has left.
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

/// How far a leave has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaveStatus {
    /// Also where fewer than three members remain.
    pub force: bool,
    /// What it waits for.
    pub step: LeaveStep,
    /// Members beside this node.
    pub remain: usize,
    /// Sub-ranges that this node is primary of.
    pub primaries: usize,
}

/// Why a leave is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveRefusal {
    /// The node stops, or its life is over.
    Stopping,
    /// It is in no network yet.
    Outside,
    /// It does not vote yet, or not any more: whether it is needed is being decided.
    NotMember,
    /// It is the only member: nobody else has the data.
    Last,
    /// So many would remain, and too few of them are heard of to agree on anything: the group would stop.
    Unheard {
        /// Members beside this node.
        remain: usize,
        /// Those of them that are heard of.
        heard: usize,
    },
    /// Fewer than three would remain, and nobody insists.
    Few {
        /// Members beside this node.
        remain: usize,
    },
}

impl Node {
    /// What stands against leaving now, as far as this node knows. Nothing, where it leaves already.
    pub fn refuses_leave(&self, force: bool) -> Option<LeaveRefusal> {
        if self.over || self.stopping.is_some() {
            return Some(LeaveRefusal::Stopping);
        }
        if self.leaving.is_some() {
            return None;
        }
        match self.hosts.home() {
            Some(group) => refusal(group.state(), group, force),
            None if self.ring.is_none() => Some(LeaveRefusal::Outside),
            None => None,
        }
    }

    /// Leaves the group, or what there is of one. Whoever insisted once insists. A node that stops has been told already
    /// what to do.
    pub(crate) fn leave(&mut self, force: bool) {
        if self.stopping.is_some() {
            return;
        }
        let force = force || self.leaving == Some(true);
        self.leaving = Some(force);
        match self.hosts.is_empty() {
            false => self.each_group(|group| group.leave(force)),
            true => self.left(),
        }
        self.tell_leave();
    }

    /// It is not needed any more.
    pub(crate) fn left(&mut self) {
        if self.over {
            return;
        }
        self.leave_step = Some(LeaveStep::Left);
        self.end_life(Event::Left);
    }

    /// Tells the log how far the leave has come.
    pub(crate) fn tell_leave(&mut self) {
        let step = self.leave_status().map(|status| status.step);
        if self.leave_step != step {
            self.leave_step = step;
            if let Some(step) = step {
                self.event(Event::Note(alloc::format!("leaves the group: {step}")));
            }
        }
    }

    /// How far the leave has come, if there is one.
    pub(crate) fn leave_status(&self) -> Option<LeaveStatus> {
        let force = self.leaving?;
        let state = self.hosts.home().map(Group::state);
        let step = match state {
            _ if self.leave_step == Some(LeaveStep::Left) => LeaveStep::Left,
            Some(state) => self.step(state, force),
            None => LeaveStep::Left,
        };
        let remain = state.map_or(0, |state| state.members.iter().filter(|member| member.node != self.me).count());
        let primaries = state.map_or(0, |state| state.division.iter().filter(|part| part.node == self.me).count());
        Some(LeaveStatus { force, step, remain, primaries })
    }

    fn step(&self, state: &GroupState, force: bool) -> LeaveStep {
        let remain = state.members.len().saturating_sub(1);
        if !state.is_member(self.me) || !state.recovery.is_empty() {
            LeaveStep::Holding
        } else if remain == 0 || (remain < MEMBERS_MIN && !force) {
            LeaveStep::OthersToJoin
        } else if state.division.iter().any(|part| part.node == self.me) {
            LeaveStep::HandingOver
        } else {
            LeaveStep::NextEpoch
        }
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

    use group::time::{Now, Time, WallMillis};
    use overlay::{Incarnation, RingId};

    use super::*;
    use crate::api::{Input, Output};
    use crate::config::{Durability, NodeConfig, Restored};
    use crate::small_net::{Net, key};

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
        // Below three nobody goes by mistake, and who insists does.
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

    /// Four of whom two are silent agree on nothing; were one of the others let go, three would be left, and one of them
    /// heard of.
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
        // One that was in a group and lost all it had.
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
        // The other way round it stops as one that is not coming back.
        net.leave(2, false);
        net.nodes[2].handle(net.now, Input::Stop);
        net.run_until(|net| net.events[2].contains(&Event::Stopped) || net.has_left(2));
        assert!(!net.events[2].iter().any(|event| matches!(event, Event::Reincarnate { .. } | Event::Damaged(_))));
    }
}
