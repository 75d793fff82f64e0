//! Before a leader begins a transaction with a neighbour, members copy what they do not hold of what they would own
//! (`docs/design/data.md`): what is born then only compares, and is established soon.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use group::dealing::BeginRefusal;
use group::time::Time;
use group::transaction::plan::{Operation, Plan, Rank};
use overlay::{Contact, GroupId, KeyRange, NodeId, PeerKey};

use crate::api::Event;
use crate::copying::{CopyOrder, CopyTold};
use crate::node::Node;
use crate::wire::Frame;

/// Orders are said again so often: they ask how far it has come, too.
const ORDER_AGAIN: Duration = Duration::from_millis(500);
/// Nobody is waited for longer than this: what is lacking then is copied afterwards, as after any other change of members.
pub(crate) const COPY_MAX: Duration = Duration::from_secs(600);
/// Another one waits for so long after this one was tried last: two that took turns would never come to an end.
const TURN: Duration = Duration::from_secs(1);
/// Whoever wanted it has given up, if it has not tried again for so long.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// What came of a try to begin a transaction that can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is begun, as far as this leader can tell.
    Yes,
    /// Members copy first: it is to be tried again.
    Copying,
}

/// What one member of what is born lacks of one group.
type Need = (NodeId, GroupId);

/// How far a member has come.
#[derive(Debug)]
struct Step {
    ranges: Vec<KeyRange>,
    records: u64,
    done: bool,
    /// When it was seen to go on last.
    moved: Time,
}

/// A transaction that is being prepared.
#[derive(Debug)]
pub(crate) struct Preparing {
    /// Who coordinates it.
    group: GroupId,
    operation: Operation,
    number: u64,
    steps: BTreeMap<Need, Step>,
    contacts: Vec<Contact>,
    since: Time,
    ordered: Time,
    tried: Time,
    /// Somebody has just come to an end.
    news: bool,
    /// It is begun by itself when it is prepared.
    by_itself: Option<Rank>,
}

impl Preparing {
    fn is_for(&self, group: GroupId, operation: &Operation) -> bool {
        self.group == group && self.operation == *operation
    }

    /// The same for other members, of whom some may have come far.
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

    /// Is nobody waited for any more?
    fn is_ready(&self, now: Time, patience: Duration) -> bool {
        let waits = |step: &Step| !step.done && now.since(step.moved) < patience;
        now.since(self.since) >= COPY_MAX || !self.steps.values().any(waits)
    }
}

impl Node {
    /// Begins a transaction that a group of this node's coordinates, once those who need it have copied what they would own.
    pub(crate) fn begin_prepared(
        &mut self,
        group: GroupId,
        operation: Operation,
        rank: Rank,
    ) -> Result<Begun, BeginRefusal> {
        let (now, patience) = (self.now.time, self.config.timing.copy_patience);
        let hosted = self.hosts.find_mut(group).ok_or(BeginRefusal::NotLeader(None))?;
        let plan = hosted.plan_transaction(operation.clone(), rank)?;
        let needs = needs(&plan);
        if !needs.is_empty() && patience > Duration::ZERO {
            let other = self.preparing.as_ref().filter(|known| !known.is_for(group, &operation));
            if other.is_some_and(|other| now.since(other.tried) < TURN) {
                return Err(BeginRefusal::NotNow(
                    "members are copying for something else that is to be done; try again",
                ));
            }
            self.prepare(group, &operation, &plan, needs);
            if !self.preparing.as_ref().is_some_and(|preparing| preparing.is_ready(now, patience)) {
                return Ok(Begun::Copying);
            }
        }
        let hosted = self.hosts.find_mut(group).ok_or(BeginRefusal::NotLeader(None))?;
        hosted.begin_transaction(operation, rank)?;
        if let Some(preparing) = self.preparing.take() {
            self.note_lacks(&preparing, &plan);
        }
        Ok(Begun::Yes)
    }

    /// Begins a transaction of its own group, at once or when it is prepared.
    pub fn begin_transaction(&mut self, operation: Operation) -> Result<(), BeginRefusal> {
        let group = self.hosts.home().ok_or(BeginRefusal::NotLeader(None))?;
        let (id, rank) = (group.state().id, group.rank(0));
        if self.begin_prepared(id, operation, rank)? == Begun::Copying
            && let Some(preparing) = &mut self.preparing
        {
            preparing.by_itself = Some(rank);
        }
        Ok(())
    }

