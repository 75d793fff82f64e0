//! Invented lies: well-formed, made of the liar's and its victim's knowledge, and false in one or two places.

use std::sync::Arc;

use group::Group;
use group::ballot::{Ballot, LogSlot, Number, Term, TermBallot};
use group::control::state::{Entry, GroupState};
use group::message::{Base, CommitteeMessage, LogMessage, Message, Sender, Since, Write};
use group::op::{Kind, Version};
use group::record::{Completions, DoneOp, OpId, Record};
use group::transaction::driver::{GroupEnvelope, GroupMessage};
use group::transaction::plan::{Birth, BirthName, GroupTransaction, Party, Plan, Rank};
use group::transaction::{Outcome, TransactionId, Vote};
use node::reconfigure::copying::CopyOrder;
use node::wire::Frame;
use node::{AdminRequest, Node};
use overlay::rng::Rng;
use overlay::time::WallMillis;
use overlay::{Contact, Epoch, GroupId, GroupRef, Key, KeyRange, NodeId, Point, RingId};

/// Returns a number that is wrong in a usual way.
fn odd(rng: &mut Rng, honest: u64) -> u64 {
    let numbers = [
        0,
        1,
        honest.wrapping_sub(1),
        honest.wrapping_add(1),
        honest.wrapping_add(rng.below(1000)),
        (1 << 48) - 3,
        (1 << 48) - 2,
        u32::MAX.into(),
        u64::MAX / 2,
        u64::MAX - 1,
        u64::MAX,
    ];
    numbers[rng.below(numbers.len() as u64) as usize]
}

fn is(rng: &mut Rng, of: u64) -> bool {
    rng.below(of) == 0
}

fn one<T: Clone>(rng: &mut Rng, all: &[T]) -> Option<T> {
    let at = rng.below(all.len().max(1) as u64) as usize;
    all.get(at).cloned()
}

fn range(rng: &mut Rng, of: KeyRange) -> KeyRange {
    let cut = |rng: &mut Rng| of.cut_at(rng.below(4) as u32, 4);
    match rng.below(6) {
        0 => KeyRange::FULL,
        1 => KeyRange::new(of.start(), cut(rng)),
        2 => KeyRange::new(cut(rng), of.end()),
        3 => KeyRange::new(of.end(), of.start()),
        4 => KeyRange::at(of.start()),
        _ => of,
    }
}

fn record(rng: &mut Rng, number: Number) -> Record {
    let odd_32 = |rng: &mut Rng, honest: u32| if is(rng, 2) { odd(rng, honest.into()) as u32 } else { honest };
    let done = DoneOp { id: OpId::Client("id".into()), horizon: odd(rng, 3), answer: group::op::Answer::Done };
    Record {
        number,
        version: Version { generation: odd_32(rng, 1), timestamp: odd(rng, number.n) },
        value: (!is(rng, 4)).then(|| format!("{}", rng.below(100)).into()),
        kind: Kind::Value,
        deadline: is(rng, 4).then(|| WallMillis(odd(rng, 5_000))),
        horizon: if is(rng, 3) { odd(rng, 3) } else { 0 },
        done: if is(rng, 4) { vec![done] } else { Vec::new() },
        completions: Completions { client: is(rng, 4).then(|| odd(rng, 3)), origin: is(rng, 4).then(|| odd(rng, 3)) },
    }
}

/// Returns the last epoch for which the liar's promises are in doubt: in most cases none.
fn doubt(rng: &mut Rng, state: &GroupState) -> Epoch {
    if is(rng, 4) { Epoch(odd(rng, state.epoch.0)) } else { Epoch(0) }
}

fn write(rng: &mut Rng, number: Number) -> Write {
    let key = Key::new(format!("key {}", rng.below(24)).as_bytes()).unwrap();
    Write { key, record: Arc::new(record(rng, number)) }
}

fn chain(rng: &mut Rng, state: &GroupState) -> Vec<(Term, u64)> {
    let slot = |rng: &mut Rng| LogSlot(rng.below(state.applied.0 + 2));
    (0..rng.below(4)).map(|_| (Term::new(slot(rng), rng.below(3) as usize), odd(rng, 5) & ((1 << 48) - 3))).collect()
}

fn base(rng: &mut Rng, state: &GroupState, range: KeyRange) -> Base {
    let half = range.cut_at(1, 2);
    let pieces = match rng.below(3) {
        0 => vec![
            (KeyRange::new(range.start(), half), chain(rng, state)),
            (KeyRange::new(half, range.end()), Vec::new()),
        ],
        _ => vec![(range, chain(rng, state))],
    };
    Base { range, pieces, reproposed: rng.below(3) }
}

