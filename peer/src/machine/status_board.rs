//! The status board of a running peer: the last status of each lane, for readers outside of the loops.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use environment::lock;
use environment::version::COMMIT;
use group::InDoubt;
use group::control::state::Loss;
use group::data::CatchUpStatus;
use group::validate::Violation;
use net::peer_id_of;
use node::{
    GroupStatus as NodeGroup, LeaveStatus, Lifetimes, MemberStatus as NodeMember, NINES_TARGET, NodeStatus,
    ReadSchedulerCounts, TransactionStatus as NodeTransaction,
};
use overlay::{Called, NodeId, PeerKey, PeerName};

use super::packets::address;
use super::surroundings::Surroundings;
use crate::config::Config;
use crate::offload::{NamedSwitch, Offload, OffloadGroup, OffloadPart, PacketEndpoint, SpreadReads};
use crate::status::{
    Budgets, Check, GroupStatus, IdentityStatus, InDoubtStatus, LeavingStatus, LifetimesStatus, LossStatus,
    MemberStatus, PeerTraffic, PrimaryStatus, QuorumStatus, RangeStatus, Readiness, RiskStatus, SessionsStatus, Status,
    StatusSource, TransactionStatus, TransferStatus,
};

/// The last status of a peer's nodes, one for each lane, and the constant parts.
pub(crate) struct StatusBoard {
    peer_id: String,
    name: Option<PeerName>,
    network: String,
    durability: String,
    started: Instant,
    surroundings: Surroundings,
    pictures: Mutex<Vec<Option<Picture>>>,
}

struct Picture {
    node: NodeStatus,
    ops_per_s: f64,
    wall_s: u64,
    taken: Instant,
}

impl StatusBoard {
    /// Creates a board without a status yet.
    pub fn new(peer_id: String, config: &Config, surroundings: Surroundings) -> Arc<StatusBoard> {
        Arc::new(StatusBoard {
            peer_id,
            name: config.name.clone(),
            network: config.network.clone(),
            durability: config.durability.to_string(),
            started: Instant::now(),
            surroundings,
            pictures: Mutex::new((0..config.lanes).map(|_| None).collect()),
        })
    }

    fn pictures(&self) -> MutexGuard<'_, Vec<Option<Picture>>> {
        lock(&self.pictures)
    }

    /// Sets a new status of a lane, with the wall clock in seconds.
    pub fn set(&self, lane: u8, node: NodeStatus, wall_s: u64) {
        let picture = &mut self.pictures()[usize::from(lane)];
        let ops_per_s = match picture {
            None => 0.0,
            Some(last) => {
                let seconds = last.taken.elapsed().as_secs_f64().max(1e-3);
                let now = node.answered.saturating_sub(last.node.answered) as f64 / seconds;
                // Smoothed: a status is set several times a second.
                let smoothed = 0.7 * last.ops_per_s + 0.3 * now;
                // The smoothed value would approach 0 for ever.
                if smoothed < 0.01 { 0.0 } else { smoothed }
            }
        };
        *picture = Some(Picture { node, ops_per_s, wall_s, taken: Instant::now() });
    }
}

/// Returns the identity conflicts that the lanes have seen, without duplicates.
fn identity_of<'a>(nodes: impl Iterator<Item = &'a NodeStatus>) -> Vec<IdentityStatus> {
    let mut seen: Vec<_> = nodes.flat_map(|node| node.identity.iter()).collect();
    seen.sort_unstable();
    seen.dedup();
    let status =
        |(peer, what): &(_, String)| IdentityStatus { peer_id: peer_id_of(peer).to_string(), what: what.clone() };
    seen.into_iter().map(status).collect()
}

/// Returns the names that the lanes know, by peer id: of members of their groups, and of the neighbouring groups.
fn names_of<'a>(nodes: impl Iterator<Item = &'a NodeStatus>) -> BTreeMap<String, PeerName> {
    let mut names = BTreeMap::new();
    let mut add = |peer: &PeerKey, known: &Option<PeerName>| {
        names.extend(known.clone().map(|known| (name(peer), known)));
    };
    for group in nodes.flat_map(|node| &node.groups) {
        for contact in group.predecessor.members.iter().chain(&group.successor.members) {
            add(&contact.node.peer, &contact.name);
        }
        // The statement of the peer's own group about a member counts more.
        group.members.iter().for_each(|member| add(&member.node.peer, &member.name));
    }
    names
}

