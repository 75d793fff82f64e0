//! Rings of groups that decide at once, under every possible disturbance of their messages. In any order there is one outcome for each
//! transaction, one owner for each point, and quiet at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use overlay::{Contact, Epoch, GroupId, GroupRef, Incarnation, KeyRange, NodeId, PeerKey, Point};

use group::ballot::LogSlot;
use group::config::{Defect, Defects};
use group::transaction::driver::{GroupEnvelope, GroupMessage, TransactionDriver};
use group::transaction::plan::{GroupTransaction, Plan, Rank};
use group::transaction::state::{Own, TransactionEntry, TransactionState};
use group::transaction::{Outcome, TransactionId, Vote};
use overlay::rng::Rng;
use overlay::time::{Time, WallMillis};

/// A group in which every entry is chosen as soon as it is proposed.
#[derive(Clone, Debug)]
struct Sim {
    own: Own,
    members: Vec<Contact>,
    transactions: TransactionState,
    driver: TransactionDriver,
    ended: Option<TransactionId>,
}

impl Sim {
    fn reference(&self) -> GroupRef {
        let Own { id, epoch, range, .. } = self.own;
        GroupRef { id, epoch, range, members: self.members.clone() }
    }

    fn apply(&mut self, entry: &TransactionEntry) {
        self.own.applied = self.own.applied.next();
        if self.transactions.apply(&self.own, self.own.applied, entry) {
            let (TransactionEntry::Outcome(id, _) | TransactionEntry::Ending(id)) = entry else {
                panic!("{entry:?} ends nothing")
            };
            self.ended = Some(*id);
        }
    }
}

struct World {
    rng: Rng,
    now: Time,
    groups: BTreeMap<GroupId, Sim>,
    envelopes: Vec<GroupEnvelope>,
    /// Plans that were made and not proposed yet: by then they may be old.
    plans: Vec<(GroupId, Plan)>,
    outcomes: BTreeMap<TransactionId, Outcome>,
    agreed: BTreeSet<(TransactionId, GroupId)>,
    committed: BTreeMap<&'static str, u32>,
    /// Entries and messages so far, for the report of a failure.
    trace: Vec<String>,
}

fn contact(n: u8) -> Contact {
    let node = NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) };
    Contact { node, addresses: Vec::new(), name: None }
}

impl World {
    /// Returns a world with one group of so many members.
    fn new(seed: u64, members: u8, defects: Defects) -> World {
        let id = GroupId(1);
        let own = Own { id, epoch: Epoch(1), range: KeyRange::FULL, settled: true, applied: LogSlot(1), defects };
        let members = (0..members).map(contact).collect();
        let founded = Sim {
            own,
            members,
            transactions: TransactionState::default(),
            driver: TransactionDriver::default(),
            ended: None,
        };
        World {
            rng: Rng::new(seed),
            now: Time(1),
            groups: BTreeMap::from([(id, founded)]),
            envelopes: Vec::new(),
            plans: Vec::new(),
            outcomes: BTreeMap::new(),
            agreed: BTreeSet::new(),
            committed: BTreeMap::new(),
            trace: Vec::new(),
        }
    }

    fn any_group(&mut self) -> GroupId {
        let index = self.rng.below(self.groups.len() as u64) as usize;
        *self.groups.keys().nth(index).expect("there is a group")
    }

