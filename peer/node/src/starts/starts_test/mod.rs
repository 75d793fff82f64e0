//! Processes with stores of their own: restarted, rolled back, doubled.

extern crate std;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::panic::catch_unwind;

use bytes::Bytes;
use group::Group;
use group::ballot::LogSlot;
use group::config::Defects;
use group::op::{Answer, Condition, Expiry, Op, OpError, Read, ReadMode};
use overlay::time::{Now, WallMillis};
use overlay::{Key, PeerName, RingId};

use super::*;
use crate::api::{Change, ConnectionId, Event, Input, Output, Request, RequestId};
use crate::config::{NodeConfig, Restored, Tail, Timing};
use crate::node::Node;
use crate::wire;

mod copies;
mod knowing;
mod lineages;
mod twins;

/// Content of a disk; all writes take effect at once.
#[derive(Clone, Default)]
struct Disk {
    meta: BTreeMap<Bytes, Bytes>,
    records: BTreeMap<Bytes, Bytes>,
    ring: Option<RingId>,
    is_used: bool,
    is_sealed: bool,
    /// Whether the end of its journal is bad.
    is_torn: bool,
}

impl Disk {
    fn apply(&mut self, change: Change) {
        self.is_used = true;
        match change {
            Change::PutMeta(key, value) => drop(self.meta.insert(key, value)),
            Change::DropMeta(from, to) => self.meta.retain(|key, _| !(&from..&to).contains(&key)),
            Change::Promote { from, to, strip } => {
                let full = self.meta.range_mut(from..to).filter(|(key, value)| key.len() >= strip && !value.is_empty());
                for (key, value) in full {
                    self.records.insert(key.slice(strip..), core::mem::take(value));
                }
            }
            Change::PutRecord(key, value) => drop(self.records.insert(key, value)),
            Change::DropRecord(key) => drop(self.records.remove(&key)),
        }
    }
}

/// One process of a peer, and its directory.
struct Process {
    peer: u8,
    node: Node,
    disk: Disk,
    is_up: bool,
    /// Message of its end, if another process ended it.
    twin: Option<String>,
    /// Number of times that it began anew.
    lives: u32,
    said: Vec<String>,
}

/// All processes, in a network that loses frames only between processes that are cut.
struct World {
    now: Now,
    processes: Vec<Process>,
    cut: Vec<(usize, usize)>,
    replies: Vec<(RequestId, Result<Answer, OpError>)>,
    defects: Defects,
    asked: u64,
    drawn: u64,
    /// Names of these peers.
    names: BTreeMap<u8, PeerName>,
    /// Whether tombstones are purged after a second.
    purges: bool,
    /// Silence after which members are removed.
    exclude_after: Duration,
}

fn key(peer: u8) -> PeerKey {
    PeerKey([peer + 1; 32])
}

impl World {
    /// Returns a world without processes.
    fn empty(defects: Defects) -> World {
        let now = Now { time: Time(1_000_000_000), awake: Time(1_000_000_000), wall: WallMillis(1_000_000) };
        World {
            now,
            processes: Vec::new(),
            cut: Vec::new(),
            replies: Vec::new(),
            defects,
            asked: 0,
            drawn: 0,
            names: BTreeMap::new(),
            purges: false,
            exclude_after: Timing::default().exclude_after,
        }
    }

    /// Returns a group of the peers 0, 1 and 2, in processes of the same numbers.
    fn of_three(defects: Defects) -> World {
        let mut world = World::empty(defects);
        (0..3).for_each(|peer| assert_eq!(world.start(peer, Disk::default()), usize::from(peer)));
        world.run_until("three members", |world| {
            world.processes.iter().all(|process| {
                let state = process.node.group().map(Group::state);
                state.is_some_and(|state| state.members.len() == 3 && state.recovery.is_empty())
            })
        });
        world
    }

    fn begin(&mut self, peer: u8, disk: &mut Disk) -> Node {
        if disk.is_used && !disk.is_sealed {
            crate::replicas::storage::doubt(&disk.meta, disk.is_torn).into_iter().for_each(|change| disk.apply(change));
        }
        self.drawn += 1;
        let mut config = NodeConfig::new(key(peer), Incarnation(1_000 * self.drawn));
        config.defects = self.defects;
        config.name = self.names.get(&peer).cloned();
        config.ring = disk.ring;
        config.timing.exclude_after = self.exclude_after;
        if self.purges {
            let second = Duration::from_secs(1);
            (config.timing.purge_every, config.timing.horizon) = (second, second);
        }
        config.found = peer == 0 && self.drawn == 1;
        let tail = match disk {
            Disk { is_used: false, .. } => Tail::Empty,
            Disk { is_torn: true, .. } => Tail::Doubtful,
            Disk { is_sealed: true, .. } => Tail::Sealed,
            _ => Tail::Unsealed,
        };
        let mut node = Node::new(config, self.drawn, self.now, Restored { meta: disk.meta.clone(), tail });
        (0..3).filter(|other| *other != peer).for_each(|other| node.handle(self.now, Input::PeerUp(key(other))));
        node
    }

