//! Processes with stores of their own: restarted, rolled back, doubled.

extern crate std;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::panic::catch_unwind;

use bytes::Bytes;
use group::config::Defects;
use group::op::{Answer, Condition, Expiry, Op, OpError, Read, ReadMode};
use group::time::{Now, WallMillis};
use overlay::{Key, PeerName, RingId};

use super::*;
use crate::api::{Change, ConnectionId, Event, Input, Request, RequestId};
use crate::config::{NodeConfig, Restored, Tail};

/// What a disk holds; all that is written is there at once.
#[derive(Clone, Default)]
struct Disk {
    meta: BTreeMap<Bytes, Bytes>,
    records: BTreeMap<Bytes, Bytes>,
    ring: Option<RingId>,
    is_used: bool,
    is_sealed: bool,
    /// The end of its journal is bad.
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
    /// Why it was ended by another one.
    twin: Option<String>,
    /// How often it began anew.
    lives: u32,
    said: Vec<String>,
}

/// All processes; a network that loses nothing, but for what goes between those that are cut.
struct World {
    now: Now,
    processes: Vec<Process>,
    cut: Vec<(usize, usize)>,
    replies: Vec<(RequestId, Result<Answer, OpError>)>,
    defects: Defects,
    asked: u64,
    drawn: u64,
    /// What people call these peers.
    names: BTreeMap<u8, PeerName>,
}

fn key(peer: u8) -> PeerKey {
    PeerKey([peer + 1; 32])
}

impl World {
    /// Nobody yet.
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
        }
    }

    /// A group of the peers 0, 1 and 2, in processes of the same numbers.
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

    fn begin(&mut self, peer: u8, disk: &Disk) -> Node {
        self.drawn += 1;
        let mut config = NodeConfig::new(key(peer), Incarnation(1_000 * self.drawn));
        config.defects = self.defects;
        config.name = self.names.get(&peer).cloned();
        config.ring = disk.ring;
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

    /// A process of this peer begins, in this directory: its number.
    fn start(&mut self, peer: u8, disk: Disk) -> usize {
        let node = self.begin(peer, &disk);
        let disk = Disk { is_sealed: false, is_torn: false, ..disk };
        self.processes.push(Process { peer, node, disk, is_up: true, twin: None, lives: 0, said: Vec::new() });
        self.settle();
        self.processes.len() - 1
    }

    /// It ends, in order or at once: what it leaves behind.
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

    /// Which process of that peer hears what this one says: of several now the one, now the other.
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
                let (peer, disk) = (process.peer, process.disk.clone());
                self.processes[index].node = self.begin(peer, &disk);
            }
            Output::Event(Event::Fatal(why)) => panic!("{why}"),
            Output::Event(Event::Identity { what, .. }) => process.said.push(what),
            _ => {}
        }
    }

    /// Asks a process, for three seconds at most.
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

    /// The same until it is answered.
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

