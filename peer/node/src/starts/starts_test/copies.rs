//! Directories that were put back to older copies, and networks that stop as a whole.

use super::*;

#[test]
fn a_store_that_went_back_in_time_is_not_counted() {
    for sealed in [true, false] {
        for knower_first in [true, false] {
            assert_eq!(put_back(Defects::NONE, sealed, knower_first), value("new"), "{sealed} {knower_first}");
        }
    }
}

/// A copy of a directory from before the peer's last start is put back, and its journal's end is bad. The peer knows that it may have
/// forgotten any data, and goes on in the same incarnation, once the members that know more have reported.
#[test]
fn a_torn_store_that_lost_its_last_start_goes_on() {
    let (mut world, copy, c) = copied(Defects::NONE, false);
    let c = world.start(2, c);
    let a = world.start(0, Disk { is_torn: true, ..copy });
    assert_eq!(world.get(c), value("new"));
    let is_sure = |world: &World| {
        let group = world.processes[a].node.group();
        group.is_some_and(|group| group.state().is_member(group.me()) && group.doubt().is_none())
    };
    world.run_until("it is sure again", is_sure);
    assert_eq!((world.processes[a].lives, world.processes[a].node.starts.own().counter), (0, 3));
    assert_eq!(world.get(a), value("new"));
    // So does its next start.
    let disk = world.stop(a, true);
    let a = world.start(0, disk);
    world.stop(c, false);
    assert_eq!(world.get(a), value("new"));
}

/// The same, where the only member that knows more is away: no process answers from the old data.
#[test]
fn a_torn_older_copy_waits_for_who_knows_more() {
    let (mut world, copy, c) = copied(Defects::NONE, false);
    let b = world.stop(1, false);
    let c = world.start(2, c);
    let a = world.start(0, Disk { is_torn: true, ..copy });
    world.run_for(Duration::from_secs(10));
    assert!(world.ask(c, Op::Read(Read::Value)).is_err() && world.ask(a, Op::Read(Read::Value)).is_err());
    world.start(1, b);
    assert_eq!(world.get(c), value("new"));
    assert_eq!(world.processes[a].lives, 0);
}

/// A majority is put back to older copies with torn journals. No other member acknowledged its later writes, so no member serves the
/// old data before an operator has decided.
#[test]
fn a_torn_majority_that_was_put_back_does_not_serve() {
    for torn in [false, true] {
        let mut world = World::of_three(Defects::NONE);
        world.set(1, "old");
        let copy_a = world.stop(0, false);
        let a = world.start(0, copy_a.clone());
        world.get(a);
        let copy_b = world.stop(1, false);
        let b = world.start(1, copy_b.clone());
        world.get(b);
        world.run_for(Duration::from_secs(2));
        let c = world.stop(2, true);
        world.set(b, "new");
        world.stop(a, false);
        world.stop(b, false);
        let c = world.start(2, c);
        let a = world.start(0, Disk { is_torn: torn, ..copy_a });
        let b = world.start(1, Disk { is_torn: torn, ..copy_b });
        world.run_for(Duration::from_secs(60));
        for process in [a, b, c] {
            assert_ne!(world.ask(process, Op::Read(Read::Value)), Ok(value("old")), "{torn}");
        }
        if torn {
            assert_eq!((world.processes[a].lives, world.processes[b].lives), (0, 0), "what they hold is kept");
            let waiting = world.processes[a].node.group().expect("it is in one").in_doubt().waiting_for;
            assert_eq!(waiting.len(), 2, "a person is told of both");
        }
    }
}

/// A copy from a time when the peer was alone knows none of the members that refuse it, and would go on by itself.
#[test]
fn a_copy_from_when_a_peer_was_alone_does_not_go_on() {
    for times in [1, 3] {
        let mut world = World::empty(Defects::NONE);
        let a = world.start(0, Disk::default());
        world.set(a, "old");
        let copy = world.stop(a, true);
        let a = world.start(0, copy.clone());
        let (b, _) = (world.start(1, Disk::default()), world.start(2, Disk::default()));
        world.run_until("three members", |world| {
            let states = world.processes[1..].iter().filter_map(|process| process.node.group()).map(Group::state);
            states.filter(|state| state.members.len() == 3 && state.recovery.is_empty()).count() == 3
        });
        world.set(b, "new");
        world.stop(a, true);
        let mut disk = copy;
        for _ in 1..times {
            let a = world.start(0, disk);
            disk = world.stop(a, false);
        }
        let a = world.start(0, disk);
        world.run_for(Duration::from_secs(1));
        assert!(world.ask(a, Op::Read(Read::Value)) != Ok(value("old")), "{times}");
        world.run_until("a new life", |world| world.processes[a].lives == 1);
        assert_eq!(world.get(a), value("new"));
    }
}

/// Without starts the write is lost, or a correct member panics.
#[test]
fn without_starts_writes_are_lost() {
    let defects = Defects::NONE.with(Defect::StartsIgnored);
    for knower_first in [true, false] {
        let outcome = catch_unwind(|| put_back(defects, true, knower_first));
        assert!(outcome.is_err() || outcome.is_ok_and(|value| value != self::value("new")), "{knower_first}");
    }
    let outcome = catch_unwind(|| twins::doubled(defects, true, false));
    assert!(outcome.is_err() || outcome.is_ok_and(|(_, acknowledged, value)| value < acknowledged), "two processes");
}

/// All stop, in order or not, and come back in any order.
#[test]
fn a_whole_network_comes_back_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for sealed in 0..8_u8 {
            let mut world = World::of_three(Defects::NONE);
            world.set(0, "there");
            let disks: Vec<Disk> =
                order.iter().map(|peer| world.stop(*peer, sealed >> peer & 1 == 1 && *peer != order[2])).collect();
            let mut last = 0;
            for (peer, disk) in order.into_iter().zip(disks) {
                last = world.start(peer as u8, disk);
                world.run_for(Duration::from_millis(300));
            }
            assert_eq!(world.get(last), value("there"), "{order:?}, sealed {sealed:b}");
            assert!(world.processes.iter().all(|process| process.lives == 0 && process.twin.is_none()));
        }
    }
}

/// All of them are rolled back together, as from copies of a stopped network: no process knows of later writes.
#[test]
fn copies_of_a_whole_network_serve_what_they_hold() {
    let mut world = World::of_three(Defects::NONE);
    world.set(0, "old");
    let copies: Vec<Disk> = (0..3).map(|process| world.stop(process, process < 2)).collect();
    let first: Vec<usize> = copies.iter().zip(0..).map(|(disk, peer)| world.start(peer, disk.clone())).collect();
    world.set(first[0], "new");
    first.iter().for_each(|process| drop(world.stop(*process, false)));
    let again: Vec<usize> = copies.into_iter().zip(0..).map(|(disk, peer)| world.start(peer, disk)).collect();
    assert_eq!(world.get(again[0]), value("old"));
    assert!(world.processes.iter().all(|process| process.lives == 0 && process.twin.is_none()));
}
