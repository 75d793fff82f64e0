//! The DHT's parts, and a calm network of it.

use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Condition, Expiry, Op, Read};
use overlay::time::Time;
use overlay::{Key, PeerKey, Point};

use super::Peer;
use super::leaves::{COPIES_SIDE, Leaves, SIDE, apart};
use super::message::Contact;
use crate::history::Outcome;
use crate::sim::{Scenario, World};

fn contact(number: u16) -> Contact {
    let mut key = [7; 32];
    key[..2].copy_from_slice(&number.to_be_bytes());
    Contact { peer: PeerKey(key), address: String::new() }
}

fn hear_all<'a>(leaves: &mut Leaves, contacts: impl IntoIterator<Item = &'a Contact>, now: Time) {
    for contact in contacts {
        leaves.hear(contact, now);
    }
}

/// Returns `count` peers in ring order.
fn ring(count: u16) -> Vec<Contact> {
    let mut all: Vec<Contact> = (0..count).map(contact).collect();
    all.sort_by_key(Contact::id);
    all
}

#[test]
fn leaves_are_the_nearest_on_each_side() {
    let ring = ring(60);
    let mut leaves = Leaves::new(ring[30].peer);
    let mut others: Vec<&Contact> = ring.iter().filter(|contact| contact.peer != ring[30].peer).collect();
    others.sort_by_key(|contact| contact.peer.0);
    hear_all(&mut leaves, others, Time(0));
    let mut found: Vec<PeerKey> = leaves.contacts().map(|contact| contact.peer).collect();
    let mut expected: Vec<PeerKey> =
        (30 - SIDE..=30 + SIDE).filter(|place| *place != 30).map(|place| ring[place].peer).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert!(leaves.covers(ring[30 + SIDE].id()) && !leaves.covers(ring[30 + SIDE + 1].id()));
    assert!(leaves.covers(ring[30 - SIDE].id()) && !leaves.covers(ring[30 - SIDE - 1].id()));
}

#[test]
fn silent_leaves_are_dropped_and_others_take_their_places() {
    let ring = ring(40);
    let mut leaves = Leaves::new(ring[20].peer);
    let (second, silence) = (Duration::from_secs(1), Duration::from_secs(2));
    hear_all(&mut leaves, &ring[20 - SIDE..=20 + SIDE], Time(0));
    assert!(!leaves.fits(ring[20 + SIDE + 1].id()));
    let silent = ring[21].peer;
    let heard = ring[20 - SIDE..=20 + SIDE].iter().filter(|contact| contact.peer != silent);
    hear_all(&mut leaves, heard, Time(0) + second);
    let gone = leaves.drop_silent(Time(0) + silence, silence);
    assert_eq!(gone.iter().map(|contact| contact.peer).collect::<Vec<_>>(), [silent]);
    assert!(leaves.fits(ring[20 + SIDE + 1].id()));
    assert!(leaves.hear(&ring[20 + SIDE + 1], Time(0) + silence) && leaves.contacts().count() == 2 * SIDE);
}

#[test]
fn nine_peers_around_the_root_hold_a_key() {
    let ring = ring(60);
    let view = |me: usize| {
        let mut leaves = Leaves::new(ring[me].peer);
        let near = |place: &usize| *place != me && place.abs_diff(me) <= SIDE;
        hear_all(&mut leaves, (0..60).filter(near).map(|place| &ring[place]), Time(0));
        leaves.view()
    };
    let point = Point(ring[30].id().0 + 1);
    for me in 30 - COPIES_SIDE..=30 + COPIES_SIDE {
        let (root, mut holders) = view(me).holders(point);
        let mut expected: Vec<PeerKey> =
            ring[30 - COPIES_SIDE..=30 + COPIES_SIDE].iter().map(|contact| contact.peer).collect();
        assert_eq!(root, ring[30].peer);
        holders.sort();
        expected.sort();
        assert_eq!(holders, expected, "as peer {me} knows it");
    }
    // A ring that is known as a whole closes behind its last peer.
    let small = &ring[..11];
    let mut leaves = Leaves::new(small[0].peer);
    hear_all(&mut leaves, &small[1..], Time(0));
    let (root, holders) = leaves.view().holders(small[10].id());
    assert!(root == small[10].peer && holders.len() == 9 && holders.contains(&small[3].peer), "{holders:?}");
    assert!(!holders.contains(&small[4].peer) && !holders.contains(&small[5].peer));
}

