//! Costs that a small change could raise without notice.

use std::time::Instant;

use group::ballot::{Ballot, LogSlot};
use group::message::{AskCompare, CommitteeMessage, Compared, LogMessage, Message};
use group::outbox::Durable;
use overlay::KeyRange;

use crate::bench::{Bench, Whole, ballot, base, node, nothing_newer, write};

/// Catch-up does not look through all unsettled writes for each record that comes.
#[test]
fn a_page_of_records_among_many_unsettled_writes() {
    let mut bench = Bench::new(node(2), 3);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(new, &[(old.term, 9)]);
    let writes = (1..=40_000).map(|n| write(new, n, &format!("k{n}"), "v")).collect();
    bench.accept(new, Some(0), writes);
    bench.tick();
    let (from, AskCompare { piece, .. }) = bench.asked_compare();
    // Newer records of every second key, and of as many other keys.
    let page = |of: fn(u64) -> u64| (1..=20_000).map(move |n| write(new, 50_000 + n, &format!("k{}", of(n)), "newer"));
    let mut writes: Vec<_> = page(|n| 2 * n).chain(page(|n| 100_000 + n)).collect();
    for (n, write) in writes.iter_mut().enumerate() {
        let record = std::sync::Arc::make_mut(&mut write.record);
        record.number.n = 50_000 + n as u64;
    }
    let begun = Instant::now();
    bench.compared(from, Compared { writes, ..nothing_newer(new, piece) });
    let took = begun.elapsed();
    let committee = bench.acceptor.committee(new).unwrap();
    assert_eq!(committee.unsettled(KeyRange::FULL).count(), 20_000, "the other half is overtaken");
    let voided = bench.stored.iter().filter(|change| matches!(change, Durable::Void(_))).count();
    assert_eq!(voided, 20_000);
    // A look through all of them takes a minute here, this some tens of milliseconds.
    assert!(took.as_secs() < 5, "{took:?}");
}

/// A member that comes to hold everything reports so at once, and once.
#[test]
fn progress_is_told_by_what_changes_it() {
    let mut bench = Bench::new(node(1), 3);
    bench.state.division[0].node = node(2);
    let mut whole = Whole::new(&bench);
    let theirs = bench.state.parts().next().unwrap().1;
    let theirs = group::ballot::TermBallot { node: node(2), ..theirs };
    let told = |whole: &mut Whole| {
        let said = std::mem::take(&mut whole.said);
        said.into_iter().filter(|(_, message)| matches!(message, Message::Progress(_))).count()
    };
    whole.hear(2, Message::Committee(CommitteeMessage::Prepare { ballot: theirs, range: KeyRange::FULL }));
    told(&mut whole);
    let message = CommitteeMessage::Base { ballot: theirs, base: base(&[], 0), chosen: Some(0) };
    whole.hear(2, Message::Committee(message));
    assert_eq!(told(&mut whole), 1, "without waiting for a timer");
    whole.hear(2, Message::Committee(CommitteeMessage::Accept { ballot: theirs, chosen: Some(0), writes: vec![] }));
    for _ in 0..4 {
        whole.wait(100);
    }
    assert_eq!(told(&mut whole), 0, "nothing has changed");
}

/// Missing states and bases are asked for from time to time, not with each message that shows the lack.
#[test]
fn questions_for_what_is_lacking() {
    let bench = Bench::new(node(1), 3);
    let mut whole = Whole::new(&bench);
    let leader = Ballot { round: 9, node: node(2) };
    let other = ballot(5, 2);
    for _ in 0..100 {
        let message = LogMessage::Accept { ballot: leader, entries: vec![], chosen: LogSlot(9) };
        whole.hear(2, Message::Log(message));
        let writes = vec![write(other, 1, "k", "v")];
        whole.hear(2, Message::Committee(CommitteeMessage::Accept { ballot: other, chosen: Some(0), writes }));
        whole.now.time = whole.now.time + std::time::Duration::from_millis(1);
        whole.group.set_now(whole.now);
    }
    let states = whole.said.iter().filter(|(_, message)| *message == Message::AskState).count();
    assert_eq!(states, 2, "once in 50 ms");
    let ask = Message::Committee(CommitteeMessage::AskBase { ballot: other });
    let bases = whole.said.iter().filter(|(_, message)| *message == ask).count();
    assert_eq!(bases, 4, "once in 30 ms");
}