/// A copy of a directory is made, then the peer votes for what is acknowledged, and then the copy is put back. One member
/// knows the later start, and has begun anew since; the other was away. Which of them reaches the rolled-back process first?
fn put_back(defects: Defects, sealed: bool, knower_first: bool) -> Answer {
    let (mut world, copy, c) = copied(defects, sealed);
    let b = world.stop(1, true);
    // What was acknowledged to it is forgotten, the start is not.
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
    // The one that knows is lost before a new life can have been let in.
    world.stop(b, false);
    if !defects.has(Defect::StartsIgnored) {
        // Nobody answers from what was old; the one that knows comes back.
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

#[test]
fn a_store_that_went_back_in_time_is_not_counted() {
    for sealed in [true, false] {
        for knower_first in [true, false] {
            assert_eq!(put_back(Defects::NONE, sealed, knower_first), value("new"), "{sealed} {knower_first}");
        }
    }
}

/// A copy of a directory from before the peer's last start is put back, and its journal's end is bad: the peer knows that it may
/// have forgotten anything, and goes on in the same life, once those who know more have told.
#[test]
fn a_torn_store_that_lost_its_last_start_goes_on() {
    let (mut world, copy, c) = copied(Defects::NONE, false);
    let c = world.start(2, c);
    let a = world.start(0, Disk { is_torn: true, ..copy });
    assert_eq!(world.get(c), value("new"));
    let is_sure = |world: &World| {
        let group = world.processes[a].node.group();
        group.is_some_and(|group| group.state().is_member(group.me()) && group.doubt().is_none())
    };
    world.run_until("it is sure again", is_sure);
    assert_eq!((world.processes[a].lives, world.processes[a].node.starts.own().counter), (0, 3));
    assert_eq!(world.get(a), value("new"));
    // So does its next start.
    let disk = world.stop(a, true);
    let a = world.start(0, disk);
    world.stop(c, false);
    assert_eq!(world.get(a), value("new"));
}

/// The same, where the only member that knows more is away: nobody answers from what was old.
#[test]
fn a_torn_older_copy_waits_for_who_knows_more() {
    let (mut world, copy, c) = copied(Defects::NONE, false);
    let b = world.stop(1, false);
    let c = world.start(2, c);
    let a = world.start(0, Disk { is_torn: true, ..copy });
    world.run_for(Duration::from_secs(10));
    assert!(world.ask(c, Op::Read(Read::Value)).is_err() && world.ask(a, Op::Read(Read::Value)).is_err());
    world.start(1, b);
    assert_eq!(world.get(c), value("new"));
    assert_eq!(world.processes[a].lives, 0);
}

/// The copy of a running process is started so often that its lineage does not reach back to the start that members know.
#[test]
fn a_copy_in_a_restart_loop_does_not_pass_the_running_original() {
    let mut world = World::of_three(Defects::NONE);
    world.set(1, "old");
    let copy = world.stop(0, true);
    let original = world.start(0, copy.clone());
    world.get(original);
    // Nobody hears it yet.
    let (mut disk, mut copies) = (copy, Vec::new());
    for _ in 0..70 {
        let next = world.processes.len();
        world.cut.extend([(next, 1), (next, 2), (next, original)]);
        let started = world.start(0, disk);
        disk = world.stop(started, false);
        copies.push(started);
    }
    let twin = world.start(0, disk);
    world.run_for(Duration::from_secs(30));
    assert!(
        world.processes[original].is_up && world.processes[original].lives == 0,
        "{:?}",
        world.processes[original].said
    );
    assert!(
        world.processes[twin].twin.is_some() || world.processes[twin].lives == 1,
        "{:?}",
        world.processes[twin].said
    );
    assert_eq!(world.get(original), value("old"));
}

/// Where the known start is gone, one that is so much later counts after a while.
#[test]
fn a_start_after_very_many_that_nobody_heard_counts() {
    let mut world = World::of_three(Defects::NONE);
    world.set(1, "there");
    let mut disk = world.stop(0, true);
    for _ in 0..70 {
        let next = world.processes.len();
        world.cut.extend([(next, 1), (next, 2)]);
        let started = world.start(0, disk);
        disk = world.stop(started, false);
    }
    let last = world.start(0, disk);
    assert_eq!(world.get(last), value("there"));
    assert_eq!((world.processes[last].lives, &world.processes[last].twin), (0, &None));
}

/// A stranger says that a peer, which is alone, has gone back in time: the peer serves nothing as long as it says so, and begins anew
/// only after a while.
#[test]
fn a_stranger_bars_a_lone_peer_and_ends_it_only_after_a_while() {
    let mut world = World::empty(Defects::NONE);
    let a = world.start(0, Disk::default());
    world.set(a, "mine");
    let (node, start) = (world.processes[a].node.id(), world.processes[a].node.starts.own());
    let state = world.processes[a].node.group().unwrap().state().clone();
    let say = |world: &mut World, stranger: u8, groups: Vec<(KeyRange, Epoch)>| {
        let known = Start { counter: 9, run: 9 };
        let refused =
            Refused { node, start, incarnation: node.incarnation, known, alive: Some(false), contested: false, groups };
        let stamp = Stamp { incarnation: Incarnation(1), start: Start { counter: 1, run: 3 }, to: 0 };
        let frame = wire::encode(&stamp, &Frame::Refused(Box::new(refused)), None);
        let now = world.now;
        world.processes[a].node.handle(now, Input::Frame { from: key(stranger), frame });
        world.settle();
    };
    let earlier = Epoch(state.epoch.0 - 1);
    for (groups, is_barred) in
        [(vec![], false), (vec![(state.range, earlier)], false), (vec![(state.range, state.epoch)], true)]
    {
        say(&mut world, 7, groups);
        assert_eq!(world.processes[a].node.starts.is_barred(), is_barred);
    }
    for stranger in 10..200 {
        say(&mut world, stranger, vec![(state.range, state.epoch)]);
    }
    assert!(world.ask(a, Op::Read(Read::Value)).is_err());
    assert_eq!((world.processes[a].lives, world.processes[a].node.starts.refusals.len()), (0, 0));
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.processes[a].lives, 0, "nobody says so any more");
    let mut seconds = 0;
    while world.processes[a].lives == 0 {
        say(&mut world, 7, vec![(state.range, state.epoch)]);
        world.run_for(Duration::from_secs(1));
        seconds += 1;
    }
    assert!((15..20).contains(&seconds), "it is still said after {seconds} s");
}

/// A majority is put back to older copies whose journals have torn ends. Nobody else acknowledged what it did since, so nobody serves
/// what is old before a person has decided.
#[test]
fn a_torn_majority_that_was_put_back_does_not_serve() {
    for torn in [false, true] {
        let mut world = World::of_three(Defects::NONE);
        world.set(1, "old");
        let copy_a = world.stop(0, false);
        let a = world.start(0, copy_a.clone());
        world.get(a);
        let copy_b = world.stop(1, false);
        let b = world.start(1, copy_b.clone());
        world.get(b);
        world.run_for(Duration::from_secs(2));
        let c = world.stop(2, true);
        world.set(b, "new");
        world.stop(a, false);
        world.stop(b, false);
        let c = world.start(2, c);
        let a = world.start(0, Disk { is_torn: torn, ..copy_a });
        let b = world.start(1, Disk { is_torn: torn, ..copy_b });
        world.run_for(Duration::from_secs(60));
        for process in [a, b, c] {
            assert_ne!(world.ask(process, Op::Read(Read::Value)), Ok(value("old")), "{torn}");
        }
        if torn {
            assert_eq!((world.processes[a].lives, world.processes[b].lives), (0, 0), "what they hold is kept");
            let waiting = world.processes[a].node.group().expect("it is in one").in_doubt().waiting_for;
            assert_eq!(waiting.len(), 2, "a person is told of both");
        }
    }
}

/// The original runs, and is cut off from one member, which would say that it is gone. Another one hears it: the copy ends, not the
/// original.
#[test]
fn a_copy_does_not_end_an_original_that_some_hear() {
    for torn in [false, true] {
        let mut world = World::of_three(Defects::NONE);
        world.set(1, "old");
        let copy = world.stop(0, false);
        let original = world.start(0, copy.clone());
        world.get(original);
        world.run_for(Duration::from_secs(2));
        world.cut.push((original, 1));
        world.set(2, "new");
        let twin = world.start(0, Disk { is_torn: torn, ..copy });
        world.run_for(Duration::from_secs(40));
        let said = |process: usize| (&world.processes[process].twin, &world.processes[process].said);
        assert!(world.processes[original].is_up, "{torn} {:?}", said(original));
        assert!(!world.processes[twin].is_up, "{torn} {:?}", said(twin));
        assert_eq!(world.get(2), value("new"));
    }
}

/// A start whose lineage did not arrive, at a member that never heard the peer before, does not pass by its counter, neither there nor
/// at those who know better.
#[test]
fn a_start_without_a_lineage_does_not_pass() {
    let mut world = World::empty(Defects::NONE);
    for peer in [0, 1, 3] {
        world.start(peer, Disk::default());
    }
    let has = |world: &World, count: usize| {
        let state = world.processes[1].node.group().map(Group::state);
        state.is_some_and(|state| state.members.len() == count && state.recovery.is_empty())
    };
    world.run_until("three members", |world| has(world, 3));
    world.set(1, "old");
    let copy = world.stop(0, true);
    let original = world.start(0, copy.clone());
    world.get(original);
    world.set(original, "new");
    world.run_for(Duration::from_secs(2));
    let real = world.stop(original, false);
    let newcomer = world.start(2, Disk::default());
    world.run_until("four members", |world| has(world, 4));
    let mut disk = copy;
    for _ in 0..3 {
        let next = world.processes.len();
        world.cut.extend([(next, 1), (next, 2), (next, newcomer)]);
        let started = world.start(0, disk);
        disk = world.stop(started, false);
    }
    let next = world.processes.len();
    world.cut.extend([(next, 1), (next, 2), (next, newcomer)]);
    let old = world.start(0, disk);
    // What it said first is lost; only the newcomer hears it.
    world.cut.retain(|cut| *cut != (old, newcomer));
    world.run_for(Duration::from_millis(600));
    let id = world.processes[old].node.id();
    let real = world.start(0, real);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.processes[1].node.starts.known[&id].start.counter, 3);
    world.cut.clear();
    world.run_for(Duration::from_secs(40));
    // The newcomer refused it, so it may have begun a new life; it is not ended by the copy.
    assert!(world.processes[real].is_up, "{:?}", world.processes[real].twin);
    assert_eq!(world.get(real), value("new"));
}

