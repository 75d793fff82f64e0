//! Peers find each other, lose each other, and find each other again.

use std::time::Duration;

use net::{SendError, Transport, Via};
use node::Class;

use crate::support::*;

fn frames_of_every_class_arrive_in_order_both_ways(via: Via) {
    let (mut a, mut b) = pair(config(via), config(via));
    for class in [Class::Control, Class::Data, Class::Bulk] {
        for i in 0..200 {
            a.send(b.key(), class, &format!("{class:?} {i}"));
            b.send(a.key(), class, &format!("back {i}"));
        }
        let (ka, kb) = (a.key(), b.key());
        b.wait("frames", |b| b.texts(ka, class).len() == 200);
        a.wait("frames back", |a| a.texts(kb, class).len() == 200);
        let expected: Vec<String> = (0..200).map(|i| format!("{class:?} {i}")).collect();
        assert_eq!(b.texts(ka, class), expected);
    }
    assert_eq!((a.ups(b.key()), b.ups(a.key())), (1, 1));
    assert_eq!((a.downs(b.key()), b.downs(a.key())), (0, 0));
}

/// Every pair dials from both sides in the same moment: none of the dials, streams or hellos may be lost.
fn sixteen_peers_dial_each_other_at_once(via: Via) {
    let mut peers: Vec<Peer> = (0..16).map(|_| start(config(via))).collect();
    let all: Vec<_> = peers.iter().map(|peer| (peer.key(), peer.address().unwrap())).collect();
    for peer in &mut peers {
        for (key, address) in &all {
            peer.net().dial(*key, std::slice::from_ref(address));
        }
    }
    for peer in &mut peers {
        let me = peer.key();
        for (key, _) in all.iter().filter(|(key, _)| *key != me) {
            peer.wait_up(*key);
        }
    }
    for peer in &mut peers {
        let me = peer.key();
        for (key, _) in all.iter().filter(|(key, _)| *key != me) {
            for class in [Class::Control, Class::Data, Class::Bulk] {
                peer.send(*key, class, "hello");
            }
        }
    }
    for peer in &mut peers {
        let me = peer.key();
        for (key, _) in all.iter().filter(|(key, _)| *key != me) {
            for class in [Class::Control, Class::Data, Class::Bulk] {
                peer.wait("a frame", |peer| peer.texts(*key, class) == ["hello"]);
            }
            assert_eq!(peer.ups(*key), 1, "once, however many connections there are");
            assert_eq!(peer.downs(*key), 0);
        }
    }
}

/// Two simultaneous dials, again and again.
fn simultaneous_dials_never_both_fail(via: Via) {
    let (mut a, mut b) = (start(config(via)), start(config(via)));
    // On QUIC a lost peer is noticed after two seconds.
    let rounds = if via == Via::Tcp { 20 } else { 6 };
    for round in 1..=rounds {
        a.dial(&b);
        b.dial(&a);
        a.wait_up(b.key());
        b.wait_up(a.key());
        assert_eq!(a.ups(b.key()), round);
        let (ka, identity) = (a.key(), b.identity.clone());
        a.send(b.key(), Class::Data, "round");
        b.wait("a frame", |b| b.texts(ka, Class::Data).len() == 1);
        drop(b);
        a.wait_down(identity.peer());
        b = start_as(identity, config(via));
    }
}

fn silence_is_no_reason_to_part(via: Via) {
    let mut config = config(via);
    config.timing.idle = Duration::from_millis(200);
    config.timing.hello = Duration::from_secs(1);
    let (mut a, mut b) = pair(config.clone(), config);
    std::thread::sleep(Duration::from_secs(2));
    a.poll();
    b.poll();
    assert_eq!((a.downs(b.key()), b.downs(a.key())), (0, 0));
    // One connection for each side's streams, where both dialled at once and each was faster on its own.
    assert!(a.handle().stats().connections <= 2);
    let key = a.key();
    a.send(b.key(), Class::Control, "still here");
    b.wait("a frame", |b| b.texts(key, Class::Control) == ["still here"]);
}

