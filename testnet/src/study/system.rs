//! The systems that a study can be of: ours, and the baseline.

use std::collections::BTreeMap;

use group::Group;
use node::Node;
use overlay::{PeerKey, Point};

use super::groups::Groups;
use crate::baseline;
use crate::sim::{Host, World};

/// A system whose peers run in the world of a study.
pub trait System: Host {
    /// Name of the system in tables.
    const NAME: &'static str;

    /// Counts the groups of a network; nothing where the system has none. `births`: whether this look is part of the means, and the
    /// birth of each peer, in seconds.
    fn count_groups(_: &World<Self>, _: &mut Groups, _births: Option<&BTreeMap<PeerKey, f64>>) {}

    /// Returns the number of client operations that this peer has executed, as primary or as root. Smaller than before where the peer
    /// forgot some of them.
    fn executed(&self) -> u64;

    /// Returns whether the peer would execute an operation on a key at this point now.
    fn serves(&self, point: Point) -> bool;

    /// Returns whether the peer knows that the group that owns this point is being reconfigured.
    fn reconfigures(&self, point: Point) -> bool;
}

impl System for Node {
    const NAME: &'static str = "Scatter";

    fn count_groups(world: &World<Node>, groups: &mut Groups, births: Option<&BTreeMap<PeerKey, f64>>) {
        groups.count(world, births);
    }

    fn executed(&self) -> u64 {
        self.operations_taken()
    }

    fn serves(&self, point: Point) -> bool {
        let serves =
            |group: &Group| group.primaries().any(|primary| primary.is_serving() && primary.range().contains(point));
        self.groups().any(serves)
    }

    /// A member of a transaction that is not over, or of a group whose next configuration is proposed.
    fn reconfigures(&self, point: Point) -> bool {
        let is_open = |group: &Group| {
            let state = group.state();
            let ends = || group.log().undecided(state.applied).iter().any(group::control::state::Entry::ends_epoch);
            !state.transactions.is_calm() || ends()
        };
        self.groups().any(|group| group.state().range.contains(point) && is_open(group))
    }
}

impl System for baseline::Peer {
    const NAME: &'static str = "DHT model";

    fn executed(&self) -> u64 {
        baseline::Peer::executed(self)
    }

    fn serves(&self, point: Point) -> bool {
        self.is_root(point)
    }

    fn reconfigures(&self, _: Point) -> bool {
        false
    }
}
