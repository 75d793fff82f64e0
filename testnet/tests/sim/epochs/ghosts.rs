//! A member that comes back after hours, with its store and its old clock, to a group that has removed it (hazard 27).

use std::time::Duration;

use bytes::Bytes;
use group::config::{Defect, Defects};
use group::op::{Answer, Op, Read};
use node::Node;
use overlay::NodeId;
use testnet::history::Outcome;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Load, Scenario, World};

use super::parts::*;

/// Number of times that all other members are replaced during the absence.
const ROUNDS: u32 = 2;

const HOUR: Duration = Duration::from_secs(3_600);

/// Kind of absence of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    /// Its process is frozen; the clock of the machine goes on.
    Frozen,
    /// The machine sleeps, and its clock with it.
    Asleep,
    /// The member runs, but its links are cut.
    CutOff,
    /// The member is dead, and comes back with its store.
    Dead,
}

/// Returns a scenario with two clients that pause for 2 s to 20 s between their operations.
fn drowsy(seed: u64, hosts: usize, leases: bool) -> Scenario {
    let think = (Duration::from_secs(2), Duration::from_secs(20));
    let load = Load { clients: 2, think, ..Load::default() };
    Scenario { load, leases, ..quiet(seed, hosts) }
}

fn node(world: &World<Node>, host: usize) -> NodeId {
    group(world, host).expect("it is in").me()
}

fn leave(world: &mut World<Node>, away: Away, ghost: usize) -> Option<usize> {
    match away {
        Away::Frozen => world.inject(FaultKind::Pause(Target::Host(ghost))),
        Away::Asleep => world.inject(FaultKind::Suspend(Target::Host(ghost))),
        Away::CutOff => world.inject(FaultKind::Isolate(Target::Host(ghost))),
        Away::Dead => world.kill(ghost, true),
    }
}

/// The founder goes away. All other members are replaced, one life after another, and each key that the founder knew is written
/// anew. The founder then comes back: it answers with nothing old, learns that it was removed, and is a member again under
/// another name.
fn comes_back_after(pause: Duration, seed: u64, away: Away, leases: bool, defects: Defects) {
    const GHOST: usize = 0;
    let hosts = 4;
    let mut world = formed(Scenario { defects, ..drowsy(seed, hosts, leases) });
    let begin = world.now();
    let keys: Vec<String> = (0..8).map(|index| format!("k{index}")).collect();
    for key in &keys {
        assert_eq!(world.tell(GHOST, key, set("old")), Outcome::Answered(Answer::Done));
    }
    let (before, known) = (epoch(&world), group(&world, GHOST).expect("it is in").state().nodes());
    let me = node(&world, GHOST);
    let gone = leave(&mut world, away, GHOST);
    let rest = others(&world, &[GHOST]);
    wait(&mut world, HEALED, "it is put out", |world| {
        !group(world, 1).is_some_and(|group| group.state().is_member(me))
    });
    for _ in 0..ROUNDS {
        for host in rest.clone() {
            wait_whole(&mut world, &rest, HEALED);
            let lost = world.kill(host, false);
            world.run_for(Duration::from_secs(1));
            world.undo(lost);
        }
        wait_whole(&mut world, &rest, HEALED);
        serves(&mut world, &rest);
        world.run_for(pause);
        assert!(world.failure().is_none(), "{}", failure(&world));
    }
    for key in &keys {
        assert_eq!(world.tell(1, key, set("new")), Outcome::Answered(Answer::Done));
    }
    let members = group(&world, 1).expect("it is in").state().nodes();
    assert!(known.iter().all(|node| !members.contains(node)), "all are replaced: {members:?}");
    let epochs = epoch(&world).0 - before.0;
    world.undo(gone);
    let (answers, refusals) = ask_all(&mut world, GHOST, &keys);
    let all = others(&world, &[]);
    wait_whole(&mut world, &all, HEALED);
    assert!(node(&world, GHOST) > me, "in another life");
    println!("{away:?}, leases {leases}: {epochs} epochs; its first words: {answers} answers, {refusals} refusals");
    was_disturbed(&mut world, begin);
    ends_well(world);
}

/// Asks for all keys at once and again, from the moment at which the member is back. No answer may be old.
fn ask_all(world: &mut World<Node>, host: usize, keys: &[String]) -> (u32, u32) {
    let (mut answers, mut refusals) = (0, 0);
    for _ in 0..40 {
        let asked: Vec<usize> = keys.iter().map(|key| world.ask_host(host, key, Op::Read(Read::Value))).collect();
        world.run_for(Duration::from_millis(100));
        for (key, index) in keys.iter().zip(asked) {
            match world.outcome(index) {
                Some(Outcome::Answered(answer)) => {
                    assert_eq!(*answer, Answer::Value(Some(Bytes::from_static(b"new"))), "{key} is new");
                    answers += 1;
                }
                Some(_) => refusals += 1,
                None => {}
            }
        }
        assert!(world.failure().is_none(), "{}", failure(world));
    }
    (answers, refusals)
}

#[test]
fn who_was_away_for_hours_says_nothing_old() {
    comes_back_after(HOUR, 1, Away::Frozen, true, Defects::NONE);
    comes_back_after(HOUR / 2, 1, Away::CutOff, false, Defects::NONE);
}

#[test]
fn who_was_away_says_nothing_old() {
    for_each_seed("who_was_away_says_nothing_old", 2, |seed| {
        for away in [Away::Frozen, Away::Asleep, Away::CutOff, Away::Dead] {
            for leases in [false, true] {
                comes_back_after(Duration::ZERO, seed, away, leases, Defects::NONE);
            }
        }
    });
}

#[test]
fn leases_do_not_sleep() {
    let script = |seed, defects| comes_back_after(Duration::ZERO, seed, Away::Asleep, true, defects);
    is_needed(Defect::LeaseSleeps, "is new", 2, script);
}

#[test]
fn who_is_out_must_learn_it() {
    // The search of a member for the successors of its group is left out, too.
    let script = |seed, defects: Defects| {
        comes_back_after(Duration::ZERO, seed, Away::CutOff, false, defects.with(Defect::SuccessorsUnsought));
    };
    is_needed(Defect::NoFence, "not within", 1, script);
}
