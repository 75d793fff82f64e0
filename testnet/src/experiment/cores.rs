//! Three machines with several cores, a disk and a wire each, that run one real group in virtual time.
//!
//! What takes time is told here, and nothing else does: an operation at its primary, a write at each member, a sync, the
//! wire. In a fine group any core takes what comes next. In a coarse one each sub-range has its core, as a log has its
//! place in the order: there the sub-range's operations stand in line, also behind a slow one.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use group::ballot::{Slot, Term};
use group::config::{Defects, GroupConfig, Timing};
use group::message::{ClientMessage, CommitteeMessage, Message, Operation};
use group::op::{Condition, Expiry, Op, Read, ReadMode};
use group::outbox::GroupOutput;
use group::record::OpId;
use group::state::{Assignment, GroupState, Member, Settings};
use group::time::{Now, Time, WallMillis};
use group::{Group, message::Sender};
use load::{Distribution, Keys};
use overlay::{Epoch, GroupId, Incarnation, Key, NodeId, PeerKey, Point, RingId};

/// Members of the group.
const MACHINES: usize = 3;
/// Sub-ranges, as many as the paper has shards.
pub const PARTS: usize = 12;
/// What an operation takes at its primary, and a write at every other member.
const EXECUTE: Duration = Duration::from_micros(50);
const ACCEPT: Duration = Duration::from_micros(25);
/// A slow operation takes so many times as long.
const SLOW: u32 = 20;
/// One way on the wire.
const WIRE: Duration = Duration::from_micros(50);
/// A sync of the disk, for all that waits.
const SYNC: Duration = Duration::from_micros(100);
/// Everybody has taken over by then.
const SETTLED: Duration = Duration::from_secs(3);
/// Not measured.
const WARM_UP: Duration = Duration::from_millis(50);

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Writes of a sub-range in order.
    pub coarse: bool,
    /// Cores of each machine, 1 to [`PARTS`].
    pub cores: usize,
    /// Which keys.
    pub keys: Distribution,
    /// So many keys.
    pub key_count: u64,
    /// Clients, each with one operation under way.
    pub clients: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// The share of reads.
    pub reads: f64,
    /// The share of slow operations.
    pub slow: f64,
    /// So long, in virtual time.
    pub lasts: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Half of them waited so long or less.
    pub p50: Duration,
    /// 99 of 100 did.
    pub p99: Duration,
}

enum Event {
    /// A client asks for something.
    Client(usize),
    /// Its operation is executed.
    Executed(usize),
    /// A message is there, and what it brings is worked off.
    Message { to: usize, from: Sender, message: Message },
    /// A message came.
    Arrived { to: usize, from: Sender, message: Message },
    /// A disk has synced everything up to this token.
    Synced { machine: usize, token: u64 },
    /// A timer.
    Tick(usize),
}

struct Queued(Time, u64, Event);

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Queued) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1)) // The earliest first.
    }
}

struct Machine {
    group: Group,
    /// When each core is free.
    cores: Vec<Time>,
    /// Handed to the disk, behind what it syncs now.
    unsynced: Option<u64>,
    syncing: bool,
    ticks_at: Time,
}

/// What a client waits for.
struct Asked {
    key: Key,
    op: Op,
    slow: bool,
    at: Time,
    /// Its place among the operations of its machine.
    serial: u64,
    machine: usize,
}

struct World {
    setting: Setting,
    now: Time,
    queue: BinaryHeap<Queued>,
    queued: u64,
    machines: Vec<Machine>,
    keys: Keys,
    value: Bytes,
    asked: BTreeMap<usize, Asked>,
    /// By machine and serial: whose it is.
    attempts: HashMap<(usize, u64), usize>,
    serials: [u64; MACHINES],
    /// Serials under way for a key.
    of_key: HashMap<Key, BTreeSet<u64>>,
    waited: Vec<Duration>,
}

/// Runs it.
pub fn run(setting: Setting) -> Measured {
    let mut world = World::new(setting);
    world.run_until(Time(0) + SETTLED);
    for client in 0..setting.clients {
        world.queue(Duration::ZERO, Event::Client(client));
    }
    let begin = world.now + WARM_UP;
    world.run_until(begin);
    world.waited.clear();
    world.run_until(begin + setting.lasts);
    let mut waited = world.waited;
    waited.sort_unstable();
    let quantile = |of_100: usize| waited.get(waited.len() * of_100 / 100).copied().unwrap_or_default();
    Measured { ops_per_s: waited.len() as f64 / setting.lasts.as_secs_f64(), p50: quantile(50), p99: quantile(99) }
}

fn node(machine: usize) -> NodeId {
    NodeId { peer: PeerKey([machine as u8 + 1; 32]), incarnation: Incarnation(1) }
}

