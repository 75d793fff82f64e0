//! Writes on their way through a switch: what is chosen, held, repeated and numbered. Each of these tests once failed.

use std::time::Duration;

use group::ballot::TermBallot;
use group::harmonia::WritePass;
use group::message::CommitteeMessage;
use header::{Header, NO_OBJECT, Operation};
use switch::dirty::{Region, Shape};
use switch::pipeline::{Pipeline, Verdict};
use switch::tables::Partition;

use crate::bench::primary::{Primary, TRIAL, put};
use crate::bench::{operate, operation};

/// The dirty set has one slot; the packets of two writes change places.
#[test]
fn a_full_dirty_set_does_not_stop_writes_for_ever() {
    let mut primary = Primary::new();
    primary.on();
    let own = primary.whole.own();
    let mut machine = one_slot(own);
    let head = |operation, object, sequence, tag| packet(own, operation, object, sequence, tag);
    // The numbers that the primary has seen were this switch's.
    for _ in 0..50 {
        machine.process(&mut head(Operation::WriteFirst, NO_OBJECT, 0, 0), 0);
    }
    let start = primary.whole.now.time;
    primary.whole.hear(2, operate(operation(own, 1, "a", put("1"))));
    primary.pull();
    primary.whole.hear(2, operate(operation(own, 2, "b", put("2"))));
    primary.pull();
    // `Whole::hear` pulls by itself and drops passes; they are passed again after 5 ms.
    let (mut full, mut tries) = (0, 0);
    let mut done = None;
    let mut first = true;
    for ms in 0..120_000 {
        primary.wait_micros(1_000);
        let mut passes = std::mem::take(&mut primary.passes);
        if first && passes.len() == 2 {
            passes.reverse(); // The network turns them round.
            first = false;
        }
        for pass in passes {
            tries += 1;
            let object = match pass.key.as_ref().map(|it| it.name().to_vec()) {
                None => NO_OBJECT,
                Some(name) => u32::from(name[0]),
            };
            let mut header = head(Operation::WriteFirst, object, 0, pass.tag);
            match machine.process(&mut header, 0) {
                Verdict::To(_) => primary.passed(header.sequence, pass.tag),
                _ => full += 1,
            }
        }
        for number in std::mem::take(&mut primary.completes) {
            machine.process(&mut head(Operation::Completion, NO_OBJECT, number, 0), 0);
        }
        answer_as_member_2(&mut primary, own);
        let counts = primary.whole.group.primaries().next().unwrap().counts();
        if counts.in_flight == 0 {
            done = Some(ms);
            break;
        }
    }
    let passed = primary.whole.now.time.since(start);
    println!(
        "done {done:?} after {passed:?}, full {full}, tries {tries}, switch {:?}",
        primary.whole.group.primaries().next().unwrap().switch()
    );
    assert!(done.is_some_and(|ms| ms < 2_000), "writes wait for longer than a grant: {done:?}");
}

/// Returns a pipeline with one slot for dirty objects, in which the partition 7 is under this ballot.
fn one_slot(own: TermBallot) -> Pipeline {
    let mut machine = Pipeline::new(Shape { stages: 1, slots: 1 }, 1);
    let partition = Partition {
        index: 0,
        region: Region { first: 0, slots: 1 },
        term: own.term.0,
        switch: 3,
        active: true,
        primary: 1,
        replicas: vec![(2, 1)],
    };
    machine.set(7, partition).unwrap();
    machine
}

/// Returns a packet in that partition.
fn packet(own: TermBallot, operation: Operation, object: u32, sequence: u64, tag: u64) -> Header {
    Header { operation, partition: 7, object, switch: 3, term: own.term.0, sequence, committed: 0, tag }
}

