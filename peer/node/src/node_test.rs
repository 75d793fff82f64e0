//! How a node goes with time.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Op, OpError, Read, ReadMode};
use group::time::{Now, Time, WallMillis};
use overlay::{Incarnation, Key, PeerKey};

use super::*;

fn at(time: Time) -> Now {
    Now { time, awake: time, wall: WallMillis(time.since(Time(0)).as_millis() as u64) }
}

fn node(found: bool, now: Time) -> Node {
    node_that_is(Durability::Memory, found, now)
}

fn node_that_is(durability: Durability, found: bool, now: Time) -> Node {
    let mut config = NodeConfig::new(PeerKey([1; 32]), Incarnation(1));
    config.durability = durability;
    config.found = found;
    Node::new(config, 7, at(now), Restored::empty())
}

fn request(id: u64, op: Op) -> Input {
    Input::Request(Request {
        id: RequestId(id),
        connection: ConnectionId(1),
        key: Key::new(b"k").unwrap(),
        op,
        mode: ReadMode::Linearizable,
        patience: Duration::from_millis(100),
        once: None,
    })
}

/// Pulls everything: the replies, and when it wants to be woken.
fn pull(node: &mut Node, wake_at: &mut Time) -> Vec<(RequestId, Result<Answer, OpError>)> {
    let mut replies = Vec::new();
    while let Some(output) = node.poll_output() {
        match output {
            Output::Reply { id, result } => replies.push((id, result)),
            Output::WakeAt(time) => *wake_at = time,
            _ => {}
        }
    }
    replies
}

/// Something comes every tenth of a millisecond, and whatever waits for its time is looked at all the same.
#[test]
fn timers_are_not_put_off_by_work() {
    let begin = Time(1_000_000_000);
    let (mut node, mut wake_at, mut now) = (node(false, begin), Time(0), begin);
    node.handle(at(now), request(5, Op::Read(Read::Exists)));
    let mut replies = pull(&mut node, &mut wake_at);
    while replies.is_empty() && now.since(begin) < Duration::from_secs(1) {
        now = now + Duration::from_micros(100);
        node.handle(at(now), Input::Frame { from: PeerKey([2; 32]), frame: Bytes::from_static(b"nonsense") });
        if now >= wake_at {
            node.handle(at(now), Input::Tick);
        }
        replies = pull(&mut node, &mut wake_at);
    }
    assert_eq!(replies, [(RequestId(5), Err(OpError::TryAgain(Refusal::NotInGroup)))]);
    let took = now.since(begin);
    assert!(took < Duration::from_millis(103), "it had 100 ms, and was told after {took:?}");
}

/// What waits for another operation of its connection begins when that ends, not at the next timer.
#[test]
fn operations_on_one_key_follow_each_other_at_once() {
    let mut now = Time(1_000_000_000);
    let (mut node, mut wake_at) = (node(true, now), Time(0));
    while !node.ready {
        now = now + Duration::from_millis(10);
        node.handle(at(now), Input::Tick);
        pull(&mut node, &mut wake_at);
    }
    for id in 0..1000 {
        node.handle(at(now), request(id, Op::Add(1)));
    }
    let replies = pull(&mut node, &mut wake_at);
    assert!(replies.iter().map(|(id, _)| id.0).eq(0..1000), "{} of 1000 are answered, in order", replies.len());
    assert!(replies.iter().all(|(_, result)| result.is_ok()));
}

/// Of two operations on one key that end at the same moment only the first was begun: nobody need wonder about the other.
#[test]
fn what_was_never_begun_certainly_did_nothing() {
    let mut now = Time(1_000_000_000);
    let mut node = node_that_is(Durability::Sync, true, now);
    let pull = |node: &mut Node, now: Time, stores: bool| {
        let mut replies = Vec::new();
        while let Some(output) = node.poll_output() {
            match output {
                Output::Reply { id, result } => replies.push((id, result)),
                Output::Persist { token, .. } if stores => node.handle(at(now), Input::Persisted(token)),
                _ => {}
            }
        }
        replies
    };
    while !node.ready {
        now = now + Duration::from_millis(10);
        node.handle(at(now), Input::Tick);
        pull(&mut node, now, true);
    }
    (1..=2).for_each(|id| node.handle(at(now), request(id, Op::Add(1))));
    assert_eq!(pull(&mut node, now, false), [], "the store says nothing");
    now = now + Duration::from_millis(100);
    node.handle(at(now), Input::Tick);
    let never = Err(OpError::TryAgain(Refusal::NoPrimary));
    assert_eq!(pull(&mut node, now, false), [(RequestId(1), Err(OpError::Uncertain)), (RequestId(2), never)]);
}