/// Returns the ballot of a sub-range: the liar's as often as not, or one that was never granted.
fn ballot(rng: &mut Rng, state: &GroupState, liar: NodeId) -> (KeyRange, TermBallot) {
    let parts: Vec<_> = state.parts().collect();
    let own: Vec<_> = parts.iter().filter(|(_, ballot)| ballot.node == liar).copied().collect();
    let any = is(rng, 4) || own.is_empty();
    let (part, mut ballot) = one(rng, if any { &parts } else { &own }).unwrap();
    if is(rng, 3) {
        let (slot, place) = (LogSlot(state.applied.0 + rng.below(3)), rng.below(5) as usize);
        (ballot.term, ballot.node) = (Term::new(slot, place), liar);
    }
    (part, ballot)
}

fn committee(rng: &mut Rng, group: &Group, liar: NodeId) -> Message {
    let state = group.state();
    let (part, ballot) = ballot(rng, state, liar);
    let last = group.acceptor().committee(ballot).map_or(0, |committee| committee.received().last());
    let n = if is(rng, 8) { odd(rng, last) } else { 1 + rng.below(last + 3) };
    let number = Number { term: ballot.term, n };
    let chosen = [None, Some(0), Some(last), Some(last + 1), Some(n)][rng.below(5) as usize];
    Message::Committee(match rng.below(8) {
        0 => CommitteeMessage::Prepare { ballot, range: if is(rng, 3) { range(rng, part) } else { part } },
        1 | 2 => {
            let writes = (0..rng.below(4)).map(|more| write(rng, Number { n: n.saturating_add(more), ..number }));
            CommitteeMessage::Accept { ballot, chosen, writes: writes.collect() }
        }
        3 | 4 => {
            let range = if is(rng, 4) { range(rng, part) } else { part };
            CommitteeMessage::Base { ballot, base: base(rng, state, range).into(), chosen }
        }
        5 => {
            let (writes, up_to) = (vec![write(rng, number)], Some(number));
            CommitteeMessage::Since(Since { ballot, piece: part, since: number, attempt: 0, writes, up_to, done: true })
        }
        6 => {
            let record = Some(Arc::new(record(rng, number)));
            let key = Key::new(format!("key {}", rng.below(24)).as_bytes()).unwrap();
            CommitteeMessage::RecordIs { ballot, key, attempt: rng.below(9), record, doubt: doubt(rng, state) }
        }
        _ => {
            let unsettled = (0..rng.below(3)).map(|_| write(rng, number)).collect();
            let report = group::message::CommitteeReport { ballot, base: Some(base(rng, state, part).into()), chosen };
            CommitteeMessage::Promise {
                ballot: one(rng, &state.parts().map(|(_, ballot)| ballot).collect::<Vec<_>>()).unwrap(),
                part: 0,
                parts: 1,
                total: odd(rng, 1),
                committees: vec![report],
                unsettled,
                leases: vec![(ballot, odd(rng, 9))],
                delegated: vec![(ballot, odd(rng, 9))],
                doubt: doubt(rng, state),
            }
        }
    })
}

fn contacts(group: &GroupState) -> Vec<Contact> {
    let contact = |node: NodeId| Contact { node, addresses: Vec::new(), name: None };
    group.nodes().into_iter().map(contact).collect()
}

fn reference(rng: &mut Rng, group: &GroupState) -> GroupRef {
    let epoch = if is(rng, 4) { Epoch(odd(rng, group.epoch.0) / 2) } else { group.epoch };
    let range = if is(rng, 5) { range(rng, group.range) } else { group.range };
    GroupRef { id: group.id, epoch, range, members: contacts(group) }
}

