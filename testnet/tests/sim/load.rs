//! Groups move their boundaries until the load per member is about that of their neighbours, and then leave them (hazard 49).

use std::time::Duration;

use group::ballot::Term;
use node::Node;
use overlay::{Epoch, GroupId, KeyRange};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Load, Scenario, World};

/// Load of a group, as its leader knows it, in operations a minute.
#[derive(Debug)]
struct Asked {
    range: KeyRange,
    load: Option<u64>,
    born: (GroupId, Epoch),
    members: usize,
    terms: Vec<Term>,
}

fn asked(world: &World<Node>) -> Vec<Asked> {
    let groups = (0..world.hosts()).filter_map(|host| world.host(host)?.group());
    let of = |group: &group::Group| Asked {
        range: group.state().range,
        load: group.load().map(|cells| cells.iter().map(|cell| u64::from(*cell)).sum()),
        born: (group.state().id, group.state().born),
        members: group.state().members.len(),
        terms: group.state().division.iter().map(|part| part.term).collect(),
    };
    let mut all: Vec<Asked> = groups.filter(|group| group.log().leads()).map(of).collect();
    all.sort_by_key(|group| group.range.start());
    all
}

/// Returns the lower and the higher load per member of two neighbours, in operations an hour, where they differ most. The first group of
/// the ring is the neighbour of the last.
fn worst(all: &[Asked]) -> (u64, u64) {
    let load = |index: usize| {
        let group = &all[index % all.len()];
        group.load.expect("it has been counted for long enough") * 60 / group.members as u64
    };
    let pair = |index: usize| (load(index).min(load(index + 1)), load(index).max(load(index + 1)));
    (0..all.len()).map(pair).max_by(|one, other| (one.1 * other.0).cmp(&(other.1 * one.0))).expect("some")
}

fn births(all: &[Asked]) -> Vec<(GroupId, Epoch)> {
    all.iter().map(|group| group.born).collect()
}

/// Returns a scenario with clients that ask for many keys equally, all of them in the first of `part` parts of the ring.
fn scenario(seed: u64, hosts: usize, part: u128) -> Scenario {
    let mut scenario = Scenario { hosts, members: (3, 5), ..Scenario::calm(seed) };
    scenario.timing.resize_after = Duration::from_secs(2);
    scenario.load = Load { part, ..Load::even(12) };
    scenario
}

fn start(seed: u64, hosts: usize, part: u128) -> World<Node> {
    let mut world = World::<Node>::new(scenario(seed, hosts, part));
    assert!(world.run_until_ready(Duration::from_secs(60)), "{:?}", world.failure());
    world
}

#[test]
fn boundaries_go_where_the_load_is() {
    for_each_seed("--test sim load::boundaries_go", 1, |seed| {
        let mut world = start(seed, [8, 12, 14][seed as usize % 3], 8);
        world.run_for(Duration::from_secs(90));
        assert!(world.failure().is_none(), "{:?}", world.failure());
        let settled = asked(&world);
        let fit = settled.iter().all(|group| (3..=5).contains(&group.members));
        assert!(fit && settled.len() >= 2, "{settled:?}");
        world.run_for(Duration::from_secs(40));
        let after = asked(&world);
        assert_eq!(births(&after), births(&settled), "nothing more happens");
        let (least, most) = worst(&after);
        assert!(most * 5 < least * 8, "{least} and {most} an hour and member");
        assert!(world.run().is_ok(), "{:?}", world.failure());
    });
}

#[test]
fn nothing_moves_where_all_is_even() {
    for_each_seed("--test sim load::nothing_moves", 2, |seed| {
        let mut world = start(seed, [3, 8, 12][seed as usize % 3], 1);
        world.run_for(Duration::from_secs(40));
        let all = |world: &World<Node>| -> Vec<_> {
            asked(world).into_iter().map(|group| (group.born, group.terms)).collect()
        };
        let settled = all(&world);
        for _ in 0..6 {
            world.run_for(Duration::from_secs(10));
            assert_eq!(all(&world), settled);
        }
        assert!(world.run().is_ok(), "{:?}", world.failure());
    });
}

/// All load lies in an eighth of the group's range. In the end each member has an equal share of it, and the division stays.
#[test]
fn each_member_gets_its_share() {
    for_each_seed("--test sim load::each_member", 1, |seed| {
        let mut world = start(seed, [3, 4, 5][seed as usize % 3], 8);
        world.run_for(Duration::from_secs(80));
        assert!(world.failure().is_none(), "{:?}", world.failure());
        let terms = |world: &World<Node>| asked(world)[0].terms.clone();
        let settled = terms(&world);
        world.run_for(Duration::from_secs(40));
        assert_eq!(terms(&world), settled, "drawn anew for nothing");
        let own = |host| world.host(host).and_then(Node::group).and_then(group::Group::own_load).expect("it is known");
        let loads: Vec<u64> = (0..world.hosts()).map(own).collect();
        let all: u64 = loads.iter().sum();
        let most = loads.iter().max().expect("some");
        assert!(most * loads.len() as u64 * 5 <= all * 8, "{loads:?} a minute");
        assert!(world.run().is_ok(), "{:?}", world.failure());
    });
}
