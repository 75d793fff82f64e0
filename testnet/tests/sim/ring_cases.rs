//! Cases of rings that have a name: cases that other systems leave out of their tests, and a group that is away for many
//! lifetimes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use node::Node;
use overlay::NodeId;
use testnet::rng::Rng;
use testnet::sim::fault::{Fault, FaultKind, Target};
use testnet::sim::harness::{expect_well, for_each_seed};
use testnet::sim::{Host, Load, ProcessState, Scenario, World};

/// Returns a scenario with groups of three to five members, which form by themselves.
fn ring(seed: u64, hosts: usize) -> Scenario {
    let mut scenario = Scenario { hosts, members: (3, 5), ..Scenario::calm(seed) };
    scenario.timing.resize_after = Duration::from_millis(500);
    scenario.load = Load { patience: Duration::from_secs(1), ..Load::default() };
    scenario
}

/// Returns faults that split the network into two parts, different ones each time, which do not hear each other. Each split
/// lasts for `lasts`.
fn splits(rng: &mut Rng, hosts: usize, lasts: Duration, until: Duration) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut at = Duration::from_secs(6);
    while at + lasts < until {
        // At least one machine is on each side.
        let side = rng.between(1, (1 << hosts) - 2);
        faults.push(Fault { at, kind: FaultKind::Split(side), lasts });
        at += lasts + Duration::from_secs(2);
    }
    faults
}

/// A case that Scalaris has, and leaves out of its tests: the network falls apart while clients write. Neither side forms a
/// ring of its own, and no client reads a wrong value.
#[test]
fn partition_while_writing() {
    for_each_seed("--test sim ring_cases::partition_while_writing", 6, |seed| {
        let mut rng = Rng::new(seed, "partition");
        let hosts = rng.between(6, 12) as usize;
        let mut scenario = ring(seed, hosts);
        scenario.fault_time = Duration::from_secs(40);
        let lasts = Duration::from_millis(rng.between(500, 8_000));
        scenario.faults = splits(&mut rng, hosts, lasts, scenario.fault_time);
        let report = expect_well::<Node>(&scenario);
        assert!(report.marks.count("fault: split") > 2, "it never fell apart");
    });
}

/// Another such case: the network falls apart while groups split, merge, and move members and boundaries.
#[test]
fn ring_maintenance_under_a_split() {
    let begun = Cell::new(0);
    for_each_seed("--test sim ring_cases::ring_maintenance_under_a_split", 6, |seed| {
        let mut rng = Rng::new(seed, "maintenance");
        let hosts = rng.between(6, 10) as usize;
        let mut scenario = ring(seed, hosts);
        scenario.members = *rng.pick(&[(1, 1_000), (2, 4), (3, 5)]);
        scenario.fault_time = Duration::from_secs(30);
        let lasts = Duration::from_millis(rng.between(200, 5_000));
        scenario.faults = splits(&mut rng, hosts, lasts, scenario.fault_time);
        for n in 0..100 {
            let kind = FaultKind::Reform(Target::Host(rng.below(hosts as u64) as usize), rng.below(u64::MAX));
            let at = Duration::from_secs(3) + Duration::from_millis(260) * n;
            scenario.faults.push(Fault { at, kind, lasts: Duration::from_millis(5) });
        }
        scenario.faults.sort_by_key(|fault| fault.at);
        begun.set(begun.get() + expect_well::<Node>(&scenario).marks.count("fault: a group becomes another"));
    });
    assert!(begun.get() > 50, "hardly anything happens: {}", begun.get());
}

/// Returns the machines in the group of this machine, where all of them are known.
fn group_of(world: &World<Node>, host: usize) -> Option<BTreeSet<usize>> {
    let state = world.host(host)?.group()?.state();
    let peers: Vec<_> = state.members.iter().map(|member| member.node).collect();
    let of = |node| (0..world.hosts()).find(|host| world.host(*host).is_some_and(|host| host.id() == node));
    peers.into_iter().map(of).collect()
}

fn is_calm(world: &World<Node>, host: usize) -> bool {
    world.state(host) == ProcessState::Running
        && world.host(host).is_some_and(|node| node.owned().is_ok() && node.is_whole())
}

/// Returns whether the group of this machine, and each possible successor of the group, can do without the data of this
/// machine.
fn is_spare(world: &World<Node>, host: usize) -> bool {
    let Some(node) = world.host(host).filter(|_| is_calm(world, host)) else { return false };
    let hosts =
        || (0..world.hosts()).filter(|other| *other != host).filter_map(|other| Some((other, world.host(other)?)));
    let alive: Vec<NodeId> = hosts().map(|(_, other)| other.id()).collect();
    let members = node.group().map_or_else(Vec::new, |group| group.state().nodes());
    let well = hosts().filter(|(other, process)| members.contains(&process.id()) && is_calm(world, *other)).count();
    well >= 2 && 2 * well > members.len() && !hosts().any(|(_, other)| Host::depends_on(other, node, &alive))
}

fn run_until(world: &mut World<Node>, what: &str, until: impl Fn(&World<Node>) -> bool) {
    let end = world.now() + Duration::from_secs(60);
    while !until(world) {
        assert!(world.now() < end, "not within 60 s: {what}\n{}", standing(world));
        world.run_for(Duration::from_millis(100));
        assert!(world.failure().is_none(), "{}", world.failure().expect("just seen"));
    }
}

fn standing(world: &World<Node>) -> String {
    let line =
        |host| format!("{host}: {:?} {}", world.state(host), world.host(host).map_or("-".into(), Host::describe));
    (0..world.hosts()).map(line).collect::<Vec<_>>().join("\n")
}

/// All members of a group die at once. While they are gone, each of their neighbours loses all data and comes back as another
/// node, ten times over. So a member that returns knows no node that is still there. The group then goes on with its data, and
/// the ring closes.
#[test]
fn a_group_that_was_killed_keeps_its_data_for_ten_lifetimes() {
    const LIFETIMES: usize = 10;
    for_each_seed("--test sim ring_cases::a_group_that_was_killed", 4, |seed| {
        let mut scenario = ring(seed, 12);
        scenario.load = Load { clients: 3, operations_max: 6_000, ..scenario.load };
        let mut world = World::<Node>::new(scenario);
        run_until(&mut world, "three groups", |world| {
            let groups: BTreeSet<_> = (0..12).filter_map(|host| group_of(world, host)).collect();
            groups.len() >= 3 && (0..12).all(|host| is_calm(world, host))
        });
        let killed = group_of(&world, seed as usize % 12).expect("it is in one");
        let down: Vec<_> = killed.iter().map(|host| world.kill(*host, true)).collect();
        let rest: Vec<usize> = (0..12).filter(|host| !killed.contains(host)).collect();
        let mut lives: BTreeMap<usize, usize> = rest.iter().map(|host| (*host, 0)).collect();
        while lives.values().any(|lived| *lived < LIFETIMES) {
            run_until(&mut world, "somebody can be spared", |world| rest.iter().any(|host| is_spare(world, *host)));
            let spare = lives.iter_mut().filter(|(host, _)| is_spare(&world, **host));
            let (host, lived) = spare.min_by_key(|(_, lived)| **lived).expect("just seen");
            *lived += 1;
            let gone = world.kill(*host, false);
            world.run_for(Duration::from_millis(100));
            world.undo(gone);
        }
        down.into_iter().for_each(|id| world.undo(id));
        world.heal();
        world.run_for(Duration::from_secs(5));
        world.converge();
        world.judge();
        assert!(world.failure().is_none(), "{}\n{}", world.failure().expect("just seen"), standing(&world));
    });
}