    /// Starts a process of this peer in this directory; returns its number.
    fn start(&mut self, peer: u8, mut disk: Disk) -> usize {
        let node = self.begin(peer, &mut disk);
        let disk = Disk { is_sealed: false, is_torn: false, ..disk };
        self.processes.push(Process { peer, node, disk, is_up: true, twin: None, lives: 0, said: Vec::new() });
        self.settle();
        self.processes.len() - 1
    }

    /// Starts the process once more, with its disk.
    fn begin_again(&mut self, index: usize) {
        let (peer, mut disk) = (self.processes[index].peer, self.processes[index].disk.clone());
        self.processes[index].node = self.begin(peer, &mut disk);
        self.processes[index].disk = disk;
    }

    /// Ends a process, in order or at once; returns its disk.
    fn stop(&mut self, process: usize, in_order: bool) -> Disk {
        if in_order {
            let now = self.now;
            self.processes[process].node.handle(now, Input::Stop);
            self.run_until("stopped", |world| !world.processes[process].is_up);
        }
        self.processes[process].is_up = false;
        Disk { is_sealed: in_order, ..self.processes[process].disk.clone() }
    }

    fn tick(&mut self) {
        let time = self.now.time + Duration::from_millis(10);
        self.now = Now { time, awake: time, wall: WallMillis(self.now.wall.0 + 10) };
        for process in self.processes.iter_mut().filter(|process| process.is_up) {
            process.node.handle(self.now, Input::Tick);
        }
        self.settle();
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now.time + time;
        while self.now.time < end {
            self.tick();
        }
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&World) -> bool) {
        for _ in 0..6_000 {
            if done(self) {
                return;
            }
            self.tick();
        }
        let said: Vec<_> = self.processes.iter().map(|process| (process.is_up, &process.said)).collect();
        panic!("{what}: it does not come to that; {said:?}");
    }

    /// Returns the process of a peer that hears a process: of several, each in turn.
    fn hearer(&self, from: usize, to: PeerKey) -> Option<usize> {
        let is_cut = |to: usize| self.cut.contains(&(from, to)) || self.cut.contains(&(to, from));
        let up = |index: &usize| {
            let process = &self.processes[*index];
            process.is_up && key(process.peer) == to && !is_cut(*index)
        };
        let hearers: Vec<usize> = (0..self.processes.len()).filter(up).collect();
        let turn = (self.now.time.0 / 70_000_000) as usize;
        hearers.get(turn % hearers.len().max(1)).copied()
    }

    fn settle(&mut self) {
        let mut frames: VecDeque<(usize, PeerKey, Bytes)> = VecDeque::new();
        loop {
            for index in 0..self.processes.len() {
                while self.processes[index].is_up {
                    let Some(output) = self.processes[index].node.poll_output() else { break };
                    if let Output::Send { to, frame, .. } = output {
                        frames.push_back((index, to, frame));
                    } else {
                        self.carry(index, output);
                    }
                }
            }
            let Some((from, to, frame)) = frames.pop_front() else { return };
            if let Some(to) = self.hearer(from, to) {
                let from = key(self.processes[from].peer);
                self.processes[to].node.handle(self.now, Input::Frame { from, frame });
            }
        }
    }

    fn carry(&mut self, index: usize, output: Output) {
        let now = self.now;
        let process = &mut self.processes[index];
        match output {
            Output::Persist { token, changes } => {
                changes.into_iter().for_each(|change| process.disk.apply(change));
                process.node.handle(now, Input::Persisted(token));
            }
            Output::Load { record_key, .. } => {
                let record = process.disk.records.get(&record_key).cloned();
                process.node.handle(now, Input::Loaded { record_key, record });
            }
            Output::Scan { token, from, .. } => {
                let records = process.disk.records.range(from..).map(|(key, value)| (key.clone(), value.clone()));
                let records = records.collect();
                process.node.handle(now, Input::Scanned { token, records, done: true });
            }
            Output::Reply { id, result } => self.replies.push((id, result)),
            Output::Event(Event::InRing(ring)) => process.disk.ring = Some(ring),
            Output::Event(Event::Stopped) => process.is_up = false,
            Output::Event(Event::Twin(why)) => (process.is_up, process.twin) = (false, Some(why)),
            Output::Event(Event::Damaged(why) | Event::Reincarnate { why, .. }) => {
                process.said.push(why);
                process.lives += 1;
                process.disk = Disk { ring: process.disk.ring, ..Disk::default() };
                self.begin_again(index);
            }
            Output::Event(Event::StartAgain(why)) => {
                process.said.push(why);
                self.begin_again(index);
            }
            Output::Event(Event::Fatal(why)) => panic!("{why}"),
            Output::Event(Event::Identity { what, .. }) => process.said.push(what),
            _ => {}
        }
    }

    /// Submits an operation to a process, for three seconds at most.
    fn ask(&mut self, process: usize, op: Op) -> Result<Answer, OpError> {
        self.asked += 1;
        let id = RequestId(self.asked);
        let request = Request {
            id,
            connection: ConnectionId(self.asked),
            key: Key::new(b"k").unwrap(),
            op,
            mode: ReadMode::Linearizable,
            patience: Duration::from_secs(2),
            once: None,
        };
        let now = self.now;
        self.processes[process].node.handle(now, Input::Routecast(request));
        self.settle();
        for _ in 0..300 {
            if let Some((_, result)) = self.replies.iter().find(|(of, _)| *of == id) {
                return result.clone();
            }
            self.tick();
        }
        Err(OpError::Uncertain)
    }

    /// Submits an operation until it is answered.
    fn ask_until(&mut self, process: usize, op: &Op) -> Answer {
        for _ in 0..30 {
            match self.ask(process, op.clone()) {
                Ok(answer) => return answer,
                Err(_) => self.run_for(Duration::from_millis(200)),
            }
        }
        let said: Vec<_> = self.processes.iter().map(|process| (process.is_up, &process.said)).collect();
        panic!("process {process} does not serve: {said:?}");
    }

    fn set(&mut self, process: usize, value: &'static str) {
        let value = Bytes::from_static(value.as_bytes());
        let op = Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false };
        assert_eq!(self.ask_until(process, &op), Answer::Done);
    }

    fn get(&mut self, process: usize) -> Answer {
        self.ask_until(process, &Op::Read(Read::Value))
    }
}