/// Answers as member 2, coarse: accepts all numbers up to the first gap, and confirms as well.
fn answer_as_member_2(primary: &mut Primary, own: TermBallot) {
    let mut got: Vec<u64> = Vec::new();
    for (_, message) in std::mem::take(&mut primary.said) {
        match message {
            CommitteeMessage::Accept { writes, .. } => got.extend(writes.iter().map(|it| it.record.number.n)),
            CommitteeMessage::Confirm { ballot, attempt, .. } => {
                primary.hear(2, CommitteeMessage::Confirmed { ballot, attempt });
            }
            _ => {}
        }
    }
    if got.contains(&1) {
        primary.hear(2, CommitteeMessage::Accepted { ballot: own, numbers: vec![(1, 2)] });
    }
}

/// A quorum has the write, and no switch holds its object as dirty: a member with a grant does not know of the write.
#[test]
fn what_has_not_come_back_is_not_chosen() {
    let mut primary = Primary::new();
    primary.on();
    // Two inputs of one batch, and the process is not run between them for 301 ms; a lease is 990 ms.
    primary.ask(1, "a");
    let now = primary.whole.now.time.0;
    primary.at(now + Duration::from_millis(301).as_nanos() as u64);
    primary.whole.group.tick();
    primary.pull();
    assert!(primary.passes.iter().any(|pass| pass.tag == 1), "it passes the switch");
    primary.accepted(1);
    assert_eq!((primary.in_flight(), &primary.whole.outcomes[..]), (1, &[][..]));
    primary.passed(1_000, 1);
    assert_eq!(primary.in_flight(), 0);
    // Its number is not open for ever.
    for n in 0..100 {
        primary.wait_micros(50_000);
        for pass in std::mem::take(&mut primary.passes) {
            primary.passed(1_001 + n, pass.tag);
        }
    }
    assert!(primary.completes.last() > Some(&1_000), "{:?}", primary.completes);
}

/// Two lives of one id: two writes get the same number, and the first of them makes the primary forget its open numbers.
#[test]
fn a_number_that_is_open_already_is_not_taken() {
    let mut primary = Primary::new();
    primary.on();
    let base = primary.completes.last().unwrap() + 10; // Beyond the numbers that trials got.
    primary.ask(1, "a");
    primary.passed(base + 1, 1);
    primary.passed(base + 9, TRIAL);
    primary.ask(2, "b");
    primary.passed(base + 1, 2); // The switch has begun anew.
    primary.completes.clear();
    primary.accepted(2);
    assert_eq!(primary.in_flight(), 1, "b is not chosen");
    // The write waits until no grant is alive, and the primary grants nothing under that id meanwhile.
    assert_eq!(primary.whole.group.primaries().next().unwrap().switch(), None);
    for _ in 0..1_100 {
        primary.wait_micros(1_000);
    }
    assert_eq!(primary.in_flight(), 0, "in the end it is");
}

/// The cost of a single write.
#[test]
fn what_a_write_costs() {
    let mut primary = Primary::new();
    primary.on();
    let base = *primary.completes.last().unwrap();
    (primary.said, primary.passes, primary.completes) = Default::default();
    primary.ask(1, "a");
    primary.passed(base + 1, 1);
    primary.accepted(1);
    for _ in 0..20 {
        primary.wait_micros(1_000);
    }
    let count: usize = primary.said.iter().map(|(to, _)| to.len()).sum();
    // The write and its point to each other member: a point carries the chosen mark, too.
    assert_eq!((count, primary.completes.len()), (4, 1), "{:?}", primary.said);
}

/// A write that waits for its switch is proposed to no member. Its client got `UNCERTAIN` long ago, and other clients have read since, from
/// a member, that it was not done. So no later primary may do it (I8).
#[test]
fn what_was_held_too_long_is_not_handed_over() {
    let mut primary = Primary::new();
    primary.on();
    primary.ask_for(1, "b", 100); // All packets that it passes are lost.
    let start = primary.whole.now.time.0;
    for _ in 0..600 {
        primary.wait_micros(1_000);
    }
    // The process is not run until all grants are over; the first that it hears of then is that its group ends.
    primary.at(start + Duration::from_millis(1_200).as_nanos() as u64);
    primary.whole.group.give_way();
    let handed = primary.whole.group.handovers();
    let late = handed.iter().flat_map(|handover| &handover.unsettled).find(|write| write.record.value.is_some());
    assert!(late.is_none(), "asked for 1200 ms ago, for 100 ms: {late:?}");
}

