//! Samples of messages between groups, and of log entries about transactions.

use group::ballot::LogSlot;
use group::control::health::{Health, LivingMember};
use group::control::state::{Entry, GroupState};
use group::transaction::driver::{GroupEnvelope, GroupMessage};
use group::transaction::plan::{GroupTransaction, Plan, Rank, View};
use group::transaction::state::TransactionEntry;
use group::transaction::{Outcome, TransactionId, Vote};
use node::Policies;
use overlay::time::WallMillis;
use overlay::{Contact, Epoch, GroupId, GroupRef, Incarnation, KeyRange, NodeId, PeerKey, Point};

use super::NODE;

const ID: TransactionId = TransactionId { group: GroupId(1 << 90), epoch: Epoch(1), slot: LogSlot(2) };
const OTHER: NodeId = NodeId { peer: PeerKey([8; 32]), incarnation: Incarnation(2) };

/// Returns the view of a group that owns the whole ring.
fn alone() -> View {
    let contact = |node| Contact { node, addresses: vec!["/ip4/127.0.0.1/tcp/6478".into()], name: "elm".parse().ok() };
    let own =
        GroupRef { id: ID.group, epoch: ID.epoch, range: KeyRange::FULL, members: vec![contact(NODE), contact(OTHER)] };
    View { own: own.clone(), predecessor: own.clone(), successor: own }
}

fn health() -> Health {
    let member = |node, is_heard| LivingMember { node, is_heard, cluster: "attic".into(), joined: WallMillis(3) };
    let policies = Policies::default().agreed_on(5, 12);
    let living = vec![member(NODE, true), member(OTHER, false)];
    Health { load: Some(vec![300; 32]), policies, living, capacity: Some(90_000) }
}

fn plan() -> Box<Plan> {
    let operation = GroupTransaction::Split { at: Point(1 << 127), first: vec![NODE] };
    Box::new(Plan::new(operation, &alone(), None, Rank::new(1, WallMillis(5))).expect("two members, two halves"))
}

/// Makes the group of a state the coordinator of a transaction.
pub(super) fn open_in(state: &mut GroupState) {
    let settled = GroupState { learners: Vec::new(), recovery: Vec::new(), ..state.clone() };
    let mut other = settled;
    other.apply(other.applied.next(), &Entry::Transaction(TransactionEntry::Begin(plan())));
    assert!(other.transactions.coordinates().is_some(), "the plan is one for the sample's group");
    state.transactions = other.transactions;
}

pub(super) fn entries() -> Vec<TransactionEntry> {
    vec![
        TransactionEntry::Begin(plan()),
        TransactionEntry::Asked(ID, plan()),
        TransactionEntry::Outcome(ID, Outcome::Commit),
        TransactionEntry::Decided(ID, Outcome::Abort),
        TransactionEntry::Ending(ID),
        TransactionEntry::Ended(ID, GroupId(7)),
        TransactionEntry::Neighbour(alone().own),
    ]
}

pub(super) fn envelopes() -> Vec<GroupEnvelope> {
    let words = [
        GroupMessage::Prepare(ID, plan()),
        GroupMessage::Vote(ID, Vote::Yes),
        GroupMessage::Decision(ID, Outcome::Commit),
        GroupMessage::End(ID),
        GroupMessage::Question(ID),
        GroupMessage::Push(Box::new(alone()), true, Box::new(health())),
        GroupMessage::Push(Box::new(alone()), false, Box::default()),
        GroupMessage::Known(Epoch(4)),
    ];
    let envelope = |message| GroupEnvelope { from: ID.group, by: alone().own, to: alone().own, message };
    words.into_iter().map(envelope).collect()
}
