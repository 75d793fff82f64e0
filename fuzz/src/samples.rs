//! Samples of all encoded types, as a start for the fuzzer. Samples of messages between groups are in [`transactions`].

mod transactions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use group::ballot::{Ballot, LogSlot, Number, Term, TermBallot};
use group::control::state::{Entry, EpochConfig, GroupState, Member, Settings};
use group::harmonia::switch::Switch;
use group::message::{
    AskCompare, AskCopy, AttemptOutcome, Base, ClientMessage, ClientOperation, CommitteeMessage, CommitteeReport,
    Compared, Copied, Heartbeat, LogMessage, Message, Progress, Sender, Since, Vouch, VouchedCommittee, Write,
};
use group::number_set::NumberSet;
use group::op::{
    Answer, Condition, ExpireOnly, Expiry, Kind, LeaseOp, Limit, Op, OpError, Read, ReadMode, Refusal, Unfit, Version,
};
use group::outbox::{CommitteeHead, Durable};
use group::record::{DoneOp, OpId, Record};
use node::admin::ForwardedRequest;
use node::policies::lifetimes::Lifetimes;
use node::reconfigure::copying::{CopyOrder, CopyTold};
use node::routing::join::{Sample, Sampled};
use node::routing::{Astray, Heard, Locate, Located, Wanted};
use node::wire::Frame;
use node::{AdminOutcome, AdminRequest, Policies, PolicyChange};
use overlay::time::WallMillis;
use overlay::{
    Contact, Epoch, GroupId, GroupRef, Incarnation, IntervalMap, Key, KeyRange, NodeId, PeerKey, Point, RingId, Way,
};

const NODE: NodeId = NodeId { peer: PeerKey([7; 32]), incarnation: Incarnation(1 << 40) };
const EPOCH: Epoch = Epoch(3);
const TERM: Term = Term(9 << 16);
const BALLOT: Ballot = Ballot { round: 300, node: NODE };
const TERM_BALLOT: TermBallot = TermBallot { epoch: EPOCH, term: TERM, node: NODE };
const NUMBER: Number = Number { term: TERM, n: 5 };
const VERSION: Version = Version { generation: 2, timestamp: 300 };
const RANGE: KeyRange = KeyRange::new(Point(1 << 100), Point(1 << 120));

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).expect("names of samples are short")
}

/// Returns a value, a tombstone, and a record that remembers operations.
pub fn records() -> Vec<Record> {
    let plain = |value: Option<Bytes>, deadline| Record {
        number: NUMBER,
        version: VERSION,
        value,
        kind: Kind::Value,
        deadline,
        horizon: 4,
        done: Vec::new(),
        completions: Default::default(),
    };
    let answers = [
        Answer::Done,
        Answer::NotMet,
        Answer::Value(Some("old".into())),
        Answer::Versioned(Some(("old".into(), VERSION))),
        Answer::Integer(-7),
        Answer::Kind(Some(Kind::Lease)),
        Answer::Held { holder: "me".into(), left_ms: 1 << 40 },
        Answer::Unfit(Unfit::Overflow),
    ];
    let done = answers.into_iter().enumerate().map(|(sequence, answer)| DoneOp {
        id: match sequence {
            0 => OpId::Client("invoice 17".into()),
            _ => OpId::Origin { node: NODE, run: u64::MAX, sequence: sequence as u64 },
        },
        horizon: 4,
        answer,
    });
    let remembering = Record { done: done.collect(), ..plain(Some("value".into()), None) };
    let lease = Record { kind: Kind::Lease, ..plain(Some("me".into()), Some(WallMillis(1 << 40))) };
    vec![lease, plain(Some(vec![7; 300].into()), Some(WallMillis(1 << 40))), plain(None, None), remembering]
}

fn writes() -> Vec<Write> {
    let write = |(index, record)| Write { key: key(&format!("key {index}")), record: Arc::new(record) };
    records().into_iter().enumerate().map(write).collect()
}

fn member() -> Member {
    Member {
        node: NODE,
        addresses: vec!["/ip4/127.0.0.1/tcp/6478".into(), "/ip6/::1/tcp/1".into()],
        name: "oak".parse().ok(),
        cluster: "attic".into(),
        joined: WallMillis(77),
        since: LogSlot(3),
    }
}

fn contact() -> Contact {
    Contact {
        node: NODE,
        addresses: vec!["/ip4/127.0.0.1/tcp/1".into(), String::new()],
        name: "oak-7_b.c".parse().ok(),
    }
}

