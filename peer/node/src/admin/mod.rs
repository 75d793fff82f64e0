//! Transactions that an administrator requests. The group's leader decides the open details by its policies.
//!
//! Any peer that has a part in the group takes a request. It passes the request on to the leader, and is told the result.

mod agreed;
mod own;
mod switches;

pub use agreed::PolicyChange;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use group::Group;
use group::ballot::Ballot;
use group::control::state::GroupState;
use group::harmonia::switch::Switch;
use group::transaction::TransactionId;
use group::transaction::member::BeginRefusal;
use group::transaction::plan::{GroupTransaction, LOST_MAX, Plan};
use overlay::time::Time;
use overlay::{Epoch, GroupId, GroupRef, NodeId, PeerKey, Point, RingId};
use policy::halves::Halving;
use policy::lifetimes::Lifetimes;
use serde::{Deserialize, Serialize};

use self::own::{Own, OwnPatience};

use crate::api::Output;
use crate::context::Context;
use crate::policies::lifetimes::LifeWatch;
use crate::policies::views::member_views;
use crate::reconfigure::preparing::{Begun, COPY_MAX, Preparation};
use crate::replicas::LocalReplicas;
use crate::routing::{Located, RoutingTable};
use crate::wire::Frame;

/// Time after which the sender of a request gets an answer at the latest.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a repair, which waits until it is certain that the lost group does not answer.
const REPAIR_PATIENCE: Duration = Duration::from_secs(60);
/// Silence after which a group is believed to be lost; longer than any lease.
const SILENCE: Duration = Duration::from_secs(4);
/// Time for which the leader of a group that is gone may still think that it leads.
const DYING: Duration = Duration::from_secs(5);
/// Time for which a request is tried, since an obstacle may soon be gone; and the pause between two tries.
const TRIED_FOR: Duration = Duration::from_secs(3);
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Pause before the owner of a point is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(400);
/// Upper limit of open requests, at a leader and at the peer that took them; more are refused.
const REQUESTS_MAX: usize = 64;
/// Upper limit of the reason in a refusal, in bytes.
const WORDS_MAX: usize = 400;
/// Upper limit of members that a request names.
const NAMED_MAX: usize = 256;

/// Request of an administrator to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Split into two groups.
    Split {
        /// Start of the second group's range; `None` for the middle.
        at: Option<Point>,
        /// Members of the first group; if empty, the split policy decides.
        first: Vec<PeerKey>,
    },
    /// Merge with the successor.
    Merge,
    /// Move the boundary with the successor.
    Repartition {
        /// The new boundary.
        at: Point,
    },
    /// Exchange members with the successor.
    Migrate {
        /// Members that move to the successor.
        to: Vec<PeerKey>,
        /// Members of the successor that move to this group.
        from: Vec<PeerKey>,
    },
    /// Take over the range before this group, if its owners will not return: all data that was chosen there is lost.
    Repair {
        /// Start of the lost range; `None` for the start of the preceding group, as this group knows it.
        from: Option<Point>,
        /// Former owners of the range.
        lost: Vec<GroupId>,
    },
    /// Have a switch spread the group's reads, under this id. The id is above all earlier ones of the group, and was never
    /// used for another life of a switch (hazard 55).
    Switch {
        /// Id of the switch.
        id: u32,
    },
    /// Bar the use of any switch, or allow it again.
    UseSwitch {
        /// Whether the use is allowed.
        on: bool,
    },
    /// Agree on other policies, which spread over the whole ring.
    SetPolicies(PolicyChange),
    /// Go on with the present data, where members that may have forgotten data wait for members that will not come back. The
    /// peer that takes the request carries it out, and has all members that it reaches carry it out: no leader is needed.
    AcceptLoss,
}

