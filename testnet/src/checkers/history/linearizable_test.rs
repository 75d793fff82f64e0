//! Known good and bad histories, mutations of good ones, and a simple reference on all small ones.

use bytes::Bytes;
use group::op::{Answer, Condition, ExpireOnly, Expiry, Op, Read, ReadMode, Version};
use overlay::Key;
use overlay::time::Time;

use super::*;
use crate::history::{Moment, Outcome};
use crate::rng::Rng;

fn moment(order: u64) -> Moment {
    Moment { order, time: Time(order * 1_000_000) }
}

fn operation(connection: u64, op: Op, from: u64, to: Option<u64>, outcome: Outcome) -> Operation {
    Operation {
        client: connection,
        connection,
        via: 0,
        key: Key::new(b"k").unwrap(),
        op,
        mode: ReadMode::Linearizable,
        once: None,
        invoked: moment(from),
        completed: to.map(moment),
        outcome,
    }
}

fn value(text: &str) -> Option<Bytes> {
    (!text.is_empty()).then(|| Bytes::copy_from_slice(text.as_bytes()))
}

fn set_if(text: &str, condition: Condition) -> Op {
    Op::Set { value: value(text).unwrap(), condition, expiry: Expiry::Clear, get: false }
}

fn set(text: &str) -> Op {
    set_if(text, Condition::Always)
}

fn ok(client: u64, op: Op, from: u64, to: u64, answer: Answer) -> Operation {
    operation(client, op, from, Some(to), Outcome::Answered(answer))
}

fn wrote(client: u64, text: &str, from: u64, to: u64) -> Operation {
    ok(client, set(text), from, to, Answer::Done)
}

fn read(client: u64, text: &str, from: u64, to: u64) -> Operation {
    ok(client, Op::Read(Read::Value), from, to, Answer::Value(value(text)))
}

fn unknown(client: u64, op: Op, from: u64) -> Operation {
    operation(client, op, from, None, Outcome::Uncertain)
}

fn verdict(history: &[Operation]) -> SearchResult {
    let mut sorted: Vec<&Operation> = history.iter().collect();
    sorted.sort_by_key(|operation| operation.invoked);
    let verdict = search(&sorted, &|_, _| false, &Limits::default());
    // An order that is found in depth is one of all orders, where those are not too many.
    let calls = calls_of(&sorted);
    let evidence = Evidence::of(&calls);
    let limits = Limits::default();
    let whole = Search::new(&calls, &evidence, &limits, &|_, _| false, &vec![true; calls.len()]).unwrap();
    match whole.all() {
        SearchResult::Undecided(_) => {}
        all => assert_eq!(all == SearchResult::Linearizable, verdict == SearchResult::Linearizable, "{history:?}"),
    }
    assert!(!whole.finds_one() || verdict == SearchResult::Linearizable, "{history:?}");
    verdict
}

fn is_good(history: &[Operation]) {
    assert_eq!(verdict(history), SearchResult::Linearizable);
}

fn is_bad(history: &[Operation]) {
    assert!(matches!(verdict(history), SearchResult::Impossible(_)), "{history:?}");
}

#[test]
fn reads_see_what_was_written() {
    is_good(&[wrote(1, "a", 1, 2), read(2, "a", 3, 4)]);
    is_good(&[read(1, "", 1, 2)]);
    is_bad(&[wrote(1, "a", 1, 2), read(2, "", 3, 4)]);
    is_bad(&[read(1, "a", 1, 2), wrote(1, "a", 3, 4)]);
}

#[test]
fn concurrent_operations_take_either_order() {
    is_good(&[wrote(1, "a", 1, 5), wrote(2, "b", 2, 6), read(3, "a", 7, 8)]);
    is_good(&[wrote(1, "a", 1, 5), wrote(2, "b", 2, 6), read(3, "b", 7, 8)]);
    is_good(&[wrote(1, "a", 1, 9), read(2, "a", 2, 3), read(2, "a", 4, 5)]);
    is_bad(&[wrote(1, "a", 1, 9), read(2, "a", 2, 3), read(2, "", 4, 5)]);
    is_bad(&[wrote(1, "a", 1, 5), wrote(2, "b", 2, 6), read(3, "a", 7, 8), read(3, "b", 9, 10)]);
}

