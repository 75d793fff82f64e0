//! Wake-ups of a member: waiting must cost no work.

use std::collections::VecDeque;

use overlay::time::Time;

use crate::world::{Packet, Rules, World};

/// A primary that waits for leases that it does not know does not ask for a lease of its own. That this question would be due is no reason
/// to be woken.
#[test]
fn who_waits_for_older_leases_rests_meanwhile() {
    let mut world = World::new(Rules { leases: true, drift: 0, ..Rules::of(1, 0) }, 1);
    let is_serving = |world: &World| world.group(0).primaries().any(|primary| primary.is_serving());
    let mut waited = 0;
    while !is_serving(&world) {
        world.pass(1000, &[0]);
        world.sync_all(0);
        let now = Time(world.now * 1000);
        let next = world.peers[0].group.as_mut().expect("it lives").next_timeout();
        assert!(next > now, "after {waited} ms, at {now:?}, it wants to be woken at {next:?}");
        waited += 1;
    }
    assert!(waited > 40, "there is something to wait for, and it was no lease that is over after {waited} ms");
}

/// All members have sealed an epoch, one is gone, and every message takes longer than the time after which a member ends the epoch itself.
/// An attempt in progress is not begun anew meanwhile, so it comes to its end.
#[test]
fn an_attempt_to_end_an_epoch_is_given_time() {
    const WAY: u64 = 30_000;
    let mut world = World::new(Rules::of(3, 0), 1);
    world.run(4_000, &[0, 1, 2]);
    world.crash(2);
    let epoch = world.epoch();
    let mut sent: VecDeque<(u64, Packet)> = VecDeque::new();
    world.act(0, |group| group.stop_epoch());
    for step in 0..20_000_u64 {
        world.pass(1_000, &[0, 1]);
        [0, 1].into_iter().for_each(|index| world.sync_all(index));
        let now = world.now;
        sent.extend(std::mem::take(&mut world.net).into_iter().map(|packet| (now + WAY, packet)));
        while sent.front().is_some_and(|(due, _)| *due <= now) {
            let (_, packet) = sent.pop_front().expect("there is one");
            world.deliver(packet);
        }
        if step % 100 == 0 && [0, 1].iter().all(|index| world.group(*index).state().epoch > epoch) {
            return assert!(step < 2_000, "after {step} ms");
        }
    }
    panic!("it never ends: {:#?}", world.notes);
}