    /// Makes a plan that a policy or a person might want, from the group's present knowledge.
    fn make_plan(&mut self) {
        let id = self.any_group();
        let sim = &self.groups[&id];
        let own = sim.transactions.view(&sim.reference());
        let other = sim.transactions.successor().and_then(|link| sim.driver.view_of(link)).cloned();
        let within = |rng: &mut Rng, range: KeyRange| range.cut_at(1 + rng.below(14) as u32, 16);
        let nodes: Vec<NodeId> = sim.members.iter().map(|member| member.node).collect();
        let some = |rng: &mut Rng, nodes: &[NodeId]| -> Vec<NodeId> {
            nodes.iter().copied().filter(|_| rng.below(2) == 0).collect()
        };
        let operation = match self.rng.below(4) {
            0 => {
                GroupTransaction::Split { at: within(&mut self.rng, own.own.range), first: some(&mut self.rng, &nodes) }
            }
            1 => GroupTransaction::Merge,
            2 => {
                let end = other.as_ref().map_or(own.own.range.end(), |other| other.own.range.end());
                GroupTransaction::Repartition { at: within(&mut self.rng, KeyRange::new(own.own.range.start(), end)) }
            }
            _ => {
                let others: Vec<NodeId> = other.iter().flat_map(|other| other.own.nodes()).collect();
                GroupTransaction::Migrate { to: some(&mut self.rng, &nodes), from: some(&mut self.rng, &others) }
            }
        };
        let other = if matches!(operation, GroupTransaction::Split { .. }) { None } else { other };
        let rank = Rank::new(self.rng.below(3) as u32, WallMillis(self.now.0));
        if let Ok(plan) = Plan::new(operation, &own, other.as_ref(), rank) {
            self.plans.push((id, plan));
        }
    }

    fn propose_plan(&mut self) {
        if self.plans.is_empty() {
            return;
        }
        let index = self.rng.below(self.plans.len() as u64) as usize;
        let (id, plan) = self.plans.swap_remove(index);
        if let Some(sim) = self.groups.get_mut(&id).filter(|sim| sim.ended.is_none()) {
            sim.apply(&TransactionEntry::Begin(Box::new(plan)));
            self.settle(id);
        }
    }

    /// Changes a group's members: no other group is asked.
    fn change_members(&mut self) {
        let id = self.any_group();
        let sim = self.groups.get_mut(&id).expect("just found");
        if sim.ended.is_none() {
            sim.own.epoch = Epoch(sim.own.epoch.0 + 1);
            sim.own.applied = sim.own.applied.next();
            sim.transactions.on_epoch();
            self.settle(id);
        }
    }

    /// Does everything that a group does at once.
    fn settle(&mut self, id: GroupId) {
        let now = self.now;
        let Some(sim) = self.groups.get_mut(&id) else { return };
        loop {
            let me = sim.reference();
            if sim.ended.is_some() {
                sim.driver.tell_outcomes(&me, &sim.transactions, now);
                break;
            }
            sim.driver.tick(&sim.own, &me, &sim.transactions, now);
            let Some(entry) = sim.driver.take_wanted(&sim.own, &sim.transactions, |_| true) else { break };
            let voted = sim.transactions.coordinates().map(|(open, plan)| (open, plan.clone()));
            sim.apply(&entry);
            self.trace.push(format!("{:?} {id:?}: {entry}", now));
            if let TransactionEntry::Asked(of, _) = &entry
                && sim.transactions.vote(*of) == Some(Vote::Yes)
            {
                self.agreed.insert((*of, id));
            }
            let (of, outcome) = match &entry {
                TransactionEntry::Outcome(of, outcome) | TransactionEntry::Decided(of, outcome) => (*of, *outcome),
                TransactionEntry::Ending(of) => (*of, Outcome::Commit),
                _ => continue,
            };
            let known = *self.outcomes.entry(of).or_insert(outcome);
            assert_eq!(known, outcome, "two outcomes of {of:?}");
            if let (TransactionEntry::Outcome(_, Outcome::Commit), Some((_, plan))) = (&entry, voted) {
                for party in plan.asked() {
                    assert!(
                        self.agreed.contains(&(of, party.group.id)),
                        "{:?} did not agree to {of:?}",
                        party.group.id
                    );
                }
                *self.committed.entry(plan.operation.name()).or_default() += 1;
            }
        }
        let envelopes = sim.driver.take_envelopes();
        self.envelopes.extend(envelopes);
        self.bear();
        self.check();
    }