fn state() -> GroupState {
    let settings = Settings {
        coarse: true,
        leases: true,
        lease_ms: 2000,
        drift_per_mille: 10,
        value_bytes_max: 1 << 16,
        policies: Policies::default().agreed_on(5, 12),
        horizon_ms: 60_000,
    };
    let founded = GroupState::founded(RingId(9), GroupId(1 << 90), member(), settings);
    let former = EpochConfig { epoch: Epoch(2), members: vec![NODE, NODE], open: vec![RANGE] };
    let mut state = GroupState { learners: vec![member()], recovery: vec![former], ..founded };
    transactions::open_in(&mut state);
    state
}

fn entries() -> Vec<Entry> {
    let own = [
        Entry::Noop,
        Entry::Division { parts: vec![(Point(0), NODE), (Point(1 << 127), NODE)], kept: vec![TERM] },
        Entry::Learners(vec![member()]),
        Entry::DropLearner(NODE),
        Entry::Next(vec![member(), member()]),
        Entry::Established(EPOCH, vec![RANGE]),
        Entry::Horizon(12),
        Entry::Policies(Policies::default().agreed_on(5, 12)),
        Entry::Switch(Switch::on(3)),
        Entry::Switch(Switch::barred(3)),
        Entry::Contact(contact()),
    ];
    own.into_iter().chain(transactions::entries().into_iter().map(Entry::Transaction)).collect()
}

fn base() -> Base {
    Base { range: RANGE, pieces: vec![(RANGE, vec![(TERM, 7), (Term(1), 0)]), (RANGE, Vec::new())], reproposed: 3 }
}

fn log_messages() -> Vec<LogMessage> {
    let slots = |entry: Entry| (LogSlot(8), entry);
    let accepted = entries().into_iter().map(|entry| (LogSlot(8), BALLOT, entry)).collect();
    vec![
        LogMessage::AskPromise { round: 4 },
        LogMessage::WouldPromise { round: 4 },
        LogMessage::Prepare { ballot: BALLOT, applied: LogSlot(7), stop: true },
        LogMessage::Promise { ballot: BALLOT, state: Some(Box::new(state())), accepted, doubt: EPOCH },
        LogMessage::Accept { ballot: BALLOT, entries: entries().into_iter().map(slots).collect(), chosen: LogSlot(7) },
        LogMessage::Accepted { ballot: BALLOT, slots: vec![LogSlot(8), LogSlot(9)], doubt: Epoch(0) },
        LogMessage::Lead,
        LogMessage::Refused { ballot: BALLOT, promised: BALLOT },
    ]
}

fn committee_messages() -> Vec<CommitteeMessage> {
    use CommitteeMessage as C;
    let (ballot, piece) = (TERM_BALLOT, RANGE);
    let report = CommitteeReport { ballot, base: Some(base().into()), chosen: Some(3) };
    vec![
        C::Prepare { ballot, range: RANGE },
        C::Promise {
            ballot,
            part: 0,
            parts: 2,
            total: 3,
            committees: vec![report.clone(), CommitteeReport { base: None, ..report }],
            unsettled: writes(),
            leases: vec![(ballot, 1500)],
            delegated: vec![(ballot, 700)],
            doubt: EPOCH,
        },
        C::Refused { ballot, promised: ballot },
        C::Accept { ballot, chosen: Some(4), writes: writes() },
        C::Accepted { ballot, numbers: vec![(1, 5), (7, 7)] },
        C::Base { ballot, base: base().into(), chosen: None },
        C::BaseAccepted { ballot },
        C::AskBase { ballot },
        C::Confirm { ballot, attempt: 6, lease: true, chosen: Some(5) },
        C::Confirmed { ballot, attempt: 6 },
        C::Point { ballot, switch: 2, chosen: 5, point: 9 },
        C::Grant { ballot, switch: 2, attempt: 6, left_us: 900_000, chosen: 5, point: 9 },
        C::AskRecord { ballot, key: key("k"), attempt: 3 },
        C::RecordIs { ballot, key: key("k"), attempt: 3, record: Some(Arc::new(records().remove(0))), doubt: EPOCH },
        C::AskSince { ballot, piece, since: NUMBER, attempt: 9 },
        C::Since(Since { ballot, piece, since: NUMBER, attempt: 9, writes: writes(), up_to: Some(NUMBER), done: true }),
        C::AskCompare(Box::new(AskCompare {
            ballot,
            piece,
            after: Some(key("a")),
            held: vec![(key("b"), NUMBER), (key("c"), NUMBER)],
            until: None,
            attempt: 9,
        })),
        C::Compared(Box::new(Compared {
            ballot,
            piece,
            after: None,
            attempt: 9,
            writes: writes(),
            looked: 12,
            digest: writes().iter().fold(0, |sum: u64, write| sum.wrapping_add(write.digest())),
            up_to: Some(key("c")),
            mark: 5,
            complete: true,
            doubt: EPOCH,
        })),
    ]
}

