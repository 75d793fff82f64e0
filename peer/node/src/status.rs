//! What a node knows, for a person to see.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use group::ballot::{Slot, Term, TermBallot};
use group::capacity::Believed;
use group::committee::{CatchUpStatus, Primary};
use group::history::History;
use group::nonsense::Dropped;
use group::state::{Loss, Member, Settings};
use group::switch::{Switch, Unfit};
use group::time::WallMillis;
use group::transaction::TransactionId;
use group::transaction::plan::Plan;
use group::{Group, InDoubt};
use overlay::{Epoch, GroupId, GroupRef, KeyRange, NodeId, PeerKey, PeerName, Point, RingId};

use crate::config::SwitchConfig;
use crate::leaving::LeaveStatus;
use crate::risk::{LifetimesStatus, RiskStatus};
use crate::starts::Start;
use crate::switched::{self, SpreadCounts};
use crate::whereabouts::Heard;

/// One member or learner of the node's group.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Who.
    pub node: NodeId,
    /// Where it stands.
    pub cluster: String,
    /// What its operator calls it.
    pub name: Option<PeerName>,
    /// When it came, in group time.
    pub joined: WallMillis,
    /// It votes.
    pub votes: bool,
    /// This node has heard of it of late.
    pub alive: bool,
    /// Where it can be reached.
    pub addresses: Vec<String>,
    /// What this node believes that it can execute, and would divide the range by as the leader; `None` where too little is known.
    pub capacity: Option<Believed>,
    /// The session history that it tells; `None` where it has none, or was not heard yet.
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
    /// Serves here and now; only known of this node's own.
    pub serving: bool,
}

