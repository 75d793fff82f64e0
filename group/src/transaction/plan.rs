//! Plans: the effect of a transaction on groups, and the groups that take part in it (the table in `docs/design/transactions.md`).
//!
//! A plan is made from its maker's knowledge of the ring, which may be old. It is carried whole in *begin* and in each question, and every
//! party checks the plan's statements about itself. So every committed plan was true.

use alloc::vec::Vec;
use core::fmt;

use overlay::{Contact, Epoch, GroupId, GroupRef, KeyRange, NodeId, Point};
use serde::{Deserialize, Serialize};

use crate::transaction::TransactionId;
use overlay::time::WallMillis;

/// A transaction between groups: its kind, and the details that its maker decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GroupTransaction {
    /// The coordinator becomes two groups: one with these members from its start up to this point, and one with the rest of its members
    /// from there on.
    Split {
        /// Start of the second group.
        at: Point,
        /// Members of the first group.
        first: Vec<NodeId>,
    },
    /// The coordinator and its successor become one group, with the members of both.
    Merge,
    /// The boundary between the coordinator and its successor moves to this point.
    Repartition {
        /// New start of the successor.
        at: Point,
    },
    /// Members of the coordinator move to another group, and some members of that group move to the coordinator.
    Migrate {
        /// Members that move to the other group.
        to: Vec<NodeId>,
        /// Members that come from the other group.
        from: Vec<NodeId>,
    },
    /// The coordinator takes over the range before its own, which is lost with all records that were chosen there. A person has declared
    /// that the groups that owned it will not return (hazard 40). These groups are not asked.
    Repair {
        /// Start of the lost range; it ends where the coordinator's range begins.
        from: Point,
        /// Start of the last of the lost groups, as the coordinator knows.
        last: Point,
        /// All groups that owned a part of the lost range.
        lost: Vec<GroupId>,
        /// Epoch of the last of the lost groups, as the coordinator knows. The group that takes the range over begins with a later one: the
        /// lost group may have taken over a lost range itself, and be far ahead of its neighbours.
        above: Epoch,
    },
}

/// Upper limit of groups that one repair may declare lost. The two groups beside the gap must each know their neighbour there to be among
/// them.
pub const LOST_MAX: usize = 4;
/// Number of epochs, for each lost group, by which the epoch of a group that takes over a lost range exceeds all known epochs: whatever the
/// lost groups did meanwhile, their epochs are earlier.
pub(crate) const LOSS_EPOCHS: u64 = 1 << 32;

impl GroupTransaction {
    /// Returns whether only members move: all boundaries between groups stay, and with them all neighbours.
    pub(crate) fn keeps_boundaries(&self) -> bool {
        matches!(self, GroupTransaction::Migrate { .. })
    }

    /// Returns the name of the kind of transaction.
    pub fn name(&self) -> &'static str {
        match self {
            GroupTransaction::Split { .. } => "split",
            GroupTransaction::Merge => "merge",
            GroupTransaction::Repartition { .. } => "repartition",
            GroupTransaction::Migrate { .. } => "migrate",
            GroupTransaction::Repair { .. } => "repair",
        }
    }
}

/// A group and its two neighbours, as that group states them; on a ring of one they are all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// The group.
    pub own: GroupRef,
    /// Group with a range that ends where its own starts.
    pub predecessor: GroupRef,
    /// Group with a range that starts where its own ends.
    pub successor: GroupRef,
}

impl View {
    fn groups(&self) -> [&GroupRef; 3] {
        [&self.own, &self.predecessor, &self.successor]
    }
}

/// Group that takes part. Each group is asked once, and counted once, in however many roles it stands (hazard 35).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Party {
    /// The group, with its range when it is asked. A touched group must also be in the same epoch, and a group that only gets another
    /// neighbour in this epoch or a later one.
    pub group: GroupRef,
    /// Whether the group will be another one, or have another range or other members; otherwise it only gets another neighbour.
    pub touched: bool,
}

/// Name of a group that is born of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BirthName {
    /// The group continues under the name of a former group.
    Kept(GroupId),
    /// The group is a new one: a child of the transaction.
    New(u8),
}

