//! Sources from which a member that was away gets missed writes.

use core::time::Duration;

use group::ballot::{LogSlot, Number, Term};
use group::control::state::EpochConfig;
use group::message::{AskCompare, Base, CommitteeMessage, Compared, Since};
use overlay::time::Time;
use overlay::{Epoch, KeyRange, Point};

use crate::bench::{Bench, ballot, key, node, nothing_newer, write};

/// Returns a member that holds one term's first three writes, and missed the next three; a second term has begun, with node 3 as primary.
fn away() -> Bench {
    let mut bench = Bench::new(node(2), 3);
    let first = ballot(5, 1);
    bench.serve(first, &[]);
    bench.accept(first, Some(0), (1..=3).map(|n| write(first, n, &format!("k{n}"), "v")).collect());
    bench.accept(first, Some(3), vec![]);
    bench.serve(ballot(7, 3), &[(first.term, 6), (Term::new(LogSlot(6), 0), 0)]);
    bench.said.clear();
    bench.tick();
    bench
}

/// Answers the last question for recent writes; without any, the window does not reach.
fn answer(bench: &mut Bench, writes: Vec<group::message::Write>) -> u8 {
    let (from, piece, since) = bench.asked_since();
    let ballot = ballot(7, 3);
    let up_to = (!writes.is_empty()).then_some(Number { term: ballot.term, n: 0 });
    let done = up_to.is_some();
    bench.since(from, Since { ballot, piece, since, attempt: 0, writes, up_to, done });
    from
}

#[test]
fn everyone_is_asked_for_recent_writes_before_all_keys_are_compared() {
    let mut bench = away();
    let first = answer(&mut bench, vec![]);
    let second = answer(&mut bench, vec![]);
    assert_ne!(first, second);
    bench.asked_compare();
}

#[test]
fn who_kept_more_than_the_first_gives_it() {
    let mut bench = away();
    answer(&mut bench, vec![]);
    answer(&mut bench, (4..=6).map(|n| write(ballot(5, 1), n, &format!("k{n}"), "v")).collect());
    let compares = bench.said.iter().any(|(_, message)| matches!(message, CommitteeMessage::AskCompare(_)));
    assert!(!compares, "{:?}", bench.said);
    assert!(bench.acceptor.catch_up_status().is_empty(), "{:?}", bench.acceptor.catch_up_status());
}

/// Recovery asks former members for as long as nothing is established, also dead ones. They are asked when the other sources were asked
/// several times.
#[test]
fn who_is_silent_is_asked_last() {
    let turns = |asked: &[u8], index: u8| asked.iter().position(|from| *from == index);
    let (all, some) = (asked_while_silent(&[]), asked_while_silent(&[1, 4]));
    assert!([1, 3, 4, 5].into_iter().all(|index| turns(&all[..4], index).is_some()), "{all:?}");
    assert!([1, 4].into_iter().all(|index| turns(&some[..6], index).is_none()), "{some:?}");
    assert!(some[6..].iter().any(|from| [1, 4].contains(from)), "nobody is given up: {some:?}");
}

/// Returns the first nine sources that are asked, where none of them answers and these are known to be silent.
fn asked_while_silent(silent: &[u8]) -> Vec<u8> {
    let mut bench = Bench::new(node(2), 5);
    bench.serve(ballot(7, 3), &[(ballot(5, 1).term, 9)]);
    bench.acceptor.set_silent(silent.iter().map(|index| node(*index)).collect());
    bench.tick();
    let mut asked = Vec::new();
    while asked.len() < 9 {
        let (from, AskCompare { piece, .. }) = bench.asked_compare();
        bench.said.clear();
        asked.push(from);
        // Silence. Then another source is asked, with more patience each time.
        while !bench.said.iter().any(|(_, message)| matches!(message, CommitteeMessage::AskCompare(_))) {
            bench.tick();
        }
        assert_eq!(piece, KeyRange::FULL);
    }
    asked
}

