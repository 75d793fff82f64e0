//! Reads that a switch spreads over the members, with real pipelines: the answers are consistent under all faults.

use std::time::Duration;

use group::config::{Defect, Defects};
use group::harmonia::Answers;
use group::message::CommitteeMessage;

use crate::bench::{Bench, ballot, node};
use crate::world::chance;

const STEPS: u64 = 800;

fn count(default: u64) -> u64 {
    std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

#[test]
fn answers_go_together_whatever_the_switches_do() {
    let first: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let count = count(120);
    let mut sums = [0; 3];
    for seed in first..first + count {
        let came = chance::run_switched(seed, STEPS, Defects::NONE, count == 1);
        assert_eq!(came.wrong, None, "seed {seed}");
        sums.iter_mut().zip(came.spread).for_each(|(sum, more)| *sum += more);
    }
    println!("{count} runs: {sums:?} answered by replicas, left to the primary, dirty");
    assert!(count < 100 || sums.iter().all(|sum| *sum > count), "it happens: {sums:?}");
}

/// The checks see when a rule is left out.
#[test]
fn what_is_left_out_is_seen() {
    // First seeds that show each: after a change of the protocol it is other seeds, and the search goes on from these.
    for (defect, from) in [
        (Defect::VoidNumberTaken, 1058),
        (Defect::EarlyCompletion, 64),
        (Defect::GrantsForgotten, 1573),
        (Defect::GrantUnchecked, 223),
        (Defect::PointUnchecked, 110),
    ] {
        let found = (from..from + count(3000))
            .find(|seed| chance::run_switched(*seed, STEPS, Defects::NONE.with(defect), false).wrong.is_some());
        println!("{defect:?}: {found:?}");
        assert!(found.is_some(), "{defect:?} goes unseen");
    }
}

/// Returns for how long a member may answer with a grant of 100 ms that came so long after the confirmation of the ballot, in milliseconds.
fn answers_for(came_after_ms: u64, defects: Defects) -> u64 {
    let mut bench = Bench::new(node(2), 3);
    bench.config.defects = defects;
    (bench.state.settings.coarse, bench.state.settings.leases) = (true, true);
    let ballot = ballot(1, 1);
    bench.serve(ballot, &[]);
    bench.hear(1, CommitteeMessage::Confirm { ballot, attempt: 7, lease: true, chosen: Some(0) });
    let confirmed = bench.now.time;
    bench.now.time = confirmed + Duration::from_millis(came_after_ms);
    let grant = |attempt| CommitteeMessage::Grant { ballot, switch: 3, attempt, left_us: 100_000, chosen: 0, point: 5 };
    bench.hear(1, grant(6));
    let answers = bench.act(|acceptor, ctx, _| acceptor.may_answer(ctx, ballot, 3, 5));
    assert_eq!(answers, Answers::No, "it confirmed no such attempt");
    bench.hear(1, grant(7));
    let mut answers = 0;
    for ms in came_after_ms..came_after_ms + 300 {
        bench.now.time = confirmed + Duration::from_millis(ms);
        let asked = [(3, 5), (3, 6), (2, 5), (4, 5)];
        let [may, others @ ..] =
            asked.map(|(id, point)| bench.act(|acceptor, ctx, _| acceptor.may_answer(ctx, ballot, id, point)));
        assert!(!others.contains(&Answers::Yes), "neither beyond the point, nor for another switch");
        answers = if may == Answers::Yes { ms + 1 } else { answers };
    }
    answers
}

/// A grant counts from the confirmation, however late it comes, less the possible deviation of the clocks; then it is over.
#[test]
fn a_grant_counts_from_the_confirmation() {
    assert_eq!(answers_for(0, Defects::NONE), 99, "of 100 ms with 1 % of drift");
    assert_eq!(answers_for(60, Defects::NONE), 99);
    assert_eq!(answers_for(120, Defects::NONE), 0);
    assert!(answers_for(60, Defects::NONE.with(Defect::GrantFromArrival)) > 150);
}