fn machine_of(node: NodeId) -> usize {
    usize::from(node.peer.0[0]) - 1
}

/// A group in which every machine is primary of an equal number of sub-ranges.
fn founded(coarse: bool) -> GroupState {
    let settings = Settings {
        coarse,
        leases: false,
        lease_ms: 1000,
        drift_per_mille: 10,
        value_bytes_max: 1 << 16,
        members_min: 5,
        members_max: 12,
        horizon_ms: 600_000,
    };
    let member = |machine| Member {
        node: node(machine),
        addresses: Vec::new(),
        cluster: String::new(),
        joined: WallMillis(0),
        since: Slot(0),
    };
    let mut state = GroupState::founded(RingId(1), GroupId(1), member(0), settings);
    state.members = (0..MACHINES).map(member).collect();
    let part = |index| Assignment {
        start: Point((u128::MAX / PARTS as u128 + 1) * index as u128),
        node: node(index % MACHINES),
        term: Term::new(Slot(1), index),
    };
    state.division = (0..PARTS).map(part).collect();
    state
}

fn config() -> GroupConfig {
    GroupConfig {
        timing: Timing::default(),
        durable: true,
        memory_bytes_max: 1 << 30,
        window_bytes_max: 1 << 24,
        in_flight_max: 4096,
        waiting_max: 1 << 16,
        transfer_bytes_per_s: 1 << 30,
        message_bytes_max: 1 << 18,
        divide: |_| None,
        defects: Defects::NONE,
    }
}

impl World {
    fn new(setting: Setting) -> World {
        let state = founded(setting.coarse);
        let machine = |index| Machine {
            group: Group::join(config(), node(index), state.clone(), at(Time(0)), index as u64 + 1),
            cores: vec![Time(0); setting.cores],
            unsynced: None,
            syncing: false,
            ticks_at: Time::NEVER,
        };
        let mut world = World {
            setting,
            now: Time(0),
            queue: BinaryHeap::new(),
            queued: 0,
            machines: (0..MACHINES).map(machine).collect(),
            keys: Keys::new(setting.keys, setting.key_count, 1, 0, 1).expect("the distribution makes sense"),
            value: vec![b'v'; setting.value_bytes].into(),
            asked: BTreeMap::new(),
            attempts: HashMap::new(),
            serials: [0; MACHINES],
            of_key: HashMap::new(),
            waited: Vec::new(),
        };
        (0..MACHINES).for_each(|machine| world.obey(machine));
        world
    }

    fn queue(&mut self, after: Duration, event: Event) {
        self.queue_at(self.now + after, event);
    }

    fn queue_at(&mut self, at: Time, event: Event) {
        self.queued += 1;
        self.queue.push(Queued(at, self.queued, event));
    }

