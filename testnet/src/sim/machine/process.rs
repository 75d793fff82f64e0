//! Starts and ends of processes, and the execution of their outputs.

use std::collections::BTreeSet;
use std::time::Duration;

use node::{Event as NodeEvent, Input, Output, RequestId};
use overlay::PeerKey;
use overlay::time::Time;

use crate::rng::Rng;
use crate::sim::host::Host;
use crate::sim::machine::clock::Clocks;
use crate::sim::machine::store::Persist;
use crate::sim::machine::{ProcessState, Return, new_key};
use crate::sim::network::Flight;
use crate::sim::queue::Event;
use crate::sim::workload::Ask;
use crate::sim::world::World;

/// Time after a node's deadline for an answer at which the client gives up.
const GRACE: Duration = Duration::from_secs(2);

/// Number of machines above which a machine is not started with the addresses of all.
const NETWORK_SMALL: usize = 64;
/// Number of addresses that it is started with then.
const CONTACTS: usize = 8;

/// Texts that nodes note, each with the mark that is counted for it.
const NOTES: [(&str, &str); 7] = [
    ("from the data that it held before", "node: entered anew with what it held before"),
    ("to take in", "group: newcomers were let in"),
    ("these members from now on", "group: members changed"),
    ("that all is there", "group: an epoch was established"),
    ("to let go of tombstones", "group: tombstones were let go of"),
    ("copies again", "group: a copy fell short"),
    ("that were copied before", "node: born with what was copied before"),
];

impl<H: Host> World<H> {
    pub(in crate::sim) fn on_output(&mut self, host: usize, output: Output) {
        let life = self.machines[host].life;
        match output {
            Output::Send { to, class, frame } => {
                if let Some(&peer) = self.peers.get(&to) {
                    self.send(Flight { from: host, to: peer, life: self.machines[peer].life, class, frame });
                }
            }
            Output::Persist { token, changes } => match self.machines[host].store.persist(token, changes) {
                Persist::Starts => self.queue_sync(host),
                Persist::Fails => {
                    self.marks.hit("store: a call failed");
                    let input = Input::StoreFailed("the disk says no".into());
                    self.queue_in(Duration::from_micros(50), Event::Input { host, life, input });
                }
                Persist::Waits | Persist::Ignored => {}
            },
            Output::Load { record_key, .. } => {
                let record = self.machines[host].store.load(&record_key);
                let delay = self.load_time();
                self.queue_in(delay, Event::Input { host, life, input: Input::Loaded { record_key, record } });
            }
            Output::Scan { token, from, bytes_max } => {
                let (records, done) = self.machines[host].store.scan(&from, bytes_max);
                let delay = self.load_time();
                self.queue_in(delay, Event::Input { host, life, input: Input::Scanned { token, records, done } });
            }
            Output::Reply { id, result } => {
                let numbers = [host as u64, id.0];
                self.trace.note(self.now, &numbers, &[], || format!("{host} answers {id:?}: {result:?}"));
                match self.workload.answered(id, self.now, result, &mut self.marks) {
                    Ok(Some(client)) => self.queue_client(client),
                    Ok(None) => {}
                    Err(detail) => self.fail("one answer to each request", detail),
                }
            }
            // No client waits for these results: they are traced alone.
            Output::AdminOutcome { outcome, .. } => {
                let said = format!("request: {outcome:?}");
                self.trace.note(self.now, &[host as u64], said.as_bytes(), || format!("{host}: {said}"));
            }
            Output::RingWalked { .. } => {}
            Output::Packet { to, bytes } => self.send_packet(host, to, bytes),
            Output::WakeAt(local) => self.wake_at(host, local),
            Output::Dial { peer, addresses } => {
                if let Some(&index) = self.peers.get(&peer) {
                    if addresses.iter().any(|address| *address == address_of(index)) {
                        self.connections.learn(host, index);
                    }
                    self.dial(host, index);
                }
            }
            Output::Event(event) => self.on_node_event(host, event),
        }
    }

    /// Sends a frame over the connection between two machines, or lets it wait for one.
    fn send(&mut self, flight: Flight) {
        let (host, peer) = (flight.from, flight.to);
        if peer == host {
            return self.marks.hit("node: sent a frame to itself");
        }
        if self.connections.is_up(host, peer) {
            return self.launch(flight);
        }
        self.dial(host, peer);
        let waits = self.connections.wait(flight);
        self.marks.hit(if waits {
            "network: a frame waited for its connection"
        } else {
            "network: a frame had no connection"
        });
    }

