//! Session histories that peers report, between nodes in memory.

use core::time::Duration;

use group::config::{Defect, Defects};
use group::control::history::History;
use policy::lifetimes::Lifetimes;

use crate::config::NodeConfig;
use crate::policies::views::member_views;
use crate::tests::small_net::{Net, key};

const HONEST: Option<History> = Some(History { failures: 0, lived_s: 600 });

/// Returns five nodes in one group, `age_s` seconds after they have come together. The last one reports `last`. The first one believes that
/// peers live for 100 s on average.
fn five(last: Option<History>, defects: Defects, age_s: u64) -> Net {
    let mut net = Net::with(5, |config| {
        let history = if config.me == key(4) { last } else { HONEST };
        NodeConfig { members_min: 1, members_max: 100, history, defects, ..config }
    });
    net.nodes[0].lives.assume(Lifetimes::Exponential { mean: Duration::from_secs(100) });
    net.run_for(Duration::from_secs(age_s));
    net
}

/// Returns the probability that the group loses its majority within the time of a change.
fn risk(net: &Net) -> f64 {
    let group = net.nodes[0].group().expect("it is in one");
    net.nodes[0].lives.risk_of(&net.nodes[0].config, group).expect("lifetimes are known").in_window
}

/// Returns the time that the last node is expected to live on.
fn lives_on(net: &Net) -> Duration {
    let group = net.nodes[0].group().expect("it is in one");
    let members = member_views(group, net.nodes[0].lives.model());
    members.into_iter().find(|member| member.node == net.nodes[4].id()).expect("it is a member").lifetime
}

/// A peer that often failed endangers its group, and is expected to live on for less time.
#[test]
fn failures_count_against_a_peer() {
    let often = Some(History { failures: 60, lived_s: 200 });
    let [usual, often] = [HONEST, often].map(|told| five(told, Defects::NONE, 15));
    assert!(risk(&often) > 3.0 * risk(&usual), "{} and {}", risk(&often), risk(&usual));
    assert!(lives_on(&often) < lives_on(&usual) / 10);
    let status = often.nodes[0].status();
    let told = status.groups[0].members.iter().map(|member| member.history.map(|told| told.failures));
    assert!(told.eq([0, 0, 0, 0, 60].map(Some)));
}

/// A reported life of a hundred years changes nothing.
#[test]
fn a_long_life_that_is_told_is_not_believed() {
    let lie = Some(History { failures: 0, lived_s: u32::MAX });
    let [usual, lies] = [HONEST, lie].map(|told| five(told, Defects::NONE, 15));
    assert!((risk(&lies) / risk(&usual) - 1.0).abs() < 0.01, "{} and {}", risk(&lies), risk(&usual));
    assert_eq!(lives_on(&lies), lives_on(&usual));
    let believed = five(lie, Defects::NONE.with(Defect::HistoryBelieved), 15);
    assert!(risk(&believed) < 0.9 * risk(&usual), "the mutant: {} and {}", risk(&believed), risk(&usual));
}

/// A peer is a stranger until it has been a member for longer than the shortest-lived tenth of peers lives, independent of its reports.
#[test]
fn of_strangers_the_worst_is_expected() {
    let [none, told, old] = [(None, 2), (HONEST, 2), (None, 15)].map(|(told, age_s)| five(told, Defects::NONE, age_s));
    assert!((risk(&none) / risk(&told) - 1.0).abs() < 0.01, "{} and {}", risk(&none), risk(&told));
    assert!(risk(&none) > 10.0 * risk(&old), "{} and {}", risk(&none), risk(&old));
    let trusted = five(None, Defects::NONE.with(Defect::UnknownTrusted), 2);
    assert!((risk(&trusted) / risk(&old) - 1.0).abs() < 0.05, "the mutant: {} and {}", risk(&trusted), risk(&old));
}

/// The present session counts as well.
#[test]
fn the_present_session_is_added() {
    let net = five(Some(History { failures: 1, lived_s: u32::MAX }), Defects::NONE, 2);
    let history = |index: usize| net.nodes[index].lives.history(&net.nodes[index].config, net.now);
    assert_eq!(history(4), Some(History { failures: 1, lived_s: u32::MAX }));
    let first = history(0).expect("told").lived_s;
    assert!((600..700).contains(&first) && u64::from(first) == 600 + net.now.time.0 / 1_000_000_000 - 1, "{first}");
}