fn operations() -> Vec<Op> {
    let value = Bytes::from("value");
    vec![
        Op::Read(Read::Versioned),
        Op::Set { value: value.clone(), condition: Condition::Version(VERSION), expiry: Expiry::Keep, get: true },
        Op::Delete { condition: Condition::Equals(value.clone()), get: false },
        Op::Append { value, max: Some(1 << 16) },
        Op::Add(i64::MIN),
        Op::Expire { expiry: Expiry::In(Duration::new(5, 7)), only: ExpireOnly::Later },
        Op::ReadExpire(Expiry::At(WallMillis(1 << 41))),
        Op::Lease(LeaseOp::Acquire { holder: "me".into(), term: Duration::new(5, 7) }),
        Op::Lease(LeaseOp::Release { holder: "me".into() }),
    ]
}

fn client_messages() -> Vec<ClientMessage> {
    let operate = |op| {
        let operation = ClientOperation {
            attempt: 8,
            ballot: Some(TERM_BALLOT),
            run: 1 << 60,
            serial: 3,
            retired_below: 100,
            retired_except: vec![40, 41],
            id: OpId::Origin { node: NODE, run: 1 << 60, sequence: 101 },
            horizon: 4,
            patience_ms: 3000,
            key: key("k"),
            op,
            mode: ReadMode::Linearizable,
        };
        ClientMessage { operations: vec![operation], outcomes: vec![] }
    };
    let outcomes = [
        AttemptOutcome::Done(Answer::Value(Some("value".into()))),
        AttemptOutcome::Unchanged(Answer::NotMet),
        AttemptOutcome::Refused(OpError::TryAgain(Refusal::Busy)),
        AttemptOutcome::Refused(OpError::Limit(Limit::Disk)),
        AttemptOutcome::NotPrimary,
        AttemptOutcome::Unknown,
    ];
    let outcomes = outcomes.map(|outcome| ClientMessage { operations: vec![], outcomes: vec![(8, outcome)] });
    operations().into_iter().map(operate).chain(outcomes).collect()
}

fn progress() -> Progress {
    Progress { applied: LogSlot(8), complete: vec![TERM], marks: vec![(TERM, 5)] }
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        applied: LogSlot(8),
        leads: Some(BALLOT),
        chosen: LogSlot(8),
        hears: vec![NODE, NODE],
        terms: vec![TERM],
        parting: group::message::Parting::Stops { away_ms: 60_000 },
        sealed: true,
        wall: WallMillis(1 << 41),
        sent_us: 5,
        echoes: vec![Some(group::message::Echo { sent_us: 4, held_us: 3 }), None],
        agreement_us: Some(2),
        doubt: Some(group::Doubt::new()),
        load: Some(vec![300; 32]),
        full: true,
        absences: vec![(NODE, WallMillis(9))],
        capacity: Some(20_000),
        history: Some(group::control::history::History { failures: 3, lived_s: 70_000 }),
        progress: Some(progress()),
        marks: vec![(TERM, 5)],
    }
}

fn vouch() -> Vouch {
    let mut accepted = group::number_set::NumberSet::default();
    accepted.insert_range(2, 5);
    Vouch {
        promised: Some(BALLOT),
        accepted: vec![(LogSlot(9), BALLOT)],
        committees: vec![VouchedCommittee { ballot: TERM_BALLOT, range: RANGE, based: true, accepted }],
        progress: Some(progress()),
        followed: 2,
        last: EPOCH,
        round: 7,
        ..Vouch::silent(LogSlot(8), EPOCH)
    }
}

fn messages() -> Vec<Message> {
    let others = [
        Message::Heartbeat(heartbeat().into()),
        Message::Progress(progress()),
        Message::Join(member()),
        Message::AskVouch,
        Message::AcceptLoss,
        Message::Vouch(vouch()),
        Message::State(Box::new(state())),
        Message::AskState,
        Message::Contact(contact()),
        Message::AskCopy(AskCopy { piece: RANGE, after: Some(key("b")), number: 1 << 60 }),
        Message::Copied(Box::new(Copied {
            piece: RANGE,
            after: None,
            number: 1 << 60,
            writes: writes(),
            up_to: Some(key("c")),
            applied: LogSlot(8),
            purged: LogSlot(7),
        })),
    ];
    let handover = group::transaction::successor::handover::Handover {
        ballot: TERM_BALLOT,
        base: base().into(),
        chosen: 5,
        unsettled: writes(),
    };
    let log = log_messages().into_iter().map(Message::Log);
    let committee = committee_messages().into_iter().map(Message::Committee);
    let client = client_messages().into_iter().map(Message::Client);
    let envelopes = transactions::envelopes().into_iter().map(|envelope| Message::Envelope(Box::new(envelope)));
    others
        .into_iter()
        .chain([Message::Handover(Box::new(handover))])
        .chain(log)
        .chain(committee)
        .chain(client)
        .chain(envelopes)
        .collect()
}