fn a_peer_that_dies_is_seen_and_found_again_under_the_same_key_and_port(via: Via) {
    let (mut a, mut b) = pair(config(via), config(via));
    let (identity, address) = (b.identity.clone(), b.address().unwrap());
    for round in 1..=3 {
        drop(b);
        a.wait_down(identity.peer());
        assert_eq!(a.downs(identity.peer()), round);
        let mut again = config(via);
        again.listen = vec![address.parse().unwrap()];
        b = start_as(identity.clone(), again);
        // No new request to connect is needed: one was enough.
        a.wait_up(b.key());
        b.wait_up(a.key());
        let key = a.key();
        a.send(b.key(), Class::Data, "again");
        b.wait("a frame", |b| b.texts(key, Class::Data) == ["again"]);
    }
}

fn a_polite_end_delivers_what_was_queued(via: Via) {
    let (mut a, mut b) = pair(config(via), config(via));
    for i in 0..1000 {
        a.send(b.key(), Class::Data, &i.to_string());
    }
    let key = a.key();
    a.shutdown();
    b.wait("the last word", |b| b.texts(key, Class::Data).last().is_some_and(|text| text == "999"));
    b.wait_down(key);
}

fn a_door_is_knocked_at_until_it_opens(via: Via) {
    let identity = net::Identity::random();
    let address = start(config(via)).address().unwrap();

    let mut known = config(via);
    known.join = vec![format!("{address}/p2p/{}", identity.peer_id()).parse().unwrap()];
    let mut anybody = config(via);
    anybody.join = vec![address.parse().unwrap()];
    let (mut known, mut anybody) = (start(known), start(anybody));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(known.handle().stats().connections, 0);

    let mut door = config(via);
    door.listen = vec![address.parse().unwrap()];
    for _ in 0..2 {
        let peer = start_as(identity.clone(), door.clone());
        known.wait_up(identity.peer());
        anybody.wait_up(identity.peer());
        drop(peer);
        known.wait_down(identity.peer());
        anybody.wait_down(identity.peer());
    }
}

fn an_impostor_behind_a_known_address_is_not_taken_for_the_peer(via: Via) {
    let mut impostor = start(config(via));
    let expected = net::Identity::random();
    let mut a = start(config(via));
    let address = impostor.address().unwrap();
    a.net().dial(expected.peer(), &[address]);
    std::thread::sleep(Duration::from_millis(500));
    a.poll();
    impostor.poll();
    assert!(!a.is_up(expected.peer()) && !a.is_up(impostor.key()) && !impostor.is_up(a.key()));
}

fn nobody_is_sent_anything_who_was_not_asked_for(via: Via) {
    let mut a = start(config(via));
    let stranger = net::Identity::random().peer();
    let send = a.handle().send(&stranger, Class::Data, bytes::Bytes::from_static(b"hello"));
    assert_eq!(send, Err(SendError::UnknownPeer));
    assert_eq!(a.handle().stats().dropped_unknown_peer, 1);
    // A peer that was asked for may come late: frames queued until then arrive.
    let mut b = start(config(via));
    a.dial(&b);
    a.send(b.key(), Class::Data, "early");
    let key = a.key();
    b.wait("a frame", |b| b.texts(key, Class::Data) == ["early"]);
    assert!(b.is_up(key));
}

/// Where the machine has no multicast, no peer is found; then nothing else may break.
fn peers_on_one_network_find_each_other(via: Via) {
    let found = || {
        let mut config = config(via);
        // mDNS announces the addresses of interfaces, and other machines cannot use loopback.
        let everywhere = anywhere(via).to_string().replace("127.0.0.1", "0.0.0.0");
        config.listen = vec![everywhere.parse().unwrap()];
        config.network = format!("mdns {via:?} {}", std::process::id());
        config.mdns = true;
        config
    };
    let (mut a, mut b) = (start(found()), start(found()));
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(5) && !(a.is_up(b.key()) && b.is_up(a.key())) {
        a.poll();
        b.poll();
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("found each other: {}, after {:?}", a.is_up(b.key()), began.elapsed());
}

over_both! {
    frames_of_every_class_arrive_in_order_both_ways,
    sixteen_peers_dial_each_other_at_once,
    simultaneous_dials_never_both_fail,
    silence_is_no_reason_to_part,
    a_peer_that_dies_is_seen_and_found_again_under_the_same_key_and_port,
    a_polite_end_delivers_what_was_queued,
    a_door_is_knocked_at_until_it_opens,
    an_impostor_behind_a_known_address_is_not_taken_for_the_peer,
    nobody_is_sent_anything_who_was_not_asked_for,
    peers_on_one_network_find_each_other,
}
