//! Ways of answers, and reports of later primaries to origins.

use alloc::boxed::Box;
use alloc::vec;

use group::Group;
use group::message::Message;
use overlay::{Epoch, GroupRef, Incarnation, Key, KeyRange, NodeId};

use super::*;
use crate::api::{Input, Output};
use crate::config::NodeConfig;
use crate::routing::{Locate, Wanted};
use crate::tests::small_net::{Net, key};
use crate::wire;

fn ballot(epoch: u64) -> TermBallot {
    let node = NodeId { peer: key(1), incarnation: Incarnation(1) };
    TermBallot { epoch: Epoch(epoch), term: Default::default(), node }
}

fn at(ms: u64) -> Time {
    Time(0) + Duration::from_millis(10_000 + ms)
}

fn contact(peer: usize) -> Contact {
    let node = NodeId { peer: key(peer), incarnation: Incarnation(1) };
    Contact { node, addresses: Vec::new(), name: None }
}

/// Returns the way back of a question of `origin` that came from `from`.
fn back(origin: usize, from: usize) -> Back {
    Back { origin: contact(origin), from: key(from) }
}

#[test]
fn an_answer_goes_back_once_and_a_later_one_again() {
    let (mut questions, point) = (Questions::default(), Point(7));
    questions.note(point, &contact(1), key(2), at(0));
    questions.note(point, &contact(3), key(3), at(0));
    questions.note(Point(8), &contact(1), key(2), at(0));
    assert_eq!(questions.take_untold(point, ballot(4), None), [back(1, 2), back(3, 3)]);
    assert_eq!(questions.take_untold(point, ballot(4), None), []);
    assert_eq!(questions.take_untold(point, ballot(3), None), [], "an older one");
    assert_eq!(questions.outdated(|_| Some(ballot(4))), []);
    assert_eq!(questions.outdated(|_| Some(ballot(5))), [point], "the other one was not answered");
    assert_eq!(questions.take_untold(point, ballot(5), None).len(), 2);
    questions.note(point, &contact(1), key(2), at(500));
    assert_eq!(questions.take_untold(point, ballot(5), None), [back(1, 2)], "it was asked again");
    questions.forget(at(3_100));
    assert_eq!(questions.take_untold(point, ballot(6), None), [back(1, 2)], "the other one is forgotten");
    questions.forget(at(3_500));
    assert_eq!((questions.all.len(), questions.order.len()), (0, 0));
}

/// An answer of a peer that was not asked goes nowhere, and does not keep the owner's from the peers that asked.
#[test]
fn only_peers_that_were_asked_are_believed() {
    let (mut questions, point) = (Questions::default(), Point(7));
    questions.note(point, &contact(1), key(2), at(0));
    questions.note_passed(point, key(1), key(4));
    questions.note_passed(point, key(9), key(5));
    assert_eq!(questions.take_untold(point, ballot(9), Some(key(5))), []);
    assert_eq!(questions.take_untold(point, ballot(4), Some(key(4))), [back(1, 2)]);
    for to in 10..13 {
        questions.note_passed(point, key(1), key(to));
    }
    assert_eq!(questions.take_untold(point, ballot(5), Some(key(4))), [back(1, 2)]);
    questions.note_passed(point, key(1), key(13));
    assert_eq!(questions.take_untold(point, ballot(6), Some(key(4))), [], "it was passed to four others since");
}

/// A peer that asks without end makes this node forget only its own questions.
#[test]
fn questions_are_bounded_for_each_peer() {
    let mut questions = Questions::default();
    questions.note(Point(1), &contact(1), key(3), at(0));
    let long = Contact { addresses: vec!["a".repeat(1_000)], ..contact(1) };
    for n in 0..100_000 {
        questions.note(Point(n % 9_000), &long, key(2), at(0));
        questions.note_passed(Point(n % 9_000), key(1), key(n as usize % 250));
    }
    assert_eq!(questions.all.len(), 1 + EACH_MAX);
    assert!(questions.all.values().all(|question| question.passed.len() <= PASSED_MAX));
    assert!(questions.all.values().all(|question| question.origin.addresses.is_empty()));
    let last = Point(99_999 % 9_000);
    assert_eq!(questions.take_untold(last, ballot(4), None).len(), 1, "the latest ones are kept");
    assert_eq!(questions.take_untold(Point(1), ballot(4), None).last(), Some(&back(1, 3)));
    for n in 0..100_000 {
        questions.note(Point(n), &contact(1), key(n as usize % 200), at(1));
    }
    assert!(questions.all.len() <= ALL_MAX, "{}", questions.all.len());
    questions.forget(at(4_000));
    assert_eq!((questions.all.len(), questions.order.len()), (0, 0));
}

