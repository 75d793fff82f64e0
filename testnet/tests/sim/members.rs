//! Members come and go: each rule about them is missed when it is left out (hazards 14, 23-27). Few seeds meet the rules about
//! the end of an epoch. Those are tested in `models`, which goes through all schedules (hazards 20-22).

use std::cell::Cell;
use std::time::Duration;

use group::config::Defect;
use node::{Durability, Node, Timing};
use testnet::rng::Rng;
use testnet::sim::Scenario;
use testnet::sim::fault::{Fault, FaultKind, Target};
use testnet::sim::harness::{expect_well, for_each_seed, is_found, is_found_from};

/// Mark: a new life began with the records of the one before.
const HELD: &str = "node: entered anew with what it held before";

/// Properties of clients, replicas and agreement, any of which may break.
const ANY: [&str; 16] = [
    "I1 one value",
    "I2 one configuration",
    "I4 linearizable",
    "I5 durable",
    "I6 at most once",
    "I7 no dirty read",
    "I8 settled",
    "I12 only up",
    "I14 deleted stays deleted",
    "I15 bounded",
    "I16 live",
    "PTO1 validity",
    "PTO2 integrity",
    "PTO5 total order",
    "one answer to each request",
    "panic",
];

/// Hazard 14.
#[test]
fn purge_early() {
    is_found_from(38, Defect::PurgeEarly, &ANY, 200, |seed| {
        let mut scenario = Scenario::churn(seed);
        scenario.timing.horizon = Duration::from_millis(100);
        scenario.timing.purge_every = Duration::from_millis(50);
        scenario.load.once = 0;
        scenario
    });
}

/// Hazard 23.
#[test]
fn empty_members() {
    is_found_from(33, Defect::EmptyMembers, &ANY, 200, Scenario::churn);
}

/// Hazard 24.
#[test]
fn back_to_back() {
    is_found_from(362, Defect::BackToBack, &ANY, 400, Scenario::churn);
}

/// Hazard 25.
#[test]
fn late_chunk() {
    is_found_from(36, Defect::LateChunk, &ANY, 200, Scenario::churn);
}

/// Hazard 26.
#[test]
fn without_tail() {
    is_found(Defect::WithoutTail, &ANY, 200, |seed| {
        let mut scenario = Scenario::churn(seed);
        let load = &mut scenario.load;
        (load.once, load.families, load.patience) = (1_000, [1, 3, 3, 1, 0, 0], Duration::from_millis(400));
        scenario.timing.horizon = Timing::default().horizon;
        scenario
    });
}

/// Hazard 27.
#[test]
fn no_fence() {
    is_found_from(412, Defect::NoFence, &ANY, 400, Scenario::churn);
}

/// Returns a run in which members are away for longer than the group waits for them. Keys are deleted all the time, and soon no
/// member needs their tombstones.
fn put_out(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, "put out");
    let mut scenario = Scenario::churn(seed);
    scenario.durability = Durability::Sync;
    scenario.hosts = *rng.pick(&[4, 5, 6]);
    scenario.timing.heartbeat = Duration::from_millis(100);
    scenario.timing.exclude_after = Duration::from_millis(500);
    scenario.timing.horizon = Duration::from_millis(100);
    scenario.timing.purge_every = Duration::from_millis(*rng.pick(&[50, 200]));
    scenario.load.once = 0;
    scenario.fault_time = Duration::from_secs(15);
    let mut at = Duration::from_millis(2_500);
    scenario.faults.clear();
    while at < scenario.fault_time {
        let target = Target::Host(rng.below(scenario.hosts as u64) as usize);
        let kinds = [
            FaultKind::Suspend(target),
            FaultKind::Pause(target),
            FaultKind::Isolate(target),
            FaultKind::Stop(target),
            FaultKind::Crash(target),
        ];
        let lasts = Duration::from_millis(rng.between(600, 2_500));
        scenario.faults.push(Fault { at, kind: *rng.pick(&kinds), lasts });
        at += lasts + Duration::from_millis(rng.between(100, 1_500));
    }
    scenario
}

/// A member that was removed comes back as another member, with its old records: keys that were deleted meanwhile stay deleted.
#[test]
fn who_was_put_out_catches_up_from_what_it_holds() {
    let marks = Cell::new(0);
    for_each_seed("who_was_put_out_catches_up_from_what_it_holds", 12, |seed| {
        marks.set(marks.get() + expect_well::<Node>(&put_out(seed)).marks.count(HELD));
    });
    assert!(marks.get() > 0 || std::env::var_os("SCATTER_SEED").is_some(), "nobody came back with something");
}

/// Hazard 14: records of a former life whose tombstones were purged meanwhile.
#[test]
fn stale_lives() {
    is_found(Defect::StaleCopies, &ANY, 200, put_out);
}

/// The log moved on faster than a restarted primary could tell that it did not serve.
#[test]
fn a_primary_that_lost_its_term_is_noticed() {
    expect_well::<Node>(&Scenario::churn(169_783_912_865_058));
}

/// Of two members one left, and another came in its place. The newcomer lost all data before any node knew that the change was
/// chosen. No group survives such a loss, so no fault may cause it.
#[test]
fn what_is_on_its_way_to_be_a_member_of_two_is_not_lost() {
    let report = expect_well::<Node>(&Scenario::churn(205_933_225_421_308));
    assert!(report.marks.count("fault: left out, the group could not survive it") > 0);
}

/// A newcomer that was to replace a member of a group of two had just lost all data, which no node knew yet.
#[test]
fn who_is_about_to_be_a_member_of_two_is_not_lost() {
    expect_well::<Node>(&Scenario::churn(204_784_819_613_622));
}
