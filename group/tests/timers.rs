//! When a member wants to be woken: nobody should be busy with waiting.

mod world;

use group::time::Time;
use world::{Rules, World};

/// A primary that waits for leases that it does not know does not ask for one of its own; that this would be due is no
/// reason to be woken.
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