#[test]
fn an_unknown_outcome_is_now_later_or_never() {
    is_good(&[unknown(1, set("a"), 1), read(2, "", 2, 3), read(2, "a", 4, 5), read(2, "a", 6, 7)]);
    is_good(&[unknown(1, set("a"), 1), read(2, "", 2, 3)]);
    is_bad(&[unknown(1, set("a"), 1), read(2, "a", 2, 3), read(2, "", 4, 5)]);
    is_bad(&[unknown(1, set("a"), 1), read(2, "a", 2, 3), wrote(2, "b", 4, 5), read(2, "a", 6, 7)]);
    is_bad(&[read(2, "a", 1, 2), unknown(1, set("a"), 3)]);
}

/// No answer shows the written value, but a condition that was met does: the write can be told from other writes.
#[test]
fn a_condition_that_was_met_shows_a_value() {
    let history = [
        wrote(1, "aa", 1, 2),
        unknown(2, set("bb"), 3),
        unknown(3, set("cc"), 4),
        ok(1, set_if("dd", Condition::Equals("cc".into())), 10, 11, Answer::Done),
    ];
    is_good(&history);
    let none = [history[0].clone(), history[1].clone(), history[3].clone()];
    is_bad(&none);
}

#[test]
fn an_operation_that_was_refused_has_no_effect() {
    let refused = operation(1, set("a"), 1, Some(2), Outcome::TryAgain);
    is_good(&[refused.clone(), read(2, "", 3, 4)]);
    is_bad(&[refused, read(2, "a", 3, 4)]);
}

#[test]
fn an_unknown_outcome_that_is_settled_stays_so() {
    let judge = |history: &[Operation], from: u64| {
        let operations: Vec<&Operation> = history.iter().collect();
        let settles = |_: &CallOf<'_>, other: &CallOf<'_>| other.invoked >= from && matches!(other.op, Op::Read(_));
        search(&operations, &settles, &Limits::default())
    };
    let history = [unknown(1, set("a"), 1), read(2, "", 4, 5), read(2, "a", 6, 7)];
    assert!(matches!(judge(&history, 4), SearchResult::Impossible(_)));
    assert_eq!(judge(&history, 5), SearchResult::Linearizable);
    // The first read may complete it, whatever another read sees meanwhile.
    let history = [unknown(1, set("a"), 1), read(2, "a", 4, 8), read(3, "a", 5, 6), read(2, "a", 9, 10)];
    assert_eq!(judge(&history, 4), SearchResult::Linearizable);
    // A read of another value tells that it is done or never will be; which of both is open.
    let history = [unknown(1, set("a"), 1), wrote(2, "b", 2, 3), read(2, "b", 4, 5), read(2, "a", 6, 7)];
    assert!(matches!(judge(&history, 4), SearchResult::Impossible(_)));
    // An effect that no call could see before the read that settles it can have occurred by then.
    let exists = ok(2, Op::Read(Read::Exists), 4, 5, Answer::Integer(1));
    let history = [wrote(2, "z", 1, 2), unknown(1, set("a"), 3), exists, read(2, "a", 6, 7)];
    assert_eq!(judge(&history, 4), SearchResult::Linearizable);
}

#[test]
fn two_cannot_win_the_same_comparison() {
    let version = Version { generation: 1, timestamp: 7 };
    let cas = |text| set_if(text, Condition::Version(version));
    let seen = Answer::Versioned(Some((Bytes::from_static(b"a"), version)));
    let start = [wrote(1, "a", 1, 2), ok(1, Op::Read(Read::Versioned), 3, 4, seen)];
    let with = |rest: &[Operation]| [&start[..], rest].concat();
    is_good(&with(&[ok(1, cas("b"), 5, 8, Answer::Done), ok(2, cas("c"), 6, 9, Answer::NotMet)]));
    is_bad(&with(&[ok(1, cas("b"), 5, 8, Answer::Done), ok(2, cas("c"), 6, 9, Answer::Done)]));
    let equals = |text| set_if(text, Condition::Equals(Bytes::from_static(b"a")));
    is_bad(&with(&[ok(1, equals("b"), 5, 8, Answer::Done), ok(2, equals("c"), 6, 9, Answer::Done)]));
    is_bad(&with(&[ok(1, equals("b"), 5, 6, Answer::NotMet)]));
}