/// What a member knows of the starts before a known one is still there after its own restart, also where it learned it late.
#[test]
fn lineages_outlast_a_restart() {
    let mut world = World::of_three(Defects::NONE);
    let first = world.processes[0].node.starts.own().run;
    let member = world.processes[0].node.id();
    let disk = world.stop(0, true);
    let again = world.start(0, disk);
    world.get(again);
    for member_of in [1, 2] {
        let known = &world.processes[member_of].node.starts.known[&member];
        assert_eq!((known.before.as_slice(), known.written), ([first].as_slice(), Written::Yes));
    }
    // One that knows it from a time when none was told.
    let known = world.processes[1].node.starts.known.get_mut(&member).unwrap();
    let lineage = Lineage { before: core::mem::take(&mut known.before), start: known.start };
    world.processes[1].node.on_lineage(member, lineage);
    world.settle();
    let disk = world.stop(1, false);
    let b = world.start(1, disk);
    assert_eq!(world.processes[b].node.starts.known[&member].before, [first]);
}

/// A copy that was put back is started again and again, so its counter passes that of the start that a member knows. `refused`: the
/// member is there from the copy's first start on, and refuses it. `restarted`: so is the one that knows, which was restarted.
/// Answers what is read once all are back.
fn started_again(defects: Defects, refused: bool, restarted: bool) -> Answer {
    let (mut world, copy, c) = copied(defects, true);
    let mut b = world.stop(1, false);
    let c = if refused { Ok(world.start(2, c)) } else { Err(c) };
    let knower = restarted.then(|| world.start(1, b.clone()));
    let mut a = world.start(0, copy);
    if let Some(knower) = knower {
        world.run_for(Duration::from_secs(2));
        b = world.stop(knower, false);
    }
    for _ in 0..3 {
        world.run_for(Duration::from_secs(2));
        let disk = world.stop(a, false);
        a = world.start(0, disk);
    }
    let c = c.unwrap_or_else(|disk| world.start(2, disk));
    world.run_for(Duration::from_secs(3));
    if !defects.has(Defect::LineageIgnored) {
        assert!(world.ask(c, Op::Read(Read::Value)).is_err(), "nobody answers from what was old");
    }
    world.start(1, b);
    world.get(c)
}

