//! Each rule of the controller's decisions, against a switch that follows its orders.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::super::reports::{Known, Part};
use super::*;
use crate::p4rt::client::Synced;
use crate::p4rt::entry::{Key, Value};
use crate::p4rt::ids::Ids;
use crate::p4rt::reconcile::Incarnation;

#[path = "core_others_test.rs"]
mod others;

const UNIX: u32 = 1000;
const GROUP: Group = Group(7);

/// A core, its switch, and three peers that each have a part in one group.
struct World {
    core: ControllerCore,
    now: Duration,
    unix: u32,
    known: Known,
    endpoints: BTreeMap<u32, SocketAddr>,
    silent: BTreeSet<usize>,
    // State of the switch.
    tables: BTreeMap<Key, Value>,
    ids: Ids,
    life: u64,
    mastership: u64,
    mark: Option<u64>,
    /// Pairs of a partition and an id that were in the tables in this life, with their places if they are still there.
    history: BTreeMap<(u32, u32), Option<(u32, crate::dirty::Region)>>,
    /// Ids that were in the tables in earlier lives.
    over: BTreeSet<u32>,
    asks: Vec<Ask>,
    news: Vec<String>,
}

fn name(peer: usize) -> Peer {
    format!("peer{peer}")
}

fn part(term: u64) -> Part {
    Part { term, primary: name(0) }
}

fn core(spent_max: usize) -> ControllerCore {
    let sources = (0..3).map(|peer| format!("at{peer}")).collect();
    ControllerCore::new(CoreConfig { registers: 4, slots: 1024, spent_max, ..CoreConfig::new(sources, 3) })
}

impl World {
    fn new() -> World {
        let known = Known {
            lane: 0,
            epoch: 1,
            slot: 1,
            id: 0,
            on: false,
            barred: false,
            fit: true,
            why: String::new(),
            calm: true,
            members: (0..3).map(name).collect(),
            parts: [(11, part(1)), (12, part(1))].into(),
        };
        World {
            core: core(8),
            now: Duration::ZERO,
            unix: UNIX,
            known,
            endpoints: (0..3).map(|peer| (peer, SocketAddr::from(([10, 0, 0, 1], 7000 + peer as u16)))).collect(),
            silent: BTreeSet::new(),
            tables: BTreeMap::new(),
            ids: Ids::default(),
            life: 5,
            mastership: 1,
            mark: None,
            history: BTreeMap::new(),
            over: BTreeSet::new(),
            asks: Vec::new(),
            news: Vec::new(),
        }
    }

    fn report(&self, peer: usize) -> PeerReport {
        let endpoints = self.endpoints.get(&(peer as u32)).map(|address| (0, *address)).into_iter().collect();
        PeerReport { peer: name(peer), endpoints, groups: [(GROUP, self.known.clone())].into() }
    }

    fn report_switch(&mut self) {
        let state = SyncState::Synced(Synced {
            mastership: self.mastership,
            mark: self.mark,
            present: self.tables.clone().into(),
            incarnation: Incarnation(self.life),
            updates: 0,
            looks: 0,
        });
        self.core.switch_changed(&state, self.now, self.unix);
    }

    /// Runs half a second: peers that are not silent report, the wanted tables are written, and requests are collected.
    fn round(&mut self) {
        self.now += Duration::from_millis(500);
        for peer in 0..3 {
            let said = if self.silent.contains(&peer) { Err("no answer".to_owned()) } else { Ok(self.report(peer)) };
            self.core.heard(peer, said, self.now);
        }
        self.report_switch();
        let decision = self.core.decide(self.now, self.unix);
        self.news.extend(decision.news);
        self.asks.extend(decision.asks);
        if let Some((mastership, mark, wanted)) = decision.wanted {
            assert_eq!(mastership, self.mastership);
            let asked = wanted.entries(Incarnation(self.life));
            let mut entries = asked.clone();
            self.ids.hold(Incarnation(self.life), &self.tables, &mut entries);
            self.ids.done(&entries);
            assert_eq!(asked, entries, "nothing has to be held back");
            (self.tables, self.mark) = (entries, Some(mark));
            self.watch();
            self.report_switch();
        }
    }

