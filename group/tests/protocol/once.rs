//! An operation takes effect at most once, and a term is begun once, however often messages are repeated (`docs/design/write.md`; I6).

use group::ballot::{LogSlot, Term, TermBallot};
use group::control::state::GroupState;
use group::message::{AttemptOutcome, CommitteeMessage, Message};
use group::op::{Answer, Op, Read};
use group::record::OpId;
use overlay::Epoch;

use crate::bench::{Bench, Whole, ballot, node, operate, operation};

/// A copy of an attempt arrives before its executor knows of its term, and is refused: the origin asks anew, is answered, and retires the
/// id. The other copy arrives when the primary serves.
#[test]
fn a_copy_that_came_too_early_has_no_effect_later() {
    let mut bench = Bench::new(node(1), 3);
    bench.state.division[0].node = node(2);
    let mut whole = Whole::new(&bench);
    let slot = bench.state.applied.next();
    let mine = TermBallot { epoch: Epoch(1), term: Term::new(slot, 0), node: node(1) };
    let first = operation(mine, 1, "k", Op::Add(1));
    whole.hear(2, operate(first.clone()));
    assert_eq!(whole.told(1), [AttemptOutcome::NotPrimary]);
    let mut state = bench.state.clone();
    state.applied = slot;
    (state.division[0].node, state.division[0].term) = (node(1), mine.term);
    whole.hear(2, Message::State(Box::new(state)));
    assert_eq!(whole.own(), mine);
    whole.serve();
    // Another attempt of the same operation; then a later operation, which retires it.
    let again = group::message::ClientOperation { attempt: 2, serial: 2, ..first.clone() };
    whole.hear(2, operate(again));
    whole.accept_all();
    assert_eq!(whole.told(2), [AttemptOutcome::Done(Answer::Integer(1))]);
    whole.hear(2, operate(operation(mine, 3, "k", Op::Add(10))));
    whole.accept_all();
    assert_eq!(whole.told(3), [AttemptOutcome::Done(Answer::Integer(11))]);
    whole.hear(2, operate(first));
    whole.accept_all();
    assert_eq!(whole.told(1), [AttemptOutcome::NotPrimary], "said once");
    whole.hear(2, operate(operation(mine, 4, "k", Op::Read(Read::Value))));
    whole.accept_all();
    assert_eq!(whole.told(4), [AttemptOutcome::Unchanged(Answer::Value(Some("11".into())))], "it took effect twice");
}

/// A client's id that came through a peer with an outdated horizon is remembered as long as any other id. It is not forgotten at the next
/// raise of the horizon, which may be at once.
#[test]
fn an_id_under_an_old_horizon_is_remembered_as_long() {
    let bench = Bench::new(node(1), 3);
    let mut whole = Whole::new(&bench);
    let mine = whole.own();
    whole.serve();
    let raise = |whole: &mut Whole, horizon: u64| {
        let state = whole.group.state().clone();
        let next = GroupState { applied: state.applied.next(), horizon, ..state };
        whole.hear(3, Message::State(Box::new(next)));
    };
    raise(&mut whole, 5);
    let once = |attempt, horizon| group::message::ClientOperation {
        id: OpId::Client("mine".into()),
        serial: attempt,
        horizon,
        ..operation(mine, attempt, "k", Op::Add(1))
    };
    whole.hear(2, operate(once(1, 4)));
    whole.accept_all();
    assert_eq!(whole.told(1), [AttemptOutcome::Done(Answer::Integer(1))]);
    raise(&mut whole, 6);
    whole.hear(2, operate(once(2, 6)));
    whole.accept_all();
    assert_eq!(whole.told(2), [AttemptOutcome::Done(Answer::Integer(1))], "it was executed twice");
}

/// The same where the term began and no member has vouched yet, or where neither is certain: such an attempt is dropped.
#[test]
fn what_cannot_be_remembered_is_as_good_as_lost() {
    let mut whole = Whole::new(&Bench::new(node(1), 3));
    for slot in 10..200 {
        let future = TermBallot { node: node(1), ..ballot(slot, 1) };
        whole.hear(2, operate(operation(future, slot, "k", Op::Add(1))));
    }
    let answered = (10..200).filter(|attempt| !whole.told(*attempt).is_empty()).count();
    assert_eq!(answered, 64);
    assert_eq!(whole.group.dropped().of(group::validate::Violation::NoRoom), 190 - 64);
}

/// Its primary is refused, because a higher ballot was promised. Then it learns of a decision that leaves its term unchanged. If it began
/// the term anew under the same ballot, it would use its numbers for other writes (hazard 5).
#[test]
fn a_term_that_is_over_is_not_begun_again() {
    let bench = Bench::new(node(1), 5);
    let mut whole = Whole::new(&bench);
    let ballot_of_mine = whole.own();
    let promised = ballot(5, 2);
    let prepares = |whole: &Whole| {
        let prepare = |(_, message): &&(_, Message)| matches!(message, Message::Committee(CommitteeMessage::Prepare { ballot, .. }) if *ballot == ballot_of_mine);
        whole.said.iter().filter(prepare).count()
    };
    assert_eq!(prepares(&whole), 1);
    whole.hear(3, Message::Committee(CommitteeMessage::Refused { ballot: ballot_of_mine, promised }));
    assert_eq!(whole.group.primaries().filter(|primary| !primary.is_ended()).count(), 0);
    let next = |state: &GroupState| GroupState { applied: state.applied.next(), horizon: 2, ..state.clone() };
    whole.hear(3, Message::State(Box::new(next(&bench.state))));
    assert_eq!(whole.group.state().applied, LogSlot(2));
    whole.wait(1000);
    assert_eq!(prepares(&whole), 1, "under a ballot that is over");
    // A copy of an earlier attempt is not executed, and not said to have had no effect.
    whole.hear(2, operate(operation(ballot_of_mine, 1, "k", Op::Add(1))));
    assert_eq!(whole.told(1), [AttemptOutcome::NotPrimary]);
}
