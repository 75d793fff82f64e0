//! Preparation of a transaction with a neighbour: before a leader begins it, members copy the data of their future range
//! that they lack (`docs/design/data.md`). Then the new groups only compare, and are soon established.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use group::transaction::member::BeginRefusal;
use group::transaction::plan::{GroupTransaction, Plan, Rank};
use overlay::time::Time;
use overlay::{Contact, GroupId, KeyRange, NodeId, PeerKey};

use crate::api::Event;
use crate::context::Context;
use crate::reconfigure::copying::{Copies, CopyOrder, CopyTold};
use crate::wire::Frame;

/// Interval at which orders are repeated: they also ask for the progress.
const ORDER_AGAIN: Duration = Duration::from_millis(500);
/// Upper limit of the wait for a member: the rest is copied afterwards, as after any other change of members.
pub(crate) const COPY_MAX: Duration = Duration::from_secs(600);
/// Time after the last try of this transaction for which another one waits: two that took turns would never end.
const TURN: Duration = Duration::from_secs(1);
/// Time after the last try at which the transaction counts as given up.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Result of an attempt to begin a possible transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It has begun, as far as this leader can tell.
    Yes,
    /// Members copy first: the caller must try again.
    Copying,
}

/// Name of the data that one member of a new group lacks of one group.
type Need = (NodeId, GroupId);

/// Progress of a member.
#[derive(Debug)]
struct Step {
    ranges: Vec<KeyRange>,
    records: u64,
    done: bool,
    /// Time of the last progress.
    moved: Time,
}

/// A transaction that is being prepared.
#[derive(Debug)]
pub(crate) struct Preparing {
    /// The coordinator.
    group: GroupId,
    operation: GroupTransaction,
    number: u64,
    steps: BTreeMap<Need, Step>,
    contacts: Vec<Contact>,
    since: Time,
    ordered: Time,
    tried: Time,
    /// Whether a member has just finished.
    news: bool,
    /// `Some` if it begins by itself once it is prepared.
    by_itself: Option<Rank>,
}

impl Preparing {
    fn is_for(&self, group: GroupId, operation: &GroupTransaction) -> bool {
        self.group == group && self.operation == *operation
    }

    /// Turns to other members, some of which may have come far. Returns whether the needs have changed.
    fn turn_to(&mut self, needs: BTreeMap<Need, Vec<KeyRange>>, now: Time) -> bool {
        let same = self.steps.iter().map(|(need, step)| (need, &step.ranges)).eq(needs.iter());
        let mut before = core::mem::take(&mut self.steps);
        let step = |(need, ranges): (Need, Vec<KeyRange>)| {
            let known = before.remove(&need).filter(|step| step.ranges == ranges);
            (need, known.unwrap_or(Step { ranges, records: 0, done: false, moved: now }))
        };
        self.steps = needs.into_iter().map(step).collect();
        !same
    }

    /// Returns whether no member is waited for any more.
    fn is_ready(&self, now: Time, patience: Duration) -> bool {
        let waits = |step: &Step| !step.done && now.since(step.moved) < patience;
        now.since(self.since) >= COPY_MAX || !self.steps.values().any(waits)
    }
}

/// Copies of data for transactions to come: those that this node makes, and those that it orders as a leader.
#[derive(Default)]
pub(crate) struct Preparation {
    pub(crate) copies: Copies,
    /// The transaction that this node prepares as a leader.
    preparing: Option<Preparing>,
}

