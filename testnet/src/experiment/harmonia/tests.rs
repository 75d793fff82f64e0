//! Small versions of the figures: their shapes, and that defects are found.

use std::time::Duration;

use group::config::{Defect, Defects};

use super::setting::{LoadModel, SwitchSetting};
use super::testbed::run;

/// Returns three replicas and few keys, many of them written, on a wire on which reads overtake the messages to members.
fn rough(defects: Defects) -> SwitchSetting {
    SwitchSetting {
        load: LoadModel::Closed { clients: 60 },
        key_count: 20,
        jitter: Duration::from_micros(400),
        lasts: Duration::from_millis(150),
        defects,
        ..SwitchSetting::of(3, true, 0.2)
    }
}

#[test]
fn reads_scale_with_the_replicas() {
    let lasts = Duration::from_millis(40);
    let [one, four] =
        [1, 4].map(|replicas| super::one(&SwitchSetting { lasts, ..SwitchSetting::of(replicas, replicas > 1, 0.0) }));
    assert!(four.ops_per_s() > 3.5 * one.ops_per_s(), "{four:?}\n{one:?}");
    let reads: Vec<u64> = four.machines.iter().map(|machine| machine.count(super::measured::Done::Read)).collect();
    assert!(reads.iter().all(|count| *count * 5 > reads.iter().sum()), "all answer: {reads:?}");
}

#[test]
fn one_seed_has_one_figure() {
    let setting = rough(Defects::NONE);
    let (first, second) = (run(&setting), run(&setting));
    assert!(first == second, "two runs of one seed differ");
    assert!(first != run(&SwitchSetting { seed: 2, ..setting }), "the seed has a part in it");
    assert_eq!(first.stale, 0);
    assert_eq!(first.left, 0, "members wait until they have heard what is executed");
}

/// Each defect that makes answers too old is found by the versions of the values read.
#[test]
fn what_is_left_out_is_seen() {
    for defect in [Defect::PointUnchecked, Defect::EarlyCompletion] {
        let stale = |defects| (1..=4).map(|seed| run(&SwitchSetting { seed, ..rough(defects) }).stale).sum::<u64>();
        assert_eq!(stale(Defects::NONE), 0);
        assert!(stale(Defects::NONE.with(defect)) > 0, "{defect:?}");
    }
}

/// The time of a grant, a second, and the time until the primary notices that no packet comes back.
#[test]
fn without_its_switch_a_group_goes_on_when_grants_are_over() {
    let is_set = super::failure::IS_SET[0];
    let measured = super::failure::measure(4, 2, is_set, 1);
    let times = super::failure::times(&measured, is_set);
    assert!(times.writes.is_some_and(|after| after <= Duration::from_millis(1300)), "{times:?}");
    assert!(times.reads_least > 0.0 && times.all.is_some(), "{times:?}");
    assert_eq!(measured.stale, 0);
}
