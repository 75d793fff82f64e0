//! Violates each property once, and tests that the checkers find it.

use group::ballot::LogSlot;
use group::op::Version;
use group::transaction::TransactionId;
use overlay::time::Time;
use overlay::{Epoch, GroupId, Incarnation, Key, KeyRange, NodeId, PeerKey, Point};

use super::*;
use crate::checkers::Ballot;
use crate::checkers::invariants::{Place, TransactionStep};

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

/// Returns the property that is violated when two nodes show these observations, one after another.
fn broken(shown: &[(usize, Observation)]) -> Option<&'static str> {
    let mut probes = Probes::new(2);
    let clocks = Clocks::new(Time(0), Time(0), 0);
    for host in 0..2 {
        let member = Observation::Member { node: node(host as u8), group: overlay::GroupId(1), epoch: Epoch(1) };
        assert_eq!(probes.note(&Vantage { host, at: Time(0), clocks: &clocks }, member), Ok(()));
    }
    let mut note = |(host, observation): &(usize, Observation)| {
        probes.note(&Vantage { host: *host, at: Time(10), clocks: &clocks }, observation.clone()).err()
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
fn a_log_comes_to_one_state_with_each_slot() {
    let slot =
        |group, hash| Observation::ControlChosen { group: overlay::GroupId(group), born: Epoch(1), slot: 5, hash };
    assert_eq!(broken(&[(0, slot(1, 1)), (1, slot(1, 1)), (1, slot(2, 2))]), None);
    assert_eq!(broken(&[(0, slot(1, 1)), (1, slot(1, 2))]), Some("I1 one value"));
}

#[test]
fn a_transaction_has_one_outcome() {
    let id = TransactionId { group: GroupId(1), epoch: Epoch(1), slot: LogSlot(4) };
    let says = |group, step| (0, Observation::Transaction { group: GroupId(group), id, step });
    let commit = || TransactionStep::Committed { asked: vec![GroupId(2), GroupId(3)] };
    let agreed = [says(2, TransactionStep::Agreed), says(3, TransactionStep::Agreed)];
    let and = |steps: &[(usize, Observation)]| broken(&[&agreed, steps].concat());
    assert_eq!(and(&[says(1, commit()), says(2, commit())]), None);
    assert_eq!(and(&[says(1, TransactionStep::Aborted), says(3, TransactionStep::Aborted)]), None);
    assert_eq!(and(&[says(1, commit()), says(2, TransactionStep::Aborted)]), Some("I9 one outcome"));
    assert_eq!(and(&[says(2, TransactionStep::Refused)]), Some("I9 one outcome"), "its word was given");
    assert_eq!(broken(&[says(2, TransactionStep::Refused), says(2, TransactionStep::Agreed)]), Some("I9 one outcome"));
    assert_eq!(
        broken(&[says(2, TransactionStep::Agreed), says(1, commit())]),
        Some("I9 one outcome"),
        "one did not agree"
    );
}

#[test]
fn a_boundary_is_locked_for_one() {
    let lock = |at, slot| (Point(at), TransactionId { group: GroupId(1), epoch: Epoch(1), slot: LogSlot(slot) });
    assert_eq!(broken(&[(0, Observation::Locks(vec![lock(1, 4), lock(2, 4), lock(3, 5)]))]), None);
    assert_eq!(broken(&[(0, Observation::Locks(vec![lock(1, 4), lock(1, 5)]))]), Some("I10 one lock"));
}

fn place(group: u128, born: u64, range: KeyRange, other: u128) -> Place {
    Place {
        group: GroupId(group),
        born: Epoch(born),
        applied: LogSlot(10 * born),
        range,
        ended: false,
        open: false,
        before: GroupId(other),
        behind: GroupId(other),
        retired: Vec::new(),
        lost: Vec::new(),
        at_stake: Vec::new(),
    }
}

#[test]
fn a_place_belongs_to_one_group() {
    let show = |places: &[Place]| {
        broken(&places.iter().map(|place| (0, Observation::Place(place.clone()))).collect::<Vec<_>>())
    };
    let parent = place(1, 1, KeyRange::FULL, 1);
    let ended = Place { applied: LogSlot(11), ended: true, ..parent.clone() };
    let halves = [place(1, 2, half(true), 5), place(5, 2, half(false), 1)];
    let all = |first: &Place| [&[parent.clone(), first.clone()], &halves[..]].concat();
    assert_eq!(show(&all(&ended)), None);
    assert_eq!(show(&[&all(&ended)[..], std::slice::from_ref(&parent)].concat()), None, "somebody who lags behind");
    assert_eq!(show(&[parent.clone(), halves[1].clone()]), Some("I3 one owner"));
    let heir = Place { retired: vec![(GroupId(1), Epoch(1))], ..halves[1].clone() };
    assert_eq!(show(&[parent, heir]), None, "the end was seen by who is its heir");
}

/// A member that comes back with a lost group may take the group for alive; no other group may own the same range.
#[test]
fn what_is_lost_owns_nothing() {
    let show = |places: &[Place]| {
        broken(&places.iter().map(|place| (0, Observation::Place(place.clone()))).collect::<Vec<_>>())
    };
    let (low, high) = (place(1, 2, half(true), 5), place(5, 2, half(false), 1));
    let (both, later) = (place(1, 9, KeyRange::FULL, 1), Place { applied: LogSlot(30), ..high.clone() });
    let repaired = Place { lost: vec![GroupId(5)], ..both.clone() };
    assert_eq!(show(&[low.clone(), high.clone(), both]), Some("I3 one owner"));
    assert_eq!(show(&[low, high, repaired.clone(), later]), None);
    assert_eq!(show(&[repaired, place(7, 9, half(false), 1)]), Some("I3 one owner"));
}

#[test]
fn neighbours_name_each_other() {
    let show = |places: &[Place]| {
        broken(&places.iter().map(|place| (0, Observation::Place(place.clone()))).collect::<Vec<_>>())
    };
    let (low, high) = (place(1, 2, half(true), 5), place(5, 2, half(false), 1));
    assert_eq!(show(&[low.clone(), high.clone()]), None);
    let stale = Place { before: GroupId(3), ..high.clone() };
    assert_eq!(show(&[low.clone(), stale.clone()]), Some("I11 neighbours agree"));
    assert_eq!(show(&[low.clone(), Place { open: true, ..stale }]), None, "it will learn of it");
    let ahead = Place { behind: GroupId(3), ..low };
    assert_eq!(show(&[high, ahead]), Some("I11 neighbours agree"));
}

#[test]
fn a_message_is_delivered_once() {
    let key = || Key::new(b"k").unwrap();
    let delivered = |operation, answer| (0, Observation::Delivered { key: key(), operation, answer });
    assert_eq!(broken(&[delivered(1, 5), delivered(1, 5), delivered(2, 6)]), None);
    assert_eq!(broken(&[delivered(1, 5), delivered(1, 6)]), Some("PTO2 integrity"));
}

#[test]
fn a_new_partition_delivers_last() {
    let serving = |epoch, term| {
        let ballot = Ballot { epoch: Epoch(epoch), ..ballot(term, 0) };
        (0, Observation::Serving { range: half(true), ballot })
    };
    assert_eq!(broken(&[serving(1, 4), serving(1, 5), serving(2, 6), serving(1, 5)]), None);
    assert_eq!(broken(&[serving(1, 4), serving(2, 6), serving(1, 7)]), Some("PTO4 last partition"));
    assert_eq!(broken(&[serving(1, 7), serving(2, 6)]), Some("PTO4 last partition"));
}

#[test]
fn messages_for_a_key_are_delivered_in_one_order() {
    assert_eq!(broken(&[(0, chosen(1, 1, 7)), (0, chosen(3, 4, 9)), (0, chosen(2, 3, 8))]), None);
    assert_eq!(broken(&[(0, chosen(1, 1, 7)), (1, chosen(1, 5, 7)), (0, chosen(2, 6, 8))]), None, "proposed again");
    assert_eq!(broken(&[(0, chosen(1, 2, 7)), (0, chosen(2, 1, 8))]), Some("PTO5 total order"));
    assert_eq!(broken(&[(0, chosen(2, 3, 8)), (0, chosen(1, 4, 7))]), Some("PTO5 total order"));
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
fn who_answers_alone_was_granted_that() {
    let granted = |switch, until| (0, Observation::Granted { ballot: ballot(4, 0), switch, until: Time(until) });
    let key = Key::new(b"k").unwrap();
    let alone = |term, switch| (1, Observation::Alone { key: key.clone(), ballot: ballot(term, 0), switch });
    let serves = |term| (1, Observation::Serving { range: KeyRange::FULL, ballot: ballot(term, 1) });
    const BROKEN: Option<&str> = Some("I13 granted reads");
    assert_eq!(broken(&[granted(Some(7), 20), alone(4, 7)]), None);
    assert_eq!(broken(&[granted(Some(7), 9), alone(4, 7)]), BROKEN, "it is over");
    assert_eq!(broken(&[granted(Some(7), 20), alone(4, 6)]), BROKEN, "another switch");
    assert_eq!(broken(&[granted(Some(7), 20), alone(3, 7)]), BROKEN, "another term");
    assert_eq!(broken(&[granted(None, 20), alone(4, 7)]), BROKEN, "its primary goes on without a switch");
    assert_eq!(broken(&[granted(Some(7), 20), serves(5), alone(4, 7)]), BROKEN, "another primary serves");
    assert_eq!(broken(&[granted(Some(7), 20), serves(3), alone(4, 7)]), None, "an older one, which does not know yet");
}

#[test]
fn a_coarse_group_chooses_in_order() {
    assert_eq!(broken(&[(0, Observation::Overtaken { gaps: 0 })]), None);
    assert_eq!(broken(&[(0, Observation::Overtaken { gaps: 1 })]), Some("PTO3 partition order"));
}

#[test]
fn whatever_grows_has_a_limit() {
    let queue = |size| Observation::Queue { name: "waiting", size, limit: 5 };
    assert_eq!(broken(&[(0, queue(5))]), None);
    assert_eq!(broken(&[(0, queue(6))]), Some("I15 bounded"));
}
