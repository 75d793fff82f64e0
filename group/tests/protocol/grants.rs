//! Faults of reads that a switch spreads: grants, their ends, and the primaries that wait for them. Each of these tests once failed.

use std::time::Duration;

use group::Group;
use group::ballot::{LogSlot, Term, TermBallot};
use group::control::state::{Assignment, EpochConfig, GroupState};
use group::harmonia::switch::Switch;
use group::harmonia::{Answers, ReturnedWrite, WritePass};
use group::message::{ClientOperation, CommitteeMessage, Message};
use group::op::Op;
use group::outbox::GroupOutput;
use group::transaction::successor::handover::Inheritance;
use header::{Header, NO_OBJECT, Operation};
use overlay::{Epoch, GroupId, KeyRange};
use switch::dirty::{Region, Shape};
use switch::pipeline::{Pipeline, Verdict};
use switch::tables::Partition;

use crate::bench::{Bench, Whole, ballot, node, operate, operation, promise};

const TRIAL: u64 = u64::MAX;

/// A primary (node 1 of 3) that serves, and the packets to its switch.
struct Primary {
    whole: Whole,
    passes: Vec<WritePass>,
    completes: Vec<u64>,
    said: Vec<(Vec<overlay::NodeId>, CommitteeMessage)>,
}

impl Primary {
    fn new() -> Primary {
        let mut bench = Bench::new(node(1), 3);
        (bench.state.settings.coarse, bench.state.settings.leases) = (true, true);
        bench.state.switch = Switch::on(3);
        let mut whole = Whole::new(&bench);
        whole.wait(1_500);
        whole.wait(400);
        whole.serve();
        let mut primary = Primary { whole, passes: Vec::new(), completes: Vec::new(), said: Vec::new() };
        primary.pull();
        primary
    }

    fn pull(&mut self) {
        for (to, message) in std::mem::take(&mut self.whole.said) {
            if let Message::Committee(message) = message {
                self.said.push((to, message));
            }
        }
        while let Some(output) = self.whole.group.poll_output() {
            match output {
                GroupOutput::Send(to, Message::Committee(message), _) => self.said.push((to, message)),
                GroupOutput::Persist(token, _) => self.whole.group.on_persisted(token),
                GroupOutput::Pass(pass) => self.passes.push(pass),
                GroupOutput::Complete { number, .. } => self.completes.push(number),
                GroupOutput::Outcome(attempt, outcome) => self.whole.outcomes.push((attempt, outcome)),
                _ => {}
            }
        }
    }

    fn hear(&mut self, from: u8, message: CommitteeMessage) {
        let from = group::message::Sender { node: node(from), epoch: self.whole.group.state().epoch };
        self.whole.group.on_message(from, Message::Committee(message));
        self.pull();
    }

    fn at(&mut self, nanos: u64) {
        self.whole.now.time = overlay::time::Time(nanos);
        self.whole.now.awake = self.whole.now.time;
        self.whole.group.set_now(self.whole.now);
    }

    fn wait_micros(&mut self, micros: u64) {
        let now = self.whole.now.time.0 + micros * 1000;
        self.at(now);
        self.whole.group.tick();
        self.pull();
    }

    fn passed(&mut self, number: u64, tag: u64) {
        self.passed_since(number, tag, self.whole.now.time);
    }

    fn passed_since(&mut self, number: u64, tag: u64, sent: overlay::time::Time) {
        let ballot = self.whole.own();
        self.whole.group.on_passed(ballot, &ReturnedWrite { switch: 3, number, tag, sent });
        self.pull();
    }

    /// Member 2 passes on an operation with a client that waits for 10 s.
    fn ask(&mut self, attempt: u64, key: &'static str) {
        self.ask_for(attempt, key, 10_000);
    }

    fn ask_for(&mut self, attempt: u64, key: &'static str, patience_ms: u32) {
        let from = group::message::Sender { node: node(2), epoch: Epoch(1) };
        let operation = ClientOperation { patience_ms, ..operation(self.whole.own(), attempt, key, put("1")) };
        self.whole.group.on_message(from, operate(operation));
        self.pull();
    }

    /// Member 2 has accepted all writes up to this one.
    fn accepted(&mut self, last: u64) {
        let ballot = self.whole.own();
        self.hear(2, CommitteeMessage::Accepted { ballot, numbers: vec![(1, last)] });
    }

