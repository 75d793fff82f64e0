//! Tests of births: a group is split, its boundary and members move, and the halves merge again. Each first state is sound.

use alloc::string::String;
use alloc::vec::Vec;

use overlay::{Epoch, GroupId, GroupRef, Incarnation, KeyRange, NodeId, PeerKey, Point, RingId};

use crate::ballot::{LogSlot, Number, Term};
use crate::config::Defects;
use crate::control::agreed::AgreedPolicies;
use crate::control::state::{Entry, GroupState, Member, Settings};
use crate::transaction::plan::{GroupTransaction, Plan, PlanRefusal, Rank, View};
use crate::transaction::state::TransactionEntry;
use crate::transaction::successor::birth::births;
use crate::transaction::{Outcome, TransactionId, Vote};
use overlay::time::WallMillis;

fn node(peer: u8) -> NodeId {
    NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
}

fn member(peer: u8) -> Member {
    Member {
        node: node(peer),
        addresses: Vec::new(),
        name: None,
        cluster: String::new(),
        joined: WallMillis(0),
        since: LogSlot(0),
    }
}

/// Returns a state with five members, each primary of a fifth of the whole ring.
fn founded() -> GroupState {
    let settings = Settings {
        coarse: false,
        leases: false,
        lease_ms: 1000,
        drift_per_mille: 10,
        value_bytes_max: 100,
        policies: AgreedPolicies { members_min: 5, members_max: 12, ..AgreedPolicies::default() },
        horizon_ms: 1000,
    };
    let mut state = GroupState::founded(RingId(1), GroupId(7), member(1), settings);
    let apply = |state: &mut GroupState, entry| state.apply(state.applied.next(), &entry);
    apply(&mut state, Entry::Next((1..=5).map(member).collect()));
    apply(&mut state, Entry::Established(Epoch(2), alloc::vec![KeyRange::FULL]));
    let parts = (0..5).map(|part| (KeyRange::FULL.cut_at(part, 5), node(part as u8 + 1))).collect();
    apply(&mut state, Entry::Division { parts, kept: Vec::new() });
    let bounds = alloc::vec![(KeyRange::FULL, Number { term: Term::new(LogSlot(4), 0), n: 9 })];
    apply(&mut state, Entry::Purge { epoch: Epoch(2), bounds, floor: 3 });
    state
}

/// Commits the transaction; the coordinator is the first group.
fn commit(operation: GroupTransaction, groups: &mut [GroupState]) -> Vec<GroupState> {
    commit_after(operation, groups, |_| {})
}

/// Commits the transaction; `meanwhile` runs before participants learn the outcome.
fn commit_after(
    operation: GroupTransaction,
    groups: &mut [GroupState],
    meanwhile: impl FnOnce(&mut [GroupState]),
) -> Vec<GroupState> {
    let views: Vec<View> = groups.iter().map(GroupState::view).collect();
    let plan = Plan::new(operation, &views[0], views.get(1), Rank::new(0, WallMillis(0))).expect("it can be done");
    let entry = |state: &mut GroupState, entry| state.apply(state.applied.next(), &Entry::Transaction(entry));
    entry(&mut groups[0], TransactionEntry::Begin(plan.clone().into()));
    let (id, _) = groups[0].transactions.coordinates().expect("it has begun");
    for state in &mut groups[1..] {
        entry(state, TransactionEntry::Asked(id, plan.clone().into()));
        assert_eq!(state.transactions.vote(id), Some(Vote::Yes));
    }
    entry(&mut groups[0], TransactionEntry::Outcome(id, Outcome::Commit));
    meanwhile(&mut groups[1..]);
    groups[1..].iter_mut().for_each(|state| entry(state, TransactionEntry::Ending(id)));
    assert!(
        groups.iter().all(|state| state.ended == Some(id) && state.ending() == Some((id, &plan)) && state.is_sound())
    );
    let finals: Vec<&GroupState> = groups.iter().collect();
    let born = births(id, &plan, &finals, Defects::NONE).expect("groups ended so");
    let turned: Vec<&GroupState> = finals.iter().rev().copied().collect();
    assert_eq!(
        born,
        births(id, &plan, &turned, Defects::NONE).expect("groups ended so"),
        "the order in which final states are learned says nothing"
    );
    born.iter().for_each(|state| check(state, id, groups));
    born
}