/// Returns two groups: of the first two nodes, and of the rest.
fn two_groups(count: usize) -> Net {
    let mut net = Net::with(count, |config| NodeConfig { members_min: 1, members_max: 64, ..config });
    net.split(2);
    net
}

/// Returns a key of this group.
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

/// Returns the node that is primary of this key.
fn primary(net: &Net, of: usize, key_of: &Key) -> usize {
    let group = net.nodes[of].group().expect("it is in one");
    let primary = group.primary_of(key_of.point()).expect("there is one").node.peer;
    (0..net.nodes.len()).find(|index| key(*index) == primary).expect("one of these")
}

/// Answers come over the connections that the question came over: to connect to its origin would take two more round trips, and here it is
/// not possible.
#[test]
fn an_answer_needs_no_connection_to_its_origin() {
    let mut net = two_groups(4);
    net.split(1);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    (2..4).for_each(|other| disconnect(&mut net, 0, other));
    net.begin_set(0, wanted.clone(), "v".into());
    net.run_for(Duration::from_secs(2));
    let owner = net.nodes[0].routing.table.find(wanted.point()).map(|owner| owner.ballot);
    assert_eq!(owner, net.nodes[2].group().expect("it is in one").primary_of(wanted.point()));
}

/// A peer that asked for an owner hears of the next one at once, and asks again. Otherwise an operation that waits for a dead primary would
/// notice that only at its timeout, after 600 ms, and again and again.
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

/// Counts of a node's outputs.
#[derive(Default)]
struct Said {
    /// The peers that answers went to.
    answers: Vec<PeerKey>,
    questions: usize,
    operations: usize,
    dials: usize,
}

/// Takes all outputs of this node.
fn drain(net: &mut Net, index: usize) -> Said {
    let mut said = Said::default();
    while let Some(output) = net.nodes[index].poll_output() {
        match output {
            Output::Send { to, frame, .. } => match wire::decode(&frame, None).expect("one of ours").1 {
                Frame::Located(_) => said.answers.push(to),
                Frame::Locate(_) => said.questions += 1,
                Frame::Group { message: Message::Client(message), .. } => said.operations += message.operations.len(),
                _ => {}
            },
            Output::Dial { .. } => said.dials += 1,
            _ => {}
        }
    }
    said
}

/// Returns an answer that makes this node the primary of all keys.
fn forge(net: &Net, point: Point, epoch: u64, node: usize) -> Located {
    let group = net.nodes[2].group().expect("it is in one");
    let mut located = Located::here(&net.nodes[2].replicas, point).expect("it owns that");
    located.group = GroupRef { range: KeyRange::FULL, epoch: Epoch(epoch), ..group.state().reference() };
    located.part = KeyRange::FULL;
    located.ballot = TermBallot { epoch: Epoch(epoch), node: net.nodes[node].id(), ..located.ballot };
    located
}

/// An unasked answer takes no operation away from its primary, and causes no connection to an address: the owner is asked for.
#[test]
fn an_answer_that_nobody_asked_for_is_a_question_at_most() {
    let mut net = two_groups(6);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    // The node was in the group that the other one split off from, and knows its primaries; it must ask for this one.
    let known = net.nodes[0].routing.table.find(wanted.point()).expect("it was there").ballot;
    net.nodes[0].routing.table.forget(wanted.point(), known);
    assert_eq!(net.put(0, vec![(wanted.clone(), "v".into())]), (1, vec![]));
    let owner = net.nodes[0].routing.table.find(wanted.point()).map(|owner| owner.ballot);
    net.begin_set(0, wanted.clone(), "w".into());
    assert_eq!(drain(&mut net, 0).operations, 1);
    let from =
        net.nodes[0].routing.table.find(wanted.point()).and_then(|owner| owner.told_by).expect("it was asked for");
    for stranger in (0..6).map(key).filter(|peer| *peer != from) {
        for epoch in 1_000..1_100 {
            let forged = forge(&net, wanted.point(), epoch, 1);
            net.nodes[0].on_admitted(stranger, Frame::Located(Box::new(forged)));
        }
    }
    net.nodes[0].handle(net.now, Input::Tick);
    let said = drain(&mut net, 0);
    assert_eq!((said.questions, said.operations, said.dials), (0, 0, 0));
    let forged = forge(&net, wanted.point(), 1_000, 1);
    net.nodes[0].on_admitted(from, Frame::Located(Box::new(forged)));
    net.nodes[0].handle(net.now, Input::Tick);
    let said = drain(&mut net, 0);
    assert_eq!(
        (said.questions, said.operations, said.dials),
        (1, 0, 0),
        "the peer that told of the owner says that there is another"
    );
    assert_eq!(net.nodes[0].routing.table.find(wanted.point()).map(|owner| owner.ballot), owner);
    let mut torn = Located::here(&net.nodes[2].replicas, wanted.point()).expect("it owns that");
    torn.ballot.epoch = Epoch(u64::MAX);
    let dropped = net.nodes[0].frames_dropped;
    net.nodes[0].on_admitted(from, Frame::Located(Box::new(torn)));
    assert_eq!(net.nodes[0].frames_dropped, dropped + 1, "a ballot is one of its group's epoch");
}

