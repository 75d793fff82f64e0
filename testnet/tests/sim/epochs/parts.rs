//! Common parts of the scripts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use group::Group;
use group::config::{Defect, Defects};
use group::message::Message;
use group::op::{Answer, Condition, Expiry, Op};
use node::Node;
use node::wire::{self, Frame};
use overlay::Epoch;
use overlay::time::Time;
use testnet::history::Outcome;
use testnet::sim::fault::{Fault, FaultKind, Target};
use testnet::sim::{Flight, Host, Load, ProcessState, Scenario, World};

/// Time within which a group goes on serving.
pub const SOON: Duration = Duration::from_secs(10);

/// Time within which a group is whole again, with all members that come back.
pub const HEALED: Duration = Duration::from_secs(90);

/// Returns a scenario with a few clients that do a little all the time.
pub fn busy(seed: u64, hosts: usize) -> Scenario {
    let think = (Duration::from_millis(2), Duration::from_millis(40));
    let load = Load { clients: 3, think, cold_keys: 5, ..Load::default() };
    Scenario { hosts, load, ..Scenario::calm(seed) }
}

/// Returns a scenario in which only the script acts.
pub fn quiet(seed: u64, hosts: usize) -> Scenario {
    Scenario { load: Load { clients: 0, ..Load::default() }, ..busy(seed, hosts) }
}

/// Returns a world with all machines of the scenario in one group that is established.
pub fn formed(scenario: Scenario) -> World<Node> {
    let all: Vec<usize> = (0..scenario.hosts).collect();
    let mut world = World::new(scenario);
    wait_whole(&mut world, &all, HEALED);
    world
}

/// Returns a world with all machines but the last ones in one group. The last ones are held back until the caller undoes the
/// returned faults.
pub fn formed_without(scenario: Scenario, late: usize) -> (World<Node>, Vec<Option<usize>>) {
    let first = scenario.hosts - late;
    let hosts = scenario.hosts;
    let mut world = World::new(scenario);
    let held = (first..hosts).map(|host| world.inject(FaultKind::Pause(Target::Host(host)))).collect();
    wait_whole(&mut world, &(0..first).collect::<Vec<_>>(), HEALED);
    (world, held)
}

pub fn group(world: &World<Node>, host: usize) -> Option<&Group> {
    world.process(host).and_then(Node::group)
}

/// Returns the latest epoch that a machine knows.
pub fn epoch(world: &World<Node>) -> Epoch {
    let epochs = (0..world.hosts()).filter_map(|host| group(world, host).map(|group| group.state().epoch));
    epochs.max().expect("somebody is in a group")
}

/// Steps the world until the condition holds; panics when time is over, or when another property does not hold.
pub fn wait(world: &mut World<Node>, at_most: Duration, what: &str, until: impl Fn(&World<Node>) -> bool) {
    let end = world.now() + at_most;
    while !until(world) {
        assert!(world.now() < end, "not within {at_most:?}: {what}\n{}", standing(world));
        assert!(world.step(), "{}", failure(world));
    }
}

/// Runs until all of these machines are members of one epoch, and hold all data.
pub fn wait_whole(world: &mut World<Node>, hosts: &[usize], at_most: Duration) {
    let end = world.now() + at_most;
    while !are_whole(world, hosts) {
        assert!(world.now() < end, "not within {at_most:?}: whole are {:?}\n{}", whole(world), standing(world));
        world.run_for(Duration::from_millis(20));
        assert!(world.failure().is_none(), "{}", failure(world));
    }
}

fn are_whole(world: &World<Node>, hosts: &[usize]) -> bool {
    let now = epoch_of_all(world, hosts);
    now.is_some() && hosts.iter().all(|host| is_whole(world, *host))
}

fn epoch_of_all(world: &World<Node>, hosts: &[usize]) -> Option<Epoch> {
    let mut epochs = hosts.iter().map(|host| group(world, *host).map(|group| group.state().epoch));
    let first = epochs.next()??;
    epochs.all(|epoch| epoch == Some(first)).then_some(first)
}

pub fn is_whole(world: &World<Node>, host: usize) -> bool {
    world.state(host) == ProcessState::Running && world.process(host).is_some_and(Host::is_whole)
}