fn check(state: &GroupState, id: TransactionId, before: &[GroupState]) {
    assert!(state.is_sound(), "{state:?}");
    assert!(before.iter().all(|last| state.epoch > last.epoch && state.applied > last.applied));
    assert!(state.division.iter().all(|part| state.is_member(part.node)), "{state:?}");
    let asked: Vec<KeyRange> = state.recovery.iter().flat_map(|config| config.open.clone()).collect();
    assert!(asked.iter().all(|open| state.range.contains_range(*open)), "{id:?}: {state:?}");
    for point in (0..64).map(|part| state.range.cut_at(part, 64)) {
        let former = before.iter().find(|last| last.range.contains(point)).expect("somebody owned it");
        let config = state.configs(KeyRange::at(point));
        assert!(config.iter().any(|config| config.members == former.nodes()), "{point:?} of {state:?}");
    }
}

/// Establishes the epoch: all data is held where it belongs.
fn establish(state: &mut GroupState) {
    let entry = Entry::Established(state.epoch, alloc::vec![state.range]);
    state.apply(state.applied.next(), &entry);
    assert!(state.recovery.is_empty());
}

#[test]
fn first_states_are_sound_and_the_same_to_all() {
    let half = Point(1 << 127);
    let split = GroupTransaction::Split { at: half, first: alloc::vec![node(1), node(5)] };
    let mut halves = commit(split, &mut [founded()]);
    assert_eq!(halves[0].nodes(), [node(1), node(5)]);
    assert_eq!(halves[1].nodes(), [node(2), node(3), node(4)]);
    let kept = halves[0].division.iter().find(|part| part.start == Point(0)).map(|part| part.node);
    assert_eq!(kept, Some(node(1)), "a primary that is still a member stays it");
    assert!(
        halves.iter().all(|half| half.transactions.is_heir_of(GroupId(7)) && half.transactions.decided().is_empty())
    );
    assert_ne!(halves[0].id, halves[1].id);

    // A group with an epoch that is not established becomes no other group.
    let (first, second) = (halves[0].view(), halves[1].view());
    let plan = Plan::new(GroupTransaction::Merge, &first, Some(&second), Rank::new(0, WallMillis(0))).unwrap();
    assert!(halves[0].transactions.refuses_begin(&halves[0].own(Defects::NONE), &plan).is_some());
    halves.iter_mut().for_each(establish);

    let quarter = Point(1 << 126);
    let mut moved = commit(GroupTransaction::Repartition { at: quarter }, &mut halves.clone());
    assert_eq!(moved[1].range, KeyRange::new(quarter, Point(0)));
    assert_eq!((moved[0].id, moved[1].id), (halves[0].id, halves[1].id));
    assert_eq!(moved[1].recovery.len(), 2, "both are asked");
    assert!(!moved[1].transactions.is_heir_of(halves[0].id), "that one goes on, and answers for itself");
    moved.iter_mut().for_each(establish);

    let migrate = GroupTransaction::Migrate { to: alloc::vec![node(5)], from: alloc::vec![node(2), node(3)] };
    let mut traded = commit(migrate, &mut moved);
    let came = |state: &GroupState| state.learners.iter().map(|learner| learner.node).collect::<Vec<_>>();
    assert_eq!((traded[0].nodes(), came(&traded[0])), (alloc::vec![node(1)], alloc::vec![node(2), node(3)]));
    assert_eq!((traded[1].nodes(), came(&traded[1])), (alloc::vec![node(4)], alloc::vec![node(5)]));
    assert!(traded[0].learners.iter().all(|learner| learner.since == traded[0].born_at));
    for state in &mut traded {
        establish(state);
        let members = state.members.iter().chain(&state.learners).cloned().collect();
        let next = state.applied.next();
        state.apply(next, &Entry::Next(members));
        establish(state);
    }
    let second = traded[1].reference();
    let hear = |state: &mut GroupState, other| {
        state.apply(state.applied.next(), &Entry::Transaction(TransactionEntry::Neighbour(other)))
    };
    hear(&mut traded[0], second);
    let first = traded[0].reference();
    hear(&mut traded[1], first);

    // Tombstones that some members of one group have dropped by then are dropped by all its members, independently of the other group.
    let purge = Entry::Purge { epoch: traded[1].epoch, bounds: Vec::new(), floor: 0 };
    for entry in [Entry::Horizon(5), purge] {
        let slot = traded[1].applied.next();
        traded[1].apply(slot, &entry);
    }
    let whole = commit(GroupTransaction::Merge, &mut traded);
    assert_eq!(whole.len(), 1);
    let state = &whole[0];
    let transactions = &state.transactions;
    assert_eq!((state.range.is_full(), state.members.len()), (true, 5));
    assert_eq!((transactions.predecessor(), transactions.successor()), (None, None));
    assert!(halves.iter().all(|half| transactions.is_heir_of(half.id)) && transactions.is_heir_of(GroupId(7)));
    assert_eq!((state.purged.floor, state.purged.bounds.get(half).is_some()), (3, true));
    assert_eq!((state.purged.horizon, state.horizon), (5, 5));
}

