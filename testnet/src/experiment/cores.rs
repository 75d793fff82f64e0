//! Three machines with several cores, a disk and a wire each, that run one real group in virtual time.
//!
//! Only four costs take time: an operation at its primary, a write at each member, a sync, and the wire. In a fine group any core
//! takes the next operation. In a coarse one each sub-range has its core, as a log has one order: operations of the sub-range wait
//! for each other, also behind a slow one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use group::config::Defects;
use group::message::{CommitteeMessage, Message};
use group::op::{Op, Read};
use group::outbox::GroupOutput;
use group::{Group, message::Sender};
use load::{Distribution, Keys};
use overlay::Key;
use overlay::time::Time;

use super::agenda::Agenda;
use super::members::{Asker, at, config, founded, member_of, node, set, settings};

/// Members of the group.
const MACHINES: usize = 3;
/// Sub-ranges, as many as the paper has shards.
pub const PARTS: usize = 12;
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

/// Setting of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Whether writes of a sub-range keep their order.
    pub coarse: bool,
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
pub struct Measured {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Median waiting time.
    pub p50: Duration,
    /// Upper limit of the waiting time for 99 of 100 operations.
    pub p99: Duration,
}

enum Event {
    /// A client sends an operation.
    Client(usize),
    /// The primary's core has executed the client's operation.
    Executed(usize),
    /// The work of a message is done.
    Message { to: usize, from: Sender, message: Message },
    /// A message has arrived.
    Arrived { to: usize, from: Sender, message: Message },
    /// A disk has synced everything up to this token.
    Synced { machine: usize, token: u64 },
    /// A timer.
    Tick(usize),
}

struct Machine {
    group: Group,
    /// Times at which the cores are free.
    cores: Vec<Time>,
    /// Handed to the disk, behind the batch that it syncs now.
    unsynced: Option<u64>,
    syncing: bool,
    ticks_at: Time,
    asker: Asker,
}

/// An operation that a client waits for.
struct Asked {
    key: Key,
    op: Op,
    slow: bool,
    at: Time,
    /// Serial of the operation at its machine.
    serial: u64,
    machine: usize,
}

struct World {
    setting: Setting,
    agenda: Agenda<Event>,
    machines: Vec<Machine>,
    keys: Keys,
    value: Bytes,
    asked: BTreeMap<usize, Asked>,
    /// By machine and serial: the client.
    attempts: HashMap<(usize, u64), usize>,
    waited: Vec<Duration>,
}

/// Runs a setting.
pub fn run(setting: Setting) -> Measured {
    let mut world = World::new(setting);
    world.run_until(Time(0) + SETTLED);
    for client in 0..setting.clients {
        world.agenda.after(Duration::ZERO, Event::Client(client));
    }
    let begin = world.agenda.now() + WARM_UP;
    world.run_until(begin);
    world.waited.clear();
    world.run_until(begin + setting.lasts);
    let mut waited = world.waited;
    waited.sort_unstable();
    let quantile = |of_100: usize| waited.get(waited.len() * of_100 / 100).copied().unwrap_or_default();
    Measured { ops_per_s: waited.len() as f64 / setting.lasts.as_secs_f64(), p50: quantile(50), p99: quantile(99) }
}

impl World {
    fn new(setting: Setting) -> World {
        let state = founded(MACHINES, PARTS, settings(setting.coarse, false));
        let machine = |index| Machine {
            group: Group::join(config(true, Defects::NONE), node(index), state.clone(), at(Time(0)), index as u64 + 1),
            cores: vec![Time(0); setting.cores],
            unsynced: None,
            syncing: false,
            ticks_at: Time::NEVER,
            asker: Asker::new(index),
        };
        let mut world = World {
            setting,
            agenda: Agenda::new(),
            machines: (0..MACHINES).map(machine).collect(),
            keys: Keys::new(setting.keys, setting.key_count, setting.seed, 0, 1).expect("the distribution makes sense"),
            value: vec![b'v'; setting.value_bytes].into(),
            asked: BTreeMap::new(),
            attempts: HashMap::new(),
            waited: Vec::new(),
        };
        (0..MACHINES).for_each(|machine| world.obey(machine));
        world
    }

    fn run_until(&mut self, end: Time) {
        while let Some(event) = self.agenda.next_before(end) {
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Client(client) => self.ask(client),
            Event::Executed(client) => self.operate(client),
            Event::Arrived { to, from, message } => {
                let done = self.worked_off(to, &message);
                self.agenda.at(done, Event::Message { to, from, message });
            }
            Event::Message { to, from, message } => self.act(to, |group| group.on_message(from, message)),
            Event::Synced { machine, token } => {
                self.machines[machine].syncing = false;
                self.act(machine, |group| group.on_persisted(token));
                self.sync(machine);
            }
            Event::Tick(machine) => {
                if self.machines[machine].ticks_at <= self.agenda.now() {
                    self.machines[machine].ticks_at = Time::NEVER;
                    self.act(machine, Group::tick);
                }
            }
        }
    }