    /// Checks rule S1 with an unlimited memory.
    fn watch(&mut self) {
        let mut are = BTreeMap::new();
        for (key, value) in &self.tables {
            if let (Key::Partition(number), Value::Partition(setting)) = (key, value)
                && setting.switch > 0
            {
                are.insert((*number, setting.switch), (setting.index, setting.region));
            }
        }
        for (pair, place) in &are {
            let before = self.history.get(pair);
            assert!(before.is_none_or(|before| *before == Some(*place)), "{pair:?} came back, or moved");
            assert!(!self.over.contains(&pair.1), "{pair:?} was of another life");
        }
        for (pair, place) in &mut self.history {
            *place = place.filter(|_| are.contains_key(pair));
        }
        self.history.extend(are.into_iter().map(|(pair, place)| (pair, Some(place))));
    }

    fn rounds(&mut self, count: usize) {
        (0..count).for_each(|_| self.round());
    }

    /// The group takes the id that it is asked for.
    fn take(&mut self) -> u32 {
        let ask = self.asks.pop().expect("somebody is asked");
        assert!(self.asks.is_empty() && ask.id > self.known.id, "{ask:?} {:?}", self.asks);
        (self.known.id, self.known.on, self.known.slot) = (ask.id, true, self.known.slot + 1);
        self.core.answered(&ask, Answer::Given, self.now);
        ask.id
    }

    /// Returns the partitions in the tables: term, id, active, and number of replicas.
    fn placed(&self) -> BTreeMap<u32, (u64, u32, bool, usize)> {
        let placed = |(key, value): (&Key, &Value)| match (key, value) {
            (Key::Partition(number), Value::Partition(setting)) => {
                let replicas = match self.tables.get(&Key::Replicas(*number)) {
                    Some(Value::Replicas(replicas)) => replicas.len(),
                    _ => 0,
                };
                Some((*number, (setting.term, setting.switch, setting.active, replicas)))
            }
            _ => None,
        };
        self.tables.iter().filter_map(placed).collect()
    }

    /// Returns the partitions as they are when all is well.
    fn all(&self, id: u32) -> BTreeMap<u32, (u64, u32, bool, usize)> {
        self.known.parts.iter().map(|(number, part)| (*number, (part.term, id, id > 0, 3))).collect()
    }

    /// Returns a world in which all is well, and the id.
    fn running() -> (World, u32) {
        let mut world = World::new();
        world.rounds(2);
        let id = world.take();
        world.rounds(2);
        assert_eq!(world.placed(), world.all(id));
        world.news.clear();
        (world, id)
    }
}

#[test]
fn a_group_gets_an_id_and_then_its_partitions() {
    let mut world = World::new();
    world.rounds(3);
    // The group is asked once, for an id above the time at which this controller became the primary one.
    assert_eq!(world.asks, [Ask { mastership: 1, group: GROUP, id: UNIX + 3, source: 0 }]);
    assert_eq!(world.placed(), world.all(0), "reads go to the primary");
    let id = world.take();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
    world.rounds(10);
    assert!(world.asks.is_empty());
}

#[test]
fn what_was_given_and_is_not_in_the_log_is_not_used() {
    let mut world = World::new();
    world.rounds(1);
    let ask = world.asks.pop().unwrap();
    world.core.answered(&ask, Answer::Given, world.now);
    world.rounds(4);
    assert_eq!((world.placed(), world.asks.len()), (world.all(0), 0));
    // The log names an id that this controller did not ask for: another one may have used it.
    (world.known.id, world.known.on, world.known.slot) = (ask.id + 5, true, 2);
    world.rounds(4);
    assert_eq!(world.placed(), world.all(0));
    world.rounds(12);
    let id = world.take();
    assert!(id > ask.id + 5);
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
}

#[test]
fn a_refusal_is_said_once_and_asked_again_later() {
    let mut world = World::new();
    let mut asked = Vec::new();
    for _ in 0..60 {
        world.round();
        for ask in std::mem::take(&mut world.asks) {
            world.core.answered(&ask, Answer::Not("not now".to_owned()), world.now);
            asked.push(ask);
        }
    }
    assert!((4..8).contains(&asked.len()), "{}", asked.len());
    assert!(asked.is_sorted_by(|one, next| one.id < next.id), "an id whose fate is not known is not used");
    assert_eq!(asked.iter().map(|ask| ask.source).take(4).collect::<Vec<_>>(), [0, 1, 2, 0]);
    assert_eq!(world.news.iter().filter(|line| line.contains("not now")).count(), 1);
}

