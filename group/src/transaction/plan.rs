//! What an operation does, and who takes part in it (the table in `docs/design/transactions.md`).
//!
//! A plan is made from what its maker knows of the ring, which may be old. It is carried whole in *begin* and in each
//! question, and every party checks what it says of that party itself: so what is committed was true.

use alloc::vec::Vec;
use core::fmt;

use overlay::{Contact, Epoch, GroupId, GroupRef, KeyRange, NodeId, Point};
use serde::{Deserialize, Serialize};

use super::TransactionId;
use crate::time::WallMillis;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// The coordinator becomes two groups: one with these members from its start up to this point, and one with the rest of
    /// its members from there on.
    Split {
        /// Where the second one begins.
        at: Point,
        /// Who is a member of the first.
        first: Vec<NodeId>,
    },
    /// The coordinator and its successor become one group, with the members of both.
    Merge,
    /// The boundary between the coordinator and its successor moves to this point.
    Repartition {
        /// Where the successor begins from then on.
        at: Point,
    },
    /// Members of the coordinator go to another group, and some of that one's come to it.
    Migrate {
        /// Who goes to the other one.
        to: Vec<NodeId>,
        /// Who comes from it.
        from: Vec<NodeId>,
    },
    /// The coordinator takes over what lies before it and is lost, with all that was chosen there: somebody has said that the
    /// groups that owned it will not return (hazard 40). These are not asked.
    Repair {
        /// Where the lost range begins; it ends where the coordinator's begins.
        from: Point,
        /// Where the last of the lost groups begins, as the coordinator knows.
        last: Point,
        /// All that owned something of it.
        lost: Vec<GroupId>,
        /// The epoch of the last of the lost groups, as the coordinator knows. What takes the range over begins later: the lost group may
        /// have taken over a lost range itself, and be far ahead of its neighbours.
        above: Epoch,
    },
}

/// Groups that one repair may declare lost: the two that lie beside the gap must know of what lies next to them among these.
pub const LOST_MAX: usize = 4;
/// What takes a lost range over is of an epoch so much later than all that is known, once for each lost group: whatever the lost groups
/// did meanwhile, theirs are earlier.
pub(crate) const LOSS_EPOCHS: u64 = 1 << 32;

impl Operation {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Split { .. } => "split",
            Operation::Merge => "merge",
            Operation::Repartition { .. } => "repartition",
            Operation::Migrate { .. } => "migrate",
            Operation::Repair { .. } => "repair",
        }
    }
}

/// A group and its two neighbours, as that group says; on a ring of one they are all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// The group.
    pub own: GroupRef,
    /// Whose range ends where its own starts.
    pub predecessor: GroupRef,
    /// Whose range starts where its own ends.
    pub successor: GroupRef,
}

impl View {
    fn groups(&self) -> [&GroupRef; 3] {
        [&self.own, &self.predecessor, &self.successor]
    }
}

/// One group that takes part; each is asked once, and counted once, in however many roles it stands (hazard 35).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Party {
    /// The group, and its range when it is asked. A touched group must be in the same epoch, too; one that only gets another neighbour in
    /// this epoch or a later one.
    pub group: GroupRef,
    /// It will be another group, or of another range or other members; otherwise it only gets another neighbour.
    pub touched: bool,
}

/// What a group that is born of a transaction is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BirthName {
    /// It goes on under the name of a group that was.
    Kept(GroupId),
    /// It is a new one: a child of the transaction.
    New(u8),
}

/// What comes of the groups that are touched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Birth {
    /// How it is called.
    pub name: BirthName,
    /// What it owns.
    pub range: KeyRange,
    /// Who belongs to it, where the plan knows; who is no member any more at the end is left out.
    pub members: Vec<Contact>,
}

/// Whom others let go first: who has tried more often; who began earlier. What is equal is told apart by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank {
    /// How often it was tried before, negative: more is less.
    tried: i64,
    /// When it was tried first, in group time.
    since: WallMillis,
}

impl Rank {
    /// Of what was tried so often before, for the first time then.
    pub fn new(tried: u32, since: WallMillis) -> Rank {
        Rank { tried: -i64::from(tried), since }
    }

