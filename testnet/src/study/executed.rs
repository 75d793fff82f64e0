//! Operations that each machine has executed. The peers of a machine, one after the other, count as one.

use super::system::System;
use crate::sim::World;

/// Counts by machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Executed {
    /// By machine: the peer's own count when it was last looked at.
    last: Vec<u64>,
    /// By machine: operations while they were counted.
    sums: Vec<u64>,
}

impl Executed {
    pub(super) fn new(hosts: usize) -> Executed {
        Executed { last: vec![0; hosts], sums: vec![0; hosts] }
    }

    /// Looks at all machines.
    pub(super) fn look<S: System>(&mut self, world: &World<S>, counts: bool) {
        (0..world.hosts()).for_each(|host| self.look_at(world, host, counts));
    }

    /// Looks at a machine before its peer dies.
    pub(super) fn look_last<S: System>(&mut self, world: &World<S>, host: usize, counts: bool) {
        self.look_at(world, host, counts);
        self.last[host] = 0;
    }

    fn look_at<S: System>(&mut self, world: &World<S>, host: usize, counts: bool) {
        let Some(now) = world.host(host).map(S::executed) else { return };
        // A peer forgets the operations of a group that it is not a member of any more.
        let more = now.checked_sub(self.last[host]).unwrap_or(now);
        self.last[host] = now;
        self.sums[host] += if counts { more } else { 0 };
    }

    /// Returns the operations of each machine.
    pub(super) fn by_machine(&self) -> &[u64] {
        &self.sums
    }
}
