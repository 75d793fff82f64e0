//! A group that holds much more data than a message, or than memory, lets a newcomer in (hazards 52, 53).

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use group::Group;
use group::op::{Answer, Condition, Expiry, Op};
use node::{Class, Node};
use testnet::history::Outcome;
use testnet::live::is_long;
use testnet::sim::harness::for_each_seed;
use testnet::sim::{Fate, Scenario, World};

use super::parts::*;

/// Limit of messages, in bytes: so low that all transfers meet it.
const MESSAGE: usize = 4 << 10;

/// Limit of records in memory, in bytes.
const MEMORY: usize = 4 << 20;

/// Bytes of an encoded frame beside the limit of bulk: one more record's head, and the frame's own.
const HEAD: usize = 512;

/// Number of questions that wait for their answers at a time.
const TOGETHER: usize = 200;

/// Figures of the newcomer's copy.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    pages: u64,
    bytes: u64,
    largest: usize,
    /// Questions since the last page.
    open: u64,
    open_most: u64,
}

fn put(value: &Bytes) -> Op {
    Op::Set { value: value.clone(), condition: Condition::Always, expiry: Expiry::Clear, get: false }
}

fn name(index: usize) -> String {
    format!("{index:08x}")
}

/// Writes so many keys, through one machine.
fn fill(world: &mut World<Node>, host: usize, count: usize, value: &Bytes) {
    for first in (0..count).step_by(TOGETHER) {
        let asked: Vec<usize> =
            (first..count.min(first + TOGETHER)).map(|index| world.ask_host(host, &name(index), put(value))).collect();
        let done = |world: &World<Node>| asked.iter().all(|index| world.outcome(*index).is_some());
        wait(world, SOON, "it writes", done);
        for index in asked {
            assert_eq!(world.outcome(index), Some(&Outcome::Answered(Answer::Done)));
        }
    }
}

fn watch(world: &mut World<Node>) -> Rc<Cell<Figures>> {
    let figures = Rc::new(Cell::new(Figures::default()));
    let seen = figures.clone();
    world.tap(move |flight| {
        if flight.class == Class::Bulk {
            let mut now = seen.get();
            now.largest = now.largest.max(flight.frame.len());
            now.bytes += flight.frame.len() as u64;
            if flight.from == 1 {
                now.open += 1;
                now.open_most = now.open_most.max(now.open);
            } else {
                now.pages += 1;
                now.open = 0;
            }
            seen.set(now);
        }
        Fate::Goes
    });
    figures
}

/// A newcomer copies `count` records of `value_bytes` bytes each, in messages of 4 KiB.
fn moves(count: usize, value_bytes: usize) -> Figures {
    let scenario = Scenario {
        message_bytes_max: MESSAGE,
        memory_bytes_max: MEMORY,
        value_bytes_max: value_bytes.max(64 << 10),
        // A look at the whole store takes as long as the store is large.
        sweep_every: u64::MAX,
        ..quiet(1, 2)
    };
    let begin = Instant::now();
    let (mut world, held) = formed_without(scenario, 1);
    let value = Bytes::from(vec![7; value_bytes]);
    fill(&mut world, 0, count, &value);
    let filled = begin.elapsed();
    let figures = watch(&mut world);
    held.into_iter().for_each(|held| world.undo(held));
    let (begin, start) = (Instant::now(), world.now());
    let mut memory = [0; 2];
    while !(is_whole(&world, 1) && is_whole(&world, 0)) {
        world.run_for(Duration::from_millis(200));
        assert!(world.failure().is_none(), "{}", failure(&world));
        assert!(world.now().since(start) < Duration::from_secs(3 * 3_600), "it never ends: {:?}", figures.get());
        for (host, most) in memory.iter_mut().enumerate() {
            *most = (*most).max(group(&world, host).map_or(0, |group: &Group| group.table().bytes()));
        }
    }
    let (took, simulated) = (begin.elapsed(), world.now().since(start));
    let figures = figures.get();
    let mib = (count * value_bytes) as f64 / f64::from(1 << 20);
    println!(
        "{mib:.0} MiB in {count} records: filled in {filled:.1?}; copied in {took:.1?} ({:.1} MiB/s), simulated \
         {simulated:.1?}; {figures:?}; memory of records at most {memory:?}",
        mib / took.as_secs_f64(),
    );
    world.untap();
    let [from, to] = [0, 1].map(|host| world.store(host).records());
    assert!(from.eq(to), "the copy is the same");
    assert_eq!(world.store(1).records().count(), count);
    assert!(memory.iter().all(|most| *most <= 2 * MEMORY), "{memory:?}");
    // One question at a time; a question is repeated where its answer was lost, or was not possible.
    assert!(figures.open_most <= 4, "{figures:?}");
    // The newcomer alone has all keys of the range.
    for index in (0..count).step_by(count / 8) {
        let read = world.read_within(1, &name(index), SOON);
        assert_eq!(read, Some(Outcome::Answered(Answer::Value(Some(value.clone())))));
    }
    world.judge();
    assert!(world.failure().is_none(), "{}", failure(&world));
    figures
}

#[test]
fn much_moves_through_small_messages() {
    // With `SCATTER_LONG` this takes ten minutes, and 8 GiB of memory.
    const VALUE: usize = 3_900;
    let mib = if is_long() { 2_048 } else { 32 };
    let figures = moves(mib * (1 << 20) / VALUE, VALUE);
    assert!(figures.largest <= MESSAGE + VALUE + HEAD, "{figures:?}");
    assert!(figures.pages as usize > mib * 200, "{figures:?}");
}

/// A record is never cut: one that is larger than a message makes a message of its own.
#[test]
fn a_value_larger_than_a_message_goes_alone() {
    let figures = moves(64, 100 << 10);
    assert!(figures.pages >= 64, "each in its own: {figures:?}");
    assert!(figures.largest <= (100 << 10) + HEAD, "{figures:?}");
}

/// Returns the size of the largest frame of each class, in bytes.
fn largest(scenario: &Scenario) -> [usize; 3] {
    let mut world = World::<Node>::new(scenario.clone());
    let most = Rc::new(Cell::new([0; 3]));
    let seen = most.clone();
    world.tap(move |flight| {
        let mut now = seen.get();
        let place = &mut now[flight.class as usize];
        *place = flight.frame.len().max(*place);
        seen.set(now);
        Fate::Goes
    });
    if let Err(failure) = world.run() {
        panic!("{failure}\n\n{scenario}");
    }
    most.get()
}

/// Members come and go while every page, promise and batch is cut to a very small size.
#[test]
fn all_goes_through_small_messages() {
    for_each_seed("all_goes_through_small_messages", 25, |seed| {
        let run = largest(&Scenario { message_bytes_max: 512, ..Scenario::churn(seed) });
        println!("seed {seed}: control {}, data {}, bulk {} bytes at most", run[0], run[1], run[2]);
    });
}
