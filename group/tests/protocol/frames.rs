//! Messages fit a frame, answers say how far they go, and late answers are dropped.

use group::Group;
use group::ballot::{LogSlot, Term, TermBallot};
use group::config::VALUE_BYTES_MAX;
use group::data::table::Table;
use group::message::{AskCompare, Base, ClientOperation, CommitteeMessage, CommitteeReport, Message};
use group::op::{Condition, Expiry, Op, Read};
use group::outbox::ScanToken;
use group::record::LIVE_IDS_MAX;
use group::validate::Violation;
use overlay::{Epoch, KeyRange, Point};

use crate::bench::{Bench, Whole, ballot, key, node, operate, operation, write};

/// Upper limit of a frame, in bytes, as in `peer/net/src/stream/frame.rs`.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// A question that compares clocks lists up to 2000 keys, however long their names are.
#[test]
fn a_comparison_of_long_names_fits_a_frame() {
    let mut bench = Bench::new(node(2), 3);
    let first = ballot(5, 1);
    bench.serve(first, &[]);
    for n in 1..=1500 {
        let name = format!("{n:01000}");
        bench.accept(first, Some(n - 1), vec![write(first, n, &name, "v")]);
    }
    bench.accept(first, Some(1500), vec![]);
    // It was away for a term, so it compares.
    bench.serve(ballot(7, 3), &[(Term::new(LogSlot(6), 0), 9), (first.term, 1600)]);
    bench.said.clear();
    bench.tick();
    for _ in 0..3 {
        if let Some((_, CommitteeMessage::AskSince { ballot, piece, since, .. })) = bench.said.last().cloned() {
            let out_of_reach =
                group::message::Since { ballot, piece, since, attempt: 0, writes: vec![], up_to: None, done: false };
            let from = bench.asked_since().0;
            bench.since(from, out_of_reach);
        }
    }
    let (_, ask) = bench.asked_compare();
    let bytes: usize = ask.held.iter().map(|(key, _)| key.name().len()).sum();
    assert!(bytes < FRAME_BYTES_MAX, "{} keys, {bytes} bytes", ask.held.len());
}

/// Every boundary that a division ever had stays a boundary of all later bases, each piece with its own chain.
#[test]
fn bases_stay_small() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    let mine = whole.own();
    // As after 256 takeovers of the whole, when all pieces have the same history.
    let chain: Vec<(Term, u64)> = (0..255).map(|age| (Term::new(LogSlot(100_000 - age), 0), 1_000_000)).collect();
    let cut = |part: u128| Point((u128::MAX / 600) * part);
    let piece = |part: u128| KeyRange::new(cut(part), if part == 599 { Point(0) } else { cut(part + 1) });
    let pieces = (0..600).map(|part| (piece(part), chain.clone())).collect();
    let base = Base { range: KeyRange::FULL, pieces, reproposed: 0 };
    let older = TermBallot { term: Term::new(LogSlot(0), 7), ..ballot(1, 3) };
    let report = CommitteeReport { ballot: older, base: Some(base.into()), chosen: Some(0) };
    let promise = CommitteeMessage::Promise {
        ballot: mine,
        part: 0,
        parts: 1,
        total: 0,
        committees: vec![report],
        unsettled: vec![],
        leases: vec![],
        delegated: Vec::new(),
        doubt: Epoch(0),
    };
    whole.hear(2, Message::Committee(promise));
    let laid = whole.said.iter().find_map(|(_, message)| match message {
        Message::Committee(CommitteeMessage::Base { base, .. }) => Some(base.clone()),
        _ => None,
    });
    let laid = laid.expect("it lays a base");
    // Varints: 5 bytes of term, 3 of mark, 2 * 16 of bounds.
    let bytes: usize = laid.pieces.iter().map(|(_, chain)| 34 + 8 * chain.len()).sum();
    assert!(bytes < FRAME_BYTES_MAX, "{} pieces, {bytes} bytes: no frame takes it", laid.pieces.len());
}