#[test]
fn answers_of_absence_and_conflict_are_reads() {
    is_bad(&[wrote(1, "a", 1, 2), ok(2, set_if("b", Condition::Absent), 3, 4, Answer::Done)]);
    is_good(&[wrote(1, "a", 1, 2), ok(2, set_if("b", Condition::Absent), 3, 4, Answer::NotMet)]);
    is_bad(&[ok(2, Op::Delete { condition: Condition::Always, get: false }, 1, 2, Answer::Done)]);
    is_bad(&[wrote(1, "a", 1, 2), ok(2, Op::Read(Read::Exists), 3, 4, Answer::Integer(0))]);
}

#[test]
fn attempts_under_one_id_are_one() {
    let once = |operation: Operation| Operation { once: Some(Bytes::from_static(b"id")), ..operation };
    let add = Op::Append { value: Bytes::from_static(b"x"), max: None };
    let first = once(operation(1, add.clone(), 1, Some(3), Outcome::Uncertain));
    let again = once(ok(1, add.clone(), 4, 5, Answer::Integer(1)));
    is_good(&[first.clone(), again.clone(), read(2, "x", 6, 7)]);
    is_good(&[first.clone(), read(2, "x", 2, 3), again.clone()]);
    is_bad(&[first.clone(), again.clone(), read(2, "xx", 6, 7)]);
    is_bad(&[first, again, read(2, "", 6, 7)]);
}

#[test]
fn one_connection_keeps_its_order() {
    let pipelined = [wrote(1, "a", 1, 5), wrote(1, "b", 2, 6), read(2, "a", 7, 8)];
    is_bad(&pipelined);
    let mut apart = pipelined;
    apart[1].connection = 3;
    is_good(&apart);
    // A first operation without an answer may have had no effect, or a late one.
    is_good(&[unknown(1, set("a"), 1), wrote(1, "b", 2, 3), read(2, "b", 4, 5)]);
}

/// Of two deletions of unknown outcome the first one stands behind the read in its own connection: the read saw the other one.
#[test]
fn one_that_must_wait_does_not_keep_its_twin_from_a_place() {
    let delete = || Op::Delete { condition: Condition::Always, get: true };
    let late = [
        wrote(1, "a", 1, 2),
        ok(2, Op::Read(Read::Value), 3, 9, Answer::Value(None)),
        unknown(2, delete(), 4),
        unknown(3, delete(), 5),
    ];
    is_good(&late);
    is_bad(&late[..3]);
}

#[test]
fn relaxed_reads_may_be_old() {
    let old = Operation { mode: ReadMode::Relaxed, ..read(2, "", 3, 4) };
    is_good(&[wrote(1, "a", 1, 2), old]);
}

#[test]
fn hundreds_of_operations_with_many_unknown_are_quick() {
    let mut rng = Rng::new(1, "history");
    let history = good_history(&mut rng, 12, 600);
    let start = std::time::Instant::now();
    is_good(&history);
    assert!(start.elapsed() < std::time::Duration::from_secs(5), "{:?}", start.elapsed());
}

/// Each of the reads may come before or behind each change of the deadline, and none of these orders matters.
#[test]
fn many_reads_beside_deadlines_are_quick() {
    let expiry = Expiry::In(std::time::Duration::from_secs(5));
    let mut history = vec![ok(
        1,
        Op::Set { value: value("a").unwrap(), condition: Condition::Always, expiry, get: false },
        1,
        2,
        Answer::Done,
    )];
    for number in 0..40 {
        let (kind, answer) = match number % 3 {
            0 => (Read::Value, Answer::Value(value("a"))),
            1 => (Read::Exists, Answer::Integer(1)),
            _ => (Read::TimeToLive, Answer::Integer(number as i64)),
        };
        history.push(ok(10 + number, Op::Read(kind), 10 + number, 100 + number, answer));
    }
    for number in 0..4 {
        let expire = Op::Expire { expiry, only: ExpireOnly::Always };
        history.push(ok(60 + number, expire, 60 + number, 160 + number, Answer::Done));
    }
    is_good(&history);
    history.push(read(70, "b", 70, 170));
    is_bad(&history);
}