    fn on_node_event(&mut self, host: usize, event: NodeEvent) {
        self.trace.note(self.now, &[host as u64], &[], || format!("{host} says {event:?}"));
        match event {
            NodeEvent::InRing(ring) => self.machines[host].ring = Some(ring),
            NodeEvent::Ready => self.machines[host].ready = true,
            NodeEvent::NotReady => self.machines[host].ready = false,
            NodeEvent::Stopped => {
                self.marks.hit("machine: stopped cleanly");
                self.end(host, None);
            }
            NodeEvent::Note(text) => {
                for (_, mark) in NOTES.iter().filter(|(words, _)| text.contains(words)) {
                    self.marks.hit(mark);
                }
            }
            NodeEvent::Left => {
                self.marks.hit("machine: left for good");
                self.end(host, None);
                self.machines[host].ring = None;
                let away = self.chance.duration(Duration::from_millis(10), Duration::from_secs(3));
                self.come_back(host, away, Return::Empty);
            }
            NodeEvent::Twin(_) => {
                self.marks.hit("machine: another process had its identity");
                self.end(host, Some(0));
            }
            NodeEvent::Fatal(_) => {
                self.marks.hit("machine: could not go on");
                let kept = self.kept(host);
                self.end(host, Some(kept));
                self.come_back(host, Duration::from_secs(1), Return::WithStore);
            }
            NodeEvent::Quarantine(_) => {
                self.marks.hit("machine: what it held was declared lost");
                self.end(host, Some(0));
                self.come_back(host, Duration::from_millis(100), Return::Empty);
            }
            NodeEvent::Reincarnate { former, .. } => {
                self.marks.hit("machine: began anew by itself");
                let kept = self.kept(host);
                self.end(host, Some(kept));
                self.come_back(host, Duration::from_millis(100), Return::Anew(former));
            }
            NodeEvent::StartAgain(_) => {
                self.marks.hit("machine: started again, as its store may be older");
                let kept = self.kept(host);
                self.end(host, Some(kept));
                self.come_back(host, Duration::from_millis(100), Return::WithStore);
            }
            NodeEvent::Damaged(_) => {
                self.marks.hit("machine: began anew, its store being damaged");
                self.end(host, Some(0));
                self.come_back(host, Duration::from_millis(100), Return::Empty);
            }
            _ => {}
        }
    }

    fn load_time(&mut self) -> Duration {
        let (low, high) = self.scenario.load_time;
        self.chance.duration(low, high)
    }

    /// Draws the number of non-durable batches that happen to be on disk.
    pub(in crate::sim) fn kept(&mut self, host: usize) -> usize {
        let unsynced = self.machines[host].store.unsynced();
        if unsynced > 0 {
            self.marks.hit("machine: died with unsynced batches");
        }
        self.chance.below(unsynced as u64 + 1) as usize
    }

    /// Ends a process: it dies and keeps `kept` of the batches that are not durable, or it stopped cleanly.
    pub(in crate::sim) fn end(&mut self, host: usize, kept: Option<usize>) {
        let machine = &mut self.machines[host];
        if machine.state == ProcessState::Down {
            return;
        }
        match kept {
            Some(kept) => machine.store.crash(kept),
            None => machine.store.seal(),
        }
        machine.state = ProcessState::Down;
        machine.kept = machine.host.as_deref().and_then(H::node);
        machine.host = None;
        machine.inbox.clear();
        machine.ready = false;
        machine.disturbed = self.now;
        let life = machine.life;
        self.trace.note(self.now, &[host as u64], &[], || format!("{host} is down, after life {life}"));
        self.probes.forget(host);
        for client in self.workload.host_died(host, self.now) {
            self.queue_client(client);
        }
        for peer in 0..self.machines.len() {
            if self.connections.broken(host, peer) {
                self.network.forget_held(peer, host);
                // The kernel closes at once, or the machine fell silent and keep-alive notices that.
                let delay =
                    if self.chance.per_mille(700) { self.network.delay(host, peer) } else { Duration::from_secs(10) };
                self.queue_notice(peer, host, delay);
            }
        }
        self.connections.forget(host);
    }