#[test]
fn a_copy_that_is_started_again_is_not_counted() {
    for (refused, restarted) in [(true, false), (false, false), (true, true), (false, true)] {
        assert_eq!(started_again(Defects::NONE, refused, restarted), value("new"), "{refused} {restarted}");
        let defects = Defects::NONE.with(Defect::LineageIgnored);
        let outcome = catch_unwind(|| started_again(defects, refused, restarted));
        assert!(
            restarted || outcome.is_err() || outcome.is_ok_and(|read| read != value("new")),
            "by counters alone it is: {refused}"
        );
    }
}

/// A copy from a time when the peer was alone knows none of the members that refuse it, and would go on by itself.
#[test]
fn a_copy_from_when_a_peer_was_alone_does_not_go_on() {
    for times in [1, 3] {
        let mut world = World::empty(Defects::NONE);
        let a = world.start(0, Disk::default());
        world.set(a, "old");
        let copy = world.stop(a, true);
        let a = world.start(0, copy.clone());
        let (b, _) = (world.start(1, Disk::default()), world.start(2, Disk::default()));
        world.run_until("three members", |world| {
            let states = world.processes[1..].iter().filter_map(|process| process.node.group()).map(Group::state);
            states.filter(|state| state.members.len() == 3 && state.recovery.is_empty()).count() == 3
        });
        world.set(b, "new");
        world.stop(a, true);
        let mut disk = copy;
        for _ in 1..times {
            let a = world.start(0, disk);
            disk = world.stop(a, false);
        }
        let a = world.start(0, disk);
        world.run_for(Duration::from_secs(1));
        assert!(world.ask(a, Op::Read(Read::Value)) != Ok(value("old")), "{times}");
        world.run_until("a new life", |world| world.processes[a].lives == 1);
        assert_eq!(world.get(a), value("new"));
    }
}

