//! The owners of keys that no group here owns (`docs/design/routing.md`; Scatter §3.2, §7.2).
//!
//! A question goes from peer to peer, each time nearer to the key, until it reaches a peer of the group that owns the key. The origin gets
//! the answer and remembers it. So all but the first operation on a part of the ring go straight to its primary, which executes them under
//! its ballot or not at all. A remembered primary may be old; then it costs time.
//!
//! The answer goes to the origin itself where the two are connected, and else back hop by hop (`questions.rs`). No hop learns from it,
//! since the cell of its table is filled. But a hop that took a peer for a member of another group is told the peer's group ([`Astray`]).
//! So each question corrects the wrong hints on its way, and two peers that take each other for the owner do so once.

pub mod join;
pub(crate) mod probing;
pub(crate) mod questions;
pub(crate) mod refresh;
pub(crate) mod ring_walk;
pub(crate) mod successor_search;
mod table;

pub(crate) use table::RoutingTable;

use alloc::vec::Vec;
use core::cmp::Reverse;

use group::Group;
use group::ballot::TermBallot;
use group::control::agreed::MEMBERS_MAX;
use group::control::state::EpochConfig;
use overlay::time::Time;
use overlay::{Contact, Epoch, GroupId, GroupRef, KeyRange, NodeId, Point, RingId, Way};
use serde::{Deserialize, Serialize};

use crate::replicas::LocalReplicas;
use crate::routing::join::JoinSearch;
use crate::routing::probing::Probes;
use crate::routing::ring_walk::RingWalks;
use crate::routing::successor_search::SuccessorSearch;

/// Question for the owner of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locate {
    /// The ring.
    pub ring: RingId,
    /// The point.
    pub point: Point,
    /// The peer to answer.
    pub origin: Contact,
    /// Content of the answer.
    pub wanted: Wanted,
    /// Direction round the ring.
    pub way: Way,
    /// Number of peers that have passed it on.
    pub hops: u8,
    /// Group and epoch that the last hop expects at the receiver.
    pub taken_for: Option<(GroupId, Epoch)>,
}

/// Report that a peer is not a member of the group that it was taken for, or that the group has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Astray {
    /// The ring.
    pub ring: RingId,
    /// Group and epoch that were expected of the sender.
    pub taken_for: (GroupId, Epoch),
    /// The present state of that group, or else the group of the sender, if it has one.
    pub group: Option<GroupRef>,
}

/// Content of the answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// The owner of the point, and its primary: [`Located`].
    Owner,
    /// The information that a newcomer needs before it joins: [`crate::routing::join::Sampled`].
    Sample,
}

/// Number of members of a group's configuration that one of its members hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Epoch of the configuration: the group's own, or an earlier one whose members may store writes that the group's members have not
    /// copied yet.
    pub epoch: Epoch,
    /// Number of members heard within the failure detection interval, including the reporting one, as far as their votes count. Votes of
    /// members in doubt do not count as long as the group waits because of them.
    pub members: u32,
    /// Number of members needed: of the group's own configuration a majority, of a former one half.
    pub needed: u32,
    /// Number of members of the configuration.
    pub of: u32,
}

impl Heard {
    /// Returns the numbers as this group's member hears them, for one of the configurations that the group needs: the one that is closest
    /// to lacking members, or that lacks most.
    pub(crate) fn of(group: &Group) -> Heard {
        Heard::with_unheard(group).0
    }

    /// Returns the same for the group's own configuration.
    pub(crate) fn own(group: &Group) -> Heard {
        let needed = group.needed_configs().pop().expect("a group's own configuration comes last");
        Heard::in_config(group, &needed).0
    }

    /// Returns the same as `of`, and all unheard members of that configuration and of the group's own.
    fn with_unheard(group: &Group) -> (Heard, Vec<NodeId>) {
        let all: Vec<_> = group.needed_configs().iter().map(|config| Heard::in_config(group, config)).collect();
        let (_, own) = all.last().expect("a group's own configuration comes last").clone();
        let surplus = |heard: &Heard| i64::from(heard.members) - i64::from(heard.needed);
        let least = all.into_iter().min_by_key(|(heard, _)| (surplus(heard), Reverse(heard.epoch)));
        let (heard, mut unheard) = least.expect("one at least");
        unheard.extend(own);
        unheard.sort_unstable();
        unheard.dedup();
        (heard, unheard)
    }

