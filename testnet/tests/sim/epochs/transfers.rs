//! A newcomer copies the data of the group while members die, and while pages come twice, late, or from another attempt
//! (hazards 23, 25).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use group::config::{Defect, Defects};
use group::op::Answer;
use node::{Class, Node};
use testnet::history::Outcome;
use testnet::rng::Rng;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Fate, Load, Scenario, World};

use super::parts::*;

/// Number of records, of such a size that a few go into a page.
const RECORDS: usize = 24;

/// Returns a scenario with pages of a few records, from memory or from the store.
fn in_pages(seed: u64, hosts: usize, from_store: bool) -> Scenario {
    let memory_bytes_max = if from_store { 1 << 10 } else { 64 << 20 };
    Scenario { message_bytes_max: 600, memory_bytes_max, ..quiet(seed, hosts) }
}

fn value(index: usize, age: u32) -> String {
    format!("{index}-{age}-{}", "x".repeat(120))
}

fn write_all(world: &mut World<Node>, members: usize, age: u32) {
    for index in 0..RECORDS {
        let done = world.tell(index % members, &format!("k{index}"), set(&value(index, age)));
        assert_eq!(done, Outcome::Answered(Answer::Done));
    }
}

/// Returns a group that holds data, and a newcomer that is held back.
fn filled(scenario: Scenario) -> (World<Node>, Vec<Option<usize>>) {
    let (mut world, held) = formed_without(scenario, 1);
    let members = world.hosts() - 1;
    write_all(&mut world, members, 0);
    (world, held)
}

fn all_there(world: &mut World<Node>, via: &[usize], age: u32) {
    for index in 0..RECORDS {
        let read = world.read_within(via[index % via.len()], &format!("k{index}"), SOON);
        let text = Bytes::from(value(index, age));
        assert_eq!(read, Some(Outcome::Answered(Answer::Value(Some(text)))), "k{index} was acknowledged");
    }
}

/// Counts questions and pages of copies from and to a machine.
fn count_pages(world: &mut World<Node>, newcomer: usize) -> Rc<Cell<usize>> {
    let count = Rc::new(Cell::new(0));
    let counter = count.clone();
    world.tap(move |flight| {
        if flight.class == Class::Bulk && (flight.from == newcomer || flight.to == newcomer) {
            counter.set(counter.get() + 1);
        }
        Fate::Goes
    });
    count
}

/// Returns the number of such frames where no member dies.
fn undisturbed(scenario: Scenario) -> usize {
    let (mut world, held) = filled(scenario);
    let newcomer = world.hosts() - 1;
    let pages = count_pages(&mut world, newcomer);
    held.into_iter().for_each(|held| world.undo(held));
    let all = others(&world, &[]);
    wait_whole(&mut world, &all, HEALED);
    ends_well(world);
    pages.get()
}

/// These members die with the `nth` frame of the copy, with or without their stores, and come back after some time.
fn die_at(scenario: Scenario, nth: usize, victims: &[usize], keep_stores: bool, away: Duration) {
    let (mut world, held) = filled(scenario);
    let newcomer = world.hosts() - 1;
    let pages = count_pages(&mut world, newcomer);
    held.into_iter().for_each(|held| world.undo(held));
    wait(&mut world, HEALED, "the copy comes so far", |_| pages.get() >= nth);
    let gone: Vec<_> = victims.iter().map(|victim| world.kill(*victim, keep_stores)).collect();
    let live: Vec<usize> = (0..newcomer).filter(|host| !victims.contains(host)).collect();
    serves(&mut world, &live);
    all_there(&mut world, &live, 0);
    world.run_for(away);
    gone.into_iter().for_each(|gone| world.undo(gone));
    let all = others(&world, &[]);
    wait_whole(&mut world, &all, HEALED);
    all_there(&mut world, &all, 0);
    ends_well(world);
}

/// Returns all sets of members without which the other members are a majority, each with and without the newcomer; not the
/// empty set.
fn permitted(members: usize) -> Vec<Vec<usize>> {
    let sets = (1..1_usize << (members + 1)).filter(|set| {
        let dead = (set & ((1 << members) - 1)).count_ones() as usize;
        2 * dead < members
    });
    sets.map(|set| (0..=members).filter(|host| set >> host & 1 == 1).collect()).collect()
}

