//! All state that a peer or a client can make grow has a limit (hazard 53; I15). At the limit a message counts as lost, or is refused.

use group::Group;
use group::ballot::LogSlot;
use group::control::state::Member;
use group::data::table::Table;
use group::message::{AttemptOutcome, ClientOperation, CommitteeMessage, Message};
use group::op::{Op, OpError, Read, ReadMode, Refusal};
use group::outbox::GroupOutput;
use group::validate::Violation;
use overlay::time::WallMillis;
use overlay::{Incarnation, KeyRange, NodeId, PeerKey, Point};

use crate::bench::{Bench, Whole, ballot, key, node, operate, operation, write};

/// Runs that a peer invents are dropped at its limit, and cost no other peer anything; runs with operations that are too old by now leave.
#[test]
fn runs_of_origins() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    let mine = whole.own();
    let of_run = |run| ClientOperation { run, patience_ms: 1, ..operation(mine, 1, "k", Op::Read(Read::Value)) };
    for run in 0..1500 {
        whole.hear(2, operate(of_run(run)));
    }
    assert_eq!(whole.group.dropped().of(Violation::NoRoom), 1500 - 64);
    whole.hear(3, operate(of_run(0)));
    assert_eq!(whole.group.dropped().of(Violation::NoRoom), 1500 - 64);
    whole.wait(300);
    let mut state = whole.group.state().clone();
    (state.applied, state.horizon) = (state.applied.next(), 4);
    whole.hear(2, Message::State(Box::new(state)));
    whole.wait(11_000);
    whole.hear(2, operate(ClientOperation { horizon: 4, ..of_run(5000) }));
    assert_eq!(whole.group.dropped().of(Violation::NoRoom), 1500 - 64);
    assert_eq!(whole.group.primaries().next().unwrap().counts().waiting, 1);
}

/// Reads that wait to be confirmed are as many as operations that wait for anything else.
#[test]
fn reads_without_a_quorum() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    whole.serve();
    let mine = whole.own();
    for serial in 1..=150 {
        whole.hear(2, operate(operation(mine, serial, "k", Op::Read(Read::Value))));
    }
    let busy = AttemptOutcome::Refused(OpError::TryAgain(Refusal::Busy));
    let refused = (1..=150).filter(|serial| whole.told(*serial).contains(&busy)).count();
    assert_eq!(refused, 150 - 100, "as the configuration has it");
}

#[test]
fn relaxed_reads_that_wait_for_the_store() {
    let bench = Bench::new(node(1), 3);
    let group = Group::restore(bench.config.clone(), node(1), bench.stored(), bench.now, 1);
    let mut whole = Whole { group, ..Whole::new(&bench) };
    for serial in 1..=150 {
        let read = operation(ballot(1, 1), serial, &format!("k{serial}"), Op::Read(Read::Value));
        whole.hear(2, operate(ClientOperation { ballot: None, mode: ReadMode::Relaxed, ..read }));
    }
    let refused: Vec<u64> = (1..=150).filter(|serial| !whole.told(*serial).is_empty()).collect();
    assert_eq!(refused, (101..=150).collect::<Vec<_>>());
    whole.group.on_loaded(&key("k7"), None);
    whole.pull();
    assert_eq!(whole.told(7).len(), 1);
    let read = operation(ballot(1, 1), 200, "k200", Op::Read(Read::Value));
    whole.hear(2, operate(ClientOperation { ballot: None, mode: ReadMode::Relaxed, ..read }));
    assert!(whole.told(200).is_empty(), "there is room for one");
}

#[test]
fn questions_for_records_that_wait_for_the_store() {
    let mut bench = Bench::new(node(2), 3);
    bench.table = Table::new(1 << 20, false, false);
    let term = ballot(5, 1);
    bench.serve(term, &[]);
    for number in 0..5000 {
        bench.hear(1, CommitteeMessage::AskRecord { ballot: term, key: key(&format!("k{number}")), attempt: 1 });
    }
    assert_eq!(bench.dropped.of(Violation::NoRoom), 5000 - 4096);
    bench.said.clear();
    bench.act(|acceptor, ctx, table| {
        table.on_loaded(&key("k7"), None);
        acceptor.on_loaded(ctx, table, &key("k7"));
    });
    assert!(matches!(&bench.said[..], [(_, CommitteeMessage::RecordIs { record: None, .. })]), "{:?}", bench.said);
    bench.hear(1, CommitteeMessage::AskRecord { ballot: term, key: key("k4999"), attempt: 1 });
    assert_eq!(bench.dropped.of(Violation::NoRoom), 5000 - 4096);
}

