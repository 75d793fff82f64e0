//! The members of an experiment's group: their ids, the settings of the group, and their clients.

use std::collections::{BTreeSet, HashMap};

use group::ballot::{LogSlot, Term, TermBallot};
use group::config::{Defects, GroupConfig, Timing};
use group::control::agreed::AgreedPolicies;
use group::control::state::{Assignment, GroupState, Member, Settings};
use group::message::{ClientMessage, ClientOperation, Message, Sender};
use group::op::{Condition, Expiry, Op, ReadMode};
use group::record::OpId;
use overlay::time::{Now, Time, WallMillis};
use overlay::{Epoch, GroupId, Incarnation, Key, NodeId, PeerKey, Point, RingId};

/// Returns a member's node id, by its number from 0.
pub fn node(member: usize) -> NodeId {
    NodeId { peer: PeerKey([member as u8 + 1; 32]), incarnation: Incarnation(1) }
}

/// Returns the number of a member.
pub fn member_of(node: NodeId) -> usize {
    usize::from(node.peer.0[0]) - 1
}

/// Returns the readings of correct clocks.
pub fn at(now: Time) -> Now {
    Now { time: now, awake: now, wall: WallMillis(now.0 / 1_000_000 + 1) }
}

/// Returns the settings with which a group of an experiment is founded.
pub fn settings(coarse: bool, leases: bool) -> Settings {
    Settings {
        coarse,
        leases,
        lease_ms: 1000,
        drift_per_mille: 10,
        value_bytes_max: 1 << 16,
        policies: AgreedPolicies { members_min: 5, members_max: 12, ..AgreedPolicies::default() },
        horizon_ms: 600_000,
    }
}

/// Returns a group of `members` members at one site, whose range is divided evenly into `parts` parts. The members take turns as
/// primaries.
pub fn founded(members: usize, parts: usize, settings: Settings) -> GroupState {
    let member = |member| Member {
        node: node(member),
        addresses: Vec::new(),
        name: None,
        cluster: String::from("hall"),
        joined: WallMillis(0),
        since: LogSlot(0),
    };
    let mut state = GroupState::founded(RingId(1), GroupId(1), member(0), settings);
    state.members = (0..members).map(member).collect();
    let part = |index| Assignment {
        start: Point((u128::MAX / parts as u128).wrapping_add(1).wrapping_mul(index as u128)),
        node: node(index % members),
        term: Term::new(LogSlot(1), index),
    };
    state.division = (0..parts).map(part).collect();
    state
}

/// Returns the settings that each member chooses for itself: the division stays as it is.
pub fn config(durable: bool, defects: Defects) -> GroupConfig {
    GroupConfig {
        name: None,
        timing: Timing::default(),
        durable,
        memory_bytes_max: 1 << 30,
        window_bytes_max: 1 << 24,
        in_flight_max: 4096,
        waiting_max: 1 << 16,
        transfer_bytes_per_s: 1 << 30,
        message_bytes_max: 1 << 18,
        divide: |_| None,
        fatal_contradictions: true,
        defects,
    }
}

/// Returns the key of this number.
pub fn key_of(number: u64) -> Key {
    Key::new(format!("key:{number}").as_bytes()).expect("short")
}

/// Returns an operation that sets a key to these bytes, in any state.
pub fn set(value: bytes::Bytes) -> Op {
    Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false }
}

/// Clients' operations at one member, for keys that it is the primary of.
pub struct Asker {
    node: NodeId,
    serial: u64,
    /// Serials under way, by key.
    of_key: HashMap<Key, BTreeSet<u64>>,
}

impl Asker {
    /// Returns the operations at this member.
    pub fn new(member: usize) -> Asker {
        Asker { node: node(member), serial: 0, of_key: HashMap::new() }
    }

    /// Returns a client's operation under this ballot: its serial, and the message to the member.
    pub fn ask(&mut self, ballot: Option<TermBallot>, key: Key, op: Op) -> (u64, Sender, Message) {
        let operation = self.operation(ballot, key, op);
        let serial = operation.serial;
        let message = Message::Client(ClientMessage { operations: vec![operation], outcomes: Vec::new() });
        (serial, Sender { node: self.node, epoch: Epoch(1) }, message)
    }

    /// Returns a client's operation under this ballot, which the member executes or passes to its primary.
    pub fn operation(&mut self, ballot: Option<TermBallot>, key: Key, op: Op) -> ClientOperation {
        self.serial += 1;
        let serial = self.serial;
        let of_key = self.of_key.entry(key.clone()).or_default();
        let retired_except = of_key.iter().copied().collect();
        of_key.insert(serial);
        ClientOperation {
            attempt: serial,
            ballot,
            run: 1,
            serial,
            retired_below: serial,
            retired_except,
            id: OpId::Origin { node: self.node, run: 1, sequence: serial },
            horizon: 1,
            patience_ms: 10_000,
            key,
            op,
            mode: ReadMode::Linearizable,
        }
    }

    /// Notes that an operation was answered.
    pub fn answered(&mut self, key: &Key, serial: u64) {
        if let Some(of_key) = self.of_key.get_mut(key) {
            of_key.remove(&serial);
            if of_key.is_empty() {
                self.of_key.remove(key);
            }
        }
    }
}
