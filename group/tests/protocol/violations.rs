//! Messages of a peer, wrong by mistake or on purpose, do not stop a member, and do not fill it. They are counted.

use group::ballot::{Ballot, LogSlot, Number, Term, TermBallot};
use group::control::history::{FAILURES_MAX, History};
use group::control::state::Entry;
use group::message::{
    Base, ClientOperation, CommitteeMessage, Compared, Heartbeat, LogMessage, Message, Progress, Since,
};
use group::op::{Op, Read};
use group::outbox::Durable;
use group::validate::Violation;
use overlay::time::WallMillis;
use overlay::{Epoch, KeyRange, Point};

use crate::bench::{Bench, Whole, ballot, base, key, node, nothing_newer, operate, operation, promise, write};

/// Member 1 of three gets this from member 2, as it is and some time later: the message is dropped, for this reason.
fn expect(why: Violation, message: impl Into<Message>) {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    let message = message.into();
    let stored = whole.stored.len();
    whole.hear(2, message.clone());
    assert_eq!(whole.group.dropped().of(why), 1, "{message:?}: {:?}", whole.group.dropped());
    assert_eq!(whole.stored.len(), stored, "{message:?} is remembered");
    whole.wait(300);
    assert_eq!(whole.group.dropped().total(), 1, "{message:?}");
    assert!(whole.group.state().applied < LogSlot::MAX);
}

fn committee(message: CommitteeMessage) -> Message {
    Message::Committee(message)
}

#[test]
fn numbers_that_nobody_comes_to_are_dropped() {
    let bench = Bench::new(node(1), 3);
    let own = TermBallot { epoch: Epoch(1), ..bench.state.parts().next().unwrap().1 };
    let other = ballot(5, 2);
    let far = |n| vec![write(other, n, "k", "v")];
    let accept = |chosen, writes| committee(CommitteeMessage::Accept { ballot: other, chosen, writes });
    expect(Violation::Far, accept(Some(1), far(u64::MAX)));
    expect(Violation::Far, accept(None, far(1 << 40)));
    expect(Violation::Malformed, accept(Some(u64::MAX), far(1)));
    expect(Violation::Malformed, accept(Some(0), far(0)));
    expect(Violation::Malformed, accept(Some(0), vec![write(ballot(6, 2), 1, "k", "v")]));
    let accepted = |numbers| committee(CommitteeMessage::Accepted { ballot: own, numbers });
    expect(Violation::Malformed, accepted(vec![(1, u64::MAX)]));
    expect(Violation::Malformed, accepted(vec![(1, 5), (1, 1), (1, 1)]));
    expect(Violation::Malformed, accepted(vec![(5, 1)]));
    let since = Number { term: other.term, n: u64::MAX };
    expect(
        Violation::Malformed,
        committee(CommitteeMessage::AskSince { ballot: other, piece: KeyRange::FULL, since, attempt: 0 }),
    );
    let high = Ballot { round: u64::MAX, node: node(2) };
    expect(
        Violation::Malformed,
        Message::Log(LogMessage::Prepare { ballot: high, applied: LogSlot(u64::MAX), stop: false }),
    );
    expect(Violation::Malformed, Message::Log(LogMessage::Refused { ballot: high, promised: high }));
    let mut state = bench.state.clone();
    (state.applied, state.division) = (LogSlot(u64::MAX), Vec::new());
    expect(Violation::Malformed, Message::State(Box::new(state)));
    let progress = Progress { applied: LogSlot(u64::MAX), complete: Vec::new(), marks: Vec::new() };
    expect(Violation::Malformed, Message::Progress(progress));
    let asked = operation(own, 1, "k", Op::Read(Read::Value));
    expect(Violation::Malformed, operate(ClientOperation { horizon: u64::MAX, ..asked }));
}

/// Only the owner of a ballot proposes under it.
#[test]
fn nobody_proposes_under_the_ballot_of_another() {
    let theirs = ballot(5, 3);
    let (range, attempt, lease) = (KeyRange::FULL, 1, true);
    let messages = [
        CommitteeMessage::Prepare { ballot: theirs, range },
        CommitteeMessage::Accept { ballot: theirs, chosen: None, writes: vec![write(theirs, 1, "k", "v")] },
        CommitteeMessage::Base { ballot: theirs, base: base(&[], 0), chosen: Some(0) },
        CommitteeMessage::Confirm { ballot: theirs, attempt, lease, chosen: None },
        CommitteeMessage::AskRecord { ballot: theirs, key: key("k"), attempt: 1 },
    ];
    for message in messages {
        expect(Violation::NotItsBallot, committee(message));
    }
    let theirs = Ballot { round: 9, node: node(3) };
    expect(
        Violation::NotItsBallot,
        Message::Log(LogMessage::Prepare { ballot: theirs, applied: LogSlot(0), stop: false }),
    );
    let entries = vec![(LogSlot(2), Entry::Noop)];
    expect(Violation::NotItsBallot, Message::Log(LogMessage::Accept { ballot: theirs, entries, chosen: LogSlot(0) }));
    let heartbeat = Heartbeat {
        applied: LogSlot(1),
        leads: Some(theirs),
        chosen: LogSlot(1),
        hears: Vec::new(),
        terms: Vec::new(),
        parting: group::message::Parting::Stays,
        sealed: false,
        wall: WallMillis(1),
        sent_us: 5,
        echoes: Vec::new(),
        agreement_us: None,
        doubt: None,
        load: None,
        full: false,
        absences: Vec::new(),
        capacity: None,
        history: None,
        progress: None,
        marks: Vec::new(),
    };
    let load = Some(vec![1; 33]);
    expect(Violation::Malformed, Message::Heartbeat(Heartbeat { leads: None, load, ..heartbeat.clone() }.into()));
    let history = Some(History { failures: FAILURES_MAX + 1, lived_s: 1 });
    expect(Violation::Malformed, Message::Heartbeat(Heartbeat { leads: None, history, ..heartbeat.clone() }.into()));
    for capacity in [0, group::control::capacity::CAPACITY_MAX + 1].map(Some) {
        expect(
            Violation::Malformed,
            Message::Heartbeat(Heartbeat { leads: None, capacity, ..heartbeat.clone() }.into()),
        );
    }
    expect(Violation::NotItsBallot, Message::Heartbeat(heartbeat.into()));
}