impl StatusSource for StatusBoard {
    fn status(&self) -> Status {
        let pictures = self.pictures();
        let own = |picture: &Picture| picture.node.group.clone().into_iter().collect();
        Status {
            peer_id: self.peer_id.clone(),
            name: self.name.clone(),
            network: self.network.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: COMMIT.into(),
            uptime_s: self.started.elapsed().as_secs(),
            durability: self.durability.clone(),
            groups: groups_of(&pictures, own),
            leaving: leaving_of(pictures.iter().flatten().filter_map(|picture| picture.node.leaving)),
            start: pictures.iter().flatten().map(|picture| picture.node.start.counter).max().unwrap_or(0),
            identity: identity_of(pictures.iter().flatten().map(|picture| &picture.node)),
        }
    }

    fn peer_id(&self) -> String {
        self.peer_id.clone()
    }

    fn groups(&self) -> Vec<GroupStatus> {
        groups_of(&self.pictures(), |picture| picture.node.groups.clone())
    }

    fn peers(&self) -> Vec<PeerTraffic> {
        let mut peers = self.surroundings.peers();
        let names = names_of(self.pictures().iter().flatten().map(|picture| &picture.node));
        peers.iter_mut().for_each(|peer| peer.name = names.get(&peer.peer_id).cloned());
        peers
    }

    fn budgets(&self) -> Budgets {
        self.surroundings.budgets()
    }

    fn offload(&self) -> Offload {
        let pictures = self.pictures();
        let lanes = || pictures.iter().zip(0..).filter_map(|(picture, lane)| Some((&picture.as_ref()?.node, lane)));
        let groups = |(node, lane): (&NodeStatus, u8)| {
            let own = node.groups.iter().filter(|group| group.belongs);
            own.map(|group| offload_group(group, lane)).collect::<Vec<_>>()
        };
        Offload {
            peer_id: self.peer_id.clone(),
            endpoints: lanes().filter_map(|(node, lane)| packet_endpoint(node, lane)).collect(),
            groups: lanes().flat_map(groups).collect(),
        }
    }

    fn readiness(&self) -> Readiness {
        let pictures = self.pictures();
        let of = |picture: &Option<Picture>| checks(picture.as_ref().map(|picture| &picture.node));
        let mut checks = of(&pictures[0]);
        for other in pictures[1..].iter().map(of) {
            // Of several lanes, the first one that fails is shown.
            checks
                .iter_mut()
                .zip(other)
                .filter(|(known, other)| known.ok && !other.ok)
                .for_each(|(known, other)| *known = other);
        }
        let is_in = |name: &str| checks.iter().any(|check| check.name == name && check.ok);
        let (reached, detail) = self.surroundings.reach();
        let hopeless = self.surroundings.hopeless().filter(|_| !is_in("in_group"));
        // A member that hears its majority needs no other peer; the only member of its group has none.
        checks.push(Check { name: "peers".into(), ok: reached || is_in("quorum"), detail });
        Readiness { ready: checks.iter().all(|check| check.ok), checks, hopeless }
    }
}

/// Returns some groups of each lane.
fn groups_of(pictures: &[Option<Picture>], which: impl Fn(&Picture) -> Vec<NodeGroup>) -> Vec<GroupStatus> {
    let mut all = Vec::new();
    for (lane, picture) in pictures.iter().enumerate() {
        let Some(picture) = picture else { continue };
        let lane = (pictures.len() > 1).then_some(lane as u8);
        let status = |group| group_status(group, picture.node.node, picture.ops_per_s, picture.wall_s);
        all.extend(which(picture).iter().map(|group| GroupStatus { lane, ..status(group) }));
    }
    all
}

/// Returns the checks that a serving node has to pass.
fn checks(node: Option<&NodeStatus>) -> Vec<Check> {
    let group = node.and_then(|node| node.group.as_ref());
    let heard = group.and_then(|group| Some(QuorumStatus::of(group.heard?, group.epoch)));
    let check = |name: &str, ok: bool, detail: String| Check { name: name.into(), ok, detail };
    vec![
        check(
            "in_group",
            group.is_some(),
            group.map_or("in no group yet".into(), |group| format!("group {}, epoch {}", group.id, group.epoch.0)),
        ),
        check(
            "quorum",
            heard.as_ref().is_some_and(|heard| heard.held),
            heard.map_or("in no group yet".into(), |heard| heard.words()),
        ),
        check(
            "leader",
            group.is_some_and(|group| group.leader.is_some()),
            group.and_then(leader_of).unwrap_or_else(|| "none known".into()),
        ),
        check(
            "serves",
            node.is_some_and(|node| node.ready),
            match node.is_some_and(|node| node.ready) {
                true => "an operation of its own was answered since the start".into(),
                false => "no operation of its own is answered now".into(),
            },
        ),
    ]
}