    /// Returns the time at which a core of this machine has done this work for the sub-range.
    fn occupy(&mut self, machine: usize, part: usize, work: Duration) -> Time {
        let cores = &mut self.machines[machine].cores;
        let core = match self.setting.coarse {
            true => place(machine, part) % cores.len(),
            false => (0..cores.len()).min_by_key(|core| cores[*core]).expect("there is a core"),
        };
        cores[core] = cores[core].max(self.agenda.now()) + work;
        cores[core]
    }

    /// Returns the time at which a machine has done the work of a message.
    fn worked_off(&mut self, machine: usize, message: &Message) -> Time {
        let Message::Committee(CommitteeMessage::Accept { writes, .. }) = message else { return self.agenda.now() };
        let parts: Vec<usize> = writes.iter().map(|write| part_of(&write.key)).collect();
        let done = parts.into_iter().map(|part| self.occupy(machine, part, ACCEPT));
        done.max().unwrap_or(self.agenda.now())
    }

    /// Sends a client's operation to the primary of its key, where a core begins it.
    fn ask(&mut self, client: usize) {
        let number = self.keys.next_key().expect("keys without an end");
        let key = Key::new(format!("key:{number}").as_bytes()).expect("short");
        let (reads, slow) = (self.keys.chance(self.setting.reads), self.keys.chance(self.setting.slow));
        let op = match reads {
            true => Op::Read(Read::Value),
            false => set(self.value.clone()),
        };
        let part = part_of(&key);
        let machine = part % MACHINES;
        let work = if slow { EXECUTE * SLOW } else { EXECUTE };
        let asked = Asked { key, op, slow, at: self.agenda.now(), serial: 0, machine };
        self.asked.insert(client, asked);
        let done = self.occupy(machine, part, work) + WIRE;
        self.agenda.at(done, Event::Executed(client));
    }

    fn operate(&mut self, client: usize) {
        let asked = self.asked.get_mut(&client).expect("it waits");
        let machine = &mut self.machines[asked.machine];
        let ballot = machine.group.primary_of(asked.key.point());
        let (serial, from, message) = machine.asker.ask(ballot, asked.key.clone(), asked.op.clone());
        asked.serial = serial;
        let machine = asked.machine;
        self.attempts.insert((machine, serial), client);
        self.act(machine, |group| group.on_message(from, message));
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
        self.machines[machine].asker.answered(&asked.key, serial);
        self.waited.push(self.agenda.now().since(asked.at) + WIRE);
        self.agenda.after(WIRE * 2, Event::Client(client));
    }

    fn act(&mut self, machine: usize, act: impl FnOnce(&mut Group)) {
        let group = &mut self.machines[machine].group;
        group.set_now(at(self.agenda.now()));
        act(group);
        self.obey(machine);
    }

    fn obey(&mut self, machine: usize) {
        while let Some(output) = self.machines[machine].group.poll_output() {
            match output {
                GroupOutput::Send(to, message, epoch) => {
                    let from = Sender { node: node(machine), epoch };
                    for to in to {
                        let (to, message) = (member_of(to), message.clone());
                        self.agenda.after(WIRE, Event::Arrived { to, from, message });
                    }
                }
                GroupOutput::Persist(token, _) => {
                    self.machines[machine].unsynced = Some(token);
                    self.sync(machine);
                }
                GroupOutput::Outcome(serial, outcome) => self.answered(machine, serial, &outcome),
                GroupOutput::Over(why) | GroupOutput::Lost(why) => panic!("machine {machine}: {why}"),
                _ => {}
            }
        }
        let next = self.machines[machine].group.next_timeout();
        if next < self.machines[machine].ticks_at {
            self.machines[machine].ticks_at = next;
            self.agenda.at(next, Event::Tick(machine));
        }
    }

    /// Syncs all that waits, once the disk is free.
    fn sync(&mut self, machine: usize) {
        let disk = &mut self.machines[machine];
        if !disk.syncing
            && let Some(token) = disk.unsynced.take()
        {
            disk.syncing = true;
            self.agenda.after(SYNC, Event::Synced { machine, token });
        }
    }
}

/// Returns the place of a sub-range on a machine: first those that the machine is the primary of, which take most of the time.
fn place(machine: usize, part: usize) -> usize {
    part / MACHINES + PARTS / MACHINES * ((part + MACHINES - machine) % MACHINES)
}

fn part_of(key: &Key) -> usize {
    (key.point().0 / (u128::MAX / PARTS as u128 + 1)) as usize
}
