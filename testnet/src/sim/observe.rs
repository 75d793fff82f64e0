//! What a real node shows to the checks.

use group::Group;
use group::ballot::TermBallot;
use group::message::Write;
use group::record::Record;
use group::state::Entry;
use group::time::Time;
use node::Node;
use overlay::{Epoch, Incarnation, Key, NodeId, PeerKey};

use crate::checkers::{Ballot, Observation, Scope};

/// A term names its epoch and its primary, so that alone it orders ballots; records carry no more.
fn ballot_of(term: group::ballot::Term) -> Ballot {
    let nobody = NodeId { peer: PeerKey([0; 32]), incarnation: Incarnation(0) };
    Ballot { epoch: Epoch(0), term: term.0, node: nobody }
}

fn full(ballot: TermBallot) -> Ballot {
    Ballot { epoch: ballot.epoch, term: ballot.term.0, node: ballot.node }
}

/// FNV-1a: repeatable, and nobody here wants collisions.
fn hash_of(record: &Record) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    add(u8::from(record.value.is_some()));
    record.value.iter().flatten().copied().for_each(&mut add);
    record.deadline.iter().flat_map(|deadline| deadline.0.to_be_bytes()).for_each(&mut add);
    hash
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

/// A record in a store.
pub fn stored(record_key: &[u8], record: &[u8]) -> Option<Observation> {
    let key = node::storage::Space(None).key_of(record_key)?;
    let record = node::storage::decode_record(record).ok()?;
    Some(chosen(&key, &record))
}

/// Shows what has changed, or everything.
pub fn observe(node: &mut Node, scope: Scope, show: &mut dyn FnMut(Observation)) {
    let me = node.id();
    if let Some(group) = node.group() {
        show_primaries(group, show);
        // All nodes here are honest.
        let dropped = usize::try_from(group.dropped().total()).unwrap_or(usize::MAX);
        show(Observation::Queue { name: "messages taken for nonsense", size: dropped, limit: 0 });
    }
    let Some((group, newly_chosen, newly_accepted)) = node.watch_group() else { return };
    let state = group.state();
    show(Observation::Member { node: me, epoch: state.epoch, whole: is_whole_group(group) });
    for write in &newly_accepted {
        show(accepted(write));
    }
    for (key, record) in &newly_chosen {
        show(chosen(key, record));
    }
    if let Some(ballot) = group.log().promised() {
        show(Observation::ControlPromised { epoch: state.epoch, round: ballot.round, node: ballot.node });
    }
    show(Observation::Config { epoch: state.epoch, members: state.nodes() });
    if scope == Scope::All {
        show_all(group, show);
    }
}

fn show_primaries(group: &Group, show: &mut dyn FnMut(Observation)) {
    if group.state().settings.leases {
        // Whatever is not held any more was given up.
        let nobody = TermBallot { epoch: Epoch(0), term: group::ballot::Term(0), node: group.me() };
        let range = overlay::KeyRange::FULL;
        show(Observation::LeaseHeld { range, ballot: full(nobody), until: Time(0) });
    }
    for primary in group.primaries() {
        let counts = primary.counts();
        if counts.serving {
            show(Observation::Serving { range: primary.range(), ballot: full(primary.ballot()) });
        }
        if counts.lease_until > Time(0) {
            let (range, ballot) = (primary.range(), full(primary.ballot()));
            show(Observation::LeaseHeld { range, ballot, until: counts.lease_until });
        }
        if group.state().settings.coarse {
            show(Observation::Overtaken { gaps: counts.gaps });
        }
        show(Observation::Queue { name: "operations waiting", size: counts.waiting, limit: 1 << 16 });
        show(Observation::Queue { name: "writes in flight", size: counts.in_flight, limit: 4096 + 256 });
    }
}

fn show_all(group: &Group, show: &mut dyn FnMut(Observation)) {
    for (range, promised) in group.acceptor().promises().pieces(overlay::KeyRange::FULL) {
        if let Some(ballot) = promised {
            show(Observation::Promised { range, ballot: full(ballot) });
        }
    }
    for (key, record) in group.table().iter() {
        show(chosen(key, record));
    }
    let committees = group.acceptor().committees().count();
    show(Observation::Queue { name: "committees", size: committees, limit: 64 });
    let former = group.state().recovery.len();
    show(Observation::Queue { name: "configurations that recovery asks", size: former, limit: 8 });
}

/// Whether the group survives losing another node now: this one takes part and holds all that it must.
pub fn is_whole(node: &Node) -> bool {
    node.group().is_some_and(is_whole_group)
}

/// Whether this node's group, or one that may follow it, would be without a quorum for ever if `other` lost what it holds.
pub fn depends_on(node: &Node, other: NodeId) -> bool {
    let Some(group) = node.group() else { return false };
    // An epoch that was proposed may be chosen by now, and nobody know it.
    let next = group.log().undecided(group.state().applied).into_iter().filter_map(|entry| match entry {
        Entry::Next(members) => Some(members.iter().map(|member| member.node).collect()),
        _ => None,
    });
    next.chain([group.state().nodes()]).any(|nodes: Vec<NodeId>| nodes.len() <= 2 && nodes.contains(&other))
}

fn is_whole_group(group: &Group) -> bool {
    let state = group.state();
    let parts: Vec<_> = state.parts().collect();
    let (complete, _) = group.acceptor().progress(state.epoch, &parts);
    state.is_member(group.me()) && !group.is_vouching() && state.recovery.is_empty() && complete.len() == parts.len()
}