    /// When it was tried first, in group time.
    pub fn since(&self) -> WallMillis {
        self.since
    }
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Plan {
    /// What is to be done.
    pub operation: Operation,
    /// Who takes part, the coordinator first.
    pub parties: Vec<Party>,
    /// What comes of the touched, in ring order from the coordinator's start.
    pub births: Vec<Birth>,
    /// Whom it yields to.
    pub rank: Rank,
}

/// Why there can be no such plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The two views contradict each other: something changed meanwhile.
    Stale,
    /// A group would have no members.
    NoMembers,
    /// The point is not strictly within the range that it is to divide.
    Outside,
    /// There is only one group.
    Alone,
    /// Somebody who is to move is no member of the group that it is to leave.
    NoMember,
    /// Nothing would change.
    Nothing,
    /// What would come of it has more members than a group should.
    TooLarge,
    /// The group before this one is not among those that are said to be lost.
    NotLost,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Stale => "what is known of the groups that take part does not fit together: they are changing",
            Refusal::NoMembers => "a group would have no members",
            Refusal::Outside => "the boundary does not lie strictly within the range that it is to divide",
            Refusal::Alone => "there is only one group",
            Refusal::NoMember => "who is to move is no member of the group that it is to leave",
            Refusal::Nothing => "nothing would change",
            Refusal::TooLarge => "the two groups together have more members than the network's --max-group",
            Refusal::NotLost => {
                "the group before this one on the ring is another than what is said to be lost; the group that takes a lost \
                 range over is the one behind it"
            }
        })
    }
}

impl Plan {
    /// What this operation does, asked of the group of the first view; the second one is that of the other group that is
    /// touched, for all but a split.
    pub fn new(operation: Operation, own: &View, other: Option<&View>, rank: Rank) -> Result<Plan, Refusal> {
        let births = match (&operation, other) {
            (Operation::Split { at, first }, None) => split(&own.own, *at, first)?,
            (Operation::Merge, Some(other)) => merge(own, other)?,
            (Operation::Repartition { at }, Some(other)) => repartition(own, other, *at)?,
            (Operation::Migrate { to, from }, Some(other)) => migrate(&own.own, &other.own, to, from)?,
            _ => return Err(Refusal::Stale),
        };
        let mut parties = alloc::vec![Party { group: own.own.clone(), touched: true }];
        parties.extend(other.map(|other| Party { group: other.own.clone(), touched: true }));
        // A migration moves no boundary, so neighbours of the two groups are not asked: under churn four groups are hardly ever ready.
        let moves_boundaries = !matches!(operation, Operation::Migrate { .. });
        let views = [Some(own), other].into_iter().flatten().filter(|_| moves_boundaries);
        for group in views.flat_map(View::groups) {
            match parties.iter_mut().find(|party| party.group.id == group.id) {
                Some(known) if known.group.range != group.range => return Err(Refusal::Stale),
                // A neighbour may know it as of before a change of its members.
                Some(known) if known.group.epoch >= group.epoch => {}
                Some(known) if known.touched => return Err(Refusal::Stale),
                Some(known) => known.group = group.clone(),
                None => parties.push(Party { group: group.clone(), touched: false }),
            }
        }
        let plan = Plan { operation, parties, births, rank };
        if plan.is_sound() { Ok(plan) } else { Err(Refusal::Stale) }
    }

    /// What takes over a lost range, asked of the group behind it. `before`: the one that ends where the lost range begins,
    /// where that is another one.
    pub fn repair(
        from: Point,
        lost: Vec<GroupId>,
        own: &View,
        before: Option<&GroupRef>,
        rank: Rank,
    ) -> Result<Plan, Refusal> {
        let (group, gone) = (&own.own, &own.predecessor);
        if gone.id == group.id {
            return Err(Refusal::Alone);
        }
        if !lost.contains(&gone.id) {
            return Err(Refusal::NotLost);
        }
        let range = KeyRange::new(from, group.range.end());
        let birth = Birth { name: BirthName::Kept(group.id), range, members: group.members.clone() };
        let mut parties = alloc::vec![Party { group: group.clone(), touched: true }];
        parties.extend(before.map(|before| Party { group: before.clone(), touched: false }));
        let operation = Operation::Repair { from, last: gone.range.start(), lost, above: gone.epoch };
        let plan = Plan { operation, parties, births: alloc::vec![birth], rank };
        if plan.is_sound() { Ok(plan) } else { Err(Refusal::Stale) }
    }

