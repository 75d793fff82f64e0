//! The member that agrees fastest with a majority comes to lead, and stays leader.

use std::time::Duration;

use node::Node;
use testnet::sim::harness::{expect_well, for_each_seed};
use testnet::sim::{Latency, Load, Scenario, World};

/// Returns the time of a message from a machine to a majority, the machine itself counted.
fn agreement(host: usize, hosts: usize) -> Duration {
    let one_way = |to| if to == host { Duration::ZERO } else { Latency::PaperSites.between(host, to).0 };
    let mut ways: Vec<Duration> = (0..hosts).map(one_way).collect();
    ways.sort_unstable();
    ways[hosts / 2]
}

fn leader(world: &World<Node>) -> Option<usize> {
    let leads = |host: &usize| world.host(*host).and_then(Node::group).is_some_and(|group| group.log().leads());
    (0..world.hosts()).find(leads)
}

fn scenario(seed: u64) -> Scenario {
    let mut scenario = Scenario { hosts: [4, 5, 7][seed as usize % 3], ..Scenario::calm(seed) };
    scenario.latency = Latency::PaperSites;
    scenario.members = (1, 1_000);
    scenario.timing.resize_after = Duration::from_secs(2);
    scenario.load = Load { patience: Duration::from_secs(2), ..Load::default() };
    scenario
}

#[test]
fn the_best_placed_comes_to_lead_and_stays() {
    for_each_seed("--test sim leading::the_best_placed", 9, |seed| {
        let mut world = World::<Node>::new(scenario(seed));
        assert!(world.run_until_ready(Duration::from_secs(30)), "{:?}", world.failure());
        world.run_for(Duration::from_secs(20));
        let hosts = world.hosts();
        let least = (0..hosts).map(|host| agreement(host, hosts)).min().expect("some");
        let settled = leader(&world).expect("somebody leads");
        assert!(agreement(settled, hosts) <= least + least / 4, "{settled} leads, at {:?}", agreement(settled, hosts));
        for _ in 0..20 {
            world.run_for(Duration::from_secs(1));
            assert_eq!(leader(&world), Some(settled), "it stays");
        }
        assert!(world.failure().is_none(), "{:?}", world.failure());
    });
}

/// The leader changes while clients work: each of them sees at most a wait.
#[test]
fn clients_see_nothing_of_it() {
    for_each_seed("--test sim leading::clients_see_nothing", 6, |seed| {
        let report = expect_well::<Node>(&Scenario { fault_time: Duration::from_secs(15), ..scenario(seed) });
        let failed = report.history.operations.iter().filter(|operation| operation.outcome.answer().is_none()).count();
        assert_eq!(failed, 0, "of {}", report.history.operations.len());
    });
}
