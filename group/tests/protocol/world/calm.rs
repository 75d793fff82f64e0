//! The end of a random run: all faults end, everything comes to rest, and all keys hold the right values.

use group::Group;
use overlay::rng::Rng;

use super::World;

/// Ends all faults: everything comes to rest, and all keys hold the right values.
pub(super) fn calm(world: &mut World, rng: &mut Rng) {
    world.cut.clear();
    for index in 0..world.peers.len() {
        world.restart(index, false);
    }
    let all: Vec<usize> = (0..world.peers.len()).collect();
    let mut unrest = None;
    for round in 0..1_000 {
        quiet(world, &all, 5);
        if world.rules.torn && round == 500 {
            // A member that the rest waits for may have ended its incarnation.
            all.iter().for_each(|index| world.act(*index, |group| _ = group.accept_loss()));
        }
        unrest = world.unrest();
        if unrest.is_none() || world.wrong.is_some() {
            break;
        }
    }
    if let Some(unrest) = unrest {
        world.wrong.get_or_insert(format!("I16: no rest: {unrest}"));
    }
    if world.wrong.is_some() {
        return;
    }
    let calls: Vec<u64> = world.clients.calls.keys().copied().collect();
    calls.into_iter().for_each(|call| world.clients.give_up(call));
    if world.switches.is_some() {
        quiet(world, &all, 500);
        let counts = |group: &Group| group.primaries().map(|primary| primary.counts().in_flight).sum::<usize>();
        let stuck: usize = world.living().into_iter().map(|index| counts(world.group(index))).sum();
        if stuck > 0 {
            world.wrong.get_or_insert(format!("I16: {stuck} writes are in flight after 2 s of calm"));
            return;
        }
        spread_again(world, rng, &all);
    }
    for place in 0..world.clients.keys() {
        if !world.clients.is_free(place) {
            continue;
        }
        // A member that wanted to leave before may do so now, and its clients with it.
        while read_once(world, rng, &all, place) == Read::AskedALeaver {}
    }
}

/// Result of a read when all is calm.
#[derive(PartialEq, Eq)]
enum Read {
    /// The read was answered, or does not matter any more.
    Over,
    /// The member that was asked has left.
    AskedALeaver,
}

/// Reads this place through a member, until the member answers.
fn read_once(world: &mut World, rng: &mut Rng, all: &[usize], place: usize) -> Read {
    let members: Vec<usize> = world
        .latest()
        .nodes()
        .iter()
        .filter_map(|node| world.index(*node))
        .filter(|i| world.peers[*i].group.is_some())
        .collect();
    let index = members[rng.below(members.len() as u64) as usize];
    let origin = world.peers[index].node;
    let Some(call) = world.ask(index, place, true, 0) else { return Read::Over };
    for _ in 0..400 {
        quiet(world, all, 1);
        if !world.clients.calls.contains_key(&call) || world.wrong.is_some() {
            return Read::Over;
        }
        if world.index(origin).is_none() {
            world.clients.give_up(call);
            return Read::AskedALeaver;
        }
        if world.clients.tries(call).1 {
            world.attempt(call);
        }
    }
    world.wrong.get_or_insert(format!("I16: nobody answers {:?}", world.clients.calls[&call]));
    Read::Over
}

/// Checks that, when all is calm, a switch comes into use, its dirty set drains, and any member answers.
fn spread_again(world: &mut World, rng: &mut Rng, all: &[usize]) {
    let mut is_on = false;
    for round in 0..400 {
        if round % 80 == 0
            && let Some(leader) = world.free_leader()
        {
            world.change_switch(leader, true);
        }
        quiet(world, all, 1);
        let (current, member) = (world.switches.as_ref().map_or(0, |it| it.current), world.living()[0]);
        world.set_tables(current, member);
        is_on = world.is_spread() && world.dirty_objects() == 0;
        if is_on || !world.may_spread() {
            break;
        }
    }
    if !world.may_spread() {
        return; // A peer is still to become a member, or to leave.
    }
    if !is_on {
        let dirty = world.dirty_objects();
        world.wrong.get_or_insert(format!("I16: no switch comes to be used, or {dirty} objects stay dirty"));
        return;
    }
    let before = world.switches.as_ref().map_or(0, |it| it.spread);
    for _ in 0..100 {
        let current = world.switches.as_ref().map_or(0, |it| it.current);
        world.set_tables(current, world.living()[0]); // Parts may be divided anew meanwhile.
        let Some(place) = (0..world.clients.keys()).find(|place| world.clients.is_free(*place)) else { return };
        let members = world.living();
        let index = members[rng.below(members.len() as u64) as usize];
        if let Some(call) = world.begin(index, place, true, 0) {
            world.attempt_spread(call, rng);
            quiet(world, all, 1);
            world.clients.give_up(call);
        }
        if world.switches.as_ref().is_some_and(|it| it.spread > before) {
            break;
        }
    }
    if world.switches.as_ref().is_some_and(|it| it.spread == before) {
        world.wrong.get_or_insert("I16: no member answers a read that a switch sent it".into());
    }
}

fn quiet(world: &mut World, all: &[usize], steps: u32) {
    for _ in 0..steps {
        world.pass(4_000, all);
        world.ask_to_join(all);
        for _ in 0..50 {
            for packet in std::mem::take(&mut world.net) {
                world.deliver(packet);
            }
            for packet in world.switches.as_mut().map(|it| std::mem::take(&mut it.wire)).unwrap_or_default() {
                let chance = (world.now + world.clients.answered).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                world.deliver_switched(packet, chance as u32);
            }
            for index in all.iter().copied() {
                world.sync_all(index);
            }
            if world.net.is_empty() && world.switches.as_ref().is_none_or(|it| it.wire.is_empty()) {
                break;
            }
        }
    }
}
