//! Effects of reported capacities: parts of the range, and sums for neighbours.

use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::config::{Defect, Defects};
use group::control::capacity::CAPACITY_MAX;

use crate::config::NodeConfig;
use crate::routing::join::Sampled;
use crate::tests::small_net::Net;

/// Sets the measured operations a second of each node.
fn measure(net: &mut Net, measured: &[u32]) {
    for (node, measured) in net.nodes.iter_mut().zip(measured) {
        node.capacities.measured = Some(f64::from(*measured));
    }
}

/// Returns members with these measurements, in operations a second, with these defects, in one group that has rested.
fn with(measured: &[u32], defects: Defects) -> Net {
    let settle = |mut config: NodeConfig| {
        config.timing.resize_after = Duration::from_secs(2);
        NodeConfig { members_min: 1, members_max: 100, defects, ..config }
    };
    let mut net = Net::with(measured.len(), settle);
    measure(&mut net, measured);
    (0..8).for_each(|_| net.run_for(Duration::from_secs(5)));
    net
}

/// Returns the part of the range of which each node is primary, in percent.
fn shares(net: &Net) -> Vec<u128> {
    let state = net.nodes[0].group().expect("is in one").state();
    let share = |node: &crate::Node| {
        let parts = state.parts().filter(|(_, ballot)| ballot.node == node.id());
        let length: u128 = parts.map(|(range, _)| range.length().unwrap_or(u128::MAX) >> 100).sum();
        (length * 100 + (1 << 27)) >> 28
    };
    net.nodes.iter().map(share).collect()
}

/// Scatter §6.3: a node with a small capacity gets a small part.
#[test]
fn a_weak_member_gets_a_small_part() {
    let measured = [1_000, 1_100, 240, 900];
    assert_eq!(shares(&with(&measured, Defects::NONE)), [31, 31, 8, 31]);
    assert_eq!(shares(&with(&measured, Defects::NONE.with(Defect::CapacityIgnored))), [25; 4]);
}

/// A member that reports the highest capacity gets no more than the others: no member saw it execute an operation.
#[test]
fn a_lie_raises_nothing() {
    let measured = [1_000, 1_000, CAPACITY_MAX, 1_000];
    assert_eq!(shares(&with(&measured, Defects::NONE)), [25; 4]);
    let believed = shares(&with(&measured, Defects::NONE.with(Defect::CapacityUnchecked)));
    assert!(believed[2] > 80, "the cap is what prevents it: {believed:?}");
}

/// Two of four members have not measured anything: all count alike, and nothing is told to neighbours.
#[test]
fn most_members_must_have_measured() {
    let mut net = with(&[1_000, 200, 1_000, 1_000], Defects::NONE);
    assert_eq!(shares(&net)[1], 8);
    net.nodes[2..].iter_mut().for_each(|node| node.capacities.measured = None);
    (0..8).for_each(|_| net.run_for(Duration::from_secs(5)));
    assert_eq!(shares(&net), [25; 4]);
    assert_eq!(net.nodes[0].group().and_then(Group::capacity), None);
}

/// The leader of a group tells its neighbours the sum of its members' capacities, and newcomers are told the same.
#[test]
fn neighbours_and_newcomers_learn_the_sum() {
    let mut net = with(&[1_000, 1_000, 1_000, 300, 400, 400], Defects::NONE);
    net.split(3);
    (0..2).for_each(|_| net.run_for(Duration::from_secs(5)));
    let groups = || net.nodes.iter().filter_map(crate::Node::group);
    let told: Vec<Option<u32>> = groups()
        .filter(|group| group.log().leads())
        .map(|group| group.successor_health().expect("its leader told it").1.capacity)
        .collect();
    assert_eq!(told, [Some(1_100), Some(3_000)]);
    let node = &net.nodes[4];
    let start = node.group().expect("is in one").state().range.start();
    assert_eq!(
        Sampled::of(&node.replicas, &node.config, &node.lives, start).expect("it is here").capacity,
        Some(1_100)
    );
}

/// Scatter §6.3: of two groups with equal load, the one with a quarter of the capacity gives up a part of its range.
#[test]
fn a_boundary_moves_to_what_members_can_do() {
    for (defects, moves) in [(Defects::NONE, true), (Defects::NONE.with(Defect::CapacityIgnored), false)] {
        let mut net = with(&[1_000; 6], defects);
        net.split(3);
        measure(&mut net, &[1_000, 1_000, 1_000, 250, 250, 250]);
        let length = |net: &Net| {
            let range = net.nodes[3].group().expect("is in one").state().range;
            range.length().map_or(64, |length| length >> 122)
        };
        let before = length(&net);
        for turn in 0..40 {
            assert_eq!(net.set(0, turn * 40, 40), (40, Vec::new()));
            net.run_for(Duration::from_millis(500));
        }
        assert_eq!((before, length(&net) < 20), (32, moves), "{} of 64", length(&net));
    }
}