    fn run_until(&mut self, end: Time) {
        while let Some(Queued(at, ..)) = self.queue.peek()
            && *at < end
        {
            let Some(Queued(at, _, event)) = self.queue.pop() else { break };
            self.now = at;
            self.on_event(event);
        }
        self.now = end;
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Client(client) => self.ask(client),
            Event::Executed(client) => self.operate(client),
            Event::Arrived { to, from, message } => {
                let done = self.worked_off(to, &message);
                self.queue_at(done, Event::Message { to, from, message });
            }
            Event::Message { to, from, message } => self.act(to, |group| group.on_message(from, message)),
            Event::Synced { machine, token } => {
                self.machines[machine].syncing = false;
                self.act(machine, |group| group.on_persisted(token));
                self.sync(machine);
            }
            Event::Tick(machine) => {
                if self.machines[machine].ticks_at <= self.now {
                    self.machines[machine].ticks_at = Time::NEVER;
                    self.act(machine, Group::tick);
                }
            }
        }
    }

    /// When a core of this machine has done so much for this sub-range.
    fn occupy(&mut self, machine: usize, part: usize, work: Duration) -> Time {
        let cores = &mut self.machines[machine].cores;
        let core = match self.setting.coarse {
            true => place(machine, part) % cores.len(),
            false => (0..cores.len()).min_by_key(|core| cores[*core]).expect("there is a core"),
        };
        cores[core] = cores[core].max(self.now) + work;
        cores[core]
    }

    /// When a machine has done what a message brings.
    fn worked_off(&mut self, machine: usize, message: &Message) -> Time {
        let Message::Committee(CommitteeMessage::Accept { writes, .. }) = message else { return self.now };
        let parts: Vec<usize> = writes.iter().map(|write| part_of(&write.key)).collect();
        let done = parts.into_iter().map(|part| self.occupy(machine, part, ACCEPT));
        done.max().unwrap_or(self.now)
    }

    /// A client asks the primary of a key for something, and a core takes it up.
    fn ask(&mut self, client: usize) {
        let number = self.keys.next_key().expect("keys without an end");
        let key = Key::new(format!("key:{number}").as_bytes()).expect("short");
        let (reads, slow) = (self.keys.chance(self.setting.reads), self.keys.chance(self.setting.slow));
        let op = match reads {
            true => Op::Read(Read::Value),
            false => {
                Op::Set { value: self.value.clone(), condition: Condition::Always, expiry: Expiry::Clear, get: false }
            }
        };
        let part = part_of(&key);
        let machine = part % MACHINES;
        let work = if slow { EXECUTE * SLOW } else { EXECUTE };
        let asked = Asked { key, op, slow, at: self.now, serial: 0, machine };
        self.asked.insert(client, asked);
        let done = self.occupy(machine, part, work) + WIRE;
        self.queue_at(done, Event::Executed(client));
    }

    fn operate(&mut self, client: usize) {
        let asked = self.asked.get_mut(&client).expect("it waits");
        let machine = asked.machine;
        self.serials[machine] += 1;
        asked.serial = self.serials[machine];
        let (key, op, serial) = (asked.key.clone(), asked.op.clone(), asked.serial);
        self.attempts.insert((machine, serial), client);
        let of_key = self.of_key.entry(key.clone()).or_default();
        let retired_except = of_key.iter().copied().collect();
        of_key.insert(serial);
        let operation = Operation {
            attempt: serial,
            ballot: self.machines[machine].group.primary_of(key.point()),
            run: 1,
            serial,
            retired_below: serial,
            retired_except,
            id: OpId::Origin { node: node(machine), run: 1, sequence: serial },
            horizon: 1,
            patience_ms: 3000,
            key,
            op,
            mode: ReadMode::Linearizable,
        };
        let message = Message::Client(ClientMessage { operations: vec![operation], outcomes: Vec::new() });
        let from = Sender { node: node(machine), epoch: Epoch(1) };
        self.act(machine, |group| group.on_message(from, message));
    }

    fn answered(&mut self, machine: usize, serial: u64, outcome: &group::message::Outcome) {
        use group::message::Outcome;
        let Some(client) = self.attempts.remove(&(machine, serial)) else { return };
        let Some(asked) = self.asked.remove(&client) else { return };
        assert!(
            matches!(outcome, Outcome::Done(_) | Outcome::Unchanged(_)),
            "nothing goes wrong here: {outcome:?} of {:?}, slow: {}",
            asked.key,
            asked.slow
        );
        if let Some(of_key) = self.of_key.get_mut(&asked.key) {
            of_key.remove(&serial);
        }
        self.waited.push(self.now.since(asked.at) + WIRE);
        self.queue(WIRE * 2, Event::Client(client));
    }

    fn act(&mut self, machine: usize, act: impl FnOnce(&mut Group)) {
        let group = &mut self.machines[machine].group;
        group.set_now(at(self.now));
        act(group);
        self.obey(machine);
    }

    fn obey(&mut self, machine: usize) {
        while let Some(output) = self.machines[machine].group.poll_output() {
            match output {
                GroupOutput::Send(to, message, epoch) => {
                    let from = Sender { node: node(machine), epoch };
                    for to in to {
                        let (to, message) = (machine_of(to), message.clone());
                        self.queue(WIRE, Event::Arrived { to, from, message });
                    }
                }
                GroupOutput::Persist(token, _) => {
                    self.machines[machine].unsynced = Some(token);
                    self.sync(machine);
                }
                GroupOutput::Outcome(serial, outcome) => self.answered(machine, serial, &outcome),
                GroupOutput::Over(why) => panic!("machine {machine}: {why}"),
                _ => {}
            }
        }
        let next = self.machines[machine].group.next_timeout();
        if next < self.machines[machine].ticks_at {
            self.machines[machine].ticks_at = next;
            self.queue_at(next.max(self.now), Event::Tick(machine));
        }
    }

    /// Syncs all that waits, once the disk is free.
    fn sync(&mut self, machine: usize) {
        let disk = &mut self.machines[machine];
        if !disk.syncing
            && let Some(token) = disk.unsynced.take()
        {
            disk.syncing = true;
            self.queue(SYNC, Event::Synced { machine, token });
        }
    }
}

fn at(now: Time) -> Now {
    Now { time: now, awake: now, wall: WallMillis(now.0 / 1_000_000 + 1) }
}

/// Where a sub-range stands on a machine: first those that it is primary of, which take most.
fn place(machine: usize, part: usize) -> usize {
    part / MACHINES + PARTS / MACHINES * ((part + MACHINES - machine) % MACHINES)
}

fn part_of(key: &Key) -> usize {
    (key.point().0 / (u128::MAX / PARTS as u128 + 1)) as usize
}
