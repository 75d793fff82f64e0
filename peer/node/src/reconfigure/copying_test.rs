//! Copies of data that a node makes before a transaction, between nodes in memory.

use alloc::format;
use alloc::vec;

use bytes::Bytes;
use group::Group;
use group::config::Defects;
use group::op::{Condition, Expiry, Op, ReadMode};
use overlay::Point;

use super::*;
use crate::admin::{AdminOutcome, AdminRequest};
use crate::api::{ConnectionId, Event, Input, Request, RequestId};
use crate::config::{NodeConfig, Timing};
use crate::tests::small_net::{Net, key};

const KEYS: usize = 600;

/// Returns two groups of three with some keys, whose tombstones are soon purged.
fn two_groups(defects: Defects) -> Net {
    let second = Duration::from_secs(1);
    let mut net = Net::with(6, |config| NodeConfig {
        timing: Timing { purge_every: second, horizon: second, ..config.timing.clone() },
        members_min: 1,
        defects,
        ..config
    });
    let id = net.nodes[0].group().unwrap().state().id;
    let split = AdminRequest::Split { at: Some(Point(1 << 127)), first: (0..3).map(key).collect() };
    assert!(matches!(net.request(0, id, split), AdminOutcome::Done(_)));
    settle(&mut net);
    for n in 0..KEYS {
        let value = Bytes::from(format!("value {n}"));
        let (condition, expiry) = (Condition::Always, Expiry::Clear);
        ask(&mut net, &name(n), Op::Set { value, condition, expiry, get: false });
    }
    net.run_for(second);
    net
}

fn name(n: usize) -> Key {
    Key::new(format!("key {n}").as_bytes()).unwrap()
}

fn ask(net: &mut Net, key: &Key, op: Op) {
    let (id, connection, key) = (RequestId(1), ConnectionId(1), key.clone());
    let request =
        Request { id, connection, key, op, mode: ReadMode::Linearizable, patience: Duration::from_secs(5), once: None };
    net.nodes[0].handle(net.now, Input::Routecast(request));
    net.settle();
}

fn settle(net: &mut Net) {
    net.run_until(|net| {
        net.nodes.iter().all(|node| {
            let calm = |group: &Group| group.state().is_settled() && group.state().transactions.decided().is_empty();
            node.is_settled() && node.groups().count() == 1 && node.groups().all(calm)
        })
    });
}

/// Returns the number of keys of which this node holds a value.
fn held(net: &Net, index: usize) -> usize {
    let group = net.nodes[index].group().unwrap();
    group.table().iter().filter(|(_, record)| record.value.is_some()).count()
}

fn copied(net: &Net, index: usize) -> Vec<u64> {
    net.nodes[index].reconfigure.preparation.copies.all.iter().map(|copying| copying.records).collect()
}

fn leader(net: &Net, of: core::ops::Range<usize>) -> usize {
    of.into_iter().find(|index| net.nodes[*index].group().is_some_and(|group| group.log().leads())).expect("one leads")
}

/// Has the leader of the first group order copies of the second one, as before a merge.
fn order(net: &mut Net) {
    let (leads, now) = (leader(net, 0..3), net.now);
    let source = net.nodes[3].group().unwrap().state().clone();
    let ring = source.ring;
    for index in 0..3 {
        let order = CopyOrder { ring, number: 1, source: source.id, ranges: vec![source.range] };
        let frame = crate::wire::encode(&net.nodes[leads].stamp(), &Frame::CopyOrder(order.into()), None);
        net.nodes[index].handle(now, Input::Frame { from: key(leads), frame });
    }
    net.settle();
}

fn merge(net: &mut Net) {
    let id = net.nodes[0].group().unwrap().state().id;
    assert!(matches!(net.request(0, id, AdminRequest::Merge), AdminOutcome::Done(_)));
    settle(net);
}

fn brought(net: &Net, index: usize) -> u64 {
    let notes = net.events[index].iter().rev().filter_map(|event| match event {
        Event::Note(note) => note.split_once("from now on"),
        _ => None,
    });
    let counts = notes.filter_map(|(_, rest)| rest.strip_prefix(", with ")?.split_once(' '));
    counts.map(|(count, _)| count.parse().unwrap()).next().unwrap_or(0)
}

/// Bulk copy before the transaction (`docs/design/data.md`).
#[test]
fn members_copy_before_they_merge() {
    let mut net = two_groups(Defects::NONE);
    let (first, second) = (held(&net, 0), held(&net, 3));
    assert_eq!((first + second, first > 200), (KEYS, true));
    merge(&mut net);
    for index in 0..6 {
        let other = if index < 3 { second } else { first };
        assert_eq!((held(&net, index), brought(&net, index)), (KEYS, other as u64), "{index}");
        assert!(net.nodes[index].reconfigure.preparation.copies.all.is_empty());
    }
}