fn world(hosts: usize, seed: u64) -> World<Peer> {
    let mut scenario = Scenario { hosts, sweep_every: u64::MAX, ..Scenario::calm(seed) };
    scenario.load.clients = 0;
    scenario.start_within = Duration::from_secs(hosts as u64 / 10);
    World::new(scenario)
}

fn ask(world: &mut World<Peer>, host: usize, key: &str, value: Option<&str>) -> Option<Answer> {
    let op = match value {
        Some(value) => Op::Set {
            value: Bytes::copy_from_slice(value.as_bytes()),
            condition: Condition::Always,
            expiry: Expiry::Clear,
            get: false,
        },
        None => Op::Read(Read::Value),
    };
    match world.tell(host, key, op) {
        Outcome::Answered(answer) => Some(answer),
        _ => None,
    }
}

/// Returns the machines that take themselves for the root of a point, and the machine of the true root.
fn roots(world: &World<Peer>, point: Point) -> (Vec<usize>, usize) {
    let believers = (0..world.hosts()).filter(|host| world.host(*host).is_some_and(|peer| peer.is_root(point)));
    let truly = (0..world.hosts()).min_by_key(|host| apart(super::message::id_of(world.peer(*host)), point));
    (believers.collect(), truly.expect("there are machines"))
}

/// Eighty peers without churn: each key has one root, which all peers find, and nine copies.
#[test]
fn a_put_is_found_by_a_get_in_a_calm_network() {
    let mut world = world(80, 1);
    world.run_for(Duration::from_secs(60));
    assert!((0..80).all(|host| world.is_ready(host)));
    for number in 0..40 {
        let (name, value) = (format!("key-{number}"), format!("value-{number}"));
        assert_eq!(ask(&mut world, number, &name, Some(&value)), Some(Answer::Done), "{name}");
        let read = ask(&mut world, 79 - number, &name, None);
        assert_eq!(read, Some(Answer::Value(Some(Bytes::from(value)))), "{name}");
        let (believers, truly) = roots(&world, Key::new(name.as_bytes()).expect("short").point());
        assert_eq!(believers, [truly], "{name}");
    }
    world.run_for(Duration::from_secs(1));
    let copies = |name: &str| {
        let has = |host: &usize| world.host(*host).is_some_and(|peer| peer.copies.value(name.as_bytes()).is_some());
        (0..80).filter(has).count()
    };
    assert!((0..40).all(|number| copies(&format!("key-{number}")) == 9));
    assert_eq!(ask(&mut world, 3, "never written", None), Some(Answer::Value(None)));
}

/// Peers die one after the other and are replaced: copies are made anew, and all keys are found.
#[test]
fn copies_are_made_anew_after_deaths() {
    let mut world = world(30, 2);
    world.run_for(Duration::from_secs(30));
    for number in 0..20 {
        assert_eq!(ask(&mut world, number, &format!("key-{number}"), Some("kept")), Some(Answer::Done));
    }
    for host in 1..30 {
        world.replace(host, Duration::from_millis(200));
        world.run_for(Duration::from_secs(8));
    }
    assert!((0..30).all(|host| world.is_ready(host)));
    for number in 0..20 {
        let read = ask(&mut world, (number * 7 + 5) % 30, &format!("key-{number}"), None);
        assert_eq!(read, Some(Answer::Value(Some(Bytes::from_static(b"kept")))), "key-{number}");
    }
}
