//! A simulated testbed: some machines that run one real group, a switch in the middle that runs the real pipeline, and clients
//! around it, all in virtual time.
//!
//! Only the costs in [`Setting`] take time. A machine handles one input after another, in the order of their arrival: a read where
//! it is answered, a write at each member (at the primary when the client's request comes, at other members with the accept). A
//! packet of the switch takes half of the wire to it and half from it, independently of other packets. Messages between two members
//! come in order, as on a connection. Clients' writes, and reads that no switch spreads, are sent to the primary.
//!
//! Every written value is larger than the former value of its key. So a read is recognized whose value is older than the one that
//! was known when the read was sent ([`Measured::stale`]).

use std::time::Duration;

use group::ballot::TermBallot;
use group::control::state::Entry;
use group::harmonia::read_scheduler::SpreadRead;
use group::harmonia::switch::Switch;
use group::message::{AttemptOutcome, CommitteeMessage, Message, Sender};
use group::op::{Answer, Op, Read};
use group::outbox::GroupOutput;
use group::{
    Group,
    harmonia::{ReturnedWrite, WritePass},
};
use header::{Header, Operation};
use overlay::time::Time;

use super::clients::Clients;
use super::fabric::{Fabric, header};
use super::measured::{Done, Measured};
use super::setting::{Happening, Setting};
use crate::experiment::agenda::Agenda;
use crate::experiment::members::{Asker, at, config, founded, member_of, node, settings};

/// Time by which all primaries have taken over; after as long again they have grants, where there is a switch.
const SETTLED: Duration = Duration::from_secs(3);
/// Member that is the primary of the whole range.
pub(super) const PRIMARY: usize = 0;
/// Interval at which the controller compares the switch's tables with the group's settings.
const CONTROL_EVERY: Duration = Duration::from_millis(20);

/// An event of the testbed.
pub(super) enum Event {
    /// A client sends an operation.
    Client(usize),
    /// A packet is at the switch.
    Switch(Header),
    /// Work is at a machine, and is done in its turn.
    Inbox(usize, Work),
    Done(usize, Work),
    /// An answer is at its client.
    Answer(u64, Option<u64>),
    /// A client does not wait any longer for the switch's way.
    Impatient(u64),
    Synced(usize, u64),
    Tick(usize),
    Control,
    Happening(Happening),
}

/// Work that comes to a machine.
pub(super) enum Work {
    /// Boxed: it is much larger than the other variants, which are more frequent.
    Message(Sender, Box<Message>),
    /// A packet that the switch sent here.
    Packet(Header),
    /// A client's operation, at the primary.
    Asked(u64),
}

struct Machine {
    group: Group,
    asker: Asker,
    free_at: Time,
    /// Handed to the disk, behind the batch that it syncs now.
    unsynced: Option<u64>,
    syncing: bool,
    ticks_at: Time,
}

pub(super) struct Hall {
    pub(super) setting: Setting,
    pub(super) agenda: Agenda<Event>,
    pub(super) fabric: Fabric,
    pub(super) clients: Clients,
    pub(super) measured: Measured,
    machines: Vec<Machine>,
    ballot: TermBallot,
}

/// Runs a setting.
pub fn run(setting: &Setting) -> Measured {
    let mut hall = Hall::new(setting);
    hall.settle();
    hall.clients.begin(&hall.setting, &mut hall.agenda);
    for (after, happening) in setting.happenings.clone() {
        hall.agenda.after(setting.warm_up + after, Event::Happening(happening));
    }
    hall.run_for(setting.warm_up);
    hall.measured = Measured::new(hall.agenda.now(), setting);
    hall.run_for(setting.lasts);
    hall.measured.stale = hall.clients.stale;
    hall.measured
}

impl Hall {
    fn new(setting: &Setting) -> Hall {
        let state = founded(setting.replicas, 1, settings(true, true));
        let ballot = state.parts().next().map(|(_, ballot)| ballot).expect("there is one part");
        let machine = |index: usize| {
            let (config, seed) = (config(!setting.sync.is_zero(), setting.defects), setting.seed + index as u64);
            Machine {
                group: Group::join(config, node(index), state.clone(), at(Time(0)), seed),
                asker: Asker::new(index),
                free_at: Time(0),
                unsynced: None,
                syncing: false,
                ticks_at: Time::NEVER,
            }
        };
        let mut hall = Hall {
            agenda: Agenda::new(),
            fabric: Fabric::new(setting),
            clients: Clients::new(setting),
            measured: Measured::new(Time(0), setting),
            machines: (0..setting.replicas).map(machine).collect(),
            ballot,
            setting: setting.clone(),
        };
        (0..setting.replicas).for_each(|machine| hall.obey(machine));
        hall
    }

