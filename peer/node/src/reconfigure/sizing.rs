//! Changes of a group's size: its leader begins a split, a merge or a migration where the size calls for one. Groups act on their own,
//! without an administrator (Scatter §6.1, Harmony §7.3).

use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::control::health::LivingMember;
use group::transaction::member::BeginRefusal;
use group::transaction::plan::GroupTransaction;
use overlay::time::{Time, WallMillis};
use overlay::{Epoch, GroupId, NodeId};
use policy::density::Contents;
use policy::size::{Resize, Sizes};

use crate::config::NodeConfig;
use crate::context::Context;
use crate::policies::lifetimes::LifeWatch;
use crate::policies::risk::Dangers;
use crate::policies::views::{living_views, member_views};
use crate::reconfigure::preparing::{Begun, Preparation};
use crate::replicas::LocalReplicas;

/// Approximate time between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time after each attempt to split for which no newcomer is let in: until the next check, and a moment longer.
const JOINERS_HELD: Duration = Duration::from_secs(1);

/// Time after which a prepared operation that cannot begin is planned anew: one of its members may never be ready.
const PREPARED_MAX: Duration = Duration::from_secs(10);

/// A leader's notes about its group's size.
#[derive(Debug, Default)]
pub(crate) struct SizeWatch {
    /// The group that it leads, and the epoch in which that group was born.
    leads: Option<(GroupId, Epoch)>,
    /// The change that is called for, and the time since which it is.
    wanted: Option<(Resize, Time)>,
    /// The operation that is being prepared, and the time at which members last copied for it.
    prepared: Option<(GroupTransaction, Time)>,
    /// Number of attempts, and time of the first one.
    tried: u32,
    first: Option<WallMillis>,
    due: Time,
}

impl SizeWatch {
    /// Checks the group that this node leads, from time to time. A change begins once it has been called for long enough: not with each
    /// member that comes or goes, and not in a group that was just born.
    pub(crate) fn watch(&mut self, cx: &mut Context<'_>, preparation: &mut Preparation, lives: &LifeWatch) {
        if cx.now.time < self.due {
            return;
        }
        // Leaders do not check at the same time: two neighbours may want to change each other.
        self.due = cx.now.time + LOOK_EVERY / 2 + cx.rng.duration_below(LOOK_EVERY);
        let leads = cx.replicas.home().filter(|group| group.log().leads());
        let Some((id, born, resize)) =
            leads.map(|group| (group.state().id, group.state().born, resize(cx.config, lives, group)))
        else {
            self.leads = None;
            return;
        };
        let watch = &mut *self;
        if watch.leads != Some((id, born)) {
            *watch = SizeWatch { leads: Some((id, born)), due: watch.due, ..SizeWatch::default() };
        }
        let Some((wanted, is_urgent)) = resize else {
            (watch.wanted, watch.prepared) = (None, None);
            return;
        };
        let before = watch.wanted.filter(|(before, _)| is_for_the_same(*before, wanted));
        if before.is_none_or(|(before, _)| !is_same_kind(before, wanted)) {
            watch.prepared = None;
        }
        let since = before.map_or(cx.now.time, |(_, since)| since);
        watch.wanted = Some((wanted, since));
        if is_urgent || cx.now.time.since(since) >= cx.config.timing.resize_after {
            self.begin_resize(cx, preparation, lives, wanted);
        }
    }

