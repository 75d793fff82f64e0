//! Searches through all schedules of the end of an epoch (hazards 20, 21). A leader has entries on their way, members end the
//! epoch, other members stand for election, and one member stops and comes back. Each message may arrive late, twice, or never.
//!
//! Small worlds are searched to their ends, larger ones up to a number of steps, the largest by random walks.

use std::sync::Mutex;
use std::time::Instant;

use group::config::{Defect, Defects};
use group::control::state::Entry;
use overlay::Point;
use stateright::{Model, Property};
use testnet::rng::Rng;

use crate::search::{self, Found};
use crate::three::{ALL, Ask, Memory, NOTHING_LOST, ONE_ORDER, ONE_STATE, Rules, SEALED, Step, Three, member, node};

/// A small world: the rules of its schedules, and the turns that were computed so far.
struct World {
    rules: Rules,
    memory: Mutex<Memory>,
}

impl World {
    fn new(rules: Rules) -> World {
        World { rules, memory: Mutex::default() }
    }
}

impl Model for World {
    type State = Three;
    type Action = Step;

    fn init_states(&self) -> Vec<Three> {
        vec![Three::new(&self.rules, &mut self.memory.lock().expect("one thread"))]
    }

    fn actions(&self, three: &Three, steps: &mut Vec<Step>) {
        if three.wrong.is_empty() {
            three.steps(&self.rules, &self.memory.lock().expect("one thread"), steps);
        }
    }

    fn next_state(&self, three: &Three, step: Step) -> Option<Three> {
        three.after(&self.rules, &mut self.memory.lock().expect("one thread"), step)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always("all holds", |_, three: &Three| three.wrong.is_empty()),
            Property::sometimes("the epoch ends", |_, three: &Three| three.ended() > 0),
            Property::sometimes("it ends for all", |_, three: &Three| three.ended() == 3),
            Property::sometimes("all was chosen before", |world: &World, three: &Three| {
                three.before_the_end() >= Some(world.rules.proposes.len())
            }),
            Property::sometimes("the end was chosen alone", |_, three: &Three| three.before_the_end() == Some(0)),
            Property::sometimes("two lead", |_, three: &Three| three.leaders() > 1),
            Property::sometimes("all is answered", |world: &World, three: &Three| {
                !world.rules.asks.is_empty() && three.ended() > 0 && three.all_answered(&world.rules)
            }),
        ]
    }
}

/// Searches all schedules of at most `steps_max` steps. Returns the violation of the first schedule that goes wrong, and the
/// properties that the search met.
fn search(name: &str, rules: Rules, steps_max: usize) -> (Option<String>, Vec<&'static str>) {
    let Found { wrong, met } = search::search(name, World::new(rules), steps_max, "all holds");
    let wrong = wrong.map(|path| {
        let wrong = format!("{:?}", path.last_state().wrong);
        println!("  {wrong}\n  after {:?}", path.into_actions());
        wrong
    });
    (wrong, met)
}

fn horizon(to: u64) -> Entry {
    Entry::Horizon(to)
}

/// Rules under which nothing happens.
fn quiet() -> Rules {
    Rules {
        defects: Defects::NONE,
        leader: 0,
        proposes: Vec::new(),
        stops: &[],
        stands: &[],
        restarts: &[],
        ticks: false,
        states: false,
        refusals: false,
        watches: ALL,
        asks: &[],
    }
}

/// Rules with `entries` log entries on their way at one time.
fn pipelined(entries: u64) -> Rules {
    Rules { proposes: (5..5 + entries).map(horizon).collect(), ..quiet() }
}

/// Rules under which the leader ends the epoch, and goes on proposing. Its next members are not those that another member which
/// ends the epoch would name.
fn ended_by_its_leader() -> Rules {
    Rules { proposes: vec![horizon(5), Entry::Next(vec![member(0), member(1)]), horizon(6)], ..quiet() }
}