    /// Returns the numbers for one configuration, with its unheard members. Members in doubt about it count as unheard as long as the group
    /// waits because of them: their votes do not count then.
    fn in_config(group: &Group, config: &EpochConfig) -> (Heard, Vec<NodeId>) {
        let (me, hears, doubt) = (group.me(), group.hears(), group.in_doubt_of(config));
        let is_missed = |node: &NodeId| {
            let is_in_doubt = !doubt.waiting_for.is_empty() && doubt.members.contains(node);
            is_in_doubt || (*node != me && !hears.contains(node))
        };
        let unheard: Vec<NodeId> = config.members.iter().copied().filter(is_missed).collect();
        let (of, needed) = (config.members.len() as u32, group.state().needed_of(config) as u32);
        (Heard { epoch: config.epoch, members: of - unheard.len() as u32, needed, of }, unheard)
    }

    /// Returns whether there are enough members for the group to answer operations. If not, operations on a part of its range, or on all of
    /// it, are not answered.
    pub fn is_quorum(&self) -> bool {
        self.members >= self.needed
    }
}

/// Owner of a point, and its primary there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The ring.
    pub ring: RingId,
    /// The point of the question.
    pub point: Point,
    /// The group that owns it.
    pub group: GroupRef,
    /// The sub-range that contains the point.
    pub part: KeyRange,
    /// The ballot under which the primary executes operations there.
    pub ballot: TermBallot,
    /// The group's horizon.
    pub horizon: u64,
    /// Members of the group, and of the configuration of `heard`, that the answering member has not heard within the failure detection
    /// interval.
    pub unheard: Vec<NodeId>,
    /// Numbers of heard members in the configuration that is closest to lacking some, or that lacks most, as the answering member hears
    /// them.
    pub heard: Heard,
    /// Version of the network's policies that the group has.
    pub policies: u64,
}

impl Located {
    /// Returns the owner of `point`, if it is a group here.
    pub(crate) fn here(replicas: &LocalReplicas, point: Point) -> Option<Located> {
        let here = replicas.at(point).filter(|group| group.state().ended.is_none())?;
        let state = here.state();
        let (part, ballot) = state.parts().find(|(part, _)| part.contains(point))?;
        let (ring, group, horizon) = (state.ring, state.reference(), state.horizon);
        let (heard, unheard) = Heard::with_unheard(here);
        let policies = state.settings.policies.version;
        Some(Located { ring, point, group, part, ballot, horizon, unheard, heard, policies })
    }

    /// Returns whether the answer is consistent. There are no more unheard members than members. No configuration is later than the
    /// group's, or has more members than a group may have. The ballot is of the group's epoch. Counting on from the horizon does not
    /// overflow.
    fn is_sound(&self) -> bool {
        self.unheard.len() <= self.group.members.len() + self.heard.of as usize
            && self.heard.members.max(self.heard.needed) <= self.heard.of
            && self.heard.of <= MEMBERS_MAX
            && self.heard.epoch <= self.group.epoch
            && self.ballot.epoch == self.group.epoch
            && group::validate::is_horizon(self.horizon)
    }
}

/// All parts of the node that look beyond its own groups.
#[derive(Debug)]
pub(crate) struct Routing {
    pub(crate) table: RoutingTable,
    pub(crate) walks: RingWalks,
    pub(crate) join: JoinSearch,
    pub(crate) probes: Probes,
    pub(crate) successors: SuccessorSearch,
}

impl Routing {
    /// Creates them for a process that begins now.
    pub(crate) fn new(now: Time) -> Routing {
        Routing {
            table: RoutingTable::default(),
            walks: RingWalks::default(),
            join: JoinSearch::new(now),
            probes: Probes::default(),
            successors: SuccessorSearch::default(),
        }
    }
}

impl Locate {
    /// Returns a question that no peer has passed on yet.
    pub(crate) fn new(ring: RingId, point: Point, origin: Contact, wanted: Wanted) -> Locate {
        Locate { ring, point, origin, wanted, way: Way::Either, hops: 0, taken_for: None }
    }
}
