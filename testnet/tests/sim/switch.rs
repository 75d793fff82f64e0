//! Networks beside switches that spread their reads, with the real pipeline (`Harmonia`; hazards 54-58). Packets, tables and
//! switches may fail in any way. Reads stay linearizable, and each member that answers alone has a grant. Once all is calm,
//! reads are spread again and the dirty set is empty. Each rule that is left out is missed.

use std::ops::Range;
use std::time::Duration;

use group::config::Defect;
use node::Node;
use testnet::marks::Marks;
use testnet::rng::Rng;
use testnet::sim::fault::{Fault, FaultKind};
use testnet::sim::harness::{expect_well, for_each_seed, is_found, is_found_among, is_found_from, run};
use testnet::sim::{Latency, Load, Noise, Scenario, SwitchDefect, SwitchRules};

/// Properties of the clients' histories.
const HISTORY: [&str; 6] =
    ["I4 linearizable", "I5 durable", "I6 at most once", "I7 no dirty read", "I8 settled", "I14 deletes stay deleted"];

/// Property that members show.
const GRANTED: [&str; 1] = ["I13 granted reads"];

/// Marks that a batch of runs must reach, or it proves nothing.
const MARKS: [&str; 8] = [
    "switch: a fast read was answered",
    "switch: a packet was lost",
    "switch: a write was dropped for want of a slot",
    "switch: no room for a partition",
    "switch: offload rested during a reconfiguration",
    "switch: restarted while dirty",
    "switch: two alive",
    "switch: reads are spread again, and the dirty set is empty",
];

#[test]
fn reads_are_spread_whatever_becomes_of_switches() {
    let marks = std::cell::RefCell::new(Marks::default());
    let runs = std::cell::Cell::new(0);
    for_each_seed("reads_are_spread_whatever_becomes_of_switches", 40, |seed| {
        marks.borrow_mut().merge(&expect_well::<Node>(&Scenario::switched(seed)).marks);
        runs.set(runs.get() + 1);
    });
    let marks = marks.into_inner();
    println!("{marks}");
    if runs.get() >= 40 {
        MARKS.iter().for_each(|mark| assert!(marks.count(mark) > 0, "{mark}: never"));
    }
}

/// A member is removed while it is down. Its group ends, and the other members move to a group elsewhere on the ring before the
/// member returns. It waited for ever, as none of them could tell it the fate of its group.
#[test]
fn a_member_returns_when_its_group_and_its_fellows_are_elsewhere() {
    expect_well::<Node>(&Scenario::switched(233_461_851_568_887));
}

#[test]
fn a_run_with_switches_repeats() {
    for seed in [0, 5, 8] {
        let scenario = Scenario::switched(seed);
        assert_eq!(run::<Node>(&scenario, false).hash, run::<Node>(&scenario, false).hash);
    }
}

/// Many clients read and write a few keys beside a switch that loses, doubles and delays writes and completions. In some runs
/// the switch has few slots, or forgets everything.
fn busy(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, "busy");
    let load = Load {
        clients: 10,
        think: (Duration::from_micros(50), Duration::from_millis(3)),
        hot_keys: rng.between(1, 2),
        cold_keys: 2,
        families: [3, 0, 2, 0, 0, 0],
        reads: 600,
        relaxed: 0,
        once: 0,
        bursts: 0,
        operations_max: 4_000,
        ..Load::default()
    };
    let quiet = Noise::default();
    let writes = Noise { loss: 150, duplication: 100, reordering: 300 };
    let completions = Noise { loss: 300, duplication: 100, reordering: 300 };
    let rules = SwitchRules {
        stages: 1,
        slots: *rng.pick(&[1, 64]),
        objects: Some(*rng.pick(&[3, 23])),
        late: Duration::from_millis(*rng.pick(&[4, 30])),
        noise: [writes, completions, quiet, quiet, quiet],
        look_every: Duration::from_millis(10),
        sets_after: Duration::from_millis(1),
        ..SwitchRules::calm()
    };
    let mut scenario = Scenario {
        hosts: rng.between(3, 5) as usize,
        latency: Latency::Uniform(Duration::from_micros(300), Duration::from_millis(*rng.pick(&[1, 4]))),
        leases: true,
        coarse: true,
        load,
        switch: Some(rules),
        fault_time: Duration::from_secs(8),
        calm_time: Duration::from_millis(100),
        ..Scenario::calm(seed)
    };
    if rng.per_mille(500) {
        let restart = |n: u64| Duration::from_millis(2_500 + 90 * n);
        let kind = FaultKind::SwitchRestart { other: false };
        scenario.faults = (0..60).map(|n| Fault { at: restart(n), kind, lasts: Duration::ZERO }).collect();
    }
    scenario
}

