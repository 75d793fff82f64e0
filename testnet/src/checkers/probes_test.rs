//! Each property is broken once, and found to be.

use group::op::Version;
use group::time::Time;
use overlay::{Epoch, Incarnation, Key, KeyRange, NodeId, PeerKey, Point};

use super::*;
use crate::checkers::Ballot;

fn node(number: u8) -> NodeId {
    NodeId { peer: PeerKey([number; 32]), incarnation: Incarnation(1) }
}

fn ballot(term: u64, number: u8) -> Ballot {
    Ballot { epoch: Epoch(1), term, node: node(number) }
}

fn half(low: bool) -> KeyRange {
    let middle = Point(1 << 127);
    if low { KeyRange::new(Point(0), middle) } else { KeyRange::new(middle, Point(0)) }
}

/// What two nodes show, one after another: the property that is found broken.
fn broken(shown: &[(usize, Observation)]) -> Option<&'static str> {
    let mut probes = Probes::new(2);
    let clocks = Clocks::new(Time(0), Time(0), 0);
    for host in 0..2 {
        let member =
            Observation::Member { node: node(host as u8), group: overlay::GroupId(1), epoch: Epoch(1), whole: true };
        assert_eq!(probes.note(&Seen { host, at: Time(0), clocks: &clocks }, member), Ok(()));
    }
    let mut note = |(host, observation): &(usize, Observation)| {
        probes.note(&Seen { host: *host, at: Time(10), clocks: &clocks }, observation.clone()).err()
    };
    shown.iter().find_map(&mut note).map(|(property, _)| property)
}

fn chosen(timestamp: u64, number: u64, value_hash: u64) -> Observation {
    let version = Version { generation: 1, timestamp };
    Observation::Chosen { key: Key::new(b"k").unwrap(), ballot: ballot(1, 1), number, version, value_hash }
}

#[test]
fn one_value_is_chosen_for_a_version() {
    assert_eq!(broken(&[(0, chosen(1, 1, 7)), (1, chosen(1, 1, 7)), (0, chosen(2, 2, 8))]), None);
    assert_eq!(broken(&[(0, chosen(1, 1, 7)), (1, chosen(1, 2, 8))]), Some("I1 one value"));
}

#[test]
fn a_ballot_and_a_number_name_one_value() {
    let accepted = |term, value_hash| {
        let version = Version { generation: 1, timestamp: 3 };
        Observation::Accepted { key: Key::new(b"k").unwrap(), ballot: ballot(term, 1), number: 4, version, value_hash }
    };
    assert_eq!(broken(&[(0, accepted(1, 7)), (1, accepted(2, 8))]), None, "not both are chosen");
    assert_eq!(broken(&[(0, accepted(1, 7)), (1, accepted(1, 8))]), Some("I1 one value"));
    assert_eq!(broken(&[(0, accepted(2, 7)), (0, accepted(1, 6))]), Some("I12 only up"));
}

#[test]
fn a_slot_has_one_entry() {
    let slot = |hash| Observation::ControlChosen { epoch: Epoch(1), slot: 5, hash };
    assert_eq!(broken(&[(0, slot(1)), (1, slot(1))]), None);
    assert_eq!(broken(&[(0, slot(1)), (1, slot(2))]), Some("I1 one value"));
}

#[test]
fn an_epoch_has_one_configuration() {
    let config = |epoch, members: &[u8]| Observation::Config {
        group: overlay::GroupId(1),
        epoch: Epoch(epoch),
        members: members.iter().map(|number| node(*number)).collect(),
    };
    assert_eq!(broken(&[(0, config(1, &[0, 1])), (1, config(2, &[0, 1, 2]))]), None);
    assert_eq!(broken(&[(0, config(2, &[0, 1])), (1, config(2, &[0, 1, 2]))]), Some("I2 one configuration"));
}

#[test]
fn a_term_has_one_primary_at_each_point() {
    let serving = |range, number| Observation::Serving { range, ballot: ballot(4, number) };
    assert_eq!(broken(&[(0, serving(half(true), 0)), (1, serving(half(false), 1))]), None);
    assert_eq!(broken(&[(0, serving(half(true), 0)), (1, serving(KeyRange::FULL, 1))]), Some("I3 one owner"));
}

#[test]
fn promises_only_go_up() {
    let promised = |range, term| Observation::Promised { range, ballot: ballot(term, 0) };
    assert_eq!(broken(&[(0, promised(KeyRange::FULL, 4)), (0, promised(half(true), 5))]), None);
    assert_eq!(broken(&[(0, promised(half(true), 5)), (0, promised(KeyRange::FULL, 4))]), Some("I12 only up"));
    assert_eq!(broken(&[(0, promised(half(true), 5)), (1, promised(half(true), 4))]), None, "another node's");
    let control =
        |round| Observation::ControlPromised { group: overlay::GroupId(1), epoch: Epoch(1), round, node: node(1) };
    assert_eq!(broken(&[(0, control(2)), (0, control(1))]), Some("I12 only up"));
}

#[test]
fn leases_exclude_each_other() {
    let held = |range, until| Observation::LeaseHeld { range, ballot: ballot(4, 0), until: Time(until) };
    assert_eq!(broken(&[(0, held(half(true), 20)), (1, held(half(false), 20))]), None);
    assert_eq!(broken(&[(0, held(half(true), 9)), (1, held(half(true), 20))]), None, "the first is over");
    assert_eq!(broken(&[(0, held(half(true), 20)), (0, held(half(true), 5)), (1, held(half(true), 20))]), None);
    assert_eq!(broken(&[(0, held(half(true), 20)), (1, held(half(true), 30))]), Some("I13 leases exclude"));
}

#[test]
fn a_coarse_group_chooses_in_order() {
    assert_eq!(broken(&[(0, Observation::Overtaken { gaps: 0 })]), None);
    assert_eq!(broken(&[(0, Observation::Overtaken { gaps: 1 })]), Some("in order"));
}

#[test]
fn whatever_grows_has_a_limit() {
    let queue = |size| Observation::Queue { name: "waiting", size, limit: 5 };
    assert_eq!(broken(&[(0, queue(5))]), None);
    assert_eq!(broken(&[(0, queue(6))]), Some("I15 bounded"));
}