#[test]
fn a_base_fits_its_committee() {
    let theirs = ballot(5, 2);
    let half = KeyRange::new(Point(0), Point(1 << 127));
    let message = |base| committee(CommitteeMessage::Base { ballot: theirs, base, chosen: Some(0) });
    // Its pieces are not its range.
    let pieces = vec![(half, vec![])];
    expect(Violation::Misplaced, message(Base { range: KeyRange::FULL, pieces, reproposed: 0 }.into()));
    expect(Violation::Misplaced, message(Base { range: KeyRange::FULL, pieces: vec![], reproposed: 0 }.into()));
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    whole.hear(2, committee(CommitteeMessage::Prepare { ballot: theirs, range: KeyRange::FULL }));
    assert_eq!(whole.group.dropped().total(), 0);
    // Its range is not the promised one.
    let pieces = vec![(half, vec![])];
    whole.hear(2, message(Base { range: half, pieces, reproposed: 0 }.into()));
    assert_eq!(whole.group.dropped().of(Violation::Misplaced), 1);
    assert!(whole.group.acceptor().committee(theirs).unwrap().base().is_none());
    whole.hear(2, message(base(&[], 0)));
    assert!(whole.group.acceptor().committee(theirs).unwrap().base().is_some());
}

/// A term that the agreed division knows is its primary's, for its sub-range.
#[test]
fn the_division_says_whose_a_term_is() {
    let bench = Bench::new(node(1), 3);
    let known = bench.state.parts().next().unwrap().1;
    let stolen = TermBallot { node: node(2), ..known };
    expect(Violation::Misplaced, committee(CommitteeMessage::Prepare { ballot: stolen, range: KeyRange::FULL }));
}

#[test]
fn what_catching_up_brings_lies_in_the_piece_that_was_asked_for() {
    let theirs = ballot(5, 2);
    let outside = KeyRange::new(key("k").point(), Point(key("k").point().0 + 1));
    let piece = KeyRange::new(outside.end(), outside.start());
    let writes = || vec![write(theirs, 1, "k", "v")];
    let since = Number { term: theirs.term, n: 0 };
    let answer = Since { ballot: theirs, piece, since, attempt: 0, writes: writes(), up_to: None, done: true };
    expect(Violation::Misplaced, committee(CommitteeMessage::Since(answer)));
    let answer = Compared { writes: writes(), ..nothing_newer(theirs, piece) };
    expect(Violation::Misplaced, committee(CommitteeMessage::Compared(answer.into())));
}

/// Slots and terms far beyond the chosen ones are not stored, and no slots are filled up to there.
#[test]
fn what_is_far_ahead_is_not_stored() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    let theirs = Ballot { round: 9, node: node(2) };
    for step in 0..100 {
        let entries = (0..100).map(|n| (LogSlot((1 << 20) + step * 100 + n), Entry::Noop)).collect();
        whole.hear(2, Message::Log(LogMessage::Accept { ballot: theirs, entries, chosen: LogSlot(1) }));
    }
    assert_eq!(whole.group.log().last_accepted(), None);
    assert!(!whole.stored.iter().any(|change| matches!(change, Durable::LogAccepted(..))));
    assert_eq!(whole.group.dropped().of(Violation::Far), 100);
    assert_eq!(whole.group.leader(), Some(node(2)), "it is heeded all the same: it may be this node that is behind");
    let term = Term::new(LogSlot(1 << 40), 0);
    let message = CommitteeMessage::Prepare { ballot: TermBallot { term, ..ballot(5, 2) }, range: KeyRange::FULL };
    whole.hear(2, committee(message));
    assert_eq!(whole.group.dropped().of(Violation::Far), 101);
    assert_eq!(whole.group.acceptor().committees().count(), 1, "its own alone");
}