impl AdminRequest {
    /// Returns the time after which the sender gets an answer at the latest.
    fn patience(&self) -> Duration {
        match self {
            AdminRequest::Repair { .. } => REPAIR_PATIENCE,
            _ => PATIENCE,
        }
    }
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminOutcome {
    /// The request is done; it ended with these groups.
    Done(Vec<GroupId>),
    /// The request is impossible; nothing has changed.
    Refused(String),
    /// The transaction was begun and aborted: a participant refused, or was silent. Nothing has changed.
    Aborted,
    /// The leader fell silent, or is no longer leader: the request may be done or not.
    Unknown,
    /// This peer has no part in such a group.
    NotHere,
    /// The request is impossible now, but may soon be possible; nothing has changed.
    NotNow(String),
}

impl From<BeginRefusal> for AdminOutcome {
    fn from(why: BeginRefusal) -> AdminOutcome {
        match why {
            BeginRefusal::Unsound(why) => AdminOutcome::Refused(why.to_string()),
            BeginRefusal::NotLeader(_) | BeginRefusal::NeighbourUnknown | BeginRefusal::NotNow(_) => {
                AdminOutcome::NotNow(why.to_string())
            }
        }
    }
}

impl fmt::Display for AdminOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminOutcome::Done(_) => f.write_str("done"),
            AdminOutcome::Refused(why) | AdminOutcome::NotNow(why) => f.write_str(why),
            AdminOutcome::Aborted => f.write_str(
                "a participating group refused, or did not answer: nothing has changed; try again when that group has \
                settled",
            ),
            AdminOutcome::Unknown => {
                f.write_str("the group's leader stopped answering: the outcome is unknown; look at the group's state")
            }
            AdminOutcome::NotHere => f.write_str("this peer is not in that group: ask one of the group's members"),
        }
    }
}

/// A request on its way to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedRequest {
    /// The ring.
    pub ring: RingId,
    /// Group of the request.
    pub group: GroupId,
    /// Number of the request at the peer that took it.
    pub number: u64,
    /// The request.
    pub request: AdminRequest,
}

/// All requests without a result.
#[derive(Debug, Default)]
pub(crate) struct AdminRequests {
    /// Requests of this peer's users.
    own: Vec<Own>,
    /// Requests that this node carries out as the leader.
    taken: Vec<Taken>,
}

/// Sender of a request that this node carries out as the leader.
#[derive(Clone, Copy, Debug)]
enum Asker {
    /// A peer that passed it on.
    Peer(PeerKey),
    /// A user of this peer.
    User(OwnPatience),
}

#[derive(Debug)]
struct Taken {
    asker: Asker,
    number: u64,
    group: GroupId,
    request: AdminRequest,
    /// For a repair: the owner of the range before the lost one, and the time of the last question for it.
    before: Option<GroupRef>,
    asked: Option<Time>,
    /// Time at which the sender was last told to wait, since members copy.
    told: Option<Time>,
    since: Time,
    silent_since: Time,
    /// The operation, once it has begun.
    operation: Option<GroupTransaction>,
    /// The transaction, once its begin is chosen.
    id: Option<TransactionId>,
    /// Epoch and ballot of the proposal, for a request that is no transaction.
    proposed: Option<(Epoch, Ballot)>,
    try_until: Time,
    until: Time,
}

impl AdminRequests {
    /// Handles a request that another peer passed on, which takes this node for the group's leader. Returns whether it was taken, and is
    /// to be followed.
    pub(crate) fn on_forwarded_request(
        &mut self,
        cx: &mut Context<'_>,
        from: PeerKey,
        forwarded: ForwardedRequest,
    ) -> bool {
        let ForwardedRequest { ring, group, number, request } = forwarded;
        let is_near = |group: &Group| group.state().audience().iter().any(|node| node.peer == from);
        if cx.ring != Some(ring) || !cx.replicas.find_mut(group).is_some_and(|group| is_near(group)) {
            cx.drop_frame();
            return false;
        }
        self.take_request(cx, Asker::Peer(from), number, group, request);
        true
    }

    /// Takes a request as the leader; the result shows when requests are followed next.
    fn take_request(&mut self, cx: &mut Context<'_>, asker: Asker, number: u64, group: GroupId, request: AdminRequest) {
        if self.taken.len() >= REQUESTS_MAX {
            return answer_request(
                cx,
                asker,
                number,
                AdminOutcome::NotNow("this peer has too many administrators' requests open; try again".into()),
            );
        }
        if let Err(why) = self.allows(cx, &request) {
            return answer_request(cx, asker, number, AdminOutcome::Refused(why.into()));
        }
        let since = cx.now.time;
        let until = match asker {
            Asker::User(patience) => patience.until,
            Asker::Peer(_) => since + request.patience(),
        };
        let mut try_until = since + TRIED_FOR;
        if let AdminRequest::Repair { .. } = request
            && let Some(group) = cx.replicas.find_mut(group)
        {
            group.look_for_predecessor();
            try_until = since + DYING + silence(group) + TRIED_FOR;
        }
        let (before, asked, told, operation, id) = (None, None, None, None, None);
        let (silent_since, proposed) = (since, None);
        let taken = Taken {
            asker,
            number,
            group,
            request,
            before,
            asked,
            told,
            since,
            silent_since,
            operation,
            id,
            proposed,
            try_until,
            until,
        };
        self.taken.push(taken);
    }

