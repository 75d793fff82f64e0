//! Statements of a member that was away, and the detection of missing data. Each of these tests once failed.

use group::ballot::Term;
use group::data::table::Table;
use group::message::{Base, CommitteeMessage, Message};
use group::outbox::ScanToken;
use overlay::{KeyRange, Point};

use crate::bench::{Bench, Whole, ballot, base, key, node, write};

/// Returns the chain that a primary makes of the chain of a base with one piece: it names terms without writes only among the youngest 16.
fn told(chain: Vec<(Term, u64)>) -> Vec<(Term, u64)> {
    cut_at(256, chain)
}

/// Returns the chain for a base with so many pieces that none has a chain longer than `length`.
fn cut_at(length: usize, chain: Vec<(Term, u64)>) -> Vec<(Term, u64)> {
    let oldest = if chain.last().is_some_and(|(term, _)| *term == Term(0)) { chain.len() - 2 } else { chain.len() };
    let stays = |(place, (_, mark)): &(usize, (Term, u64))| *place < 16 || *place >= oldest || *mark > 0;
    let mut chain: Vec<(Term, u64)> = chain.into_iter().enumerate().filter(stays).map(|(_, named)| named).collect();
    if chain.len() > length {
        chain.truncate(length - 1);
        chain.push((Term(0), 0));
    }
    chain
}

/// An answer to a question that went up to some key comes after the same question to the end of the piece.
#[test]
fn an_answer_says_how_far_it_goes() {
    let (first, second) = (ballot(5, 1), ballot(6, 1));
    let mut names = ["c", "d"];
    names.sort_by_key(|name| key(name));
    let (one, two) = (write(first, 1, names[0], "v"), write(first, 2, names[1], "v"));
    let newer = write(first, 3, names[1], "newer");

    let mut source = Bench::new(node(3), 3);
    source.serve(first, &[]);
    source.accept(first, Some(0), vec![one.clone(), two.clone(), newer.clone()]);
    source.accept(first, Some(3), vec![]);
    source.serve(second, &[(first.term, 3)]);

    // It lacks the last write, and its store's page ends after the first record.
    let mut lacking = Bench::new(node(2), 3);
    lacking.table = Table::new(1 << 20, false, false);
    lacking.serve(second, &[(first.term, 3)]);
    lacking.tick();
    lacking.act(|acceptor, ctx, _| {
        acceptor.on_scanned(ctx, ScanToken(1), vec![(one.key.clone(), one.record.clone())], false)
    });
    let (_, question) = lacking.asked_compare();
    assert_eq!(question.until, Some(one.key.clone()));
    // No source answers for a while, and meanwhile all its records are in memory: it asks again, to the end.
    lacking.table = Table::new(1 << 20, true, false);
    lacking.table.put(&one.key, one.record.clone());
    lacking.table.put(&two.key, two.record.clone());
    let asks_to_the_end = (0..9).any(|_| {
        lacking.tick();
        let (from, again) = lacking.asked_compare();
        from == 3 && again.until.is_none()
    });
    assert!(asks_to_the_end);
    // The answer to the first question.
    source.said.clear();
    source.hear(2, CommitteeMessage::AskCompare(question.into()));
    let [(_, CommitteeMessage::Compared(answer))] = &source.said[..] else { panic!("{:?}", source.said) };
    lacking.compared(3, (**answer).clone());
    let complete = lacking.acceptor.committee(second).unwrap().is_complete();
    let has = lacking.knows(&newer.key).map(|record| record.number);
    assert!(!complete || has == Some(newer.record.number), "takes itself for complete with {has:?}");
}

/// A write in flight elsewhere on the ring, under a term that is kept for long, does not show that a member was away.
#[test]
fn a_write_in_flight_elsewhere_ends_nobody() {
    let half = Point(1 << 127);
    let (left, right) = (KeyRange::new(Point(0), half), KeyRange::new(half, Point(0)));
    let mut bench = Bench::new(node(2), 3);
    let kept = ballot(5, 1);
    let name = (0..).map(|n| format!("k{n}")).find(|n| left.contains(key(n).point())).unwrap();
    bench.hear(1, CommitteeMessage::Prepare { ballot: kept, range: left });
    let first = Base { range: left, pieces: vec![(left, vec![])], reproposed: 0 }.into();
    bench.hear(1, CommitteeMessage::Base { ballot: kept, base: first, chosen: Some(0) });
    let mut chain = vec![];
    for slot in 10..310 {
        // Member 3 restarts again and again: each of its takeovers ends well, and all members hear of it.
        let younger = ballot(slot, 3);
        bench.hear(3, CommitteeMessage::Prepare { ballot: younger, range: right });
        if slot == 309 {
            bench.accept(kept, Some(0), vec![write(kept, 1, &name, "v")]);
        }
        let base = Base { range: right, pieces: vec![(right, chain.clone())], reproposed: 0 }.into();
        bench.hear(3, CommitteeMessage::Base { ballot: younger, base, chosen: Some(0) });
        assert_eq!(bench.acceptor.base_at(half), Some(younger), "over, and said: {:?}", bench.said.last());
        chain.insert(0, (younger.term, 0));
        chain = told(chain);
    }
}