fn question(net: &Net, origin: Contact, wanted: &Key) -> Locate {
    let ring = net.nodes[0].group().expect("it is in one").state().ring;
    Locate { hops: 1, ..Locate::new(ring, wanted.point(), origin, Wanted::Owner) }
}

/// Two peers may ask for one origin, according to one of them: each gets the answers to its questions.
#[test]
fn no_peer_keeps_later_answers_from_an_origin() {
    let mut net = two_groups(6);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    let asked = question(&net, contact(77), &wanted);
    net.nodes[2].on_admitted(key(1), Frame::Locate(Box::new(asked.clone())));
    net.nodes[2].on_admitted(key(0), Frame::Locate(Box::new(asked)));
    let both = BTreeSet::from([key(0), key(1)]);
    assert_eq!(drain(&mut net, 2).answers.into_iter().collect::<BTreeSet<_>>(), both);
    let dead = (3..6).find(|index| net.nodes[*index].group().is_some_and(|group| !group.log().leads())).expect("one");
    net.cut[dead] = true;
    let before = net.nodes[2].group().expect("it is in one").primary_of(wanted.point());
    net.answered.clear();
    let later = |net: &Net| net.nodes[2].group().expect("it is in one").primary_of(wanted.point()) > before;
    net.run_until(|net| later(net) || net.now.time > Time(0) + Duration::from_secs(60));
    assert!(both.is_subset(&net.answered.iter().map(|(_, to)| *to).collect()), "{:?}", net.answered);
}

/// A question that comes back to the peer that asked is not answered by it.
#[test]
fn an_origin_sends_no_answer_on() {
    let mut net = two_groups(6);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    let asked = question(&net, net.contact(0), &wanted);
    net.nodes[0].on_admitted(key(1), Frame::Locate(Box::new(asked)));
    drain(&mut net, 0);
    let located = Located::here(&net.nodes[2].replicas, wanted.point()).expect("it owns that");
    net.nodes[0].on_admitted(key(2), Frame::Located(Box::new(located)));
    assert_eq!(drain(&mut net, 0).answers, []);
}

/// The question comes again on a longer way, since the peer that passed it on first is gone: the answer takes that way. If none is left,
/// the owner connects to the origin.
#[test]
fn an_answer_does_not_go_to_a_peer_that_is_gone() {
    let mut net = two_groups(6);
    let wanted = key_of(net.nodes[2].group().expect("it is in one"));
    let asked = question(&net, contact(77), &wanted);
    let now = net.now;
    net.nodes[2].on_admitted(key(0), Frame::Locate(Box::new(asked.clone())));
    assert_eq!(drain(&mut net, 2).answers, [key(0)]);
    net.nodes[2].handle(now, Input::PeerDown(key(0)));
    net.nodes[2].on_admitted(key(1), Frame::Locate(Box::new(Locate { hops: 3, ..asked.clone() })));
    assert_eq!(drain(&mut net, 2).answers, [key(1)]);
    net.nodes[2].on_admitted(key(0), Frame::Locate(Box::new(asked)));
    assert_eq!(drain(&mut net, 2).answers, [key(77)]);
}

/// A thousand questions of one peer for keys of one group are answered anew once for each sub-range.
#[test]
fn one_answer_is_enough_for_a_sub_range() {
    let mut net = two_groups(6);
    let group = net.nodes[2].group().expect("it is in one");
    let names = (0..).map(|n| Key::new(alloc::format!("k{n}").as_bytes()).expect("short"));
    let keys: Vec<Key> = names.filter(|key| group.state().range.contains(key.point())).take(1_000).collect();
    for wanted in &keys {
        let asked = question(&net, net.contact(0), wanted);
        net.nodes[2].on_admitted(key(0), Frame::Locate(Box::new(asked)));
    }
    assert_eq!(drain(&mut net, 2).answers.len(), 1_000);
    let dead = (3..6).find(|index| net.nodes[*index].group().is_some_and(|group| !group.log().leads())).expect("one");
    net.cut[dead] = true;
    let epoch = |net: &Net| net.nodes[2].group().expect("it is in one").state().epoch;
    let before = (net.answered.len(), epoch(&net));
    net.run_until(|net| epoch(net) > before.1 || net.now.time > Time(0) + Duration::from_secs(60));
    let answers = net.answered.len() - before.0;
    assert!(answers > 0 && answers < 100, "{answers} answers");
}