    /// Begins the groups that are born of groups that have ended, once all groups that the transaction touched have.
    fn bear(&mut self) {
        let ended: Vec<TransactionId> = self.groups.values().filter_map(|sim| sim.ended).collect();
        for id in ended {
            let of = |sim: &&Sim| sim.ended == Some(id);
            let Some(plan) = self.groups.values().find(of).and_then(|sim| sim.transactions.ending(id).cloned()) else {
                continue;
            };
            let touched: Vec<GroupId> = plan.touched().map(|party| party.group.id).collect();
            let all = touched.iter().all(|group| self.groups.get(group).is_some_and(|sim| sim.ended == Some(id)));
            if !all {
                continue;
            }
            let finals: Vec<Sim> = touched.iter().map(|group| self.groups.remove(group).expect("looked at")).collect();
            let epoch = plan.epoch_after(finals.iter().map(|last| last.own.epoch));
            let applied = finals.iter().map(|last| last.own.applied).max().expect("one at least").next();
            let last: Vec<_> = finals.iter().map(|last| (last.own.id, last.own.epoch, &last.transactions)).collect();
            let defects = finals[0].own.defects;
            for birth in &plan.births {
                let planned = plan.reference(id, birth);
                assert!(planned.epoch <= epoch, "{planned:?} was planned for a lower epoch than {epoch:?}");
                let born = GroupRef { epoch, ..planned };
                let own = Own { id: born.id, epoch, range: born.range, settled: true, applied, defects };
                let transactions = TransactionState::inherit(id, &plan, &born, &last, defects);
                let sim =
                    Sim { own, members: born.members, transactions, driver: TransactionDriver::default(), ended: None };
                assert!(self.groups.insert(born.id, sim).is_none(), "{:?} is there twice", born.id);
            }
        }
    }

    /// Checks that each point has one owner, and no boundary is locked by two.
    fn check(&self) {
        let mut ranges: Vec<KeyRange> = self.groups.values().map(|sim| sim.own.range).collect();
        ranges.sort_by_key(|range| range.start());
        for (index, range) in ranges.iter().enumerate() {
            let next = ranges[(index + 1) % ranges.len()];
            assert_eq!(range.end(), next.start(), "the ring is not covered once: {ranges:?}");
        }
        assert!(ranges.len() == 1 || !ranges.iter().any(|range| range.is_full()));
        for sim in self.groups.values().filter(|sim| sim.ended.is_none()) {
            let open = sim.transactions.coordinates().into_iter().chain(sim.transactions.voted());
            let mut locked: Vec<Point> = open.flat_map(|(_, plan)| plan.boundaries_of(sim.own.range)).collect();
            let count = locked.len();
            locked.sort_unstable();
            locked.dedup();
            assert_eq!(locked.len(), count, "{:?} has locked a boundary twice", sim.own.id);
        }
    }

    fn deliver(&mut self) {
        if self.envelopes.is_empty() {
            return;
        }
        let index = self.rng.below(self.envelopes.len() as u64) as usize;
        let envelope = match self.rng.below(10) {
            0 => return drop(self.envelopes.swap_remove(index)),
            1 | 2 => self.envelopes[index].clone(),
            _ => self.envelopes.swap_remove(index),
        };
        self.hand_over(envelope);
    }

