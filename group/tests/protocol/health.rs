//! The members that live and vote are counted, and not those that died.

use std::time::Duration;

use group::config::{Defect, Defects};

use crate::removals::{after, led, without};

/// Returns how many members the leader counts in a group of `members` of which `dead` died, and how many are still members then.
fn counted(members: usize, dead: usize, defects: Defects) -> (usize, usize) {
    let (mut world, leader, all) = led(members, 0, defects);
    let gone = after(leader, members, 0..dead);
    gone.iter().for_each(|index| world.crash(*index));
    // Long enough for all of them to be dead, and not for all of them to be removed.
    world.run(600, &without(&all, &gone));
    let group = world.group(leader);
    assert!(group.log().leads(), "{:#?}", world.notes);
    (group.strength(), group.state().members.len())
}

#[test]
fn dead_members_do_not_count() {
    assert_eq!(counted(9, 4, Defects::NONE), (5, 6));
    assert_eq!(counted(13, 6, Defects::NONE), (7, 9));
    assert_eq!(counted(9, 4, Defects::NONE.with(Defect::DeadCounted)), (6, 6));
}

/// A member that announced an absence counts until that is over, and is not heard.
#[test]
fn an_announced_absence_counts() {
    let (mut world, leader, all) = led(5, 0, Defects::NONE);
    let away = after(leader, 5, 0..1);
    let rest = without(&all, &away);
    let node = world.peers[away[0]].node;
    world.peers[away[0]].group.as_mut().expect("it runs").stop_soon(Duration::from_secs(2));
    world.run(100, &all);
    world.crash(away[0]);
    world.run(600, &rest);
    let living = world.group(leader).living();
    let silent: Vec<_> = living.iter().filter(|member| !member.is_heard).map(|member| member.node).collect();
    assert_eq!((silent.as_slice(), world.group(leader).strength()), ([node].as_slice(), 5), "{:#?}", world.notes);
    world.run(2_500, &rest);
    assert_eq!(world.group(leader).strength(), 4);
}