    /// Ends a machine's peer for good. A new peer, with a key and an empty store of its own, starts there `after` that. No rule
    /// spares a group that cannot survive this.
    pub fn replace(&mut self, host: usize, after: Duration) {
        self.marks.hit("machine: replaced by a new peer");
        self.end(host, Some(0));
        let machine = &mut self.machines[host];
        let former = machine.key;
        if let Some(node) = machine.kept {
            self.probes.forget_node(node);
        }
        self.connections.replace(host);
        let machine = &mut self.machines[host];
        machine.key = new_key(host, &mut self.chance);
        (machine.ring, machine.kept, machine.forgot, machine.returns) = (None, None, false, None);
        self.peers.remove(&former);
        self.peers.insert(machine.key, host);
        self.come_back(host, after, Return::Empty);
    }

    /// Leaves a machine without a process that was not started yet, until [`World::replace`] starts one there.
    pub fn hold_back(&mut self, host: usize) {
        self.machines[host].returns = None;
    }

    /// Plans the return of a process that is down, unless another return is planned already.
    pub(in crate::sim) fn come_back(&mut self, host: usize, after: Duration, how: Return) {
        let machine = &mut self.machines[host];
        if machine.state == ProcessState::Down && machine.returns.is_none() {
            machine.returns = Some(how);
            let life = machine.life;
            self.queue_in(after, Event::Restart { host, life });
        }
    }

    pub(in crate::sim) fn on_restart(&mut self, host: usize, life: u32) {
        let machine = &mut self.machines[host];
        if machine.state != ProcessState::Down || machine.life != life {
            return;
        }
        let Some(how) = machine.returns.take() else { return };
        machine.former = if let Return::Anew(former) = how { Some(former) } else { None };
        if how == Return::Empty {
            machine.store.wipe();
            machine.forgot = false;
        }
        if how != Return::WithStore {
            // A peer that starts anew does not ask for a new network.
            machine.founder = false;
        }
        machine.life += 1;
        machine.doomed = false;
        machine.wake_at = None;
        machine.wake_queued = None;
        machine.turn_queued = false;
        machine.busy_until = self.now;
        machine.disturbed = self.now;
        machine.state = if machine.frozen > 0 { ProcessState::Frozen } else { ProcessState::Running };
        let restored = machine.store.open();
        let drift = u64::from(self.scenario.drift_ppm);
        let rate = self.chance.below(2 * drift + 1) as i32 - drift as i32;
        // A steady clock starts at any value.
        let base = Time(self.chance.between(1_000_000_000_000, 9_000_000_000_000));
        machine.clocks = Clocks::new(self.now, base, rate);
        let (life, tail) = (machine.life, restored.tail);
        self.trace.note(self.now, &[host as u64], &[], || format!("{host} starts life {life} with {tail:?}"));
        let seed = Rng::new(self.scenario.seed ^ (u64::from(life) << 32) ^ host as u64, "node").bits();
        let now = self.machines[host].clocks.at(self.now);
        let config = self.machines[host].config(host, &self.scenario, self.now);
        let mut process = H::start(config, seed, now, restored);
        process.handle(now, Input::Addresses(vec![address_of(host)]));
        self.obey(host, &mut process);
        if self.machines[host].state != ProcessState::Down {
            self.machines[host].host = Some(Box::new(process));
            self.on_join(host, life);
        }
    }

    /// Connects to the peers that the machine was started with, until there is a connection.
    pub(in crate::sim) fn on_join(&mut self, host: usize, life: u32) {
        let machine = &self.machines[host];
        if machine.life != life || machine.state == ProcessState::Down {
            return;
        }
        let n = self.machines.len();
        // The peers that it knows may be outside, too: it goes on looking until it can serve.
        if machine.ready && (0..n).any(|peer| peer != host && self.connections.is_up(host, peer)) {
            return;
        }
        let all = host == 0 || machine.life > 1;
        let contacts = match n > NETWORK_SMALL {
            true => self.living_contacts(host),
            false => (0..if all { n } else { 1 }).filter(|peer| *peer != host).collect(),
        };
        for peer in contacts {
            self.connections.learn(host, peer);
            self.dial(host, peer);
        }
        self.queue_in(Duration::from_secs(1), Event::Join { host, life });
    }

