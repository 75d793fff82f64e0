//! Births: the first states of the groups that follow from groups that a transaction touched.
//!
//! Each member of a new group computes the same first state by itself, as soon as it knows the final states of the groups that the new one
//! comes from. No further agreement is needed.

use alloc::vec::Vec;

use overlay::{Epoch, IntervalMap, KeyRange, NodeId};

use crate::ballot::{LogSlot, Number, Term};
use crate::config::Defects;
use crate::control::state::{Assignment, EpochConfig, GroupState, LOSSES_MAX, Loss, Member, Purge, Purged, Settings};
use crate::harmonia::switch::Switch;
use crate::transaction::TransactionId;
use crate::transaction::plan::{Birth, BirthName, Plan};
use crate::transaction::state::TransactionState;

/// Number of generations that are left free where the knowledge of those in use is lost.
const LOSS_GENERATIONS: u32 = 1 << 22;
/// Number of slots that are left free in the same case.
const LOSS_SLOTS: u64 = 1 << 32;

/// Returns the first states of all groups that are born of a transaction, in the order of the plan. `None` where no groups can have ended
/// like this: the final state of another group comes from one of its members, which may have invented it.
///
/// `finals`: the last states of all touched groups, in any order.
///
/// # Panics
/// If the states are of other groups, or not of all: the caller has looked for them by their ids.
pub fn births(id: TransactionId, plan: &Plan, finals: &[&GroupState], defects: Defects) -> Option<Vec<GroupState>> {
    let mut finals: Vec<&GroupState> = finals.to_vec();
    finals.sort_by_key(|last| last.id);
    assert_eq!(finals.len(), plan.touched().count(), "the final states of all that {id:?} touched");
    assert!(finals.iter().all(|last| plan.party(last.id).is_some_and(|party| party.touched)), "of {id:?}");
    (0..plan.births.len()).map(|index| born(id, plan, index, &finals, defects)).collect()
}

fn born(id: TransactionId, plan: &Plan, index: usize, finals: &[&GroupState], defects: Defects) -> Option<GroupState> {
    let birth = &plan.births[index];
    let range = birth.range;
    // Above the former neighbours' epochs as well: a node that voted in one of these groups must find the new group to be later.
    let beside = finals.iter().flat_map(|last| last.transactions.neighbours());
    let epoch = plan.epoch_after(finals.iter().map(|last| last.epoch).chain(beside.map(|link| link.epoch)));
    let last = finals.iter().map(|last| last.applied).max().unwrap_or_default();
    // Terms are made of slots, and records are ordered by terms: a lost group's terms must be the lower ones, too.
    let applied = if lost_range(plan).is_some() { LogSlot(last.0.saturating_add(LOSS_SLOTS)) } else { last.next() };
    if applied >= LogSlot::MAX {
        return None;
    }
    let name = plan.id_of(id, birth);
    let (mut members, mut learners): (Vec<Member>, Vec<Member>) = (Vec::new(), Vec::new());
    for last in finals {
        let places: Option<Vec<usize>> = last.members.iter().map(|member| goes_to(plan, last, member.node)).collect();
        let belongs = last.members.iter().zip(places?).filter(|(_, place)| *place == index);
        let belongs = belongs.map(|(member, _)| Member { since: applied, ..member.clone() });
        match birth.name {
            // A member from another group holds none of this group's data, and may have died just now. It votes as soon as it has caught
            // up, like all newcomers.
            BirthName::Kept(kept) if kept != last.id => learners.extend(belongs),
            _ => members.extend(belongs),
        }
    }
    learners.sort_by_key(|learner| learner.node);
    members.sort_by_key(|member| member.node);
    // If a peer has begun a later incarnation in one group, its incarnation in the other group is over.
    members.reverse();
    members.dedup_by_key(|member| member.node.peer);
    members.reverse();
    learners.retain(|learner| {
        !members.iter().any(|member| member.node.peer == learner.node.peer && member.node > learner.node)
    });
    if members.is_empty() {
        return None;
    }
    let last: Vec<_> = finals.iter().map(|last| (last.id, last.epoch, &last.transactions)).collect();
    let born = GroupState {
        ring: finals[0].ring,
        id: name,
        applied,
        epoch,
        born: epoch,
        born_at: applied,
        range,
        division: divide(range, &members, finals, applied),
        members,
        learners,
        recovery: recovery(range, finals),
        horizon: finals.iter().map(|last| last.horizon).max().unwrap_or(0),
        purged: purged(plan, (applied, epoch), range, finals),
        losses: losses(plan, epoch, finals),
        settings: settings(finals),
        switch: Switch::inherited(finals.iter().map(|last| last.switch)),
        transactions: TransactionState::inherit(id, plan, &plan.reference(id, birth), &last, defects),
        ended: None,
    };
    born.is_sound().then_some(born)
}

/// Returns the settings of the network, with the greatest policies of all parents.
fn settings(finals: &[&GroupState]) -> Settings {
    let mut settings = finals[0].settings.clone();
    for last in &finals[1..] {
        settings.policies = settings.policies.then(&last.settings.policies);
    }
    settings
}