/// A switch that loses nothing and has room for all. Returns the number of passes for each write, and the number of writes chosen in two
/// seconds of 16 keys that are always written. The way through the switch takes one to two milliseconds at first, and then `more_micros`
/// longer.
fn passes_per_write(more_micros: u64) -> (f64, u64) {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
    let mut primary = Primary::new();
    primary.on();
    let mut number = primary.completes.last().copied().unwrap_or(1) + 100;
    let mut on_way = std::collections::BTreeMap::<(u64, u64), WritePass>::new();
    let (mut asked, mut sent, mut last, mut before, mut before_sent, mut newest) =
        (0_u64, 0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    for step in 0..20_000_u64 {
        let now = step * 125;
        if step == 4_000 {
            (before, before_sent) = (last, sent);
        }
        while primary.in_flight() < names.len() {
            asked += 1;
            primary.ask(asked, names[asked as usize % names.len()]);
        }
        primary.wait_micros(125);
        for pass in std::mem::take(&mut primary.passes) {
            number += 1;
            sent += u64::from(pass.tag != TRIAL);
            let jitter = number * 7919 % 1_000;
            let way = 1_000 + jitter + if step >= 4_000 { more_micros } else { 0 };
            newest = newest.max(now + way); // None overtakes another: a later number that comes earlier makes the other void.
            on_way.insert((newest, number), pass);
        }
        while let Some(((at, number), pass)) = on_way.pop_first() {
            if at > now {
                on_way.insert((at, number), pass);
                break;
            }
            primary.passed_since(number, pass.tag, pass.sent);
        }
        let proposed = primary.said.iter().filter_map(|(_, it)| match it {
            CommitteeMessage::Accept { writes, .. } => writes.iter().map(|it| it.record.number.n).max(),
            _ => None,
        });
        if let Some(newest) = proposed.max() {
            last = last.max(newest);
            primary.accepted(last); // Member 2 is quick.
        }
        let asks = |(_, it): &(_, CommitteeMessage)| matches!(it, CommitteeMessage::Confirm { lease: true, .. });
        if primary.said.iter().any(asks) {
            primary.confirm();
        }
        primary.said.clear();
    }
    let (writes, passes) = (last - before, sent - before_sent);
    let on = primary.whole.group.primaries().next().unwrap().switch();
    println!(
        "{} us more: {writes} writes, {passes} passes, on: {on:?}; at first {before} and {before_sent}",
        more_micros
    );
    (passes as f64 / writes as f64, writes)
}

#[test]
fn how_long_a_way_takes_is_learnt() {
    let figures: Vec<(u64, f64, u64)> = [0, 3_000, 10_000, 30_000, 60_000]
        .into_iter()
        .map(|more| {
            let (passes, writes) = passes_per_write(more);
            (more, passes, writes)
        })
        .collect();
    // 16 keys, each in flight for the way and little more.
    let few = |(more, _, writes): &&(u64, f64, u64)| *writes < 2_000_000 * 16 / (2_500 + more) / 2;
    assert_eq!(figures.iter().find(few), None, "too few writes: {figures:?}");
    let much = |(_, passes, _): &&(u64, f64, u64)| *passes > 1.2;
    assert_eq!(figures.iter().find(much), None, "too many passes: {figures:?}");
}

/// A switch that numbers as high as possible: before, the next number overflowed.
#[test]
fn a_switch_may_use_up_its_numbers() {
    let mut primary = Primary::new();
    primary.on();
    primary.passed(u64::MAX, TRIAL);
    primary.passed(u64::MAX, TRIAL);
    primary.passed(0, TRIAL);
    assert_eq!(primary.whole.group.primaries().next().unwrap().switch(), Some(3));
}