    /// Returns up to [`CONTACTS`] machines that run, drawn at random: in a large network no machine is started with the addresses
    /// of all.
    fn living_contacts(&mut self, host: usize) -> BTreeSet<usize> {
        let mut contacts = BTreeSet::new();
        // A few more draws than places, as some machines are down.
        for _ in 0..4 * CONTACTS {
            let peer = self.chance.below(self.machines.len() as u64) as usize;
            if peer != host && self.machines[peer].state == ProcessState::Running {
                contacts.insert(peer);
            }
            if contacts.len() == CONTACTS {
                break;
            }
        }
        contacts
    }

    fn dial(&mut self, host: usize, peer: usize) {
        if self.connections.dial(self.now, host, peer) {
            let delay = self.network.delay(host, peer) + self.network.delay(peer, host) * 2;
            let lives = (self.machines[host].life, self.machines[peer].life);
            self.queue_in(delay, Event::Connected { a: host, b: peer, lives });
        }
    }

    pub(in crate::sim) fn on_connected(&mut self, a: usize, b: usize, lives: (u32, u32)) {
        let alive =
            |host: usize, life| self.machines[host].state == ProcessState::Running && self.machines[host].life == life;
        let heard = !self.network.is_blocked(a, b) && !self.network.is_blocked(b, a);
        if !alive(a, lives.0) || !alive(b, lives.1) || !heard {
            self.connections.not_made(a, b);
            return;
        }
        let told = self.connections.made(a, b);
        for (host, peer, told) in [(a, b, told.0), (b, a, told.1)] {
            if !told {
                continue;
            }
            let key = self.machines[peer].key;
            self.trace.note(self.now, &[host as u64, peer as u64], &[], || format!("{host} is connected to {peer}"));
            self.deliver(host, Input::PeerUp(key));
        }
        for flight in self.connections.take_waiting(a, b) {
            let life = self.machines[flight.to].life;
            self.launch(Flight { life, ..flight });
        }
    }

    pub(in crate::sim) fn queue_notice(&mut self, host: usize, peer: usize, delay: Duration) {
        let (life, key) = (self.machines[host].life, self.machines[peer].key);
        self.queue_in(delay, Event::Noticed { host, life, peer, key });
    }

    pub(in crate::sim) fn on_noticed(&mut self, host: usize, life: u32, (peer, key): (usize, PeerKey)) {
        // A peer that was replaced since is not connected, whatever its successor on the machine is.
        let is_gone = self.machines[peer].key != key || self.connections.noticed(host, peer);
        if self.machines[host].life != life || !is_gone {
            return;
        }
        if self.chance.per_mille(self.scenario.notices_lost) {
            self.marks.hit("network: a notice was lost");
        } else {
            self.deliver(host, Input::PeerDown(key));
        }
        self.on_join(host, life);
    }

    pub(in crate::sim) fn queue_client(&mut self, client: usize) {
        let delay = self.workload.think(client);
        self.queue_in(delay, Event::Client(client));
    }

    pub(in crate::sim) fn on_client(&mut self, client: usize) {
        let mut asks = std::mem::take(&mut self.asks);
        let machines = &self.machines;
        self.workload.turn(client, self.now, &|host| machines[host].answering(), &mut asks);
        if asks.is_empty() {
            self.queue_in(Duration::from_millis(50), Event::Client(client));
        }
        for ask in asks.drain(..) {
            self.ask(ask);
        }
        self.asks = asks;
    }

    pub(in crate::sim) fn ask(&mut self, Ask { host, request }: Ask) {
        let numbers = [host as u64, request.id.0];
        self.trace.note(self.now, &numbers, request.key.name(), || format!("{host} is asked {request:?}"));
        self.queue_in(request.patience + GRACE, Event::Patience { id: request.id, host });
        self.deliver(host, Input::Routecast(request));
    }

    pub(in crate::sim) fn on_patience(&mut self, id: RequestId, host: usize) {
        let Some(asked) = self.workload.asked_at(id) else { return };
        let machine = &self.machines[host];
        if machine.state == ProcessState::Running && machine.disturbed < asked && self.scenario.service_time.is_zero() {
            self.fail("PTO1 validity", format!("{host} was asked at {asked:?} and has not answered {id:?}"));
        }
        if let Some(client) = self.workload.give_up(id, self.now) {
            self.queue_client(client);
        }
    }
}

fn address_of(host: usize) -> String {
    format!("/memory/{}", host + 1)
}