    /// Returns the time of the next check.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    fn begin_resize(&mut self, cx: &mut Context<'_>, preparation: &mut Preparation, lives: &LifeWatch, wanted: Resize) {
        let members = cx.replicas.home().map_or(Vec::new(), |group| group.state().nodes());
        let prepared = self.prepared.take();
        let is_usable = |operation: &GroupTransaction| {
            is_even(operation, &members) && moves_at_most(operation, wanted) && are_there(cx.replicas, operation)
        };
        let prepared =
            prepared.filter(|(operation, copied)| is_usable(operation) && cx.now.time.since(*copied) < PREPARED_MAX);
        let copied = prepared.as_ref().map_or(cx.now.time, |(_, copied)| *copied);
        let planned = prepared.map(|(operation, _)| operation).or_else(|| self.plan_resize(cx, lives, wanted));
        let (Some(operation), Some(group)) = (planned, cx.replicas.home_mut()) else { return };
        let (tried, first) = (self.tried, self.first);
        let rank = first.map_or(group.rank(0), |first| group::transaction::plan::Rank::new(tried, first));
        let (id, now) = (group.state().id, group.group_time());
        if wanted == Resize::Split {
            group.hold_joiners(JOINERS_HELD);
            // Learners that are about to vote are in neither half before they do.
            if group.strength() > group.living().len() {
                return;
            }
        }
        // The present obstacle may soon be gone.
        match preparation.begin(cx, id, operation.clone(), rank) {
            Ok(Begun::Yes) => {
                self.tried += 1;
                self.first.get_or_insert(now);
            }
            Ok(Begun::Copying) => self.prepared = Some((operation, cx.now.time)),
            // A copy is of use to the next attempt if that one moves the same members.
            Err(BeginRefusal::NotNow(_) | BeginRefusal::NeighbourUnknown) => {
                let moves_members = matches!(operation, GroupTransaction::Migrate { .. });
                self.prepared = moves_members.then_some((operation, copied));
            }
            Err(BeginRefusal::NotLeader(_) | BeginRefusal::Unsound(_)) => {}
        }
    }

    /// Returns the operation for a change of the node's own group; `None` if its successor's members are not known.
    fn plan_resize(&self, cx: &Context<'_>, lives: &LifeWatch, wanted: Resize) -> Option<GroupTransaction> {
        let group = cx.replicas.home()?;
        let (halving, lifetimes) = (cx.config.policies.of(group).split.1, lives.model());
        let state = group.state();
        Some(match wanted {
            Resize::Split => {
                let first = halving.first_half(&member_views(group, lifetimes));
                let (load, bytes) = (group.load().unwrap_or_default(), group.bytes_by_cell());
                GroupTransaction::Split {
                    at: Contents { range: state.range, load: &load, bytes: &bytes }.middle(),
                    first,
                }
            }
            Resize::Merge => GroupTransaction::Merge,
            Resize::Give(count) => GroupTransaction::Migrate {
                to: halving.movers(&member_views(group, lifetimes), count),
                from: [].into(),
            },
            Resize::Take(count) => {
                let (_, health) = group.successor_health()?;
                let now = group.group_time();
                let theirs = living_views(&health.living, state.transactions.successor(), lifetimes, now);
                let order = halving.movers(&theirs, theirs.len());
                // Other members where an earlier attempt failed.
                let turn = order.iter().cycle().skip(self.tried as usize);
                let from = turn.take(count.min(order.len())).copied().collect();
                GroupTransaction::Migrate { to: [].into(), from }
            }
        })
    }
}

/// Returns the change that the group's size calls for, and whether it is urgent. A group removes its dead members before it merges with
/// its successor or trades members.
pub(crate) fn resize(config: &NodeConfig, lives: &LifeWatch, group: &Group) -> Option<(Resize, bool)> {
    let state = group.state();
    let (min, max) = (state.settings.policies.members_min as usize, state.settings.policies.members_max as usize);
    let known = group.successor_health().map(|(_, health)| health.living.len());
    // All of its members, until the successor's leader has told how many of them live.
    let successor = state.transactions.successor().map(|other| known.unwrap_or(other.members.len()));
    let dangers = lives.dangers_of(config, group);
    let prospects = dangers.as_ref().map(Dangers::prospects);
    let sizes = Sizes { own: group.strength(), successor, min, max, prospects };
    let wanted = config.policies.of(group).size.1.propose(&sizes)?;
    let may_be = wanted == Resize::Split || !group.is_about_to_remove();
    // The removal of a silent member, which may be dead, would abort a transaction.
    let is_calm = || group.living().iter().filter(|member| member.is_heard).count() == state.members.len();
    may_be.then(|| (wanted, sizes.is_urgent(wanted) && (wanted == Resize::Split || is_calm())))
}

/// Returns whether all members that this operation moves are heard in their groups, as far as the groups' leaders have told.
fn are_there(replicas: &LocalReplicas, operation: &GroupTransaction) -> bool {
    let (GroupTransaction::Migrate { to, from }, Some(group)) = (operation, replicas.home()) else {
        return true;
    };
    let is_heard =
        |living: &[LivingMember], node: &NodeId| living.iter().any(|member| member.is_heard && member.node == *node);
    let theirs = group.successor_health().map(|(_, health)| &health.living);
    let own = group.living();
    to.iter().all(|node| is_heard(&own, node))
        && theirs.is_none_or(|theirs| from.iter().all(|node| is_heard(theirs, node)))
}