/// Returns a plan that touches some existing groups, and its births.
fn plan(rng: &mut Rng, own: &GroupState, other: &GroupState) -> Plan {
    let (mine, theirs) = (reference(rng, own), reference(rng, other));
    let half = mine.range.cut_at(1, 2);
    let party = |group: &GroupRef, touched| Party { group: group.clone(), touched };
    let birth = |name, range, members| Birth { name, range, members };
    let (both, all) = (KeyRange::new(mine.range.start(), theirs.range.end()), mine.members.clone());
    let kept = [BirthName::Kept(mine.id), BirthName::Kept(theirs.id), BirthName::New(0), BirthName::New(1)];
    let name = |rng: &mut Rng| kept[rng.below(4) as usize];
    let some = |rng: &mut Rng, all: &[Contact]| all[..rng.below(all.len() as u64 + 1) as usize].to_vec();
    let touched = (is(rng, 2), is(rng, 2));
    let (operation, births) = match rng.below(5) {
        0 => (GroupTransaction::Merge, vec![birth(name(rng), both, some(rng, &all))]),
        1 => {
            let first = KeyRange::new(mine.range.start(), half);
            let second = KeyRange::new(half, mine.range.end());
            let births = vec![birth(name(rng), first, some(rng, &all)), birth(name(rng), second, some(rng, &all))];
            (GroupTransaction::Split { at: half, first: Vec::new() }, births)
        }
        2 => {
            let births = vec![
                birth(name(rng), mine.range, some(rng, &theirs.members)),
                birth(name(rng), theirs.range, some(rng, &all)),
            ];
            (GroupTransaction::Migrate { to: Vec::new(), from: Vec::new() }, births)
        }
        3 => {
            let births = vec![birth(BirthName::Kept(mine.id), both, some(rng, &all))];
            let lost = vec![theirs.id, GroupId(odd(rng, 4).into())];
            let above = Epoch(odd(rng, theirs.epoch.0));
            (GroupTransaction::Repair { from: theirs.range.start(), last: theirs.range.start(), lost, above }, births)
        }
        _ => (GroupTransaction::Repartition { at: half }, Vec::new()),
    };
    let parties = match rng.below(5) {
        0 => Vec::new(),
        1 => vec![party(&mine, true)],
        2 => vec![party(&theirs, true), party(&mine, true)],
        _ => vec![party(&mine, touched.0), party(&theirs, touched.1)],
    };
    Plan { operation, parties, births, rank: Rank::new(odd(rng, 0) as u32, WallMillis(odd(rng, 1_000))) }
}

fn transaction(rng: &mut Rng, group: &GroupState) -> TransactionId {
    let open = group.transactions.voted().chain(group.transactions.coordinates()).map(|(id, _)| id).collect::<Vec<_>>();
    let made = TransactionId { group: group.id, epoch: group.epoch, slot: LogSlot(odd(rng, group.applied.0 + 1)) };
    one(rng, &open).filter(|_| !is(rng, 3)).unwrap_or(made)
}

/// Returns a state that a group did not reach.
fn state(rng: &mut Rng, of: &GroupState, other: &GroupState) -> GroupState {
    let mut state = of.clone();
    if is(rng, 2) {
        state.applied = LogSlot(if is(rng, 4) { odd(rng, of.applied.0) } else { of.applied.0 + 1 });
    }
    for _ in 0..=rng.below(2) {
        match rng.below(16) {
            0 => state.epoch = Epoch(odd(rng, of.epoch.0)),
            1 => state.range = range(rng, of.range),
            2 => state.members.clear(),
            3 => state.members.truncate(1),
            4 => state.members.clone_from(&other.members),
            5 => state.learners.clone_from(&of.members),
            6 => state.division.truncate(1),
            7 => state.division.iter_mut().for_each(|part| part.term = Term(odd(rng, part.term.0))),
            8 => state.ring = RingId(odd(rng, 1).into()),
            9 => state.id = GroupId(odd(rng, 1).into()),
            10 => state.ended = Some(transaction(rng, of)),
            11 => {
                state.settings.value_bytes_max = odd(rng, 1000) as u32;
                state.settings.lease_ms = odd(rng, 1000);
                state.settings.horizon_ms = odd(rng, 1000);
                (state.settings.policies.members_min, state.settings.policies.members_max) =
                    (odd(rng, 5) as u32, odd(rng, 5) as u32);
            }
            12 => state.transactions.clone_from(&other.transactions),
            13 => {
                let open = vec![range(rng, of.range)];
                let members = if is(rng, 2) { Vec::new() } else { other.nodes() };
                state.recovery.push(group::control::state::EpochConfig { epoch: of.epoch, members, open });
            }
            14 => (state.horizon, state.purged.floor) = (odd(rng, of.horizon), odd(rng, 1) as u32),
            _ => {
                // A state that would take the place of all present ones.
                let next = Epoch(of.epoch.0.wrapping_add(1));
                (state.epoch, state.born) = (next, next);
                state.born_at = state.applied;
            }
        }
    }
    state
}