    fn in_flight(&self) -> usize {
        self.whole.group.primaries().next().unwrap().counts().in_flight
    }

    /// Member 2 confirms the last round for the lease. Returns the grant for it.
    fn confirm(&mut self) -> Option<CommitteeMessage> {
        let attempt = self.said.iter().rev().find_map(|(_, it)| match it {
            CommitteeMessage::Confirm { attempt, lease: true, .. } => Some(*attempt),
            _ => None,
        });
        let (ballot, attempt) = (self.whole.own(), attempt.expect("it asks"));
        self.said.clear();
        self.hear(2, CommitteeMessage::Confirmed { ballot, attempt });
        self.said.iter().map(|(_, it)| it).find(|it| matches!(it, CommitteeMessage::Grant { .. })).cloned()
    }

    /// Begins to use the switch, with a fresh lease and a grant at member 2, right now.
    fn on(&mut self) -> (u64, CommitteeMessage) {
        self.confirm();
        for _ in 0..200 {
            if !self.passes.is_empty() {
                break;
            }
            self.wait_micros(5_000);
        }
        self.passed(1, TRIAL);
        self.passes.clear();
        assert_eq!(self.whole.group.primaries().next().unwrap().switch(), Some(3));
        // A fresh round.
        self.said.clear();
        while !self.said.iter().any(|(_, it)| matches!(it, CommitteeMessage::Confirm { lease: true, .. })) {
            self.wait_micros(1_000);
            for pass in std::mem::take(&mut self.passes) {
                self.passed(self.completes.last().copied().unwrap_or(1) + 1, pass.tag);
            }
        }
        let attempt = self.said.iter().rev().find_map(|(_, it)| match it {
            CommitteeMessage::Confirm { attempt, lease: true, .. } => Some(*attempt),
            _ => None,
        });
        let grant = self.confirm().expect("a grant");
        (attempt.unwrap(), grant)
    }
}

/// Returns member 2 with the base of that ballot, after it got this grant.
fn replica(own: TermBallot, now: u64, attempt: u64, grant: &CommitteeMessage) -> Bench {
    let mut bench = Bench::new(node(2), 3);
    (bench.state.settings.coarse, bench.state.settings.leases) = (true, true);
    bench.now.time = overlay::time::Time(now);
    bench.serve(own, &[]);
    bench.hear(1, CommitteeMessage::Confirm { ballot: own, attempt, lease: true, chosen: Some(0) });
    bench.hear(1, grant.clone());
    bench
}

fn put(_: &'static str) -> Op {
    Op::Add(1)
}

#[test]
fn a_birth_waits_for_grants() {
    let mut primary = Primary::new();
    let (attempt, grant) = primary.on();
    let own = primary.whole.own();
    let now = primary.whole.now;
    let mut replica = replica(own, now.time.0, attempt, &grant);
    let CommitteeMessage::Grant { point, .. } = grant else { unreachable!() };
    assert_eq!(replica.act(|acceptor, ctx, _| acceptor.may_answer(ctx, own, 3, point)), Answers::Yes);

    // The group ends by a transaction that members 1 and 3 know of; member 2 does not yet.
    let last = primary.whole.group.state().clone();
    let slot = LogSlot(last.applied.0 + 1);
    let all = Assignment { start: KeyRange::FULL.start(), node: node(1), term: Term::new(slot, 0) };
    let before = EpochConfig { epoch: Epoch(1), members: last.nodes(), open: vec![KeyRange::FULL] };
    let state = GroupState {
        id: GroupId(2),
        applied: slot,
        epoch: Epoch(2),
        born: Epoch(2),
        born_at: slot,
        division: vec![all],
        recovery: vec![before],
        switch: Switch::default(),
        ..last
    };
    let group = Group::succeed(&mut primary.whole.group, state, &[], Vec::new(), Inheritance::default(), now, 2);
    primary.whole.group.give_way();
    let mut born = Primary {
        whole: Whole { group, now, said: vec![], outcomes: vec![], stored: vec![], loads: vec![], halted: vec![] },
        ..Primary::new()
    };
    born.said.clear();
    born.pull();
    let ballot = born.whole.own();
    // Member 3, too, has granted the old primary a lease.
    born.hear(3, promise(ballot, vec![(own, 1_000)]));
    born.hear(3, CommitteeMessage::BaseAccepted { ballot });
    let serves = born.whole.group.primaries().any(|it| it.ballot() == ballot && it.is_serving());
    let answers = replica.act(|acceptor, ctx, _| acceptor.may_answer(ctx, own, 3, point));
    assert_eq!(answers, Answers::Yes, "the grant is alive");
    assert!(!serves, "the born group's primary serves while member 2 may answer for the old one");
}

