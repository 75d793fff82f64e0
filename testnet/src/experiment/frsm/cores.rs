//! Three machines with several cores, a disk and a wire each, that run one real group in virtual time.
//!
//! Only four costs take time: an operation at its primary, a write at each member, a sync, and the wire. In a fine group any core
//! takes the next operation. In a coarse one each sub-range has its core, as a log has one order: operations of the sub-range wait
//! for each other, also behind a slow one. The paper's coarse store waits for more ([`WriteOrder::Batches`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use group::config::Defects;
use group::message::Sender;
use group::message::{CommitteeMessage, Message};
use group::op::{Op, Read};
use group::outbox::GroupOutput;
use load::{Distribution, Keys};
use overlay::Key;
use overlay::time::Time;

use crate::experiment::members::{config, founded, key_of, member_of, node, set, settings};
use crate::experiment::testbed::{MachineEvent, Machines, Testbed};

/// Members of the group.
const MACHINES: usize = 3;
/// The most sub-ranges, as many as the paper has shards.
pub const PARTS: usize = 12;
/// Disks of a machine, between which the paper's coarse store divides its logs.
const DISKS: u32 = 2;
/// Time of an operation at its primary, and of a write at every other member.
const EXECUTE: Duration = Duration::from_micros(50);
const ACCEPT: Duration = Duration::from_micros(25);
/// Factor of a slow operation's time.
const SLOW: u32 = 20;
/// Time of one way on the wire.
const WIRE: Duration = Duration::from_micros(50);
/// Time of a sync of the disk, for all waiting writes.
const SYNC: Duration = Duration::from_micros(100);
/// Time by which all primaries have taken over.
const SETTLED: Duration = Duration::from_secs(3);
/// Time that is not measured.
const WARM_UP: Duration = Duration::from_millis(50);

/// The order of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrder {
    /// Each key is independent.
    Fine,
    /// Operations of a sub-range keep their order, and are under way together.
    Ordered,
    /// Operations of a sub-range are committed in batches: the next batch begins once the last one is durable at a majority and
    /// answered.
    Batches {
        /// Most operations of a batch.
        most: usize,
        /// Whether each sub-range has a log of its own, whose batches are synced by themselves.
        own_logs: bool,
    },
}

/// Setting of a run.
#[derive(Clone, Copy, Debug)]
pub struct CoresSetting {
    /// Order of operations.
    pub order: WriteOrder,
    /// Sub-ranges, 1 to [`PARTS`].
    pub parts: usize,
    /// Cores of each machine, 1 to [`PARTS`].
    pub cores: usize,
    /// Distribution of keys.
    pub keys: Distribution,
    /// Number of keys.
    pub key_count: u64,
    /// Clients, each with one operation under way.
    pub clients: usize,
    /// Size of a value, in bytes.
    pub value_bytes: usize,
    /// Share of reads, from 0 to 1.
    pub reads: f64,
    /// Share of slow operations, from 0 to 1.
    pub slow: f64,
    /// Duration of the run, in virtual time.
    pub lasts: Duration,
    /// Seed of keys and kinds of operations.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoresMeasured {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Median waiting time.
    pub p50: Duration,
    /// Upper limit of the waiting time for 99 of 100 operations.
    pub p99: Duration,
}

enum CoresEvent {
    /// A client sends an operation.
    Client(usize),
    /// The primary's core has executed the client's operation.
    Executed(usize),
    /// The primary's core has executed a batch of a sub-range: these clients' operations.
    Batch(Vec<usize>),
    /// The work of a message is done.
    Message { to: usize, from: Sender, message: Message },
    /// A message has arrived.
    Arrived { to: usize, from: Sender, message: Message },
    /// A disk or a timer of a machine.
    Machine(MachineEvent),
}

impl From<MachineEvent> for CoresEvent {
    fn from(event: MachineEvent) -> CoresEvent {
        CoresEvent::Machine(event)
    }
}

/// An operation that a client waits for.
struct PendingOperation {
    key: Key,
    op: Op,
    slow: bool,
    at: Time,
    /// Serial of the operation at its machine.
    serial: u64,
    machine: usize,
}

