//! All schedules of a small world: two keys, three members of a group, and switches that number its writes and spread its reads
//! (`Harmonia`; hazards 54-58). The switch is the real pipeline. Any packet or message may be lost, duplicated, delayed or
//! reordered. With all rules in place every read is linearizable, and no object stays dirty for ever. Without one of the rules, a
//! search finds a violation.
//!
//! # Words
//! A *handle* is a term of a primary and the id of a switch: a number belongs to one handle, and is compared within it alone. A
//! *place* is a position in a primary's log, which is gap-free and chosen in order. A *mark* is a number of places, counted from
//! the first, for which a statement is true. Numbers need not be gap-free. The *point* of a handle: everything up to it is
//! complete. The group is read-behind, like VR (`Harmonia §8.3`): replicas execute chosen writes. Writes get their numbers in one
//! of two ways:
//!
//! - *by clients* (the paper): a client sends a write through a switch, and the primary gives it a place when it comes;
//! - *by the primary*: a write has its place first. The primary proposes it, passes it through a switch, and takes it for chosen
//!   when a quorum has it and it has come back. Its number need not be in the order of places. A write that has not come back can
//!   be passed again.
//!
//! # Rules
//! In brackets: the defect that shows that a rule is needed. Together the rules are enough.
//!
//! The switch, and its controller:
//!
//! - **S1** An id is used for one life of one set of registers and slots. A switch that loses or moves them gets a new id, above
//!   all ids that the group ever gave out. \[`OldId`; the writer of the tables ensures that no partition moves under its id]
//! - **S2** A write that has no room in the dirty set is not forwarded. \[`Untracked`]
//! - **S3** An object is dirty until the point reaches its highest number. \[`LowerClears`]
//! - **S4** The point never goes down: it is the highest of the completions of this very handle. \[`PointLowered`]
//! - **S5** No read goes to a replica before a write is complete under the handle. \[`NoneComplete`, where R3 is left out as
//!   well]
//!
//! A primary:
//!
//! - **P1** It *enters* one id at a time, never a lower one. While one of its grants may be alive, each write that it takes for
//!   chosen or answers was numbered under the entered id, or is below the floor (P6). So it takes no write of another switch
//!   \[`OtherTaken`]. And it takes no write that went around the switch, be it expiry or a write that it proposes again
//!   \[`Around`].
//! - **P2** Before it enters another id, or leaves the switch, it gives no more grants. Each grant has been forsworn by its
//!   replica or has run out there. \[`NotForsworn`]
//! - **P3** A number that comes too late is *void*: it is never taken. By clients: a number that is not above all numbers that
//!   came under this handle. By the primary: a number that is not above the point; the write is passed again. \[`LateTaken`]
//! - **P4** It tells replicas pairs of a mark and a point: *a replica that has executed the mark has executed the point*. A pair
//!   may be told on two conditions. Every number up to the point that is not void, now and for ever, is that of a write before
//!   the mark; and the mark is not below the floor (P6). By clients, the pair comes with each number: the length of the log after
//!   that, and the number. By the primary, the mark is the chosen mark. The point is one less than the lowest number of this
//!   handle that is proposed and not chosen; if there is none, it is the highest number that ever came back. \[`ToldEarly`]
//! - **P5** A write that is numbered again, because it was asked for or delivered again, gets no second place, and consumes its
//!   number: the number counts as come (P3, P4). The number is complete when the write's place is before a chosen mark, and not
//!   at once. \[`AgainForgotten`: the object stays dirty; `AgainCompleted`]
//! - **P6** When it enters an id, even one that it had left, the *floor* is the length of its log, proposed or not. Grants carry
//!   it, and no pair has a lower mark. \[`FloorForgotten`]
//! - **P7** It tells the switch points of pairs with a mark that is chosen.
//! - **P8** By the primary: it may let go of the numbers of all writes that are not chosen, if none of these is below the floor.
//!   The point is then the highest number that came back. Those writes count as not come back: they are passed again.
//!   \[`LetGoCounts`] (So a write without room in the switch gets some.)
//!
//! A replica:
//!
//! - **R1** It executes only chosen writes \[`Ahead`], place by place without a gap \[`GapsExecuted`].
//! - **R2** It answers a read alone only while it has a grant for exactly the handle that is on the read. \[`AnyId`, with another
//!   switch and with another term]
//! - **R3** And only if it has executed everything below the grant's floor. \[`FloorForgotten`]
//! - **R4** And only if it has executed the mark of some pair of this handle with that point or a higher one. \[`PointUnchecked`]
//! - It passes any other read to the primary, which answers by the group's own rules.
//!
//! Another primary:
//!
//! - **T1** Each term has a handle of its own: no register, slot, pair or grant of an older handle counts (R2).
//! - **T2** A primary gives grants only while it holds a lease \[`NoLease`]. Before the first write of its own, a new primary
//!   knows that older leases are over, so that no grant can be given any more \[`LeaseForgotten`]. Then it knows that all given
//!   grants are over \[`GrantsForgotten`]. If a grant ends no later than the lease that it was given under, that is one wait. A
//!   primary that gives up its lease at once, by a promise, does not end its grants.
//! - **T3** A write that it takes over needs no switch: it is below the floor of the new handle. By clients: the new primary may
//!   choose and answer such a write while older grants are alive, for in their handle the write is dirty, or covered by a pair.
//!   By the primary: it may not, since the write may have no number yet. \[`InheritedEarly`]
//!
//! # Why that is enough
//! Let a write *W* be answered before a read begins that a replica answers under handle *h* with the point *c*. The replica's
//! grant is alive. So by P1, P2, T2 and T3 *W* is below the floor of *h*, and R3 shows it; or its number *w* is of *h*. In the
//! second case its object was dirty under *w* from before *W* was chosen (S2, P1), and the read found it clean: so *w* ≤ *c* (S1,
//! S3, S4). By P4 and R4 the replica has executed a mark such that every number up to *c* that is not void is before it. The
//! number *w* is not void: it was taken (P3), and not let go of (P8). By R1 the replica shows *W*.
//!
//! # What is not needed
//! - That completions wait for any event (`Harmonia §8.3` sends them with the answer, or later). With numbers by clients, even
//!   the completion of a write that is only proposed does no harm, since R4 refuses. To wait for the replicas that may answer
//!   saves refusals, and has no other effect. Where all completions wait until every replica has executed their mark, R4 is not
//!   needed; but then one slow replica stops them.
//! - S5, where R3 holds.
//! - That an old switch stops, or knows that it is old: here it continues to number writes and to send reads to replicas. Nor
//!   does the time matter at which the controller tells a switch of a new term.
//! - That a replica refuses under its grant because it has promised a newer term. That an older primary stops completing writes,
//!   or seeing which are chosen.
//! - That a switch's numbers are gap-free, or, by the primary, in the order of places.
//!
//! Read-ahead protocols (primary-backup, chains: `Harmonia §8.2`) are the other way round. All replicas have executed every
//! complete write, so none is behind. A replica compares the point with the last write of the *object* that it executed, which
//! may not be complete. Here that comparison would be useless, and R4 is needed.
//!
//! # What this does not show
//! More than two switches, two terms and three members. Members that lose accepted or executed writes: a grant is not remembered
//! over a restart. The measurement of a grant's time: here it ends at one moment, at the replica before the primary counts on it.
//! The correctness of the primary's own answers, and of a takeover: `testnet/tests/models/takeover.rs`. Writes of several
//! packets.