    /// Runs until the group serves, and where there is a switch until every member may answer the reads that the switch sends.
    fn settle(&mut self) {
        self.run_for(SETTLED);
        if self.setting.switch.is_some() {
            self.propose_next();
            self.agenda.after(Duration::ZERO, Event::Control);
            self.run_for(SETTLED);
            assert_eq!(self.switch_in_use(), Some(1), "the group uses its switch");
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.agenda.now() + time;
        while let Some(event) = self.agenda.next_before(end) {
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = self.agenda.now();
        match event {
            Event::Client(client) => self.ask(client),
            Event::Switch(header) => self.pass(header),
            Event::Inbox(to, work) => {
                let takes = self.takes(to, &work);
                let machine = &mut self.machines[to];
                machine.free_at = machine.free_at.max(now) + takes;
                self.agenda.at(machine.free_at, Event::Done(to, work));
            }
            Event::Done(at, work) => self.work(at, work),
            Event::Answer(tag, version) => self.on_answer(tag, version),
            Event::Impatient(tag) => {
                if self.clients.impatient(tag, now) {
                    self.send_asked(None, tag);
                }
            }
            Event::Synced(machine, token) => {
                self.machines[machine].syncing = false;
                self.act(machine, |group| group.on_persisted(token));
                self.sync(machine);
            }
            Event::Tick(machine) => {
                if self.machines[machine].ticks_at <= now {
                    self.machines[machine].ticks_at = Time::NEVER;
                    self.act(machine, Group::tick);
                }
            }
            Event::Control => self.control(),
            Event::Happening(Happening::SwitchStops) => self.fabric.stop(),
            Event::Happening(Happening::SwitchStarts) => self.fabric.start(),
            Event::Happening(Happening::NextSwitch) => self.propose_next(),
        }
    }

    /// Returns the time that a machine takes for this work.
    fn takes(&mut self, at: usize, work: &Work) -> Duration {
        let costs = self.setting.costs;
        let (done, each, count) = match work {
            Work::Message(_, message) => match &**message {
                Message::Committee(CommitteeMessage::Accept { writes, .. }) => (Done::Write, costs.write, writes.len()),
                Message::Committee(CommitteeMessage::Accepted { .. } | CommitteeMessage::Point { .. }) => {
                    (Done::Message, costs.message, 1)
                }
                _ => return Duration::ZERO,
            },
            Work::Packet(header) if header.operation == Operation::WriteFirst => (Done::WritePass, costs.pass, 1),
            Work::Packet(header) if header.operation == Operation::Read => (Done::DirtyRead, costs.read, 1),
            Work::Packet(_) => (Done::Read, costs.read, 1),
            Work::Asked(tag) if self.clients.is_write(*tag) => (Done::Write, costs.write, 1),
            Work::Asked(_) => (Done::AskedRead, costs.read, 1),
        };
        let takes = each * count as u32;
        self.measured.works(at, done, count as u64, takes);
        takes
    }

    fn work(&mut self, at: usize, work: Work) {
        let ballot = self.ballot;
        match work {
            Work::Message(from, message) => self.act(at, |group| group.on_message(from, *message)),
            Work::Asked(tag) => self.operate(tag),
            Work::Packet(Header {
                operation: Operation::WriteFirst, switch, sequence: number, tag, committed, ..
            }) => {
                let passed = ReturnedWrite { switch, number, tag, sent: Time(committed) };
                self.act(at, |group| group.on_passed(ballot, &passed));
            }
            Work::Packet(header) if header.operation == Operation::FastRead && at != PRIMARY => {
                self.read(at, header);
            }
            Work::Packet(header) => self.operate(header.tag),
        }
    }

    /// Passes a read that the switch sent to a member.
    fn read(&mut self, at: usize, header: Header) {
        let Some(key) = self.clients.key(header.tag) else { return };
        let Header { tag, switch, committed: point, .. } = header;
        let read = SpreadRead { tag, ballot: self.ballot, switch, point, key, op: Op::Read(Read::Value) };
        self.act(at, |group| group.read_spread(read));
    }

    /// Sends a client's next operation.
    fn ask(&mut self, client: usize) {
        let now = self.agenda.now();
        let spreads = self.setting.switch.is_some();
        let tag = self.clients.ask(client, spreads, now);
        self.clients.next_arrival(&mut self.agenda);
        let Some(object) = self.clients.spread(tag) else { return self.send_asked(None, tag) };
        let header = header(Operation::Read, self.ballot, object, tag);
        let at = now + self.fabric.half();
        self.agenda.at(at, Event::Switch(header));
        if let Some(patience) = self.setting.patience {
            self.agenda.after(patience, Event::Impatient(tag));
        }
    }

    /// Sends an operation to the primary, from a client or a member.
    pub(super) fn send_asked(&mut self, from: Option<usize>, tag: u64) {
        let at = self.fabric.arrival(from.map(|from| (from, PRIMARY)), self.agenda.now());
        self.agenda.at(at, Event::Inbox(PRIMARY, Work::Asked(tag)));
    }

    /// Begins an operation at the primary.
    fn operate(&mut self, tag: u64) {
        let Some((key, op)) = self.clients.take_up(tag) else { return };
        let machine = &mut self.machines[PRIMARY];
        let (serial, from, message) = machine.asker.ask(Some(self.ballot), key.clone(), op);
        self.clients.attempts.insert(serial, (tag, key));
        self.act(PRIMARY, |group| group.on_message(from, message));
    }

    fn on_outcome(&mut self, serial: u64, outcome: AttemptOutcome) {
        let Some((tag, key)) = self.clients.attempts.remove(&serial) else { return };
        self.machines[PRIMARY].asker.answered(&key, serial);
        match outcome {
            AttemptOutcome::Done(answer) | AttemptOutcome::Unchanged(answer) => self.answer(tag, &answer),
            other => panic!("nothing goes wrong here: {other:?} of {key:?}"),
        }
    }

    fn answer(&mut self, tag: u64, answer: &Answer) {
        let version = match answer {
            Answer::Value(value) => Some(value.as_deref().map_or(0, Clients::version)),
            _ => None,
        };
        let at = self.fabric.arrival(None, self.agenda.now());
        self.agenda.at(at, Event::Answer(tag, version));
    }

    fn on_answer(&mut self, tag: u64, version: Option<u64>) {
        let now = self.agenda.now();
        if let Some(answered) = self.clients.answered(tag, version, now) {
            self.measured.answered(answered.is_write, answered.waited, now);
            if let Some(next) = answered.next {
                self.agenda.at(next, Event::Client(answered.client));
            }
        }
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
                    for to in to.into_iter().map(member_of) {
                        let at = self.fabric.arrival(Some((machine, to)), self.agenda.now());
                        self.agenda.at(at, Event::Inbox(to, Work::Message(from, Box::new(message.clone()))));
                    }
                }
                GroupOutput::Persist(token, _) => {
                    self.machines[machine].unsynced = Some(token);
                    self.sync(machine);
                }
                GroupOutput::Outcome(serial, outcome) => self.on_outcome(serial, outcome),
                GroupOutput::Pass(WritePass { ballot, key, tag, sent }) => {
                    let object = key.as_ref().map_or(header::NO_OBJECT, super::fabric::object);
                    // Switches ignore the field for the last committed number in a write.
                    let header = header(Operation::WriteFirst, ballot, object, tag);
                    self.send_packet(Header { committed: sent.0, ..header });
                }
                GroupOutput::Complete { ballot, switch, number } => {
                    let header = header(Operation::Completion, ballot, header::NO_OBJECT, 0);
                    self.send_packet(Header { switch, sequence: number, ..header });
                }
                GroupOutput::Read(tag, Some(answer)) => self.answer(tag, &answer),
                GroupOutput::Read(tag, None) => {
                    self.measured.left += 1;
                    self.send_asked(Some(machine), tag);
                }
                GroupOutput::Over(why) | GroupOutput::Lost(why) => panic!("machine {machine}: {why}"),
                GroupOutput::Load { key, .. } => panic!("all of {key:?} is in memory"),
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
            self.agenda.after(self.setting.sync, Event::Synced(machine, token));
        }
    }