/// Group that is born of the touched groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Birth {
    /// Name of the group.
    pub name: BirthName,
    /// Range that the group owns.
    pub range: KeyRange,
    /// Members of the group, as far as the plan knows; one that is no member any more at the end is left out.
    pub members: Vec<Contact>,
}

/// Precedence among transactions: more tries first, then an earlier begin. Equal ranks are told apart by the transaction's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank {
    /// Negative number of earlier tries: more tries sort first.
    tried: i64,
    /// Time of the first try, in group time.
    since: WallMillis,
}

impl Rank {
    /// Returns the rank of a transaction with this number of earlier tries, the first of them at `since`.
    pub fn new(tried: u32, since: WallMillis) -> Rank {
        Rank { tried: -i64::from(tried), since }
    }

    /// Returns the time of the first try, in group time.
    pub fn since(&self) -> WallMillis {
        self.since
    }
}

/// Plan of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Plan {
    /// Transaction to carry out.
    pub operation: GroupTransaction,
    /// Groups that take part, the coordinator first.
    pub parties: Vec<Party>,
    /// Groups that are born of the touched ones, in ring order from the coordinator's start.
    pub births: Vec<Birth>,
    /// Precedence over other transactions.
    pub rank: Rank,
}

/// Reason for which there can be no such plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanRefusal {
    /// The two views contradict each other: a group changed meanwhile.
    Stale,
    /// A group would have no members.
    NoMembers,
    /// The point is not strictly within the range that it is to divide.
    Outside,
    /// There is only one group.
    Alone,
    /// A node that is to move is no member of the group that it is to leave.
    NoMember,
    /// The operation would change nothing.
    Nothing,
    /// The new group would have more members than a group should.
    TooLarge,
    /// The group before this one is not among those that are said to be lost.
    NotLost,
}

impl fmt::Display for PlanRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PlanRefusal::Stale => {
                "the known states of the participating groups do not match: these groups are changing; try again"
            }
            PlanRefusal::NoMembers => "one of the groups would have no members",
            PlanRefusal::Outside => "the boundary is not strictly inside the range to divide",
            PlanRefusal::Alone => "there is only one group: it has no neighbour",
            PlanRefusal::NoMember => "a peer to be moved is not a member of the group that it would leave",
            PlanRefusal::Nothing => "the transaction would change nothing",
            PlanRefusal::TooLarge => "the two groups together have more members than the network's --max-group",
            PlanRefusal::NotLost => {
                "the predecessor of this group on the ring is not among the groups declared lost; only the successor \
                of a lost range can take the range over"
            }
        })
    }
}

impl Plan {
    /// Returns the plan of an operation, asked of the group of the first view. The second view is that of the other touched group, for all
    /// operations but a split.
    ///
    /// # Errors
    /// The reason for which there is no such plan: [`PlanRefusal::Stale`] where the views contradict each other or do not fit the operation.
    pub fn new(operation: GroupTransaction, own: &View, other: Option<&View>, rank: Rank) -> Result<Plan, PlanRefusal> {
        let births = match (&operation, other) {
            (GroupTransaction::Split { at, first }, None) => split(&own.own, *at, first)?,
            (GroupTransaction::Merge, Some(other)) => merge(own, other)?,
            (GroupTransaction::Repartition { at }, Some(other)) => repartition(own, other, *at)?,
            (GroupTransaction::Migrate { to, from }, Some(other)) => migrate(&own.own, &other.own, to, from)?,
            _ => return Err(PlanRefusal::Stale),
        };
        let mut parties = alloc::vec![Party { group: own.own.clone(), touched: true }];
        parties.extend(other.map(|other| Party { group: other.own.clone(), touched: true }));
        // A migration moves no boundary, so neighbours of the two groups are not asked: under churn four groups are hardly ever ready.
        let views = [Some(own), other].into_iter().flatten().filter(|_| !operation.keeps_boundaries());
        for group in views.flat_map(View::groups) {
            match parties.iter_mut().find(|party| party.group.id == group.id) {
                Some(known) if known.group.range != group.range => return Err(PlanRefusal::Stale),
                // A neighbour may know it as of before a change of its members.
                Some(known) if known.group.epoch >= group.epoch => {}
                Some(known) if known.touched => return Err(PlanRefusal::Stale),
                Some(known) => known.group = group.clone(),
                None => parties.push(Party { group: group.clone(), touched: false }),
            }
        }
        let plan = Plan { operation, parties, births, rank };
        if plan.is_sound() { Ok(plan) } else { Err(PlanRefusal::Stale) }
    }

