//! Benches: one acceptor, or one whole member, that tests feed message by message.

pub mod primary;

use std::sync::Arc;
use std::time::Duration;

use group::ballot::{LogSlot, Number, Term, TermBallot};
use group::config::{Defects, GroupConfig, Timing};
use group::control::agreed::AgreedPolicies;
use group::control::state::{GroupState, Member, Settings};
use group::data::Acceptor;
use group::data::table::Table;
use group::message::{
    AskCompare, Base, ClientMessage, ClientOperation, CommitteeMessage, Compared, Message, Sender, Since, Write,
};
use group::op::{Op, ReadMode, Version};
use group::outbox::{Durable, GroupOutput, Outbox};
use group::record::{OpId, Record};
use group::validate::Dropped;
use group::{Context, Group, Stored};
use overlay::rng::Rng;
use overlay::time::{Now, Time, WallMillis};
use overlay::{Epoch, GroupId, Incarnation, Key, KeyRange, NodeId, PeerKey, RingId};

pub fn node(peer: u8) -> NodeId {
    NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
}

/// One acceptor, with its messages and writes.
pub struct Bench {
    pub me: NodeId,
    pub now: Now,
    pub state: GroupState,
    pub config: GroupConfig,
    pub out: Outbox,
    pub rng: Rng,
    pub dropped: Dropped,
    pub acceptor: Acceptor,
    pub table: Table,
    pub said: Vec<(Vec<NodeId>, CommitteeMessage)>,
    pub stored: Vec<Durable>,
    /// Reasons for which it stopped serving.
    pub halted: Vec<String>,
}

impl Bench {
    pub fn new(me: NodeId, nodes: u8) -> Bench {
        let settings = Settings {
            coarse: false,
            leases: false,
            lease_ms: 1000,
            drift_per_mille: 10,
            value_bytes_max: 1000,
            policies: AgreedPolicies { members_min: 5, members_max: 12, ..AgreedPolicies::default() },
            horizon_ms: 60_000,
        };
        let member = |peer| Member {
            node: node(peer),
            addresses: Vec::new(),
            name: None,
            cluster: String::from("hall"),
            joined: WallMillis(0),
            since: LogSlot(0),
        };
        let mut state = GroupState::founded(RingId(1), GroupId(1), member(1), settings);
        state.members = (1..=nodes).map(member).collect();
        let config = GroupConfig {
            name: None,
            timing: Timing::default(),
            durable: true,
            memory_bytes_max: 1 << 20,
            window_bytes_max: 1 << 20,
            in_flight_max: 100,
            waiting_max: 100,
            transfer_bytes_per_s: 1 << 30,
            message_bytes_max: 1 << 10,
            divide: |_| None,
            fatal_contradictions: true,
            defects: Defects::NONE,
        };
        Bench {
            me,
            now: Now { time: Time(1_000_000_000), awake: Time(1_000_000_000), wall: WallMillis(1) },
            state,
            config,
            out: Outbox::new(me, true),
            rng: Rng::new(1),
            dropped: Dropped::default(),
            acceptor: Acceptor::new(Time(0)),
            table: Table::new(1 << 20, true, false),
            said: Vec::new(),
            stored: Vec::new(),
            halted: Vec::new(),
        }
    }

    /// Returns a store with the group's state and nothing else, after a clean stop.
    pub fn stored(&self) -> Stored {
        Stored {
            state: self.state.clone(),
            log_promised: None,
            log_accepted: Default::default(),
            promises: None,
            committees: vec![],
            unsettled: Default::default(),
            empty: false,
            sealed: true,
            doubt: None,
        }
    }