/// Writers whose requests wait for one another, with deadlines and few reads: the orders are too many to try all, and any of them
/// suffices.
#[test]
fn many_writes_beside_deadlines_are_quick() {
    let expiry = Expiry::In(std::time::Duration::from_secs(3));
    let set = |text: String, expiry| {
        let value = Bytes::from(text.into_bytes());
        Op::Set { value, condition: Condition::Always, expiry, get: false }
    };
    let mut history = Vec::new();
    for turn in 0..20_u64 {
        let from = 1 + turn * 1_000;
        for client in 0..8 {
            for number in 0..4 {
                let op = match number {
                    0 => set(format!("{turn}-{client}"), expiry),
                    1 => set(format!("{turn}-{client}"), Expiry::Clear),
                    2 => Op::Expire { expiry, only: ExpireOnly::Always },
                    _ => Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always },
                };
                let condition = if number == 3 { Answer::NotMet } else { Answer::Done };
                history.push(ok(client, op, from + client * 10 + number, from + 500 + number * 20 + client, condition));
            }
        }
    }
    history.sort_by_key(|operation| operation.invoked);
    let sorted: Vec<&Operation> = history.iter().collect();
    assert_eq!(search(&sorted, &|_, _| false, &Limits::default()), SearchResult::Linearizable);
}

/// A key that has expired by the time of one answer is absent for each later request.
#[test]
fn what_has_expired_stays_so() {
    let expiry = Expiry::In(std::time::Duration::from_secs(5));
    let begin = ok(
        1,
        Op::Set { value: value("a").unwrap(), condition: Condition::Always, expiry, get: false },
        1,
        2,
        Answer::Done,
    );
    let exists = |client, there, from, to| ok(client, Op::Read(Read::Exists), from, to, Answer::Integer(there));
    is_good(&[begin.clone(), exists(2, 1, 3, 9), exists(3, 0, 4, 8), exists(4, 0, 10, 11)]);
    is_bad(&[begin, exists(2, 0, 3, 9), exists(3, 1, 10, 11)]);
}

/// Returns a history of `clients` that is good by construction: each operation takes effect at some moment of its time.
fn good_history(rng: &mut Rng, clients: u64, count: u64) -> Vec<Operation> {
    let mut order = 0;
    let mut next = || {
        order += 1;
        order
    };
    let mut state: Option<Bytes> = None;
    // Per client: an operation under way, and its answer once it has taken effect.
    let mut busy: Vec<Option<(Op, u64, Option<Answer>)>> = vec![None; clients as usize];
    let mut history = Vec::new();
    let mut asked = 0;
    while asked < count || busy.iter().any(Option::is_some) {
        let client = rng.below(clients);
        let slot = &mut busy[client as usize];
        match slot {
            None if asked < count => {
                asked += 1;
                let unique = format!("s{asked}");
                let op = match rng.below(6) {
                    0 => Op::Append { value: value(&format!("{unique};")).unwrap(), max: None },
                    1 => Op::Delete { condition: Condition::Always, get: false },
                    2 => set(&unique),
                    3 => set_if(&unique, Condition::Absent),
                    _ => Op::Read(Read::Value),
                };
                *slot = Some((op, next(), None));
            }
            None => {}
            Some((op, from, answer @ None)) => {
                if rng.per_mille(30) {
                    // Never answered: perhaps it takes effect.
                    if rng.per_mille(500) {
                        apply(&mut state, op);
                    }
                    history.push(unknown(client, op.clone(), *from));
                    *slot = None;
                } else {
                    *answer = Some(apply(&mut state, op));
                }
            }
            Some((op, from, Some(answer))) => {
                history.push(ok(client, op.clone(), *from, next(), answer.clone()));
                *slot = None;
            }
        }
    }
    history.sort_by_key(|operation| operation.invoked);
    history
}