#[test]
fn a_new_term_takes_the_place_of_the_old_one() {
    let (mut world, id) = World::running();
    world.known.parts.remove(&11);
    world.known.parts.insert(13, part(2));
    world.known.slot += 1;
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
    assert!(world.asks.is_empty(), "it goes on under the group's id");
    // The old partition does not come back under the id.
    world.known.parts.insert(11, part(1));
    world.known.slot += 1;
    world.rounds(1);
    assert_eq!(world.placed()[&11], (1, 0, false, 3));
    assert_eq!(world.placed()[&12], (1, id, true, 3), "the others stay");
    let id = world.take();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
}

#[test]
fn a_partition_of_another_term_is_another_one() {
    let (mut world, _) = World::running();
    world.known.parts.insert(11, part(2));
    world.known.slot += 1;
    world.rounds(1);
    assert_eq!(world.placed()[&11], (2, 0, false, 3));
}

#[test]
fn a_new_life_needs_new_ids() {
    let (mut world, id) = World::running();
    (world.life, world.mastership, world.mark) = (6, 2, None);
    world.tables.clear();
    world.history.clear();
    world.rounds(2);
    assert_eq!(world.placed(), world.all(0));
    let next = world.take();
    assert!(next > id);
    world.rounds(1);
    assert_eq!(world.placed(), world.all(next));
    // The same holds if the same primary controller sees the program loaded anew.
    world.life = 7;
    world.tables.clear();
    world.history.clear();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(0));
    let last = world.take();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(last));
}

/// Replaces the controller by another one, or by itself after a break: it continues with the tables that it finds.
fn restarted(world: &mut World) {
    world.core = core(8);
    (world.mastership, world.mark, world.ids) = (1, None, Ids::default());
    world.unix += 10;
}

#[test]
fn a_restart_keeps_what_stayed_the_same() {
    let (mut world, id) = World::running();
    let before = world.tables.clone();
    restarted(&mut world);
    world.rounds(3);
    assert_eq!(world.tables, before);
    assert!(world.asks.is_empty());
    // A partition that changes later needs a new id, since the earlier ones are unknown.
    world.known.parts.insert(13, part(2));
    world.known.slot += 1;
    world.rounds(1);
    assert_eq!((world.placed()[&13].1, world.placed()[&11].1), (0, id));
    let next = world.take();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(next));
}

#[test]
fn a_restart_trusts_no_id_that_is_not_in_the_tables() {
    let (mut world, id) = World::running();
    // An earlier controller removed the partition.
    world.tables.remove(&Key::Partition(11));
    world.watch();
    restarted(&mut world);
    world.rounds(2);
    assert_eq!((world.placed()[&11].1, world.placed()[&12].1), (0, id));
    assert!(world.take() > id);
}

#[test]
fn nor_does_whoever_was_not_the_primary_for_a_while() {
    let (mut world, id) = World::running();
    world.tables.remove(&Key::Partition(11));
    world.watch();
    // The controller need not have seen that itself: its connection was broken.
    (world.mastership, world.mark, world.ids) = (2, None, Ids::default());
    world.rounds(2);
    assert_eq!((world.placed()[&11].1, world.placed()[&12].1), (0, id));
    let id = world.take();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
}

#[test]
fn a_restart_waits_for_peers_before_it_takes_anything_out() {
    let (mut world, id) = World::running();
    let before = world.tables.clone();
    restarted(&mut world);
    world.silent = [0, 1, 2].into();
    world.rounds(6);
    assert_eq!(world.tables, before);
    world.silent.clear();
    world.rounds(2);
    assert_eq!(world.placed(), world.all(id));
    // The wait for peers ends.
    restarted(&mut world);
    world.silent = [0, 1, 2].into();
    world.rounds(8);
    assert!(world.tables.is_empty());
}