/// The other sources may be gone: a source that has said it twice is believed.
#[test]
fn nobody_waits_for_those_who_are_silent() {
    let mut bench = away();
    let first = answer(&mut bench, vec![]);
    for _ in 0..20 {
        bench.now.time = bench.now.time + bench.config.timing.resend;
        bench.said.clear();
        bench.tick();
        match bench.said.last() {
            Some((to, CommitteeMessage::AskSince { .. })) if to[0].peer.0[0] == first => {
                answer(&mut bench, vec![]);
                bench.asked_compare();
                return;
            }
            _ => {}
        }
    }
    panic!("it is not asked again: {:?}", bench.said);
}

/// A member missed some numbers of a term, and hears the later writes as they come: more than it could read in time.
#[test]
fn what_comes_by_itself_is_not_waited_for() {
    let mut bench = Bench::new(node(2), 3);
    let term = ballot(7, 3);
    bench.serve(term, &[]);
    let writes = |numbers: std::ops::RangeInclusive<u64>| -> Vec<group::message::Write> {
        numbers.map(|n| write(term, n, &format!("k{n}"), "v")).collect()
    };
    bench.accept(term, Some(0), writes(1..=2));
    bench.accept(term, Some(9), writes(6..=12));
    bench.tick();
    let (from, piece, since) = bench.asked_since();
    assert_eq!(since.n, 2);
    let page = |n, writes| {
        let up_to = Some(Number { term: term.term, n });
        Since { ballot: term, piece, since, attempt: 0, writes, up_to, done: false }
    };
    bench.since(from, page(4, writes(3..=4)));
    let (from, _, since) = bench.asked_since();
    assert_eq!(since.n, 4, "number 5 is missing");
    bench.since(from, Since { since, ..page(5, writes(5..=5)) });
    assert!(bench.acceptor.catch_up_status().is_empty(), "{:?}, {:?}", bench.acceptor.catch_up_status(), bench.said);
    assert_eq!(bench.acceptor.committee(term).map(|committee| committee.received().mark()), Some(12));
}

/// Writes of clients would wait behind copied records. Copying ends all the same.
#[test]
fn copying_waits_for_a_store_that_is_behind_but_not_for_ever() {
    let mut bench = away();
    answer(&mut bench, vec![]);
    answer(&mut bench, vec![]);
    bench.act(|acceptor, _, _| acceptor.set_store_behind(true));
    assert_eq!(next_page_ms(&mut bench, "a", false), 500);
    assert_eq!(next_page_ms(&mut bench, "b", false), 500);
    assert_eq!(next_page_ms(&mut bench, "c", true), 0);
    assert_eq!(next_page_ms(&mut bench, "d", false), 0, "it answered before the store was behind again");
}

/// Takes a page without newer records. Returns the milliseconds after which the next one is asked for.
fn next_page_ms(bench: &mut Bench, up_to: &str, relieved: bool) -> u64 {
    let (from, AskCompare { ballot, piece, after, .. }) = bench.asked_compare();
    let page = Compared { after, up_to: Some(key(up_to)), ..nothing_newer(ballot, piece) };
    let asked = bench.said.len();
    bench.compared(from, page);
    bench.act(|acceptor, _, _| acceptor.set_store_behind(!relieved));
    for waited in 0..1000 {
        bench.act(|acceptor, ctx, table| acceptor.drive_catch_up(ctx, table));
        if bench.said.len() > asked {
            return waited;
        }
        bench.now.time = bench.now.time + Duration::from_millis(1);
    }
    panic!("it is never asked for");
}