/// A read names as many exceptions as an origin may.
#[test]
fn reads_of_a_key_with_many_strays_are_taken() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    whole.serve();
    let mine = whole.own();
    let read = operation(mine, 3000, "k", Op::Read(Read::Value));
    whole.hear(
        2,
        operate(ClientOperation { retired_below: 3000, retired_except: (1..=LIVE_IDS_MAX as u64).collect(), ..read }),
    );
    assert_eq!(whole.group.dropped().of(Violation::Malformed), 0);
}

/// The store's page begins with the key behind which the question asks. Where that record alone fills the page, the records behind are
/// unknown. A source that then says that there are none makes the asking member believe itself complete without them.
#[test]
fn a_page_of_one_record_does_not_say_that_nothing_follows() {
    let mut bench = Bench::new(node(2), 3);
    bench.table = Table::new(1 << 20, false, false);
    let term = ballot(5, 1);
    bench.serve(term, &[]);
    let large = write(term, 1, "k", "as large as a page");
    let ask = AskCompare {
        ballot: term,
        piece: KeyRange::FULL,
        after: Some(key("k")),
        held: vec![],
        until: None,
        attempt: 0,
    };
    bench.said.clear();
    bench.hear(3, CommitteeMessage::AskCompare(ask.into()));
    bench.act(|acceptor, ctx, _| {
        // `trim` in `peer/store/src/engine.rs`: at least one record, and not done, for there is more.
        assert!(acceptor.on_scanned(ctx, ScanToken(1), vec![(large.key.clone(), large.record.clone())], false));
    });
    for (_, message) in &bench.said {
        if let CommitteeMessage::Compared(answer) = message {
            assert!(answer.up_to.is_some(), "says that there is nothing behind the key: {answer:?}");
        }
    }
}

/// A record carries answers beside its value. Where no frame takes a write, its key and the chosen mark stand still, and so does every
/// takeover that has to propose the write again.
#[test]
fn what_is_proposed_fits_a_frame() {
    let mut bench = Bench::new(node(1), 3);
    bench.state.settings.value_bytes_max = VALUE_BYTES_MAX as u32;
    bench.config.memory_bytes_max = 64 << 20;
    let mut whole = Whole::new(&bench);
    whole.serve();
    let mine = whole.own();
    let set = |get| Op::Set {
        value: vec![b'x'; VALUE_BYTES_MAX].into(),
        condition: Condition::Always,
        expiry: Expiry::Clear,
        get,
    };
    whole.hear(2, operate(operation(mine, 1, "k", set(false))));
    whole.accept_all();
    whole.hear(2, operate(operation(mine, 2, "k", set(true))));
    for (_, message) in &whole.said {
        if let Message::Committee(CommitteeMessage::Accept { writes, .. }) = message {
            let bytes: usize = writes.iter().map(|write| write.record.bytes()).sum();
            assert!(bytes < FRAME_BYTES_MAX, "{bytes} bytes in one message");
        }
    }
}

