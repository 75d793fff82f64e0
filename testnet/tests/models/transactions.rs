//! Searches through all schedules of transactions between groups, on rings of one, two and three (hazards 28-37, 42). Each
//! group is one member, so each proposed entry is chosen. Each statement stays, and may be heard at any time, again and again,
//! or never.
//!
//! A leader's waits and reminders happen here whenever they can, so no order of timers is left out.

use group::config::Defect;
use group::transaction::Outcome;
use stateright::{Model, Property};

use crate::ring::{self, Intent, Ring, Step};
use crate::search::{Found, search};

/// A small world, and the steps of its schedules.
#[derive(Clone, Debug)]
struct World {
    /// Number of groups.
    groups: usize,
    /// Transactions that are wanted, once each: planned at some moment, and begun at some later one.
    intents: Vec<Intent>,
    /// Groups whose members change at some moment, each once.
    changes: Vec<usize>,
    /// The rule that is left out of the protocol.
    without: Option<Defect>,
}

impl Model for World {
    type State = Ring;
    type Action = Step;

    fn init_states(&self) -> Vec<Ring> {
        vec![Ring::new(self.groups, &self.intents, &self.changes, self.without)]
    }

    fn actions(&self, ring: &Ring, steps: &mut Vec<Step>) {
        if ring.wrong.is_empty() {
            ring.steps(steps);
        }
    }

    fn next_state(&self, ring: &Ring, step: Step) -> Option<Ring> {
        ring.after(&step)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always("all holds", |_, ring: &Ring| ring.wrong.is_empty()),
            Property::sometimes("all are committed", |world: &World, ring: &Ring| {
                ring.count(Outcome::Commit) == world.intents.len()
            }),
            Property::sometimes("one is committed, one aborted", |_, ring: &Ring| {
                ring.count(Outcome::Commit) > 0 && ring.count(Outcome::Abort) > 0
            }),
            Property::sometimes("two are open", |_, ring: &Ring| ring.open() > 1),
            Property::sometimes("all is at rest", |_, ring: &Ring| ring.is_at_rest()),
            Property::sometimes("a plan is too old", |_, ring: &Ring| ring.too_old),
        ]
    }
}

fn all_of(name: &str, world: World) -> (Option<String>, Vec<&'static str>) {
    let Found { wrong, met } = search(name, world, 1_000, "all holds");
    let wrong = wrong.map(|path| {
        let wrong = path.last_state().wrong.clone();
        let steps: Vec<String> = path.into_actions().iter().map(ring::tell).collect();
        format!("{wrong:?}\n  after {}", steps.join("\n        "))
    });
    (wrong, met)
}

fn world(groups: usize, intents: &[Intent], changes: &[usize]) -> World {
    World { groups, intents: intents.to_vec(), changes: changes.to_vec(), without: None }
}

fn holds(name: &str, world: World, meets: &[&str]) {
    let (wrong, met) = all_of(name, world);
    assert_eq!(wrong, None, "{name}");
    for what in meets.iter().chain(&["all is at rest"]) {
        assert!(met.contains(what), "{name} never came by this: {what}; but by {met:?}");
    }
}

#[test]
fn one_transaction_on_each_ring() {
    for groups in 1..=3 {
        holds(&format!("split of {groups}"), world(groups, &[Intent::Split(0)], &[0]), &["all are committed"]);
    }
    for groups in 2..=3 {
        for intent in [Intent::Merge(0), Intent::Repartition(0), Intent::Migrate(0)] {
            holds(&format!("{intent:?} of {groups}"), world(groups, &[intent], &[0, 1]), &["all are committed"]);
        }
    }
}

#[test]
fn two_contenders_on_a_ring_of_two() {
    let intents = [Intent::Split(0), Intent::Merge(0), Intent::Repartition(1), Intent::Migrate(0)];
    for (index, first) in intents.iter().enumerate() {
        for second in &intents[index..] {
            let other = second.of((first.group() + 1) % 2);
            let contenders = world(2, &[*first, other], &[]);
            holds(
                &format!("{first:?} and {other:?} of two"),
                contenders,
                &["one is committed, one aborted", "two are open"],
            );
        }
    }
}

#[test]
fn two_contenders_on_a_ring_of_three() {
    let intents = [Intent::Merge(0), Intent::Repartition(0), Intent::Migrate(0), Intent::Split(0)];
    for first in intents {
        for second in [Intent::Merge(1), Intent::Split(1), Intent::Repartition(2)] {
            let contenders = world(3, &[first, second], &[]);
            holds(&format!("{first:?} and {second:?} of three"), contenders, &["one is committed, one aborted"]);
        }
    }
}

/// Each rule is needed: without it some schedule goes wrong.
#[test]
fn what_is_left_out_is_found() {
    let cases = [
        (Defect::AnyGeneration, world(3, &[Intent::Repartition(0), Intent::Merge(2)], &[])),
        (Defect::NoLocks, world(3, &[Intent::Merge(0), Intent::Merge(1)], &[])),
        (Defect::OneVote, world(3, &[Intent::Merge(0), Intent::Merge(1)], &[])),
        (Defect::NotInherited, world(3, &[Intent::Merge(0)], &[])),
        (Defect::VoteBeforeChosen, world(3, &[Intent::Merge(0), Intent::Merge(1)], &[])),
        (Defect::OutcomeBeforeChosen, world(2, &[Intent::Merge(0)], &[])),
    ];
    for (defect, world) in cases {
        let (wrong, _) = all_of(&format!("{defect:?}"), World { without: Some(defect), ..world });
        assert!(wrong.is_some(), "{defect:?} is not found");
    }
}