#[test]
fn a_takeover_in_the_same_group_waits_for_grants() {
    let mut primary = Primary::new();
    primary.on();
    primary.said.clear();
    primary.hear(3, CommitteeMessage::Prepare { ballot: ballot(9, 3), range: KeyRange::FULL });
    let delegated = primary.said.iter().find_map(|(_, it)| match it {
        CommitteeMessage::Promise { delegated, .. } => Some(delegated.len()),
        _ => None,
    });
    assert_eq!(delegated, Some(1));
}

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

#[test]
fn whoever_waits_for_grants_does_not_spin() {
    let mut primary = Primary::new();
    primary.on();
    // The switch is gone.
    let mut spins = 0;
    let mut ended = false;
    for _ in 0..600 {
        primary.wait_micros(1_000);
        ended |= primary.whole.group.primaries().next().unwrap().switch().is_none();
        let mut next = primary.whole.group.next_timeout();
        if next <= primary.whole.now.time {
            primary.whole.group.tick();
            primary.pull();
            next = primary.whole.group.next_timeout();
        }
        spins += u32::from(next <= primary.whole.now.time);
    }
    assert!(ended);
    assert_eq!(spins, 0, "milliseconds in which its next timeout is in the past although it has just ticked");
}

/// Returns by how many microseconds a grant outlasts the wait for it. Clocks as in `tests/world`: each within the drift of true time.
fn overlap(drift: u32) -> i64 {
    let mut primary = Primary::new();
    let (attempt, grant) = primary.on();
    let own = primary.whole.own();
    let CommitteeMessage::Grant { point, .. } = grant else { unreachable!() };
    let start = primary.whole.now.time.0;
    let mut replica = replica(own, start, attempt, &grant);
    primary.ask(1, "a");
    primary.accepted(1);
    let (mut direct, mut over) = (None, None);
    for us in (0..3_000_000).step_by(500) {
        let real = us * 1000;
        primary.at(start + real * u64::from(1000 + drift) / 1000);
        primary.whole.group.tick();
        primary.pull();
        replica.now.time = overlay::time::Time(start + real * u64::from(1000 - drift) / 1000);
        if replica.act(|acceptor, ctx, _| acceptor.may_answer(ctx, own, 3, point)) != Answers::Yes {
            over.get_or_insert(us);
        }
        if primary.in_flight() == 0 {
            direct.get_or_insert(us);
        }
        if direct.is_some() && over.is_some() {
            break;
        }
    }
    println!("chosen around the switch after {direct:?} us, the grant is over after {over:?} us");
    over.unwrap() as i64 - direct.unwrap() as i64
}