    /// Returns whether this request may be tried at all.
    fn allows(&self, cx: &Context<'_>, request: &AdminRequest) -> Result<(), &'static str> {
        match request {
            AdminRequest::Repair { lost, .. } if !(1..=LOST_MAX).contains(&lost.len()) => {
                Err("give the ids of the lost groups, within the limit of their number")
            }
            // A peer that comes back puts its whole store aside, with the data of other lanes' groups in it.
            AdminRequest::Repair { .. } if cx.config.lane.is_some() => {
                Err("a network of several lanes does not support declaring a range lost yet")
            }
            AdminRequest::AcceptLoss => Err("only the asked peer itself can accept a loss"),
            AdminRequest::Switch { id } if !Switch::is_id(*id) => Err("a switch's id is a number from 1 to 4294967294"),
            AdminRequest::Switch { .. } if cx.config.switch.is_none() => {
                Err("the group's leader has no switch: start the group's members with --switch ADDR")
            }
            _ => Ok(()),
        }
    }

    /// Follows the progress of the requested transactions.
    pub(crate) fn follow(
        &mut self,
        cx: &mut Context<'_>,
        routing: &mut RoutingTable,
        preparation: &mut Preparation,
        lives: &LifeWatch,
    ) {
        let now = cx.now.time;
        self.forward_requests(cx);
        self.look_beyond_losses(cx, routing);
        let mut index = 0;
        while index < self.taken.len() {
            let taken = &mut self.taken[index];
            let outcome = match cx.replicas.all.iter_mut().find(|replica| replica.group.state().id == taken.group) {
                None => Some(AdminOutcome::Unknown),
                Some(replica) if taken.operation.is_some() => taken.follow(&replica.group),
                Some(replica) => match &taken.request {
                    AdminRequest::Repair { from, lost } => {
                        let (from, lost) = (*from, lost.clone());
                        taken.begin_repair(&mut replica.group, from, lost, now)
                    }
                    AdminRequest::Switch { id } => {
                        let id = *id;
                        let open = self.switch_open(index);
                        let is_barred = self.is_bar_open(replica.group.state().id);
                        let unix_s = cx.now.wall.0 / 1000;
                        self.taken[index].use_switch(&mut replica.group, id, (open, is_barred), unix_s)
                    }
                    AdminRequest::UseSwitch { on } => {
                        let on = *on;
                        taken.bar_switch(&mut replica.group, on)
                    }
                    AdminRequest::SetPolicies(change) => {
                        let change = change.clone();
                        taken.change_policies(&mut replica.group, &change)
                    }
                    request => {
                        let halving = cx.config.policies.of(&replica.group).split.1;
                        match operation(&replica.group, request, halving, lives.model()) {
                            Ok(operation) => self.begin_requested(cx, preparation, index, operation),
                            Err(why) => Some(AdminOutcome::Refused(why)),
                        }
                    }
                },
            };
            let taken = &mut self.taken[index];
            match outcome.or_else(|| (now >= taken.until).then_some(AdminOutcome::Unknown)) {
                None => index += 1,
                Some(outcome) => {
                    let taken = self.taken.remove(index);
                    self.answer_taken(cx, taken, outcome);
                }
            }
        }
        self.end_own_requests(cx, now);
    }

    /// Begins an operation, if possible; returns `None` if it began, or may begin soon.
    fn begin_requested(
        &mut self,
        cx: &mut Context<'_>,
        preparation: &mut Preparation,
        index: usize,
        operation: GroupTransaction,
    ) -> Option<AdminOutcome> {
        let now = cx.now.time;
        let (group, try_until) = (self.taken[index].group, self.taken[index].try_until);
        let rank = cx.replicas.find_mut(group).map(|group| group.rank(0));
        let Some(rank) = rank else { return Some(BeginRefusal::NotLeader(None).into()) };
        match preparation.begin(cx, group, operation.clone(), rank) {
            Ok(Begun::Yes) => self.taken[index].operation = Some(operation),
            Ok(Begun::Copying) => self.go_on_waiting(cx, index),
            Err(BeginRefusal::NeighbourUnknown | BeginRefusal::NotNow(_)) if now < try_until => {}
            Err(why) => return Some(why.into()),
        }
        None
    }

    /// Extends the wait while members copy; the sender is told so from time to time.
    fn go_on_waiting(&mut self, cx: &mut Context<'_>, index: usize) {
        let now = cx.now.time;
        let taken = &mut self.taken[index];
        if now.since(taken.since) >= COPY_MAX {
            return;
        }
        (taken.try_until, taken.until) = (now + TRIED_FOR, now + PATIENCE);
        let is_due = taken.told.is_none_or(|told| now.since(told) >= PATIENCE / 5);
        let (asker, number) = (taken.asker, taken.number);
        if let (true, Asker::Peer(asker), Some(ring)) = (is_due, asker, cx.ring) {
            self.taken[index].told = Some(now);
            cx.say_to(asker, &Frame::Patience { ring, number });
        }
    }

    /// Asks for the owners of the ranges before those that are to be repaired.
    fn look_beyond_losses(&mut self, cx: &mut Context<'_>, routing: &mut RoutingTable) {
        let now = cx.now.time;
        for index in 0..self.taken.len() {
            let taken = &self.taken[index];
            let is_due = taken.asked.is_none_or(|asked| now.since(asked) >= ASK_AGAIN);
            let group =
                cx.replicas.all.iter().map(|replica| replica.group.state()).find(|group| group.id == taken.group);
            let Some(point) = group.and_then(|group| taken.request.place_before(group)) else { continue };
            if taken.before.is_some() || taken.operation.is_some() || !is_due {
                continue;
            }
            self.taken[index].asked = Some(now);
            match Located::here(cx.replicas, point) {
                Some(located) => self.taken[index].before = Some(located.group),
                None => routing.ask_where(cx, point),
            }
        }
    }

    /// Takes a report of a point's owner.
    pub(crate) fn on_seen_beyond(&mut self, replicas: &LocalReplicas, located: &Located) {
        for taken in &mut self.taken {
            let group = replicas.all.iter().map(|replica| replica.group.state()).find(|group| group.id == taken.group);
            if group.and_then(|group| taken.request.place_before(group)) == Some(located.point) {
                taken.before = Some(located.group.clone());
            }
        }
    }

    /// Returns the time at which a request is due next.
    pub(crate) fn due(&self, now: Time) -> Time {
        let soon = now + TRY_AGAIN;
        let taken = self.taken.iter().map(|taken| if taken.operation.is_some() { taken.until } else { soon });
        taken.min().unwrap_or(Time::NEVER).min(self.own_requests_due(now))
    }
}

fn accept_loss(cx: &mut Context<'_>, number: u64, group: GroupId) {
    let accepted = cx.replicas.find_mut(group).is_some_and(Group::accept_loss);
    let why = "this group waits for no members because of acknowledgements in doubt: there is no loss to accept";
    report_outcome(
        cx,
        number,
        if accepted { AdminOutcome::Done(alloc::vec![group]) } else { AdminOutcome::Refused(why.into()) },
    );
}

fn answer_request(cx: &mut Context<'_>, asker: Asker, number: u64, outcome: AdminOutcome) {
    match (asker, cx.ring) {
        (Asker::Peer(peer), Some(ring)) => cx.say_to(peer, &Frame::AdminOutcome { ring, number, outcome }),
        _ => report_outcome(cx, number, outcome),
    }
}

/// Reports the result of a request to its user.
fn report_outcome(cx: &mut Context<'_>, number: u64, outcome: AdminOutcome) {
    cx.out.push(Output::AdminOutcome { number, outcome });
}
impl Taken {
    /// Begins a repair, once it is certain that the lost group does not answer; returns `None` if it began, or may begin
    /// soon.
    fn begin_repair(
        &mut self,
        group: &mut Group,
        from: Option<Point>,
        lost: Vec<GroupId>,
        now: Time,
    ) -> Option<AdminOutcome> {
        let refused = |why: &str| Some(AdminOutcome::Refused(why.to_string()));
        let Some(gone) = group.state().transactions.predecessor() else {
            return refused("there is only one group: no range lies before it");
        };
        let (from, last, above) = (from.unwrap_or(gone.range.start()), gone.range.start(), gone.epoch);
        if group.hears_predecessor() {
            if now.since(self.since) >= DYING {
                return refused("the group that is said to be lost answers: nothing is lost");
            }
            group.look_for_predecessor();
            self.silent_since = now;
        }
        if now.since(self.silent_since) < silence(group) {
            return None;
        }
        let Some(before) = self.before.clone() else {
            let why = "no peer reports the owner of the range before the lost one: if that range is lost as well, give \
                the first point of the lost range";
            return if now < self.try_until { None } else { refused(why) };
        };
        let before = Some(before).filter(|before| before.id != group.state().id);
        match group.begin_repair(from, lost.clone(), before.as_ref()) {
            Ok(()) => self.operation = Some(GroupTransaction::Repair { from, last, lost, above }),
            Err(BeginRefusal::NeighbourUnknown | BeginRefusal::NotNow(_)) if now < self.try_until => {
                self.before = None; // The owner may have changed.
            }
            Err(why) => return Some(why.into()),
        }
        None
    }