/// Two configurations are asked: this group's, of which no member holds everything yet, and the one that it comes from. When the latter is
/// asked no more, members here hold everything: their earlier lack says nothing about that.
#[test]
fn what_others_lacked_is_forgotten_when_fewer_are_asked() {
    let mut bench = Bench::new(node(2), 3);
    let former = EpochConfig { epoch: Epoch(0), members: (4..=6).map(node).collect(), open: vec![KeyRange::FULL] };
    bench.state.recovery = vec![former];
    let term = ballot(7, 3);
    bench.serve(term, &[(Term::new(LogSlot(5), 0), 6)]);
    bench.said.clear();
    bench.tick();
    let incomplete = |bench: &mut Bench| {
        let (from, ask) = bench.asked_compare();
        let answer = Compared { complete: false, ..nothing_newer(term, ask.piece) };
        bench.compared(from, answer);
        from
    };
    let mut asked = vec![incomplete(&mut bench)];
    while !(asked.contains(&1) && asked.contains(&3)) {
        asked.push(incomplete(&mut bench));
        assert!(
            !bench.acceptor.committee(term).unwrap().missing().is_empty(),
            "two of the former three are to be asked"
        );
    }
    bench.state.recovery.clear();
    incomplete(&mut bench);
    assert!(!bench.acceptor.committee(term).unwrap().missing().is_empty(), "what they lacked they may have now");
    for _ in 0..20 {
        bench.now.time = bench.now.time + bench.config.timing.resend;
        bench.tick();
        let (from, ask) = bench.asked_compare();
        if bench.acceptor.committee(term).unwrap().missing().is_empty() || [1, 3].contains(&from) {
            bench.compared(from, nothing_newer(term, ask.piece));
        }
    }
    assert!(bench.acceptor.committee(term).unwrap().missing().is_empty(), "who holds everything now says so");
}

/// Answers the questions to these members, and drops all questions: they hold nothing newer, and everything or not.
fn answer_compares(bench: &mut Bench, who: &[u8], template: &Compared) {
    for (to, message) in std::mem::take(&mut bench.said) {
        let CommitteeMessage::AskCompare(ask) = message else { continue };
        let AskCompare { ballot, piece, attempt, .. } = *ask;
        let from = to[0].peer.0[0];
        if who.contains(&from) {
            let answer = Compared { ballot, piece, attempt, ..template.clone() };
            bench.hear(from, CommitteeMessage::Compared(answer.into()));
        }
    }
}

/// A newcomer lacks everything in two sub-ranges. No member holds everything yet, and one of three members is gone. The other two together
/// make a majority, and both have to be asked for each sub-range. The two sub-ranges wait, and ask, in step.
#[test]
fn two_that_wait_in_step_come_to_everybody() {
    for (first, second) in [(1, 3), (3, 1)] {
        let mut bench = Bench::new(node(4), 3);
        let half = |start, end| KeyRange::new(Point(start), Point(end));
        let parts = [(ballot(7, first), half(0, 1 << 127)), (ballot(8, second), half(1 << 127, 0))];
        for (ballot, range) in parts {
            let from = ballot.node.peer.0[0];
            let pieces = vec![(range, vec![(Term::new(LogSlot(5), 0), 6)])];
            let base = Base { range, pieces, reproposed: 0 };
            bench.hear(from, CommitteeMessage::Prepare { ballot, range });
            bench.hear(from, CommitteeMessage::Base { ballot, base: base.into(), chosen: Some(0) });
        }
        let incomplete = Compared { complete: false, ..nothing_newer(parts[0].0, KeyRange::FULL) };
        bench.said.clear();
        for _ in 0..10 {
            bench.tick();
            answer_compares(&mut bench, &[1, 3], &incomplete);
        }
        for (ballot, _) in parts {
            let missing = bench.acceptor.committee(ballot).unwrap().missing();
            assert!(missing.is_empty(), "{missing:?} of {ballot:?}");
        }
    }
}

