//! Pieces of a base that are asked for at the same time.

use std::collections::BTreeMap;

use group::ballot::{LogSlot, Number, Term, TermBallot};
use group::message::{AskCompare, Base, CommitteeMessage, Compared, Since, Write};
use overlay::rng::Rng;
use overlay::{Key, KeyRange, Point};

use crate::bench::{Bench, ballot, node, nothing_newer, write};

/// Number of pieces, and number of writes of the newest term.
const PIECES: u128 = 8;
const WRITES: usize = 20;

/// Returns a member that has a base of eight pieces, and lacks all of them. For each piece, its chain names the term of which this member
/// holds a part, or a term that it knows nothing of. `bytes_per_s`: the rate at which it may copy.
fn lacking(old: TermBallot, new: TermBallot, knows: impl Fn(u128) -> bool, bytes_per_s: u64) -> Bench {
    let mut bench = Bench::new(node(2), 5);
    bench.config.transfer_bytes_per_s = bytes_per_s;
    bench.serve(old, &[]);
    bench.accept(old, Some(0), vec![write(old, 1, "first", "v")]);
    bench.accept(old, Some(1), vec![]);
    let cut = |place: u128| Point((place % PIECES) << 125);
    let piece = |place: u128| {
        let term = if knows(place) { old.term } else { Term::new(LogSlot(4), 0) };
        (KeyRange::new(cut(place), cut(place + 1)), vec![(term, 2 + place as u64)])
    };
    bench.hear(3, CommitteeMessage::Prepare { ballot: new, range: KeyRange::FULL });
    let base = Base { range: KeyRange::FULL, pieces: (0..PIECES).map(piece).collect(), reproposed: 0 }.into();
    bench.hear(3, CommitteeMessage::Base { ballot: new, base, chosen: Some(0) });
    bench.said.clear();
    bench.tick();
    bench
}

/// Answers a question as a member would that knows so many writes to be chosen.
fn answer(question: &CommitteeMessage, chosen: &[Write], chance: &mut Rng) -> Option<CommitteeMessage> {
    match question {
        CommitteeMessage::AskSince { ballot, piece, since, attempt } => {
            let nothing = Since {
                ballot: *ballot,
                piece: *piece,
                since: *since,
                attempt: *attempt,
                writes: vec![],
                up_to: None,
                done: false,
            };
            if chance.below(5) == 0 {
                return Some(CommitteeMessage::Since(nothing));
            }
            let least = if since.term == ballot.term { since.n } else { 0 };
            let known = chosen.len() as u64;
            let newer = |write: &&Write| piece.contains(write.key.point()) && write.record.number.n > least;
            let writes = chosen.iter().filter(newer).cloned().collect();
            let up_to = Some(Number { term: ballot.term, n: known });
            (known >= least).then_some(CommitteeMessage::Since(Since { writes, up_to, done: true, ..nothing }))
        }
        CommitteeMessage::AskCompare(ask) => Some(CommitteeMessage::Compared(compared(ask, chosen).into())),
        _ => None,
    }
}

fn compared(ask: &AskCompare, chosen: &[Write]) -> Compared {
    let mut newest: BTreeMap<&Key, &Write> = BTreeMap::new();
    for write in chosen.iter().filter(|write| ask.piece.contains(write.key.point())) {
        newest.insert(&write.key, write);
    }
    let looked = newest.len() as u64;
    let is_held = |write: &Write| ask.held.iter().any(|(key, at)| *key == write.key && *at >= write.record.number);
    let writes: Vec<Write> = newest.into_values().filter(|write| !is_held(write)).cloned().collect();
    let digest = writes.iter().fold(0_u64, |sum, write| sum.wrapping_add(write.digest()));
    Compared {
        writes,
        mark: chosen.len() as u64,
        digest,
        looked,
        attempt: ask.attempt,
        after: ask.after.clone(),
        up_to: ask.until.clone(),
        ..nothing_newer(ask.ballot, ask.piece)
    }
}

/// Checks that the table has all writes of the newest term that the committee claims to hold, except in missing pieces.
fn check(bench: &mut Bench, new: TermBallot, chosen: &[Write]) {
    let committee = bench.acceptor.committee(new).unwrap();
    let (held, missing) = (committee.received().mark().min(committee.chosen().unwrap()), committee.missing().to_vec());
    let mut newest: BTreeMap<&Key, u64> = BTreeMap::new();
    for write in &chosen[..held as usize] {
        newest.insert(&write.key, write.record.number.n);
    }
    for (key, n) in newest {
        let is_missing = missing.iter().any(|piece| piece.contains(key.point()));
        let here = bench.knows(key).filter(|record| record.number.term == new.term).map_or(0, |record| record.number.n);
        assert!(is_missing || here >= n, "{key:?} is at {here}, and {n} counts as held");
    }
}

/// Answers come in any order, old ones too, from members that know more or less, while the term continues and some of its writes are lost.
#[test]
fn lanes_end_in_any_order() {
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    for seed in 0..500 {
        let mut chance = Rng::new(seed);
        let mut bench = lacking(old, new, |place| place.is_multiple_of(2), 1 << 30);
        let mut chosen: Vec<Write> = Vec::new();
        let is_done = |bench: &Bench| {
            let committee = bench.acceptor.committee(new).unwrap();
            committee.missing().is_empty() && committee.received().mark() >= WRITES as u64
        };
        let mut steps = 0;
        while !is_done(&bench) || chosen.len() < WRITES {
            steps += 1;
            assert!(steps < 20_000, "no end with seed {seed}: {:?}", bench.acceptor.catch_up_status());
            match chance.below(4) {
                0 if chosen.len() < WRITES => {
                    let n = chosen.len() as u64 + 1;
                    chosen.push(write(new, n, &format!("key{}", chance.below(400)), "n"));
                    if chance.below(2) == 0 {
                        bench.accept(new, Some(chance.below(n)), vec![chosen[n as usize - 1].clone()]);
                    }
                }
                1 => {
                    bench.accept(new, Some(chosen.len() as u64), vec![]);
                    bench.tick();
                }
                _ => {
                    let late = bench.said.len().min(12) as u64;
                    let known = chance.below(chosen.len() as u64 + 1) as usize;
                    let Some(place) = bench.said.len().checked_sub(1 + chance.below(late) as usize) else { continue };
                    let (to, question) = bench.said[place].clone();
                    if let Some(answer) = answer(&question, &chosen[..known], &mut chance) {
                        bench.hear(to[0].peer.0[0], answer);
                    }
                }
            }
            check(&mut bench, new, &chosen);
        }
    }
}

/// Pages of windows count as well: with room for one page a second, not all eight pieces are asked for at once.
#[test]
fn lanes_keep_to_the_rate() {
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    let asked = |bytes_per_s: u64| {
        let bench = lacking(old, new, |_| true, bytes_per_s);
        bench.said.iter().filter(|(_, said)| matches!(said, CommitteeMessage::AskSince { .. })).count()
    };
    assert_eq!([1 << 10, 1 << 40].map(asked), [1, 8]);
}
