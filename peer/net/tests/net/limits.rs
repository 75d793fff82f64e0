//! Connections are limited, and a peer that goes makes room.

use std::time::Duration;

use net::{Identity, NetConfig, Transport, Via};

use crate::support::*;

fn narrow(via: Via, connections_max: usize) -> NetConfig {
    NetConfig { connections_max, ..config(via) }
}

fn no_more_connections_than_allowed_and_room_for_others_afterwards(via: Via) {
    let mut door = start(narrow(via, 4));
    let at = door.door();
    for round in 0..4 {
        let guest = || start(NetConfig { join: vec![at.clone()], ..config(via) });
        let guests: Vec<Peer> = (0..8).map(|_| guest()).collect();
        let handle = door.handle();
        // A quarter is kept from peers that were not asked for.
        eventually("three guests are in", || {
            guests.iter().filter(|guest| guest.handle().is_up(&door.key())).count() == 3
        });
        for _ in 0..50 {
            assert!(handle.stats().connections <= 3, "round {round}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(handle.stats().over_limit > 0);
        let mut member = start(config(via));
        door.dial(&member);
        door.wait_up(member.key());
        member.wait_up(door.key());
        assert_eq!(handle.stats().connections, 4);

        drop(guests);
        let key = member.key();
        drop(member);
        door.wait_down(key);
        eventually("all are gone", || handle.stats().connections == 0);
    }
}

fn nothing_is_left_of_peers_that_came_and_went(via: Via) {
    let mut door = start(config(via));
    let at = door.door();
    for _ in 0..30 {
        let mut guest = start(NetConfig { join: vec![at.clone()], ..config(via) });
        guest.wait_up(door.key());
        door.wait_up(guest.key());
    }
    let handle = door.handle();
    eventually("all are forgotten", || handle.stats().peers.is_empty() && handle.stats().connections == 0);
    assert_eq!(handle.stats().queued_bytes, 0);
}

fn peers_asked_for_are_limited_and_forgotten_when_they_never_come(via: Via) {
    let mut config = config(via);
    config.peers_max = 10;
    config.timing.wanted = Duration::from_secs(1);
    let peer = start(config);
    for _ in 0..50 {
        let nobody = Identity::random().peer();
        peer.net().dial(nobody, &["/ip4/127.0.0.1/tcp/1".into()]);
        let _ = peer.handle().send(&nobody, node::Class::Data, vec![0; 1000].into());
    }
    let stats = peer.handle().stats();
    assert_eq!((stats.peers.len(), stats.over_limit, stats.dropped_unknown_peer), (10, 40, 40));
    assert_eq!(stats.queued_bytes, 10_000);
    eventually("they are forgotten", || peer.handle().stats().peers.is_empty());
    assert_eq!(peer.handle().stats().queued_bytes, 0);
}

over_both! {
    no_more_connections_than_allowed_and_room_for_others_afterwards,
    nothing_is_left_of_peers_that_came_and_went,
    peers_asked_for_are_limited_and_forgotten_when_they_never_come,
}