/// Returns a group's leader as administrators see it, with its whole id.
fn leader_of(group: &NodeGroup) -> Option<String> {
    let leader = group.leader?;
    let member = group.members.iter().find(|member| member.node == leader);
    let called = Called { name: member.and_then(|member| member.name.as_ref()), id: name(&leader.peer) };
    Some(called.to_string())
}

fn name(peer: &PeerKey) -> String {
    peer_id_of(peer).to_string()
}

/// Returns the status of a leave for administrators: of all leaving lanes, the step of the last one.
pub(crate) fn leaving_of(lanes: impl Iterator<Item = LeaveStatus> + Clone) -> Option<LeavingStatus> {
    let last = lanes.clone().min_by_key(|leaving| leaving.step)?;
    Some(LeavingStatus {
        step: last.step.to_string(),
        force: last.force,
        remain: last.remain as u64,
        primaries: lanes.map(|leaving| leaving.primaries as u64).sum(),
    })
}

fn packet_endpoint(node: &NodeStatus, lane: u8) -> Option<PacketEndpoint> {
    let switch = node.switch?;
    let ReadSchedulerCounts { sent, answered, missed, alone, left } = node.spread;
    Some(PacketEndpoint {
        lane,
        packets: address(switch.here).to_string(),
        switch: address(switch.at).to_string(),
        reads: SpreadReads { sent, answered, missed, alone, left },
        dropped: node.packets_dropped,
    })
}

fn offload_group(group: &NodeGroup, lane: u8) -> OffloadGroup {
    let switch = &group.switch;
    let part = |(partition, term, primary): &(u32, u64, NodeId)| OffloadPart {
        partition: *partition,
        term: format!("{term:016x}"),
        primary: name(&primary.peer),
    };
    OffloadGroup {
        id: group.id.to_string(),
        lane,
        epoch: group.epoch.0,
        slot: group.applied.0,
        switch: NamedSwitch { id: switch.named.id, on: switch.named.is_on(), barred: switch.named.is_barred() },
        fit: switch.fits.is_ok(),
        why: switch.fits.err().map(|why| why.to_string()),
        calm: switch.calm,
        granted: switch.granted,
        members: group.members.iter().filter(|member| member.votes).map(|member| name(&member.node.peer)).collect(),
        parts: switch.parts.iter().map(part).collect(),
    }
}

fn transaction_status(transaction: &NodeTransaction) -> TransactionStatus {
    let mut parties = transaction.parties.iter().map(ToString::to_string);
    TransactionStatus {
        operation: transaction.operation.into(),
        coordinator: parties.next().unwrap_or_default(),
        slot: transaction.id.slot.0,
        participants: parties.collect(),
        step: transaction.step.to_string(),
        locks: transaction.locks.iter().map(ToString::to_string).collect(),
    }
}

fn loss_status(loss: &Loss) -> LossStatus {
    LossStatus {
        range: loss.range.into(),
        groups: loss.groups.iter().map(ToString::to_string).collect(),
        declared_unix_s: loss.declared.0 / 1000,
    }
}

fn in_doubt(known: &InDoubt) -> Option<InDoubtStatus> {
    let names = |nodes: &[NodeId]| nodes.iter().map(|node| name(&node.peer)).collect();
    let InDoubt { members, waiting_for } = known;
    (!members.is_empty()).then(|| InDoubtStatus { members: names(members), waiting_for: names(waiting_for) })
}

fn lifetimes_status(known: &node::LifetimesStatus) -> LifetimesStatus {
    let unknown = LifetimesStatus { model: "unknown".into(), deaths: known.deaths, ..LifetimesStatus::default() };
    match known.model {
        None => unknown,
        Some(Lifetimes::Exponential { mean }) => {
            LifetimesStatus { model: "exponential".into(), mean_s: Some(mean.as_secs_f64()), ..unknown }
        }
        Some(Lifetimes::Pareto { shape, min }) => {
            let (shape, min_s) = (Some(shape), Some(min.as_secs_f64()));
            LifetimesStatus { model: "pareto".into(), shape, min_s, ..unknown }
        }
    }
}