fn apply(state: &mut Option<Bytes>, op: &Op) -> Answer {
    match op {
        Op::Read(_) => Answer::Value(state.clone()),
        Op::Append { value, .. } => {
            let whole = [state.as_deref().unwrap_or_default(), value].concat();
            let length = whole.len() as i64;
            *state = Some(whole.into());
            Answer::Integer(length)
        }
        Op::Delete { .. } => {
            if state.take().is_some() {
                Answer::Done
            } else {
                Answer::NotMet
            }
        }
        Op::Set { value, condition, .. } => {
            if *condition == Condition::Absent && state.is_some() {
                return Answer::NotMet;
            }
            *state = Some(value.clone());
            Answer::Done
        }
        _ => unreachable!("not drawn"),
    }
}

#[test]
fn good_histories_pass_and_their_mutations_are_judged_as_the_reference_does() {
    let mut caught = 0;
    for seed in 0..3_000 {
        let mut rng = Rng::new(seed, "history");
        let history = good_history(&mut rng, 3, 7);
        is_good(&history);
        let mutated = mutate(&mut rng, history);
        let expected = reference(&mutated);
        let found = verdict(&mutated) == SearchResult::Linearizable;
        assert_eq!(found, expected, "seed {seed}: {mutated:#?}");
        caught += u64::from(!found);
    }
    assert!(caught > 500, "mutations do harm: {caught}");
}

/// Changes one part: an answer, a time, or an outcome.
fn mutate(rng: &mut Rng, mut history: Vec<Operation>) -> Vec<Operation> {
    let index = rng.below(history.len() as u64) as usize;
    let other = history[rng.below(history.len() as u64) as usize].clone();
    let operation = &mut history[index];
    match rng.below(4) {
        0 => operation.outcome = Outcome::TryAgain,
        1 => {
            operation.outcome = other.outcome;
            operation.completed = operation.completed.or(Some(moment(1_000)));
        }
        2 => operation.op = other.op,
        _ => {
            // Asked as late as possible.
            let end = operation.completed.map_or(1_000, |completed| completed.order);
            operation.invoked = moment(end.saturating_sub(1));
        }
    }
    // Orders stay unique.
    let mut orders: Vec<(u64, usize, bool)> = Vec::new();
    for (index, operation) in history.iter().enumerate() {
        orders.push((operation.invoked.order, index, false));
        if let Some(completed) = operation.completed {
            orders.push((completed.order.max(operation.invoked.order + 1), index, true));
        }
    }
    orders.sort_unstable();
    for (rank, (_, index, end)) in orders.into_iter().enumerate() {
        let operation = &mut history[index];
        if end {
            operation.completed = Some(moment(rank as u64 + 1));
        } else {
            operation.invoked = moment(rank as u64 + 1);
        }
    }
    history
}

/// Tries all orders of all choices, one after another.
fn reference(history: &[Operation]) -> bool {
    fn explore(history: &[Operation], done: u32, state: &ModelState) -> bool {
        let limits = Limits::default();
        let is_done = |index: usize| done >> index & 1 == 1;
        let required = |operation: &Operation| operation.outcome.answer().is_some();
        if history.iter().enumerate().all(|(index, operation)| is_done(index) || !required(operation)) {
            return true;
        }
        history.iter().enumerate().any(|(index, operation)| {
            if is_done(index) || !operation.outcome.may_have_effect() {
                return false;
            }
            let overtaken = history.iter().enumerate().any(|(other, before)| {
                let ended = before.completed.is_some_and(|end| end.order < operation.invoked.order);
                other != index && !is_done(other) && required(before) && ended
            });
            let call = Call {
                op: &operation.op,
                answer: operation.outcome.answer(),
                from: operation.invoked.time,
                until: Time::NEVER,
            };
            !overtaken && state.after(&call, &limits).iter().any(|next| explore(history, done | 1 << index, next))
        })
    }
    explore(history, 0, &ModelState::default())
}
