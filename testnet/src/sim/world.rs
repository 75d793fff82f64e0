//! A world of machines in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use node::Input;
use overlay::PeerKey;
use overlay::time::Time;

use crate::checkers::{Failure, Observation, Probes, Scope, Vantage};
use crate::marks::Marks;
use crate::rng::Rng;
use crate::sim::fault::ActiveFaults;
use crate::sim::host::Host;
use crate::sim::machine::store::SimStore;
use crate::sim::machine::{Machine, ProcessState, Return};
use crate::sim::network::connections::Connections;
use crate::sim::network::{Flight, Network};
use crate::sim::queue::{Event, Queue};
use crate::sim::scenario::Scenario;
use crate::sim::script::{Fate, Tap};
use crate::sim::switch::Switches;
use crate::sim::trace::Trace;
use crate::sim::workload::{Ask, Workload};

/// Number of steps within one virtual millisecond that counts as an endless loop.
const STEPS_PER_MILLISECOND_MAX: u64 = 200_000;

/// Number of frames that the sockets of a frozen process take; later frames are lost.
const INBOX_MAX: usize = 10_000;

/// Machines, wires, disks, clocks, clients and faults of one run. A function of its scenario alone.
pub struct World<H> {
    /// Settings of the run.
    pub scenario: Scenario,
    pub(super) now: Time,
    queue: Queue,
    pub(super) machines: Vec<Machine<H>>,
    pub(super) peers: BTreeMap<PeerKey, usize>,
    pub(super) network: Network,
    pub(super) connections: Connections,
    pub(super) workload: Workload,
    pub(super) standing: ActiveFaults,
    pub(super) switches: Option<Box<Switches>>,
    /// Rare events that the run reached.
    pub marks: Marks,
    /// Events of the run.
    pub trace: Trace,
    pub(super) probes: Probes,
    pub(super) failure: Option<Failure>,
    pub(super) chance: Rng,
    arrivals: Vec<(Time, Flight)>,
    pub(super) asks: Vec<Ask>,
    events: u64,
    busy: (u64, u64),
    /// Factor of the machines' time for each input.
    pub(super) slowness: u32,
    pub(super) tap: Option<Tap>,
}

impl<H: Host> World<H> {
    /// Returns a world in which all machines are about to start.
    pub fn new(scenario: Scenario) -> World<H> {
        World::traced(scenario, false)
    }

