//! Machines that are far apart: an answer takes longer than the time after which a question is repeated.

use std::time::Duration;

use node::Node;
use testnet::sim::harness::expect_well;
use testnet::sim::{Latency, Scenario, World};

/// Returns a scenario of six machines: an answer of each takes 0.8 s or a little more.
fn far(seed: u64, leases: bool) -> Scenario {
    let mut scenario = Scenario { hosts: 6, leases, ..Scenario::calm(seed) };
    scenario.latency = Latency::Uniform(Duration::from_millis(400), Duration::from_millis(20));
    scenario.load.clients = 3;
    // Keys that clients fight over would take them longer than they wait.
    (scenario.load.hot_keys, scenario.load.cold_keys, scenario.load.bursts) = (1, 500, 0);
    scenario.load.think = (Duration::from_millis(10), Duration::from_millis(300));
    scenario.members = (1, 1_000);
    scenario.fault_time = Duration::from_secs(60);
    scenario
}

/// All machines become members of one group, and clients are answered, with and without leases.
#[test]
fn far_machines_form_a_group_and_answer() {
    for leases in [false, true] {
        let report = expect_well::<Node>(&far(1, leases));
        let operations = report.history.operations.iter();
        let (answered, all) =
            (operations.clone().filter(|op| op.outcome.answer().is_some()).count(), operations.count());
        assert!(answered > 100 && answered * 10 > all * 9, "leases {leases}: {answered} of {all} answered");
    }
}

/// A member that lost its store copies all data of the group, page by page.
#[test]
fn a_far_newcomer_copies_what_there_is() {
    let mut scenario = far(2, false);
    // Several pages.
    scenario.message_bytes_max = 4 << 10;
    let mut world = World::<Node>::new(scenario);
    world.run_for(Duration::from_secs(60));
    let gone = world.kill(4, false);
    world.run_for(Duration::from_secs(1));
    world.undo(gone);
    assert!(world.run_until_ready(Duration::from_secs(60)), "{:?}", world.failure());
}
