//! What peers tell of their earlier sessions, between nodes in memory.

use core::time::Duration;

use group::config::{Defect, Defects};
use group::history::History;
use policy::lifetimes::Lifetimes;

use crate::config::NodeConfig;
use crate::small_net::{Net, key};
use crate::views::member_views;

const HONEST: Option<History> = Some(History { failures: 0, lived_s: 600 });

/// Returns five nodes in one group, of which the last one tells this, as the first one sees them: peers live for 100 s on average.
fn five(last: Option<History>, defects: Defects) -> Net {
    let mut net = Net::with(5, |config| {
        let history = if config.me == key(4) { last } else { HONEST };
        NodeConfig { members_min: 1, members_max: 100, history, defects, ..config }
    });
    net.nodes[0].lives.assume(Lifetimes::Exponential { mean: Duration::from_secs(100) });
    net.run_for(Duration::from_secs(2));
    net
}

/// Returns the probability that the group loses its majority within the time of a change.
fn risk(net: &Net) -> f64 {
    let group = net.nodes[0].group().expect("it is in one");
    net.nodes[0].risk_of(group).expect("lifetimes are known").in_window
}

/// Returns for how long the last node is expected to live on.
fn lives_on(net: &Net) -> Duration {
    let group = net.nodes[0].group().expect("it is in one");
    let members = member_views(group, net.nodes[0].lives.model());
    members.into_iter().find(|member| member.node == net.nodes[4].id()).expect("it is a member").lifetime
}

/// Whoever often ended without warning endangers its group, and gets a smaller part of the range.
#[test]
fn failures_count_against_a_peer() {
    let [usual, often] = [HONEST, Some(History { failures: 40, lived_s: 200 })].map(|told| five(told, Defects::NONE));
    assert!(risk(&often) > 3.0 * risk(&usual), "{} and {}", risk(&often), risk(&usual));
    assert!(lives_on(&often) < lives_on(&usual) / 10);
    let status = often.nodes[0].status();
    let told = status.groups[0].members.iter().map(|member| member.history.map(|told| told.failures));
    assert!(told.eq([0, 0, 0, 0, 40].map(Some)));
}

/// A told life of a hundred years changes nothing.
#[test]
fn a_long_life_that_is_told_is_not_believed() {
    let lie = Some(History { failures: 0, lived_s: u32::MAX });
    let [usual, lies] = [HONEST, lie].map(|told| five(told, Defects::NONE));
    assert!((risk(&lies) / risk(&usual) - 1.0).abs() < 0.01, "{} and {}", risk(&lies), risk(&usual));
    assert_eq!(lives_on(&lies), lives_on(&usual));
    let believed = five(lie, Defects::NONE.with(Defect::HistoryBelieved));
    assert!(risk(&believed) < 0.9 * risk(&usual), "the mutant: {} and {}", risk(&believed), risk(&usual));
}

/// Until it has been seen to live for longer than a tenth of all.
#[test]
fn of_a_peer_without_a_history_the_worst_is_expected() {
    let [usual, mut unknown] = [HONEST, None].map(|told| five(told, Defects::NONE));
    assert!(risk(&unknown) > 3.0 * risk(&usual), "{} and {}", risk(&unknown), risk(&usual));
    let trusted = five(None, Defects::NONE.with(Defect::UnknownTrusted));
    assert!((risk(&trusted) / risk(&usual) - 1.0).abs() < 0.01, "the mutant");
    unknown.run_for(Duration::from_secs(10));
    assert!((risk(&unknown) / risk(&usual) - 1.0).abs() < 0.01, "{} and {}", risk(&unknown), risk(&usual));
}

/// The present session counts as well.
#[test]
fn the_present_session_is_added() {
    let net = five(Some(History { failures: 1, lived_s: u32::MAX }), Defects::NONE);
    assert_eq!(net.nodes[4].history(), Some(History { failures: 1, lived_s: u32::MAX }));
    let first = net.nodes[0].history().expect("told").lived_s;
    assert!((600..700).contains(&first) && u64::from(first) == 600 + net.now.time.0 / 1_000_000_000 - 1, "{first}");
}
