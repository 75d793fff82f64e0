//! Status of a node, for people.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use group::ballot::{LogSlot, Term, TermBallot};
use group::control::capacity::Believed;
use group::control::history::History;
use group::control::state::{Loss, Member, Settings};
use group::data::{CatchUpStatus, Primary};
use group::harmonia::switch::{Switch, SwitchUnfit};
use group::transaction::TransactionId;
use group::transaction::plan::Plan;
use group::validate::Dropped;
use group::{Group, InDoubt};
use overlay::time::WallMillis;
use overlay::{Epoch, GroupId, GroupRef, KeyRange, NodeId, PeerKey, PeerName, Point, RingId};

use crate::config::SwitchConfig;
use crate::policies::risk::{LifetimesStatus, RiskStatus};
use crate::reconfigure::leaving::LeaveStatus;
use crate::routing::Heard;
use crate::sessions::harmonia::{self, ReadSchedulerCounts};
use crate::starts::Start;

/// One member or learner of the node's group.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: String,
    /// The name that its operator gave it.
    pub name: Option<PeerName>,
    /// Time at which it joined, in group time.
    pub joined: WallMillis,
    /// Whether it votes.
    pub votes: bool,
    /// Whether this node has heard it recently.
    pub alive: bool,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Capacity that this node believes it to have, and by which it would divide the range as the leader; `None` if too little is
    /// known.
    pub capacity: Option<Believed>,
    /// The session history that it reports; `None` if it has none, or was not heard yet.
    pub history: Option<History>,
}

/// One sub-range and its primary.
#[derive(Clone, Copy, Debug)]
pub struct PrimaryStatus {
    /// The sub-range.
    pub range: KeyRange,
    /// Its primary.
    pub node: NodeId,
    /// The primary's term.
    pub term: Term,
    /// Whether it serves now; only known of this node's own sub-ranges.
    pub serving: bool,
}

/// A transaction that is open in a group, or that other groups may still have to learn of.
#[derive(Clone, Debug)]
pub struct TransactionStatus {
    /// Name of the operation.
    pub operation: &'static str,
    /// The transaction.
    pub id: TransactionId,
    /// The coordinator, then all participants.
    pub parties: Vec<GroupId>,
    /// Its progress, as this group knows.
    pub step: TransactionStep,
    /// The boundaries that it locks here; none once it is decided.
    pub locks: Vec<Point>,
}

/// Progress of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStep {
    /// This group has begun it, and waits for votes.
    Begun,
    /// This group voted for it, and waits for the outcome.
    Voted,
    /// It is committed; not all participants are known to know.
    Committed,
}

impl fmt::Display for TransactionStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransactionStep::Begun => "waits for votes",
            TransactionStep::Voted => "waits for the outcome",
            TransactionStep::Committed => "is committed",
        })
    }
}

/// A group's switch, and the facts about the group that matter to a switch.
#[derive(Clone, Debug)]
pub struct SwitchStatus {
    /// The switch that the group's log names.
    pub named: Switch,
    /// Whether a switch may spread its reads at all.
    pub fits: Result<(), SwitchUnfit>,
    /// Whether nothing is changing: then members that have a grant may answer reads.
    pub calm: bool,
    /// Switch id under which members answer reads of this node's own sub-ranges, if they do in all of them.
    pub granted: Option<u32>,
    /// A switch's name and term for each sub-range, and its primary.
    pub parts: Vec<(u32, u64, NodeId)>,
}

impl SwitchStatus {
    fn of(group: &Group) -> SwitchStatus {
        let state = group.state();
        let named = |ballot: TermBallot| {
            let (name, term) = harmonia::partition(state.id, ballot);
            (name, term, ballot.node)
        };
        let mut own = group.primaries().map(Primary::switch);
        let first = own.next().flatten();
        SwitchStatus {
            named: state.switch,
            fits: state.fits_switch(),
            calm: state.may_offload(),
            granted: first.filter(|first| own.all(|other| other == Some(*first))),
            parts: state.parts().map(|(_, ballot)| named(ballot)).collect(),
        }
    }
}