/// Without starts the write is lost, or a member that did nothing wrong panics.
#[test]
fn without_starts_writes_are_lost() {
    let defects = Defects::NONE.with(Defect::StartsIgnored);
    for knower_first in [true, false] {
        let outcome = catch_unwind(|| put_back(defects, true, knower_first));
        assert!(outcome.is_err() || outcome.is_ok_and(|value| value != self::value("new")), "{knower_first}");
    }
    let outcome = catch_unwind(|| doubled(defects, true, false));
    assert!(outcome.is_err() || outcome.is_ok_and(|(_, acknowledged, value)| value < acknowledged), "two processes");
}

/// All stop, in order or not, and come back in any order.
#[test]
fn a_whole_network_comes_back_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for sealed in 0..8_u8 {
            let mut world = World::of_three(Defects::NONE);
            world.set(0, "there");
            let disks: Vec<Disk> =
                order.iter().map(|peer| world.stop(*peer, sealed >> peer & 1 == 1 && *peer != order[2])).collect();
            let mut last = 0;
            for (peer, disk) in order.into_iter().zip(disks) {
                last = world.start(peer as u8, disk);
                world.run_for(Duration::from_millis(300));
            }
            assert_eq!(world.get(last), value("there"), "{order:?}, sealed {sealed:b}");
            assert!(world.processes.iter().all(|process| process.lives == 0 && process.twin.is_none()));
        }
    }
}

/// All of them are rolled back together, as from copies of a stopped network: nobody knows of more.
#[test]
fn copies_of_a_whole_network_serve_what_they_hold() {
    let mut world = World::of_three(Defects::NONE);
    world.set(0, "old");
    let copies: Vec<Disk> = (0..3).map(|process| world.stop(process, process < 2)).collect();
    let first: Vec<usize> = copies.iter().zip(0..).map(|(disk, peer)| world.start(peer, disk.clone())).collect();
    world.set(first[0], "new");
    first.iter().for_each(|process| drop(world.stop(*process, false)));
    let again: Vec<usize> = copies.into_iter().zip(0..).map(|(disk, peer)| world.start(peer, disk)).collect();
    assert_eq!(world.get(again[0]), value("old"));
    assert!(world.processes.iter().all(|process| process.lives == 0 && process.twin.is_none()));
}

