//! Each rule of the protocol that can be left out is missed: some check finds the defect within a bounded number of seeds. In
//! the very same runs with the rule in place, the checks find nothing.

use std::time::Duration;

use group::config::{Defect, Defects};
use group::op::{Op, Read};
use node::{Node, Timing};
use overlay::Key;
use testnet::checkers::Failure;
use testnet::sim::fault::Target::{Host, Primary};
use testnet::sim::fault::{FaultKind, Mix, target};
use testnet::sim::harness::is_found;
use testnet::sim::script::set;
use testnet::sim::{Load, Noise, Scenario, World};

/// Properties of the clients' histories.
const HISTORY: [&str; 5] = ["I4 linearizable", "I5 durable", "I6 at most once", "I7 no dirty read", "I8 settled"];

/// Properties that break where clients or replicas show two values in one place.
const VALUES: [&str; 9] = [
    "I1 one value",
    "I4 linearizable",
    "I5 durable",
    "I6 at most once",
    "I7 no dirty read",
    "I8 settled",
    "PTO2 integrity",
    "PTO5 total order",
    "panic",
];

/// Hazard 1.
#[test]
fn amnesia() {
    let mix = Mix::of(&[(|rng, n| FaultKind::Crash(target(rng, n)), 2), (|_, _| FaultKind::CrashAll, 1)]);
    is_found(
        Defect::Amnesia,
        &[
            "I1 one value",
            "I4 linearizable",
            "I5 durable",
            "I6 at most once",
            "I12 only up",
            "PTO5 total order",
            "panic",
        ],
        20,
        |seed| Scenario::of(seed, 3, &mix),
    );
}

/// Hazard 5: an acceptor sees two values under one ballot.
#[test]
fn ballot_reuse() {
    is_found(Defect::BallotReuse, &["panic", "I1 one value"], 20, Scenario::from_seed);
}

/// Hazard 7.
#[test]
fn promise_ignored() {
    is_found(Defect::PromiseIgnored, &["I12 only up", "I1 one value", "I4 linearizable"], 20, Scenario::from_seed);
}

/// Hazard 9.
#[test]
fn two_in_flight() {
    is_found(Defect::TwoInFlight, &VALUES, 20, Scenario::from_seed);
}

/// A lost message lets later writes overtake those that it carried.
#[test]
fn overtaking() {
    is_found(Defect::Overtaking, &["PTO3 partition order"], 20, |seed| Scenario {
        coarse: true,
        ..Scenario::from_seed(seed)
    });
}

/// Hazard 10: a store that is slow to sync keeps values in flight for long, and loses them when all members crash.
#[test]
fn dirty_read() {
    let mix = Mix::of(&[(|_, _| FaultKind::CrashAll, 1), (|_, _| FaultKind::Crash(Primary), 2)]);
    is_found(Defect::DirtyRead, &HISTORY, 20, |seed| {
        let sync_time = (Duration::from_millis(20), Duration::from_millis(80));
        let load = Load { hot_keys: 1, cold_keys: 1, clients: 10, families: [1, 1, 1, 0, 0, 0], ..Load::default() };
        Scenario { sync_time, load, ..Scenario::of(seed, 3, &mix) }
    });
}

/// Hazard 11.
#[test]
fn void_comes_back() {
    is_found(Defect::VoidComesBack, &VALUES, 20, Scenario::from_seed);
}

/// Hazard 12.
#[test]
fn no_ids() {
    is_found(Defect::NoIds, &["I4 linearizable", "I6 at most once", "PTO2 integrity"], 20, lost_answers);
}

/// Hazard 45.
#[test]
fn forget_ids() {
    is_found(Defect::ForgetIds, &["I4 linearizable", "I6 at most once", "PTO2 integrity"], 20, lost_answers);
}

/// Ids that have left a record for completion records beside it.
#[test]
fn completions_unread() {
    is_found(Defect::CompletionsUnread, &["I4 linearizable", "I6 at most once", "PTO2 integrity"], 20, lost_answers);
}