    fn hand_over(&mut self, envelope: GroupEnvelope) {
        let mut heirs: Vec<GroupId> = Vec::new();
        if self.groups.contains_key(&envelope.to.id) {
            heirs.push(envelope.to.id);
        } else {
            heirs.extend(
                self.groups.values().filter(|sim| sim.transactions.is_heir_of(envelope.to.id)).map(|sim| sim.own.id),
            );
        }
        if heirs.is_empty() {
            return;
        }
        let to = heirs[self.rng.below(heirs.len() as u64) as usize];
        let sim = self.groups.get_mut(&to).expect("one of them");
        self.trace.push(format!("{:?} {to:?} hears {:?} say {}", self.now, envelope.from, name(&envelope.message)));
        let me = sim.reference();
        sim.driver.on_envelope(&sim.own, &me, &sim.transactions, envelope);
        self.settle(to);
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.rng.below(20));
        match self.rng.below(100) {
            0..3 => self.make_plan(),
            3..6 => self.propose_plan(),
            6 => self.change_members(),
            // Another node leads.
            7 => {
                let id = self.any_group();
                self.groups.get_mut(&id).expect("just found").driver = TransactionDriver::default();
                self.settle(id);
            }
            8..30 => {
                let id = self.any_group();
                self.settle(id);
            }
            _ => self.deliver(),
        }
    }

    /// Ends all disturbances: all must come to rest.
    fn calm_down(&mut self) {
        for round in 0.. {
            assert!(round < 200, "no rest: {}", self.tail());
            while let Some(envelope) = self.envelopes.pop() {
                self.hand_over(envelope);
            }
            let sims = self.groups.values();
            let calm = sims.clone().all(|sim| {
                sim.ended.is_none()
                    && sim.transactions.is_calm()
                    && sim.transactions.decided().is_empty()
                    && sim.driver.is_known(sim.own.epoch, &sim.transactions, |_| true)
            });
            if calm {
                break;
            }
            self.now = self.now + Duration::from_millis(500);
            let ids: Vec<GroupId> = self.groups.keys().copied().collect();
            ids.into_iter().for_each(|id| self.settle(id));
        }
        for sim in self.groups.values() {
            let own = sim.reference();
            let view = sim.transactions.view(&own);
            let at = |reference: &GroupRef| self.groups.get(&reference.id).map(Sim::reference);
            assert_eq!(at(&view.successor).as_ref(), Some(&view.successor), "{}", self.tail());
            assert_eq!(at(&view.predecessor).as_ref(), Some(&view.predecessor), "{}", self.tail());
            assert_eq!(view.successor.range.start(), own.range.end());
            assert_eq!(view.predecessor.range.end(), own.range.start());
        }
    }

    fn tail(&self) -> String {
        self.trace[self.trace.len().saturating_sub(60)..].join("\n")
    }
}

fn name(message: &GroupMessage) -> &'static str {
    match message {
        GroupMessage::Prepare(..) => "prepare",
        GroupMessage::Vote(_, Vote::Yes) => "yes",
        GroupMessage::Vote(_, Vote::No) => "no",
        GroupMessage::Decision(_, Outcome::Commit) => "commit",
        GroupMessage::Decision(_, Outcome::Abort) => "abort",
        GroupMessage::End(_) => "end",
        GroupMessage::Question(_) => "question",
        GroupMessage::Push(..) => "push",
        GroupMessage::Known(_) => "known",
    }
}

/// Plays a ring of one group, a dozen of them, and so on, for a while. Returns the number of commits of each kind.
fn run(seed: u64, defects: Defects) -> BTreeMap<&'static str, u32> {
    let mut world = World::new(seed, 2 + (seed % 12) as u8, defects);
    for _ in 0..2_000 {
        world.step();
    }
    world.calm_down();
    world.committed
}

/// Hazards 28-37, 42.
#[test]
fn rings_stay_whole_whatever_is_said_in_which_order() {
    let seeds = std::env::var("SCATTER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1_000);
    let mut committed: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..seeds {
        run(seed, Defects::NONE).into_iter().for_each(|(name, count)| *committed.entry(name).or_default() += count);
    }
    println!("{committed:?}");
    assert!(committed.len() == 4 && committed.values().all(|count| *count >= 100), "{committed:?}");
}

/// Each rule is needed: without it some ring fails.
#[test]
fn what_is_left_out_is_found() {
    let all = [
        Defect::AnyGeneration,
        Defect::NoLocks,
        Defect::OneVote,
        Defect::NotInherited,
        Defect::VoteBeforeChosen,
        Defect::AnyAttempt,
        Defect::ByArrival,
    ];
    let missed: Vec<Defect> = all
        .into_iter()
        .filter(|defect| {
            let defects = Defects::NONE.with(*defect);
            (0..200).all(|seed| std::panic::catch_unwind(|| run(seed, defects)).is_ok())
        })
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}