/// Formats the state of each machine for a reader.
fn standing(world: &World<Node>) -> String {
    let line = |host| match group(world, host) {
        None => format!("{host}: {:?}, in no group", world.state(host)),
        Some(group) => {
            let state = group.state();
            let (members, learners, open) = (state.members.len(), state.learners.len(), state.recovery.len());
            let copies = group.catch_up();
            format!("{host}: {members} members, {learners} learners, {open} open, epoch {:?}, {copies:?}", state.epoch)
        }
    };
    let lines: Vec<String> = (0..world.hosts()).map(line).collect();
    format!("{}\n{}", lines.join("\n"), world.marks)
}

fn whole(world: &World<Node>) -> Vec<usize> {
    (0..world.hosts()).filter(|host| is_whole(world, *host)).collect()
}

pub fn failure(world: &World<Node>) -> String {
    let text = world.failure().map_or_else(|| "nothing is to come".into(), ToString::to_string);
    // Some values are long.
    text.chars().take(8_000).collect()
}

pub fn set(text: &str) -> Op {
    let value = Bytes::copy_from_slice(text.as_bytes());
    Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false }
}

/// Writes and reads through each of these machines, within the time that a group may take to serve again.
pub fn serves(world: &mut World<Node>, hosts: &[usize]) {
    let end = world.now() + SOON;
    for host in hosts {
        // One key in each quarter of the ring; its value is new.
        let text = format!("{host} at {}", world.now().0);
        for key in ["a", "b", "c", "d", "e"] {
            let key = format!("serves-{key}");
            while world.tell(*host, &key, set(&text)) != Outcome::Answered(Answer::Done) {
                assert!(world.now() < end, "{host} does not write {key} within {SOON:?}");
                assert!(world.failure().is_none(), "{}", failure(world));
                world.run_for(Duration::from_millis(20));
            }
            let left = end.since(world.now()).max(Duration::from_millis(100));
            let read = world.read_within(*host, &key, left);
            let read = read.unwrap_or_else(|| panic!("{host} does not read {key} within {SOON:?}"));
            let value = Bytes::copy_from_slice(text.as_bytes());
            assert_eq!(read, Outcome::Answered(Answer::Value(Some(value))), "{key} through {host}");
        }
    }
}

/// Returns all machines but these.
pub fn others(world: &World<Node>, gone: &[usize]) -> Vec<usize> {
    (0..world.hosts()).filter(|host| !gone.contains(host)).collect()
}

/// Notes a fault: an operation that was asked for since then may have been kept back, so no read can show that it will not
/// come.
pub fn was_disturbed(world: &mut World<Node>, since: Time) {
    let (at, lasts) = (since.since(Time(0)), world.now().since(since));
    world.scenario.faults.push(Fault { at, kind: FaultKind::CrashAll, lasts });
}

/// Heals all faults and asserts that no data is lost, and that the clients' history is possible.
pub fn ends_well(mut world: World<Node>) -> World<Node> {
    world.heal();
    let all = others(&world, &[]);
    wait_whole(&mut world, &all, HEALED);
    world.converge();
    world.judge();
    assert!(world.failure().is_none(), "{}", failure(&world));
    world
}

/// Decodes the message in a frame.
pub fn message(flight: &Flight) -> Option<Message> {
    match wire::decode(&flight.frame, None) {
        Ok((_, Frame::Group { message, .. })) => Some(message),
        _ => None,
    }
}

/// Asserts that a script fails with this text where the rule is left out, for one of some seeds, and passes at that seed with the
/// rule in place.
pub fn is_needed(defect: Defect, shows: &str, seeds: u64, script: impl Fn(u64, Defects)) {
    let fails = |seed: &u64| {
        let outcome = catch_unwind(AssertUnwindSafe(|| script(*seed, Defects::NONE.with(defect))));
        let Err(panic) = outcome else { return false };
        let text = panic.downcast_ref::<String>().expect("scripts panic with what they saw");
        println!("{defect:?} is found at seed {seed}: {text}");
        assert!(text.contains(shows), "found, but not as {shows}");
        true
    };
    let seed = (0..seeds).find(fails).unwrap_or_else(|| panic!("{defect:?} is not found within {seeds} seeds"));
    script(seed, Defects::NONE);
}
