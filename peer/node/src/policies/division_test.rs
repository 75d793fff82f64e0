//! The part of the range of which a newcomer is primary (Harmony §7.6).

use alloc::vec::Vec;
use core::time::Duration;

use policy::lifetimes::Lifetimes;

use crate::config::NodeConfig;
use crate::tests::small_net::Net;

fn settle(config: NodeConfig) -> NodeConfig {
    NodeConfig { members_min: 1, members_max: 100, ..config }
}

/// Runs for this time, in seconds.
fn run_for(net: &mut Net, seconds: u64) {
    (0..seconds / 10).for_each(|_| net.run_for(Duration::from_secs(10)));
}

/// Returns a group of three that is four minutes old, and a newcomer that has just become a member.
fn with_newcomer(assume: Option<Lifetimes>) -> Net {
    let mut net = Net::with(3, settle);
    run_for(&mut net, 240);
    net.add(settle);
    assume.into_iter().for_each(|model| net.nodes.iter_mut().for_each(|node| node.lives.assume(model)));
    net.run_until(|net| {
        let states = net.nodes.iter().map(|node| node.group().map(group::Group::state));
        states.flatten().filter(|state| state.members.len() == 4 && state.recovery.is_empty()).count() == 4
    });
    net
}

/// Returns the part of the group's range of which the newcomer is primary, in 1/64.
fn share(net: &Net) -> u128 {
    let state = net.nodes[0].group().expect("is in one").state();
    let newcomer = net.nodes[3].id();
    let parts = state.parts().filter(|(_, ballot)| ballot.node == newcomer);
    parts.map(|(range, _)| range.length().map_or(64, |length| length >> 122)).sum()
}

/// The newcomer votes and serves clients at once, without a sub-range of its own. Later it has a smaller part than the other members, and
/// at last an equal one.
#[test]
fn a_newcomer_begins_without_a_sub_range() {
    let mut net = with_newcomer(None);
    run_for(&mut net, 20);
    assert_eq!((share(&net), net.primaries().len()), (0, 3));
    assert!(net.nodes[3].status().ready);
    assert_eq!(net.set(3, 0, 40), (40, Vec::new()), "it passes operations to the primaries");
    run_for(&mut net, 20);
    assert_eq!(share(&net), 9, "a half of what the others have");
    run_for(&mut net, 160);
    assert_eq!(share(&net), 16);
    assert_eq!(net.set(0, 100, 40), (40, Vec::new()));
}

/// Where lifetimes are known to be exponential, a newcomer is in no more danger than any member: it has a whole share after the first step.
#[test]
fn known_lifetimes_decide_how_much_a_newcomer_gets() {
    for (model, expected) in [
        (Lifetimes::Exponential { mean: Duration::from_secs(300) }, 16),
        (Lifetimes::Pareto { shape: 1.1, min: Duration::from_secs(10) }, 4),
    ] {
        let mut net = with_newcomer(Some(model));
        run_for(&mut net, 20);
        assert_eq!(share(&net), 0);
        run_for(&mut net, 20);
        assert_eq!(share(&net), expected, "{model:?}");
    }
}
