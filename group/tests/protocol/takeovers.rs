//! Schedules that once broke an invariant, fed to one acceptor, message by message.

use group::Group;
use group::ballot::Number;
use group::message::{AskCompare, Base, CommitteeMessage, Compared, LogMessage, Message, Sender, Since};
use group::outbox::{BatchToken, GroupOutput};
use overlay::{Epoch, KeyRange, Point};

use crate::bench::{Bench, ballot, base, key, node, nothing_newer, write};

/// A write is accepted here, voided by the base of a takeover that proposes it again and dies, and found to be chosen by the next takeover,
/// which had a quorum that knew more (I5).
#[test]
fn what_a_failed_takeover_voided_is_missed_when_it_was_chosen_after_all() {
    let mut bench = Bench::new(node(2), 3);
    let (old, failed, new) = (ballot(5, 1), ballot(7, 2), ballot(9, 3));
    bench.serve(old, &[]);
    bench.accept(old, Some(0), vec![write(old, 1, "k", "v")]);
    // The takeover's quorum knows the mark 0: the write is proposed again.
    bench.hear(2, CommitteeMessage::Prepare { ballot: failed, range: KeyRange::FULL });
    bench.accept(failed, None, vec![write(failed, 1, "k", "v")]);
    bench.hear(2, CommitteeMessage::Base { ballot: failed, base: base(&[(old.term, 0)], 1), chosen: None });
    // No other member hears of it. The old primary gets its vote and knows the mark 1; the next quorum has that.
    bench.serve(new, &[(old.term, 1)]);
    let complete = bench.acceptor.committee(new).unwrap().is_complete();
    let held = bench.knows(&key("k")).is_some();
    assert!(held || !complete, "it takes itself for complete without the write");
}

/// A member with a hole in its recent writes does not pass them on as complete (I5).
#[test]
fn a_window_with_a_hole_is_no_window() {
    let mut bench = Bench::new(node(2), 5);
    let term = ballot(5, 1);
    bench.serve(term, &[]);
    bench.accept(term, Some(0), vec![write(term, 1, "a", "1")]);
    bench.accept(term, Some(3), vec![write(term, 3, "c", "3"), write(term, 4, "d", "4")]);
    bench.tick();
    // It makes up for number 2.
    let since = Number { term: term.term, n: 1 };
    let up_to = Some(Number { term: term.term, n: 3 });
    let writes = vec![write(term, 2, "b", "2")];
    bench.since(1, Since { ballot: term, piece: KeyRange::FULL, since, attempt: 0, writes, up_to, done: true });
    assert!(bench.knows(&key("b")).is_some());
    assert_eq!(bench.acceptor.committee(term).unwrap().received().mark(), 4);
    let Since { writes, up_to, .. } = bench.window(term, Number { term: term.term, n: 0 });
    assert!(up_to.is_none() || writes.iter().any(|write| write.key == key("b")), "number 2 was left out");
}

/// The same for a term before the current one: writes that came by comparison are not in the window.
#[test]
fn a_window_that_ends_early_is_no_window() {
    let mut bench = Bench::new(node(2), 5);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(old, &[]);
    bench.accept(old, Some(0), vec![write(old, 1, "a", "1")]);
    bench.serve(new, &[(old.term, 2)]);
    bench.tick();
    bench.tick();
    // Each source that it asks tells it to compare, and it gets the write that it lacks.
    let mut asked = 0;
    while let Some((from, piece, since)) = bench.asks_since() {
        asked += 1;
        bench.since(from, Since { ballot: new, piece, since, attempt: 0, writes: vec![], up_to: None, done: false });
    }
    assert_eq!(asked, 2, "each takes a round trip: two of four are enough");
    let (from, AskCompare { piece, .. }) = bench.asked_compare();
    bench.compared(from, Compared { writes: vec![write(old, 2, "b", "2")], ..nothing_newer(new, piece) });
    assert!(!bench.acceptor.committee(new).unwrap().is_complete(), "what came is listed once more, and counted");
    bench.compared(from, nothing_newer(new, piece));
    assert!(bench.acceptor.committee(new).unwrap().is_complete());
    let Since { writes, up_to, .. } = bench.window(new, Number { term: old.term, n: 1 });
    assert!(up_to.is_none() || writes.iter().any(|write| write.key == key("b")), "number 2 was left out");
}