/// The group that a node is in.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// The ring.
    pub ring: RingId,
    /// The group.
    pub id: GroupId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The last applied slot of its log.
    pub applied: LogSlot,
    /// The arc that it owns.
    pub range: KeyRange,
    /// Members, then learners.
    pub members: Vec<MemberStatus>,
    /// The leader. `None` where the last known leader was not heard within the failure detection interval, or where this node
    /// hears no quorum, without which no node can lead.
    pub leader: Option<NodeId>,
    /// Numbers of members that this node hears; `None` if it is neither member nor learner, and listens to none.
    pub heard: Option<Heard>,
    /// The sub-ranges and their primaries.
    pub primaries: Vec<PrimaryStatus>,
    /// Whether this node is a member or learner; otherwise it only holds data that other members still need.
    pub belongs: bool,
    /// The group before it on the ring; the group itself if it is the only one.
    pub predecessor: GroupRef,
    /// The group behind it.
    pub successor: GroupRef,
    /// Ranges that were declared lost, here or in groups that this one succeeds.
    pub losses: Vec<Loss>,
    /// Whether both neighbours know its present state; only the leader can tell.
    pub known: Option<bool>,
    /// Operations a minute that its primaries execute, in equal pieces of the range; only the leader knows.
    pub load: Option<Vec<u32>>,
    /// Transactions with other groups.
    pub transactions: Vec<TransactionStatus>,
    /// The switch that spreads its reads.
    pub switch: SwitchStatus,
    /// Settings that all groups of the network agree on.
    pub settings: Settings,
    /// The node's estimate of the lifetimes of peers in the network.
    pub lifetimes: LifetimesStatus,
    /// The probability that the group loses its majority; `None` before enough deaths were seen.
    pub risk: Option<RiskStatus>,
    /// Whether a quorum of this epoch holds all data, and a quorum is heard.
    pub established: bool,
    /// Records in memory, tombstones included; all of them if `whole`.
    pub records: usize,
    /// Size of these records, in bytes.
    pub bytes: usize,
    /// Whether all records are in memory.
    pub whole: bool,
    /// Number of sub-ranges of which this node holds all data.
    pub complete: usize,
    /// Catch-ups of this node.
    pub catching_up: Vec<CatchUpStatus>,
    /// Number of nodes that wait to join; only the leader knows.
    pub waiting_to_join: usize,
    /// Number of tombstones that this node has purged since its start.
    pub purged: u64,
    /// Numbers of members' messages that were dropped as invalid, or for lack of room.
    pub dropped: Dropped,
    /// Reason for which this node does not serve the group any more, if a peer contradicted the chosen state.
    pub halted: Option<String>,
    /// Members that may have forgotten data, and members that the group waits for because of that.
    pub in_doubt: InDoubt,
}

/// Status of a node.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// This node.
    pub node: NodeId,
    /// Whether a client operation sent now would be answered.
    pub ready: bool,
    /// Its group, once it is in one.
    pub group: Option<GroupStatus>,
    /// All groups that it has a part in: its own, and those that still need its data.
    pub groups: Vec<GroupStatus>,
    /// Number of client operations under way.
    pub operations: usize,
    /// Number of frames that were invalid, or came from another ring.
    pub frames_dropped: u64,
    /// Number of operations answered since the start.
    pub answered: u64,
    /// The switch that its groups' reads may pass, and this node's address for it.
    pub switch: Option<SwitchConfig>,
    /// Numbers of reads that went by way of a switch.
    pub spread: ReadSchedulerCounts,
    /// Number of packets that did not come from its switch, or were invalid.
    pub packets_dropped: u64,
    /// Progress of its leave, if it leaves for good.
    pub leaving: Option<LeaveStatus>,
    /// This process's start of the peer.
    pub start: Start,
    /// Peers whose processes contradict each other, perhaps this one, with a description.
    pub identity: Vec<(PeerKey, String)>,
    /// Number of frames that were refused because their start does not count.
    pub starts_refused: u64,
}

