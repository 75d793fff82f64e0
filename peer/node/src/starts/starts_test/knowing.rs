//! How a start becomes known, and how long it is remembered.

use super::*;

/// A node sends nothing before the counter of its start is durable, and the counter goes up with each start.
#[test]
fn nothing_is_said_before_the_start_is_durable() {
    let mut world = World::of_three(Defects::NONE);
    let mut disk = world.stop(2, true);
    for counter in 2..5 {
        let mut node = world.begin(2, &mut disk.clone());
        assert_eq!(node.status().start.counter, counter);
        let mut written = None;
        let later = Now { time: world.now.time + Duration::from_secs(1), ..world.now };
        node.handle(later, Input::Tick);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Send { .. } => panic!("it says something"),
                Output::Persist { token, changes } => {
                    changes.into_iter().for_each(|change| disk.apply(change));
                    written.get_or_insert(token);
                }
                _ => {}
            }
        }
        node.handle(later, Input::Persisted(written.expect("it writes the start")));
        let sends = core::iter::from_fn(|| node.poll_output()).filter(|output| matches!(output, Output::Send { .. }));
        assert!(sends.count() > 0, "then it does");
    }
}

/// Frames of a start that a member has not stored, or of an unknown lineage, wait until it is stored.
#[test]
fn a_new_start_counts_once_it_is_written_down() {
    let mut world = World::of_three(Defects::NONE);
    let now = world.now;
    let (member, ring) = (world.processes[0].node.id(), world.processes[0].node.ring.unwrap());
    let state = world.processes[0].node.group().unwrap().state().clone();
    let run = |run| Stamp { incarnation: member.incarnation, start: Start { counter: 9, run }, to: 0 };
    let message = group::message::Message::AskVouch;
    let sender = group::message::Sender { node: member, epoch: state.epoch };
    let asked = Frame::Group { ring, group: state.id, sender, message };
    let known = world.processes[0].node.starts.own().run;
    let node = &mut world.processes[1].node;
    let mut hear = |stamp: Stamp, frame: &Frame, persisted: bool| {
        node.handle(now, Input::Frame { from: key(0), frame: wire::encode(&stamp, frame, None) });
        let (mut told, mut token) = (Vec::new(), None);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Send { to, frame, .. } if to == key(0) => told.push(wire::decode(&frame, None).unwrap()),
                Output::Persist { token: written, .. } if persisted => node.handle(now, Input::Persisted(written)),
                Output::Persist { token: written, .. } => token = Some(written),
                _ => {}
            }
        }
        if let Some(token) = token {
            node.handle(now, Input::Persisted(token));
            let late = core::iter::from_fn(|| node.poll_output());
            let vouches = late.filter(|output| matches!(output, Output::Send { to, .. } if *to == key(0))).count();
            return (told, vouches);
        }
        (told, 0)
    };
    let (told, _) = hear(run(5), &asked, false);
    assert!(
        matches!(&told[..], [(stamp, Frame::Started)] if stamp.to == known),
        "first its lineage is asked for: {told:?}"
    );
    let lineage = Frame::Lineage([&[1; 7], &[known][..]].concat());
    assert!(matches!(hear(run(5), &lineage, false), (told, 1) if told.is_empty()), "then it is written down");
    let (told, _) = hear(run(5), &asked, true);
    assert!(matches!(&told[..], [(Stamp { to: 5, .. }, Frame::Group { .. })]), "then it is known: {told:?}");
    let (told, _) = hear(run(6), &asked, true);
    let refused = |frame: &Frame| matches!(frame, Frame::Refused(refused) if refused.known.run == 5);
    assert!(matches!(&told[..], [(Stamp { to: 6, .. }, frame)] if refused(frame)), "another is refused: {told:?}");
    let (told, _) = hear(Stamp { to: 77, ..run(5) }, &asked, true);
    assert!(
        told.iter().all(|(_, frame)| *frame == Frame::Lineage(Vec::new())),
        "what was for another process is not read: {told:?}"
    );
}

/// A stored start of a node that is in no group here any more stays known: frames of another start pass, but replace nothing.
#[test]
fn a_stranger_does_not_replace_a_start_that_was_written_down() {
    let mut world = World::of_three(Defects::NONE);
    let node = NodeId { peer: key(7), incarnation: Incarnation(1) };
    let member = &mut world.processes[1].node;
    for (counter, written, known) in [(1, Written::No, 1), (2, Written::No, 2), (3, Written::Yes, 2)] {
        if let Some(known) = member.starts.known.get_mut(&node) {
            known.written = written;
        }
        let stamp = Stamp { incarnation: node.incarnation, start: Start { counter, run: counter }, to: 0 };
        assert_eq!(member.admit(key(7), stamp, Frame::Started, 9), Some(Frame::Started));
        assert_eq!(member.starts.known[&node].start.counter, known);
    }
}

/// Remembered starts of nodes that are gone are limited.
#[test]
fn starts_of_nodes_that_are_gone_are_forgotten() {
    let mut world = World::of_three(Defects::NONE);
    let now = world.now;
    for stranger in 0..2 * STRANGERS_MAX {
        let mut peer = [0xee; 32];
        peer[..8].copy_from_slice(&stranger.to_le_bytes());
        let start = Start { counter: 1, run: 7 };
        let stamp = Stamp { incarnation: Incarnation(1), start, to: 0 };
        let frame = wire::encode(&stamp, &Frame::Started, None);
        world.processes[1].node.handle(now, Input::Frame { from: PeerKey(peer), frame });
        if stranger % 16 == 0 {
            let node = NodeId { peer: PeerKey(peer), incarnation: Incarnation(1) };
            world.processes[1].node.starts.known.get_mut(&node).unwrap().written = Written::Yes;
        }
    }
    world.run_for(Duration::from_secs(12));
    let starts = &world.processes[1].node.starts;
    let written = starts.known.values().filter(|known| known.written == Written::Yes).count();
    assert_eq!((starts.known.len(), written), (STRANGERS_MAX + GONE_MAX + 2, GONE_MAX + 2));
}

/// A new name at a start replaces the one that all members know.
#[test]
fn another_name_at_a_start_is_learned_by_all() {
    let mut world = World::of_three(Defects::NONE);
    let known = |world: &World| -> Vec<Option<String>> {
        let of = |process: &Process| {
            let state = process.node.group().expect("it is in one").state();
            let member = state.members.iter().find(|member| member.node.peer == key(2)).expect("it stays a member");
            member.name.as_ref().map(ToString::to_string)
        };
        world.processes.iter().filter(|process| process.is_up).map(of).collect()
    };
    assert_eq!(known(&world), [None, None, None]);
    let mut life = world.processes[2].node.id();
    for name in ["oak", "elm"] {
        world.names.insert(2, name.parse().unwrap());
        let process = world.processes.len() - 1;
        let disk = world.stop(process, true);
        let process = world.start(2, disk);
        world.run_until("the name is known", |world| known(world) == vec![Some(name.into()); 3]);
        let next = world.processes[process].node.id();
        assert_eq!(core::mem::replace(&mut life, next), next, "it went on with what it had");
    }
}
