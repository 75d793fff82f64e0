//! A testbed of one group in virtual time, with a cost for each message: members at one site or at several, and clients beside them.
//!
//! Three costs take time: the wire, the processor for each message of an operation that a member sends or receives, and its bytes.
//! A member's processor handles one message after another. Heartbeats and the group's log cost nothing. Requests and answers of
//! clients are messages, too; the way between a client and its member takes no time, as in the papers' figures.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use group::config::Defects;
use group::message::{AttemptOutcome, Message, Sender};
use group::op::{Op, Read};
use group::outbox::GroupOutput;
use overlay::Key;
use overlay::time::Time;

use super::members::{config, founded, key_of, member_of, node, set, settings};
use super::testbed::{MachineEvent, Machines, Testbed};
use crate::rng::Rng;
use crate::sim::Latency;

/// Time by which all primaries have taken over.
const SETTLED: Duration = Duration::from_secs(4);

/// The member that a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedMember {
    /// The primary of the key.
    Primary,
    /// Each other member in turn.
    Other,
}

/// Setting of a run.
#[derive(Clone, Debug)]
pub struct GroupSetting {
    /// Members of the group.
    pub members: usize,
    /// Members that are primaries, each of an equal part of the range; at most as many as there are members.
    pub primaries: usize,
    /// Part whose keys are used; `None`: all.
    pub part: Option<usize>,
    /// Whether reads rest on leases instead of confirmations.
    pub leases: bool,
    /// Time of one way between members.
    pub latency: Latency,
    /// Processor time for each message that a member sends or receives.
    pub message_cost: Duration,
    /// Processor time for each KiB of a message, in addition.
    pub kib_cost: Duration,
    /// Member that is asked.
    pub asked: AskedMember,
    /// Operations under way.
    pub in_flight: usize,
    /// Share of reads, from 0 to 1.
    pub reads: f64,
    /// Number of keys.
    pub keys: u64,
    /// Size of a value, in bytes.
    pub value_bytes: usize,
    /// Time that is not measured.
    pub warm_up: Duration,
    /// Time that is measured, in virtual time.
    pub lasts: Duration,
    /// Seed of keys and kinds of operations.
    pub seed: u64,
}

impl GroupSetting {
    /// Returns a group whose members are all primaries, at one site, with one client that writes small values at the primary.
    pub fn of(members: usize, seed: u64) -> GroupSetting {
        GroupSetting {
            members,
            primaries: members,
            part: None,
            leases: false,
            latency: Latency::Uniform(Duration::from_micros(150), Duration::ZERO),
            message_cost: Duration::ZERO,
            kib_cost: Duration::ZERO,
            asked: AskedMember::Primary,
            in_flight: 1,
            reads: 0.0,
            keys: 10_000,
            value_bytes: 100,
            warm_up: Duration::from_millis(100),
            lasts: Duration::from_millis(500),
            seed,
        }
    }
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupMeasured {
    /// Times of operations, from the request at the asked member until its answer.
    pub waited: Vec<Duration>,
    /// Messages between members for clients' operations.
    pub messages: u64,
    /// Time that was measured, in seconds.
    pub seconds: f64,
}

impl GroupMeasured {
    /// Returns the operations a second.
    pub fn ops_per_s(&self) -> f64 {
        self.waited.len() as f64 / self.seconds.max(1e-9)
    }

    /// Returns the messages of an operation, on average.
    pub fn messages_per_op(&self) -> f64 {
        self.messages as f64 / self.waited.len().max(1) as f64
    }

    /// Returns the mean time of an operation, in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        crate::study::mean(&self.waited).as_secs_f64() * 1e3
    }
}

enum GroupEvent {
    /// A message is at its receiver, which handles it in its turn.
    Arrived {
        to: usize,
        from: Sender,
        message: Message,
    },
    /// A message's turn has come.
    Turn {
        to: usize,
        from: Sender,
        message: Message,
    },
    /// A client's request's turn has come at the asked member.
    Asked(usize),
    /// An answer has left its member.
    Answered(usize),
    Machine(MachineEvent),
}

impl From<MachineEvent> for GroupEvent {
    fn from(event: MachineEvent) -> GroupEvent {
        GroupEvent::Machine(event)
    }
}