    /// Returns the plan of a repair, asked of the group behind the lost range. `before`: the group that ends where the lost range begins,
    /// if that is another group.
    ///
    /// # Errors
    /// [`PlanRefusal::Alone`] for a ring of one group, [`PlanRefusal::NotLost`] if the predecessor is not in `lost`, [`PlanRefusal::Stale`]
    /// if the parts do not fit.
    pub fn repair(
        from: Point,
        lost: Vec<GroupId>,
        own: &View,
        before: Option<&GroupRef>,
        rank: Rank,
    ) -> Result<Plan, PlanRefusal> {
        let (group, gone) = (&own.own, &own.predecessor);
        if gone.id == group.id {
            return Err(PlanRefusal::Alone);
        }
        if !lost.contains(&gone.id) {
            return Err(PlanRefusal::NotLost);
        }
        let range = KeyRange::new(from, group.range.end());
        let birth = Birth { name: BirthName::Kept(group.id), range, members: group.members.clone() };
        let mut parties = alloc::vec![Party { group: group.clone(), touched: true }];
        parties.extend(before.map(|before| Party { group: before.clone(), touched: false }));
        let operation = GroupTransaction::Repair { from, last: gone.range.start(), lost, above: gone.epoch };
        let plan = Plan { operation, parties, births: alloc::vec![birth], rank };
        if plan.is_sound() { Ok(plan) } else { Err(PlanRefusal::Stale) }
    }

