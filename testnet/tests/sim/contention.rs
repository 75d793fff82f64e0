//! All groups of a ring begin transactions at the same moment, and stand in each other's way (hazard 34; Scatter §4.3, Figure
//! 4). Each time at least one of them succeeds, and soon all is quiet.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use group::Group;
use node::{Durability, Node};
use overlay::{Epoch, GroupId};
use testnet::rng::Rng;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Latency, Load, Scenario, World};

/// Upper limit of each wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time after which groups know their neighbours again.
const CALM: Duration = Duration::from_secs(4);
/// Number of groups of three members in the ring.
const GROUPS: usize = 5;
const ROUNDS: usize = 4;

#[test]
fn of_all_who_propose_at_once_one_succeeds_each_round() {
    let (contended, gave_way) = (Cell::new(0), Cell::new(0));
    for_each_seed("--test sim contention::of_all_who_propose_at_once", 12, |seed| {
        let mut rng = Rng::new(seed, "contention");
        let mut world = five_groups(seed, &mut rng);
        for round in 0..ROUNDS {
            let leaders = leaders(&world);
            if leaders.len() < 3 {
                break;
            }
            let before = are(&world);
            let begun = propose_all(&mut world, &mut rng, leaders);
            let born = run_until_quiet(&mut world, &before);
            assert!(begun == 0 || born > 0, "of {begun} begun in round {round} none was committed");
            contended.set(contended.get() + usize::from(begun > 1));
            // A committed transaction makes one group another, or two.
            gave_way.set(gave_way.get() + begun.saturating_sub(born));
        }
    });
    if std::env::var_os("SCATTER_SEED").is_none() {
        println!("{} contended rounds, {} gave way", contended.get(), gave_way.get());
        assert!(contended.get() > 24 && gave_way.get() > 24, "hardly anybody stands in anybody's way");
    }
}

fn five_groups(seed: u64, rng: &mut Rng) -> World<Node> {
    let jitter = Duration::from_micros(rng.below(400));
    let mut scenario = Scenario {
        hosts: 3 * GROUPS,
        durability: if rng.per_mille(500) { Durability::Memory } else { Durability::Sync },
        latency: if rng.per_mille(200) {
            Latency::ThreeSites
        } else {
            Latency::Uniform(Duration::from_micros(150), jitter)
        },
        members: (1, 1_000),
        load: Load { clients: 2, operations_max: 2_000, patience: Duration::from_secs(3), ..Load::default() },
        ..Scenario::calm(seed)
    };
    // Only this test begins transactions.
    scenario.timing.resize_after = PATIENCE * 100;
    let mut world = World::<Node>::new(scenario);
    assert!(world.run_until_ready(PATIENCE), "{:?}", world.failure());
    world.run_for(CALM);
    for groups in 1..GROUPS {
        let size = 3 * (GROUPS - groups + 1);
        let is_meant = |chance: u64| chance % 5 < 2 && 1 + (chance >> 8) as usize % size == 3;
        let chance = std::iter::repeat_with(|| rng.bits()).find(|chance| is_meant(*chance)).expect("there are some");
        let before = are(&world);
        let large = |world: &World<Node>, host: &usize| {
            own(world, *host).is_some_and(|group| group.log().leads() && group.state().members.len() == size)
        };
        let end = world.now() + PATIENCE;
        while are(&world) == before {
            assert!(world.now() < end, "the ring does not come to be");
            if let Some(host) = (0..world.hosts()).find(|host| large(&world, host)) {
                let _ = world.inject(FaultKind::Reform(Target::Host(host), chance));
            }
            world.run_for(Duration::from_millis(500));
        }
        world.run_for(CALM);
    }
    assert_eq!(leaders(&world).len(), GROUPS);
    world
}

/// Has all leaders propose a transaction, within a few message delays of each other. Returns the number of transactions that
/// have begun.
fn propose_all(world: &mut World<Node>, rng: &mut Rng, mut leaders: Vec<usize>) -> usize {
    let begun = |world: &World<Node>| world.marks.count("fault: a group becomes another") as usize;
    let before = begun(world);
    while !leaders.is_empty() {
        let host = leaders.swap_remove(rng.below(leaders.len() as u64) as usize);
        let _ = world.inject(FaultKind::Reform(Target::Host(host), rng.bits()));
        if rng.per_mille(500) {
            world.run_for(Duration::from_micros(rng.below(1_000)));
        }
    }
    begun(world) - before
}

/// Runs until no transaction is open anywhere, and no lock is left. Returns the number of groups that did not exist before.
fn run_until_quiet(world: &mut World<Node>, before: &BTreeSet<(GroupId, Epoch)>) -> usize {
    let end = world.now() + PATIENCE;
    let is_quiet =
        |group: &Group| group.state().transactions.is_calm() && group.state().transactions.decided().is_empty();
    loop {
        // A proposal of a moment ago is in the log by then.
        world.run_for(Duration::from_millis(500));
        assert!(world.failure().is_none(), "{:?}", world.failure());
        if groups(world).all(is_quiet) {
            break;
        }
        assert!(world.now() < end, "a transaction is open for longer than {PATIENCE:?}");
    }
    let born = are(world).difference(before).count();
    world.run_for(CALM);
    born
}

fn own(world: &World<Node>, host: usize) -> Option<&Group> {
    world.host(host)?.group()
}

fn groups(world: &World<Node>) -> impl Iterator<Item = &Group> {
    (0..world.hosts()).filter_map(|host| world.host(host)).flat_map(Node::groups)
}

fn leaders(world: &World<Node>) -> Vec<usize> {
    (0..world.hosts()).filter(|host| own(world, *host).is_some_and(|group| group.log().leads())).collect()
}

/// Returns the current groups, each with the epoch of its birth.
fn are(world: &World<Node>) -> BTreeSet<(GroupId, Epoch)> {
    groups(world).map(|group| (group.state().id, group.state().born)).collect()
}