    /// Returns the result, as this group's state shows it; `None` while it is open.
    fn follow(&mut self, group: &Group) -> Option<AdminOutcome> {
        let state = group.state();
        if let Some((id, plan)) = state.ending() {
            let is_ours = self.id.map_or(self.is_of(plan), |known| known == id);
            let born = plan.births.iter().map(|birth| plan.id_of(id, birth)).collect();
            return Some(if is_ours { AdminOutcome::Done(born) } else { AdminOutcome::Aborted });
        }
        match (self.id, state.transactions.coordinates()) {
            (Some(id), Some((open, _))) if open == id => None,
            (Some(_), _) => Some(AdminOutcome::Aborted),
            (None, Some((id, plan))) if self.is_of(plan) => {
                self.id = Some(id);
                None
            }
            // A former leader does not know the outcome of its own proposal.
            (None, _) => (!group.log().leads()).then_some(AdminOutcome::Unknown),
        }
    }

    fn is_of(&self, plan: &Plan) -> bool {
        self.operation.as_ref() == Some(&plan.operation)
    }
}

impl AdminRequest {
    /// Returns the last point before the range that this group is to take over; `None` for any request but a repair.
    fn place_before(&self, group: &GroupState) -> Option<Point> {
        let AdminRequest::Repair { from, .. } = self else { return None };
        let from = from.or(group.transactions.predecessor().map(|gone| gone.range.start()))?;
        Some(from.before())
    }
}

/// Returns the silence after which a group is believed to be lost.
fn silence(group: &Group) -> Duration {
    let settings = &group.state().settings;
    let lease = if settings.leases { settings.lease_ms } else { 0 };
    let drift = lease.saturating_mul(u64::from(settings.drift_per_mille)) / 1000;
    SILENCE + Duration::from_millis(lease + 2 * drift)
}

/// Returns the operation of a request.
///
/// # Errors
/// A named peer is no member of its group, or too many are named.
fn operation(
    group: &Group,
    request: &AdminRequest,
    halving: &dyn Halving,
    lifetimes: Option<Lifetimes>,
) -> Result<GroupTransaction, String> {
    let state = group.state();
    let members = || state.members.iter().map(|member| member.node);
    let named = |peers: &[PeerKey], nodes: &[NodeId]| -> Result<Vec<NodeId>, String> {
        if peers.len() > NAMED_MAX {
            return Err("the request names too many members".into());
        }
        let find = |(index, peer): (usize, &PeerKey)| {
            let known = nodes.iter().find(|node| node.peer == *peer).copied();
            known.ok_or_else(|| alloc::format!("peer number {} of those named is not a member of its group", index + 1))
        };
        peers.iter().enumerate().map(find).collect()
    };
    Ok(match request {
        AdminRequest::Split { at, first } => {
            let first = match first.is_empty() {
                true => halving.first_half(&member_views(group, lifetimes)),
                false => named(first, &members().collect::<Vec<_>>())?,
            };
            GroupTransaction::Split { at: at.unwrap_or_else(|| state.range.cut_at(1, 2)), first }
        }
        AdminRequest::Merge => GroupTransaction::Merge,
        AdminRequest::Repartition { at } => GroupTransaction::Repartition { at: *at },
        AdminRequest::Repair { .. }
        | AdminRequest::Switch { .. }
        | AdminRequest::UseSwitch { .. }
        | AdminRequest::SetPolicies(_)
        | AdminRequest::AcceptLoss => {
            unreachable!("it is begun in another way")
        }
        AdminRequest::Migrate { to, from } => {
            let theirs: Vec<NodeId> =
                state.transactions.successor().map(|group| group.nodes().collect()).unwrap_or_default();
            GroupTransaction::Migrate { to: named(to, &members().collect::<Vec<_>>())?, from: named(from, &theirs)? }
        }
    })
}

#[cfg(test)]
#[path = "admin_test.rs"]
mod tests;

#[cfg(test)]
#[path = "agreed_test.rs"]
mod agreed_tests;