/// A term that was kept for long is dropped as soon as a newer one follows, because there are many younger ones. The answer to a catch-up
/// question for that term comes before the next tick.
#[test]
fn a_late_answer_for_a_term_that_was_let_go_of_is_dropped() {
    let half = Point(1 << 127);
    let (left, right) = (KeyRange::new(Point(0), half), KeyRange::new(half, Point(0)));
    let based = |range, chain: &[(Term, u64)]| Base { range, pieces: vec![(range, chain.to_vec())], reproposed: 0 };
    let mut bench = Bench::new(node(2), 3);
    let begin = |bench: &mut Bench, ballot: TermBallot, range, chain: &[(Term, u64)]| {
        let from = ballot.node.peer.0[0];
        bench.hear(from, CommitteeMessage::Prepare { ballot, range });
        bench.hear(from, CommitteeMessage::Base { ballot, base: based(range, chain).into(), chosen: Some(0) });
    };
    let kept = ballot(5, 1);
    begin(&mut bench, kept, left, &[]);
    let names: Vec<String> = (0..).map(|n| format!("k{n}")).filter(|n| left.contains(key(n).point())).take(3).collect();
    // The second write is lost.
    bench.accept(kept, Some(0), vec![write(kept, 1, &names[0], "v"), write(kept, 3, &names[2], "v")]);
    bench.accept(kept, Some(3), vec![]);
    bench.tick();
    let (source, piece, since) = bench.asked_since();
    // Elsewhere primaries come and go.
    for slot in 10..30 {
        begin(&mut bench, ballot(slot, 3), right, &[]);
    }
    begin(&mut bench, ballot(40, 3), left, &[(kept.term, 3)]);
    let writes = vec![write(kept, 2, &names[1], "v"), write(kept, 3, &names[2], "v")];
    let up_to = Some(group::ballot::Number { term: kept.term, n: 3 });
    let answer = group::message::Since { ballot: kept, piece, since, attempt: 0, writes, up_to, done: true };
    bench.since(source, answer);
}

/// A sub-range that is kept for long has the oldest term of its primary. Before, acknowledgements under it were forgotten with every
/// acknowledgement, once there were 32 younger terms, and a store that lost them was vouched for.
#[test]
fn what_was_acknowledged_under_a_kept_term_is_vouched_for() {
    let half = Point(1 << 127);
    let right = KeyRange::new(half, Point(0));
    let mut bench = Bench::new(node(1), 3);
    let part = group::control::state::Assignment { start: half, node: node(3), term: Term::new(LogSlot(1), 1) };
    bench.state.division.push(part);
    let mut whole = Whole::new(&bench);
    whole.serve();
    let kept = whole.own();
    // Member 3 comes and goes, and each time its share, or a part of it, is this node's for a while.
    for slot in 10..43 {
        let younger = ballot(slot, 1);
        whole.hear(1, Message::Committee(CommitteeMessage::Prepare { ballot: younger, range: right }));
        let accepted = CommitteeMessage::Accepted { ballot: younger, numbers: vec![(1, 1)] };
        whole.hear(2, Message::Committee(accepted));
    }
    assert!(whole.group.primaries().any(|primary| primary.ballot() == kept && primary.is_serving()));
    whole.hear(2, Message::Committee(CommitteeMessage::Accepted { ballot: kept, numbers: vec![(1, 7)] }));
    whole.said.clear();
    whole.hear(2, Message::AskVouch);
    let vouch = whole.said.iter().find_map(|(_, message)| match message {
        Message::Vouch(vouch) => Some(vouch.clone()),
        _ => None,
    });
    let known = vouch.expect("it answers").committees;
    assert!(known.iter().any(|known| known.ballot == kept && known.accepted.contains(7)), "forgotten: {known:?}");
}

/// The store of a member ends before an epoch in which the member promised.
#[test]
fn a_store_that_lacks_a_whole_epoch_is_noticed() {
    let bench = Bench::new(node(1), 3);
    let stored = group::Stored { empty: true, sealed: false, ..bench.stored() };
    let mut group = Group::restore(bench.config.clone(), node(1), stored, bench.now, 1);
    let vouch = group::message::Vouch {
        applied: LogSlot(9),
        epoch: Epoch(2),
        promised: Some(group::ballot::Ballot { round: 3, node: node(2) }),
        accepted: vec![(LogSlot(9), group::ballot::Ballot { round: 3, node: node(2) })],
        ..group::message::Vouch::silent(LogSlot(9), Epoch(2))
    };
    for peer in [2, 3] {
        let from = group::message::Sender { node: node(peer), epoch: Epoch(2) };
        group.on_message(from, Message::Vouch(vouch.clone()));
    }
    let mut over = false;
    while let Some(output) = group.poll_output() {
        over |= matches!(output, group::outbox::GroupOutput::Lost(_));
    }
    assert!(over, "it takes part with what it forgot: recovering {}", group.is_recovering());
}