    /// Has members begin with what they need, or sees to it that they go on.
    fn prepare(&mut self, group: GroupId, operation: &Operation, plan: &Plan, needs: BTreeMap<Need, Vec<KeyRange>>) {
        let now = self.now.time;
        let number = self.rng.draw();
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
            self.order_copies();
        }
    }

    /// Orders what is not there yet, and what is to be kept.
    fn order_copies(&mut self) {
        let (Some(preparing), Some(ring)) = (&mut self.preparing, self.ring) else { return };
        preparing.ordered = self.now.time;
        let number = preparing.number;
        let contacts = preparing.contacts.clone();
        let order = |source, ranges: &[KeyRange]| CopyOrder { ring, number, source, ranges: ranges.to_vec() };
        let orders: Vec<(NodeId, CopyOrder)> =
            preparing.steps.iter().map(|((node, source), step)| (*node, order(*source, &step.ranges))).collect();
        contacts.iter().for_each(|contact| self.reach(contact));
        for (node, order) in orders {
            match node == self.me {
                true => self.on_copy_order(self.me.peer, order),
                false => self.say_to(node.peer, &Frame::CopyOrder(order.into())),
            }
        }
    }

    /// Somebody says how far it has come.
    pub(crate) fn on_copy_told(&mut self, from: PeerKey, told: CopyTold) {
        let Some(preparing) = self.preparing.as_mut().filter(|preparing| preparing.number == told.number) else {
            return; // It is begun, or given up.
        };
        let now = self.now.time;
        let mut steps = preparing.steps.iter_mut();
        let Some((_, step)) = steps.find(|((node, source), _)| node.peer == from && *source == told.source) else {
            self.frames_dropped += 1;
            return;
        };
        // Whoever began anew has to come further than it had.
        if told.records > step.records || told.done && !step.done {
            step.moved = now;
        }
        (step.records, step.done) = (step.records.max(told.records), told.done);
        preparing.news |= told.done;
    }

    /// Goes on with what is being prepared.
    pub(crate) fn go_on_preparing(&mut self) {
        let now = self.now.time;
        let Some(preparing) = &mut self.preparing else { return };
        preparing.news = false;
        if now.since(preparing.tried) >= GIVEN_UP {
            self.preparing = None;
            return;
        }
        if now.since(preparing.ordered) >= ORDER_AGAIN {
            self.order_copies();
        }
        let Some(preparing) = &mut self.preparing else { return };
        let Some(rank) = preparing.by_itself else { return };
        let is_ready = preparing.is_ready(now, self.config.timing.copy_patience);
        let tried = if is_ready { preparing.tried } else { now };
        preparing.tried = tried;
        if is_ready {
            let (group, operation) = (preparing.group, preparing.operation.clone());
            let begun = self.begin_prepared(group, operation, rank);
            if matches!(begun, Err(BeginRefusal::Nonsense(_) | BeginRefusal::NotLeader(_))) {
                self.preparing = None;
            }
            // What stands against it now may be gone soon, and else it is given up.
            self.preparing.iter_mut().for_each(|preparing| preparing.tried = tried);
        }
    }

    /// When there is something to order, or to begin.
    pub(crate) fn preparing_due(&self) -> Time {
        let (soon, patience) = (self.now.time + ORDER_AGAIN / 10, self.config.timing.copy_patience);
        match &self.preparing {
            Some(preparing) if preparing.news => self.now.time,
            Some(preparing) if preparing.by_itself.is_some() && preparing.is_ready(self.now.time, patience) => soon,
            Some(preparing) => preparing.ordered + ORDER_AGAIN,
            None => Time::NEVER,
        }
    }

    /// Says so where fewer than a majority of what is born hold all of a part.
    fn note_lacks(&mut self, preparing: &Preparing, plan: &Plan) {
        let lacks = |node: NodeId| preparing.steps.iter().any(|((of, _), step)| *of == node && !step.done);
        let few = plan.births.iter().any(|birth| {
            let nodes = birth.members.iter().map(|contact| contact.node);
            nodes.filter(|node| !lacks(*node)).count() <= birth.members.len() / 2
        });
        if few {
            let (lacking, all) = (preparing.steps.values().filter(|step| !step.done).count(), preparing.steps.len());
            self.event(Event::Note(alloc::format!(
                "{lacking} of {all} members have not copied what they are to own: it begins all the same, and they copy \
                 afterwards"
            )));
        }
    }
}

/// What each member of what is born lacks of the groups that it is born of.
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