    fn send_packet(&mut self, header: Header) {
        let at = self.agenda.now() + self.fabric.half();
        self.agenda.at(at, Event::Switch(header));
    }

    /// Passes a packet through the switch.
    fn pass(&mut self, header: Header) {
        if let Some((to, header)) = self.fabric.pass(header, &mut self.measured) {
            let at = self.agenda.now() + self.fabric.half();
            self.agenda.at(at, Event::Inbox(to, Work::Packet(header)));
        }
    }

    /// Returns the id of the switch under which members may answer.
    fn switch_in_use(&self) -> Option<u32> {
        self.machines[PRIMARY].group.primaries().find_map(group::data::Primary::switch)
    }

    /// Proposes to the group to use a switch under the next id.
    fn propose_next(&mut self) {
        let leader = self.machines[PRIMARY].group.leader().map_or(PRIMARY, member_of);
        let id = self.machines[leader].group.state().switch.id + 1;
        self.act(leader, |group| group.propose(Entry::Switch(Switch::on(id))));
    }

    /// Acts as the controller: sets the switch's tables as the group wants.
    fn control(&mut self) {
        let wanted = self.machines[PRIMARY].group.state().switch.wanted();
        self.fabric.control(wanted, self.ballot, self.setting.replicas);
        self.agenda.after(CONTROL_EVERY, Event::Control);
    }
}
