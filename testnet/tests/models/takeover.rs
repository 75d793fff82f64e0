//! Searches through all schedules of a small world: real members, one key, two terms. Messages are lost, doubled and reordered,
//! and members restart. With each rule in place no schedule goes wrong; with a rule left out some schedule does.

use group::config::{Defect, Defects};
use stateright::{Model, Property};

use crate::search::{self, Found};
use crate::trio::{Ask, Step, Trio};

/// A small world, and the limits of its schedules. A message that never arrives is a lost one.
#[derive(Clone)]
struct World {
    defects: Defects,
    divisions: &'static [usize],
    asks: &'static [(usize, Ask)],
    doubles: u32,
    restarts: u32,
}

impl Model for World {
    type State = Trio;
    type Action = Step;

    fn init_states(&self) -> Vec<Trio> {
        vec![Trio::new(self.defects, self.divisions, self.doubles, self.restarts)]
    }

    fn actions(&self, trio: &Trio, steps: &mut Vec<Step>) {
        trio.steps(self.asks, steps);
    }

    fn next_state(&self, trio: &Trio, step: Step) -> Option<Trio> {
        let next = trio.after(&step, self.asks);
        (next != *trio).then_some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always("one value, one order", |_, trio: &Trio| trio.wrong.is_none()),
            Property::sometimes("all is answered", |world: &World, trio: &Trio| trio.all_answered(world.asks.len())),
            Property::sometimes("two believe that they serve", |_, trio: &Trio| trio.serving().len() > 1),
        ]
    }
}

/// Searches all schedules of at most `steps_max` steps. Returns the length of the first schedule that goes wrong, if there is
/// one.
fn search(name: &str, world: World, steps_max: usize) -> Option<usize> {
    let Found { wrong, met } = search::search(name, world, steps_max, "one value, one order");
    let wrong = wrong.map(|path| {
        let steps = path.into_actions().len();
        println!("  wrong after {steps} steps");
        steps
    });
    assert!(wrong.is_some() || met.contains(&"two believe that they serve"), "{name} is too short: {met:?}");
    wrong
}

const SOUND: World = World { defects: Defects::NONE, divisions: &[0, 1], asks: &[], doubles: 0, restarts: 0 };

/// A write under the old primary, and a read under the new one.
const WRITE_THEN_READ: &[(usize, Ask)] = &[(0, Ask::Add(1)), (1, Ask::Read)];

/// A write under the new primary, and a read under the old one.
const WRITE_BEHIND: &[(usize, Ask)] = &[(1, Ask::Add(1)), (0, Ask::Read)];

/// Two writes at once.
const TWO_WRITES: &[(usize, Ask)] = &[(0, Ask::Add(1)), (0, Ask::Add(2))];

/// A read of a write that is on its way, and a read after it.
const READ_TWICE: &[(usize, Ask)] = &[(0, Ask::Add(1)), (0, Ask::Read), (1, Ask::Read)];

#[test]
fn nothing_goes_wrong_with_all_rules() {
    let worlds = [
        ("write, read", World { asks: WRITE_THEN_READ, ..SOUND }, 16),
        ("write behind", World { asks: WRITE_BEHIND, ..SOUND }, 17),
        ("read twice", World { asks: READ_TWICE, ..SOUND }, 13),
        ("restart", World { asks: WRITE_THEN_READ, restarts: 1, ..SOUND }, 13),
        ("two writes, restart", World { asks: TWO_WRITES, restarts: 1, ..SOUND }, 11),
        ("doubled", World { asks: WRITE_THEN_READ, doubles: 1, ..SOUND }, 11),
    ];
    for (name, world, steps) in worlds {
        assert_eq!(search(name, world, steps), None, "{name}");
    }
}

/// Asserts that with the defect some schedule goes wrong. `nothing_goes_wrong_with_all_rules` searches such worlds without it.
fn is_found(defect: Defect, world: World, steps_max: usize) {
    let broken = World { defects: Defects::NONE.with(defect), ..world };
    // A panic is one way to go wrong, and the search meets many.
    std::panic::set_hook(Box::new(|_| {}));
    let wrong = search(&format!("{defect:?}"), broken, steps_max);
    let _ = std::panic::take_hook();
    assert!(wrong.is_some(), "{defect:?} is not found");
}

/// Hazard 5.
#[test]
fn ballot_reuse_is_found() {
    is_found(Defect::BallotReuse, World { asks: TWO_WRITES, restarts: 1, ..SOUND }, 12);
}

/// Hazard 7.
#[test]
fn an_ignored_promise_is_found() {
    is_found(Defect::PromiseIgnored, World { asks: WRITE_THEN_READ, ..SOUND }, 14);
}

/// Hazard 9.
#[test]
fn two_in_flight_are_found() {
    is_found(Defect::TwoInFlight, World { asks: TWO_WRITES, ..SOUND }, 12);
}

/// Hazard 10.
#[test]
fn a_dirty_read_is_found() {
    is_found(Defect::DirtyRead, World { asks: READ_TWICE, ..SOUND }, 14);
}

/// Hazard 15.
#[test]
fn a_stale_read_is_found() {
    is_found(Defect::StaleRead, World { asks: WRITE_BEHIND, ..SOUND }, 14);
}

/// Hazard 8: two primaries wrote the same version. The first write reached no other member, the second one was chosen. The
/// member with the first write takes over, with the help of a member that has the second.
#[test]
fn the_same_timestamp_is_not_the_same_value() {
    let sound = write_same_version_twice(Defects::NONE);
    assert_eq!(sound.wrong, None);
    assert_eq!(sound.answers(), [None, Some(2), Some(2)]);
    let broken = write_same_version_twice(Defects::NONE.with(Defect::SameTimestampSameValue));
    println!("SameTimestampSameValue: {:?}", broken.wrong);
    assert!(broken.wrong.is_some());
}

fn write_same_version_twice(defects: Defects) -> Trio {
    let asks = [(0, Ask::Add(1)), (2, Ask::Add(2)), (0, Ask::Read)];
    let mut trio = Trio::new(defects, &[0, 2, 0], 0, 0);
    trio.take(&Step::Ask, &asks);
    trio.take(&Step::Learn(2), &asks);
    trio.talk(2, 1);
    trio.take(&Step::Ask, &asks);
    trio.talk(2, 1);
    trio.take(&Step::Learn(0), &asks);
    trio.take(&Step::Learn(0), &asks);
    trio.talk(0, 1);
    trio.take(&Step::Ask, &asks);
    trio.talk(0, 1);
    trio
}