/// A transaction that a group has open, or that others may still have to learn of.
#[derive(Clone, Debug)]
pub struct TransactionStatus {
    /// What it does.
    pub operation: &'static str,
    /// Which.
    pub id: TransactionId,
    /// Who coordinates it, then all others who take part.
    pub parties: Vec<GroupId>,
    /// How far it has come, as this group knows.
    pub step: TransactionStep,
    /// The boundaries that it locks here; none any more once it is decided.
    pub locks: Vec<Point>,
}

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStep {
    /// This group has begun it, and waits for votes.
    Begun,
    /// This group voted for it, and waits for the outcome.
    Voted,
    /// It is committed; not all who take part are known to know.
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

/// A group's switch, and what it should know of the group.
#[derive(Clone, Debug)]
pub struct SwitchStatus {
    /// As the group's log has it.
    pub named: Switch,
    /// Whether one may spread its reads at all.
    pub fits: Result<(), Unfit>,
    /// Nothing is changing: members may answer reads, once they are granted that.
    pub calm: bool,
    /// Under which id members answer reads of this node's own sub-ranges, where they do in all of them.
    pub granted: Option<u32>,
    /// A switch's name and term for each sub-range, and its primary.
    pub parts: Vec<(u32, u64, NodeId)>,
}

impl SwitchStatus {
    fn of(group: &Group) -> SwitchStatus {
        let state = group.state();
        let named = |ballot: TermBallot| {
            let (name, term) = switched::partition(state.id, ballot);
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
    /// Which.
    pub id: GroupId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The last applied slot of its log.
    pub applied: Slot,
    /// The arc it owns.
    pub range: KeyRange,
    /// Members, then learners.
    pub members: Vec<MemberStatus>,
    /// Who leads: `None` where the last known leader was not heard within the failure detection interval, or where this node
    /// hears no quorum, under which nobody can lead.
    pub leader: Option<NodeId>,
    /// Members that this node hears; `None` where it is neither member nor learner, and listens to none.
    pub heard: Option<Heard>,
    /// Who is primary of what.
    pub primaries: Vec<PrimaryStatus>,
    /// This node is a member or learner; otherwise it only holds what others still need.
    pub belongs: bool,
    /// The group before it on the ring; itself where it is alone.
    pub predecessor: GroupRef,
    /// The group behind it.
    pub successor: GroupRef,
    /// What was declared lost, here or in groups that this one came of.
    pub losses: Vec<Loss>,
    /// Both neighbours know it as it is now; only the leader can tell.
    pub known: Option<bool>,
    /// Operations a minute that its primaries execute, in equal pieces of the range; only the leader knows.
    pub load: Option<Vec<u32>>,
    /// Transactions with others.
    pub transactions: Vec<TransactionStatus>,
    /// The switch that spreads its reads.
    pub switch: SwitchStatus,
    /// What all groups of the network agree on.
    pub settings: Settings,
    /// The node's estimate of the lifetimes of peers in the network.
    pub lifetimes: LifetimesStatus,
    /// The probability that the group loses its majority; `None` before enough deaths were seen.
    pub risk: Option<RiskStatus>,
    /// A quorum of this epoch holds everything, and a quorum is heard.
    pub established: bool,
    /// Records in memory, tombstones included; all of them if `whole`.
    pub records: usize,
    /// What they take, in bytes.
    pub bytes: usize,
    /// All records are in memory.
    pub whole: bool,
    /// Of so many sub-ranges this node holds everything.
    pub complete: usize,
    /// What this node is catching up with.
    pub catching_up: Vec<CatchUpStatus>,
    /// How many wait to be let in; only the leader knows.
    pub waiting_to_join: usize,
    /// Tombstones that this node let go of since its start.
    pub purged: u64,
    /// What members said and was dropped as nonsense, or for want of room.
    pub dropped: Dropped,
    /// Why this node does not serve the group any more, where a peer contradicted what is chosen there.
    pub halted: Option<String>,
    /// Who may have forgotten something, and who is waited for because of that.
    pub in_doubt: InDoubt,
}

/// What a node knows.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// This node.
    pub node: NodeId,
    /// A client operation sent now would be answered.
    pub ready: bool,
    /// Its group, once it is in one.
    pub group: Option<GroupStatus>,
    /// All groups that it has a part in: its own, and those that still need what it holds.
    pub groups: Vec<GroupStatus>,
    /// Client operations under way.
    pub operations: usize,
    /// Frames that made no sense, or came from another ring.
    pub frames_dropped: u64,
    /// Operations answered since the start.
    pub answered: u64,
    /// The switch that its groups' reads may pass, and where this node is for it.
    pub switch: Option<SwitchConfig>,
    /// What came of reads that went by way of a switch.
    pub spread: SpreadCounts,
    /// Packets that did not come from its switch, or made no sense.
    pub packets_dropped: u64,
    /// How far it has come with leaving for good, if it does.
    pub leaving: Option<LeaveStatus>,
    /// Which start of the peer this process is.
    pub start: Start,
    /// Peers whose processes contradict each other, perhaps this one, and what was seen.
    pub identity: Vec<(PeerKey, String)>,
    /// Frames that were refused, for they came from a start that does not count.
    pub starts_refused: u64,
}

impl GroupStatus {
    /// As this group's member knows it.
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
    let (range, dealings) = (group.state().range, &group.state().dealings);
    let of = |(id, plan): (TransactionId, &Plan), step| TransactionStatus {
        operation: plan.operation.name(),
        id,
        parties: plan.parties.iter().map(|party| party.group.id).collect(),
        step,
        locks: if step == TransactionStep::Committed { Vec::new() } else { plan.boundaries_of(range) },
    };
    let begun = dealings.coordinates().map(|open| of(open, TransactionStep::Begun));
    let voted = dealings.voted().map(|open| of(open, TransactionStep::Voted));
    let decided = dealings.decided().iter().map(|known| of((known.id, &known.plan), TransactionStep::Committed));
    begun.into_iter().chain(voted).chain(decided).collect()
}

/// Of how many sub-ranges this node holds everything.
fn complete_parts(group: &Group) -> usize {
    let parts: Vec<_> = group.state().parts().collect();
    group.acceptor().progress(group.state().epoch, &parts).0.len()
}
