//! A simulated testbed: some machines that run one real group, a switch in the middle that runs the real pipeline, and clients
//! around it, all in virtual time.
//!
//! Only the costs in [`SwitchSetting`] take time. A machine handles one input after another, in the order of their arrival: a read where
//! it is answered, a write at each member (at the primary when the client's request comes, at other members with the accept). A
//! packet of the switch takes half of the wire to it and half from it, independently of other packets. Messages between two members
//! come in order, as on a connection. Clients' writes, and reads that no switch spreads, are sent to the primary.
//!
//! Every written value is larger than the former value of its key. So a read is recognized whose value is older than the one that
//! was known when the read was sent ([`SwitchMeasured::stale`]).

use std::time::Duration;

use group::ballot::TermBallot;
use group::control::state::Entry;
use group::harmonia::read_scheduler::SpreadRead;
use group::harmonia::switch::Switch;
use group::harmonia::{ReturnedWrite, WritePass};
use group::message::{AttemptOutcome, CommitteeMessage, Message, Sender};
use group::op::{Answer, Op, Read};
use group::outbox::GroupOutput;
use header::{Header, Operation};
use overlay::time::Time;

use super::clients::Clients;
use super::fabric::{Fabric, header};
use super::measured::{Done, SwitchMeasured};
use super::setting::{Happening, SwitchSetting};
use crate::experiment::members::{config, founded, member_of, node, settings};
use crate::experiment::testbed::{MachineEvent, Machines, Testbed};

/// Time by which all primaries have taken over; after as long again they have grants, where there is a switch.
const SETTLED: Duration = Duration::from_secs(3);
/// Member that is the primary of the whole range.
pub(super) const PRIMARY: usize = 0;
/// Interval at which the controller compares the switch's tables with the group's settings.
const CONTROL_EVERY: Duration = Duration::from_millis(20);

/// An event of the testbed.
pub(super) enum SwitchEvent {
    /// A client sends an operation.
    Client(usize),
    /// A packet is at the switch.
    Switch(Header),
    /// Work is at a machine, and is done in its turn.
    Inbox(usize, MachineInput),
    Done(usize, MachineInput),
    /// An answer is at its client.
    Answer(u64, Option<u64>),
    /// A client does not wait any longer for the switch's way.
    Impatient(u64),
    /// A disk or a timer of a machine.
    Machine(MachineEvent),
    Control,
    Happening(Happening),
}

impl From<MachineEvent> for SwitchEvent {
    fn from(event: MachineEvent) -> SwitchEvent {
        SwitchEvent::Machine(event)
    }
}

/// Input that comes to a machine.
pub(super) enum MachineInput {
    /// Boxed: it is much larger than the other variants, which are more frequent.
    Message(Sender, Box<Message>),
    /// A packet that the switch sent here.
    Packet(Header),
    /// A client's operation, at the primary.
    Asked(u64),
}

pub(super) struct SwitchTestbed {
    pub(super) setting: SwitchSetting,
    pub(super) fabric: Fabric,
    pub(super) clients: Clients,
    pub(super) measured: SwitchMeasured,
    machines: Machines<SwitchEvent>,
    /// By machine: time at which it has done all work.
    free_at: Vec<Time>,
    ballot: TermBallot,
}

/// Runs a setting.
pub fn run(setting: &SwitchSetting) -> SwitchMeasured {
    let mut testbed = SwitchTestbed::new(setting);
    testbed.settle();
    testbed.clients.begin(&testbed.setting, &mut testbed.machines.agenda);
    for (after, happening) in setting.happenings.clone() {
        testbed.machines.agenda.after(setting.warm_up + after, SwitchEvent::Happening(happening));
    }
    testbed.run_for(setting.warm_up);
    testbed.measured = SwitchMeasured::new(testbed.machines.agenda.now(), setting);
    testbed.run_for(setting.lasts);
    testbed.measured.stale = testbed.clients.stale;
    testbed.measured
}

