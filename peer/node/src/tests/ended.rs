//! Members whose processes end, between nodes in memory: none of them can return as the same member.

use alloc::vec::Vec;
use core::time::Duration;

use group::Group;

use crate::api::Input;
use crate::config::NodeConfig;
use crate::tests::small_net::{Net, key};

/// Returns nine nodes in one group, of which four have just ended, and the living ones. `closed` is whether the living ones see that the
/// connections closed.
fn four_of_nine_end(closed: bool) -> (Net, Vec<usize>) {
    let mut net = Net::with(9, |config| NodeConfig { members_min: 1, members_max: 100, ..config });
    let leader = net.nodes.iter().position(|node| node.group().is_some_and(|group| group.log().leads()));
    let leader = leader.expect("one leads");
    let (ended, living): (Vec<usize>, Vec<usize>) =
        (0..9).partition(|index| (1..5).contains(&((index + 9 - leader) % 9)));
    for index in ended {
        net.cut[index] = true;
        for other in living.iter().filter(|_| closed) {
            net.nodes[*other].handle(net.now, Input::PeerDown(key(index)));
        }
    }
    (net, living)
}

fn members(net: &Net, living: &[usize]) -> usize {
    let count = |index: &usize| net.nodes[*index].group().map(Group::state).map_or(0, |state| state.members.len());
    living.iter().map(count).max().unwrap_or(0)
}

/// If connections closed, all four are removed within two seconds. If the four are only silent, a third of the group is removed after
/// three.
#[test]
fn ended_processes_need_no_allowance() {
    let (mut net, living) = four_of_nine_end(true);
    net.run_for(Duration::from_secs(2));
    assert_eq!(members(&net, &living), 5);
    let (mut net, living) = four_of_nine_end(false);
    net.run_for(Duration::from_secs(2));
    assert_eq!(members(&net, &living), 9);
    net.run_for(Duration::from_secs(5));
    assert_eq!(members(&net, &living), 6);
}

/// A device on the way closed all connections of four members: they are removed, too, but speak soon, and from then on closed connections
/// prove nothing.
#[test]
fn closed_connections_prove_nothing_after_a_mistake() {
    let (mut net, living) = four_of_nine_end(true);
    net.run_for(Duration::from_secs(2));
    assert_eq!(members(&net, &living), 5);
    (0..9).for_each(|index| net.cut[index] = false);
    net.run_for(Duration::from_secs(2));
    let leads = |index: &usize| net.nodes[*index].group().is_some_and(|group| group.log().leads());
    let again: Vec<usize> = living.iter().copied().filter(|index| !leads(index)).take(2).collect();
    for index in &again {
        net.cut[*index] = true;
        living.iter().for_each(|other| net.nodes[*other].handle(net.now, Input::PeerDown(key(*index))));
    }
    net.run_for(Duration::from_secs(2));
    let rest: Vec<usize> = living.iter().copied().filter(|index| !again.contains(index)).collect();
    assert_eq!(members(&net, &rest), 5, "they are waited for as long as silent ones");
}