#[test]
fn a_backup_writes_nothing_and_asks_nobody() {
    let (mut world, _) = World::running();
    world.core.switch_changed(&SyncState::Backup, world.now, world.unix);
    for peer in 0..3 {
        world.known.parts.insert(14, part(9));
        let report = world.report(peer);
        world.core.heard(peer, Ok(report), world.now);
    }
    let decision = world.core.decide(world.now, world.unix);
    assert_eq!((decision.wanted, decision.asks), (None, vec![]));
    // An answer that comes now belongs to another mastership.
    world.core.answered(&Ask { mastership: 1, group: GROUP, id: 9999, source: 0 }, Answer::Given, world.now);
    world.mastership = 2;
    world.rounds(2);
    assert_eq!(world.placed()[&14].1, 0);
}

#[test]
fn while_the_switch_does_not_answer_nobody_is_asked() {
    let mut world = World::new();
    for peer in 0..3 {
        let report = world.report(peer);
        world.core.heard(peer, Ok(report), world.now);
    }
    assert!(world.core.decide(world.now, UNIX).asks.is_empty());
    world.report_switch();
    world.core.switch_changed(&SyncState::Failing("gone".to_owned()), world.now, UNIX);
    assert!(world.core.decide(world.now, UNIX).asks.is_empty());
}

#[test]
fn whoever_is_silent_answers_no_reads() {
    let (mut world, id) = World::running();
    world.silent.insert(2);
    world.rounds(5);
    assert_eq!(world.placed(), world.all(id), "it may be that it was busy");
    world.rounds(3);
    assert_eq!(world.placed()[&11], (1, id, true, 2));
    // A silent primary remains the primary: only the group can replace it.
    world.silent.insert(0);
    world.rounds(8);
    assert_eq!(world.placed()[&11], (1, id, true, 1));
    world.silent.clear();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
    assert!(world.asks.is_empty());
}

#[test]
fn whoever_is_no_member_or_far_behind_answers_no_reads() {
    let (mut world, id) = World::running();
    world.known.members.remove(&name(2));
    world.known.slot += 1;
    world.rounds(1);
    assert_eq!(world.placed()[&11], (1, id, true, 2));
    // The peer comes back as a member, and does not know it yet.
    let behind = Known { epoch: 1, ..world.known.clone() };
    world.known.members.insert(name(2));
    (world.known.epoch, world.known.slot) = (2, world.known.slot + 1);
    world.silent.insert(2);
    world.rounds(1);
    let report = PeerReport { groups: [(GROUP, behind.clone())].into(), ..world.report(2) };
    world.core.heard(2, Ok(report), world.now);
    world.rounds(1);
    assert_eq!(world.placed()[&11], (1, id, true, 2));
    world.silent.clear();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
    // Its earlier state does not count either, from any source.
    let report = PeerReport { groups: [(GROUP, behind)].into(), ..world.report(0) };
    world.core.heard(0, Ok(report), world.now);
    let decision = world.core.decide(world.now, world.unix);
    assert_eq!(decision.wanted.unwrap().2.partitions[&11].replicas.len(), 2, "the one that is behind is taken out");
}

#[test]
fn without_an_endpoint_nobody_is_sent_anything() {
    let (mut world, id) = World::running();
    world.endpoints.remove(&1);
    world.rounds(1);
    assert_eq!(world.placed()[&11], (1, id, true, 2));
    world.endpoints.insert(1, "[::1]:7001".parse().unwrap());
    world.endpoints.remove(&0);
    world.rounds(1);
    assert!(world.placed().is_empty(), "the primary's is not known");
    assert!(world.news.iter().any(|line| line.contains("2 without a primary that takes packets")), "{:?}", world.news);
}

#[test]
fn a_group_at_rest_keeps_its_id() {
    let (mut world, id) = World::running();
    for (fit, calm) in [(true, false), (false, true)] {
        (world.known.fit, world.known.calm, world.known.slot) = (fit, calm, world.known.slot + 1);
        world.rounds(1);
        assert_eq!(world.placed()[&11], (1, id, false, 3));
        (world.known.fit, world.known.calm, world.known.slot) = (true, true, world.known.slot + 1);
        world.rounds(1);
        assert_eq!(world.placed(), world.all(id));
    }
    assert!(world.asks.is_empty());
    // An id that the group has left is over.
    (world.known.on, world.known.slot) = (false, world.known.slot + 1);
    world.rounds(1);
    assert_eq!(world.placed(), world.all(0));
    world.take();
}