mod group;
mod rules;
mod switches;
mod world;

use std::sync::Arc;
use std::time::Instant;

use rules::{Complete, Defect, Kind, Marks, Met, Route, Rules};
use stateright::{Checker, HasDiscoveries, Model, Property};
use world::{Step, World};

/// Model that is searched.
#[derive(Clone)]
struct Small {
    rules: Rules,
    /// Checks also that dirty sets drain.
    drains: bool,
    marks: Arc<Marks>,
}

const LINEARIZABLE: &str = "every read is linearizable";
const DRAINS: &str = "nothing is held for written for ever";

impl Model for Small {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.rules)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(&self.rules, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        next.take(&self.rules, &self.marks, step);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Small>> {
        let drains = Property::always(DRAINS, |small: &Small, world: &World| {
            !small.drains || !world.is_stuck(&small.rules, &small.marks)
        });
        vec![Property::always(LINEARIZABLE, |_, world: &World| !world.wrong), drains]
    }
}

/// Searches all of a small world. Returns the property that does not hold, if any, and the events that were met.
fn search(name: &str, rules: Rules, drains: bool) -> (Option<&'static str>, Vec<Met>) {
    let (start, marks) = (Instant::now(), Arc::new(Marks::default()));
    let small = Small { rules, drains, marks: marks.clone() };
    let checker = small.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{:?}, {name}: {} steps to {} situations, at most {} away, in {:.1?}",
        rules.route,
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed(),
    );
    let wrong = checker.discoveries().into_iter().next();
    let wrong = wrong.map(|(what, path)| {
        let steps = path.into_actions();
        println!("  not so: {what}, after {} steps", steps.len());
        steps.iter().for_each(|step| println!("    {step:?}"));
        what
    });
    (wrong, marks.met())
}

