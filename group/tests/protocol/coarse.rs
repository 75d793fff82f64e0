//! A coarse group: one write after another, as in one log (`docs/design/write.md`).

use group::message::{CommitteeMessage, Message};
use group::op::Op;

use crate::bench::{Bench, Whole, ballot, node, operate, operation, write};

fn bench(me: u8, coarse: bool) -> Bench {
    let mut bench = Bench::new(node(me), 3);
    bench.state.settings.coarse = coarse;
    bench
}

/// Returns the answered ones of two operations on two keys: once a majority has the second write alone, and once it has both.
fn answered(coarse: bool) -> [Vec<u64>; 2] {
    let mut whole = Whole::new(&bench(1, coarse));
    whole.serve();
    let ballot = whole.own();
    whole.hear(2, operate(operation(ballot, 1, "a", Op::Add(1))));
    whole.hear(2, operate(operation(ballot, 2, "b", Op::Add(1))));
    [2, 1].map(|n| {
        whole.hear(2, Message::Committee(CommitteeMessage::Accepted { ballot, numbers: vec![(n, n)] }));
        [1, 2].into_iter().filter(|attempt| !whole.told(*attempt).is_empty()).collect()
    })
}

#[test]
fn a_primary_answers_in_order() {
    assert_eq!(answered(false), [vec![2], vec![1, 2]]);
    assert_eq!(answered(true), [vec![], vec![1, 2]]);
}

/// Returns the acknowledgements of an acceptor for writes that come one by one, in this order.
fn acknowledged(coarse: bool, numbers: &[u64]) -> Vec<Vec<(u64, u64)>> {
    let mut bench = bench(2, coarse);
    let ballot = ballot(1, 1);
    bench.serve(ballot, &[]);
    let acknowledged = |n: &u64| {
        bench.said.clear();
        bench.accept(ballot, Some(0), vec![write(ballot, *n, &format!("k{n}"), "v")]);
        let said = bench.said.iter().filter_map(|(_, message)| match message {
            CommitteeMessage::Accepted { numbers, .. } => Some(numbers.clone()),
            _ => None,
        });
        said.flatten().collect()
    };
    numbers.iter().map(acknowledged).collect()
}

#[test]
fn an_acceptor_acknowledges_in_order() {
    let arrivals = [1, 3, 4, 2, 4];
    let each = |numbers: &[(u64, u64)]| numbers.to_vec();
    assert_eq!(acknowledged(false, &arrivals), arrivals.map(|n| each(&[(n, n)])));
    let in_order = [each(&[(1, 1)]), each(&[]), each(&[]), each(&[(2, 4)]), each(&[(4, 4)])];
    assert_eq!(acknowledged(true, &arrivals), in_order, "the last one came again: its answer may have been lost");
}
