//! One peer of the DHT: entry, messages, and periodic work.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use node::{Class, Event, Input, NodeConfig, Output, Restored};
use overlay::time::{Now, Time};
use overlay::{PeerKey, Point};

use super::copies::{Copies, Copy, Version};
use super::leaves::{LeafView, Leaves};
use super::message::{Contact, Errand, Frame, Message};
use super::operations::DhtOperation;
use super::routing::Hop;
use super::table::RoutingTable;
use crate::rng::Rng;
use crate::sim::Host;

/// Interval at which leaves are exchanged with one leaf.
const EXCHANGE_EVERY: Duration = Duration::from_secs(1);
/// Interval at which copies are compared with one leaf.
const COMPARE_EVERY: Duration = Duration::from_secs(5);
/// Time after which a newcomer begins anew.
const ENTER_WITHIN: Duration = Duration::from_secs(2);
/// Time after which a dropped peer is asked again, unless it is heard before.
const GONE_FOR: Duration = Duration::from_secs(30);
/// Upper limit of copies in one frame.
const COPIES_MAX: usize = 500;

/// Stages of a peer's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Asks connected peers for its leaves.
    Seeking,
    /// Waits for its copies.
    Fetching,
    /// Part of the ring.
    Entered,
}

/// Next moments of a peer's periodic work.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    heartbeat: Time,
    exchange: Time,
    look: Time,
    compare: Time,
    enter: Time,
}

/// A peer of the DHT.
#[derive(Debug)]
pub struct Peer {
    pub(super) me: Contact,
    pub(super) now: Now,
    pub(super) rng: Rng,
    stage: Stage,
    connected: BTreeSet<PeerKey>,
    pub(super) leaves: Leaves,
    pub(super) table: RoutingTable,
    pub(super) copies: Copies,
    /// Dropped leaves, each with the end of the time in which it is not asked.
    gone: BTreeMap<PeerKey, Time>,
    pub(super) hops: BTreeMap<u64, Hop>,
    /// Round trips of acknowledged hops.
    pub(super) round_trips: BTreeMap<PeerKey, Duration>,
    pub(super) operations: BTreeMap<u64, DhtOperation>,
    /// The last number that was given to a hop, an errand or a put.
    numbers: u64,
    /// Number of looks at cells of the table so far.
    looks: u64,
    /// Gets and puts that this peer executed as root.
    pub(super) executed: u64,
    heartbeat_every: Duration,
    silence: Duration,
    look_every: Duration,
    due: Due,
    outputs: VecDeque<Output>,
}