/// Rules under which the primary writes while other members end the epoch. Another member, which the division on the way names
/// as primary, reads. `next` lists the members of the next epoch.
fn written_and_read(next: &[usize]) -> Rules {
    const WRITE_THEN_READ: &[(usize, Ask)] = &[(0, Ask::Add(1)), (1, Ask::Read)];
    let division = Entry::Division { parts: vec![(Point(0), node(1))], kept: Vec::new() };
    let next = Entry::Next(next.iter().map(|index| member(*index)).collect());
    Rules { leader: 1, proposes: vec![division, next], states: true, asks: WRITE_THEN_READ, ..quiet() }
}

/// No bound in practice: each message that is sent at all is sent after a bounded number of steps.
const ALL_STEPS: usize = 1_000;

#[test]
fn an_epoch_ends_with_one_state_and_all_that_was_chosen() {
    let worlds = [
        ("two on their way, one ends it", Rules { stops: &[1], ..pipelined(2) }, ALL_STEPS),
        ("three on their way, one ends it", Rules { stops: &[1], ..pipelined(3) }, 16),
        ("three on their way, two end it", Rules { stops: &[1, 2], ..pipelined(3) }, 12),
        ("one on its way, two end it", Rules { stops: &[1, 2], ..pipelined(1) }, 19),
        ("its leader ends it as well", Rules { stops: &[1], ..ended_by_its_leader() }, 15),
        ("its leader and two end it", Rules { stops: &[1, 2], ..ended_by_its_leader() }, 12),
        ("another leader", Rules { stops: &[2], stands: &[1], ..pipelined(1) }, 16),
        ("another leader, with duties", Rules { stops: &[2], stands: &[1], ticks: true, ..pipelined(2) }, 12),
        ("all is told", Rules { stops: &[1], ticks: true, states: true, refusals: true, ..pipelined(1) }, 17),
    ];
    for (name, rules, steps) in worlds {
        let (wrong, met) = search(name, rules, steps);
        assert_eq!(wrong, None, "{name}");
        assert!(met.contains(&"two lead"), "{name} is too short: {met:?}");
        assert!(steps < 15 || met.contains(&"the epoch ends") && met.contains(&"all was chosen before"), "{met:?}");
    }
}

#[test]
fn whoever_stops_and_comes_back_changes_nothing() {
    let worlds = [
        ("who ends it comes back", Rules { stops: &[1], restarts: &[1], ..pipelined(1) }, ALL_STEPS),
        ("its leader comes back", Rules { stops: &[1], restarts: &[0], ..pipelined(1) }, ALL_STEPS),
        ("another comes back", Rules { stops: &[1], restarts: &[2], ..pipelined(1) }, ALL_STEPS),
        ("two end it, one comes back", Rules { stops: &[1, 2], restarts: &[2], ..pipelined(1) }, 13),
        ("a leader that ends it comes back", Rules { stops: &[1], restarts: &[0], ..ended_by_its_leader() }, 13),
        ("another leader comes back", Rules { stops: &[2], stands: &[1], restarts: &[1], ..pipelined(1) }, 13),
    ];
    for (name, rules, steps) in worlds {
        let (wrong, met) = search(name, rules, steps);
        assert_eq!(wrong, None, "{name}");
        assert!(met.contains(&"the epoch ends"), "{name} is too short: {met:?}");
    }
}

/// A write of one epoch that was acknowledged is read in the next epoch. A write behind the end of the epoch is never chosen.
#[test]
fn an_epoch_that_is_over_is_written_no_more() {
    let worlds = [
        ("written, and read by one who is left alone", written_and_read(&[1]), 15, "all is answered"),
        ("written, and read by one of two", written_and_read(&[1, 2]), 15, "it ends for all"),
        ("written, and read by one of three", written_and_read(&[0, 1, 2]), 15, "it ends for all"),
        ("written, and one comes back", Rules { restarts: &[2], ..written_and_read(&[1]) }, 13, "it ends for all"),
    ];
    for (name, rules, steps, what) in worlds {
        let (wrong, met) = search(name, rules, steps);
        assert_eq!(wrong, None, "{name}");
        assert!(met.contains(&what), "{name} is too short: {met:?}");
    }
    for (number, next) in [&[1][..], &[1, 2], &[0, 1, 2]].into_iter().enumerate() {
        let rules = Rules { stops: &[2], restarts: &[2], ..written_and_read(next) };
        let (world, mut answered, start) = (World::new(rules), 0, Instant::now());

        for seed in 0..WALKS {
            let three = walk(&world, &mut Rng::new(seed, "walk"), 100);
            assert!(three.wrong.is_empty(), "walk {seed} of {number}: {:?}", three.wrong);
            answered += u64::from(three.ended() > 0 && three.all_answered(&world.rules));
        }
        println!("{WALKS} walks: written, and read in the next epoch, in {answered}; {:.1?}", start.elapsed());
        assert!(answered > 0);
    }
}