/// Completions overtake each other, and members lag behind their primaries again and again.
fn lagging(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed, "lagging");
    let mut scenario = busy(seed);
    scenario.hosts = 5;
    scenario.latency = Latency::Uniform(Duration::from_micros(100), Duration::from_millis(*rng.pick(&[2, 5])));
    let load = &mut scenario.load;
    (load.hot_keys, load.cold_keys, load.reads, load.operations_max) = (1, 3, 700, 8_000);
    let rules = scenario.switch.as_mut().expect("there is one");
    rules.shares_wires = false;
    (rules.slots, rules.objects) = (*rng.pick(&[8, 16]), None);
    rules.late = Duration::from_millis(*rng.pick(&[2, 6, 20]));
    rules.noise = [Noise::default(); 5];
    rules.noise[1].reordering = 800;
    // A primary does without its switch now and then, meanwhile.
    rules.noise[0].loss = 500;
    let machine = |rng: &mut Rng| rng.below(scenario.hosts as u64) as usize;
    let clogs = (0..90).map(|n| Fault {
        at: Duration::from_millis(2_500 + 60 * n),
        kind: FaultKind::Clog(machine(&mut rng), machine(&mut rng)),
        lasts: Duration::from_millis(rng.between(5, 50)),
    });
    scenario.faults = clogs.collect();
    scenario
}

/// Like [`is_found`], for defects of the switch.
fn is_found_in_switch(
    defect: SwitchDefect,
    properties: &[&str],
    seeds: Range<u64>,
    scenario: impl Fn(u64) -> Scenario,
) {
    let break_it = |sound: &Scenario| {
        let rules = SwitchRules { defect: Some(defect), ..sound.switch.clone().expect("there is one") };
        Scenario { switch: Some(rules), ..sound.clone() }
    };
    is_found_among(defect, properties, seeds, scenario, break_it);
}

/// Hazard 54: the point on a read is not compared with the writes that a member has executed.
#[test]
fn point_unchecked() {
    is_found(Defect::PointUnchecked, &HISTORY, 60, busy);
}

/// Hazard 55: a primary goes on without its switch, or under another id, while members may answer.
#[test]
fn grants_forgotten() {
    is_found(Defect::GrantsForgotten, &GRANTED, 20, busy);
}

/// Hazard 55: a switch that has forgotten everything goes on numbering under the same id. Mostly the primary prevents harm,
/// because it sees a number twice, or below the point. So the test looks at the numbers themselves.
#[test]
fn old_id() {
    is_found_in_switch(SwitchDefect::OldId, &["a number is given once"], 0..40, busy);
}

/// Hazard 56: a write that cannot be tracked goes on.
#[test]
fn untracked() {
    is_found_in_switch(SwitchDefect::Untracked, &HISTORY, 0..60, busy);
}

/// Hazard 56: any completion clears the whole dirty set.
#[test]
fn cleared() {
    is_found_in_switch(SwitchDefect::Cleared, &HISTORY, 0..60, busy);
}

/// Hazard 57: a primary takes a number that the point has passed.
#[test]
fn void_number_taken() {
    is_found(Defect::VoidNumberTaken, &HISTORY, 100, busy);
}

/// Hazard 57: a write is reported as complete once it is numbered.
#[test]
fn early_completion() {
    is_found(Defect::EarlyCompletion, &HISTORY, 20, busy);
}

/// Hazard 57: a completion that comes late lowers the point. Too rare for each run of the tests: none of the seeds 4,072 to
/// 4,600 shows it, nor of the first 2,000. The model of a switch finds it each time (`switch/tests/model`, S4).
#[test]
#[ignore = "takes an hour: run it by name"]
fn point_lowered() {
    is_found_in_switch(SwitchDefect::PointLowered, &HISTORY, 0..20_000, lagging);
}

/// Hazard 58: a member answers without a grant, or under one of another epoch or for another switch.
#[test]
fn grant_unchecked() {
    is_found(Defect::GrantUnchecked, &GRANTED, 20, busy);
}

/// Hazard 58: a member counts its grant from its arrival, which may be late.
#[test]
fn grant_from_arrival() {
    is_found_from(35, Defect::GrantFromArrival, &GRANTED, 200, lagging);
}

/// Most writes are lost on their way through the switch, clients wait for no longer than until it is tried again, and grants
/// are long.
fn impatient(seed: u64) -> Scenario {
    let mut scenario = busy(seed);
    scenario.timing.lease = Duration::from_secs(3);
    scenario.load.patience = Duration::from_millis(300);
    (scenario.load.hot_keys, scenario.load.cold_keys) = (1, 1);
    scenario.load.think = (Duration::from_millis(1), Duration::from_millis(60));
    let rules = scenario.switch.as_mut().expect("there is one");
    (rules.slots, rules.objects) = (64, None);
    rules.noise = [Noise::default(); 5];
    rules.noise[0].loss = 600;
    scenario
}

/// A write that the switch has not numbered takes effect when the group does without the switch. By then its client was told
/// that the outcome is uncertain, and other clients have read, from a member, that the write was not done.
#[test]
fn late_writes() {
    is_found_from(214, Defect::LateWrites, &["I8 settled"], 400, impatient);
}