/// A group that comes of two takes the greater policies of both, whichever of them coordinates.
#[test]
fn the_greatest_policies_of_all_parents_are_inherited() {
    let split = GroupTransaction::Split { at: Point(1 << 127), first: alloc::vec![node(1), node(5)] };
    for changed in [0, 1] {
        let mut halves = commit(split.clone(), &mut [founded()]);
        halves.iter_mut().for_each(establish);
        let policies = AgreedPolicies { version: 1, ..halves[changed].settings.policies.clone() };
        let next = halves[changed].applied.next();
        halves[changed].apply(next, &Entry::Policies(policies.clone()));
        assert_eq!(halves[changed].settings.policies, policies);
        let whole = commit(GroupTransaction::Merge, &mut halves);
        assert_eq!((whole.len(), &whole[0].settings.policies), (1, &policies));
        let halves = commit(
            split.clone(),
            &mut [whole[0].clone()].map(|mut whole| {
                establish(&mut whole);
                whole
            }),
        );
        assert!(halves.iter().all(|half| half.settings.policies == policies), "children have those of their parent");
    }
}

/// All members that were to stay leave after the vote. The remaining members do not go, because the group would be empty.
#[test]
fn nobody_leaves_a_group_that_would_be_empty() {
    let split = GroupTransaction::Split { at: Point(1 << 127), first: alloc::vec![node(1), node(2), node(3)] };
    let mut halves = commit(split, &mut [founded()]);
    halves.iter_mut().for_each(establish);
    let migrate = GroupTransaction::Migrate { to: Vec::new(), from: alloc::vec![node(5)] };
    let traded = commit_after(migrate, &mut halves, |participants| {
        let rest = alloc::vec![member(5)];
        let next = participants[0].applied.next();
        participants[0].apply(next, &Entry::Next(rest));
    });
    assert_eq!((traded[0].members.len(), traded[0].learners.len()), (3, 0));
    assert_eq!(traded[1].nodes(), [node(5)]);
}

/// A peer that lost everything was admitted by another group before its own group noticed that its incarnation there is over. The whole
/// ring may also begin anywhere.
#[test]
fn a_group_has_one_life_of_each_peer() {
    let at = Point(1 << 125);
    let split = GroupTransaction::Split { at, first: alloc::vec![node(1), node(5)] };
    let mut halves = commit(split, &mut [founded()]);
    halves.iter_mut().for_each(establish);
    let again = NodeId { incarnation: Incarnation(2), ..node(5) };
    let newcomer = Member { node: again, ..member(5) };
    let mut members = halves[1].members.clone();
    members.push(newcomer);
    let next = Entry::Next(members);
    let apply = |state: &mut GroupState, entry| state.apply(state.applied.next(), &entry);
    apply(&mut halves[1], next);
    establish(&mut halves[1]);
    let other = halves[1].reference();
    apply(&mut halves[0], Entry::Transaction(TransactionEntry::Neighbour(other)));
    halves.reverse();
    let whole = commit(GroupTransaction::Merge, &mut halves);
    assert_eq!(whole[0].nodes(), [node(1), node(2), node(3), node(4), again]);
    assert_eq!((whole[0].range, whole[0].division[0].start), (KeyRange::new(at, at), at));
}

/// Hazard 32: the transaction was planned for other members.
#[test]
fn a_change_of_members_aborts_what_is_coordinated() {
    let mut state = founded();
    let operation = GroupTransaction::Split { at: Point(1 << 127), first: alloc::vec![node(1)] };
    let plan = Plan::new(operation, &state.view(), None, Rank::new(0, WallMillis(0))).unwrap();
    state.apply(state.applied.next(), &Entry::Transaction(TransactionEntry::Begin(plan.into())));
    let (id, _) = state.transactions.coordinates().expect("it has begun");
    assert_eq!(state.transactions.outcome(&state.own(Defects::NONE), id), None);
    state.apply(state.applied.next(), &Entry::Next((1..=5).map(member).collect()));
    assert_eq!(state.transactions.outcome(&state.own(Defects::NONE), id), Some(Outcome::Abort));
    state.apply(state.applied.next(), &Entry::Transaction(TransactionEntry::Outcome(id, Outcome::Commit)));
    assert_eq!(state.ended, None, "too late");
}