#[test]
fn a_grant_is_over_at_the_replica_first() {
    // 10 per mille, as agreed in the bench.
    assert!(overlap(10) <= 0, "{} us too long", overlap(10));
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

/// A write that is proposed and has not come back would take effect after its client got `UNCERTAIN`, while members answer without it (I8).
#[test]
fn no_grant_runs_beyond_the_end_of_a_clients_patience() {
    let mut primary = Primary::new();
    primary.on();
    // All other packets come back, and the lease is renewed: after 330 ms.
    let (mut number, mut granted, mut start) = (1_000, Vec::new(), primary.whole.now.time);
    for ms in 0..500 {
        if ms == 200 {
            start = primary.whole.now.time;
            primary.ask_for(1, "a", 800);
        }
        primary.wait_micros(1_000);
        for pass in std::mem::take(&mut primary.passes).into_iter().filter(|pass| pass.tag == TRIAL) {
            number += 1;
            primary.passed(number, pass.tag);
        }
        let asks = |(_, it): &(_, CommitteeMessage)| matches!(it, CommitteeMessage::Confirm { lease: true, .. });
        if primary.said.iter().any(asks)
            && let Some(CommitteeMessage::Grant { left_us, .. }) = primary.confirm()
        {
            granted.push(primary.whole.now.time.since(start) + Duration::from_micros(left_us));
        }
    }
    assert!(!granted.is_empty());
    assert!(granted.iter().all(|end| *end <= Duration::from_millis(800)), "{granted:?}");
    // A write with a client that waits less than a grant's time is not proposed before it is back, and never after that time.
    let mut primary = Primary::new();
    primary.on();
    primary.said.clear();
    primary.ask_for(1, "b", 100);
    let is_proposed =
        |(_, it): &(_, CommitteeMessage)| matches!(it, CommitteeMessage::Accept { writes, .. } if !writes.is_empty());
    assert!(!primary.said.iter().any(is_proposed));
    primary.wait_micros(101_000);
    primary.passed(1_000, 1);
    let proposed = primary.said.iter().find(|it| is_proposed(it));
    let Some((_, CommitteeMessage::Accept { writes, .. })) = proposed else { panic!("{:?}", primary.said) };
    assert!(writes.iter().all(|write| write.record.value.is_none()), "{writes:?}");
}

/// Grants in one part do not concern a primary that takes another part.
#[test]
fn grants_elsewhere_delay_nobody() {
    let middle = overlay::Point(1 << 127);
    let (left, right) = (KeyRange::new(overlay::Point(0), middle), KeyRange::new(middle, overlay::Point(0)));
    let mut bench = Bench::new(node(1), 3);
    (bench.state.settings.coarse, bench.state.settings.leases) = (true, true);
    bench.state.switch = Switch::on(3);
    let part = |index, start, peer| Assignment { start, node: node(peer), term: Term::new(LogSlot(1), index) };
    bench.state.division = vec![part(0, left.start(), 1), part(1, right.start(), 3)];
    let mut whole = Whole::new(&bench);
    whole.wait(1_500);
    whole.wait(400);
    whole.serve();
    let mut primary = Primary { whole, passes: vec![], completes: vec![], said: vec![] };
    primary.pull();
    primary.on();
    primary.said.clear();
    primary.hear(3, CommitteeMessage::Prepare { ballot: ballot(9, 3), range: right });
    let delegated = primary.said.iter().find_map(|(_, it)| match it {
        CommitteeMessage::Promise { delegated, .. } => Some(delegated.clone()),
        _ => None,
    });
    assert_eq!(delegated, Some(vec![]), "of the other half");
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

/// Older leases, and grants, are alive: their holders answer reads without the writes that a new primary has proposed meanwhile. A write
/// with no client that waits until the leases are over must not be done then (I8).
#[test]
fn what_is_asked_before_it_serves_is_not_done_too_late() {
    let mut bench = Bench::new(node(1), 3);
    (bench.state.settings.coarse, bench.state.settings.leases) = (true, true);
    bench.state.division =
        vec![Assignment { start: KeyRange::FULL.start(), node: node(1), term: Term::new(LogSlot(1), 0) }];
    let mut whole = Whole::new(&bench);
    whole.wait(1_500);
    whole.wait(400);
    let mut primary = Primary { whole, passes: vec![], completes: vec![], said: vec![] };
    primary.pull();
    let own = primary.whole.own();
    // Member 2 has granted an older primary, member 3, a lease.
    let older = TermBallot { epoch: Epoch(1), term: Term::new(LogSlot(0), 0), node: node(3) };
    primary.hear(2, promise(own, vec![(older, 1_000)]));
    primary.hear(2, CommitteeMessage::BaseAccepted { ballot: own });
    let serves = |primary: &Primary| primary.whole.group.primaries().any(|it| it.is_serving());
    assert!(!serves(&primary));
    let start = primary.whole.now.time;
    primary.ask_for(1, "a", 100);
    primary.accepted(1);
    let mut done = None;
    for _ in 0..1_500 {
        primary.wait_micros(1_000);
        let told = primary.whole.told(1);
        if told.iter().any(|it| matches!(it, group::message::AttemptOutcome::Done(_))) {
            done.get_or_insert(primary.whole.now.time.since(start));
        }
        // `pull` keeps messages of committees only.
        if serves(&primary) && primary.in_flight() == 0 {
            done.get_or_insert(primary.whole.now.time.since(start));
        }
    }
    let proposed = primary.said.iter().find_map(|(_, it)| match it {
        CommitteeMessage::Accept { writes, .. } => writes.first().cloned(),
        _ => None,
    });
    let value = proposed.as_ref().and_then(|write| write.record.value.clone());
    assert!(value.is_none(), "asked for 100 ms, chosen after {done:?}, when the older lease is over: {proposed:?}");
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