    /// Does this plan fit together, which takes over a lost range?
    fn is_sound_repair(&self, from: Point, lost: &[GroupId]) -> bool {
        let own = self.coordinator();
        let before = match &self.parties[1..] {
            [] => own,
            [before] => &before.group,
            _ => return false,
        };
        let [birth] = self.births.as_slice() else { return false };
        let is_lost = |party: &Party| lost.contains(&party.group.id);
        let range = KeyRange::new(from, own.range.end());
        let apart = before.id == own.id || !before.range.overlaps(range);
        self.parties[0].touched
            && !self.parties[1..].iter().any(|party| party.touched || party.group.id == own.id)
            && (1..=LOST_MAX).contains(&lost.len())
            && !self.parties.iter().any(is_lost)
            && birth.name == BirthName::Kept(own.id)
            && birth.range == range
            && !own.range.is_full()
            && from != own.range.start()
            && !own.range.contains(from)
            && before.range.end() == from
            && apart
    }

    /// Returns whether only members move: all boundaries between groups stay, and with them all neighbours.
    pub fn keeps_boundaries(&self) -> bool {
        matches!(self.operation, Operation::Migrate { .. })
    }

    /// Returns whether this plan, which moves members, fits together: each of its two groups keeps its name and its range.
    fn is_sound_migration(&self) -> bool {
        let [own, other] = self.parties.as_slice() else { return false };
        let keeps = |party: &Party| {
            let is_same =
                |birth: &&Birth| birth.name == BirthName::Kept(party.group.id) && birth.range == party.group.range;
            self.births.iter().filter(is_same).count() == 1
        };
        own.touched
            && other.touched
            && own.group.id != other.group.id
            && !own.group.range.overlaps(other.group.range)
            && self.births.len() == 2
            && keeps(own)
            && keeps(other)
    }

    /// Where the lost range begins and where the last of the lost groups does, for what takes one over.
    pub fn gap(&self) -> Option<(Point, Point)> {
        match self.operation {
            Operation::Repair { from, last, .. } => Some((from, last)),
            _ => None,
        }
    }

    /// The groups that it declares lost.
    pub fn lost(&self) -> &[GroupId] {
        match &self.operation {
            Operation::Repair { lost, .. } => lost,
            _ => &[],
        }
    }

    /// Does it fit together? What others send is asked before it is believed.
    pub fn is_sound(&self) -> bool {
        if self.parties.is_empty() {
            return false; // It has no coordinator.
        }
        if let Operation::Repair { from, lost, .. } = &self.operation {
            return self.is_sound_repair(*from, lost);
        }
        if self.keeps_boundaries() {
            return self.is_sound_migration();
        }
        let ids = self.parties.iter().map(|party| party.group.id);
        let once = ids.clone().enumerate().all(|(index, id)| !ids.clone().take(index).any(|before| before == id));
        let (touched, births) = (self.touched().map(|party| party.group.range), self.births.iter());
        let same = is_same_place(touched.clone(), births.clone().map(|birth| birth.range));
        let linked = self.parties.iter().filter(|party| !party.touched);
        let apart = linked.clone().all(|party| !touched.clone().any(|range| range.overlaps(party.group.range)));
        let beside = self.boundaries().into_iter().all(|boundary| {
            let ends = |party: &&Party| party.group.range.end() == boundary;
            let starts = |party: &&Party| party.group.range.start() == boundary;
            self.parties.iter().filter(ends).count() == 1 && self.parties.iter().filter(starts).count() == 1
        });
        let named = |birth: &Birth| match birth.name {
            BirthName::Kept(id) => self.touched().any(|party| party.group.id == id),
            BirthName::New(index) => usize::from(index) < self.births.len(),
        };
        let kept = self.births.iter().all(named);
        once && same && apart && beside && kept && (1..=2).contains(&self.births.len()) && self.parties.len() <= 6
    }

    /// Who coordinates it.
    pub fn coordinator(&self) -> &GroupRef {
        &self.parties[0].group
    }

    /// The groups that will be others.
    pub fn touched(&self) -> impl Iterator<Item = &Party> + Clone {
        self.parties.iter().filter(|party| party.touched)
    }

    /// A group's part in it.
    pub fn party(&self, id: GroupId) -> Option<&Party> {
        self.parties.iter().find(|party| party.group.id == id)
    }

    /// All that are asked: everybody but the coordinator.
    pub fn asked(&self) -> impl Iterator<Item = &Party> {
        self.parties[1..].iter()
    }