/// A comparison that began with one source and ended with another counts for neither (I5).
#[test]
fn half_a_comparison_with_an_incomplete_source_is_none() {
    let mut bench = Bench::new(node(2), 5);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(new, &[(old.term, 9)]);
    bench.tick();
    let (first, AskCompare { piece, after, .. }) = bench.asked_compare();
    assert_eq!(after, None);
    // The first half from a source that lacks records itself, then silence, then the other half from a complete source.
    let half = Some(key("a"));
    bench.compared(first, Compared { up_to: half.clone(), complete: false, ..nothing_newer(new, piece) });
    for _ in 0..12 {
        bench.tick();
        let (from, AskCompare { after, .. }) = bench.asked_compare();
        if from != first && after == half {
            bench.compared(from, Compared { after, ..nothing_newer(new, piece) });
            break;
        }
    }
    let complete = bench.acceptor.committee(new).unwrap().is_complete();
    assert!(!complete, "the first half was compared with who lacks something alone");
}

/// Catch-up is faster than the network: the older write that comes late does not replace the newer record (I12).
#[test]
fn a_late_write_does_not_replace_what_catching_up_brought() {
    let mut bench = Bench::new(node(2), 3);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(new, &[(old.term, 9)]);
    bench.tick();
    let (from, AskCompare { piece, .. }) = bench.asked_compare();
    let page = Compared { mark: 2, ..nothing_newer(new, piece) };
    // Before the comparison is over, one more page is awaited: nothing is made up for yet.
    let writes = vec![write(new, 2, "k", "newer")];
    bench.compared(from, Compared { writes, up_to: Some(key("k")), ..page.clone() });
    bench.accept(new, Some(0), vec![write(new, 1, "k", "older")]);
    bench.compared(from, Compared { after: Some(key("k")), ..page.clone() });
    bench.compared(from, page);
    bench.accept(new, Some(2), vec![]);
    assert_eq!(bench.acceptor.committee(new).unwrap().received().mark(), 2);
    assert_eq!(bench.on_disk(&key("k")), Some(Number { term: new.term, n: 2 }), "the store went back");
}

/// One of a base's pieces is caught up by comparison, at a higher mark than the other piece, which comes from the window. Both are asked
/// for at the same time. Returns the number up to which everything of the term is held.
fn made_up_for(is_window_first: bool) -> u64 {
    let mut bench = Bench::new(node(2), 3);
    let half = Point(1 << 127);
    let (left, right) = (KeyRange::new(Point(0), half), KeyRange::new(half, Point(0)));
    let (old, other, new) = (ballot(5, 1), ballot(6, 1), ballot(7, 3));
    // It knows the old term on the right side, up to number 0, and nothing on the left.
    bench.hear(1, CommitteeMessage::Prepare { ballot: old, range: right });
    let nothing = Base { range: right, pieces: vec![(right, vec![])], reproposed: 0 }.into();
    bench.hear(1, CommitteeMessage::Base { ballot: old, base: nothing, chosen: Some(0) });
    bench.hear(3, CommitteeMessage::Prepare { ballot: new, range: KeyRange::FULL });
    let pieces = vec![(left, vec![(other.term, 3)]), (right, vec![(old.term, 1)])];
    let base = Base { range: KeyRange::FULL, pieces, reproposed: 0 }.into();
    bench.hear(3, CommitteeMessage::Base { ballot: new, base, chosen: Some(0) });
    bench.tick();
    let asked = bench.said.clone();
    for is_window in [is_window_first, !is_window_first] {
        bench.said.clone_from(&asked);
        if is_window {
            bench.back_to(right);
            let (from, piece, since) = bench.asked_since();
            let up_to = Some(Number { term: new.term, n: 0 });
            let writes = vec![write(old, 1, "x", "1")];
            bench.since(from, Since { ballot: new, piece, since, attempt: 0, writes, up_to, done: true });
        } else {
            // Meanwhile the new term wrote on the right, and the accept is lost.
            bench.back_to(left);
            let (from, AskCompare { piece, .. }) = bench.asked_compare();
            bench.compared(from, Compared { mark: 1, ..nothing_newer(new, piece) });
        }
    }
    let committee = bench.acceptor.committee(new).unwrap();
    assert!(committee.missing().is_empty());
    committee.received().mark()
}