/// A directory is copied and both run: increments through all processes; how many were acknowledged, and the value.
fn doubled(defects: Defects, together: bool, again: bool) -> (World, i64, i64) {
    let mut world = World::of_three(defects);
    world.ask_until(1, &Op::Add(1));
    let copy = world.stop(0, true);
    let first = world.start(0, copy.clone());
    if !together {
        world.run_for(Duration::from_secs(3));
    }
    let second_disk = match again {
        // A copy of a directory that is in use: started from, its counter is higher.
        true => world.processes[first].disk.clone(),
        false => copy,
    };
    let second = world.start(0, second_disk);
    let (mut acknowledged, mut unknown) = (1, 0);
    for turn in 0..200 {
        let process = [1, 2, first, second][turn % 4];
        if !world.processes[process].is_up {
            continue;
        }
        match world.ask(process, Op::Add(1)) {
            Ok(_) => acknowledged += 1,
            Err(OpError::Uncertain) => unknown += 1,
            Err(_) => {}
        }
    }
    world.run_for(Duration::from_secs(20));
    let seen =
        (1..3).any(|member| world.processes[member].node.status().identity.iter().any(|(peer, _)| *peer == key(0)));
    assert!(seen || defects.has(Defect::StartsIgnored), "members show it");
    let Answer::Integer(value) = world.ask_until(1, &Op::Add(0)) else { panic!("not a number") };
    assert!(value <= acknowledged + unknown, "{value} of {acknowledged} and {unknown}");
    (world, acknowledged, value)
}

#[test]
fn of_two_processes_with_one_identity_one_counts_or_none() {
    for (together, again) in [(true, false), (false, false), (false, true)] {
        let (world, acknowledged, value) = doubled(Defects::NONE, together, again);
        assert!(value >= acknowledged, "{acknowledged} were acknowledged, {value} are there");
        let twins: Vec<&Process> = world.processes.iter().filter(|process| process.peer == 0).skip(1).collect();
        let said: Vec<_> =
            twins.iter().map(|process| (process.is_up, &process.twin, process.lives, &process.said)).collect();
        assert!(twins.iter().all(|process| process.lives <= 1), "{said:?}");
        if !together {
            // The later one has the higher counter, or is the one that nobody knew first.
            let loser = if again { twins[0] } else { twins[1] };
            assert!(loser.twin.as_ref().is_some_and(|why| why.contains("identity of its own")), "{said:?}");
        }
        assert!(said.iter().any(|(_, twin, _, said)| twin.is_some() || !said.is_empty()), "{said:?}");
        let noticed = world.processes[1..3].iter().any(|process| process.said.iter().any(|s| s.contains("runs twice")));
        assert!(noticed, "members say so");
    }
}

/// Nothing is said before the counter of this start is durable, and the counter goes up with each.
#[test]
fn nothing_is_said_before_the_start_is_durable() {
    let mut world = World::of_three(Defects::NONE);
    let mut disk = world.stop(2, true);
    for counter in 2..5 {
        let mut node = world.begin(2, &disk);
        assert_eq!(node.status().start.counter, counter);
        let mut written = None;
        let later = Now { time: world.now.time + Duration::from_secs(1), ..world.now };
        node.handle(later, Input::Tick);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Send { .. } => panic!("it says something"),
                Output::Persist { token, changes } => {
                    changes.into_iter().for_each(|change| disk.apply(change));
                    written.get_or_insert(token);
                }
                _ => {}
            }
        }
        node.handle(later, Input::Persisted(written.expect("it writes the start")));
        let sends = core::iter::from_fn(|| node.poll_output()).filter(|output| matches!(output, Output::Send { .. }));
        assert!(sends.count() > 0, "then it does");
    }
}