/// Durations in messages count as at most the longest honest one.
#[test]
fn durations_of_others_are_capped() {
    let mut bench = Bench::new(node(1), 3);
    bench.state.settings.leases = true;
    let mut whole = Whole::new(&bench);
    // After its start it promises nothing until the grants that it may have given are over.
    whole.wait(1100);
    whole.wait(300);
    let own = whole.own();
    whole.hear(2, committee(promise(own, vec![(ballot(1, 3), u64::MAX)])));
    whole.hear(2, committee(CommitteeMessage::BaseAccepted { ballot: own }));
    assert!(!whole.group.primaries().next().unwrap().is_serving(), "an older lease is waited for");
    whole.wait(1200);
    assert!(whole.group.primaries().next().unwrap().is_serving(), "but for no longer than a lease lasts");
}

#[test]
fn nobody_waits_for_weeks() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    let patient = ClientOperation { patience_ms: u32::MAX, ..operation(whole.own(), 1, "k", Op::Add(1)) };
    whole.hear(2, operate(patient));
    assert_eq!(whole.group.primaries().next().unwrap().counts().waiting, 1, "there is no quorum yet");
    for _ in 0..12 {
        whole.wait(1000);
    }
    assert_eq!(whole.group.primaries().next().unwrap().counts().waiting, 0);
}

/// A plan without parties has no coordinator: before, the search for it panicked.
#[test]
fn a_plan_has_parties() {
    use group::transaction::TransactionId;
    use group::transaction::driver::{GroupEnvelope, GroupMessage};
    use group::transaction::plan::{GroupTransaction, Plan, Rank};
    use overlay::{Contact, GroupId, GroupRef};

    let members = vec![Contact { node: node(2), addresses: vec![], name: None }];
    let group = GroupRef { id: GroupId(7), epoch: Epoch(1), range: KeyRange::FULL, members };
    let operation =
        GroupTransaction::Repair { from: Point(1), last: Point(1), lost: vec![GroupId(3)], above: Epoch(1) };
    let plan = Plan { operation, parties: vec![], births: vec![], rank: Rank::new(0, WallMillis(0)) };
    let id = TransactionId { group: GroupId(7), epoch: Epoch(1), slot: LogSlot(2) };
    let message = GroupMessage::Prepare(id, Box::new(plan));
    let envelope = GroupEnvelope { from: group.id, by: group.clone(), to: group, message };
    expect(Violation::Malformed, Message::Envelope(Box::new(envelope)));
}

/// Each node describes itself only, and names a bounded number of addresses.
#[test]
fn a_contact_is_its_senders_own() {
    use overlay::Contact;

    let contact = |peer, addresses| Contact { node: node(peer), addresses, name: "oak".parse().ok() };
    expect(Violation::Malformed, Message::Contact(contact(3, vec![])));
    expect(Violation::Malformed, Message::Contact(contact(2, vec!["far away".repeat(1 << 10)])));
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    whole.hear(2, Message::Contact(contact(2, vec![])));
    assert_eq!(whole.group.dropped().total(), 0);
}

/// The next write counts on from these numbers: before, that overflowed.
#[test]
fn versions_and_horizons_of_records_are_some_that_a_key_comes_to() {
    use std::sync::Arc;

    let theirs = ballot(5, 2);
    let good = write(theirs, 1, "k", "v");
    let with = |change: &dyn Fn(&mut group::record::Record)| {
        let mut record = (*good.record).clone();
        change(&mut record);
        let writes = vec![group::message::Write { key: key("k"), record: Arc::new(record) }];
        expect(Violation::Malformed, committee(CommitteeMessage::Accept { ballot: theirs, chosen: None, writes }));
    };
    with(&|record| record.version.generation = u32::MAX);
    with(&|record| record.version.timestamp = u64::MAX);
    with(&|record| record.horizon = u64::MAX);
    let id = group::record::OpId::Client("id".into());
    let done = group::record::DoneOp { id, horizon: u64::MAX, answer: group::op::Answer::Done };
    with(&|record| record.done.push(done.clone()));
}

/// States that no group can reach: before, they were adopted, and counting on from them overflowed.
#[test]
fn a_state_leaves_room_for_what_follows() {
    use group::control::state::GroupState;

    let state = Bench::new(node(1), 3).state;
    let adopted = |change: &dyn Fn(&mut GroupState)| {
        let mut state = GroupState { applied: LogSlot(9), ..state.clone() };
        change(&mut state);
        expect(Violation::Malformed, Message::State(Box::new(state)));
    };
    adopted(&|state| state.epoch = Epoch(u64::MAX - 1));
    adopted(&|state| state.members.clear());
    adopted(&|state| state.settings.horizon_ms = 0);
    adopted(&|state| state.settings.value_bytes_max = u32::MAX);
    adopted(&|state| state.members[0].addresses = vec!["far away".repeat(1 << 10)]);
    let (epoch, members, open) = (Epoch(1), Vec::new(), vec![KeyRange::FULL]);
    let nobody = group::control::state::EpochConfig { epoch, members, open };
    adopted(&|state| state.recovery.push(nobody.clone()));
}