/// Hazard 33: a group is asked in the state from before the death of a member. It agrees where it only gets another neighbour, unless its
/// range differs. Where it would become another group itself, it refuses.
#[test]
fn a_neighbour_may_have_changed_its_members() {
    let split = GroupTransaction::Split { at: Point(1 << 127), first: alloc::vec![node(1), node(5)] };
    let mut halves = commit(split, &mut [founded()]);
    halves.iter_mut().for_each(establish);
    let votes = |operation: GroupTransaction, change: &dyn Fn(&mut GroupState)| {
        let [mut own, mut other] = [halves[0].clone(), halves[1].clone()];
        let is_split = matches!(operation, GroupTransaction::Split { .. });
        let view = other.view();
        let plan = Plan::new(operation, &own.view(), Some(&view).filter(|_| !is_split), Rank::new(0, WallMillis(0)));
        let plan = plan.expect("it can be done");
        own.apply(own.applied.next(), &Entry::Transaction(TransactionEntry::Begin(plan.clone().into())));
        let (id, _) = own.transactions.coordinates().expect("it has begun");
        change(&mut other);
        let before = other.epoch;
        other.apply(other.applied.next(), &Entry::Transaction(TransactionEntry::Asked(id, plan.into())));
        assert_eq!(other.epoch, before);
        other.transactions.vote(id)
    };
    let dies = |state: &mut GroupState| {
        let next = state.applied.next();
        state.apply(next, &Entry::Next(alloc::vec![member(2), member(3)]));
    };
    let moves = |state: &mut GroupState| state.range = KeyRange::new(Point(1 << 126), state.range.end());
    let is_old = |state: &mut GroupState| state.epoch = Epoch(state.epoch.0 - 1);
    let quarter = GroupTransaction::Split { at: Point(1 << 126), first: alloc::vec![node(1)] };
    assert_eq!(
        [&dies as &dyn Fn(&mut GroupState), &moves, &is_old].map(|change| votes(quarter.clone(), change)),
        [Some(Vote::Yes), Some(Vote::No), Some(Vote::No)]
    );
    assert_eq!(
        [votes(GroupTransaction::Merge, &|_| ()), votes(GroupTransaction::Merge, &dies)],
        [Some(Vote::Yes), Some(Vote::No)]
    );
}

/// A neighbour's statement about a participant may be from before a change of members, but not about another range.
#[test]
fn views_of_different_epochs_fit_together() {
    let split = GroupTransaction::Split { at: Point(1 << 127), first: alloc::vec![node(1), node(5)] };
    let mut halves = commit(split, &mut [founded()]);
    halves.iter_mut().for_each(establish);
    let (own, mut other) = (halves[0].view(), halves[1].view());
    other.own.epoch = Epoch(other.own.epoch.0 + 1);
    let plan =
        |own: &View, other: &View| Plan::new(GroupTransaction::Merge, own, Some(other), Rank::new(0, WallMillis(0)));
    let merge = plan(&own, &other).expect("the successor's own word counts");
    assert_eq!(merge.parties[1].group, other.own);
    let mut later = own.clone();
    later.successor.epoch = Epoch(other.own.epoch.0 + 1);
    later.predecessor = later.successor.clone();
    assert_eq!(plan(&later, &other), Err(PlanRefusal::Stale), "its own word is older than what its neighbour knows");
    let mut moved = own;
    moved.successor.range = KeyRange::new(Point(1 << 126), Point(0));
    assert_eq!(plan(&moved, &other), Err(PlanRefusal::Stale));
}