/// Returns whether a split that was planned before still divides the group's members evenly: members may have come and gone since.
fn is_even(operation: &GroupTransaction, members: &[NodeId]) -> bool {
    let GroupTransaction::Split { first, .. } = operation else { return true };
    (2 * first.len()).abs_diff(members.len()) <= 1 && first.iter().all(|node| members.contains(node))
}

/// Returns whether an operation that was planned before moves no more members than are wanted now.
fn moves_at_most(operation: &GroupTransaction, wanted: Resize) -> bool {
    match (operation, wanted) {
        (GroupTransaction::Migrate { to, .. }, Resize::Give(count)) => to.len() <= count,
        (GroupTransaction::Migrate { from, .. }, Resize::Take(count)) => from.len() <= count,
        _ => true,
    }
}

fn is_same_kind(one: Resize, other: Resize) -> bool {
    core::mem::discriminant(&one) == core::mem::discriminant(&other)
}

/// Returns whether both divide the group, or both help it or its successor: as members of either come and go, the same need calls for a
/// merge now and for a trade a moment later.
fn is_for_the_same(one: Resize, other: Resize) -> bool {
    (one == Resize::Split) == (other == Resize::Split)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicU32, Ordering};

    use overlay::{Key, PeerKey, Point};
    use policy::lifetimes::Lifetimes;
    use policy::size::Sizing;

    use super::*;
    use crate::admin::{AdminOutcome, AdminRequest};
    use crate::config::NodeConfig;
    use crate::tests::small_net::{Net, key};

    /// Returns settings with this policy for sizes, which must call for a change for so many seconds.
    fn resizing(config: NodeConfig, policy: &'static dyn Sizing, after_s: u64) -> NodeConfig {
        let mut config = NodeConfig { members_min: 1, members_max: 100, ..config };
        config.policies.size = ("of a test", policy);
        config.timing.resize_after = Duration::from_secs(after_s);
        config
    }

    /// Returns the sizes of the groups of these nodes, in members.
    fn sizes<const N: usize>(net: &Net, nodes: [usize; N]) -> [usize; N] {
        nodes.map(|index| net.nodes[index].group().map_or(0, |group| group.state().members.len()))
    }

    /// A group of three takes two members of a group of this size.
    struct TakesTwo(usize);

    impl Sizing for TakesTwo {
        fn propose(&self, sizes: &Sizes<'_>) -> Option<Resize> {
            (sizes.own == 3 && sizes.successor == Some(self.0)).then_some(Resize::Take(2))
        }
    }

    /// A group of three merges with one of five, takes a member of it or gives it one: another change each time.
    struct OneThenAnother(AtomicU32);

    impl Sizing for OneThenAnother {
        fn propose(&self, sizes: &Sizes<'_>) -> Option<Resize> {
            let drawn = self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9) >> 16;
            let ways = [Resize::Merge, Resize::Take(1), Resize::Give(1)];
            (sizes.own == 3 && sizes.successor == Some(5)).then_some(ways[drawn as usize % 3])
        }
    }

    /// As members come and go, a need calls for a merge at one moment and for a trade at the next. It is one need, and counts from its
    /// beginning.
    #[test]
    fn a_need_that_changes_its_kind_does_not_wait_anew() {
        static POLICY: OneThenAnother = OneThenAnother(AtomicU32::new(0));
        let settle = |config| resizing(config, &POLICY, 10);
        let mut net = Net::with(8, settle);
        net.split(3);
        assert_eq!(sizes(&net, [0, 7]), [3, 5]);
        net.run_until(|net| sizes(net, [0, 7]) != [3, 5]);
    }

    /// Of the five members of the successor, the last by key does not answer; it has not been silent for long enough to be removed.
    #[test]
    fn members_that_do_not_answer_are_not_taken() {
        let settle = |config| {
            let mut config = resizing(config, &TakesTwo(5), 5);
            config.timing.exclude_after = Duration::from_secs(60);
            config
        };
        let mut net = Net::with(8, settle);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let split = AdminRequest::Split { at: None, first: (0..3).map(key).collect() };
        assert!(matches!(net.request(0, id, split), AdminOutcome::Done(_)));
        let members = |net: &Net, index: usize| -> Vec<PeerKey> {
            net.nodes[index]
                .group()
                .map_or(Vec::new(), |group| group.state().nodes().iter().map(|node| node.peer).collect())
        };
        net.run_until(|net| members(net, 0).len() == 3 && members(net, 7).len() == 5);
        net.cut[7] = true;
        net.run_until(|net| members(net, 0).len() == 5);
        assert!(!members(&net, 0).contains(&key(7)), "{:?}", members(&net, 0));
    }

    /// All members of the group before it are dead. It gets members of the group behind it: otherwise it would be the next one to be lost.
    #[test]
    fn a_group_beside_a_lost_one_gets_members() {
        let settle = |config| resizing(config, &TakesTwo(7), 5);
        let mut net = Net::with(13, settle);
        for (asked, first) in [(0, 0..3), (3, 3..6)] {
            let id = net.nodes[asked].group().expect("it is in one").state().id;
            let split = AdminRequest::Split { at: None, first: first.map(key).collect() };
            assert!(matches!(net.request(asked, id, split), AdminOutcome::Done(_)));
        }
        net.run_until(|net| sizes(net, [0, 3, 12]) == [3, 3, 7]);
        net.cut[..3].fill(true);
        net.run_until(|net| sizes(net, [0, 3, 12]) == [3, 5, 5]);
    }

    /// Two groups of four are safe where peers live for long. Once peers live for 1,000 s only, the groups merge, and eight members do not
    /// split.
    #[test]
    fn groups_merge_when_their_members_become_short_lived() {
        let settle = |mut config: NodeConfig| {
            config.policies.choose("size", "nines").expect("a policy of that name");
            NodeConfig { members_min: 1, members_max: 12, ..config }
        };
        let mut net = Net::with(8, settle);
        let assume = |net: &mut Net, seconds| {
            let mean = Duration::from_secs(seconds);
            net.nodes.iter_mut().for_each(|node| node.lives.assume(Lifetimes::Exponential { mean }));
        };
        net.split(4);
        assume(&mut net, 1_000_000);
        net.run_for(Duration::from_secs(30));
        assert_eq!(sizes(&net, [0, 7]), [4, 4]);
        assume(&mut net, 1_000);
        net.run_until(|net| sizes(net, [0, 7]) == [8, 8]);
        net.run_for(Duration::from_secs(30));
        assert_eq!(sizes(&net, [0, 7]), [8, 8]);
    }

    /// A group of at most four waits for an hour with five members, and splits at once with six.
    #[test]
    fn a_group_that_is_much_too_large_does_not_wait() {
        for (members, splits) in [(5, false), (6, true)] {
            let settle = |config| {
                let mut config = NodeConfig { members_min: 1, members_max: 4, ..config };
                config.timing.resize_after = Duration::from_secs(3_600);
                config
            };
            let mut net = Net::with(members, settle);
            net.run_for(Duration::from_secs(20));
            let largest =
                net.nodes.iter().filter_map(crate::Node::group).map(|group| group.state().members.len()).max();
            assert_eq!(largest, Some(if splits { 3 } else { members }));
        }
    }

    /// Twenty values of 60,000 bytes lie in the first quarter of the ring, and there is almost no load: the group splits there.
    #[test]
    fn a_split_divides_what_members_keep() {
        let settle = |config| NodeConfig { members_min: 1, members_max: 4, ..config };
        let mut net = Net::with(4, settle);
        let names = (0_u32..).map(|n| Key::new(&n.to_be_bytes()).expect("short"));
        let early = names.filter(|key| key.point() < Point(u128::MAX / 4)).take(20);
        let values = early.map(|key| (key, alloc::vec![7; 60_000].into())).collect();
        assert_eq!(net.put(0, values), (20, Vec::new()));
        net.run_for(Duration::from_secs(10));
        net.add(settle);
        net.run_until(|net| {
            let ids = net.nodes.iter().filter_map(|node| Some(node.group()?.state().id));
            ids.collect::<alloc::collections::BTreeSet<_>>().len() == 2
        });
        let starts = net.nodes.iter().filter_map(|node| Some(node.group()?.state().range.start()));
        let at = starts.max().expect("two groups");
        assert!((u128::MAX / 32..u128::MAX / 4).contains(&at.0), "{at:?}");
    }
}