/// The same holds for a move of a boundary: no member copies other data.
#[test]
fn whoever_gains_copies_what_it_gains() {
    let mut net = two_groups(Defects::NONE);
    let id = net.nodes[0].group().unwrap().state().id;
    assert!(matches!(net.request(1, id, AdminRequest::Repartition { at: Point(3 << 126) }), AdminOutcome::Done(_)));
    settle(&mut net);
    let gained = (0..KEYS).filter(|n| (Point(1 << 127)..Point(3 << 126)).contains(&name(*n).point())).count();
    assert!((0..3).all(|index| brought(&net, index) == gained as u64));
    assert!((3..6).all(|index| brought(&net, index) == 0));
    assert_eq!(held(&net, 0) + held(&net, 3), KEYS);
}

fn purged_since(defects: Defects) -> Net {
    let mut net = two_groups(defects);
    order(&mut net);
    let second = held(&net, 3);
    assert!((0..3).all(|index| copied(&net, index) == [second as u64]), "{:?}", copied(&net, 0));
    let gone = (0..KEYS).map(name).find(|name| name.point() >= Point(1 << 127)).unwrap();
    ask(&mut net, &gone, Op::Delete { condition: Condition::Always, get: false });
    assert_eq!(held(&net, 3), second - 1);
    net.run_until(|net| (3..6).all(|index| net.nodes[index].group().unwrap().purged() > 0));
    assert!(net.nodes[0].reconfigure.preparation.copies.all[0].is_done());
    merge(&mut net);
    net
}

/// Hazard 14: a copied record comes back to life if its tombstone was purged since.
#[test]
fn what_was_deleted_since_it_was_copied_stays_gone() {
    let net = purged_since(Defects::NONE);
    assert!((0..6).all(|index| held(&net, index) == KEYS - 1));
    assert!((0..3).all(|index| brought(&net, index) == 0), "all of it was copied again");
}

#[test]
fn a_copy_that_heeds_no_purges_is_seen_to_bring_it_back() {
    let net = purged_since(Defects::NONE.with(Defect::StaleCopies));
    assert!((0..3).any(|index| held(&net, index) == KEYS));
}

#[test]
fn what_nobody_wants_any_more_is_dropped() {
    let mut net = two_groups(Defects::NONE);
    order(&mut net);
    assert_eq!(copied(&net, 0).len(), 1);
    net.run_for(KEPT_FOR + Duration::from_secs(1));
    assert_eq!(copied(&net, 0).len(), 0);
    assert!(net.nodes[0].is_settled());
}

/// Orders of strangers are ignored, and orders of neighbours for ranges that are not theirs; invalid orders are
/// counted.
#[test]
fn orders_that_cannot_be_are_not_followed() {
    let mut net = two_groups(Defects::NONE);
    let (own, other) = (net.nodes[0].group().unwrap().state().clone(), net.nodes[3].group().unwrap().state().clone());
    let (ring, now) = (own.ring, net.now);
    let mut give = |from: usize, source: GroupId, ranges: Vec<KeyRange>| {
        let order = CopyOrder { ring, number: 1, source, ranges };
        let frame = crate::wire::encode(
            &net.nodes.get(from).map(|node| node.stamp()).unwrap_or_default(),
            &Frame::CopyOrder(order.into()),
            None,
        );
        let before = net.nodes[0].status().frames_dropped;
        net.nodes[0].handle(now, Input::Frame { from: key(from), frame });
        net.settle();
        (copied(&net, 0).len(), net.nodes[0].status().frames_dropped - before)
    };
    assert_eq!(give(40, other.id, vec![other.range]), (0, 0));
    assert_eq!(give(1, own.id, vec![own.range]), (0, 0));
    assert_eq!(give(1, GroupId(77), vec![other.range]), (0, 0));
    assert_eq!(give(1, other.id, vec![own.range]), (0, 0));
    assert_eq!(give(1, other.id, Vec::new()), (0, 1));
    assert_eq!(give(1, other.id, vec![other.range; RANGES_MAX + 1]), (0, 1));
    assert_eq!(give(1, other.id, vec![other.range; 2]), (0, 1), "the same twice");
    assert_eq!(give(4, other.id, vec![other.range]), (1, 0), "a member of the neighbour may lead the transaction");
    assert_eq!(give(40, other.id, vec![other.range]), (1, 0));
    assert_eq!(net.nodes[0].reconfigure.preparation.copies.all[0].orderer, key(4), "nobody else takes it over");
}

/// Two requests for different transactions do not block each other.
#[test]
fn one_thing_is_prepared_at_a_time() {
    let mut net = two_groups(Defects::NONE);
    let id = net.nodes[0].group().unwrap().state().id;
    let leads = leader(&net, 0..3);
    net.begin(leads, id, AdminRequest::Repartition { at: Point(3 << 126) });
    let merged = net.request(leads, id, AdminRequest::Merge);
    settle(&mut net);
    let ranges = |net: &Net| net.nodes[0].group().unwrap().state().range;
    match merged {
        AdminOutcome::Done(_) => assert!(ranges(&net).is_full()),
        AdminOutcome::NotNow(_) | AdminOutcome::Refused(_) | AdminOutcome::Aborted => {
            assert_eq!(ranges(&net).end(), Point(3 << 126))
        }
        other => panic!("{other:?}"),
    }
}