fn any_may_die(seed: u64, members: usize, from_store: bool, every: usize) {
    let scenario = in_pages(seed, members + 1, from_store);
    let frames = undisturbed(scenario.clone());
    assert!(frames >= 20, "a copy in {frames} frames has few steps");
    let mut runs = 0;
    for (index, victims) in permitted(members).iter().enumerate() {
        for nth in (1 + index % every..=frames).step_by(every) {
            for keep_stores in [true, false] {
                // Now and then for so long that they are removed.
                let away = Duration::from_secs(if (nth + index).is_multiple_of(4) { 12 } else { 0 });
                die_at(scenario.clone(), nth, victims, keep_stores, away);
                runs += 1;
            }
        }
    }
    println!(
        "{members} members, from the store: {from_store}, {} sets, {frames} frames: {runs} runs",
        permitted(members).len()
    );
}

#[test]
fn any_minority_of_three_dies_at_each_step_of_a_copy() {
    for_each_seed("any_minority_of_three_dies_at_each_step_of_a_copy", 1, |seed| {
        any_may_die(seed, 3, false, 1);
        any_may_die(seed, 3, true, 1);
    });
}

#[test]
fn any_minority_of_five_dies_at_steps_of_a_copy() {
    for_each_seed("any_minority_of_five_dies_at_steps_of_a_copy", 1, |seed| any_may_die(seed, 5, true, 7));
}

/// Two members come back at once, and one copies from the other one, whose store is slow. When its page arrives, that other one
/// has more than the page, and all data that it needs.
#[test]
fn a_page_is_no_younger_than_its_question() {
    for_each_seed("a_page_is_no_younger_than_its_question", 10, |seed| {
        let load_time = (Duration::from_millis(20), Duration::from_millis(40));
        let mut world = formed(Scenario { load_time, ..in_pages(seed, 5, true) });
        write_all(&mut world, 5, 0);
        let gone = [0, 4].map(|host| world.kill(host, true));
        serves(&mut world, &[1, 2, 3]);
        for index in 0..RECORDS {
            let done = world.tell(1 + index % 3, &format!("k{index}"), set(&value(index, 1)));
            assert_eq!(done, Outcome::Answered(Answer::Done));
        }
        gone.into_iter().for_each(|gone| world.undo(gone));
        let all = others(&world, &[]);
        wait_whole(&mut world, &all, HEALED);
        all_there(&mut world, &all, 1);
        ends_well(world);
    });
}

/// Counts of pages by their fates.
#[derive(Clone, Copy, Debug, Default)]
struct Pages {
    went: u32,
    lost: u32,
    twice: u32,
    late: u32,
}

/// Questions and pages of copies are lost, come twice, and come late, while clients write. A member that has copied loses its
/// store, and copies again.
fn pages_go_astray(seed: u64, defects: Defects) -> Pages {
    let hosts = 4;
    // More than clients write: a member that receives less than that never has all data.
    let slow = Scenario { transfer_bytes_per_s: 100_000, ..in_pages(seed, hosts, seed % 2 == 1) };
    let load = Load { think: (Duration::from_millis(20), Duration::from_millis(100)), ..busy(seed, hosts).load };
    let (mut world, held) = filled(Scenario { defects, load, ..slow });
    let begin = world.now();
    let pages = Rc::new(Cell::new(Pages::default()));
    let counter = pages.clone();
    let mut rng = Rng::new(seed, "pages");
    world.tap(move |flight| {
        if flight.class != Class::Bulk {
            return Fate::Goes;
        }
        let mut count = counter.get();
        let fate = match rng.below(20) {
            0 => Fate::Lost,
            1..=8 => Fate::Twice(rng.duration(Duration::ZERO, Duration::from_secs(2))),
            9..=10 => Fate::Late(rng.duration(Duration::ZERO, Duration::from_millis(100))),
            _ => Fate::Goes,
        };
        *match fate {
            Fate::Lost => &mut count.lost,
            Fate::Twice(_) => &mut count.twice,
            Fate::Late(_) => &mut count.late,
            _ => &mut count.went,
        } += 1;
        counter.set(count);
        fate
    });
    held.into_iter().for_each(|held| world.undo(held));
    let all = others(&world, &[]);
    for round in 1..5 {
        world.run_for(Duration::from_millis(700));
        write_all(&mut world, 3, round);
        wait_whole(&mut world, &all, HEALED);
        all_there(&mut world, &all, round);
        let gone = world.kill(3, false);
        world.run_for(Duration::from_millis(100));
        world.undo(gone);
    }
    was_disturbed(&mut world, begin);
    ends_well(world);
    pages.get()
}