/// Hazard 40: the first of two groups has taken over a lost range itself, and is far ahead of the second one. Now the first is lost, too.
#[test]
fn two_repairs_in_a_row_rise() {
    let split = GroupTransaction::Split { at: Point(1 << 127), first: alloc::vec![node(1), node(5)] };
    let mut halves = commit(split, &mut [founded()]);
    halves.iter_mut().for_each(establish);
    let [first, mut second] = [halves[0].clone(), halves[1].clone()];
    let hear = |state: &mut GroupState, epoch| {
        let heard = GroupRef { epoch: Epoch(epoch), ..first.reference() };
        state.apply(state.applied.next(), &Entry::Transaction(TransactionEntry::Neighbour(heard)));
    };
    let repair = |state: &GroupState| {
        let rank = Rank::new(0, WallMillis(0));
        Plan::repair(first.range.start(), alloc::vec![first.id], &state.view(), None, rank).expect("it can be done")
    };
    let refuses = |state: &GroupState, plan: &Plan| state.transactions.refuses_begin(&state.own(Defects::NONE), plan);
    hear(&mut second, (1 << 32) + 20);
    let early = repair(&second);
    assert_eq!(refuses(&second, &early), None);
    let born =
        early.reference(TransactionId { group: second.id, epoch: second.epoch, slot: LogSlot(9) }, &early.births[0]);
    assert!(born.epoch > Epoch((1 << 32) + 20), "{:?}", born.epoch);
    // A plan from before that is known would begin too early.
    hear(&mut second, (4 << 32) + 20);
    assert!(refuses(&second, &early).is_some() && refuses(&second, &repair(&second)).is_none());
}

#[test]
fn what_cannot_be_is_refused() {
    let rank = Rank::new(0, WallMillis(0));
    let alone = founded().view();
    let plan = |operation| Plan::new(operation, &alone, None, rank).map(|_| ());
    use crate::transaction::plan::PlanRefusal::{Alone, NoMember, NoMembers, Nothing, Outside, Stale};
    let split = |at, first: &[u8]| {
        plan(GroupTransaction::Split { at: Point(at), first: first.iter().map(|n| node(*n)).collect() })
    };
    assert_eq!(split(0, &[1]), Err(Outside), "that is its start");
    assert_eq!(split(9, &[]), Err(NoMembers));
    assert_eq!(split(9, &[1, 2, 3, 4, 5]), Err(NoMembers));
    assert_eq!(split(9, &[6]), Err(NoMember));
    assert_eq!(plan(GroupTransaction::Merge), Err(Stale));
    assert_eq!(Plan::new(GroupTransaction::Merge, &alone, Some(&alone), rank), Err(Alone));
    let operation = GroupTransaction::Split { at: Point(1 << 127), first: alloc::vec![node(1)] };
    let halves = commit(operation, &mut [founded()]);
    let (first, second) = (halves[0].view(), halves[1].view());
    let plan = |operation| Plan::new(operation, &first, Some(&second), rank).map(|_| ());
    assert_eq!(plan(GroupTransaction::Repartition { at: Point(0) }), Err(Outside));
    assert_eq!(plan(GroupTransaction::Repartition { at: Point(1 << 127) }), Err(Nothing));
    assert_eq!(plan(GroupTransaction::Migrate { to: Vec::new(), from: Vec::new() }), Err(Nothing));
    assert_eq!(
        plan(GroupTransaction::Migrate { to: alloc::vec![node(1)], from: alloc::vec![node(2)] }),
        Err(NoMembers)
    );
    assert_eq!(plan(GroupTransaction::Migrate { to: alloc::vec![node(2)], from: Vec::new() }), Err(NoMember));
    let old = View { own: GroupRef { epoch: Epoch(1), ..second.own.clone() }, ..second.clone() };
    assert_eq!(Plan::new(GroupTransaction::Merge, &first, Some(&old), rank), Err(Stale));
}

/// No group is born of invented final states. Before, this led to a division by zero, and to impossible terms.
#[test]
fn of_made_up_final_states_nothing_is_born() {
    let operation = GroupTransaction::Split { at: Point(1 << 127), first: (1..=3).map(node).collect() };
    let view = founded().view();
    let plan = Plan::new(operation, &view, None, Rank::new(0, WallMillis(0))).expect("it can be done");
    let mut last = founded();
    last.apply(last.applied.next(), &Entry::Transaction(TransactionEntry::Begin(plan.clone().into())));
    let (id, _) = last.transactions.coordinates().expect("it has begun");
    last.apply(last.applied.next(), &Entry::Transaction(TransactionEntry::Outcome(id, Outcome::Commit)));
    let of = |last: &GroupState| births(id, &plan, &[last], Defects::NONE);
    assert_eq!(of(&last).expect("it ended so").len(), 2);
    // No member is left that was to be in the second group.
    let members = last.members[..1].to_vec();
    assert_eq!(of(&GroupState { members, ..last.clone() }), None);
    assert_eq!(of(&GroupState { members: Vec::new(), ..last.clone() }), None);
    // The slots are used up.
    assert_eq!(of(&GroupState { applied: LogSlot(LogSlot::MAX.0 - 1), ..last.clone() }), None);
}
