//! A lost group is declared lost; when it comes back after all, it serves no client (hazard 40).
//!
//! Its acknowledged writes are lost by definition, so these runs are marked: a history that reaches over the loss is not
//! judged. The other properties must hold after every step: one owner of each place, one outcome of each transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use group::Group;
use group::control::state::Loss;
use group::op::{Answer, Condition, Expiry, Op};
use node::Node;
use overlay::time::WallMillis;
use overlay::{GroupId, Key};
use testnet::history::Outcome;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Host, Load, ProcessState, Scenario, World};

const HOSTS: usize = 12;

/// Returns a ring of three groups or more, of three to five members each.
fn ring(seed: u64) -> World<Node> {
    let mut scenario = Scenario { hosts: HOSTS, members: (3, 5), ..Scenario::calm(seed) };
    scenario.timing.resize_after = Duration::from_millis(500);
    scenario.load = Load { clients: 3, operations_max: 300, patience: Duration::from_secs(1), ..Load::default() };
    let mut world = World::<Node>::new(scenario);
    run_until(&mut world, "three groups", |world| {
        groups(world).len() >= 3 && (0..HOSTS).all(|host| is_calm(world, host))
    });
    world.run_for(Duration::from_secs(3));
    world
}

fn group(world: &World<Node>, host: usize) -> Option<&Group> {
    world.host(host)?.group()
}

fn groups(world: &World<Node>) -> BTreeSet<GroupId> {
    (0..HOSTS).filter_map(|host| group(world, host)).map(|group| group.state().id).collect()
}

fn is_calm(world: &World<Node>, host: usize) -> bool {
    let calm = |node: &Node| {
        node.is_settled()
            && node.groups().all(|group| group.state().is_settled() && group.state().transactions.is_calm())
    };
    world.state(host) == ProcessState::Running && world.host(host).is_some_and(calm)
}

fn run_until(world: &mut World<Node>, what: &str, until: impl Fn(&World<Node>) -> bool) {
    let end = world.now() + Duration::from_secs(60);
    while !until(world) {
        assert!(world.now() < end, "not within 60 s: {what}\n{}", standing(world));
        world.run_for(Duration::from_millis(50));
        assert!(world.failure().is_none(), "{}", world.failure().expect("just seen"));
    }
}

fn standing(world: &World<Node>) -> String {
    let line =
        |host| format!("{host}: {:?} {}", world.state(host), world.host(host).map_or("-".into(), Host::describe));
    (0..HOSTS).map(line).collect::<Vec<_>>().join("\n")
}

fn losses(world: &World<Node>, host: usize) -> Vec<Loss> {
    group(world, host).map_or_else(Vec::new, |group| group.state().losses.clone())
}

/// Returns a key that lies in a lost range.
fn key_in(loss: &Loss) -> String {
    let names = (0..).map(|n| format!("lost-{n}"));
    let lies = |name: &String| Key::new(name.as_bytes()).is_ok_and(|key| loss.range.contains(key.point()));
    names.into_iter().find(lies).expect("there are many")
}

fn write(world: &mut World<Node>, host: usize, key: &str, value: &'static str) {
    let op = Op::Set {
        value: Bytes::from_static(value.as_bytes()),
        condition: Condition::Always,
        expiry: Expiry::Clear,
        get: false,
    };
    for _ in 0..100 {
        if matches!(world.tell(host, key, op.clone()), Outcome::Answered(_)) {
            return;
        }
        world.run_for(Duration::from_millis(50));
    }
    panic!("nobody takes a write of {key}");
}

fn reads(world: &mut World<Node>, host: usize, key: &str) -> Option<Bytes> {
    match world.read_within(host, key, Duration::from_secs(10)) {
        Some(Outcome::Answered(Answer::Value(value))) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_group_that_returns_serves_nobody() {
    for_each_seed("--test sim repair::a_lost_group", 12, |seed| {
        let mut world = ring(seed);
        let behind = (0..HOSTS).find(|host| group(&world, *host).is_some_and(|group| group.log().leads()));
        let behind = behind.expect("somebody leads");
        let state = group(&world, behind).expect("it leads").state();
        let lost = state.transactions.predecessor().expect("there are three").id;
        let members: Vec<usize> =
            (0..HOSTS).filter(|host| group(&world, *host).is_some_and(|group| group.state().id == lost)).collect();
        let range = group(&world, members[0]).expect("it is in it").state().range;
        let key = key_in(&Loss { groups: vec![lost], range, epoch: state.epoch, declared: WallMillis(0) });
        write(&mut world, behind, &key, "old");
        // A minority may live.
        let dead = members.len() / 2 + 1 + seed as usize % (members.len() / 2 + 1);
        let down: Vec<_> = members[..dead.min(members.len())].iter().map(|host| world.kill(*host, true)).collect();
        world.run_for(Duration::from_secs(1));
        world.inject(FaultKind::Repair(Target::Host(behind)));
        run_until(&mut world, "the range is taken over", |world| losses(world, behind).len() == 1);
        let loss = losses(&world, behind)[0].clone();
        assert_eq!((&loss.groups, loss.range), (&vec![lost], range));
        assert_eq!(reads(&mut world, behind, &key), None, "what was there is lost");
        write(&mut world, behind, &key, "new");

        down.into_iter().for_each(|id| world.undo(id));
        world.heal();
        run_until(&mut world, "all that return know of it", |world| {
            members.iter().all(|host| group(world, *host).is_some_and(|group| !loss.concerns(group.state())))
                && (0..HOSTS).all(|host| is_calm(world, host))
        });
        for host in (0..HOSTS).filter(|host| world.state(*host) == ProcessState::Running).collect::<Vec<_>>() {
            assert_eq!(reads(&mut world, host, &key).as_deref(), Some(&b"new"[..]), "through {host}");
        }
        world.converge();
        assert!(world.failure().is_none(), "{}", world.failure().expect("just seen"));
        let set_aside = world.marks.count("machine: what it held was declared lost");
        assert!(set_aside as usize >= members.len(), "{set_aside} of {}", members.len());
    });
}