/// What comes from a start whose lineage a member does not know, or that it has not written down, waits for that.
#[test]
fn a_new_start_counts_once_it_is_written_down() {
    let mut world = World::of_three(Defects::NONE);
    let now = world.now;
    let (member, ring) = (world.processes[0].node.id(), world.processes[0].node.ring.unwrap());
    let state = world.processes[0].node.group().unwrap().state().clone();
    let run = |run| Stamp { incarnation: member.incarnation, start: Start { counter: 9, run }, to: 0 };
    let message = group::message::Message::AskVouch;
    let sender = group::message::Sender { node: member, epoch: state.epoch };
    let asked = Frame::Group { ring, group: state.id, sender, message };
    let known = world.processes[0].node.starts.own().run;
    let node = &mut world.processes[1].node;
    let mut hear = |stamp: Stamp, frame: &Frame, persisted: bool| {
        node.handle(now, Input::Frame { from: key(0), frame: wire::encode(&stamp, frame, None) });
        let (mut told, mut token) = (Vec::new(), None);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Send { to, frame, .. } if to == key(0) => told.push(wire::decode(&frame, None).unwrap()),
                Output::Persist { token: written, .. } if persisted => node.handle(now, Input::Persisted(written)),
                Output::Persist { token: written, .. } => token = Some(written),
                _ => {}
            }
        }
        if let Some(token) = token {
            node.handle(now, Input::Persisted(token));
            let late = core::iter::from_fn(|| node.poll_output());
            let vouches = late.filter(|output| matches!(output, Output::Send { to, .. } if *to == key(0))).count();
            return (told, vouches);
        }
        (told, 0)
    };
    let (told, _) = hear(run(5), &asked, false);
    assert!(
        matches!(&told[..], [(stamp, Frame::Started)] if stamp.to == known),
        "first its lineage is asked for: {told:?}"
    );
    let lineage = Frame::Lineage([&[1; 7], &[known][..]].concat());
    assert!(matches!(hear(run(5), &lineage, false), (told, 1) if told.is_empty()), "then it is written down");
    let (told, _) = hear(run(5), &asked, true);
    assert!(matches!(&told[..], [(Stamp { to: 5, .. }, Frame::Group { .. })]), "then it is known: {told:?}");
    let (told, _) = hear(run(6), &asked, true);
    let refused = |frame: &Frame| matches!(frame, Frame::Refused(refused) if refused.known.run == 5);
    assert!(matches!(&told[..], [(Stamp { to: 6, .. }, frame)] if refused(frame)), "another is refused: {told:?}");
    let (told, _) = hear(Stamp { to: 77, ..run(5) }, &asked, true);
    assert!(
        told.iter().all(|(_, frame)| *frame == Frame::Lineage(Vec::new())),
        "what was for another process is not read: {told:?}"
    );
}

/// A member that only heard tell of another start does not know whether it runs, and ends nobody for it.
#[test]
fn hearsay_ends_no_life() {
    let mut world = World::of_three(Defects::NONE);
    let node = world.processes[0].node.id();
    let known = world.processes[0].node.starts.own();
    let lineage = Lineage { start: Start { run: 77, ..known }, before: Vec::new() };
    for _ in 0..60 {
        let stamp = world.processes[1].node.stamp();
        let frame = Frame::Contested(Box::new(Contested { node, lineage: lineage.clone() }));
        let (now, frame) = (world.now, wire::encode(&stamp, &frame, None));
        world.processes[2].node.handle(now, Input::Frame { from: key(1), frame });
        world.settle();
        world.run_for(Duration::from_millis(300));
    }
    assert!(world.processes[2].node.starts.refused() > 0, "it does refuse it");
    let peer = &world.processes[0];
    assert_eq!((peer.is_up, peer.lives, &peer.twin), (true, 0, &None), "{:?}", peer.said);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.ask(0, Op::Read(Read::Value)), Ok(Answer::Value(None)), "once nobody says so, it counts");
}