    /// Returns whether this plan of a repair fits together.
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
        self.operation.keeps_boundaries()
    }

    /// Returns whether this plan of a migration fits together: each of its two groups keeps its name and its range.
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

    /// Returns the start of the lost range and that of the last lost group, for a repair.
    pub fn gap(&self) -> Option<(Point, Point)> {
        match self.operation {
            GroupTransaction::Repair { from, last, .. } => Some((from, last)),
            _ => None,
        }
    }

    /// Returns the groups that the plan declares lost.
    pub fn lost(&self) -> &[GroupId] {
        match &self.operation {
            GroupTransaction::Repair { lost, .. } => lost,
            _ => &[],
        }
    }

    /// Returns whether the plan fits together. Plans from other groups are checked by this before they are believed.
    pub fn is_sound(&self) -> bool {
        if self.parties.is_empty() {
            return false; // The plan has no coordinator.
        }
        if let GroupTransaction::Repair { from, lost, .. } = &self.operation {
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

    /// Returns the coordinator.
    pub fn coordinator(&self) -> &GroupRef {
        &self.parties[0].group
    }

    /// Returns the groups that the transaction changes.
    pub fn touched(&self) -> impl Iterator<Item = &Party> + Clone {
        self.parties.iter().filter(|party| party.touched)
    }

    /// Returns a group's part in the plan.
    pub fn party(&self, id: GroupId) -> Option<&Party> {
        self.parties.iter().find(|party| party.group.id == id)
    }

    /// Returns the groups that are asked: all but the coordinator.
    pub fn asked(&self) -> impl Iterator<Item = &Party> {
        self.parties[1..].iter()
    }

    /// Returns the boundaries between groups that the plan affects, each once: a touched group lies on one or both sides of each. For a
    /// migration, which changes none: the boundaries of its two groups, which each of them locks on its own side.
    pub fn boundaries(&self) -> Vec<Point> {
        let mut all: Vec<Point> =
            self.touched().flat_map(|party| [party.group.range.start(), party.group.range.end()]).collect();
        all.extend(self.gap().map(|(from, _)| from));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the boundaries that a group of this range must lock.
    pub fn boundaries_of(&self, range: KeyRange) -> Vec<Point> {
        let mut all = self.boundaries();
        all.retain(|boundary| *boundary == range.start() || *boundary == range.end());
        all
    }

    /// Returns the least epoch of a new group: higher than that of any party when the plan was made, and for a repair higher than that of
    /// the last lost group.
    pub(crate) fn epoch_least(&self) -> Epoch {
        let known = self.parties.iter().map(|party| party.group.epoch).chain(self.above()).max().unwrap_or_default();
        let later = self.lost().len() as u64 * LOSS_EPOCHS;
        Epoch(known.0.saturating_add(later.max(1)))
    }

    /// Returns the epoch of the last lost group, for a repair.
    pub(crate) fn above(&self) -> Option<Epoch> {
        match self.operation {
            GroupTransaction::Repair { above, .. } => Some(above),
            _ => None,
        }
    }

    /// Returns the epoch in which a new group begins: above those of all parties, as planned, and above these `last` epochs of the touched
    /// groups and of their neighbours.
    pub fn epoch_after(&self, last: impl Iterator<Item = Epoch>) -> Epoch {
        let above = last.map(|epoch| Epoch(epoch.0 + 1)).max();
        above.unwrap_or_default().max(self.epoch_least())
    }

    /// Returns the id of a new group.
    pub fn id_of(&self, id: TransactionId, birth: &Birth) -> GroupId {
        match birth.name {
            BirthName::Kept(kept) => kept,
            BirthName::New(index) => id.child(index),
        }
    }

    /// Returns a new group as other groups will know it at first; its epoch may come to be higher.
    pub fn reference(&self, id: TransactionId, birth: &Birth) -> GroupRef {
        let epoch = self.epoch_least();
        GroupRef { id: self.id_of(id, birth), epoch, range: birth.range, members: birth.members.clone() }
    }

    /// Returns the group that ends at this boundary after the commit; `None` where nothing changes there.
    pub fn ends_at(&self, id: TransactionId, boundary: Point) -> Option<GroupRef> {
        let birth = self.births.iter().find(|birth| birth.range.end() == boundary);
        birth.map(|birth| self.reference(id, birth)).or_else(|| {
            let linked = self.parties.iter().find(|party| !party.touched && party.group.range.end() == boundary);
            linked.map(|party| party.group.clone())
        })
    }

    /// Returns the group that starts at this boundary after the commit.
    pub fn starts_at(&self, id: TransactionId, boundary: Point) -> Option<GroupRef> {
        let birth = self.births.iter().find(|birth| birth.range.start() == boundary);
        birth.map(|birth| self.reference(id, birth)).or_else(|| {
            let linked = self.parties.iter().find(|party| !party.touched && party.group.range.start() == boundary);
            linked.map(|party| party.group.clone())
        })
    }
}

/// Returns whether these arcs cover the same part of the ring as the other ones, each side without overlap.
fn is_same_place(some: impl Iterator<Item = KeyRange> + Clone, others: impl Iterator<Item = KeyRange> + Clone) -> bool {
    let apart = |arcs: Vec<KeyRange>| {
        arcs.iter().enumerate().all(|(index, arc)| !arcs[..index].iter().any(|before| before.overlaps(*arc)))
    };
    // The whole ring has length zero here, and so do two arcs that make it up.
    let total = |arcs: &[KeyRange]| arcs.iter().fold(0_u128, |sum, arc| sum.wrapping_add(arc.length().unwrap_or(0)));
    let (some, others): (Vec<_>, Vec<_>) = (some.collect(), others.collect());
    // Of the same length, and each arc of one side within those of the other: several arcs beside each other may hold one.
    let within = |arcs: &[KeyRange], all: &[KeyRange]| arcs.iter().all(|arc| is_covered(*arc, all));
    total(&some) == total(&others)
        && within(&some, &others)
        && within(&others, &some)
        && apart(some.clone())
        && apart(others.clone())
}

/// Returns whether these arcs, no two of which overlap, cover this one.
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

fn split(own: &GroupRef, at: Point, first: &[NodeId]) -> Result<Vec<Birth>, PlanRefusal> {
    if at == own.range.start() || !own.range.contains(at) {
        return Err(PlanRefusal::Outside);
    }
    if first.iter().any(|node| !own.nodes().any(|member| member == *node)) {
        return Err(PlanRefusal::NoMember);
    }
    let (members, others): (Vec<Contact>, Vec<Contact>) =
        own.members.iter().cloned().partition(|member| first.contains(&member.node));
    if members.is_empty() || others.is_empty() {
        return Err(PlanRefusal::NoMembers);
    }
    Ok(alloc::vec![
        Birth { name: BirthName::New(0), range: KeyRange::new(own.range.start(), at), members },
        Birth { name: BirthName::New(1), range: KeyRange::new(at, own.range.end()), members: others },
    ])
}

fn merge(own: &View, other: &View) -> Result<Vec<Birth>, PlanRefusal> {
    are_beside(own, other)?;
    let range = KeyRange::new(own.own.range.start(), other.own.range.end());
    let members = own.own.members.iter().chain(&other.own.members).cloned().collect();
    Ok(alloc::vec![Birth { name: BirthName::New(0), range, members }])
}

fn repartition(own: &View, other: &View, at: Point) -> Result<Vec<Birth>, PlanRefusal> {
    are_beside(own, other)?;
    let (start, end) = (own.own.range.start(), other.own.range.end());
    if at == own.own.range.end() {
        return Err(PlanRefusal::Nothing);
    }
    if at == start || !KeyRange::new(start, end).contains(at) {
        return Err(PlanRefusal::Outside);
    }
    let birth =
        |group: &GroupRef, range| Birth { name: BirthName::Kept(group.id), range, members: group.members.clone() };
    Ok(alloc::vec![birth(&own.own, KeyRange::new(start, at)), birth(&other.own, KeyRange::new(at, end))])
}

fn migrate(own: &GroupRef, other: &GroupRef, to: &[NodeId], from: &[NodeId]) -> Result<Vec<Birth>, PlanRefusal> {
    if own.id == other.id {
        return Err(PlanRefusal::Alone);
    }
    let is_of =
        |group: &GroupRef, nodes: &[NodeId]| nodes.iter().all(|node| group.nodes().any(|member| member == *node));
    if !is_of(own, to) || !is_of(other, from) {
        return Err(PlanRefusal::NoMember);
    }
    if to.is_empty() && from.is_empty() {
        return Err(PlanRefusal::Nothing);
    }
    let birth = |group: &GroupRef, go: &[NodeId], others: &GroupRef, come: &[NodeId]| {
        let stays = group.members.iter().filter(|member| !go.contains(&member.node));
        let comes = others.members.iter().filter(|member| come.contains(&member.node));
        let members = stays.chain(comes).cloned().collect();
        Birth { name: BirthName::Kept(group.id), range: group.range, members }
    };
    let births = alloc::vec![birth(own, to, other, from), birth(other, from, own, to)];
    // Some members of each group stay: the ones that come may be no members any more when the transaction ends.
    let stays = |group: &GroupRef, go: &[NodeId]| group.nodes().any(|node| !go.contains(&node));
    if stays(own, to) && stays(other, from) { Ok(births) } else { Err(PlanRefusal::NoMembers) }
}

/// Checks that the other group is the successor, as both groups state, and that it is another group.
///
/// # Errors
/// [`PlanRefusal::Alone`] for a ring of one group, [`PlanRefusal::Stale`] where the views do not agree.
fn are_beside(own: &View, other: &View) -> Result<(), PlanRefusal> {
    if own.successor.id == own.own.id {
        return Err(PlanRefusal::Alone);
    }
    let beside = own.successor.id == other.own.id
        && other.predecessor.id == own.own.id
        && own.own.range.end() == other.own.range.start();
    if beside { Ok(()) } else { Err(PlanRefusal::Stale) }
}
