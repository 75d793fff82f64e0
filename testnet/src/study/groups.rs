//! The groups of a simulated network: their number, their sizes, and the lost ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use node::Node;
use overlay::time::Time;
use overlay::{Epoch, GroupId, KeyRange, NodeId, PeerKey};

use super::spells::{Spells, Watch};
use super::trail::{GroupSize, Trail};
use crate::sim::World;

/// Time without a majority after which a group is lost.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// A group as the member knows it that has come furthest.
struct KnownGroup {
    epoch: Epoch,
    range: KeyRange,
    /// A group of fewer members is too small.
    min: usize,
    members: Vec<NodeId>,
    /// Former configurations that recovery must still ask.
    former: Vec<Vec<NodeId>>,
}

/// The groups of a network, and the peers that hold a state of each.
#[derive(Default)]
struct KnownGroups {
    groups: BTreeMap<GroupId, KnownGroup>,
    holders: BTreeMap<GroupId, BTreeSet<NodeId>>,
}

impl KnownGroups {
    fn of(nodes: &[&Node]) -> KnownGroups {
        let mut known = KnownGroups::default();
        for node in nodes {
            for state in node.groups().map(group::Group::state).filter(|state| state.ended.is_none()) {
                known.holders.entry(state.id).or_default().insert(node.id());
                if known.groups.get(&state.id).is_none_or(|group| group.epoch < state.epoch) {
                    let former = state.recovery.iter().map(|config| config.members.clone()).collect();
                    let (range, min) = (state.range, state.settings.policies.members_min as usize);
                    let group = KnownGroup { epoch: state.epoch, range, min, members: state.nodes(), former };
                    known.groups.insert(state.id, group);
                }
            }
        }
        known
    }

    fn left(&self, id: &GroupId, group: &KnownGroup, alive: &BTreeSet<NodeId>) -> Vec<(usize, usize)> {
        let nobody = BTreeSet::new();
        group.left(self.holders.get(id).unwrap_or(&nobody), alive)
    }

    /// Returns whether a majority of the members lives, and half of each former configuration.
    fn lives(&self, id: &GroupId, group: &KnownGroup, alive: &BTreeSet<NodeId>) -> bool {
        let is_enough = |(index, (living, all)): (usize, &(usize, usize))| living * 2 >= all + usize::from(index == 0);
        self.left(id, group, alive).iter().enumerate().all(is_enough)
    }

    /// Returns whether a later group that lives has taken the place of this one.
    fn is_over(&self, group: &KnownGroup, alive: &BTreeSet<NodeId>) -> bool {
        let later = |(id, other): (&GroupId, &KnownGroup)| {
            other.epoch > group.epoch && other.range.overlaps(group.range) && self.lives(id, other, alive)
        };
        self.groups.iter().any(later)
    }
}

/// Since when a group has had no majority, and the peers that it had left then.
#[derive(Clone, Debug)]
struct Silence {
    since: Time,
    /// The living of the members, and of each former configuration, of how many.
    left: Vec<(usize, usize)>,
    epoch: Epoch,
    /// Times of death of its dead members.
    deaths: Vec<Time>,
    /// Sizes of the group before that.
    sizes: Vec<GroupSize>,
}

impl fmt::Display for Silence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.since(Time(0)).as_secs_f64();
        write!(out, "without a majority since {since:.1} s, in epoch {}: ", self.epoch.0)?;
        for (index, (living, all)) in self.left.iter().enumerate() {
            let of = if index == 0 { "members" } else { "of a former configuration" };
            let separator = if index == 0 { "" } else { ", " };
            write!(out, "{separator}{living} of {all} {of}")?;
        }
        let seconds = |time: &Time| time.since(Time(0)).as_secs_f64();
        for (index, death) in self.deaths.iter().enumerate() {
            let before = if index == 0 { "; members died at " } else { ", " };
            write!(out, "{before}{:.1}", seconds(death))?;
        }
        for (index, GroupSize { since, living, members }) in self.sizes.iter().enumerate() {
            let before = if index == 0 { "; before that " } else { ", " };
            write!(out, "{before}{living} of {members} since {:.1}", seconds(since))?;
        }
        Ok(())
    }
}

impl KnownGroup {
    /// Returns the living peers of the members that hold the group, and of each former configuration, with the size of each.
    fn left(&self, holders: &BTreeSet<NodeId>, alive: &BTreeSet<NodeId>) -> Vec<(usize, usize)> {
        let count = |members: &[NodeId], among: &BTreeSet<NodeId>| {
            (members.iter().filter(|member| among.contains(member)).count(), members.len())
        };
        // A former member may be in another group by now, and still answers for the data that it had.
        let former = self.former.iter().map(|former| count(former, alive));
        [count(&self.members, holders)].into_iter().chain(former).collect()
    }

    /// Returns two counts of dead members: of the present members, and of all members and former members that the group needs.
    fn dead(&self, alive: &BTreeSet<NodeId>) -> (usize, usize) {
        let dead = |members: &[NodeId]| members.iter().filter(|member| !alive.contains(member)).copied().collect();
        let here: BTreeSet<NodeId> = dead(&self.members);
        let former = self.former.iter().flat_map(|former| dead(former));
        (here.len(), former.chain(here.iter().copied()).collect::<BTreeSet<_>>().len())
    }