fn lost_answers(seed: u64) -> Scenario {
    let mix = Mix::of(&[
        (|_, _| FaultKind::Noise(Noise { loss: 200, duplication: 100, reordering: 100 }), 4),
        (|rng, n| FaultKind::Reset(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 1),
    ]);
    let load =
        Load { once: 1_000, families: [1, 3, 3, 1, 0, 0], patience: Duration::from_millis(400), ..Load::default() };
    Scenario { load, ..Scenario::of(seed, 3, &mix) }
}

/// Hazard 13.
#[test]
fn trust_own_copy() {
    is_found(Defect::TrustOwnCopy, &VALUES, 20, Scenario::from_seed);
}

/// Hazard 15.
#[test]
fn stale_read() {
    is_found(Defect::StaleRead, &HISTORY, 60, |seed| cut_off(seed, false));
}

/// Hazard 16: leases that outlast suspicion.
#[test]
fn lease_from_reply() {
    is_found(Defect::LeaseFromReply, &["I13 leases exclude", "I4 linearizable", "I5 durable"], 20, |seed| Scenario {
        timing: quick(),
        ..cut_off(seed, true)
    });
}

fn cut_off(seed: u64, leases: bool) -> Scenario {
    let mix = Mix::of(&[
        (|_, _| FaultKind::Deafen(Primary), 2),
        (|_, _| FaultKind::Mute(Primary), 2),
        (|_, _| FaultKind::Isolate(Primary), 1),
        (|rng, n| FaultKind::Clog(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 2),
    ]);
    let load = Load { reads: 800, cold_keys: 1, ..Load::default() };
    Scenario { leases, load, ..Scenario::of(seed, 3, &mix) }
}

/// Timing with which suspicion comes well before a lease is over.
fn quick() -> Timing {
    Timing { heartbeat: Duration::from_millis(100), lease: Duration::from_secs(2), ..Timing::default() }
}

/// Runs a schedule written by hand, with the defect and without it, until the defect shows. Prints the failure.
fn is_shown(defect: Defect, properties: &[&str], seeds: u64, schedule: impl Fn(u64, Defects) -> Option<Failure>) {
    for seed in 0..seeds {
        let failure = schedule(seed, Defects::NONE);
        assert!(failure.is_none(), "seed {seed} fails without {defect:?}: {}", failure.expect("just seen"));
        if let Some(failure) = schedule(seed, Defects::NONE.with(defect)) {
            println!("{defect:?} is found at seed {seed}: {failure}");
            assert!(properties.contains(&failure.property), "found, but as {}", failure.property);
            return;
        }
    }
    panic!("{defect:?} is not found within {seeds} seeds");
}

const SOON: Duration = Duration::from_secs(30);

/// Returns a group of three that serves, with a value that all members have. No client asks for anything else.
fn quiet(scenario: Scenario) -> World<Node> {
    let mut world = World::new(Scenario { load: Load { clients: 0, ..Load::default() }, ..scenario });
    assert!(world.run_until_ready(SOON), "{:?}", world.failure());
    // Long enough for the range to be divided evenly.
    world.run_for(Duration::from_secs(5));
    world
}

/// Repeats the operation until it is done.
fn tell_until_done(world: &mut World<Node>, host: usize, key: &str, op: &Op) {
    for _ in 0..20 {
        if world.tell(host, key, op.clone()).answer().is_some() {
            return;
        }
        world.run_for(Duration::from_millis(50));
    }
    panic!("{key} was never written: {:?}", world.failure());
}

/// Returns the machine whose node leads, and the machine of the key's primary.
fn leader_and_primary(world: &World<Node>, key: &str) -> (usize, usize) {
    let group = world.host(0).and_then(Node::group).expect("it serves");
    let point = Key::new(key.as_bytes()).expect("short").point();
    let primary = group.primary_of(point).expect("the whole ring is owned").node.peer;
    let leader = group.leader().expect("somebody leads").peer;
    let host = |peer| (0..3).find(|host| world.peer(*host) == peer).expect("one of three");
    (host(leader), host(primary))
}

/// Hazard 17: the holder of a lease sleeps; other members take over and write. The holder wakes, cut off, and a client asks it.
#[test]
fn lease_sleeps() {
    is_shown(Defect::LeaseSleeps, &["I4 linearizable", "I5 durable"], 5, |seed, defects| {
        let mut world = quiet(Scenario { leases: true, timing: quick(), defects, ..Scenario::calm(seed) });
        tell_until_done(&mut world, 0, "k", &set("old"));
        let (_, primary) = leader_and_primary(&world, "k");
        assert!(world.tell(primary, "k", Op::Read(Read::Value)).answer().is_some());
        let asleep = world.inject(FaultKind::Suspend(Host(primary)));
        let cut = world.inject(FaultKind::Isolate(Host(primary)));
        world.run_for(Duration::from_secs(4));
        tell_until_done(&mut world, (primary + 1) % 3, "k", &set("new"));
        world.undo(asleep);
        world.tell(primary, "k", Op::Read(Read::Value));
        world.undo(cut);
        world.converge();
        world.judge();
        world.failure().cloned()
    });
}

/// Hazard 18: a primary's question is answered, and the answer is held up until the primary's term has ended. Meanwhile the
/// primary was asked again.
#[test]
fn recycled_confirmation() {
    is_shown(Defect::RecycledConfirmation, &["I4 linearizable", "I5 durable"], 5, |seed, defects| {
        let mut world = quiet(Scenario { defects, ..Scenario::calm(seed) });
        let key = (0..200)
            .map(|n| format!("k{n}"))
            .find(|key| {
                let (leader, primary) = leader_and_primary(&world, key);
                leader != primary
            })
            .expect("not all are the leader's");
        tell_until_done(&mut world, 0, &key, &set("old"));
        let (leader, primary) = leader_and_primary(&world, &key);
        let third = 3 - leader - primary;
        let cut = world.inject(FaultKind::Triangle(primary, leader));
        let clog = world.inject(FaultKind::Clog(third, primary));
        world.ask_host(primary, &key, Op::Read(Read::Value));
        world.run_for(Duration::from_millis(100));
        tell_until_done(&mut world, leader, &key, &set("new"));
        world.ask_host(primary, &key, Op::Read(Read::Value));
        world.run_for(Duration::from_millis(10));
        world.undo(clog);
        world.run_for(Duration::from_secs(5));
        world.undo(cut);
        world.converge();
        world.judge();
        world.failure().cloned()
    });
}