/// Asserts that every property holds, and that all these events were met.
fn holds(name: &str, rules: Rules, meets: &[Met]) {
    let (wrong, met) = search(name, rules, true);
    assert_eq!(wrong, None, "{name}");
    for what in meets.iter().chain(&[Met::Fast, Met::Dirty, Met::Rest]) {
        assert!(met.contains(what), "{name} never came by this: {what:?}; but by {met:?}");
    }
}

/// Asserts that the search finds this violation without these rules.
fn is_found(rules: Rules, what: &'static str) {
    let (wrong, _) = search(&format!("{:?}", rules.defects), rules, what == DRAINS);
    assert_eq!(wrong, Some(what), "{:?} of {:?}", rules.defects, rules.route);
}

/// Asserts that every read is linearizable without these rules.
fn does_not_matter(rules: Rules) {
    let name = format!("{:?}, {:?}", rules.defects, rules.complete);
    assert_eq!(search(&name, rules, false).0, None, "{name}");
}

/// Two keys with a write each, and one switch that has room for both.
const SOUND: Rules = Rules {
    route: Route::Clients,
    defects: &[],
    complete: Complete::Chosen,
    kind: Kind::Real(2, 1),
    objects: [1, 2],
    writes: &[0, 1],
    passes: 2,
    second: false,
    around: 0,
    lets_go: false,
    succession: false,
    quorum: 2,
    readers: 1,
};

const ROUTES: [Route; 2] = [Route::Clients, Route::Primary];

/// The paper's algorithm: two keys, two replicas, and one switch that restarts, or is replaced while it continues.
#[test]
fn two_keys_two_replicas_and_another_switch() {
    for route in ROUTES {
        let two = Rules { route, second: true, ..SOUND };
        let met = [Met::Behind, Met::NotGranted, Met::SecondSwitch, Met::Void, Met::Again];
        holds("another switch, a write again", Rules { passes: 3, ..two }, &met);
        holds("another switch, two readers", Rules { readers: 2, ..two }, &met);
        holds("another switch, both replicas choose", Rules { quorum: 3, ..two }, &met);
        holds("another switch, one object", Rules { objects: [1, 1], ..two }, &met);
        holds("another switch, room for one", Rules { kind: Kind::Real(1, 1), ..two }, &[Met::Full]);
        holds("another switch, one stage", Rules { kind: Kind::Real(1, 2), ..two }, &met);
        holds("another switch, as in the paper", Rules { kind: Kind::Dull(2), ..two }, &met);
        holds("as in the paper, one key", Rules { route, kind: Kind::Dull(2), writes: &[0, 0], ..SOUND }, &[]);
        holds("as in the paper, room for one", Rules { route, kind: Kind::Dull(1), ..SOUND }, &[Met::Full]);
        holds("three writes", Rules { route, writes: &[0, 1, 0], passes: 3, ..SOUND }, &[Met::Behind, Met::Again]);
    }
}

/// A primary lets go of numbers, so that a write without room gets some.
#[test]
fn a_primary_lets_go_of_numbers() {
    let it = Rules { route: Route::Primary, lets_go: true, passes: 3, ..SOUND };
    holds("numbers are let go of", it, &[Met::LetGo, Met::Behind, Met::Again, Met::Void]);
    holds("room for one", Rules { kind: Kind::Dull(1), ..it }, &[Met::LetGo, Met::Full]);
    holds("another switch", Rules { second: true, passes: 2, ..it }, &[Met::LetGo, Met::SecondSwitch]);
    is_found(Rules { defects: &[Defect::LetGoCounts], ..it }, LINEARIZABLE);
}

/// Grants end, a write goes around the switch, and grants begin again.
#[test]
fn a_group_leaves_its_switch_and_comes_back() {
    for route in ROUTES {
        holds("around", Rules { route, around: 1, ..SOUND }, &[Met::Behind, Met::NotGranted, Met::Floor]);
    }
}

const SUCCESSION: [Met; 4] = [Met::Behind, Met::NotGranted, Met::SecondTerm, Met::Inherited];

/// The second term has a handle of its own, in the same registers and slots.
#[test]
fn another_member_becomes_primary() {
    holds("another primary", Rules { route: Route::Primary, succession: true, ..SOUND }, &SUCCESSION);
    holds("another primary, around", WRITE_BEHIND, &[Met::Behind, Met::NotGranted, Met::Floor, Met::Inherited]);
}

#[test]
fn each_rule_of_the_switch_is_needed() {
    for route in ROUTES {
        let dull = Rules { route, kind: Kind::Dull(2), ..SOUND };
        is_found(Rules { route, defects: &[Defect::OldId], second: true, passes: 3, ..SOUND }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::Untracked], kind: Kind::Dull(1), ..dull }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::LowerClears], writes: &[0, 0], ..dull }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::PointLowered], ..dull }, LINEARIZABLE);
        let neither = &[Defect::NoneComplete, Defect::FloorForgotten];
        is_found(Rules { defects: neither, second: true, ..dull }, LINEARIZABLE);
    }
}