/// Returns which new group a member of a group belongs to: the planned one. A member that came after the plan belongs to the new group that
/// keeps the group's name, or has its start. `None` where the member belongs to no new group.
fn goes_to(plan: &Plan, last: &GroupState, node: NodeId) -> Option<usize> {
    let group = last.id;
    let lists = |birth: &Birth, node: NodeId| birth.members.iter().any(|contact| contact.node == node);
    let kept = plan.births.iter().position(|birth| birth.name == BirthName::Kept(group));
    let stays =
        |node: NodeId| plan.births.iter().position(|birth| lists(birth, node)).is_none_or(|at| Some(at) == kept);
    if let Some(kept) = kept.filter(|_| !last.members.iter().any(|member| stays(member.node))) {
        return Some(kept); // All members that were to stay are gone: so none leaves the group that continues.
    }
    let planned = |birth: &Birth| lists(birth, node);
    let named = |birth: &Birth| birth.name == BirthName::Kept(group);
    let start = plan.party(group).map(|party| party.group.range.start());
    let at_start = |birth: &Birth| start.is_some_and(|start| birth.range.contains(start));
    let place = |of: &dyn Fn(&Birth) -> bool| plan.births.iter().position(of);
    place(&planned).or_else(|| place(&named)).or_else(|| place(&at_start))
}

/// Divides the range. A primary stays primary where it is still a member; elsewhere members take turns.
fn divide(range: KeyRange, members: &[Member], finals: &[&GroupState], applied: LogSlot) -> Vec<Assignment> {
    let mut owners = IntervalMap::new(None);
    for last in finals {
        last.parts().for_each(|(part, ballot)| owners.set(part, Some(ballot.node)));
    }
    let mut division: Vec<Assignment> = Vec::new();
    for (turn, (piece, owner)) in owners.pieces(range).into_iter().enumerate() {
        let stays = owner.filter(|node| members.iter().any(|member| member.node == *node));
        let node = stays.unwrap_or_else(|| members[turn % members.len()].node);
        if division.last().is_none_or(|before| before.node != node) && division.len() < Term::PARTS_MAX {
            let term = Term::new(applied, division.len());
            division.push(Assignment { start: piece.start(), node, term });
        }
    }
    division
}

/// Returns the configurations to ask for earlier chosen records: the last members of each group that a part comes from, and the
/// configurations that these groups would have asked.
fn recovery(range: KeyRange, finals: &[&GroupState]) -> Vec<EpochConfig> {
    let mut configs = Vec::new();
    for last in finals {
        let within = |open: &[KeyRange]| -> Vec<KeyRange> {
            open.iter().flat_map(|open| range.intersection(*open)).flatten().collect()
        };
        let former = last.recovery.iter().map(|config| EpochConfig { open: within(&config.open), ..config.clone() });
        let own = EpochConfig { epoch: last.epoch, members: last.nodes(), open: within(&[last.range]) };
        configs.extend(former.chain([own]).filter(|config| !config.open.is_empty()));
    }
    configs.sort_by_key(|config| config.epoch);
    configs
}

fn purged(plan: &Plan, (applied, epoch): (LogSlot, Epoch), range: KeyRange, finals: &[&GroupState]) -> Purged {
    let mut bounds = IntervalMap::new(None);
    for last in finals {
        for piece in range.intersection(last.range).into_iter().flatten() {
            last.purged.bounds.pieces(piece).into_iter().for_each(|(piece, bound)| bounds.set(piece, bound));
        }
    }
    let mut floor = finals.iter().map(|last| last.purged.floor).max().unwrap_or(0);
    if let Some(lost) = lost_range(plan) {
        // All earlier records there are over: a returning member of a lost group brings none of them, and no earlier version equals a later
        // one.
        bounds.set(lost, Some(Purge { slot: applied, epoch, up_to: Number::default() }));
        floor = floor.saturating_add(LOSS_GENERATIONS).min(u32::MAX / 2 - 1);
    }
    Purged {
        bounds,
        // Some members have already dropped the tombstones that this purge covers, so all members do: old operations are refused everywhere
        // from now on.
        horizon: finals.iter().map(|last| last.purged.horizon).max().unwrap_or(0),
        floor,
    }
}

/// Returns the range that this transaction takes over from lost groups.
fn lost_range(plan: &Plan) -> Option<KeyRange> {
    plan.gap().map(|(from, _)| KeyRange::new(from, plan.coordinator().range.start()))
}

/// Returns all declared losses of the groups that the new group comes of.
fn losses(plan: &Plan, epoch: Epoch, finals: &[&GroupState]) -> Vec<Loss> {
    let mut losses: Vec<Loss> = finals.iter().flat_map(|last| last.losses.iter().cloned()).collect();
    losses.extend(lost_range(plan).map(|range| Loss {
        groups: plan.lost().to_vec(),
        range,
        epoch,
        declared: plan.rank.since(),
    }));
    losses.sort_by(|one, other| (one.epoch, &one.groups).cmp(&(other.epoch, &other.groups)));
    losses.dedup();
    let excess = losses.len().saturating_sub(LOSSES_MAX);
    losses.drain(..excess);
    losses
}
