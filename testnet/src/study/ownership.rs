//! Points of the ring that no peer serves, or several: observed from outside, at random points.

use overlay::Point;

use super::system::System;
use crate::rng::Rng;
use crate::sim::World;

/// Number of points that are looked at each time.
const POINTS: usize = 16;

/// Counts of points.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnershipCounts {
    /// Points that were looked at.
    pub points: u64,
    /// Points that no peer served.
    pub unserved: u64,
    /// Points that several peers served.
    pub contended: u64,
    /// Points that no peer served, or whose group was being reconfigured.
    pub reconfiguring: u64,
}

impl OwnershipCounts {
    /// Looks at some points.
    pub(super) fn look<S: System>(&mut self, world: &World<S>, rng: &mut Rng) {
        let hosts: Vec<&S> =
            (0..world.hosts()).filter(|host| world.is_ready(*host)).filter_map(|host| world.host(host)).collect();
        for _ in 0..POINTS {
            let point = Point(u128::from(rng.bits()) << 64 | u128::from(rng.bits()));
            let owners = hosts.iter().filter(|host| host.serves(point)).count();
            self.points += 1;
            self.unserved += u64::from(owners == 0);
            self.contended += u64::from(owners > 1);
            self.reconfiguring += u64::from(owners == 0 || hosts.iter().any(|host| host.reconfigures(point)));
        }
    }

    /// Returns a count in percent of all points; 0 where none was looked at.
    pub fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.points.max(1) as f64
    }
}