impl SwitchTestbed {
    fn new(setting: &SwitchSetting) -> SwitchTestbed {
        let state = founded(setting.replicas, 1, settings(true, true));
        let ballot = state.parts().next().map(|(_, ballot)| ballot).expect("there is one part");
        let config = || config(!setting.sync.is_zero(), setting.defects);
        let mut testbed = SwitchTestbed {
            fabric: Fabric::new(setting),
            clients: Clients::new(setting),
            measured: SwitchMeasured::new(Time(0), setting),
            machines: Machines::new(&state, config, setting.seed, setting.sync),
            free_at: vec![Time(0); setting.replicas],
            ballot,
            setting: setting.clone(),
        };
        testbed.start();
        testbed
    }

    /// Runs until the group serves, and where there is a switch until every member may answer the reads that the switch sends.
    fn settle(&mut self) {
        self.run_for(SETTLED);
        if self.setting.switch.is_some() {
            self.propose_next();
            self.machines.agenda.after(Duration::ZERO, SwitchEvent::Control);
            self.run_for(SETTLED);
            assert_eq!(self.switch_in_use(), Some(1), "the group uses its switch");
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.machines.agenda.now() + time;
        self.run_until(end);
    }

    /// Returns the time that a machine takes for this work.
    fn takes(&mut self, at: usize, work: &MachineInput) -> Duration {
        let costs = self.setting.costs;
        let (done, each, count) = match work {
            MachineInput::Message(_, message) => match &**message {
                Message::Committee(CommitteeMessage::Accept { writes, .. }) => (Done::Write, costs.write, writes.len()),
                Message::Committee(CommitteeMessage::Accepted { .. } | CommitteeMessage::Point { .. }) => {
                    (Done::Message, costs.message, 1)
                }
                _ => return Duration::ZERO,
            },
            MachineInput::Packet(header) if header.operation == Operation::WriteFirst => {
                (Done::WritePass, costs.pass, 1)
            }
            MachineInput::Packet(header) if header.operation == Operation::Read => (Done::DirtyRead, costs.read, 1),
            MachineInput::Packet(_) => (Done::Read, costs.read, 1),
            MachineInput::Asked(tag) if self.clients.is_write(*tag) => (Done::Write, costs.write, 1),
            MachineInput::Asked(_) => (Done::AskedRead, costs.read, 1),
        };
        let takes = each * count as u32;
        self.measured.works(at, done, count as u64, takes);
        takes
    }

    fn work(&mut self, at: usize, work: MachineInput) {
        let ballot = self.ballot;
        match work {
            MachineInput::Message(from, message) => self.act(at, |group| group.on_message(from, *message)),
            MachineInput::Asked(tag) => self.operate(tag),
            MachineInput::Packet(Header {
                operation: Operation::WriteFirst,
                switch,
                sequence: number,
                tag,
                committed,
                ..
            }) => {
                let passed = ReturnedWrite { switch, number, tag, sent: Time(committed) };
                self.act(at, |group| group.on_passed(ballot, &passed));
            }
            MachineInput::Packet(header) if header.operation == Operation::FastRead && at != PRIMARY => {
                self.read(at, header);
            }
            MachineInput::Packet(header) => self.operate(header.tag),
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
        let now = self.machines.agenda.now();
        let spreads = self.setting.switch.is_some();
        let tag = self.clients.ask(client, spreads, now);
        self.clients.next_arrival(&mut self.machines.agenda);
        let Some(object) = self.clients.spread(tag) else { return self.send_asked(None, tag) };
        let header = header(Operation::Read, self.ballot, object, tag);
        let at = now + self.fabric.half();
        self.machines.agenda.at(at, SwitchEvent::Switch(header));
        if let Some(patience) = self.setting.patience {
            self.machines.agenda.after(patience, SwitchEvent::Impatient(tag));
        }
    }

    /// Sends an operation to the primary, from a client or a member.
    pub(super) fn send_asked(&mut self, from: Option<usize>, tag: u64) {
        let at = self.fabric.arrival(from.map(|from| (from, PRIMARY)), self.machines.agenda.now());
        self.machines.agenda.at(at, SwitchEvent::Inbox(PRIMARY, MachineInput::Asked(tag)));
    }

    /// Begins an operation at the primary.
    fn operate(&mut self, tag: u64) {
        let Some((key, op)) = self.clients.take_up(tag) else { return };
        let (serial, from, message) = self.machines.asker(PRIMARY).ask(Some(self.ballot), key.clone(), op);
        self.clients.attempts.insert(serial, (tag, key));
        self.act(PRIMARY, |group| group.on_message(from, message));
    }

    fn on_outcome(&mut self, serial: u64, outcome: AttemptOutcome) {
        let Some((tag, key)) = self.clients.attempts.remove(&serial) else { return };
        self.machines.asker(PRIMARY).answered(&key, serial);
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
        let at = self.fabric.arrival(None, self.machines.agenda.now());
        self.machines.agenda.at(at, SwitchEvent::Answer(tag, version));
    }

    fn on_answer(&mut self, tag: u64, version: Option<u64>) {
        let now = self.machines.agenda.now();
        if let Some(answered) = self.clients.answered(tag, version, now) {
            self.measured.answered(answered.is_write, answered.waited, now);
            if let Some(next) = answered.next {
                self.machines.agenda.at(next, SwitchEvent::Client(answered.client));
            }
        }
    }

    fn send_packet(&mut self, header: Header) {
        let at = self.machines.agenda.now() + self.fabric.half();
        self.machines.agenda.at(at, SwitchEvent::Switch(header));
    }

    /// Passes a packet through the switch.
    fn pass(&mut self, header: Header) {
        if let Some((to, header)) = self.fabric.pass(header, &mut self.measured) {
            let at = self.machines.agenda.now() + self.fabric.half();
            self.machines.agenda.at(at, SwitchEvent::Inbox(to, MachineInput::Packet(header)));
        }
    }

    /// Returns the id of the switch under which members may answer.
    fn switch_in_use(&self) -> Option<u32> {
        self.machines.group(PRIMARY).primaries().find_map(group::data::Primary::switch)
    }

    /// Proposes to the group to use a switch under the next id.
    fn propose_next(&mut self) {
        let leader = self.machines.group(PRIMARY).leader().map_or(PRIMARY, member_of);
        let id = self.machines.group(leader).state().switch.id + 1;
        self.act(leader, |group| group.propose(Entry::Switch(Switch::on(id))));
    }

    /// Acts as the controller: sets the switch's tables as the group wants.
    fn control(&mut self) {
        let wanted = self.machines.group(PRIMARY).state().switch.wanted();
        self.fabric.control(wanted, self.ballot, self.setting.replicas);
        self.machines.agenda.after(CONTROL_EVERY, SwitchEvent::Control);
    }
}

impl Testbed for SwitchTestbed {
    type Event = SwitchEvent;

    fn machines(&mut self) -> &mut Machines<SwitchEvent> {
        &mut self.machines
    }

    fn on_event(&mut self, event: SwitchEvent) {
        let now = self.machines.agenda.now();
        match event {
            SwitchEvent::Client(client) => self.ask(client),
            SwitchEvent::Switch(header) => self.pass(header),
            SwitchEvent::Inbox(to, work) => {
                let takes = self.takes(to, &work);
                let free_at = &mut self.free_at[to];
                *free_at = (*free_at).max(now) + takes;
                self.machines.agenda.at(*free_at, SwitchEvent::Done(to, work));
            }
            SwitchEvent::Done(at, work) => self.work(at, work),
            SwitchEvent::Answer(tag, version) => self.on_answer(tag, version),
            SwitchEvent::Impatient(tag) => {
                if self.clients.impatient(tag, now) {
                    self.send_asked(None, tag);
                }
            }
            SwitchEvent::Machine(event) => self.on_machine_event(event),
            SwitchEvent::Control => self.control(),
            SwitchEvent::Happening(Happening::SwitchStops) => self.fabric.stop(),
            SwitchEvent::Happening(Happening::SwitchStarts) => self.fabric.start(),
            SwitchEvent::Happening(Happening::NextSwitch) => self.propose_next(),
        }
    }

    fn on_output(&mut self, machine: usize, output: GroupOutput) {
        match output {
            GroupOutput::Send(to, message, epoch) => {
                let from = Sender { node: node(machine), epoch };
                for to in to.into_iter().map(member_of) {
                    let at = self.fabric.arrival(Some((machine, to)), self.machines.agenda.now());
                    self.machines
                        .agenda
                        .at(at, SwitchEvent::Inbox(to, MachineInput::Message(from, Box::new(message.clone()))));
                }
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
            GroupOutput::Load { key, .. } => panic!("all of {key:?} is in memory"),
            _ => {}
        }
    }
}