fn group_ref() -> GroupRef {
    GroupRef { id: GroupId(5), epoch: Epoch(7), range: KeyRange::new(Point(3), Point(9)), members: vec![contact()] }
}

fn locate() -> Locate {
    Locate {
        ring: RingId(9),
        point: Point(4),
        origin: contact(),
        wanted: Wanted::Sample,
        way: Way::Up,
        hops: 3,
        taken_for: Some((GroupId(5), Epoch(7))),
    }
}

fn located() -> Located {
    let group = group_ref();
    Located {
        ring: RingId(9),
        point: Point(4),
        part: group.range,
        unheard: group.nodes().take(1).collect(),
        heard: Heard { epoch: Epoch(2), members: 1, needed: 2, of: 3 },
        group,
        ballot: TERM_BALLOT,
        horizon: 3,
        policies: 2,
    }
}

/// Returns a frame of every kind.
pub fn frames() -> Vec<Frame> {
    let order = CopyOrder { ring: RingId(9), number: 1 << 60, source: GroupId(6), ranges: vec![RANGE] };
    let told = CopyTold { ring: RingId(9), number: 1 << 60, source: GroupId(6), records: 300, done: true };
    let sender = Sender { node: NODE, epoch: EPOCH };
    let within = |message| Frame::Group { ring: RingId(9), group: GroupId(1 << 90), sender, message };
    let sample = Sample { ring: None, origin: contact() };
    let sampled = Sampled {
        policies: Policies::default().agreed_on(5, 12),
        ring: RingId(9),
        point: Point(4),
        group: group_ref(),
        clusters: vec!["a".into()],
        own: false,
        risk: Some(1 << 30),
        load: Some(300),
        capacity: Some(90_000),
    };
    let lifetimes = Lifetimes { ring: RingId(9), classes: vec![(3, 500, 64), (17, 100_000, 0)] };
    let request = AdminRequest::Migrate { to: vec![NODE.peer], from: Vec::new() };
    let forwarded = ForwardedRequest { ring: RingId(9), group: GroupId(5), number: 1, request };
    let change =
        PolicyChange { names: vec![("size".into(), "nines".into())], members_min: None, members_max: Some(15) };
    let agreed = ForwardedRequest { request: AdminRequest::SetPolicies(change), ..forwarded.clone() };
    let astray = Astray { ring: RingId(9), taken_for: (GroupId(6), Epoch(2)), group: Some(group_ref()) };
    let outside = [
        Frame::Join { ring: Some(RingId(9)), member: member() },
        Frame::NotUnderstood { version: 2 },
        Frame::Probe { ring: RingId(9), number: 1 << 60 },
        Frame::Probed { ring: RingId(9), number: 1 << 60 },
        Frame::Patience { ring: RingId(9), number: 1 << 60 },
        Frame::CopyOrder(order.into()),
        Frame::CopyTold(told.into()),
        Frame::Locate(locate().into()),
        Frame::Located(located().into()),
        Frame::Astray(astray.into()),
        Frame::Sample(sample.into()),
        Frame::Sampled(sampled.into()),
        Frame::AskLifetimes { ring: RingId(9) },
        Frame::Lifetimes(lifetimes.into()),
        Frame::AdminRequest(forwarded.into()),
        Frame::AdminRequest(agreed.into()),
        Frame::AdminOutcome { ring: RingId(9), number: 1, outcome: AdminOutcome::Done(vec![GroupId(6)]) },
        Frame::AdminOutcome { ring: RingId(9), number: 2, outcome: AdminOutcome::Refused("no".into()) },
    ];
    messages().into_iter().map(within).chain(outside).collect()
}

/// Returns everything that a group stores, its state first.
pub fn durables() -> Vec<Durable> {
    let mut promises = IntervalMap::new(None);
    promises.set(RANGE, Some(TERM_BALLOT));
    let mut received = NumberSet::default();
    received.insert_range(1, 5);
    received.insert_range(8, 9);
    let head = CommitteeHead { ballot: TERM_BALLOT, range: RANGE, base: Some(base().into()), missing: vec![RANGE] };
    let mut durables = vec![
        Durable::State(Box::new(state())),
        Durable::LogPromised(EPOCH, Some(BALLOT)),
        Durable::Promises(promises),
        Durable::Committee(head),
        Durable::CommitteeProgress(TERM_BALLOT, received, Some(4)),
    ];
    durables
        .extend(entries().into_iter().zip(9..).map(|(entry, slot)| Durable::LogAccepted(LogSlot(slot), BALLOT, entry)));
    durables.extend(writes().into_iter().map(Durable::Accepted));
    durables
}
