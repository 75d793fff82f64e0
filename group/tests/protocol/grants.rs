//! Faults of reads that a switch spreads: grants, their ends, and the primaries that wait for them. Each of these tests once failed.

use std::time::Duration;

use group::Group;
use group::ballot::{LogSlot, Term, TermBallot};
use group::control::state::{Assignment, EpochConfig, GroupState};
use group::harmonia::Answers;
use group::harmonia::switch::Switch;
use group::message::CommitteeMessage;
use group::transaction::successor::handover::Inheritance;
use overlay::{Epoch, GroupId, KeyRange};

use crate::bench::primary::{Primary, TRIAL};
use crate::bench::{Bench, Whole, ballot, node, promise};

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