struct CoresTestbed {
    setting: CoresSetting,
    machines: Machines<CoresEvent>,
    /// By machine: times at which the cores are free.
    cores: Vec<Vec<Time>>,
    keys: Keys,
    value: Bytes,
    asked: BTreeMap<usize, PendingOperation>,
    /// By machine and serial: the client.
    attempts: HashMap<(usize, u64), usize>,
    waited: Vec<Duration>,
    /// By sub-range: clients that wait for the next batch, and the number of unanswered operations of this one.
    batches: Vec<(VecDeque<usize>, usize)>,
}

/// Runs a setting.
pub fn run(setting: CoresSetting) -> CoresMeasured {
    let mut testbed = CoresTestbed::new(setting);
    testbed.run_until(Time(0) + SETTLED);
    for client in 0..setting.clients {
        testbed.machines.agenda.after(Duration::ZERO, CoresEvent::Client(client));
    }
    let begin = testbed.machines.agenda.now() + WARM_UP;
    testbed.run_until(begin);
    testbed.waited.clear();
    testbed.run_until(begin + setting.lasts);
    let mut waited = testbed.waited;
    waited.sort_unstable();
    let quantile = |of_100: usize| waited.get(waited.len() * of_100 / 100).copied().unwrap_or_default();
    CoresMeasured { ops_per_s: waited.len() as f64 / setting.lasts.as_secs_f64(), p50: quantile(50), p99: quantile(99) }
}

impl CoresTestbed {
    fn new(setting: CoresSetting) -> CoresTestbed {
        let coarse = setting.order != WriteOrder::Fine;
        let state = founded(MACHINES, setting.parts, settings(coarse, false));
        let mut testbed = CoresTestbed {
            setting,
            machines: Machines::new(&state, || config(true, Defects::NONE), 1, SYNC),
            cores: vec![vec![Time(0); setting.cores]; MACHINES],
            keys: Keys::new(setting.keys, setting.key_count, setting.seed, 0, 1).expect("the distribution makes sense"),
            value: vec![b'v'; setting.value_bytes].into(),
            asked: BTreeMap::new(),
            attempts: HashMap::new(),
            waited: Vec::new(),
            batches: vec![(VecDeque::new(), 0); setting.parts],
        };
        if let WriteOrder::Batches { own_logs: true, .. } = setting.order {
            testbed.machines.sync_each(SYNC / DISKS);
        }
        testbed.start();
        testbed
    }

    /// Returns the time at which a core of this machine has done this work for the sub-range.
    fn occupy(&mut self, machine: usize, part: usize, work: Duration) -> Time {
        let cores = &mut self.cores[machine];
        let core = match self.setting.order {
            WriteOrder::Ordered | WriteOrder::Batches { .. } => place(machine, part) % cores.len(),
            WriteOrder::Fine => (0..cores.len()).min_by_key(|core| cores[*core]).expect("there is a core"),
        };
        cores[core] = cores[core].max(self.machines.agenda.now()) + work;
        cores[core]
    }

    /// Returns the time at which a machine has done the work of a message.
    fn worked_off(&mut self, machine: usize, message: &Message) -> Time {
        let Message::Committee(CommitteeMessage::Accept { writes, .. }) = message else {
            return self.machines.agenda.now();
        };
        let parts: Vec<usize> = writes.iter().map(|write| self.part_of(&write.key)).collect();
        let done = parts.into_iter().map(|part| self.occupy(machine, part, ACCEPT));
        done.max().unwrap_or(self.machines.agenda.now())
    }

    /// Sends a client's operation to the primary of its key, where a core begins it.
    fn ask(&mut self, client: usize) {
        let number = self.keys.next_key().expect("keys without an end");
        let key = key_of(number);
        let (reads, slow) = (self.keys.chance(self.setting.reads), self.keys.chance(self.setting.slow));
        let op = match reads {
            true => Op::Read(Read::Value),
            false => set(self.value.clone()),
        };
        let part = self.part_of(&key);
        let machine = part % MACHINES;
        let asked = PendingOperation { key, op, slow, at: self.machines.agenda.now(), serial: 0, machine };
        self.asked.insert(client, asked);
        if let WriteOrder::Batches { most, .. } = self.setting.order {
            self.batches[part].0.push_back(client);
            return self.next_batch(part, most);
        }
        let done = self.occupy(machine, part, work(slow)) + WIRE;
        self.machines.agenda.at(done, CoresEvent::Executed(client));
    }