/// Terms and sub-ranges that a peer invents are not remembered without end.
#[test]
fn committees() {
    let mut bench = Bench::new(node(1), 3);
    let arc = |n: u128| KeyRange::new(Point(n << 100), Point((n + 1) << 100));
    for n in 0..1500 {
        bench.hear(2, CommitteeMessage::Prepare { ballot: ballot(1000 + n, 2), range: arc(u128::from(n)) });
    }
    assert_eq!(bench.acceptor.committees().count(), 1024);
    assert_eq!(bench.dropped.of(Violation::NoRoom), 1500 - 1024);
    // Earlier promises are given again.
    bench.said.clear();
    bench.hear(2, CommitteeMessage::Prepare { ballot: ballot(1000, 2), range: arc(0) });
    assert!(matches!(&bench.said[..], [(_, CommitteeMessage::Promise { .. })]), "{:?}", bench.said);
}

/// Each lost message leaves a gap in the numbers received. At the limit only numbers in order are taken, and those that fill a gap.
#[test]
fn gaps_in_what_was_received() {
    let mut bench = Bench::new(node(2), 3);
    let term = ballot(5, 1);
    bench.serve(term, &[]);
    for n in 1..=5000 {
        bench.accept(term, Some(0), vec![write(term, 2 * n, &format!("k{n}"), "v")]);
    }
    let received = bench.acceptor.committee(term).unwrap().received();
    assert_eq!((received.gaps(), received.last()), (4096, 2 * 4096));
    assert_eq!(bench.dropped.of(Violation::NoRoom), 5000 - 4096);
    bench.accept(term, Some(0), vec![write(term, 2 * 4096 + 1, "next", "v"), write(term, 1, "first", "v")]);
    let received = bench.acceptor.committee(term).unwrap().received();
    assert_eq!((received.mark(), received.last()), (2, 2 * 4096 + 1));
}

/// A network of one member that many peers would join at once.
#[test]
fn learners() {
    assert_eq!(crowd(12), group::control::membership::learners::LEARNERS_MAX);
    // Where twice as many peers as a group should have are there already, the group has to split first.
    assert_eq!(crowd(3), 5);
}

/// Returns how many of a hundred peers that keep asking a group of one admits, where none of them makes any progress.
fn crowd(members_max: u32) -> usize {
    let mut bench = Bench::new(node(1), 1);
    bench.state.settings.policies.members_max = members_max;
    let mut group = Group::found(bench.config.clone(), node(1), bench.state.clone(), bench.now, 1);
    let mut now = bench.now;
    for turn in 0..400_u32 {
        let mut peer = [9; 32];
        peer[..4].copy_from_slice(&(turn % 100).to_be_bytes());
        let joiner = NodeId { peer: PeerKey(peer), incarnation: Incarnation(1) };
        let member = Member {
            node: joiner,
            addresses: vec![],
            name: None,
            cluster: String::new(),
            joined: WallMillis(0),
            since: LogSlot(0),
        };
        now.time = now.time + std::time::Duration::from_millis(50);
        group.set_now(now);
        let from = group::message::Sender { node: joiner, epoch: group.state().epoch };
        group.on_message(from, Message::Join(member));
        group.tick();
        while let Some(output) = group.poll_output() {
            if let GroupOutput::Persist(token, _) = output {
                group.on_persisted(token);
            }
        }
    }
    assert!(group.state().applied > LogSlot(2));
    group.state().learners.len()
}

/// A repeated statement about leases replaces the earlier one.
#[test]
fn leases_of_others() {
    let mut bench = Bench::new(node(1), 3);
    bench.state.settings.leases = true;
    let mut whole = Whole::new(&bench);
    whole.wait(1100);
    whole.wait(300);
    let mine = whole.own();
    for slot in 1..5000 {
        let promise = CommitteeMessage::Promise {
            ballot: mine,
            part: 0,
            parts: 2,
            total: 1,
            committees: vec![],
            unsettled: vec![],
            leases: vec![(ballot(slot, 3), 1000)],
            delegated: Vec::new(),
            doubt: overlay::Epoch(0),
        };
        whole.hear(2, Message::Committee(promise));
    }
    assert_eq!(whole.group.primaries().next().unwrap().counts().older_leases, 1);
}
