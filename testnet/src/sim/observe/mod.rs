//! Observations of a real node for the checkers.

mod log;

use group::Group;
use group::ballot::TermBallot;
use group::control::membership::MEMBERS_MIN;
use group::control::state::Entry;
use group::harmonia::read_scheduler::SpreadRead;
use group::message::Write;
use group::record::{DoneOp, Record};
use group::transaction::plan::{Birth, BirthName, GroupTransaction, Plan};
use group::transaction::state::TransactionEntry;
use node::{AdminRequest, Input, Node, PolicyChange};
use overlay::time::Time;
use overlay::{Epoch, GroupRef, Incarnation, Key, KeyRange, NodeId, PeerKey, Point};

use crate::checkers::{Ballot, Broken, Observation, Scope};
use crate::sim::host::Owned;
use crate::sim::observe::log::{show_log, show_place};

/// A term names its epoch and its primary, so that alone it orders ballots; records carry no more.
fn ballot_of(term: group::ballot::Term) -> Ballot {
    let nobody = NodeId { peer: PeerKey([0; 32]), incarnation: Incarnation(0) };
    Ballot { epoch: Epoch(0), term: term.0, node: nobody }
}

fn full(ballot: TermBallot) -> Ballot {
    Ballot { epoch: ballot.epoch, term: ballot.term.0, node: ballot.node }
}

