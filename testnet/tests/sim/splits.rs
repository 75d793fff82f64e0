//! Groups that split by latency, by lifetime, and by cluster (Harmony §7.4-7.5).

use std::collections::BTreeSet;
use std::time::Duration;

use group::Group;
use node::Node;
use overlay::GroupId;
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Latency, Load, Scenario, World};

/// Sites of the papers, of which the first two are farthest apart.
const SITES: usize = 3;

fn group(world: &World<Node>, host: usize) -> Option<&Group> {
    world.host(host).and_then(Node::group)
}

/// Three machines at each of the papers' sites in one group of nine, one more than the limit, that divide members by this
/// policy. Each machine names its site as its cluster.
fn nine(seed: u64, policy: &str) -> World<Node> {
    let mut scenario = Scenario { hosts: 9, members: (4, 8), clusters: SITES, ..Scenario::calm(seed) };
    scenario.latency = Latency::PaperSites;
    scenario.timing.resize_after = Duration::from_secs(4);
    scenario.policies.choose("split", policy).expect("a policy of that name");
    scenario.load = Load { clients: 2, patience: Duration::from_secs(2), ..Load::default() };
    let mut world = World::<Node>::new(scenario);
    let members = |world: &World<Node>| group(world, 0).map_or(0, |group| group.state().members.len());
    while members(&world) < 9 {
        world.run_for(Duration::from_millis(100));
        assert!(world.now().0 < 60_000_000_000, "nine members, not {}", members(&world));
    }
    world
}

/// Returns the machines of each group once there are two.
fn halves(world: &mut World<Node>) -> Vec<BTreeSet<usize>> {
    loop {
        world.run_for(Duration::from_millis(100));
        let ids: BTreeSet<GroupId> = (0..9).filter_map(|host| Some(group(world, host)?.state().id)).collect();
        let of =
            |id: GroupId| (0..9).filter(|host| group(world, *host).is_some_and(|it| it.state().id == id)).collect();
        let halves: Vec<BTreeSet<usize>> = ids.into_iter().map(of).collect();
        // Sites that are far away learn of the split later.
        let agrees = |half: &BTreeSet<usize>| {
            half.iter().all(|host| group(world, *host).is_some_and(|it| it.state().members.len() == half.len()))
        };
        if halves.len() == 2 && halves.iter().all(agrees) && halves.iter().map(BTreeSet::len).sum::<usize>() == 9 {
            return halves;
        }
        assert!(world.now().0 < 120_000_000_000, "two groups, not {halves:?}");
    }
}

fn sites(half: &BTreeSet<usize>) -> BTreeSet<usize> {
    half.iter().map(|host| host % SITES).collect()
}

/// `p2p` parts the sites that are farthest apart. `multi-cluster` has each site in both halves.
#[test]
fn halves_are_by_distance_or_by_cluster() {
    for (policy, spans) in [("p2p", 2), ("multi-cluster", 3)] {
        for_each_seed("--test sim splits::halves_are", 2, |seed| {
            let mut world = nine(seed, policy);
            let halves = halves(&mut world);
            assert!(halves.iter().all(|half| half.len() >= 4 && sites(half).len() == spans), "{policy}: {halves:?}");
            let is_first_apart = halves.iter().all(|half| half.iter().any(|host| host % SITES == 0));
            assert_eq!(is_first_apart, policy == "multi-cluster", "{halves:?}");
            assert!(world.failure().is_none(), "{:?}", world.failure());
        });
    }
}

/// A leader learns the round trips between all other members from their heartbeats.
#[test]
fn the_leader_knows_all_round_trips() {
    for_each_seed("--test sim splits::the_leader_knows", 2, |seed| {
        let mut world = nine(seed, "p2p");
        world.run_for(Duration::from_secs(2));
        let leads = |host: &usize| group(&world, *host).is_some_and(|group| group.log().leads());
        let leader = (0..9).find(leads).and_then(|host| group(&world, host)).expect("one leads");
        let host = |index: usize| {
            let node = leader.state().nodes()[index];
            (0..9).find(|host| world.peer(*host) == node.peer).expect("a machine")
        };
        for (one, row) in leader.round_trips().iter().enumerate() {
            for (other, found) in row.iter().enumerate().filter(|(other, _)| *other != one) {
                let expected = 2 * Latency::PaperSites.between(host(one), host(other)).0;
                let found = found.expect("it is known");
                assert!(
                    found.abs_diff(expected) < Duration::from_millis(2),
                    "{one} and {other}: {found:?}, {expected:?}"
                );
            }
        }
    });
}