    pub fn act<T>(&mut self, act: impl FnOnce(&mut Acceptor, &mut Context<'_>, &mut Table) -> T) -> T {
        let mut ctx = Context {
            me: self.me,
            now: self.now,
            state: &self.state,
            config: &self.config,
            out: &mut self.out,
            rng: &mut self.rng,
            doubt: Epoch(0),
            dropped: &mut self.dropped,
        };
        let result = act(&mut self.acceptor, &mut ctx, &mut self.table);
        self.acceptor.flush(&mut Context {
            me: self.me,
            now: self.now,
            state: &self.state,
            config: &self.config,
            out: &mut self.out,
            rng: &mut self.rng,
            doubt: Epoch(0),
            dropped: &mut self.dropped,
        });
        self.out.flush();
        while let Some(output) = self.out.poll_ready() {
            match output {
                GroupOutput::Send(to, Message::Committee(message), _) => self.said.push((to, message)),
                GroupOutput::Persist(token, changes) => {
                    self.stored.extend(changes);
                    self.out.persisted(token);
                }
                GroupOutput::Halted(why) => self.halted.push(why.into()),
                _ => {}
            }
        }
        result
    }

    pub fn hear(&mut self, from: u8, message: CommitteeMessage) {
        self.act(|acceptor, ctx, table| acceptor.on_message(ctx, table, node(from), message));
    }

    pub fn tick(&mut self) {
        self.now.time = self.now.time + Duration::from_millis(400);
        self.act(|acceptor, ctx, table| acceptor.drive_catch_up(ctx, table));
    }

    /// Returns the last question for recent writes: its receiver, its piece, and the number behind which it asks.
    pub fn asked_since(&self) -> (u8, KeyRange, Number) {
        self.asks_since().unwrap_or_else(|| panic!("{:?}", self.said.last()))
    }

    /// Returns the last message, if it was a question for recent writes.
    pub fn asks_since(&self) -> Option<(u8, KeyRange, Number)> {
        match self.said.last() {
            Some((to, CommitteeMessage::AskSince { piece, since, .. })) => Some((to[0].peer.0[0], *piece, *since)),
            _ => None,
        }
    }

    /// Drops all messages after the last question about this piece.
    pub fn back_to(&mut self, piece: KeyRange) {
        let is_about = |(_, message): &(_, CommitteeMessage)| match message {
            CommitteeMessage::AskSince { piece: asked, .. } => *asked == piece,
            CommitteeMessage::AskCompare(ask) => ask.piece == piece,
            _ => false,
        };
        let last = self.said.iter().rposition(is_about).unwrap_or_else(|| panic!("{piece:?} is not asked for"));
        self.said.truncate(last + 1);
    }

    /// Returns the last question for newer records, and its receiver.
    pub fn asked_compare(&self) -> (u8, AskCompare) {
        match self.said.last() {
            Some((to, CommitteeMessage::AskCompare(ask))) => (to[0].peer.0[0], (**ask).clone()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the attempt that the last question was part of.
    fn attempt(&self) -> u64 {
        let attempt = |(_, message): &(_, CommitteeMessage)| match message {
            CommitteeMessage::AskSince { attempt, .. } => Some(*attempt),
            CommitteeMessage::AskCompare(ask) => Some(ask.attempt),
            _ => None,
        };
        self.said.iter().rev().find_map(attempt).unwrap_or(0)
    }

    /// Delivers an answer to a question for recent writes.
    pub fn since(&mut self, from: u8, answer: Since) {
        let answer = Since { attempt: self.attempt(), ..answer };
        self.hear(from, CommitteeMessage::Since(answer));
    }

    /// Delivers an answer to a question for newer records.
    pub fn compared(&mut self, from: u8, answer: Compared) {
        let digest = answer.writes.iter().fold(0_u64, |sum, write| sum.wrapping_add(write.digest()));
        let looked = answer.looked.max(answer.writes.len() as u64);
        let answer = Compared { attempt: self.attempt(), digest, looked, ..answer };
        self.hear(from, CommitteeMessage::Compared(answer.into()));
    }

    /// Returns the answer to a question for recent writes.
    pub fn window(&mut self, ballot: TermBallot, since: Number) -> Since {
        self.said.clear();
        self.hear(4, CommitteeMessage::AskSince { ballot, piece: KeyRange::FULL, since, attempt: 0 });
        match &self.said[..] {
            [(_, CommitteeMessage::Since(answer))] => answer.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the number of a key's record, as the store would have it.
    pub fn on_disk(&self, key: &Key) -> Option<Number> {
        let (mut unsettled, mut record) = (Vec::<Write>::new(), None);
        for change in &self.stored {
            match change {
                Durable::Accepted(write) => unsettled.push(write.clone()),
                Durable::Void(write) => unsettled.retain(|known| known.record.number != write.record.number),
                Durable::Record(write) if write.key == *key => record = Some(write.record.number),
                Durable::Settle(term, first, last) => {
                    unsettled.sort_by_key(|write| write.record.number);
                    let of_it = |number: Number| number.term == *term && (*first..=*last).contains(&number.n);
                    for write in unsettled.iter().filter(|write| of_it(write.record.number) && write.key == *key) {
                        record = Some(write.record.number);
                    }
                    unsettled.retain(|write| !of_it(write.record.number));
                }
                _ => {}
            }
        }
        record
    }

    pub fn knows(&mut self, key: &Key) -> Option<Arc<Record>> {
        self.table.peek(key).flatten()
    }

    /// Begins a committee: prepare, and a base that is chosen.
    pub fn serve(&mut self, ballot: TermBallot, chain: &[(Term, u64)]) {
        let from = ballot.node.peer.0[0];
        self.hear(from, CommitteeMessage::Prepare { ballot, range: KeyRange::FULL });
        self.hear(from, CommitteeMessage::Base { ballot, base: base(chain, 0), chosen: Some(0) });
    }

    pub fn accept(&mut self, ballot: TermBallot, chosen: Option<u64>, writes: Vec<Write>) {
        self.hear(ballot.node.peer.0[0], CommitteeMessage::Accept { ballot, chosen, writes });
    }
}

pub fn ballot(slot: u64, peer: u8) -> TermBallot {
    TermBallot { epoch: Epoch(1), term: Term::new(LogSlot(slot), 0), node: node(peer) }
}

pub fn base(chain: &[(Term, u64)], reproposed: u64) -> Arc<Base> {
    Base { range: KeyRange::FULL, pieces: vec![(KeyRange::FULL, chain.to_vec())], reproposed }.into()
}

pub fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

pub fn write(ballot: TermBallot, n: u64, name: &str, value: &'static str) -> Write {
    let record = Record {
        number: Number { term: ballot.term, n },
        version: Version { generation: 1, timestamp: n },
        value: Some(value.into()),
        kind: group::op::Kind::Value,
        deadline: None,
        horizon: 0,
        done: Vec::new(),
        completions: Default::default(),
    };
    Write { key: key(name), record: Arc::new(record) }
}

/// One whole member, with a quick store, that keeps its messages.
pub struct Whole {
    pub group: Group,
    pub now: Now,
    pub said: Vec<(Vec<NodeId>, Message)>,
    pub outcomes: Vec<(u64, group::message::AttemptOutcome)>,
    pub stored: Vec<Durable>,
    /// Keys that the member wants from the store.
    pub loads: Vec<Key>,
    /// Reasons for which the member stopped serving.
    pub halted: Vec<String>,
}

impl Whole {
    /// Returns a newcomer in the situation of a bench.
    pub fn new(bench: &Bench) -> Whole {
        let group = Group::join(bench.config.clone(), bench.me, bench.state.clone(), bench.now, 1);
        let mut whole = Whole {
            group,
            now: bench.now,
            said: Vec::new(),
            outcomes: Vec::new(),
            stored: Vec::new(),
            loads: Vec::new(),
            halted: Vec::new(),
        };
        whole.pull();
        whole
    }

    /// Delivers a message of another member in the same epoch.
    pub fn hear(&mut self, from: u8, message: Message) {
        let from = Sender { node: node(from), epoch: self.group.state().epoch };
        self.group.on_message(from, message);
        self.pull();
    }

    /// Returns the ballot of the member's own primary, which it has.
    pub fn own(&self) -> TermBallot {
        self.group.primaries().next().expect("it is primary").ballot()
    }

    /// Lets member 2 promise and accept all that the primary needs to serve.
    pub fn serve(&mut self) {
        let ballot = self.own();
        self.hear(2, Message::Committee(promise(ballot, vec![])));
        self.hear(2, Message::Committee(CommitteeMessage::BaseAccepted { ballot }));
        assert!(self.group.primaries().any(|primary| primary.ballot() == ballot && primary.is_serving()));
    }

    /// Lets member 2 accept all writes, and confirm all rounds, that it was asked for.
    pub fn accept_all(&mut self) {
        for (_, message) in std::mem::take(&mut self.said) {
            match message {
                Message::Committee(CommitteeMessage::Accept { ballot, writes, .. }) => {
                    for n in writes.iter().map(|write| write.record.number.n) {
                        let numbers = vec![(n, n)];
                        self.hear(2, Message::Committee(CommitteeMessage::Accepted { ballot, numbers }));
                    }
                }
                Message::Committee(CommitteeMessage::Confirm { ballot, attempt, .. }) => {
                    self.hear(2, Message::Committee(CommitteeMessage::Confirmed { ballot, attempt }));
                }
                message => self.said.push((vec![], message)),
            }
        }
    }

    /// Returns the outcomes that member 2 was told of its attempt.
    pub fn told(&self, attempt: u64) -> Vec<group::message::AttemptOutcome> {
        let outcomes = |(_, message): &(_, Message)| match message {
            Message::Client(message) => message.outcomes.clone(),
            _ => vec![],
        };
        let told = self.said.iter().flat_map(outcomes).filter(|(of, _)| *of == attempt);
        told.map(|(_, outcome)| outcome).collect()
    }

    /// Lets time pass.
    pub fn wait(&mut self, millis: u64) {
        self.now.time = self.now.time + Duration::from_millis(millis);
        self.now.awake = self.now.time;
        self.group.set_now(self.now);
        self.group.tick();
        self.pull();
    }

    /// Executes the member's outputs.
    pub fn pull(&mut self) {
        while let Some(output) = self.group.poll_output() {
            match output {
                GroupOutput::Send(to, message, _) => self.said.push((to, message)),
                GroupOutput::Persist(token, changes) => {
                    self.stored.extend(changes);
                    self.group.on_persisted(token);
                }
                GroupOutput::Halted(why) => self.halted.push(why.into()),
                GroupOutput::Outcome(attempt, outcome) => self.outcomes.push((attempt, outcome)),
                GroupOutput::Load { key, .. } => self.loads.push(key),
                _ => {}
            }
        }
    }
}

/// Returns an answer of a complete source without newer records, to the end of the piece.
pub fn nothing_newer(ballot: TermBallot, piece: KeyRange) -> Compared {
    Compared {
        ballot,
        piece,
        after: None,
        attempt: 0,
        writes: vec![],
        looked: 0,
        digest: 0,
        up_to: None,
        mark: 0,
        complete: true,
        doubt: Epoch(0),
    }
}

/// Returns an operation of member 2 on a key, meant for that ballot, as its attempt `serial`.
pub fn operation(ballot: TermBallot, serial: u64, name: &str, op: Op) -> ClientOperation {
    ClientOperation {
        attempt: serial,
        ballot: Some(ballot),
        run: 1,
        serial,
        retired_below: serial,
        retired_except: vec![],
        id: OpId::Origin { node: node(2), run: 1, sequence: serial },
        horizon: 1,
        patience_ms: 3000,
        key: key(name),
        op,
        mode: ReadMode::Linearizable,
    }
}

/// Returns a promise of an acceptor that has accepted nothing, with the older leases that it granted and the rest of each in milliseconds.
pub fn promise(ballot: TermBallot, leases: Vec<(TermBallot, u64)>) -> CommitteeMessage {
    let (committees, unsettled, delegated) = Default::default();
    let doubt = Epoch(0);
    CommitteeMessage::Promise { ballot, part: 0, parts: 1, total: 0, committees, unsettled, leases, delegated, doubt }
}

/// Returns the operation as a message.
pub fn operate(operation: ClientOperation) -> Message {
    Message::Client(ClientMessage { operations: vec![operation], outcomes: vec![] })
}
