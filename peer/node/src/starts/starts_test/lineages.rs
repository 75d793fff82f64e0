//! Descent of starts: copies that are started often, and the memory of their lineages.

use super::*;

/// The copy of a running process is started so often that its lineage does not reach back to the start that members know.
#[test]
fn a_copy_in_a_restart_loop_does_not_pass_the_running_original() {
    let mut world = World::of_three(Defects::NONE);
    world.set(1, "old");
    let copy = world.stop(0, true);
    let original = world.start(0, copy.clone());
    world.get(original);
    // No member hears these copies yet.
    let (mut disk, mut copies) = (copy, Vec::new());
    for _ in 0..70 {
        let next = world.processes.len();
        world.cut.extend([(next, 1), (next, 2), (next, original)]);
        let started = world.start(0, disk);
        disk = world.stop(started, false);
        copies.push(started);
    }
    let twin = world.start(0, disk);
    world.run_for(Duration::from_secs(30));
    assert!(
        world.processes[original].is_up && world.processes[original].lives == 0,
        "{:?}",
        world.processes[original].said
    );
    assert!(
        world.processes[twin].twin.is_some() || world.processes[twin].lives == 1,
        "{:?}",
        world.processes[twin].said
    );
    assert_eq!(world.get(original), value("old"));
}

/// Once the known start is gone, such a much later one counts after a while.
#[test]
fn a_start_after_very_many_that_nobody_heard_counts() {
    let mut world = World::of_three(Defects::NONE);
    world.set(1, "there");
    let mut disk = world.stop(0, true);
    for _ in 0..70 {
        let next = world.processes.len();
        world.cut.extend([(next, 1), (next, 2)]);
        let started = world.start(0, disk);
        disk = world.stop(started, false);
    }
    let last = world.start(0, disk);
    assert_eq!(world.get(last), value("there"));
    assert_eq!((world.processes[last].lives, &world.processes[last].twin), (0, &None));
}

/// A start whose lineage did not arrive, at a member that never heard the peer before, does not pass by its counter, neither there nor
/// at members that know more.
#[test]
fn a_start_without_a_lineage_does_not_pass() {
    let mut world = World::empty(Defects::NONE);
    // The peer is a member all the time: a removed one has no start that counts.
    world.exclude_after = Duration::from_secs(10);
    for peer in [0, 1, 3] {
        world.start(peer, Disk::default());
    }
    let has = |world: &World, count: usize| {
        let state = world.processes[1].node.group().map(Group::state);
        state.is_some_and(|state| state.members.len() == count && state.recovery.is_empty())
    };
    world.run_until("three members", |world| has(world, 3));
    world.set(1, "old");
    let copy = world.stop(0, true);
    let original = world.start(0, copy.clone());
    world.get(original);
    world.set(original, "new");
    world.run_for(Duration::from_secs(2));
    let real = world.stop(original, false);
    let newcomer = world.start(2, Disk::default());
    world.run_until("four members", |world| has(world, 4));
    let mut disk = copy;
    for _ in 0..3 {
        let next = world.processes.len();
        world.cut.extend([(next, 1), (next, 2), (next, newcomer)]);
        let started = world.start(0, disk);
        disk = world.stop(started, false);
    }
    let next = world.processes.len();
    world.cut.extend([(next, 1), (next, 2), (next, newcomer)]);
    let old = world.start(0, disk);
    // Its first frames are lost; only the newcomer hears it.
    world.cut.retain(|cut| *cut != (old, newcomer));
    world.run_for(Duration::from_millis(600));
    let id = world.processes[old].node.id();
    let real = world.start(0, real);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.processes[1].node.starts.known[&id].start.counter, 3);
    world.cut.clear();
    world.run_for(Duration::from_secs(40));
    // The newcomer refused it, so it may have begun a new incarnation; the copy does not end it.
    assert!(world.processes[real].is_up, "{:?}", world.processes[real].twin);
    assert_eq!(world.get(real), value("new"));
}

/// A member still knows the starts before a known one after its own restart, also if it learned them late.
#[test]
fn lineages_outlast_a_restart() {
    let mut world = World::of_three(Defects::NONE);
    let first = world.processes[0].node.starts.own().run;
    let member = world.processes[0].node.id();
    let disk = world.stop(0, true);
    let again = world.start(0, disk);
    world.get(again);
    for member_of in [1, 2] {
        let known = &world.processes[member_of].node.starts.known[&member];
        assert_eq!((known.before.as_slice(), known.written), ([first].as_slice(), Written::Yes));
    }
    // This member knows the start from a time when no lineage was reported.
    let known = world.processes[1].node.starts.known.get_mut(&member).unwrap();
    let lineage = Lineage { before: core::mem::take(&mut known.before), start: known.start };
    let node = &mut world.processes[1].node;
    assert!(!node.starts.on_lineage(&mut crate::context::context!(node), member, lineage), "no frame waits for it");
    world.settle();
    let disk = world.stop(1, false);
    let b = world.start(1, disk);
    assert_eq!(world.processes[b].node.starts.known[&member].before, [first]);
}

/// A copy that was put back is started again and again, so its counter passes that of the start that a member knows. `refused`: a
/// member is there from the copy's first start on, and refuses it. `restarted`: so is the member that knows the start, after a
/// restart. Returns the value that is read once all are back.
fn started_again(defects: Defects, refused: bool, restarted: bool) -> Answer {
    let (mut world, copy, c) = copied(defects, true);
    let mut b = world.stop(1, false);
    let c = if refused { Ok(world.start(2, c)) } else { Err(c) };
    let knower = restarted.then(|| world.start(1, b.clone()));
    let mut a = world.start(0, copy);
    if let Some(knower) = knower {
        world.run_for(Duration::from_secs(2));
        b = world.stop(knower, false);
    }
    for _ in 0..3 {
        world.run_for(Duration::from_secs(2));
        let disk = world.stop(a, false);
        a = world.start(0, disk);
    }
    let c = c.unwrap_or_else(|disk| world.start(2, disk));
    world.run_for(Duration::from_secs(3));
    if !defects.has(Defect::LineageIgnored) {
        assert!(world.ask(c, Op::Read(Read::Value)).is_err(), "nobody answers from what was old");
    }
    world.start(1, b);
    world.get(c)
}

#[test]
fn a_copy_that_is_started_again_is_not_counted() {
    for (refused, restarted) in [(true, false), (false, false), (true, true), (false, true)] {
        assert_eq!(started_again(Defects::NONE, refused, restarted), value("new"), "{refused} {restarted}");
        let defects = Defects::NONE.with(Defect::LineageIgnored);
        let outcome = catch_unwind(|| started_again(defects, refused, restarted));
        assert!(
            restarted || outcome.is_err() || outcome.is_ok_and(|read| read != value("new")),
            "by counters alone it is: {refused}"
        );
    }
}