#[test]
fn each_rule_of_a_primary_is_needed() {
    for route in ROUTES {
        let it = Rules { route, ..SOUND };
        is_found(Rules { defects: &[Defect::OtherTaken], second: true, passes: 3, ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::Around], around: 1, ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::NotForsworn], second: true, ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::LateTaken], ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::ToldEarly], ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::AgainForgotten], ..it }, DRAINS);
        is_found(Rules { defects: &[Defect::AgainCompleted], ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::FloorForgotten], around: 1, ..it }, LINEARIZABLE);
    }
    // A number that belongs to no new write moves the point, while the writes that the old switch numbered are not chosen.
    let passed = Rules { route: Route::Primary, ..SOUND };
    is_found(Rules { defects: &[Defect::FloorForgotten], second: true, ..passed }, LINEARIZABLE);
}

#[test]
fn each_rule_of_a_replica_is_needed() {
    for route in ROUTES {
        let it = Rules { route, ..SOUND };
        is_found(Rules { defects: &[Defect::Ahead], ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::GapsExecuted], ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::AnyId], second: true, ..it }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::PointUnchecked], ..it }, LINEARIZABLE);
    }
}

/// One write that is complete in the old handle, and one of the new primary that passes no switch.
const WRITE_BEHIND: Rules = Rules { kind: Kind::Dull(2), succession: true, around: 1, passes: 1, ..SOUND };

#[test]
fn each_rule_of_another_primary_is_needed() {
    is_found(Rules { defects: &[Defect::GrantsForgotten], ..WRITE_BEHIND }, LINEARIZABLE);
    is_found(Rules { defects: &[Defect::LeaseForgotten], ..WRITE_BEHIND }, LINEARIZABLE);
    is_found(Rules { defects: &[Defect::NoLease], ..WRITE_BEHIND }, LINEARIZABLE);
    is_found(Rules { defects: &[Defect::AnyId], succession: true, ..SOUND }, LINEARIZABLE);
    let passed = Rules { route: Route::Primary, succession: true, ..SOUND };
    is_found(Rules { defects: &[Defect::InheritedEarly], ..passed }, LINEARIZABLE);
}

#[test]
fn some_things_are_not_needed() {
    for route in ROUTES {
        let second = Rules { route, second: true, ..SOUND };
        does_not_matter(Rules { defects: &[Defect::NoneComplete], kind: Kind::Dull(2), ..second });
        does_not_matter(Rules { complete: Complete::Executed, ..second });
        let unchecked = Rules { defects: &[Defect::PointUnchecked], complete: Complete::Executed, ..second };
        does_not_matter(Rules { passes: 3, ..unchecked });
        does_not_matter(Rules { second: false, around: 1, ..unchecked });
    }
    let early = Rules { complete: Complete::Taken, ..SOUND };
    does_not_matter(Rules { passes: 3, ..early });
    does_not_matter(Rules { second: true, ..early });
    does_not_matter(Rules { around: 1, ..early });
}

#[test]
#[ignore = "minutes, for millions of situations"]
fn larger_worlds() {
    for route in ROUTES {
        let it = Rules { route, ..SOUND };
        let met = [Met::Behind, Met::NotGranted, Met::Again];
        holds("another switch, twice again", Rules { second: true, passes: 4, ..it }, &met);
        holds("another switch, three writes", Rules { second: true, passes: 3, writes: &[0, 1, 0], ..it }, &met);
        holds("another switch, around", Rules { second: true, around: 1, ..it }, &met);
        holds("another primary", Rules { succession: true, ..it }, &SUCCESSION);
        holds("another primary, around", Rules { succession: true, around: 1, passes: 1, ..it }, &SUCCESSION);
        is_found(Rules { route, defects: &[Defect::GrantsForgotten], ..WRITE_BEHIND }, LINEARIZABLE);
        is_found(Rules { route, defects: &[Defect::LeaseForgotten], ..WRITE_BEHIND }, LINEARIZABLE);
        is_found(Rules { route, defects: &[Defect::NoLease], ..WRITE_BEHIND }, LINEARIZABLE);
        is_found(Rules { defects: &[Defect::AnyId], succession: true, ..it }, LINEARIZABLE);
    }
}

/// A replaced switch and a replaced primary at once.
#[test]
#[ignore = "many minutes, for tens of millions of situations"]
fn the_largest_world() {
    for route in ROUTES {
        let it = Rules { route, second: true, succession: true, ..SOUND };
        holds("another switch, another primary", it, &[Met::SecondSwitch, Met::SecondTerm, Met::Inherited]);
    }
}
