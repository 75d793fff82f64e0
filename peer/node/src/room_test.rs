//! What becomes of a member's sub-ranges when it has no room for more.

use alloc::vec::Vec;
use core::time::Duration;

use group::op::{Condition, Expiry, Limit, Op, OpError, ReadMode};
use overlay::{Key, NodeId};

use crate::api::{ConnectionId, Input, Request, RequestId};
use crate::small_net::Net;

/// Sets so many keys through this node, at once: how many of them were set, and what was said of the others.
fn set(net: &mut Net, index: usize, first: u64, count: u64) -> (usize, Vec<OpError>) {
    net.replies.clear();
    for id in first..first + count {
        let request = Request {
            id: RequestId(id),
            connection: ConnectionId(id),
            key: Key::new(alloc::format!("k{}", id % 40).as_bytes()).expect("short"),
            op: Op::Set { value: "v".into(), condition: Condition::Always, expiry: Expiry::Clear, get: false },
            mode: ReadMode::Linearizable,
            patience: Duration::from_secs(3),
            once: None,
        };
        net.nodes[index].handle(net.now, Input::Routecast(request));
    }
    net.settle();
    net.run_until(|net| net.replies.len() as u64 == count);
    let failed: Vec<OpError> = net.replies.iter().filter_map(|(_, result)| result.clone().err()).collect();
    (net.replies.len() - failed.len(), failed)
}

fn primaries(net: &Net) -> Vec<NodeId> {
    net.nodes[0].group().expect("is in one").state().division.iter().map(|part| part.node).collect()
}

fn settled(count: usize) -> Net {
    let mut net = Net::of(count);
    net.run_until(|net| net.nodes.iter().all(|node| node.status().ready) && primaries(net).len() == count);
    net
}

#[test]
fn who_has_no_room_hands_over_and_writes_go_on_through_anybody() {
    let mut net = settled(3);
    // The leader may be among those without room.
    for low in 0..3 {
        let me = net.nodes[low].id();
        assert!(primaries(&net).contains(&me), "it serves something at first");
        net.nodes[low].handle(net.now, Input::DiskLow(Some(Limit::Disk)));
        net.settle();
        for (nth, through) in [low, (low + 1) % 3].into_iter().enumerate() {
            let (set, failed) = set(&mut net, through, 1_000 * low as u64 + 100 * nth as u64, 40);
            assert_eq!((set, failed), (40, Vec::new()), "{low} is low, through {through}");
        }
        assert!(!primaries(&net).contains(&me), "it serves nothing any more");
        net.nodes[low].handle(net.now, Input::DiskLow(None));
        net.run_until(|net| primaries(net).contains(&me));
    }
}

#[test]
fn writes_are_refused_where_nobody_has_room() {
    let mut net = settled(3);
    for (index, limit) in [Limit::Disk, Limit::MaxDisk, Limit::Disk].into_iter().enumerate() {
        net.nodes[index].handle(net.now, Input::DiskLow(Some(limit)));
    }
    net.run_for(Duration::from_secs(3));
    let (done, failed) = set(&mut net, 0, 0, 40);
    assert_eq!(done, 0);
    assert!(failed.iter().all(|error| matches!(error, OpError::Limit(_))), "{failed:?}");
    assert!(failed.contains(&OpError::Limit(Limit::MaxDisk)), "each says what stands in its own way");
    assert_eq!(primaries(&net).len(), 3, "all of them serve what needs no room");
    // One with room is enough.
    net.nodes[1].handle(net.now, Input::DiskLow(None));
    net.run_for(Duration::from_secs(1));
    assert_eq!(set(&mut net, 2, 100, 40), (40, Vec::new()));
}