impl Preparation {
    /// Begins a transaction that a group of this node coordinates, once the members that need it have copied their future
    /// data.
    ///
    /// # Errors
    /// The transaction cannot begin now, or not at all; no transaction has begun.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        group: GroupId,
        operation: GroupTransaction,
        rank: Rank,
    ) -> Result<Begun, BeginRefusal> {
        let (now, patience) = (cx.now.time, cx.config.timing.copy_patience);
        let replica = cx.replicas.find_mut(group).ok_or(BeginRefusal::NotLeader(None))?;
        let plan = replica.plan_transaction(operation.clone(), rank)?;
        let needs = needs(&plan);
        if !needs.is_empty() && patience > Duration::ZERO {
            let other = self.preparing.as_ref().filter(|known| !known.is_for(group, &operation));
            if other.is_some_and(|other| now.since(other.tried) < TURN) {
                return Err(BeginRefusal::NotNow("members are copying data for another operation; try again"));
            }
            self.prepare(cx, group, &operation, &plan, needs);
            if !self.preparing.as_ref().is_some_and(|preparing| preparing.is_ready(now, patience)) {
                return Ok(Begun::Copying);
            }
        }
        let replica = cx.replicas.find_mut(group).ok_or(BeginRefusal::NotLeader(None))?;
        replica.begin_transaction(operation, rank)?;
        if let Some(preparing) = self.preparing.take() {
            note_lacks(cx, &preparing, &plan);
        }
        Ok(Begun::Yes)
    }

    /// Begins a transaction of its own group, at once or once it is prepared.
    ///
    /// # Errors
    /// The transaction cannot begin now, or not at all; no transaction has begun.
    pub(crate) fn begin_own(&mut self, cx: &mut Context<'_>, operation: GroupTransaction) -> Result<(), BeginRefusal> {
        let group = cx.replicas.home().ok_or(BeginRefusal::NotLeader(None))?;
        let (id, rank) = (group.state().id, group.rank(0));
        if self.begin(cx, id, operation, rank)? == Begun::Copying
            && let Some(preparing) = &mut self.preparing
        {
            preparing.by_itself = Some(rank);
        }
        Ok(())
    }

    /// Has members begin to copy their needs, or go on with it.
    fn prepare(
        &mut self,
        cx: &mut Context<'_>,
        group: GroupId,
        operation: &GroupTransaction,
        plan: &Plan,
        needs: BTreeMap<Need, Vec<KeyRange>>,
    ) {
        let now = cx.now.time;
        let number = cx.rng.draw();
        let preparing = match self.preparing.take().filter(|known| known.is_for(group, operation)) {
            Some(known) => self.preparing.insert(known),
            None => self.preparing.insert(Preparing {
                group,
                operation: operation.clone(),
                number,
                steps: BTreeMap::new(),
                contacts: Vec::new(),
                since: now,
                ordered: now,
                tried: now,
                news: false,
                by_itself: None,
            }),
        };
        preparing.tried = now;
        if preparing.turn_to(needs, now) {
            preparing.contacts = plan.births.iter().flat_map(|birth| birth.members.iter().cloned()).collect();
            self.order_copies(cx);
        }
    }

    /// Orders the missing copies, and those that are to be kept.
    fn order_copies(&mut self, cx: &mut Context<'_>) {
        let (Some(preparing), Some(ring)) = (&mut self.preparing, cx.ring) else { return };
        preparing.ordered = cx.now.time;
        let number = preparing.number;
        let contacts = preparing.contacts.clone();
        let order = |source, ranges: &[KeyRange]| CopyOrder { ring, number, source, ranges: ranges.to_vec() };
        let orders: Vec<(NodeId, CopyOrder)> =
            preparing.steps.iter().map(|((node, source), step)| (*node, order(*source, &step.ranges))).collect();
        contacts.iter().for_each(|contact| cx.reach(contact));
        for (node, order) in orders {
            match node == cx.me {
                true => self.on_copy_order(cx, cx.me.peer, order),
                false => cx.say_to(node.peer, &Frame::CopyOrder(order.into())),
            }
        }
    }

    /// Handles a member's report of its progress.
    pub(crate) fn on_copy_told(&mut self, cx: &mut Context<'_>, from: PeerKey, told: CopyTold) {
        let Some(preparing) = self.preparing.as_mut().filter(|preparing| preparing.number == told.number) else {
            return; // The transaction has begun, or was given up.
        };
        let now = cx.now.time;
        let mut steps = preparing.steps.iter_mut();
        let Some((_, step)) = steps.find(|((node, source), _)| node.peer == from && *source == told.source) else {
            cx.drop_frame();
            return;
        };
        // A member that began anew makes progress once it is further than before.
        if told.records > step.records || told.done && !step.done {
            step.moved = now;
        }
        (step.records, step.done) = (step.records.max(told.records), told.done);
        preparing.news |= told.done;
    }

    /// Goes on with the prepared transaction.
    pub(crate) fn go_on_preparing(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.time;
        let Some(preparing) = &mut self.preparing else { return };
        preparing.news = false;
        if now.since(preparing.tried) >= GIVEN_UP {
            self.preparing = None;
            return;
        }
        if now.since(preparing.ordered) >= ORDER_AGAIN {
            self.order_copies(cx);
        }
        let Some(preparing) = &mut self.preparing else { return };
        let Some(rank) = preparing.by_itself else { return };
        let is_ready = preparing.is_ready(now, cx.config.timing.copy_patience);
        let tried = if is_ready { preparing.tried } else { now };
        preparing.tried = tried;
        if is_ready {
            let (group, operation) = (preparing.group, preparing.operation.clone());
            let begun = self.begin(cx, group, operation, rank);
            if matches!(begun, Err(BeginRefusal::Unsound(_) | BeginRefusal::NotLeader(_))) {
                self.preparing = None;
            }
            // The present obstacle may soon be gone; otherwise the transaction is given up.
            self.preparing.iter_mut().for_each(|preparing| preparing.tried = tried);
        }
    }

    /// Returns the time at which there is a copy to order, or a transaction to begin.
    pub(crate) fn preparing_due(&self, cx: &Context<'_>) -> Time {
        let (soon, patience) = (cx.now.time + ORDER_AGAIN / 10, cx.config.timing.copy_patience);
        match &self.preparing {
            Some(preparing) if preparing.news => cx.now.time,
            Some(preparing) if preparing.by_itself.is_some() && preparing.is_ready(cx.now.time, patience) => soon,
            Some(preparing) => preparing.ordered + ORDER_AGAIN,
            None => Time::NEVER,
        }
    }
}