#[test]
fn a_start_outvotes_another_with_more_voices() {
    let (known, other) = (Start { counter: 1, run: 1 }, Start { counter: 1, run: 2 });
    let mut of = Known::new(Lineage { start: known, before: Vec::new() }, Written::Yes);
    for (voices, contested, outvoted) in [(1, true, false), (2, true, true)] {
        of.told.insert(key(voices), (other, Time(0)));
        assert_eq!((of.is_contested(|_| true), of.is_outvoted_by(other, |_| true)), (contested, outvoted));
        assert!(!of.is_contested(|_| false) && !of.is_outvoted_by(other, |_| false), "what was said long ago is over");
    }
    of.told.insert(key(9), (known, Time(0)));
    assert!(of.is_contested(|_| true) && !of.is_outvoted_by(other, |_| true));
}

/// A start that is in the store, of a node that is in no group here any more, stays known: another one passes, but replaces nothing.
#[test]
fn a_stranger_does_not_replace_a_start_that_was_written_down() {
    let mut world = World::of_three(Defects::NONE);
    let node = NodeId { peer: key(7), incarnation: Incarnation(1) };
    let member = &mut world.processes[1].node;
    for (counter, written, known) in [(1, Written::No, 1), (2, Written::No, 2), (3, Written::Yes, 2)] {
        if let Some(known) = member.starts.known.get_mut(&node) {
            known.written = written;
        }
        let stamp = Stamp { incarnation: node.incarnation, start: Start { counter, run: counter }, to: 0 };
        assert_eq!(member.admit(key(7), stamp, Frame::Started, 9), Some(Frame::Started));
        assert_eq!(member.starts.known[&node].start.counter, known);
    }
}

/// What is remembered of nodes that are gone has a limit.
#[test]
fn starts_of_nodes_that_are_gone_are_forgotten() {
    let mut world = World::of_three(Defects::NONE);
    let now = world.now;
    for stranger in 0..2 * STRANGERS_MAX {
        let mut peer = [0xee; 32];
        peer[..8].copy_from_slice(&stranger.to_le_bytes());
        let start = Start { counter: 1, run: 7 };
        let stamp = Stamp { incarnation: Incarnation(1), start, to: 0 };
        let frame = wire::encode(&stamp, &Frame::Started, None);
        world.processes[1].node.handle(now, Input::Frame { from: PeerKey(peer), frame });
        if stranger % 16 == 0 {
            let node = NodeId { peer: PeerKey(peer), incarnation: Incarnation(1) };
            world.processes[1].node.starts.known.get_mut(&node).unwrap().written = Written::Yes;
        }
    }
    world.run_for(Duration::from_secs(12));
    let starts = &world.processes[1].node.starts;
    let written = starts.known.values().filter(|known| known.written == Written::Yes).count();
    assert_eq!((starts.known.len(), written), (STRANGERS_MAX + GONE_MAX + 2, GONE_MAX + 2));
}

/// A name that a start gives anew replaces the one that all members know.
#[test]
fn another_name_at_a_start_is_learned_by_all() {
    let mut world = World::of_three(Defects::NONE);
    let known = |world: &World| -> Vec<Option<String>> {
        let of = |process: &Process| {
            let state = process.node.group().expect("it is in one").state();
            let member = state.members.iter().find(|member| member.node.peer == key(2)).expect("it stays a member");
            member.name.as_ref().map(ToString::to_string)
        };
        world.processes.iter().filter(|process| process.is_up).map(of).collect()
    };
    assert_eq!(known(&world), [None, None, None]);
    let mut life = world.processes[2].node.id();
    for name in ["oak", "elm"] {
        world.names.insert(2, name.parse().unwrap());
        let process = world.processes.len() - 1;
        let disk = world.stop(process, true);
        let process = world.start(2, disk);
        world.run_until("the name is known", |world| known(world) == vec![Some(name.into()); 3]);
        let next = world.processes[process].node.id();
        assert_eq!(core::mem::replace(&mut life, next), next, "it went on with what it had");
    }
}
