//! Real nodes hear lies: messages of their peers with changed fields, repeated later, or in another peer's name.
//!
//! No lie makes a node panic, or take memory without bound, and records that an honest member knows to be chosen stay
//! the same. Some fixed seeds run with all tests. `SCATTER_LIES=N` runs N new ones; `SCATTER_LIES_SEED=S` runs one
//! again.

#[path = "lies/allocations.rs"]
mod allocations;
#[path = "lies/change.rs"]
mod change;
#[path = "lies/made.rs"]
mod made;
#[path = "lies/network.rs"]
mod network;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

use group::control::state::{Assignment, GroupState, Member};
use group::message::{Message, Sender};
use network::{Network, Theme};
use node::wire::{self, Frame, Stamp};
use node::{Input, Node, NodeConfig, Restored, Start};
use overlay::{Contact, Epoch, Incarnation, NodeId, PeerKey, RingId};

/// Seeds that run with all tests.
const SEEDS: u64 = 24;
/// Lies in each run.
const LIES: usize = 1_500;
/// Upper limit of the memory of the nodes of one run, in bytes.
const HELD_MAX: isize = 256 << 20;

fn play(seed: u64) -> usize {
    let mut network = Network::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let before = allocations::held();
        network.settle_in();
        while network.lies < LIES && network.now_ms() < 400_000 {
            network.step();
            let held = allocations::held() - before;
            assert!(held < HELD_MAX, "{held} bytes are held");
        }
    }));
    if let Err(panic) = result {
        eprintln!("SCATTER_LIES_SEED={seed}, {:?}, lie {}: {}", network.theme, network.lies, network.last_lie());
        resume_unwind(panic);
    }
    let (answered, [dropped, contradictions, halted]) = (network.answered, network.noticed());
    println!(
        "{seed} {:?}: {} lies, {answered} answers, {dropped} dropped, {contradictions} contradictions, {halted} halted",
        network.theme, network.lies
    );
    network.lies
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_lie_stops_a_node() {
    if let Some(seed) = number("SCATTER_LIES_SEED") {
        println!("{} lies", play(seed));
        return;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "other seeds in each long run; a node's tests cannot use environment"
    )]
    let (first, count) = match number("SCATTER_LIES") {
        Some(count) => {
            (SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64), count)
        }
        None => (0, SEEDS),
    };
    let mut lies = 0;
    for seed in first..first + count {
        lies += play(seed);
    }
    println!("{lies} lies in {count} runs from seed {first} on");
    assert!(lies > count as usize * LIES / 2, "hardly anything was said: {lies}");
}

/// The fixed seeds play every theme.
#[test]
fn every_theme_is_played() {
    for theme in Theme::ALL {
        assert!((0..SEEDS).any(|seed| Theme::of(seed) == theme), "{theme:?}");
    }
}

/// Before: "no group moves to another ring".
#[test]
fn a_state_of_another_ring_is_not_entered() {
    let mut network = Network::new(0);
    network.settle_in();
    let told = network.nodes[3].group().unwrap().state().clone();
    let next = Epoch(network.nodes[0].group().unwrap().state().epoch.0 + 100);
    let range = network.nodes[0].group().unwrap().state().range;
    let (ring, sender) = (told.ring, Sender { node: network.nodes[3].id(), epoch: next });
    let mut members = told.members.clone();
    members.extend(network.nodes[0].group().unwrap().state().members.clone());
    members.sort_by_key(|member| member.node);
    let division = vec![Assignment { start: range.start(), ..told.division[0] }];
    let state = GroupState { ring: RingId(ring.0 ^ 1), epoch: next, born: next, range, members, division, ..told };
    assert!(state.is_sound());
    let (group, dropped) = (state.id, network.nodes[0].status().frames_dropped);
    let lie = Frame::Group { ring, group, sender, message: Message::State(Box::new(state)) };
    network.tell(0, &lie);
    assert_eq!(network.nodes[0].status().frames_dropped, dropped + 1);
    assert!(network.nodes[0].groups().all(|group| group.state().ring == ring));
}

/// Before: the incarnation after the last one overflowed.
#[test]
fn a_newcomer_is_told_of_a_life_that_no_other_follows() {
    let mut network = Network::new(0);
    network.settle_in();
    let mut told = network.nodes[3].group().unwrap().state().clone();
    let (newcomer, last) = (PeerKey([99; 32]), Incarnation(u64::MAX));
    let node = NodeId { peer: newcomer, incarnation: last };
    told.learners = vec![Member { node, ..told.members[0].clone() }];
    let config = NodeConfig::new(newcomer, Incarnation(1));
    let mut outside = Node::new(config, 1, network.now, Restored::empty());
    let sender = Sender { node: network.nodes[3].id(), epoch: told.epoch };
    let (ring, group, message) = (told.ring, told.id, Message::State(Box::new(told)));
    let stamp = Stamp { incarnation: sender.node.incarnation, start: Start { counter: 1, run: 1 }, to: 0 };
    let frame = wire::encode(&stamp, &Frame::Group { ring, group, sender, message }, None);
    outside.handle(network.now, Input::Frame { from: sender.node.peer, frame });
    assert_eq!(outside.id().incarnation, last);
}

/// A name with terminal control characters is no name: the frame is dropped and counted, and has no effect.
#[test]
fn a_name_with_control_characters_is_not_heard() {
    let mut network = Network::new(0);
    network.settle_in();
    let told = network.nodes[3].group().unwrap().state().clone();
    let sender = Sender { node: network.nodes[3].id(), epoch: told.epoch };
    let contact = Contact { node: sender.node, addresses: vec![], name: "oak".parse().ok() };
    let frame = Frame::Group { ring: told.ring, group: told.id, sender, message: Message::Contact(contact) };
    let stamp = network.stamp_of(sender.node.peer);
    let good = wire::encode(&stamp, &frame, None).to_vec();
    let place = good.windows(3).position(|bytes| bytes == b"oak").expect("it is in there");
    let mut bad = good.clone();
    bad[place] = 0x1b;
    let mut dropped = network.nodes[0].status().frames_dropped;
    for (bytes, more) in [(good, 0), (bad, 1)] {
        network.nodes[0].handle(network.now, Input::Frame { from: sender.node.peer, frame: bytes.into() });
        dropped += more;
        assert_eq!(network.nodes[0].status().frames_dropped, dropped);
    }
    let members = network.nodes.iter().flat_map(Node::groups).flat_map(|group| group.state().members.clone());
    assert!(members.into_iter().all(|member| member.name.is_none_or(|name| name.as_str() == "oak")));
}