/// A client's operation under way.
struct Asked {
    key: Key,
    op: Op,
    at: usize,
    primary: usize,
    since: Time,
}

struct GroupTestbed {
    setting: GroupSetting,
    machines: Machines<GroupEvent>,
    /// By machine: time at which its processor is free.
    free_at: Vec<Time>,
    rng: Rng,
    value: Bytes,
    turn: usize,
    asked: BTreeMap<usize, Asked>,
    /// By machine and serial: the client.
    attempts: BTreeMap<(usize, u64), usize>,
    measured: GroupMeasured,
}

/// Runs a setting.
pub fn run(setting: &GroupSetting) -> GroupMeasured {
    let mut testbed = GroupTestbed::new(setting.clone());
    testbed.run_until(Time(0) + SETTLED);
    (0..setting.in_flight).for_each(|client| testbed.ask(client));
    let begin = testbed.machines.agenda.now() + setting.warm_up;
    testbed.run_until(begin);
    testbed.measured = GroupMeasured { seconds: setting.lasts.as_secs_f64(), ..GroupMeasured::default() };
    testbed.run_until(begin + setting.lasts);
    testbed.measured
}

impl GroupTestbed {
    fn new(setting: GroupSetting) -> GroupTestbed {
        let state = founded(setting.members, setting.primaries, settings(false, setting.leases));
        let mut testbed = GroupTestbed {
            machines: Machines::new(&state, || config(false, Defects::NONE), setting.seed, Duration::ZERO),
            free_at: vec![Time(0); setting.members],
            rng: Rng::new(setting.seed, "group testbed"),
            value: vec![b'v'; setting.value_bytes].into(),
            turn: 0,
            asked: BTreeMap::new(),
            attempts: BTreeMap::new(),
            measured: GroupMeasured::default(),
            setting,
        };
        testbed.start();
        testbed
    }

    fn part_of(&self, key: &Key) -> usize {
        let parts = self.setting.primaries as u128;
        let size = (u128::MAX / parts).wrapping_add(1);
        key.point().0.checked_div(size).unwrap_or(0) as usize
    }

    fn key(&mut self) -> Key {
        loop {
            let key = key_of(self.rng.below(self.setting.keys));
            if self.setting.part.is_none_or(|part| self.part_of(&key) == part) {
                return key;
            }
        }
    }

    /// Occupies a machine's processor with messages of this size together. Returns the time at which that is done.
    fn occupy(&mut self, machine: usize, bytes: usize) -> Time {
        let work = self.setting.message_cost + self.setting.kib_cost.mul_f64(bytes as f64 / 1024.0);
        self.free_at[machine] = self.free_at[machine].max(self.machines.agenda.now()) + work;
        self.free_at[machine]
    }

    /// Has a client send its next operation.
    fn ask(&mut self, client: usize) {
        let key = self.key();
        let op = match self.rng.per_mille((self.setting.reads * 1e3) as u32) {
            true => Op::Read(Read::Value),
            false => set(self.value.clone()),
        };
        let primary = self.part_of(&key) % self.setting.members;
        let at = match self.setting.asked {
            AskedMember::Primary => primary,
            AskedMember::Other => {
                self.turn += 1;
                (primary + 1 + self.turn % (self.setting.members - 1)) % self.setting.members
            }
        };
        let bytes = if matches!(op, Op::Read(_)) { 0 } else { self.setting.value_bytes };
        let since = self.machines.agenda.now();
        let done = self.occupy(at, bytes);
        self.asked.insert(client, Asked { key, op, at, primary, since });
        self.machines.agenda.at(done, GroupEvent::Asked(client));
    }

    fn operate(&mut self, client: usize) {
        let Some(Asked { key, op, at, primary, .. }) = self.asked.get(&client) else { return };
        let (key, op, at, primary) = (key.clone(), op.clone(), *at, *primary);
        let ballot = self.machines.group(at).state().parts().find(|(range, _)| range.contains(key.point()));
        let operation = self.machines.asker(at).operation(ballot.map(|(_, ballot)| ballot), key, op);
        self.attempts.insert((at, operation.serial), client);
        self.act(at, |group| match at == primary {
            true => group.operate(node(at), operation),
            false => group.ask(node(primary), operation),
        });
    }