fn log(rng: &mut Rng, group: &Group, other: &GroupState, liar: NodeId) -> Message {
    let own = group.state();
    let promised = group.log().promised().map_or(1, |ballot| ballot.round);
    let round = if is(rng, 6) { odd(rng, promised) } else { promised + rng.below(3) };
    let ballot = Ballot { round, node: liar };
    let slot = LogSlot(own.applied.0 + 1 + rng.below(2));
    let entry = match rng.below(10) {
        0 => Entry::Next(own.members[..rng.below(own.members.len() as u64 + 1) as usize].to_vec()),
        1 => Entry::Horizon(odd(rng, own.horizon)),
        2 => Entry::Division { parts: vec![(own.range.start(), liar)], kept: Vec::new() },
        3 => Entry::Established(own.epoch, vec![range(rng, own.range)]),
        4 => {
            let bounds = vec![(range(rng, own.range), Number { term: Term(odd(rng, 9)), n: odd(rng, 9) })];
            Entry::Purge { epoch: own.epoch, bounds, floor: odd(rng, 1) as u32 }
        }
        5 => Entry::Learners(other.members.clone()),
        6 => {
            let id = transaction(rng, own);
            Entry::Transaction(group::transaction::state::TransactionEntry::Asked(id, plan(rng, own, other).into()))
        }
        7 => Entry::Transaction(group::transaction::state::TransactionEntry::Ending(transaction(rng, own))),
        8 => Entry::Transaction(group::transaction::state::TransactionEntry::Begin(plan(rng, own, other).into())),
        _ => Entry::Noop,
    };
    Message::Log(match rng.below(4) {
        0 => LogMessage::Prepare { ballot, applied: LogSlot(odd(rng, own.applied.0)), stop: is(rng, 2) },
        1 => {
            let ballot = group.log().promised().unwrap_or(ballot);
            let state = is(rng, 2).then(|| Box::new(state(rng, own, other)));
            LogMessage::Promise { ballot, state, accepted: vec![(slot, ballot, entry)], doubt: doubt(rng, own) }
        }
        _ => {
            let chosen = LogSlot(own.applied.0 + rng.below(3));
            LogMessage::Accept { ballot, entries: vec![(slot, entry)], chosen }
        }
    })
}

/// Returns one lie of the `liar` to this node; `other` is of another group, if there is one.
pub fn made(rng: &mut Rng, liar: NodeId, node: &Node, other: Option<&Node>) -> Option<Frame> {
    let group = node.groups().next()?;
    let own = group.state();
    let beside = other.and_then(Node::group).map_or(own, Group::state);
    let ring = own.ring;
    let wrap = |group, epoch, message| Frame::Group { ring, group, sender: Sender { node: liar, epoch }, message };
    Some(match rng.below(8) {
        0 | 1 => wrap(own.id, own.epoch, committee(rng, group, liar)),
        2 => wrap(own.id, own.epoch, log(rng, group, beside, liar)),
        3 | 4 => {
            let of = if is(rng, 2) { own } else { beside };
            let other = if is(rng, 2) { own } else { beside };
            let state = state(rng, of, other);
            wrap(state.id, state.epoch, Message::State(Box::new(state)))
        }
        5 => {
            let id = transaction(rng, own);
            let message = match rng.below(6) {
                0 | 1 => GroupMessage::Prepare(id, plan(rng, beside, own).into()),
                2 => GroupMessage::Decision(id, if is(rng, 2) { Outcome::Commit } else { Outcome::Abort }),
                3 => GroupMessage::End(id),
                4 => GroupMessage::Question(id),
                _ => GroupMessage::Vote(id, if is(rng, 2) { Vote::Yes } else { Vote::No }),
            };
            let (by, to) = (reference(rng, beside), reference(rng, own));
            let envelope = GroupEnvelope { from: beside.id, by, to, message };
            wrap(own.id, own.epoch, Message::Envelope(Box::new(envelope)))
        }
        6 => {
            let ranges = (0..=rng.below(2)).map(|_| range(rng, beside.range)).collect();
            Frame::CopyOrder(Box::new(CopyOrder { ring, number: rng.below(9), source: beside.id, ranges }))
        }
        _ => {
            let request = match rng.below(4) {
                0 => AdminRequest::Split { at: Some(Point(u128::from(odd(rng, 1)) << 64)), first: Vec::new() },
                1 => AdminRequest::Repair { from: None, lost: vec![beside.id] },
                2 => AdminRequest::Repartition { at: range(rng, own.range).end() },
                _ => AdminRequest::Switch { id: odd(rng, 1) as u32 },
            };
            Frame::AdminRequest(Box::new(node::admin::ForwardedRequest {
                ring,
                group: own.id,
                number: rng.below(9),
                request,
            }))
        }
    })
}
