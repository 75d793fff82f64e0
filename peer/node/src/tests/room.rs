//! Sub-ranges of a member that has no room for more.

use alloc::vec::Vec;
use core::time::Duration;

use group::op::{Limit, OpError};

use crate::api::Input;
use crate::tests::small_net::Net;

fn settled(count: usize) -> Net {
    let mut net = Net::of(count);
    net.run_until(|net| net.nodes.iter().all(|node| node.status().ready) && net.primaries().len() == count);
    net
}

#[test]
fn who_has_no_room_hands_over_and_writes_go_on_through_anybody() {
    let mut net = settled(3);
    // The leader may be among the members without room.
    for low in 0..3 {
        let me = net.nodes[low].id();
        assert!(net.primaries().contains(&me), "it serves something at first");
        net.nodes[low].handle(net.now, Input::DiskLow(Some(Limit::Disk)));
        net.settle();
        for (nth, through) in [low, (low + 1) % 3].into_iter().enumerate() {
            let (set, failed) = net.set(through, 1_000 * low as u64 + 100 * nth as u64, 40);
            assert_eq!((set, failed), (40, Vec::new()), "{low} is low, through {through}");
        }
        assert!(!net.primaries().contains(&me), "it serves nothing any more");
        net.nodes[low].handle(net.now, Input::DiskLow(None));
        net.run_until(|net| net.primaries().contains(&me));
    }
}

#[test]
fn writes_are_refused_where_nobody_has_room() {
    let mut net = settled(3);
    for (index, limit) in [Limit::Disk, Limit::MaxDisk, Limit::Disk].into_iter().enumerate() {
        net.nodes[index].handle(net.now, Input::DiskLow(Some(limit)));
    }
    net.run_for(Duration::from_secs(3));
    let (done, failed) = net.set(0, 0, 40);
    assert_eq!(done, 0);
    assert!(failed.iter().all(|error| matches!(error, OpError::Limit(_))), "{failed:?}");
    assert!(failed.contains(&OpError::Limit(Limit::MaxDisk)), "each says what stands in its own way");
    assert_eq!(net.primaries().len(), 3, "all of them serve what needs no room");
    // One member with room is enough.
    net.nodes[1].handle(net.now, Input::DiskLow(None));
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.set(2, 100, 40), (40, Vec::new()));
}
