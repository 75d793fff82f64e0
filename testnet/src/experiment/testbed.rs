//! Testbeds in virtual time: machines that each run a real member of one group, with a disk and a timer.
//!
//! [`Machines`] holds the members. A [`Testbed`] adds its own events and costs to them, such as cores, wires and clients.

use std::collections::VecDeque;
use std::time::Duration;

use group::Group;
use group::config::GroupConfig;
use group::control::state::GroupState;
use group::outbox::{BatchToken, GroupOutput};
use overlay::time::Time;

use super::agenda::Agenda;
use super::members::{Asker, at, node};

/// Event of a machine's own disk or timer.
pub enum MachineEvent {
    /// A disk has synced everything up to this token.
    Synced {
        /// Number of the machine.
        machine: usize,
        /// Last token of the batch.
        token: BatchToken,
    },
    /// A timer of this machine.
    Tick(usize),
}

struct GroupMachine {
    group: Group,
    asker: Asker,
    /// Handed to the disk, behind the batch that it syncs now.
    unsynced: VecDeque<BatchToken>,
    syncing: bool,
    ticks_at: Time,
}

impl GroupMachine {
    fn new(index: usize, state: &GroupState, config: GroupConfig, seed: u64) -> GroupMachine {
        GroupMachine {
            group: Group::join(config, node(index), state.clone(), at(Time(0)), seed),
            asker: Asker::new(index),
            unsynced: VecDeque::new(),
            syncing: false,
            ticks_at: Time::NEVER,
        }
    }
}

/// The machines of a testbed, and its events to come.
pub struct Machines<E> {
    pub(super) agenda: Agenda<E>,
    machines: Vec<GroupMachine>,
    /// Time of a sync of a disk.
    sync: Duration,
    /// Whether each batch needs a sync of its own, instead of one for all that wait.
    sync_each: bool,
}

impl<E: From<MachineEvent>> Machines<E> {
    /// Returns one machine for each member of a group in this state, at time 0. Each disk takes `sync` for all waiting writes.
    /// The chance of a member follows from `seed` and its number.
    pub fn new(state: &GroupState, config: impl Fn() -> GroupConfig, seed: u64, sync: Duration) -> Machines<E> {
        let machine = |index| GroupMachine::new(index, state, config(), seed + index as u64);
        Machines {
            agenda: Agenda::new(),
            machines: (0..state.members.len()).map(machine).collect(),
            sync,
            sync_each: false,
        }
    }

    /// Has each disk sync one batch after another from now on, each in this time, as where batches are of different logs.
    pub fn sync_each(&mut self, sync: Duration) {
        (self.sync, self.sync_each) = (sync, true);
    }

    /// Returns the member that a machine runs.
    pub fn group(&self, machine: usize) -> &Group {
        &self.machines[machine].group
    }

    /// Returns the operations of clients at a machine.
    pub fn asker(&mut self, machine: usize) -> &mut Asker {
        &mut self.machines[machine].asker
    }

    /// Returns a member's next output for the testbed. After the last one the machine's timer is set.
    ///
    /// # Panics
    /// If the member ends.
    fn next_output(&mut self, machine: usize) -> Option<GroupOutput> {
        while let Some(output) = self.machines[machine].group.poll_output() {
            match output {
                GroupOutput::Persist(token, _) => {
                    let unsynced = &mut self.machines[machine].unsynced;
                    if !self.sync_each {
                        unsynced.clear();
                    }
                    unsynced.push_back(token);
                    self.sync(machine);
                }
                GroupOutput::Over(why) | GroupOutput::Lost(why) => panic!("machine {machine}: {why}"),
                output => return Some(output),
            }
        }
        let next = self.machines[machine].group.next_timeout();
        if next < self.machines[machine].ticks_at {
            self.machines[machine].ticks_at = next;
            self.agenda.at(next, MachineEvent::Tick(machine).into());
        }
        None
    }

    /// Syncs what waits, once the disk is free.
    fn sync(&mut self, machine: usize) {
        let disk = &mut self.machines[machine];
        if !disk.syncing
            && let Some(token) = disk.unsynced.pop_front()
        {
            disk.syncing = true;
            self.agenda.after(self.sync, MachineEvent::Synced { machine, token }.into());
        }
    }
}

/// Machines with the events and costs of one experiment.
pub trait Testbed {
    /// The events.
    type Event: From<MachineEvent>;

    /// Returns the machines.
    fn machines(&mut self) -> &mut Machines<Self::Event>;

    /// Handles an event.
    fn on_event(&mut self, event: Self::Event);

    /// Handles an output of the member at a machine, other than one for its disk.
    fn on_output(&mut self, machine: usize, output: GroupOutput);

    /// Handles all events before `end`.
    fn run_until(&mut self, end: Time) {
        while let Some(event) = self.machines().agenda.next_before(end) {
            self.on_event(event);
        }
    }

    /// Lets a member act, and handles its outputs.
    fn act(&mut self, machine: usize, act: impl FnOnce(&mut Group)) {
        let machines = self.machines();
        let group = &mut machines.machines[machine].group;
        group.set_now(at(machines.agenda.now()));
        act(group);
        self.obey(machine);
    }

    /// Handles all outputs of a member.
    fn obey(&mut self, machine: usize) {
        while let Some(output) = self.machines().next_output(machine) {
            self.on_output(machine, output);
        }
    }

    /// Handles the first outputs of all members.
    fn start(&mut self) {
        (0..self.machines().machines.len()).for_each(|machine| self.obey(machine));
    }

    /// Handles an event of a disk or a timer.
    fn on_machine_event(&mut self, event: MachineEvent) {
        match event {
            MachineEvent::Synced { machine, token } => {
                self.machines().machines[machine].syncing = false;
                self.act(machine, |group| group.on_persisted(token));
                self.machines().sync(machine);
            }
            MachineEvent::Tick(machine) => {
                let now = self.machines().agenda.now();
                let ticks_at = &mut self.machines().machines[machine].ticks_at;
                if *ticks_at <= now {
                    *ticks_at = Time::NEVER;
                    self.act(machine, Group::tick);
                }
            }
        }
    }
}
