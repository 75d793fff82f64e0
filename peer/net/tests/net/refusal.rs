//! A peer that does not belong to the network is refused, once, and not again for long.

use std::thread;
use std::time::Duration;

use net::{NetConfig, NetworkKey, Refusal, RefusedBy, Transport, Via};
use node::Class;
use overlay::{PeerKey, RingId};

use crate::support::*;

/// Both sides learn of the refusal, neither comes up, and neither comes back soon though both were asked to
/// connect for ever.
fn refuse_each_other(a: NetConfig, b: NetConfig, reason: Refusal) {
    let mut b = start(b);
    let mut a = a;
    a.join = vec![b.door()];
    let mut a = start(a);
    b.dial(&a);
    let (ka, kb) = (a.key(), b.key());
    let refused = |peer: &Peer, other: PeerKey| peer.refusals().iter().any(|(p, r, _)| (*p, *r) == (other, reason));
    a.wait("a refusal", |a| refused(a, kb));
    b.wait("a refusal", |b| refused(b, ka));
    eventually("they hang up", || a.handle().stats().connections + b.handle().stats().connections == 0);
    // Both may have dialled at once: the other connection is refused as well.
    thread::sleep(Duration::from_millis(700));
    a.poll();
    b.poll();
    let before = (a.refusals().len(), b.refusals().len());
    thread::sleep(Duration::from_millis(1500));
    a.poll();
    b.poll();
    assert_eq!((a.refusals().len(), b.refusals().len()), before, "no loop");
    assert!(before.0 <= 2 && before.1 <= 2, "once for each connection: {before:?}");
    assert_eq!((a.ups(kb), b.ups(ka)), (0, 0));
    assert_eq!(a.handle().stats().violations + b.handle().stats().violations, 0, "a refusal is no crime");
    assert!(a.handle().stats().refused[reason as usize] > 0);
}

fn named(via: Via, name: &str) -> NetConfig {
    NetConfig { network: name.into(), ..config(via) }
}

fn keyed(via: Via, key: Option<u8>) -> NetConfig {
    NetConfig { network_key: key.map(|byte| NetworkKey::from_bytes([byte; 32])), ..config(via) }
}

fn ringed(via: Via, ring: Option<u128>) -> NetConfig {
    NetConfig { ring: ring.map(RingId), ..config(via) }
}

fn another_network_is_refused(via: Via) {
    refuse_each_other(named(via, "one"), named(via, "two"), Refusal::Network);
}

fn another_key_is_refused(via: Via) {
    refuse_each_other(keyed(via, Some(1)), keyed(via, Some(2)), Refusal::Key);
}

fn no_key_is_refused_and_refuses(via: Via) {
    refuse_each_other(keyed(via, Some(1)), keyed(via, None), Refusal::Key);
    refuse_each_other(keyed(via, None), keyed(via, Some(1)), Refusal::Key);
}

fn another_ring_is_refused(via: Via) {
    refuse_each_other(ringed(via, Some(1)), ringed(via, Some(2)), Refusal::Ring);
}

fn another_durability_is_refused(via: Via) {
    refuse_each_other(config(via), NetConfig { durable: false, ..config(via) }, Refusal::Durability);
}

fn the_same_key_and_ring_meet(via: Via) {
    let config = NetConfig { ring: Some(RingId(7)), ..keyed(via, Some(1)) };
    let newcomer = keyed(via, Some(1));
    let (mut a, mut b) = pair(config, newcomer);
    let key = a.key();
    a.send(b.key(), Class::Data, "welcome");
    b.wait("a frame", |b| b.texts(key, Class::Data) == ["welcome"]);
    // The other peer joins the same ring: nothing changes.
    b.net().set_ring(RingId(7));
    thread::sleep(Duration::from_millis(300));
    a.poll();
    b.poll();
    assert!(a.refusals().is_empty() && a.is_up(b.key()) && b.is_up(a.key()));
}

/// Two peers meet before either has a ring. As soon as both have one, and not the same, they part.
fn two_rings_that_met_before_they_were_founded_part(via: Via) {
    let (mut a, mut b) = pair(config(via), config(via));
    let (ka, kb) = (a.key(), b.key());
    a.net().set_ring(RingId(1));
    thread::sleep(Duration::from_millis(200));
    a.poll();
    assert!(a.is_up(kb));
    b.net().set_ring(RingId(2));
    a.wait_down(kb);
    b.wait_down(ka);
    a.wait("a refusal", |a| a.refusals().iter().any(|(_, reason, _)| *reason == Refusal::Ring));
    b.wait("a refusal", |b| {
        b.refusals().iter().any(|(_, reason, by)| (*reason, *by) == (Refusal::Ring, RefusedBy::Them))
    });
    thread::sleep(Duration::from_millis(1000));
    a.poll();
    b.poll();
    assert_eq!((a.ups(kb), b.ups(ka)), (1, 1), "and do not meet again");
}

over_both! {
    another_network_is_refused,
    another_key_is_refused,
    no_key_is_refused_and_refuses,
    another_ring_is_refused,
    another_durability_is_refused,
    the_same_key_and_ring_meet,
    two_rings_that_met_before_they_were_founded_part,
}
