//! The promises and acceptances of an acceptor never go down, for one identity (I12).

use std::collections::BTreeMap;
use std::ops::Bound;

use overlay::{Epoch, GroupId, Key, KeyRange, NodeId, Point};

use super::observation::Ballot;

/// Number of points of the ring that are watched at each node.
const POINTS_MAX: usize = 64;

/// Observations so far.
#[derive(Debug, Default)]
pub struct Monotone {
    control: BTreeMap<(GroupId, NodeId), (Epoch, u64, NodeId)>,
    epochs: BTreeMap<(GroupId, NodeId), Epoch>,
    promises: BTreeMap<NodeId, BTreeMap<Point, Ballot>>,
    accepted: BTreeMap<(NodeId, Key), Ballot>,
}

impl Monotone {
    /// Takes the next observation of this node, if there is one, as the first.
    pub fn forget(&mut self, node: NodeId) {
        self.control.retain(|(_, of), _| *of != node);
        self.epochs.retain(|(_, of), _| *of != node);
        self.promises.remove(&node);
        self.accepted.retain(|(of, _), _| *of != node);
    }

    /// Checks a promise for the group's log.
    pub fn on_control(&mut self, group: GroupId, node: NodeId, promise: (Epoch, u64, NodeId)) -> Result<(), String> {
        let last = self.control.insert((group, node), promise);
        match last {
            Some(last) if last > promise => Err(format!("{node:?} had promised {last:?}, and now {promise:?}")),
            _ => Ok(()),
        }
    }

    /// Checks the newest epoch of a node in a group.
    pub fn on_epoch(&mut self, group: GroupId, node: NodeId, epoch: Epoch) -> Result<(), String> {
        match self.epochs.insert((group, node), epoch) {
            Some(last) if last > epoch => Err(format!("{node:?} was in {last:?}, and now in {epoch:?}")),
            _ => Ok(()),
        }
    }

    /// Checks a promise for a range.
    pub fn on_promised(&mut self, node: NodeId, range: KeyRange, ballot: Ballot) -> Result<(), String> {
        let points = self.promises.entry(node).or_default();
        let (start, end) = (range.start(), range.end());
        let mut check = |from: Bound<Point>, to: Bound<Point>| {
            for (point, last) in points.range_mut((from, to)) {
                if *last > ballot {
                    return Err(format!("{node:?} had promised {last:?} at {point}, and now {ballot:?}"));
                }
                *last = ballot;
            }
            Ok(())
        };
        if start < end {
            check(Bound::Included(start), Bound::Excluded(end))?;
        } else {
            // Round the top of the ring, or all of it.
            check(Bound::Included(start), Bound::Unbounded)?;
            check(Bound::Unbounded, Bound::Excluded(end))?;
        }
        if points.len() < POINTS_MAX {
            points.insert(range.start(), ballot);
        }
        Ok(())
    }

    /// Checks a key's accepted state.
    pub fn on_accepted(&mut self, node: NodeId, key: &Key, ballot: Ballot) -> Result<(), String> {
        match self.accepted.insert((node, key.clone()), ballot) {
            Some(last) if last > ballot => {
                Err(format!("{node:?} had {key:?} under {last:?}, and now under {ballot:?}"))
            }
            _ => Ok(()),
        }
    }
}