fn risk_status(risk: &node::RiskStatus) -> RiskStatus {
    RiskStatus {
        window_s: risk.window.as_secs_f64(),
        in_window: risk.in_window,
        in_hour: risk.in_hour,
        nines: risk.nines,
        is_low: risk.nines < NINES_TARGET,
    }
}

fn member_status(member: &NodeMember, leader: Option<NodeId>, wall_s: u64) -> MemberStatus {
    let joined_unix_s = member.joined.0 / 1000;
    let role = match () {
        () if leader == Some(member.node) => "leader",
        () if !member.alive => "suspect",
        () if !member.votes => "learner",
        () => "member",
    };
    MemberStatus {
        peer_id: name(&member.node.peer),
        name: member.name.clone(),
        cluster: member.cluster.clone(),
        joined_unix_s,
        lifetime_s: wall_s.saturating_sub(joined_unix_s),
        role: role.into(),
        addresses: member.addresses.clone(),
        capacity_ops_per_s: member.capacity.map(|capacity| capacity.ops_per_s),
        capacity_percent: member.capacity.map(|capacity| u32::from(capacity.quarters) * 25),
        sessions: member.history.map(|told| SessionsStatus { failures: told.failures, lived_s: told.lived_s.into() }),
    }
}

fn transfer_status(transfer: &CatchUpStatus) -> TransferStatus {
    let RangeStatus { start, end } = transfer.range.into();
    TransferStatus {
        start,
        end,
        from: name(&transfer.source.peer),
        what: if transfer.scan { "all records" } else { "recent writes" }.into(),
        records: transfer.records,
        bytes: transfer.bytes,
        pieces: transfer.pieces as u64,
        done_percent: u64::from(transfer.done_per_mille / 10),
    }
}

fn group_status(group: &NodeGroup, me: NodeId, ops_per_s: f64, wall_s: u64) -> GroupStatus {
    let members = group.members.iter().map(|member| member_status(member, group.leader, wall_s));
    let primaries = group.primaries.iter().map(|primary| {
        let RangeStatus { start, end } = primary.range.into();
        PrimaryStatus { start, end, peer_id: name(&primary.node.peer) }
    });
    let voters = group.members.iter().filter(|member| member.votes);
    let part = match group.belongs {
        false => "former",
        true if voters.clone().any(|member| member.node == me) => "member",
        true => "learner",
    };
    GroupStatus {
        lane: None,
        complete: group.complete as u64,
        transfers: group.catching_up.iter().map(transfer_status).collect(),
        waiting_to_join: group.waiting_to_join as u64,
        purged: group.purged,
        id: group.id.to_string(),
        epoch: group.epoch.0,
        term: group.primaries.iter().map(|primary| primary.term.slot().0).max().unwrap_or(0),
        range: group.range.into(),
        members: members.collect(),
        policies: (&group.settings.policies).into(),
        lifetimes: lifetimes_status(&group.lifetimes),
        risk: group.risk.as_ref().map(risk_status),
        established: group.established,
        quorum: group.heard.map(|heard| QuorumStatus::of(heard, group.epoch)),
        predecessor_quorum: None,
        successor_quorum: None,
        leader: group.leader.map(|leader| name(&leader.peer)),
        primaries: primaries.collect(),
        part: part.into(),
        transactions: group.transactions.iter().map(transaction_status).collect(),
        links_fresh: group.known,
        // On a ring of one group the group is its own neighbour.
        predecessor: Some(group.predecessor.id.to_string()),
        predecessor_range: Some(group.predecessor.range.into()),
        successor: Some(group.successor.id.to_string()),
        successor_range: Some(group.successor.range.into()),
        losses: group.losses.iter().map(loss_status).collect(),
        keys: group.records as u64,
        bytes: group.bytes as u64,
        ops_per_s,
        load_ops_per_s: group.load.as_ref().map(|cells| cells.iter().map(|cell| f64::from(*cell)).sum::<f64>() / 60.0),
        in_doubt: in_doubt(&group.in_doubt),
        dropped: Violation::ALL.iter().map(|why| (why.name().to_owned(), group.dropped.of(*why))).collect(),
        halted: group.halted.clone(),
    }
}