#[test]
fn what_is_made_up_for_is_what_every_piece_reached() {
    assert_eq!([true, false].map(made_up_for), [0, 0], "number 1 never came");
}

/// No node leads under a ballot that a crash might make it forget (hazard 5): it would use the ballot again for another entry.
#[test]
fn nobody_leads_before_its_own_promise_is_durable() {
    let bench = Bench::new(node(1), 3);
    let mut group = Group::join(bench.config.clone(), node(1), bench.state.clone(), bench.now, 1);
    let mut now = bench.now;
    let (mut tokens, mut last, mut led, mut persisted_all) = (Vec::new(), BatchToken(0), false, false);
    for step in 0..90 {
        now.time = now.time + std::time::Duration::from_millis(20);
        group.set_now(now);
        if step == 50 {
            assert!(!led, "it leads, and a crash would make it forget that it ever promised");
            persisted_all = true;
            tokens.push(last);
        }
        for token in std::mem::take(&mut tokens) {
            group.on_persisted(token);
        }
        group.tick();
        while let Some(output) = group.poll_output() {
            let message = match output {
                GroupOutput::Persist(token, _) => {
                    last = token;
                    if persisted_all {
                        tokens.push(token);
                    }
                    continue;
                }
                GroupOutput::Send(_, Message::Log(message), _) => message,
                _ => continue,
            };
            let answer = match message {
                LogMessage::AskPromise { round } => LogMessage::WouldPromise { round },
                LogMessage::Prepare { ballot, .. } => {
                    LogMessage::Promise { ballot, state: None, accepted: vec![], doubt: Epoch(0) }
                }
                LogMessage::Accept { .. } => {
                    led = true;
                    continue;
                }
                _ => continue,
            };
            for peer in [2, 3] {
                let from = Sender { node: node(peer), epoch: Epoch(1) };
                group.on_message(from, Message::Log(answer.clone()));
            }
        }
    }
    assert!(led, "then it leads");
}

/// Pages of another attempt are not for this one (hazard 25), and copied records are counted before they are believed.
#[test]
fn what_was_copied_is_counted() {
    let mut bench = Bench::new(node(2), 3);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(new, &[(old.term, 9)]);
    bench.tick();
    let (from, AskCompare { piece, attempt, .. }) = bench.asked_compare();
    let stale = Compared { attempt: attempt ^ 1, ..nothing_newer(new, piece) };
    bench.hear(from, CommitteeMessage::Compared(stale.into()));
    assert!(!bench.acceptor.committee(new).unwrap().is_complete(), "a page of another attempt");
    // Of three records that the source holds, one does not come.
    let writes = vec![write(old, 1, "a", "1"), write(old, 2, "b", "2")];
    bench.compared(from, Compared { writes, looked: 3, ..nothing_newer(new, piece) });
    bench.compared(from, Compared { looked: 3, ..nothing_newer(new, piece) });
    assert!(!bench.acceptor.committee(new).unwrap().is_complete(), "two of three records are here");
    let writes = vec![write(old, 3, "c", "3")];
    bench.compared(from, Compared { writes, looked: 3, ..nothing_newer(new, piece) });
    bench.compared(from, Compared { looked: 3, ..nothing_newer(new, piece) });
    assert!(bench.acceptor.committee(new).unwrap().is_complete());
}