fn value(text: &'static str) -> Answer {
    Answer::Value(Some(Bytes::from_static(text.as_bytes())))
}

/// Of three members 0 is stopped, its directory is copied, and it is started again; 2, which knows that start, is stopped; 0 and 1
/// acknowledge a write; 0 is stopped. Returns the copy and the directory of 2.
fn copied(defects: Defects, sealed: bool) -> (World, Disk, Disk) {
    let mut world = World::of_three(defects);
    world.set(1, "old");
    let copy = world.stop(0, sealed);
    let a = world.start(0, copy.clone());
    world.get(a);
    let c = world.stop(2, true);
    world.set(1, "new");
    world.stop(a, sealed);
    (world, copy, c)
}

/// A copy of a directory is made, then the peer votes for an acknowledged write, and then the copy is put back. One member knows
/// the later start, and has begun anew since; the other was away. `knower_first` is whether the first one reaches the rolled-back
/// process first. Returns the value that is read at the end.
fn put_back(defects: Defects, sealed: bool, knower_first: bool) -> Answer {
    let (mut world, copy, c) = copied(defects, sealed);
    let b = world.stop(1, true);
    // The member that begins anew forgets the acknowledgements that it got, but not the start.
    let (c, b, a) = if knower_first {
        let b = world.start(1, b);
        let c = world.start(2, c);
        (c, b, world.start(0, copy))
    } else {
        let a = world.start(0, copy);
        let c = world.start(2, c);
        (c, world.start(1, b), a)
    };
    world.run_for(Duration::from_secs(3));
    // The member that knows the start is lost before a new incarnation can have been let in.
    world.stop(b, false);
    if !defects.has(Defect::StartsIgnored) {
        // No process answers from the old data; the member that knows comes back.
        assert!(world.ask(c, Op::Read(Read::Value)).is_err());
        assert_eq!(world.processes[a].twin, None);
        let disk = world.processes[b].disk.clone();
        world.start(1, disk);
        let answer = world.get(c);
        world.run_until("a new life", |world| world.processes[a].lives == 1);
        let is_member = |world: &World| world.processes[a].node.group().is_some_and(|g| g.state().is_member(g.me()));
        world.run_until("a member again", is_member);
        return answer;
    }
    world.get(c)
}