impl GroupStatus {
    /// Returns the status of a group, as its member knows it.
    pub(crate) fn of(group: &Group, lifetimes: LifetimesStatus, risk: Option<RiskStatus>) -> GroupStatus {
        let state = group.state();
        let hears = group.hears();
        let member = |member: &Member, votes| MemberStatus {
            node: member.node,
            name: member.name.clone(),
            cluster: member.cluster.clone(),
            joined: member.joined,
            votes,
            alive: member.node == group.me() || hears.contains(&member.node),
            addresses: member.addresses.clone(),
            capacity: group.believed_capacity(member.node),
            history: group.told_history(member.node),
        };
        let mut members: Vec<MemberStatus> = state.members.iter().map(|m| member(m, true)).collect();
        members.extend(state.learners.iter().map(|m| member(m, false)));
        let primaries = state.parts().map(|(range, ballot)| PrimaryStatus {
            range,
            node: ballot.node,
            term: ballot.term,
            serving: group.primaries().any(|primary| primary.ballot() == ballot && primary.is_serving()),
        });
        let view = state.view();
        let belongs = state.is_member(group.me()) || state.is_learner(group.me());
        let heard = belongs.then(|| Heard::of(group));
        let has_quorum = heard.is_none_or(|heard| heard.is_quorum());
        let is_heard = |leader: &NodeId| *leader == group.me() || hears.contains(leader);
        GroupStatus {
            ring: state.ring,
            id: state.id,
            epoch: state.epoch,
            applied: state.applied,
            range: state.range,
            members,
            leader: group.leader().filter(|leader| belongs && Heard::own(group).is_quorum() && is_heard(leader)),
            heard,
            primaries: primaries.collect(),
            belongs,
            predecessor: view.predecessor,
            successor: view.successor,
            losses: state.losses.clone(),
            known: group.is_known_to_neighbours(),
            load: group.log().leads().then(|| group.load()).flatten(),
            transactions: transactions(group),
            switch: SwitchStatus::of(group),
            settings: state.settings.clone(),
            lifetimes,
            risk,
            established: state.recovery.is_empty() && has_quorum,
            records: group.table().len(),
            bytes: group.table().bytes(),
            whole: group.table().is_whole(),
            complete: complete_parts(group),
            catching_up: group.catch_up(),
            waiting_to_join: group.waiting_to_join(),
            purged: group.purged(),
            dropped: group.dropped(),
            halted: group.halted().map(String::from),
            in_doubt: group.in_doubt(),
        }
    }
}

fn transactions(group: &Group) -> Vec<TransactionStatus> {
    let (range, transactions) = (group.state().range, &group.state().transactions);
    let of = |(id, plan): (TransactionId, &Plan), step| TransactionStatus {
        operation: plan.operation.name(),
        id,
        parties: plan.parties.iter().map(|party| party.group.id).collect(),
        step,
        locks: if step == TransactionStep::Committed { Vec::new() } else { plan.boundaries_of(range) },
    };
    let begun = transactions.coordinates().map(|open| of(open, TransactionStep::Begun));
    let voted = transactions.voted().map(|open| of(open, TransactionStep::Voted));
    let decided = transactions.decided().iter().map(|known| of((known.id, &known.plan), TransactionStep::Committed));
    begun.into_iter().chain(voted).chain(decided).collect()
}

/// Returns the number of sub-ranges of which this node holds all data.
fn complete_parts(group: &Group) -> usize {
    let parts: Vec<_> = group.state().parts().collect();
    group.acceptor().progress(group.state().epoch, &parts).0.len()
}