#[test]
fn a_group_that_no_switch_fits_gets_nothing() {
    let mut world = World::new();
    (world.known.fit, world.known.why) = (false, "they stand apart".to_owned());
    world.rounds(3);
    assert!(world.placed().is_empty() && world.asks.is_empty());
    assert_eq!(world.news.iter().filter(|line| line.contains("they stand apart")).count(), 1);
    (world.known.fit, world.known.calm, world.known.slot) = (true, false, 2);
    world.rounds(2);
    assert!(world.asks.is_empty(), "it could not take one now");
}

#[test]
fn a_group_that_is_gone_is_taken_out() {
    let (mut world, _) = World::running();
    for _ in 0..12 {
        world.now += Duration::from_millis(500);
        for peer in 0..3 {
            let report = PeerReport { groups: BTreeMap::new(), ..world.report(peer) };
            world.core.heard(peer, Ok(report), world.now);
        }
    }
    let decision = world.core.decide(world.now, world.unix);
    assert!(decision.wanted.unwrap().2.partitions.is_empty());
}

#[test]
fn there_is_an_end_to_room() {
    let mut world = World::new();
    world.known.parts = (0..6).map(|number| (number, part(1))).collect();
    world.rounds(1);
    let id = world.take();
    world.rounds(2);
    assert_eq!(world.placed().len(), 4);
    assert!(world.placed().values().all(|placed| placed.1 == id));
    assert!(world.asks.is_empty() && world.news.iter().any(|line| line.contains("2 without room")), "{:?}", world.news);
}

#[test]
fn one_name_is_one_groups() {
    let (mut world, id) = World::running();
    let mut report = world.report(0);
    report.groups.insert(Group(8), Known { id: 1, on: true, ..world.known.clone() });
    world.core.heard(0, Ok(report), world.now);
    let decision = world.core.decide(world.now, world.unix);
    assert_eq!((decision.wanted, decision.asks), (None, vec![]));
    assert!(decision.news.iter().any(|line| line.contains("2 named like another group's")), "{:?}", decision.news);
    assert_eq!(world.placed(), world.all(id));
}

#[test]
fn what_was_held_back_needs_a_new_id() {
    let (mut world, id) = World::running();
    let Some(Value::Partition(setting)) = world.tables.get_mut(&Key::Partition(11)) else { panic!() };
    (setting.switch, setting.active) = (0, false);
    world.watch();
    world.ids = Ids::default();
    world.rounds(2);
    assert_eq!((world.placed()[&11].1, world.placed()[&12].1), (0, id));
    assert!(world.take() > id);
}

#[test]
fn what_cannot_be_remembered_costs_new_ids() {
    let (mut world, first) = World::running();
    let mut asked = 0;
    for term in 2..40 {
        // Each time another partition comes, under the same id for as long as that is known to be right.
        world.known.parts.remove(&(10 + term));
        world.known.parts.insert(11 + term, part(u64::from(term)));
        world.known.slot += 1;
        world.rounds(3);
        if !world.asks.is_empty() {
            world.take();
            asked += 1;
            world.rounds(1);
        }
        assert_eq!(world.placed(), world.all(world.known.id));
    }
    assert!((1..10).contains(&asked) && world.known.id > first, "{asked}");
}

#[test]
fn all_that_is_bad_is_said_once() {
    let (mut world, _) = World::running();
    world.silent.insert(1);
    world.rounds(20);
    assert_eq!(world.news.iter().filter(|line| line.contains("no answer")).count(), 1, "{:?}", world.news);
    assert!(world.news.len() <= 2, "{:?}", world.news);
}

/// Event of a random run.
#[derive(Clone, Debug)]
enum Event {
    Rounds(usize),
    /// This partition comes, is of another term, or goes.
    Part(u32, u64, bool),
    Silent(usize, bool),
    Endpoint(usize, bool),
    State {
        fit: bool,
        calm: bool,
        on: bool,
    },
    /// An administrator names an id, this much above the last one.
    Named(u32),
    /// The group takes the id that it is asked for, or reports that it did, or neither.
    Answer {
        takes: bool,
        says: bool,
    },
    /// The controller begins anew, or was not the primary one for a while, with or without its knowledge. Another controller may
    /// have removed this partition.
    Restart(Option<u32>),
    Break(Option<u32>, bool),
    Life,
}