    /// Begins the next batch of a sub-range, once the last one is answered.
    fn next_batch(&mut self, part: usize, most: usize) {
        let (waiting, open) = &mut self.batches[part];
        if *open > 0 || waiting.is_empty() {
            return;
        }
        let clients: Vec<usize> = waiting.drain(..most.min(waiting.len())).collect();
        *open = clients.len();
        let works: Vec<Duration> = clients.iter().map(|client| work(self.asked[client].slow)).collect();
        let done = self.occupy(part % MACHINES, part, works.into_iter().sum()) + WIRE;
        self.machines.agenda.at(done, CoresEvent::Batch(clients));
    }

    /// Hands the operations of these clients, all at one machine, to its member together.
    fn operate(&mut self, clients: &[usize]) {
        let mut machine = 0;
        let mut messages = Vec::new();
        for client in clients {
            let asked = self.asked.get_mut(client).expect("it waits");
            machine = asked.machine;
            let ballot = self.machines.group(machine).primary_of(asked.key.point());
            let (serial, from, message) = self.machines.asker(machine).ask(ballot, asked.key.clone(), asked.op.clone());
            asked.serial = serial;
            self.attempts.insert((machine, serial), *client);
            messages.push((from, message));
        }
        self.act(machine, |group| messages.into_iter().for_each(|(from, message)| group.on_message(from, message)));
    }

    fn answered(&mut self, machine: usize, serial: u64, outcome: &group::message::AttemptOutcome) {
        use group::message::AttemptOutcome;
        let Some(client) = self.attempts.remove(&(machine, serial)) else { return };
        let Some(asked) = self.asked.remove(&client) else { return };
        assert!(
            matches!(outcome, AttemptOutcome::Done(_) | AttemptOutcome::Unchanged(_)),
            "nothing goes wrong here: {outcome:?} of {:?}, slow: {}",
            asked.key,
            asked.slow
        );
        self.machines.asker(machine).answered(&asked.key, serial);
        self.waited.push(self.machines.agenda.now().since(asked.at) + WIRE);
        self.machines.agenda.after(WIRE * 2, CoresEvent::Client(client));
        if let WriteOrder::Batches { most, .. } = self.setting.order {
            let part = self.part_of(&asked.key);
            self.batches[part].1 -= 1;
            self.next_batch(part, most);
        }
    }

    fn part_of(&self, key: &Key) -> usize {
        let size = (u128::MAX / self.setting.parts as u128).wrapping_add(1);
        key.point().0.checked_div(size).unwrap_or(0) as usize
    }
}

impl Testbed for CoresTestbed {
    type Event = CoresEvent;

    fn machines(&mut self) -> &mut Machines<CoresEvent> {
        &mut self.machines
    }

    fn on_event(&mut self, event: CoresEvent) {
        match event {
            CoresEvent::Client(client) => self.ask(client),
            CoresEvent::Executed(client) => self.operate(&[client]),
            CoresEvent::Batch(clients) => self.operate(&clients),
            CoresEvent::Arrived { to, from, message } => {
                let done = self.worked_off(to, &message);
                self.machines.agenda.at(done, CoresEvent::Message { to, from, message });
            }
            CoresEvent::Message { to, from, message } => self.act(to, |group| group.on_message(from, message)),
            CoresEvent::Machine(event) => self.on_machine_event(event),
        }
    }

    fn on_output(&mut self, machine: usize, output: GroupOutput) {
        match output {
            GroupOutput::Send(to, message, epoch) => {
                let from = Sender { node: node(machine), epoch };
                for to in to {
                    let (to, message) = (member_of(to), message.clone());
                    self.machines.agenda.after(WIRE, CoresEvent::Arrived { to, from, message });
                }
            }
            GroupOutput::Outcome(serial, outcome) => self.answered(machine, serial, &outcome),
            _ => {}
        }
    }
}

/// Returns the place of a sub-range on a machine: first those that the machine is the primary of, which take most of the time.
fn place(machine: usize, part: usize) -> usize {
    part / MACHINES + PARTS / MACHINES * ((part + MACHINES - machine) % MACHINES)
}

/// Returns the time of an operation at its primary.
fn work(slow: bool) -> Duration {
    if slow { EXECUTE * SLOW } else { EXECUTE }
}