/// FNV-1a hash: repeatable. No input here is made to collide.
pub struct Fnv(pub u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds more bytes to the hash.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

fn hash_of(record: &Record) -> u64 {
    let mut hash = Fnv::default();
    hash.add(&[u8::from(record.value.is_some()), record.kind as u8]);
    record.value.iter().for_each(|value| hash.add(value));
    record.deadline.iter().for_each(|deadline| hash.add(&deadline.0.to_be_bytes()));
    hash.0
}

/// Number of the last operations in a record that are shown: mostly those of the write that made the record.
const DELIVERED_MAX: usize = 8;

fn delivered(key: &Key, done: &DoneOp) -> Observation {
    let (mut operation, mut answer) = (Fnv::default(), Fnv::default());
    let write = |what: &mut Fnv, bytes: Result<Vec<u8>, _>| what.add(&bytes.expect("it can be written"));
    write(&mut operation, postcard::to_allocvec(&done.id));
    write(&mut answer, postcard::to_allocvec(&done.answer));
    Observation::Delivered { key: key.clone(), operation: operation.0, answer: answer.0 }
}

fn chosen(key: &Key, record: &Record) -> Observation {
    Observation::Chosen {
        key: key.clone(),
        ballot: ballot_of(record.number.term),
        number: record.number.n,
        version: record.version,
        value_hash: hash_of(record),
    }
}

fn accepted(write: &Write) -> Observation {
    Observation::Accepted {
        key: write.key.clone(),
        ballot: ballot_of(write.record.number.term),
        number: write.record.number.n,
        version: write.record.version,
        value_hash: hash_of(&write.record),
    }
}

/// Returns the observation of a record in a store.
pub fn stored(record_key: &[u8], record: &[u8]) -> Option<Observation> {
    let (_, key) = node::replicas::storage::Space(None).key_of(record_key)?;
    let record = node::replicas::storage::decode_record(record).ok()?;
    Some(chosen(&key, &record))
}

/// Shows the changes of a node's state, or its whole state.
pub fn observe(node: &mut Node, scope: Scope, show: &mut dyn FnMut(Observation)) {
    let me = node.id();
    if node.groups().any(|group| group.state().settings.leases) {
        // A lease that is not held any more was given up.
        let nobody = TermBallot { epoch: Epoch(0), term: group::ballot::Term(0), node: me };
        let range = overlay::KeyRange::FULL;
        show(Observation::LeaseHeld { range, ballot: full(nobody), until: Time(0) });
    }
    for group in node.groups() {
        show_primaries(group, show);
        // All nodes here are honest.
        let dropped = usize::try_from(group.dropped().total()).unwrap_or(usize::MAX);
        show(Observation::Queue { name: "messages taken for nonsense", size: dropped, limit: 0 });
    }
    let is_newborn = |group: &Group| group.state().applied == group.state().born_at;
    if node.groups().any(is_newborn) {
        // The member that ended that group may have become a part of another before it was observed.
        node.last_states().for_each(|last| show_place(last, show));
    }
    node.watch_groups(|group, watched, lives| {
        show_log(group, &watched, scope, show);
        for SpreadRead { ballot, switch, key, .. } in watched.alone {
            show(Observation::Mark("switch: a fast read was answered"));
            show(Observation::Alone { key, ballot: full(ballot), switch });
        }
        if !lives || !group.is_durable() {
            return;
        }
        let state = group.state();
        // A pure function of the log: until the next log entry is applied, the state is as shown before.
        let is_news = watched.moved || scope == Scope::All;
        if is_news && (state.is_member(me) || state.is_learner(me)) {
            show(Observation::Member { node: me, group: state.id, epoch: state.epoch });
            show(Observation::Holds { range: state.range });
        }
        for write in &watched.accepted {
            show(accepted(write));
        }
        for (key, record) in &watched.chosen {
            show(chosen(key, record));
            record.done.iter().rev().take(DELIVERED_MAX).for_each(|done| show(delivered(key, done)));
        }
        let id = state.id;
        if let Some(ballot) = group.log().promised() {
            show(Observation::ControlPromised {
                group: id,
                epoch: state.epoch,
                round: ballot.round,
                node: ballot.node,
            });
        }
        if is_news {
            show(Observation::Config { group: id, epoch: state.epoch, members: state.nodes() });
        }
        if scope == Scope::All {
            show_all(group, show);
        }
    });
}

fn show_primaries(group: &Group, show: &mut dyn FnMut(Observation)) {
    for primary in group.primaries() {
        let counts = primary.counts();
        if counts.serving {
            show(Observation::Serving { range: primary.range(), ballot: full(primary.ballot()) });
        }
        if counts.lease_until > Time(0) {
            let (range, ballot) = (primary.range(), full(primary.ballot()));
            show(Observation::LeaseHeld { range, ballot, until: counts.lease_until });
        }
        if counts.serving && group.state().switch.id > 0 {
            let (switch, until) = primary.granted();
            show(Observation::Granted { ballot: full(primary.ballot()), switch, until });
            if switch.is_some() && !group.state().may_offload() {
                show(Observation::Mark("switch: offload rested during a reconfiguration"));
            }
        }
        if group.state().settings.coarse {
            show(Observation::Overtaken { gaps: counts.gaps });
        }
        show(Observation::Queue { name: "operations waiting", size: counts.waiting, limit: 1 << 16 });
        show(Observation::Queue { name: "writes in flight", size: counts.in_flight, limit: 4096 + 256 });
    }
}

/// Upper limit of sub-ranges of one division: four for each member, or for each of the eight machines that most runs have.
fn parts_max(group: &Group) -> usize {
    4 * group.state().members.len().max(8)
}

fn show_all(group: &Group, show: &mut dyn FnMut(Observation)) {
    for (range, promised) in group.acceptor().promises().pieces(group.state().range) {
        if let Some(ballot) = promised {
            show(Observation::Promised { range, ballot: full(ballot) });
        }
    }
    for (key, record) in group.table().iter() {
        show(chosen(key, record));
    }
    let committees = group.acceptor().committees().count();
    let former = group.state().recovery.len();
    // The divisions of this epoch and of the one that it takes over from, and one of each epoch that recovery still asks.
    let limit = (2 + former) * parts_max(group);
    show(Observation::Queue { name: "committees", size: committees, limit });
    show(Observation::Queue { name: "configurations that recovery asks", size: former, limit: 18 });
}

/// Returns whether the group survives the loss of another node now: this node takes part and has complete state.
pub fn is_whole(node: &Node) -> bool {
    node.is_settled() && node.groups().count() == 1 && node.groups().all(is_whole_group)
}

/// Returns whether a group of this node, or a possible successor of it, would be without a quorum for ever if `other` lost its
/// state, where no other nodes live than `alive`.
pub fn depends_on(node: &Node, other: NodeId, alive: &[NodeId]) -> bool {
    node.groups().any(|group| group_depends_on(group, other, alive))
}

fn group_depends_on(group: &Group, other: NodeId, alive: &[NodeId]) -> bool {
    let stays = |node: &&NodeId| **node != other && alive.contains(node);
    let is_lost = |nodes: &Vec<NodeId>| nodes.iter().filter(stays).count() <= nodes.len() / 2;
    possible_members(group, other).any(|nodes: Vec<NodeId>| nodes.contains(&other) && is_lost(&nodes))
}

/// Returns whether `other` may lose the data that it acknowledged last. Each group of this node, each former configuration, and each
/// possible successor in which `other` votes must have a second voter, and all its voters must be `held`.
pub fn survives_doubt(node: &Node, other: NodeId, held: &[NodeId]) -> bool {
    let survives = |nodes: Vec<NodeId>| {
        !nodes.contains(&other) || nodes.len() >= 2 && nodes.iter().all(|node| held.contains(node))
    };
    node.groups().all(|group| {
        let former = group.state().configs(group.state().range).into_iter().map(|config| config.members);
        possible_members(group, other).chain(former).all(survives)
    })
}

/// Returns the possible sets of members of a group and of its next one: of this group, or of groups that may be born of it. Changes
/// under way about `other` count as done.
fn possible_members(group: &Group, other: NodeId) -> impl Iterator<Item = Vec<NodeId>> {
    // A proposed epoch may be chosen by now, while no node knows it.
    let next = group.log().undecided(group.state().applied).into_iter().filter_map(|entry| match entry {
        Entry::Next(members) => Some(members.iter().map(|member| member.node).collect()),
        _ => None,
    });
    // The same is true of groups that may be born.
    let transactions = &group.state().transactions;
    let decided = transactions.decided().iter().map(|decision| &decision.plan);
    let open = transactions.coordinates().into_iter().chain(transactions.voted()).map(|(_, plan)| plan).chain(decided);
    let begun = group.log().undecided(group.state().applied).into_iter().filter_map(|entry| match entry {
        Entry::Transaction(TransactionEntry::Begin(plan)) => Some(*plan),
        _ => None,
    });
    let plans: Vec<Plan> = open.cloned().chain(begun).collect();
    let born = plans.iter().flat_map(|plan| plan.births.iter().map(|birth| first_voters(plan, birth)));
    let states = [group.state().nodes(), without_leaving(group, other)];
    let all: Vec<Vec<NodeId>> = next.chain(states).chain(born).collect();
    all.into_iter()
}

/// Returns the members that the group may have at any moment now: `other` comes if it is a learner, and leaving members go. The
/// leader cannot know yet that `other` is lost.
fn without_leaving(group: &Group, other: NodeId) -> Vec<NodeId> {
    let mut nodes = group.state().nodes();
    let least = nodes.len().min(MEMBERS_MIN);
    if group.state().is_learner(other) {
        nodes.retain(|member| member.peer != other.peer);
        nodes.push(other);
    }
    for (node, force) in group.leaving() {
        if nodes.len() > least || force && nodes.len() > 1 {
            nodes.retain(|member| *member != node);
        }
    }
    nodes
}

/// Returns the first voters of a group that is born. In a group that goes on under its name, members from elsewhere only learn at
/// first.
fn first_voters(plan: &Plan, birth: &Birth) -> Vec<NodeId> {
    let kept = match birth.name {
        BirthName::Kept(id) => plan.party(id),
        BirthName::New(_) => None,
    };
    let votes = |node: &NodeId| kept.is_none_or(|party| party.group.nodes().any(|member| member == *node));
    birth.members.iter().map(|contact| contact.node).filter(votes).collect()
}

fn is_whole_group(group: &Group) -> bool {
    let state = group.state();
    let parts: Vec<_> = state.parts().collect();
    let (complete, _) = group.acceptor().progress(state.epoch, &parts);
    let is_sure = !group.is_recovering() && group.doubt().is_none();
    state.is_member(group.me()) && is_sure && state.recovery.is_empty() && complete.len() == parts.len()
}

/// Asks a node's group to reform itself by a drawn transaction. Returns whether the transaction has begun.
pub fn reform(node: &mut Node, chance: u64) -> bool {
    let Some(group) = node.group().filter(|group| group.log().leads()) else { return false };
    let state = group.state();
    let within = |range: KeyRange| {
        let start = range.start().0;
        let mut at = Point(start.wrapping_add(u128::from(chance) << 64));
        while !range.contains(at) || at.0 == start {
            at = Point(start.wrapping_add(at.0.wrapping_sub(start) / 2));
        }
        at
    };
    let at = within(state.range);
    let members = state.nodes();
    let successor: Vec<NodeId> =
        state.transactions.successor().map(|other| other.nodes().collect()).unwrap_or_default();
    // Some nodes of each group, and never all.
    let some = |all: &[NodeId], chance: u64| -> Vec<NodeId> {
        let count = chance as usize % all.len().max(1);
        let turn = (chance >> 8) as usize;
        (0..count).map(|n| all[(n + turn) % all.len()]).collect()
    };
    let operation = match chance % 5 {
        0 | 1 => {
            let first = 1 + (chance >> 8) as usize % members.len();
            let turn = (chance >> 16) as usize % members.len();
            let mut first: Vec<NodeId> = (0..first).map(|n| members[(n + turn) % members.len()]).collect();
            first.sort_unstable();
            GroupTransaction::Split { at, first }
        }
        2 => GroupTransaction::Merge,
        3 => GroupTransaction::Migrate { to: some(&members, chance >> 8), from: some(&successor, chance >> 24) },
        // The boundary moves into the own range, or into the successor's.
        _ => {
            let other =
                state.transactions.successor().filter(|_| chance >> 40 & 1 == 1).map(|other| within(other.range));
            GroupTransaction::Repartition { at: other.unwrap_or(at) }
        }
    };
    node.begin_transaction(operation).is_ok()
}

/// Returns a request for another policy of a decision that changes nothing else about a run: the sizes of groups stay as they are.
pub fn set_policies(node: &Node, chance: u64) -> Option<Input> {
    const POLICIES: [(&str, &str); 8] = [
        ("divide", "even"),
        ("divide", "load"),
        ("lead", "agreement"),
        ("lead", "oldest"),
        ("lead", "random"),
        ("split", "alike"),
        ("split", "p2p"),
        ("split", "random"),
    ];
    let (decision, name) = POLICIES[chance as usize % POLICIES.len()];
    let names = vec![(decision.to_owned(), name.to_owned())];
    let request = AdminRequest::SetPolicies(PolicyChange { names, ..PolicyChange::default() });
    Some(Input::AdminRequest { number: 0, group: node.group()?.state().id, request })
}

/// Describes the groups that a node has a part in, one a line.
pub fn describe(node: &Node) -> String {
    let mut text = format!("{:?}, settled {}\n", node.id(), node.is_settled());
    for group in node.groups() {
        let state = group.state();
        let parts: Vec<_> = state.parts().collect();
        let (complete, _) = group.acceptor().progress(state.epoch, &parts);
        let recovery = state.recovery.iter().map(|config| (config.epoch.0, &config.members, &config.open));
        let recovery: Vec<_> = recovery.collect();
        let serving = group.primaries().filter(|primary| primary.is_serving()).count();
        text.push_str(&format!(
            "    {:?} epoch {} born {} range {:?} applied {} leader {:?} recovering {} doubt {:?} sealed {} complete {} of {} serving \
             {serving}\n        members {:?} learners {:?} recovery {recovery:?}\n        coordinates {:?} voted {:?} \
             decided {:?} ended {:?}\n",
            state.id,
            state.epoch.0,
            state.born.0,
            state.range,
            state.applied.0,
            group.leader(),
            group.is_recovering(),
            group.doubt().map(|doubt| doubt.up_to),
            group.acceptor().has_sealed(state.epoch),
            complete.len(),
            parts.len(),
            state.nodes(),
            state.learners.iter().map(|learner| learner.node).collect::<Vec<_>>(),
            state.transactions.coordinates().map(|(id, plan)| (id, plan.operation.name())),
            state.transactions.voted().map(|(id, plan)| (id, plan.operation.name())).collect::<Vec<_>>(),
            state.transactions.decided().iter().map(|known| (known.id, &known.unconfirmed)).collect::<Vec<_>>(),
            state.ended,
        ));
    }
    text
}

/// Returns the groups that a node is a member of, to check the ring as a whole; an error tells which part is not at rest.
pub fn owned(node: &Node) -> Result<Vec<Owned>, Broken> {
    if !node.is_settled() {
        return Err(("I16 live", format!("{:?} has something left over, or still to be born", node.id())));
    }
    let mut owned = Vec::new();
    for group in node.groups() {
        let state = group.state();
        let (id, transactions) = (state.id, &state.transactions);
        if !state.is_member(node.id()) || !state.is_settled() {
            return Err(("I16 live", format!("{:?} is not at rest in {id:?}", node.id())));
        }
        if !transactions.is_calm() || !transactions.decided().is_empty() {
            return Err(("P3 handover ends", format!("{id:?} has a transaction open: {transactions:?}")));
        }
        let beside = |link: Option<&GroupRef>| link.map_or(id, |group| group.id);
        let (before, behind) = (beside(transactions.predecessor()), beside(transactions.successor()));
        let policies = state.settings.policies.clone();
        owned.push(Owned { id, epoch: state.epoch, range: state.range, before, behind, policies });
    }
    Ok(owned)
}