/// Reports if no majority of the members of a new group holds all data of it.
fn note_lacks(cx: &mut Context<'_>, preparing: &Preparing, plan: &Plan) {
    let lacks = |node: NodeId| preparing.steps.iter().any(|((of, _), step)| *of == node && !step.done);
    let few = plan.births.iter().any(|birth| {
        let nodes = birth.members.iter().map(|contact| contact.node);
        nodes.filter(|node| !lacks(*node)).count() <= birth.members.len() / 2
    });
    if few {
        let (lacking, all) = (preparing.steps.values().filter(|step| !step.done).count(), preparing.steps.len());
        cx.event(Event::Note(alloc::format!(
            "{lacking} of {all} members have not copied the data that they will own: the transaction begins \
            anyway, and they copy afterwards"
        )));
    }
}
/// Returns the data that each member of a new group lacks, by the group to copy it from.
fn needs(plan: &Plan) -> BTreeMap<Need, Vec<KeyRange>> {
    let mut needs: BTreeMap<Need, Vec<KeyRange>> = BTreeMap::new();
    for birth in &plan.births {
        for party in plan.touched() {
            let ranges: Vec<KeyRange> = birth.range.intersection(party.group.range).into_iter().flatten().collect();
            let comes = |node: &NodeId| party.group.nodes().all(|member| member != *node);
            for node in birth.members.iter().map(|contact| contact.node).filter(comes).filter(|_| !ranges.is_empty()) {
                needs.entry((node, party.group.id)).or_default().extend(&ranges);
            }
        }
    }
    needs
}