    /// Returns a world that is about to start, with readable lines in its trace if asked for.
    pub(crate) fn traced(scenario: Scenario, with_lines: bool) -> World<H> {
        let seed = scenario.seed;
        let n = scenario.hosts;
        let mut chance = Rng::new(seed, "machines");
        let mut machines: Vec<Machine<H>> = (0..n).map(|index| Machine::new(index, &mut chance)).collect();
        if scenario.tears {
            machines.iter_mut().for_each(|machine| machine.store.make_fallible());
        }
        let peers = machines.iter().enumerate().map(|(index, machine)| (machine.key, index)).collect();
        let workload = Workload::new(scenario.load.clone(), n, seed);
        let mut world = World {
            now: Time(0),
            queue: Queue::default(),
            machines,
            peers,
            network: Network::new(n, scenario.latency.clone(), Rng::new(seed, "network")),
            connections: Connections::new(n),
            workload,
            standing: ActiveFaults::default(),
            switches: scenario.switch.clone().map(|rules| Box::new(Switches::new(rules, n, seed))),
            marks: Marks::default(),
            trace: Trace::new(with_lines),
            probes: Probes::new(n),
            failure: None,
            chance,
            arrivals: Vec::new(),
            asks: Vec::new(),
            events: 0,
            busy: (0, 0),
            slowness: 1,
            tap: None,
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for host in 0..self.machines.len() {
            let at = if host == 0 {
                Duration::ZERO
            } else {
                self.chance.duration(Duration::ZERO, self.scenario.start_within)
            };
            self.machines[host].returns = Some(Return::WithStore);
            self.queue_in(at, Event::Restart { host, life: 0 });
        }
        for index in 0..self.scenario.faults.len() {
            self.queue_in(self.scenario.faults[index].at, Event::Fault(index));
        }
        for client in 0..self.workload.clients() {
            self.queue_in(Duration::from_millis(client as u64), Event::Client(client));
        }
        if let Some(rules) = &self.scenario.switch {
            self.queue_in(rules.look_every, Event::Look);
        }
    }

    /// Returns the true time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the requests and answers that clients saw so far.
    pub fn history(&self) -> &crate::history::History {
        &self.workload.history
    }

    /// Returns the failure of the run, once there is one.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Returns a machine's process, if it runs or is frozen.
    pub fn host(&self, host: usize) -> Option<&H> {
        self.machines[host].host.as_deref()
    }

    /// Returns a machine's store.
    pub fn store(&self, host: usize) -> &SimStore {
        &self.machines[host].store
    }

    /// Returns the number of machines.
    pub fn hosts(&self) -> usize {
        self.machines.len()
    }

    /// Returns a machine's state.
    pub fn state(&self, host: usize) -> ProcessState {
        self.machines[host].state
    }

    /// Returns how often a machine's process was started.
    pub fn life(&self, host: usize) -> u32 {
        self.machines[host].life
    }

    /// Returns whether a machine's process runs.
    pub fn is_running(&self, host: usize) -> bool {
        self.machines[host].state == ProcessState::Running
    }

    /// Returns whether a machine's process runs, and reports that it can serve.
    pub fn is_ready(&self, host: usize) -> bool {
        let machine = &self.machines[host];
        machine.state == ProcessState::Running && machine.ready
    }

    /// Goes on until this time, or until the run fails.
    pub fn run_until(&mut self, end: Time) {
        self.run_for(end.since(self.now));
    }

    /// Returns the peer that runs on a machine.
    pub fn peer(&self, host: usize) -> PeerKey {
        self.machines[host].key
    }

    /// Goes on for this time, or until the run fails.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.failure.is_none() && self.queue.next_at().is_some_and(|next| next <= end) {
            self.step();
        }
        if self.failure.is_none() {
            self.now = end;
        }
    }

    /// Handles one event. Returns `false` if there is none, or if the run has failed.
    pub fn step(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = at;
        self.events += 1;
        self.check_progress();
        self.on_event(event);
        self.fly();
        if self.events.is_multiple_of(self.scenario.sweep_every) {
            self.sweep();
        }
        true
    }

    /// Notes a violated property, with a description of each machine at that time.
    pub(super) fn fail(&mut self, property: &'static str, detail: String) {
        if self.failure.is_none() {
            for host in 0..self.scenario.hosts {
                let text = self.host(host).map_or("down".to_owned(), Host::describe);
                self.trace.note(self.now, &[host as u64], &[], || format!("{host} is {text}"));
            }
            self.failure = Some(Failure { property, detail, at: self.now });
        }
    }

    pub(super) fn queue_in(&mut self, delay: Duration, event: Event) {
        self.queue_at(self.now + delay, event);
    }

    pub(super) fn queue_at(&mut self, at: Time, event: Event) {
        self.queue.push(at.max(self.now), event);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Arrive(flight) => self.on_arrive(flight),
            Event::Late(flight) => {
                let life = self.machines[flight.to].life;
                self.on_arrive(Flight { life, ..flight });
            }
            Event::Input { host, life, input } => {
                if self.machines[host].life == life {
                    self.deliver(host, input);
                }
            }
            Event::Synced { host, life } => self.on_synced(host, life),
            Event::Wake { host, life } => self.on_wake(host, life),
            Event::Turn { host, life } => self.on_turn(host, life),
            Event::Connected { a, b, lives } => self.on_connected(a, b, lives),
            Event::Noticed { host, life, peer, key } => self.on_noticed(host, life, (peer, key)),
            Event::Stalled { a, b, serial } => self.on_stalled(a, b, serial),
            Event::Join { host, life } => self.on_join(host, life),
            Event::Restart { host, life } => self.on_restart(host, life),
            Event::Fault(index) => self.on_fault(index),
            Event::FaultEnds(index) => self.on_fault_ends(index),
            Event::Client(client) => self.on_client(client),
            Event::AtSwitch { at, from, bytes } => self.on_packet(at, from, bytes),
            Event::Packet { to, bytes } => self.on_packet_here(to, bytes),
            Event::Look => self.on_look(),
            Event::SetTables { at, life, plans } => self.on_set_tables(at, life, &plans),
            Event::Patience { id, host } => self.on_patience(id, host),
        }
    }

    fn on_arrive(&mut self, Flight { from, to, life, class, frame }: Flight) {
        if self.machines[to].life != life || self.machines[to].state == ProcessState::Down {
            return;
        }
        let numbers = [from as u64, to as u64, class as u64];
        self.trace.note(self.now, &numbers, &frame, || format!("{from} -> {to} {class:?} {} bytes", frame.len()));
        let from = self.machines[from].key;
        self.deliver(to, Input::Frame { from, frame });
    }

    /// Hands an input to a machine's process, now or when it can take it.
    pub(super) fn deliver(&mut self, host: usize, input: Input) {
        let machine = &mut self.machines[host];
        match machine.state {
            ProcessState::Down => {}
            ProcessState::Running if self.scenario.service_time.is_zero() => self.handle(host, [input]),
            ProcessState::Running => {
                machine.inbox.push_back(input);
                self.queue_turn(host);
            }
            ProcessState::Frozen
                if machine.inbox.len() < INBOX_MAX || !matches!(input, Input::Frame { .. } | Input::Packet { .. }) =>
            {
                machine.inbox.push_back(input);
            }
            ProcessState::Frozen => self.marks.hit("machine: a frozen process's sockets were full"),
        }
    }

    pub(super) fn queue_turn(&mut self, host: usize) {
        let machine = &mut self.machines[host];
        if !machine.turn_queued {
            machine.turn_queued = true;
            let (at, life) = (machine.busy_until, machine.life);
            self.queue_at(at, Event::Turn { host, life });
        }
    }

    fn on_turn(&mut self, host: usize, life: u32) {
        let machine = &mut self.machines[host];
        if machine.life != life {
            return;
        }
        machine.turn_queued = false;
        if machine.state != ProcessState::Running {
            return;
        }
        let mut inputs = std::mem::take(&mut machine.inbox);
        let time = self.scenario.service_time_of(host, inputs.len()) * self.slowness;
        inputs.extend(machine.keep_busy(self.now, time, self.scenario.tell_busy));
        self.handle(host, inputs);
    }

    /// Hands inputs to the process, and carries out its outputs.
    pub(super) fn handle(&mut self, host: usize, inputs: impl IntoIterator<Item = Input>) {
        let Some(mut process) = self.machines[host].host.take() else { return };
        let now = self.machines[host].clocks.at(self.now);
        for input in inputs {
            process.handle(now, input);
        }
        let life = self.machines[host].life;
        self.obey(host, &mut process);
        self.observe(host, &mut process, Scope::Changed);
        let machine = &mut self.machines[host];
        // The process may have ended, and even begun anew, by its own outputs.
        if machine.life == life && machine.state != ProcessState::Down {
            machine.host = Some(process);
        }
    }

    /// Carries out the outputs of a process.
    pub(super) fn obey(&mut self, host: usize, process: &mut H) {
        while let Some(output) = process.poll_output() {
            if self.machines[host].state == ProcessState::Down || self.failure.is_some() {
                return;
            }
            self.on_output(host, output);
        }
    }

    pub(super) fn observe(&mut self, host: usize, process: &mut H, scope: Scope) {
        let seen = Vantage { host, at: self.now, clocks: &self.machines[host].clocks };
        let (probes, marks) = (&mut self.probes, &mut self.marks);
        let mut failure = None;
        process.observe(scope, &mut |observation| {
            if let Observation::Mark(name) = observation {
                marks.hit(name);
            } else if failure.is_none() {
                failure = probes.note(&seen, observation).err();
            }
        });
        if let Some((property, detail)) = failure {
            self.fail(property, detail);
        }
    }

    /// Shows the records of a store that its node holds: some of them are not in the node's memory.
    fn show_store(&mut self, host: usize, process: &H) {
        let machine = &self.machines[host];
        let seen = Vantage { host, at: self.now, clocks: &machine.clocks };
        let held = machine.store.records().filter(|(key, _)| process.holds(key));
        let stored = held.filter_map(|(key, record)| crate::sim::observe::stored(key, record));
        let mut failure = None;
        for observation in stored {
            failure = failure.or(self.probes.note(&seen, observation).err());
        }
        if let Some((property, detail)) = failure {
            self.fail(property, detail);
        }
    }

    /// Returns a machine's process, if it runs or is frozen.
    pub fn process(&self, host: usize) -> Option<&H> {
        self.machines[host].host.as_deref()
    }

    /// Observes the whole state of all machines.
    pub(super) fn sweep(&mut self) {
        self.probes.begin_sweep();
        for host in 0..self.machines.len() {
            if let Some(mut process) = self.machines[host].host.take() {
                self.observe(host, &mut process, Scope::All);
                self.show_store(host, &process);
                self.machines[host].host = Some(process);
            }
        }
        if let Err((property, detail)) = self.probes.end_sweep() {
            self.fail(property, detail);
        }
    }

    pub(super) fn wake_at(&mut self, host: usize, local: Time) {
        let machine = &mut self.machines[host];
        let at = machine.clocks.true_time_of(local).max(self.now);
        if local == Time::NEVER {
            machine.wake_at = None;
            return;
        }
        machine.wake_at = Some(at);
        if machine.wake_queued.is_none_or(|queued| queued > at) {
            machine.wake_queued = Some(at);
            let life = machine.life;
            self.queue_at(at, Event::Wake { host, life });
        }
    }

    fn on_wake(&mut self, host: usize, life: u32) {
        let machine = &mut self.machines[host];
        if machine.life != life || machine.wake_queued != Some(self.now) {
            return;
        }
        machine.wake_queued = None;
        match machine.wake_at {
            Some(at) if at <= self.now => {
                machine.wake_at = None;
                self.deliver(host, Input::Tick);
            }
            Some(at) => {
                machine.wake_queued = Some(at);
                self.queue_at(at, Event::Wake { host, life });
            }
            None => {}
        }
    }

    fn on_synced(&mut self, host: usize, life: u32) {
        let machine = &mut self.machines[host];
        if machine.life != life {
            return;
        }
        let Some((token, more)) = machine.store.synced() else { return };
        if more {
            self.queue_sync(host);
        }
        self.deliver(host, Input::Persisted(token));
    }

    pub(super) fn queue_sync(&mut self, host: usize) {
        let (low, high) = self.scenario.sync_time;
        let delay = self.chance.duration(low, high);
        let life = self.machines[host].life;
        self.queue_in(delay, Event::Synced { host, life });
    }

    /// Sends a frame from machine to machine.
    pub(super) fn launch(&mut self, flight: Flight) {
        let fate = self.tap.as_mut().map_or(Fate::Goes, |tap| tap(&flight));
        let from = flight.from;
        match fate {
            Fate::Goes | Fate::Last => {}
            Fate::Lost => return self.marks.hit("network: the script took a frame"),
            Fate::Twice(after) => self.queue_in(after, Event::Late(flight.clone())),
            Fate::Late(after) => return self.queue_in(after, Event::Late(flight)),
        }
        self.network.send(self.now, flight, &mut self.arrivals, &mut self.marks);
        if fate == Fate::Last {
            self.kill(from, true);
        }
    }

    pub(super) fn unblock(&mut self, from: usize, to: usize) {
        let alive = self.connections.is_up(from, to);
        self.network.unblock(self.now, from, to, alive, &mut self.arrivals);
    }

    fn fly(&mut self) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for (at, flight) in arrivals.drain(..) {
            self.queue_at(at, Event::Arrive(flight));
        }
        self.arrivals = arrivals;
    }

    fn check_progress(&mut self) {
        let millisecond = self.now.0 / 1_000_000;
        if self.busy.0 != millisecond {
            self.busy = (millisecond, 0);
        }
        self.busy.1 += 1;
        if self.busy.1 > STEPS_PER_MILLISECOND_MAX {
            self.fail("I15 bounded", "more goes on within a millisecond than can ever end".into());
        }
    }
}