/// Two members of three lacked records when they were compared with, and their answers do not count. They get the records; the third one,
/// which has never been compared with, is gone.
#[test]
fn who_lacked_something_is_asked_again_where_the_others_are_silent() {
    for one in [1, 3] {
        let mut bench = Bench::new(node(4), 3);
        let term = ballot(7, 1);
        bench.serve(term, &[(Term::new(LogSlot(5), 0), 6)]);
        let complete = nothing_newer(term, KeyRange::FULL);
        let doubtful = Compared { complete: false, doubt: Epoch(9), ..complete.clone() };
        bench.said.clear();
        for _ in 0..10 {
            bench.tick();
            answer_compares(&mut bench, &[1, 3], &doubtful);
        }
        assert!(!bench.acceptor.committee(term).unwrap().missing().is_empty(), "the third may hold what they forgot");
        for _ in 0..20 {
            bench.tick();
            answer_compares(&mut bench, &[one], &complete);
        }
        assert!(
            bench.acceptor.committee(term).unwrap().missing().is_empty(),
            "{one} holds everything now, and says so"
        );
    }
}

/// Answers all questions, and those that follow, while time stands still. Returns the asked members, in order. Each member knows one write
/// of the term, and `who_knows_more` two.
fn answer_all(bench: &mut Bench, who_knows_more: u8) -> Vec<u8> {
    let mut asked = Vec::new();
    while let Some((to, message)) = bench.said.pop() {
        let CommitteeMessage::AskSince { ballot, piece, since, attempt } = message else { continue };
        let from = to[0].peer.0[0];
        asked.push(from);
        assert!(asked.len() < 100, "it asks as fast as it is answered");
        let n = if from == who_knows_more { 2 } else { 1 };
        let writes = (since.n + 1..=n).map(|n| write(ballot, n, &format!("k{n}"), "v")).collect();
        let up_to = Some(Number { term: ballot.term, n });
        bench.hear(from, CommitteeMessage::Since(Since { ballot, piece, since, attempt, writes, up_to, done: true }));
    }
    asked
}

/// Returns when the member is to be woken for catch-up.
fn due(bench: &mut Bench) -> Time {
    bench.act(|acceptor, ctx, _| acceptor.catch_up_due(ctx))
}

/// Wakes the member at that time, and just before.
fn wake(bench: &mut Bench) {
    let due = due(bench);
    for (time, asks) in [(Time(due.0 - 1), false), (due, true)] {
        bench.now.time = time;
        bench.act(|acceptor, ctx, table| acceptor.drive_catch_up(ctx, table));
        assert_eq!(!bench.said.is_empty(), asks, "at {time:?}, due at {due:?}: {:?}", bench.said);
    }
}

/// A member has heard that two writes are chosen. The members that it asks, even the primary's own acceptor, have not yet heard that of the
/// second.
#[test]
fn who_has_not_heard_what_is_chosen_is_not_asked_again_at_once() {
    let mut bench = Bench::new(node(2), 3);
    let (term, resend) = (ballot(7, 3), bench.config.timing.resend);
    bench.serve(term, &[]);
    bench.accept(term, Some(2), vec![]);
    bench.said.clear();
    bench.tick();
    let began = bench.now.time;
    assert_eq!(answer_all(&mut bench, 0), [3, 3], "what brought something is followed by another round at once");
    bench.now.time = bench.now.time + resend / 3;
    assert_eq!(due(&mut bench), began + resend, "whatever it hears meanwhile");
    wake(&mut bench);
    assert_eq!(answer_all(&mut bench, 0), [1], "somebody else may have heard");
    let mark = |bench: &Bench| bench.acceptor.committee(term).map(|committee| committee.received().mark());
    while mark(&bench) == Some(1) {
        wake(&mut bench);
        assert_eq!(answer_all(&mut bench, 3).len(), 1);
        assert!(bench.now.time < began + 5 * resend, "who has heard by now is asked again");
    }
    assert_eq!(mark(&bench), Some(2));
    assert_eq!((bench.acceptor.catch_up_status(), due(&mut bench)), (vec![], Time::NEVER));
}