/// Takeovers that never finish, more than a chain goes back, all of them heard by this member.
#[test]
fn who_was_always_there_has_not_been_away() {
    let mut bench = Bench::new(node(2), 3);
    let first = ballot(5, 1);
    bench.serve(first, &[]);
    bench.accept(first, Some(0), vec![write(first, 1, "k", "v")]);
    let mut chain = vec![(first.term, 0)];
    for slot in 10..310 {
        let next = ballot(slot, 3);
        bench.hear(3, CommitteeMessage::Prepare { ballot: next, range: KeyRange::FULL });
        bench.accept(next, None, vec![write(next, 1, "k", "v")]);
        bench.hear(3, CommitteeMessage::Base { ballot: next, base: base(&chain, 1), chosen: None });
        assert_eq!(bench.acceptor.base_at(Point(0)), Some(next), "{} takeovers", slot - 9);
        chain.insert(0, (next.term, 0));
        chain = told(chain);
    }
}

/// As many takeovers as there may be committees: the next primary still gets its promise.
#[test]
fn takeovers_that_come_to_nothing_leave_room_for_one_that_does_not() {
    let mut bench = Bench::new(node(2), 3);
    let first = ballot(5, 1);
    bench.serve(first, &[]);
    bench.accept(first, Some(0), vec![write(first, 1, "k", "v")]);
    let chain = vec![(first.term, 0)];
    for slot in 10..1110 {
        let next = ballot(slot, 3);
        bench.state.division[0].node = node(3);
        bench.state.division[0].term = next.term;
        // Member 2 is not of the quorum that promised: no other member knows that it has the last one's base.
        bench.said.clear();
        bench.hear(3, CommitteeMessage::Prepare { ballot: next, range: KeyRange::FULL });
        assert!(!bench.said.is_empty(), "nothing is promised after {} takeovers", slot - 10);
        bench.accept(next, None, vec![write(next, 1, "k", "v")]);
        bench.hear(3, CommitteeMessage::Base { ballot: next, base: base(&chain, 1), chosen: None });
    }
}

/// A base that was acknowledged is vouched for, like writes.
#[test]
fn a_lost_base_is_noticed() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    whole.serve(); // Member 2 promised, and accepted the base.
    let mine = whole.own();
    whole.said.clear();
    whole.hear(2, Message::AskVouch);
    let vouch = whole.said.iter().find_map(|(_, message)| match message {
        Message::Vouch(vouch) => Some(vouch.clone()),
        _ => None,
    });
    let vouch = vouch.expect("it answers");
    // Member 2's store ends behind its promise.
    let mut bench = Bench::new(node(2), 3);
    bench.hear(1, CommitteeMessage::Prepare { ballot: mine, range: KeyRange::FULL });
    assert!(
        !vouch.committees.iter().all(|known| bench.acceptor.holds(known)),
        "the base that it acknowledged is gone: {vouch:?}"
    );
}

/// A member that was complete in a term without writes asks for the later writes, as long as its sources keep the committees.
#[test]
fn who_missed_some_terms_without_writes_reads_a_window() {
    let mut bench = Bench::new(node(2), 3);
    let first = ballot(5, 1);
    bench.serve(first, &[]);
    bench.accept(first, Some(0), vec![]);
    let missed = (10..25).rev().map(|slot| (ballot(slot, 3).term, 0));
    let chain = told(missed.chain([(first.term, 0)]).collect());
    bench.serve(ballot(30, 3), &chain);
    bench.said.clear();
    bench.tick();
    let (_, asks) = bench.said.last().expect("it lacks something");
    assert!(matches!(asks, CommitteeMessage::AskSince { .. }), "{asks:?}");
}

/// With 85 pieces, chains have 12 terms. This member has an unsettled write, and a later base that tells the fate of that write. Since then
/// ten terms had writes, and chains do not go back to the term of that write.
#[test]
fn a_base_without_writes_tells_of_older_terms() {
    let mut bench = Bench::new(node(2), 3);
    let (old, last, next) = (ballot(5, 1), ballot(8, 1), ballot(30, 3));
    bench.serve(old, &[]);
    bench.accept(old, Some(0), vec![write(old, 1, "k", "v"), write(old, 2, "l", "v")]);
    // It does not hear that this base is chosen.
    let mut chain = vec![(ballot(7, 1).term, 1), (ballot(6, 1).term, 1), (old.term, 1)];
    bench.hear(1, CommitteeMessage::Prepare { ballot: last, range: KeyRange::FULL });
    bench.hear(1, CommitteeMessage::Base { ballot: last, base: base(&chain, 0), chosen: None });
    assert_eq!(bench.acceptor.base_at(Point(0)), Some(last));
    chain.insert(0, (last.term, 0));
    for slot in 10..20 {
        chain.insert(0, (ballot(slot, 3).term, 1));
        chain = cut_at(12, chain);
    }
    assert!(!chain.iter().any(|(term, _)| *term == old.term), "{chain:?}");
    bench.serve(next, &chain);
    assert_eq!(bench.acceptor.base_at(Point(0)), Some(next), "it takes itself for too long away");
}
