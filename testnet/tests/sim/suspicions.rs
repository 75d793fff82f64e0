//! False suspicion (hazard 50): bad links and overload that kill no process cost a group at most a third of its members, and the
//! group serves again soon after they are over.

use std::collections::BTreeSet;
use std::time::Duration;

use node::Node;
use overlay::NodeId;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Scenario, World};

const HOSTS: usize = 9;
const LASTS: Duration = Duration::from_secs(60);

/// Nine peers in one group, a quarter busy with the clients' operations.
fn busy(seed: u64) -> Scenario {
    let mut scenario = Scenario { hosts: HOSTS, ..Scenario::calm(seed) };
    scenario.service_time = Duration::from_millis(2);
    scenario.load.think = (Duration::from_millis(50), Duration::from_millis(150));
    scenario
}

fn members(world: &World<Node>) -> BTreeSet<NodeId> {
    let states = (0..HOSTS).filter_map(|host| Some(world.host(host)?.group()?.state()));
    states.max_by_key(|state| state.epoch).map_or(BTreeSet::new(), |state| state.nodes().into_iter().collect())
}

/// Returns how many operations have been answered.
fn answered(world: &World<Node>) -> usize {
    world.history().operations.iter().filter(|operation| operation.outcome.answer().is_some()).count()
}

/// Runs `kind` for a minute: returns how many of the first members were removed, and how long the group did not serve afterwards.
fn suffers(seed: u64, kind: FaultKind) -> (usize, Duration) {
    let mut world: World<Node> = World::new(busy(seed));
    world.run_for(Duration::from_secs(20));
    let before = members(&world);
    assert_eq!(before.len(), HOSTS, "seed {seed}");
    let fault = world.inject(kind);
    world.run_for(LASTS);
    let removed = before.difference(&members(&world)).count();
    world.undo(fault);
    let (known, step) = (answered(&world), Duration::from_millis(100));
    let mut silent = Duration::ZERO;
    while answered(&world) < known + 100 && silent < Duration::from_secs(60) {
        world.run_for(step);
        silent += step;
    }
    world.run_for(Duration::from_secs(60));
    assert_eq!(members(&world).len(), HOSTS, "seed {seed}: all are members again");
    assert!(world.failure().is_none(), "seed {seed}: {}", world.failure().expect("just seen"));
    (removed, silent)
}

/// At most a third of the group is removed, and the group serves within ten seconds.
fn outlives(test: &str, seeds: u64, kinds: &[FaultKind]) {
    for_each_seed(test, seeds, |seed| {
        for kind in kinds {
            let (removed, silent) = suffers(seed, *kind);
            println!("seed {seed}, {kind:?}: {removed} removed, served again after {silent:?}");
            assert!(removed <= HOSTS / 3, "seed {seed}, {kind:?}: {removed} removed");
            assert!(silent <= Duration::from_secs(10), "seed {seed}, {kind:?}: served again after {silent:?}");
        }
    });
}

/// All machines need ten times as long for each input, which is more than they have time for.
#[test]
fn all_peers_ten_times_slower() {
    outlives("all_peers_ten_times_slower", 1, &[FaultKind::Slow(10)]);
}

/// The leader hears all members and no member hears the leader; then the other way round.
#[test]
fn one_way_loss_at_a_leader() {
    outlives("one_way_loss_at_a_leader", 1, &[FaultKind::Mute(Target::Leader), FaultKind::Deafen(Target::Leader)]);
}

/// Half of all frames from and to the leader are lost.
#[test]
fn half_of_the_frames_of_a_leader_are_lost() {
    outlives("half_of_the_frames_of_a_leader_are_lost", 1, &[FaultKind::Lossy(Target::Leader, 500)]);
}