    /// The boundaries between groups at which something changes, each once: on one or both sides of each of them lies a group that is
    /// touched. For a migration, which changes none: those of its two groups, which each of them locks on its own side.
    pub fn boundaries(&self) -> Vec<Point> {
        let mut all: Vec<Point> =
            self.touched().flat_map(|party| [party.group.range.start(), party.group.range.end()]).collect();
        all.extend(self.gap().map(|(from, _)| from));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The boundaries that a group of this range must lock.
    pub fn boundaries_of(&self, range: KeyRange) -> Vec<Point> {
        let mut all = self.boundaries();
        all.retain(|boundary| *boundary == range.start() || *boundary == range.end());
        all
    }

    /// Returns an epoch that is higher than that of any party when the plan was made, and for a repair of the last of the lost groups: the
    /// least that a birth's can be.
    pub(crate) fn epoch_least(&self) -> Epoch {
        let known = self.parties.iter().map(|party| party.group.epoch).chain(self.above()).max().unwrap_or_default();
        let later = self.lost().len() as u64 * LOSS_EPOCHS;
        Epoch(known.0.saturating_add(later.max(1)))
    }

    /// Returns the epoch of the last of the lost groups, for what takes one over.
    pub(crate) fn above(&self) -> Option<Epoch> {
        match self.operation {
            Operation::Repair { above, .. } => Some(above),
            _ => None,
        }
    }

    /// Returns the epoch in which what is born begins: above those of all that take part, as they were planned for, and above these `last`
    /// epochs of the touched groups and of their neighbours.
    pub fn epoch_after(&self, last: impl Iterator<Item = Epoch>) -> Epoch {
        let above = last.map(|epoch| Epoch(epoch.0 + 1)).max();
        above.unwrap_or_default().max(self.epoch_least())
    }

    /// What a birth is called.
    pub fn id_of(&self, id: TransactionId, birth: &Birth) -> GroupId {
        match birth.name {
            BirthName::Kept(kept) => kept,
            BirthName::New(index) => id.child(index),
        }
    }

    /// A birth as others will know it at first; its epoch may come to be higher.
    pub fn reference(&self, id: TransactionId, birth: &Birth) -> GroupRef {
        let epoch = self.epoch_least();
        GroupRef { id: self.id_of(id, birth), epoch, range: birth.range, members: birth.members.clone() }
    }

    /// Who ends at this boundary once it is committed; `None` where nothing changes there.
    pub fn ends_at(&self, id: TransactionId, boundary: Point) -> Option<GroupRef> {
        let birth = self.births.iter().find(|birth| birth.range.end() == boundary);
        birth.map(|birth| self.reference(id, birth)).or_else(|| {
            let linked = self.parties.iter().find(|party| !party.touched && party.group.range.end() == boundary);
            linked.map(|party| party.group.clone())
        })
    }

    /// Who starts at this boundary once it is committed.
    pub fn starts_at(&self, id: TransactionId, boundary: Point) -> Option<GroupRef> {
        let birth = self.births.iter().find(|birth| birth.range.start() == boundary);
        birth.map(|birth| self.reference(id, birth)).or_else(|| {
            let linked = self.parties.iter().find(|party| !party.touched && party.group.range.start() == boundary);
            linked.map(|party| party.group.clone())
        })
    }
}

/// Do these arcs cover the same part of the ring as those, each without overlap?
fn is_same_place(some: impl Iterator<Item = KeyRange> + Clone, others: impl Iterator<Item = KeyRange> + Clone) -> bool {
    let apart = |arcs: Vec<KeyRange>| {
        arcs.iter().enumerate().all(|(index, arc)| !arcs[..index].iter().any(|before| before.overlaps(*arc)))
    };
    // The whole ring is as long as nothing, and as two arcs that make it up.
    let total = |arcs: &[KeyRange]| arcs.iter().fold(0_u128, |sum, arc| sum.wrapping_add(arc.length().unwrap_or(0)));
    let (some, others): (Vec<_>, Vec<_>) = (some.collect(), others.collect());
    // Of the same length, and each of one side in those of the other: for arcs beside each other one may hold two.
    let within = |arcs: &[KeyRange], all: &[KeyRange]| arcs.iter().all(|arc| is_covered(*arc, all));
    total(&some) == total(&others)
        && within(&some, &others)
        && within(&others, &some)
        && apart(some.clone())
        && apart(others.clone())
}

/// Do these arcs, of which no two overlap, cover this one?
fn is_covered(arc: KeyRange, by: &[KeyRange]) -> bool {
    let mut at = arc.start();
    for _ in 0..by.len() {
        let Some(over) = by.iter().find(|other| other.contains(at)) else { return false };
        if over.is_full() || (!arc.is_full() && at.distance_to(over.end()) >= at.distance_to(arc.end())) {
            return true;
        }
        at = over.end();
        if at == arc.end() || at == arc.start() {
            return true;
        }
    }
    false
}

fn split(own: &GroupRef, at: Point, first: &[NodeId]) -> Result<Vec<Birth>, Refusal> {
    if at == own.range.start() || !own.range.contains(at) {
        return Err(Refusal::Outside);
    }
    if first.iter().any(|node| !own.nodes().any(|member| member == *node)) {
        return Err(Refusal::NoMember);
    }
    let (members, others): (Vec<Contact>, Vec<Contact>) =
        own.members.iter().cloned().partition(|member| first.contains(&member.node));
    if members.is_empty() || others.is_empty() {
        return Err(Refusal::NoMembers);
    }
    Ok(alloc::vec![
        Birth { name: BirthName::New(0), range: KeyRange::new(own.range.start(), at), members },
        Birth { name: BirthName::New(1), range: KeyRange::new(at, own.range.end()), members: others },
    ])
}

fn merge(own: &View, other: &View) -> Result<Vec<Birth>, Refusal> {
    are_beside(own, other)?;
    let range = KeyRange::new(own.own.range.start(), other.own.range.end());
    let members = own.own.members.iter().chain(&other.own.members).cloned().collect();
    Ok(alloc::vec![Birth { name: BirthName::New(0), range, members }])
}

fn repartition(own: &View, other: &View, at: Point) -> Result<Vec<Birth>, Refusal> {
    are_beside(own, other)?;
    let (start, end) = (own.own.range.start(), other.own.range.end());
    if at == own.own.range.end() {
        return Err(Refusal::Nothing);
    }
    if at == start || !KeyRange::new(start, end).contains(at) {
        return Err(Refusal::Outside);
    }
    let birth =
        |group: &GroupRef, range| Birth { name: BirthName::Kept(group.id), range, members: group.members.clone() };
    Ok(alloc::vec![birth(&own.own, KeyRange::new(start, at)), birth(&other.own, KeyRange::new(at, end))])
}

fn migrate(own: &GroupRef, other: &GroupRef, to: &[NodeId], from: &[NodeId]) -> Result<Vec<Birth>, Refusal> {
    if own.id == other.id {
        return Err(Refusal::Alone);
    }
    let is_of =
        |group: &GroupRef, nodes: &[NodeId]| nodes.iter().all(|node| group.nodes().any(|member| member == *node));
    if !is_of(own, to) || !is_of(other, from) {
        return Err(Refusal::NoMember);
    }
    if to.is_empty() && from.is_empty() {
        return Err(Refusal::Nothing);
    }
    let birth = |group: &GroupRef, go: &[NodeId], others: &GroupRef, come: &[NodeId]| {
        let stays = group.members.iter().filter(|member| !go.contains(&member.node));
        let comes = others.members.iter().filter(|member| come.contains(&member.node));
        let members = stays.chain(comes).cloned().collect();
        Birth { name: BirthName::Kept(group.id), range: group.range, members }
    };
    let births = alloc::vec![birth(own, to, other, from), birth(other, from, own, to)];
    // Of each some stay: whoever comes may be no member any more when it comes to that.
    let stays = |group: &GroupRef, go: &[NodeId]| group.nodes().any(|node| !go.contains(&node));
    if stays(own, to) && stays(other, from) { Ok(births) } else { Err(Refusal::NoMembers) }
}

/// Is the other one the successor, as both say, and another group?
fn are_beside(own: &View, other: &View) -> Result<(), Refusal> {
    if own.successor.id == own.own.id {
        return Err(Refusal::Alone);
    }
    let beside = own.successor.id == other.own.id
        && other.predecessor.id == own.own.id
        && own.own.range.end() == other.own.range.start();
    if beside { Ok(()) } else { Err(Refusal::Stale) }
}
