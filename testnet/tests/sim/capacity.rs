//! A member whose machine is slow is primary of little (Scatter §6.3).

use std::time::Duration;

use group::config::{Defect, Defects};
use node::{Durability, Node};
use testnet::sim::{Load, Scenario, World};

/// Index of the slow machine, and the factor of its service time.
const WEAK: (usize, u32) = (2, 8);
const HOSTS: usize = 5;

/// Results as clients and the network saw them once the group had settled.
#[derive(Debug)]
struct Seen {
    /// The 99th percentile of the duration of operations.
    p99: Duration,
    /// The part of the operations that each machine executed as a primary, in percent.
    shares: Vec<u64>,
    /// Divisions that were drawn after the group had settled.
    redrawn: bool,
}

fn scenario(seed: u64, defects: Defects) -> Scenario {
    let mut scenario = Scenario { hosts: HOSTS, members: (3, 9), defects, ..Scenario::calm(seed) };
    scenario.durability = Durability::Memory;
    scenario.service_time = Duration::from_micros(150);
    scenario.service_factors = (0..HOSTS).map(|host| if host == WEAK.0 { WEAK.1 } else { 1 }).collect();
    scenario.tell_busy = Some(Duration::from_secs(5));
    scenario.sweep_every = u64::MAX;
    scenario.load = Load::even(10);
    scenario
}

fn seen(seed: u64, defects: Defects) -> Seen {
    let mut world = World::<Node>::new(scenario(seed, defects));
    assert!(world.run_until_ready(Duration::from_secs(60)), "{:?}", world.failure());
    world.run_for(Duration::from_secs(75));
    let taken = |world: &World<Node>| -> Vec<u64> {
        (0..HOSTS).map(|host| world.host(host).map_or(0, Node::operations_taken)).collect()
    };
    let division =
        |world: &World<Node>| world.host(0).and_then(Node::group).map(|group| group.state().division.clone());
    let (before, drawn, since) = (taken(&world), division(&world), world.now());
    world.run_for(Duration::from_secs(25));
    assert!(world.failure().is_none(), "{:?}", world.failure());
    let executed: Vec<u64> = taken(&world).iter().zip(&before).map(|(now, before)| now - before).collect();
    let all = executed.iter().sum::<u64>();
    let counted = world.history().operations.iter().filter(|operation| operation.invoked.time >= since);
    let took = |operation: &testnet::history::Operation| {
        operation.completed.map(|completed| completed.time.since(operation.invoked.time))
    };
    let mut times: Vec<Duration> = counted.filter_map(took).collect();
    times.sort_unstable();
    Seen {
        p99: times[times.len() * 99 / 100],
        shares: executed.iter().map(|count| count * 100 / all).collect(),
        redrawn: division(&world) != drawn,
    }
}

/// The weak member gets about a quarter of each other member's share, operations take less time than without, and the division rests.
#[test]
fn a_weak_member_is_primary_of_little() {
    let with = seen(1, Defects::NONE);
    let without = seen(1, Defects::NONE.with(Defect::CapacityIgnored));
    let weak = |seen: &Seen| seen.shares[WEAK.0];
    assert!(weak(&with) <= 10 && weak(&without) >= 15, "{with:?}, and without {without:?}");
    assert!(with.p99 * 5 < without.p99 * 4, "{with:?}, and without {without:?}");
    assert!(!with.redrawn, "{with:?}");
}