#[test]
fn pages_come_twice_and_late() {
    for_each_seed("pages_come_twice_and_late", 10, |seed| {
        let pages = pages_go_astray(seed, Defects::NONE);
        println!("seed {seed}: {pages:?}");
        assert!(pages.lost > 0 && pages.twice > 20 && pages.late > 0, "{pages:?}");
    });
}

#[test]
fn late_pages_replace_nothing_newer() {
    let script = |seed, defects| {
        pages_go_astray(seed, defects);
    };
    is_needed(Defect::LateChunk, "difference", 5, script);
}

/// End of the first attempt at a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// The newcomer dies, and keeps its store.
    NewcomerDies,
    /// The newcomer loses its store.
    NewcomerLosesAll,
    /// The epoch ends, and all terms with it.
    Epoch,
    /// The source of the copy dies.
    SourceDies,
}

/// A copy begins anew after `nth` frames; all pages of the first attempt come again in the second.
fn attempts_mix(seed: u64, nth: usize, ends: Ends) -> (usize, usize) {
    let slow = Scenario { transfer_bytes_per_s: 5_000, ..in_pages(seed, 4, nth % 2 == 1) };
    let (mut world, held) = filled(slow);
    let begin = world.now();
    let doubles = Rc::new(Cell::new(true));
    let (is_first, first, second, source) =
        (doubles.clone(), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (firsts, seconds, asked) = (first.clone(), second.clone(), source.clone());
    let mut rng = Rng::new(seed + nth as u64, "pages");
    world.tap(move |flight| {
        if flight.class != Class::Bulk || (flight.from != 3 && flight.to != 3) {
            return Fate::Goes;
        }
        let count = if is_first.get() { &firsts } else { &seconds };
        count.set(count.get() + 1);
        if flight.from == 3 {
            asked.set(flight.to);
        }
        if is_first.get() {
            return Fate::Twice(rng.duration(Duration::from_millis(50), Duration::from_millis(2_500)));
        }
        Fate::Goes
    });
    held.into_iter().for_each(|held| world.undo(held));
    wait(&mut world, HEALED, "the first attempt comes so far", |_| first.get() >= nth);
    doubles.set(false);
    let gone = match ends {
        Ends::NewcomerDies | Ends::NewcomerLosesAll => world.kill(3, ends == Ends::NewcomerDies),
        Ends::Epoch => world.inject(FaultKind::StopEpoch(Target::Leader)),
        Ends::SourceDies => world.kill(source.get(), true),
    };
    if ends == Ends::SourceDies {
        world.run_for(Duration::from_millis(300));
    }
    world.undo(gone);
    serves(&mut world, &[0, 1, 2]);
    write_all(&mut world, 3, 1);
    let all = others(&world, &[]);
    wait_whole(&mut world, &all, HEALED);
    world.run_for(Duration::from_secs(3));
    all_there(&mut world, &all, 1);
    was_disturbed(&mut world, begin);
    ends_well(world);
    (first.get(), second.get())
}

#[test]
fn attempts_do_not_mix() {
    for_each_seed("attempts_do_not_mix", 1, |seed| {
        for ends in [Ends::NewcomerDies, Ends::NewcomerLosesAll, Ends::Epoch, Ends::SourceDies] {
            let (mut runs, mut first, mut second) = (0, 0, 0);
            for nth in 2..18 {
                let counts = attempts_mix(seed, nth, ends);
                (runs, first, second) = (runs + 1, first + counts.0, second + counts.1);
            }
            println!("{ends:?}: {runs} runs, {first} frames of first attempts came again, {second} of others once");
            assert!(first >= 2 * runs && second >= 2 * runs, "two attempts in each");
        }
    });
}
