//! Which ways answers take, and what origins hear of later primaries.

use alloc::vec;

use group::Group;
use overlay::{Epoch, Incarnation, Key, NodeId};

use super::*;
use crate::api::Input;
use crate::config::NodeConfig;
use crate::small_net::{Net, key};

fn ballot(epoch: u64) -> TermBallot {
    let node = NodeId { peer: key(1), incarnation: Incarnation(1) };
    TermBallot { epoch: Epoch(epoch), term: Default::default(), node }
}

fn at(ms: u64) -> Time {
    Time(0) + Duration::from_millis(10_000 + ms)
}

/// What came from `from` for `origin`.
fn back(origin: usize, from: usize) -> Back {
    Back { origin: key(origin), from: key(from) }
}

#[test]
fn an_answer_goes_back_once_and_a_later_one_again() {
    let (mut questions, point) = (Questions::default(), Point(7));
    questions.note(point, back(1, 2), 1, at(0));
    questions.note(point, back(3, 3), 0, at(0));
    questions.note(Point(8), back(1, 2), 1, at(0));
    assert_eq!(questions.take_untold(point, ballot(4), at(1)), [back(1, 2), back(3, 3)]);
    assert_eq!(questions.take_untold(point, ballot(4), at(2)), []);
    assert_eq!(questions.take_untold(point, ballot(3), at(2)), [], "an older one");
    assert_eq!(questions.outdated(|_| Some(ballot(4)), at(3)), []);
    assert_eq!(questions.outdated(|_| Some(ballot(5)), at(3)), [point], "the other one was not answered");
    assert_eq!(questions.take_untold(point, ballot(5), at(3)).len(), 2);
    questions.note(point, back(1, 2), 1, at(500));
    assert_eq!(questions.take_untold(point, ballot(5), at(501)), [back(1, 2)], "it was asked again");
    assert_eq!(questions.take_untold(point, ballot(6), at(3_100)), [back(1, 2)], "the other one is forgotten");
    assert_eq!(questions.take_untold(point, ballot(7), at(3_500)), []);
}

/// A question that went in a circle comes back with more hops: the answer would go round as well.
#[test]
fn the_shortest_way_counts() {
    let (mut questions, point) = (Questions::default(), Point(7));
    questions.note(point, back(1, 1), 0, at(0));
    questions.note(point, back(1, 2), 2, at(200));
    assert_eq!(questions.take_untold(point, ballot(4), at(201)), [back(1, 1)]);
    questions.note(point, back(1, 3), 1, at(900));
    assert_eq!(questions.take_untold(point, ballot(4), at(901)), [back(1, 1)], "it is answered once more");
    questions.note(point, back(1, 2), 2, at(1_000));
    assert_eq!(questions.take_untold(point, ballot(4), at(1_001)), [back(1, 2)], "nothing came that way for long");
}

#[test]
fn questions_are_bounded() {
    let mut questions = Questions::default();
    for n in 0..100_000 {
        questions.note(Point(n % 3_000), back(1, 2), 1, at(0));
    }
    assert!(questions.all.len() <= QUESTIONS_MAX + 1 && questions.order.len() <= QUESTIONS_MAX + 1);
}

/// Two groups: of the first two nodes, and of the others.
fn two_groups(count: usize) -> Net {
    let mut net = Net::with(count, |config| NodeConfig { members_min: 1, members_max: 64, ..config });
    net.split(2);
    net
}

/// A key of this group.
fn key_of(group: &Group) -> Key {
    let mut names = (0..).map(|n| Key::new(alloc::format!("key{n}").as_bytes()).expect("short"));
    names.find(|key| group.state().range.contains(key.point())).expect("there is one")
}

fn disconnect(net: &mut Net, one: usize, other: usize) {
    net.deaf.push((one, other));
    let now = net.now;
    net.nodes[one].handle(now, Input::PeerDown(key(other)));
    net.nodes[other].handle(now, Input::PeerDown(key(one)));
}

/// The node that is primary of this key.
fn primary(net: &Net, of: usize, key_of: &Key) -> usize {
    let group = net.nodes[of].group().expect("it is in one");
    let primary = group.primary_of(key_of.point()).expect("there is one").node.peer;
    (0..net.nodes.len()).find(|index| key(*index) == primary).expect("one of these")
}

/// Answers come over the connections that the question came over: to connect to its origin would take two more round trips, and here it is not
/// possible.
#[test]
fn an_answer_needs_no_connection_to_its_origin() {
    let mut net = two_groups(4);
    net.split(1);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    (2..4).for_each(|other| disconnect(&mut net, 0, other));
    net.begin_set(0, wanted.clone(), "v".into());
    net.run_for(Duration::from_secs(2));
    let owner = net.nodes[0].whereabouts.find(wanted.point()).map(|owner| owner.ballot);
    assert_eq!(owner, net.nodes[2].group().expect("it is in one").primary_of(wanted.point()));
}

/// A primary that is none any more tells who is: nobody is asked.
#[test]
fn an_operation_for_a_former_primary_needs_no_other_question() {
    let mut net = two_groups(6);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    assert_eq!(net.put(0, vec![(wanted.clone(), "v".into())]), (1, vec![]));
    // All is forgotten of who asked.
    net.run_for(2 * REMEMBERED);
    let before = net.nodes[2].group().expect("it is in one").primary_of(wanted.point());
    let leader = (2..6).find(|index| net.nodes[*index].group().is_some_and(|group| group.log().leads()));
    let gone = (2..6).find(|index| Some(*index) != leader && *index != primary(&net, 2, &wanted)).expect("one");
    net.leave(gone, false);
    net.run_until(|net| net.has_left(gone));
    let rest = (2..6).find(|index| *index != gone).expect("one");
    net.run_until(|net| net.nodes[rest].group().is_some_and(|group| group.state().is_settled()));
    let now = net.nodes[rest].group().expect("it is in one").primary_of(wanted.point());
    assert!(now > before);
    let located = net.located;
    assert_eq!(net.put(0, vec![(wanted, "w".into())]), (1, vec![]));
    assert_eq!(net.located, located, "questions for an owner");
}

/// Whoever asked for an owner hears of the next one at once: else an operation that waits for a dead primary finds that out when it gives
/// up waiting, after 600 ms, and would ask again and again.
#[test]
fn an_operation_goes_on_as_soon_as_there_is_another_primary() {
    let mut net = two_groups(6);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    let dead = primary(&net, 2, &wanted);
    net.run_for(Duration::from_secs(1));
    net.cut[dead] = true;
    let rest = (2..6).find(|index| *index != dead).expect("one");
    let request = net.begin_set(0, wanted.clone(), "v".into());
    let serves = |net: &Net| primary(net, rest, &wanted) != dead;
    net.run_until(serves);
    let since = net.now.time;
    net.run_until(|net| net.replies.iter().any(|(id, _)| *id == request));
    assert_eq!(net.replies.iter().find(|(id, _)| *id == request).map(|(_, result)| result.is_ok()), Some(true));
    let took = net.now.time.since(since);
    assert!(took <= Duration::from_millis(100), "answered {took:?} after another primary was chosen");
}