fn event() -> impl Strategy<Value = Event> {
    let taken = proptest::option::of(0u32..3);
    let mostly = || proptest::bool::weighted(0.8);
    prop_oneof![
        8 => (1usize..9).prop_map(Event::Rounds),
        6 => (0u32..3, 1u64..3, any::<bool>()).prop_map(|(number, term, is)| Event::Part(number, term, is)),
        1 => (0usize..3, any::<bool>()).prop_map(|(peer, is)| Event::Silent(peer, is)),
        2 => (0usize..3, mostly()).prop_map(|(peer, is)| Event::Endpoint(peer, is)),
        2 => (mostly(), mostly(), mostly()).prop_map(|(fit, calm, on)| Event::State { fit, calm, on }),
        1 => (1u32..5).prop_map(Event::Named),
        6 => (mostly(), mostly()).prop_map(|(takes, says)| Event::Answer { takes, says }),
        1 => taken.clone().prop_map(Event::Restart),
        1 => (taken, any::<bool>()).prop_map(|(taken, is_seen)| Event::Break(taken, is_seen)),
        1 => Just(Event::Life),
    ]
}

impl World {
    fn take_out(&mut self, number: Option<u32>) {
        number.map(|number| self.tables.remove(&Key::Partition(number)));
        self.watch();
        self.unix += 1;
        self.ids = Ids::default();
    }

    fn on(&mut self, event: Event) {
        let known = &mut self.known;
        known.slot += 1;
        match event {
            Event::Rounds(count) => self.rounds(count),
            Event::Part(number, term, true) => drop(known.parts.insert(number, part(term))),
            Event::Part(number, _, false) => drop(known.parts.remove(&number)),
            Event::Silent(peer, true) => drop(self.silent.insert(peer)),
            Event::Silent(peer, false) => drop(self.silent.remove(&peer)),
            Event::Endpoint(peer, true) => {
                self.endpoints.insert(peer as u32, SocketAddr::from(([10, 0, 0, 1], 7000 + peer as u16)));
            }
            Event::Endpoint(peer, false) => drop(self.endpoints.remove(&(peer as u32))),
            // An id that was left is not used again.
            Event::State { fit, calm, on } => (known.fit, known.calm, known.on) = (fit, calm, on && known.on),
            Event::Named(above) => (known.id, known.on) = (known.id + above, true),
            Event::Answer { takes, says } => {
                for ask in std::mem::take(&mut self.asks) {
                    let is_taken = takes && ask.id > self.known.id;
                    if is_taken {
                        (self.known.id, self.known.on) = (ask.id, true);
                    }
                    // Of all controllers that ask for an id, one is told that it has the id.
                    let is_given = says && is_taken;
                    let answer = if is_given { Answer::Given } else { Answer::Not("who knows".to_owned()) };
                    self.core.answered(&ask, answer, self.now);
                }
            }
            Event::Restart(taken) => {
                self.take_out(taken);
                self.core = core(8);
                (self.mastership, self.mark) = (1, None);
                self.asks.clear();
            }
            Event::Break(taken, is_seen) => {
                self.take_out(taken);
                if is_seen {
                    self.core.switch_changed(&SyncState::Backup, self.now, self.unix);
                }
                (self.mastership, self.mark) = (self.mastership + 1, None);
            }
            Event::Life => {
                (self.life, self.mastership, self.mark) = (self.life + 1, self.mastership + 1, None);
                // All ids of an earlier life are over for good.
                let lives = std::mem::take(&mut self.history).into_keys();
                self.over.extend(lives.map(|(_, id)| id));
                self.tables.clear();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Rule S1 holds under any events; and in the end all is well.
    #[test]
    fn no_id_comes_back(events in proptest::collection::vec(event(), 1..60)) {
        let mut world = World::new();
        events.into_iter().for_each(|event| world.on(event));
        world.silent.clear();
        world.endpoints = World::new().endpoints;
        // As many partitions as there is room for.
        while world.known.parts.len() > 4 {
            world.known.parts.pop_first();
        }
        (world.known.fit, world.known.calm, world.known.slot) = (true, true, world.known.slot + 1);
        // Longer than a group is left to another controller.
        world.now += Duration::from_secs(400);
        for _ in 0..80 {
            world.on(Event::Answer { takes: true, says: true });
            world.round();
        }
        prop_assert_eq!(world.placed(), world.all(if world.known.parts.is_empty() { 0 } else { world.known.id }));
    }
}