    fn on_outcome(&mut self, machine: usize, serial: u64, outcome: &AttemptOutcome) {
        let Some(client) = self.attempts.remove(&(machine, serial)) else { return };
        let Some(asked) = self.asked.get(&client) else { return };
        let is_done = matches!(outcome, AttemptOutcome::Done(_) | AttemptOutcome::Unchanged(_));
        assert!(is_done, "nothing goes wrong here: {outcome:?} of {:?}", asked.key);
        let key = asked.key.clone();
        let bytes = if matches!(asked.op, Op::Read(_)) { self.setting.value_bytes } else { 0 };
        self.machines.asker(machine).answered(&key, serial);
        let done = self.occupy(machine, bytes);
        self.machines.agenda.at(done, GroupEvent::Answered(client));
    }

    fn on_answered(&mut self, client: usize) {
        if let Some(asked) = self.asked.remove(&client) {
            self.measured.waited.push(self.machines.agenda.now().since(asked.since));
            self.ask(client);
        }
    }

    /// Returns the bytes of values in a message for a client's operation; `None` for other messages, which cost nothing.
    fn bytes(&self, message: &Message) -> Option<usize> {
        use group::message::CommitteeMessage;
        match message {
            Message::Committee(CommitteeMessage::Accept { writes, .. }) => {
                Some(writes.len() * self.setting.value_bytes)
            }
            Message::Committee(_) => Some(0),
            Message::Client(client) => Some(client.operations.len() * self.setting.value_bytes),
            _ => None,
        }
    }
}

impl Testbed for GroupTestbed {
    type Event = GroupEvent;

    fn machines(&mut self) -> &mut Machines<GroupEvent> {
        &mut self.machines
    }

    fn on_event(&mut self, event: GroupEvent) {
        match event {
            GroupEvent::Arrived { to, from, message } => {
                let now = self.machines.agenda.now();
                let done = self.bytes(&message).map_or(now, |bytes| self.occupy(to, bytes));
                self.machines.agenda.at(done, GroupEvent::Turn { to, from, message });
            }
            GroupEvent::Turn { to, from, message } => self.act(to, |group| group.on_message(from, message)),
            GroupEvent::Asked(client) => self.operate(client),
            GroupEvent::Answered(client) => self.on_answered(client),
            GroupEvent::Machine(event) => self.on_machine_event(event),
        }
    }

    fn on_output(&mut self, machine: usize, output: GroupOutput) {
        match output {
            GroupOutput::Send(to, message, epoch) => {
                let from = Sender { node: node(machine), epoch };
                for to in to.into_iter().map(member_of) {
                    let bytes = self.bytes(&message);
                    let now = self.machines.agenda.now();
                    let sent = bytes.map_or(now, |bytes| self.occupy(machine, bytes));
                    self.measured.messages += u64::from(bytes.is_some());
                    let at = sent + self.setting.latency.between(machine, to).0;
                    self.machines.agenda.at(at, GroupEvent::Arrived { to, from, message: message.clone() });
                }
            }
            GroupOutput::Outcome(serial, outcome) => self.on_outcome(machine, serial, &outcome),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without costs, a write takes one round trip at its primary, two through another member, and a leased read no time.
    #[test]
    fn operations_take_their_message_delays() {
        let base = GroupSetting::of(5, 1);
        let ms = |setting: &GroupSetting| run(setting).mean_ms();
        assert!((ms(&base) - 0.3).abs() < 0.01, "{}", ms(&base));
        let other = GroupSetting { asked: AskedMember::Other, ..base.clone() };
        assert!((ms(&other) - 0.6).abs() < 0.01, "{}", ms(&other));
        let confirmed = GroupSetting { reads: 1.0, ..base.clone() };
        assert!((ms(&confirmed) - 0.3).abs() < 0.01, "{}", ms(&confirmed));
        // A read that takes no time would repeat at one moment for ever.
        let leased = GroupSetting { leases: true, reads: 1.0, message_cost: Duration::from_micros(10), ..base };
        assert!((ms(&leased) - 0.02).abs() < 0.001, "{}", ms(&leased));
        assert!(run(&leased) == run(&leased), "one seed has one result");
    }
}