impl Host for Peer {
    fn start(config: NodeConfig, seed: u64, now: Now, _: Restored) -> Peer {
        let me = Contact { peer: config.me, address: String::new() };
        let due = Due { enter: now.time, heartbeat: now.time, ..Due::default() };
        let mut peer = Peer {
            leaves: Leaves::new(config.me),
            table: RoutingTable::new(me.id()),
            me,
            now,
            rng: Rng::new(seed, "baseline"),
            stage: if config.found { Stage::Entered } else { Stage::Seeking },
            connected: BTreeSet::new(),
            copies: Copies::default(),
            gone: BTreeMap::new(),
            hops: BTreeMap::new(),
            round_trips: BTreeMap::new(),
            operations: BTreeMap::new(),
            numbers: 0,
            looks: 0,
            executed: 0,
            heartbeat_every: config.timing.heartbeat,
            silence: config.timing.heartbeat * config.timing.missed_max,
            look_every: config.timing.look_around,
            due,
            outputs: VecDeque::new(),
        };
        if config.found {
            peer.outputs.push_back(Output::Event(Event::Ready));
        }
        peer
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.now = now;
        match input {
            Input::Addresses(addresses) => self.me.address = addresses.into_iter().next().unwrap_or_default(),
            Input::PeerUp(peer) => {
                self.connected.insert(peer);
            }
            Input::PeerDown(peer) => {
                self.connected.remove(&peer);
                self.leaves.suspect(peer);
                self.table.forget(peer);
            }
            Input::Frame { from, frame } => {
                if let Ok(Frame { address, message }) = postcard::from_bytes(&frame) {
                    self.on_message(Contact { peer: from, address }, message);
                }
            }
            Input::Routecast(request) => self.on_request(request),
            _ => {}
        }
        self.tick();
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Peer {
    /// Returns whether this peer takes itself for the root of a point.
    pub fn is_root(&self, point: Point) -> bool {
        self.has_entered() && self.next_hop(point).is_none()
    }

    /// Returns the gets and puts that this peer has executed as root since it started.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    pub(super) fn has_entered(&self) -> bool {
        self.stage == Stage::Entered
    }

    /// Returns a number that was not given before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Sends a message; connects before that, where there is no connection.
    pub(super) fn send(&mut self, to: &Contact, message: Message) {
        if !self.connected.contains(&to.peer) {
            self.push(Output::Dial { peer: to.peer, addresses: vec![to.address.clone()] });
        }
        self.send_connected(to.peer, message);
    }

    fn send_connected(&mut self, to: PeerKey, message: Message) {
        let class = match message {
            Message::Heartbeat | Message::Probe => Class::Control,
            Message::Copies { done: _, .. } | Message::Compare(_) | Message::Lacks(_) => Class::Bulk,
            _ => Class::Data,
        };
        let frame = Frame { address: self.me.address.clone(), message };
        if let Ok(frame) = postcard::to_allocvec(&frame) {
            self.push(Output::Send { to, class, frame: frame.into() });
        }
    }

    fn on_message(&mut self, from: Contact, message: Message) {
        self.gone.remove(&from.peer);
        if self.leaves.contains(from.peer) {
            self.leaves.hear(&from, self.now.time);
        }
        match message {
            Message::Heartbeat => self.on_alive(&from),
            Message::Probe if self.has_entered() => self.send(&from, Message::Heartbeat),
            Message::Probe => {}
            Message::Leaves { leaves, wants } => {
                self.consider(&leaves);
                if wants && self.has_entered() {
                    self.tell_leaves(&from, false);
                }
            }
            Message::Hop(number, routed) => {
                self.send(&from, Message::Arrived(number));
                if self.has_entered() {
                    self.route(routed);
                }
            }
            Message::Arrived(number) => self.on_arrived(number),
            Message::Welcome { leaves, table } => self.on_welcome(&from, &leaves, &table),
            Message::Found => self.table.learn(&from, true),
            Message::Got(number, value) => self.on_got(number, value),
            Message::Stored(number) => self.on_stored(number),
            Message::Fetch => self.on_fetch(&from),
            Message::Copies { copies, done } => self.on_copies(copies, done),
            Message::Compare(all) => self.on_compare(&from, all),
            Message::Lacks(names) => {
                let copies = names.iter().filter_map(|name| self.copies.get(name)).collect();
                self.send_copies(from.peer, copies, false);
            }
        }
    }

    /// Compares copies with those that a root wants here, and asks for the lacking ones.
    fn on_compare(&mut self, from: &Contact, all: Vec<(Bytes, Version)>) {
        let is_lacking = |(name, version): &(Bytes, Version)| self.copies.version(name) < Some(*version);
        let lacks: Vec<Bytes> = all.into_iter().filter(is_lacking).map(|(name, _)| name).collect();
        if !lacks.is_empty() {
            self.send(from, Message::Lacks(lacks));
        }
    }

    /// Notes a peer that has entered, and lives.
    fn on_alive(&mut self, from: &Contact) {
        let before = self.leaves.view();
        if self.leaves.hear(from, self.now.time) {
            self.table.learn(from, true);
            self.send(from, if self.has_entered() { Message::Heartbeat } else { Message::Probe });
            self.on_leaves_changed(&before);
        } else if !self.leaves.contains(from.peer) && self.has_entered() {
            // The sender takes this peer for a leaf, and knows too few peers between them.
            self.tell_leaves(from, false);
        }
    }

    /// Asks peers that may be leaves whether they live.
    fn consider(&mut self, candidates: &[Contact]) {
        for contact in candidates {
            let is_known = contact.peer == self.me.peer || self.leaves.contains(contact.peer);
            if is_known || self.gone.contains_key(&contact.peer) {
                continue;
            }
            self.table.learn(contact, false);
            if self.leaves.fits(contact.id()) {
                self.send(contact, Message::Probe);
            }
        }
    }

    fn tell_leaves(&mut self, to: &Contact, wants: bool) {
        let leaves = self.leaves.contacts().cloned().collect();
        self.send(to, Message::Leaves { leaves, wants });
    }

    /// Sends copies where they must be now.
    fn on_leaves_changed(&mut self, before: &LeafView) {
        if self.has_entered() {
            let to = self.copies.for_change(self.me.peer, before, &self.leaves.view());
            to.into_iter().for_each(|(peer, copies)| self.send_copies(peer, copies, false));
        }
    }

    /// Sends copies to a leaf or a newcomer.
    pub(super) fn send_copies(&mut self, to: PeerKey, copies: Vec<Copy>, done: bool) {
        let parts = copies.len().div_ceil(COPIES_MAX);
        for (index, part) in copies.chunks(COPIES_MAX).enumerate() {
            self.send_connected(to, Message::Copies { copies: part.to_vec(), done: done && index + 1 == parts });
        }
        if parts == 0 && done {
            self.send_connected(to, Message::Copies { copies, done });
        }
    }

    fn on_copies(&mut self, copies: Vec<Copy>, done: bool) {
        for copy in copies {
            self.copies.keep(copy);
        }
        if done && self.stage == Stage::Fetching {
            self.stage = Stage::Entered;
            self.due.heartbeat = self.now.time;
            self.push(Output::Event(Event::Ready));
        }
    }

    /// Sends a newcomer the copies that it will hold.
    fn on_fetch(&mut self, from: &Contact) {
        let mut with_it = self.leaves.clone();
        with_it.hear(from, self.now.time);
        let copies = self.copies.for_newcomer(from.peer, &with_it.view());
        self.send_copies(from.peer, copies, true);
    }

    fn on_welcome(&mut self, root: &Contact, leaves: &[Contact], table: &[Contact]) {
        if self.stage != Stage::Seeking {
            return;
        }
        self.stage = Stage::Fetching;
        self.due.enter = self.now.time + ENTER_WITHIN;
        table.iter().for_each(|contact| self.table.learn(contact, false));
        self.consider(leaves);
        self.send(root, Message::Fetch);
    }

    /// Does the periodic work that is due.
    fn tick(&mut self) {
        let now = self.now.time;
        if self.stage != Stage::Entered && now >= self.due.enter {
            self.seek();
        }
        if now >= self.due.heartbeat {
            self.due.heartbeat = now + self.heartbeat_every;
            self.beat();
        }
        if self.has_entered() {
            self.tend();
        }
        self.retry_hops();
        self.retry_operations();
        let next = [self.due.heartbeat, self.due.exchange, self.due.look, self.due.compare];
        let next =
            if self.has_entered() { next } else { [self.due.heartbeat, self.due.enter, Time::NEVER, Time::NEVER] };
        let hops = self.hops.values().map(|hop| hop.until);
        let operations = self.operations.values().map(DhtOperation::next);
        let at = next.into_iter().chain(hops).chain(operations).min().unwrap_or(Time::NEVER);
        self.push(Output::WakeAt(at));
    }

    /// Asks a connected peer, drawn at random, for this peer's leaves.
    fn seek(&mut self) {
        self.stage = Stage::Seeking;
        self.due.enter = self.now.time + ENTER_WITHIN / 2;
        let connected: Vec<PeerKey> = self.connected.iter().copied().collect();
        if connected.is_empty() {
            return;
        }
        let to = *self.rng.pick(&connected);
        let routed = self.routed(self.me.id(), Errand::Join);
        let number = self.number();
        self.send_connected(to, Message::Hop(number, routed));
    }

    /// Sends heartbeats, and drops the leaves that have missed too many.
    fn beat(&mut self) {
        let now = self.now.time;
        self.gone.retain(|_, until| *until > now);
        let before = self.leaves.view();
        let gone = self.leaves.drop_silent(now, self.silence);
        for contact in &gone {
            self.gone.insert(contact.peer, now + GONE_FOR);
            self.table.forget(contact.peer);
        }
        if self.has_entered() {
            let leaves: Vec<PeerKey> = self.leaves.contacts().map(|contact| contact.peer).collect();
            leaves.into_iter().for_each(|leaf| self.send_connected(leaf, Message::Heartbeat));
        }
        if !gone.is_empty() {
            self.on_leaves_changed(&before);
            let outermost = self.leaves.outermost();
            outermost.iter().for_each(|leaf| self.tell_leaves(leaf, true));
        }
    }

    /// Keeps leaves, table and copies in order.
    fn tend(&mut self) {
        let now = self.now.time;
        let leaves: Vec<Contact> = self.leaves.contacts().cloned().collect();
        if now >= self.due.exchange {
            self.due.exchange = now + EXCHANGE_EVERY;
            if !leaves.is_empty() {
                let leaf = self.rng.pick(&leaves).clone();
                self.tell_leaves(&leaf, true);
            }
        }
        if now >= self.due.look {
            self.due.look = now + self.look_every;
            self.look();
        }
        if now >= self.due.compare {
            self.due.compare = now + COMPARE_EVERY;
            if !leaves.is_empty() {
                let leaf = self.rng.pick(&leaves).clone();
                self.compare(&leaf);
            }
        }
    }

    /// Looks for a peer for one cell of the table.
    fn look(&mut self) {
        self.looks += 1;
        let chance = u128::from(self.rng.bits()) << 64 | u128::from(self.rng.bits());
        let point = self.table.point_of_cell(self.looks, self.table.rows(), chance);
        if !self.leaves.covers(point) {
            let routed = self.routed(point, Errand::Find);
            self.route(routed);
        }
    }

    /// Compares copies with a leaf, and hands on those that this peer need not hold.
    fn compare(&mut self, leaf: &Contact) {
        let view = self.leaves.view();
        let all = self.copies.to_compare(self.me.peer, leaf.peer, &view);
        if !all.is_empty() {
            self.send(leaf, Message::Compare(all));
        }
        let surplus = self.copies.take_surplus(self.me.peer, &view);
        surplus.into_iter().for_each(|(peer, copies)| self.send_copies(peer, copies, false));
    }
}