/// Number of random walks through each world that is too large for a search.
const WALKS: u64 = 1_500;

/// Walks at random through a world. Returns the situation at its end.
fn walk(world: &World, rng: &mut Rng, steps_max: usize) -> Three {
    let mut three = world.init_states().remove(0);
    let mut steps = Vec::new();
    for _ in 0..steps_max {
        steps.clear();
        world.actions(&three, &mut steps);
        let next = loop {
            if steps.is_empty() {
                return three;
            }
            let step = steps.swap_remove(rng.below(steps.len() as u64) as usize);
            if let Some(next) = world.next_state(&three, step) {
                break next;
            }
        };
        three = next;
    }
    three
}

/// Rules with everything at once, too much for a search: all members may end the epoch, stand for election, stop and come back.
fn everything() -> [Rules; 2] {
    let busy = |rules| Rules {
        stops: &[0, 1, 2],
        stands: &[0, 1, 2],
        restarts: &[0, 1, 2],
        ticks: true,
        states: true,
        refusals: true,
        ..rules
    };
    [busy(pipelined(3)), busy(ended_by_its_leader())]
}

/// Wherever a walk ends, time brings the members to one state, with all entries that were chosen.
#[test]
fn whatever_happens_the_epoch_goes_on_or_ends() {
    for (number, rules) in everything().into_iter().enumerate() {
        let world = World::new(rules);
        let (mut ended, mut whole, start) = (0, 0, Instant::now());
        for seed in 0..WALKS {
            let mut rng = Rng::new(seed, "walk");
            let steps = rng.between(5, 80) as usize;
            let three = walk(&world, &mut rng, steps);
            assert!(three.wrong.is_empty(), "walk {seed} of {number}: {:?}", three.wrong);
            ended += u64::from(three.ended() > 0);
            whole += u64::from(three.before_the_end() >= Some(3));
            if let Err(why) = three.settles(&world.rules) {
                panic!("walk {seed} of {number}: {why}");
            }
        }
        println!("{WALKS} walks: the epoch ended in {ended}, with all entries in {whole}; {:.1?}", start.elapsed());
        assert!(ended > WALKS / 10 && whole > 0);
    }
}

/// Asserts that with the defect some schedule violates one of these properties.
fn is_found(defect: Defect, rules: Rules, what: &'static [&'static str], steps_max: usize) {
    let (wrong, _) = search(
        &format!("{defect:?}"),
        Rules { defects: Defects::NONE.with(defect), watches: what, ..rules },
        steps_max,
    );
    assert!(wrong.is_some(), "{defect:?} is not found");
}

/// Hazard 20.
#[test]
fn a_next_configuration_that_was_not_chosen_is_found() {
    is_found(Defect::NextUnchosen, Rules { stops: &[1], ..ended_by_its_leader() }, &[ONE_STATE], 14);
}

/// Hazard 21.
#[test]
fn a_stop_that_is_too_low_is_found() {
    is_found(Defect::StopTooLow, Rules { stops: &[1], ..pipelined(3) }, &[NOTHING_LOST], 14);
}

/// Hazard 22.
#[test]
fn an_end_that_seals_nothing_is_found() {
    is_found(Defect::OneReplicaState, written_and_read(&[1]), &[SEALED], 14);
    is_found(Defect::OneReplicaState, written_and_read(&[1]), &[ONE_ORDER], 14);
}