    /// Returns the ages of the members, in seconds; also of those that are dead.
    fn ages(&self, births: &BTreeMap<PeerKey, f64>, now: Time) -> Vec<f32> {
        let now = now.since(Time(0)).as_secs_f64();
        let age = |member: &NodeId| births.get(&member.peer).map_or(0.0, |born| (now - born).max(0.0));
        self.members.iter().map(|member| age(member) as f32).collect()
    }
}

/// Counts of groups.
#[derive(Debug, Default)]
pub struct Groups {
    /// Groups that have no majority, and since when.
    silent: BTreeMap<GroupId, Silence>,
    lost: BTreeMap<GroupId, Silence>,
    trail: Trail,
    now: (usize, usize),
    /// Sums over all counts: counts, groups, members.
    sums: (u64, u64, u64),
    /// The ages of the members of each group at each count, in seconds.
    ages: Vec<Vec<f32>>,
    /// Dead members that were not removed yet, summed over all counts.
    dead: u64,
    /// Dead members and former members that a group still needed, summed over all counts.
    dead_needed: u64,
    /// Groups that recovery must still ask former members for.
    recovering: Watch,
    /// Groups that have fewer living members than their network wants.
    small: Watch,
}

impl Groups {
    /// Looks at all groups. `births`: whether this look is part of the means, which are of the time in which peers die, and the
    /// birth of each peer, in seconds.
    pub(super) fn count(&mut self, world: &World<Node>, births: Option<&BTreeMap<PeerKey, f64>>) {
        let now = world.now();
        let nodes: Vec<&Node> = (0..world.hosts()).filter_map(|host| world.host(host)).collect();
        let alive: BTreeSet<NodeId> = nodes.iter().map(|node| node.id()).collect();
        self.trail.look(&alive, now);
        let known = KnownGroups::of(&nodes);
        let views = &known.groups;
        let counts = births.is_some();
        let mut silent = BTreeMap::new();
        let (mut groups, mut members, mut dead, mut dead_needed) = (0, 0, 0, 0);
        for (id, view) in views {
            if known.lives(id, view, &alive) {
                let (dead_here, needed_here) = view.dead(&alive);
                self.trail.note(*id, view.members.len() - dead_here, view.members.len(), now);
                groups += 1;
                members += view.members.len();
                dead += dead_here;
                dead_needed += needed_here;
                self.recovering.look(*id, !view.former.is_empty(), now, counts);
                self.small.look(*id, view.members.len() - dead_here < view.min, now, counts);
                self.ages.extend(births.map(|births| view.ages(births, now)));
            } else if !known.is_over(view, &alive) {
                let begun = || {
                    let (deaths, sizes) = (self.trail.deaths(&view.members), self.trail.sizes(id));
                    Silence { since: now, left: known.left(id, view, &alive), epoch: view.epoch, deaths, sizes }
                };
                let silence = self.silent.get(id).cloned().unwrap_or_else(begun);
                if now.since(silence.since) >= LOST_AFTER {
                    self.lost.entry(*id).or_insert_with(|| silence.clone());
                }
                silent.insert(*id, silence);
            }
        }
        self.silent = silent;
        self.trail.keep(|id| views.contains_key(id));
        self.now = (groups, members);
        if counts {
            self.sums.0 += 1;
            self.sums.1 += groups as u64;
            self.sums.2 += members as u64;
            self.dead += dead as u64;
            self.dead_needed += dead_needed as u64;
        }
        for watch in [&mut self.recovering, &mut self.small] {
            watch.end_without(|id| views.contains_key(id), now, counts);
        }
    }

    /// Returns the number of groups at the last count.
    pub(super) fn now(&self) -> usize {
        self.now.0
    }

    /// Returns the mean number of members at the last count.
    pub(super) fn members_now(&self) -> f64 {
        self.now.1 as f64 / self.now.0.max(1) as f64
    }

    /// Returns the number of lost groups.
    pub(super) fn lost(&self) -> usize {
        self.lost.len()
    }

    /// Returns a line about each lost group: when it lost its majority, of how many, when its members died, and how large it was before.
    pub(super) fn losses(&self) -> Vec<String> {
        self.lost.iter().map(|(id, silence)| format!("group {id}: {silence}")).collect()
    }

    /// Returns the mean number of groups.
    pub(super) fn mean_groups(&self) -> f64 {
        self.sums.1 as f64 / self.sums.0.max(1) as f64
    }

    /// Returns the mean number of members of a group.
    pub(super) fn mean_members(&self) -> f64 {
        self.sums.2 as f64 / self.sums.1.max(1) as f64
    }

    /// Returns the ages of the members of each group at each count, in seconds.
    pub(super) fn ages(&self) -> &[Vec<f32>] {
        &self.ages
    }

    /// Returns the mean number of dead members that had not been removed yet.
    pub(super) fn mean_dead(&self) -> f64 {
        self.dead as f64 / self.sums.0.max(1) as f64
    }

    /// Returns the mean number of dead members that groups still needed: also those of former configurations.
    pub(super) fn mean_dead_needed(&self) -> f64 {
        self.dead_needed as f64 / self.sums.0.max(1) as f64
    }

    /// Returns the times in which a group that lived needed former members, too: its epoch was not established.
    pub(super) fn recovering(&self) -> Spells {
        self.recovering.spells(self.sums.1)
    }

    /// Returns the times in which a group that lived had fewer living members than its network wants.
    pub(super) fn small(&self) -> Spells {
        self.small.spells(self.sums.1)
    }
}
