//! Ends of faults: the effect of each, and how it is undone.

use std::collections::BTreeMap;
use std::time::Duration;

use node::Input;
use overlay::NodeId;

use crate::sim::fault::FaultKind;
use crate::sim::host::Host;
use crate::sim::machine::{ProcessState, Return};
use crate::sim::network::Noise;
use crate::sim::world::World;

/// Effect of a fault that can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Undo {
    /// Blocked directions.
    Unblock(Vec<(usize, usize)>),
    Thaw {
        host: usize,
        asleep: bool,
    },
    Restart(Vec<usize>, Return),
    /// The process was asked to stop, in this life. Whether it has stopped or not, it starts again.
    Stopped(usize, u32),
    Quiet,
    Lossless(usize),
    Quick,
    RightClock(usize),
    DiskFree(usize),
    SwitchReplaced,
    SwitchMended(usize),
    Attended,
}

/// The faults that last at this moment.
#[derive(Debug, Default)]
pub struct ActiveFaults {
    undo: BTreeMap<usize, Undo>,
    next: usize,
}

impl<H: Host> World<H> {
    /// Strikes now. The fault lasts until [`World::undo`] with the returned number, or [`World::heal`]. `None` if there is nothing
    /// to undo.
    pub fn inject(&mut self, kind: FaultKind) -> Option<usize> {
        self.trace.note(self.now, &[], &[], || format!("fault {kind:?}"));
        let undo = self.strike(kind)?;
        Some(self.keep(undo))
    }

    /// Ends the fault that [`World::inject`] began.
    pub fn undo(&mut self, id: Option<usize>) {
        if let Some(id) = id {
            self.on_fault_ends(id);
        }
    }

    /// Kills a process, whether the group can survive that or not. The process comes back with [`World::undo`] of the returned
    /// number, or [`World::heal`]: with its store, which may lack unsynced data, or without. `None` if it is down.
    pub fn kill(&mut self, host: usize, keeps_store: bool) -> Option<usize> {
        if self.machines[host].state == ProcessState::Down {
            return None;
        }
        self.marks.hit(if keeps_store { "fault: crash" } else { "fault: crash, and the store is gone" });
        let kept = if keeps_store { self.kept(host) } else { 0 };
        self.end(host, Some(kept));
        let how = if keeps_store { Return::WithStore } else { Return::Empty };
        Some(self.keep(Undo::Restart(vec![host], how)))
    }

    pub(super) fn keep(&mut self, undo: Undo) -> usize {
        self.standing.next += 1;
        self.standing.undo.insert(self.standing.next, undo);
        self.standing.next
    }

    pub(in crate::sim) fn on_fault_ends(&mut self, id: usize) {
        if let Some(undo) = self.standing.undo.remove(&id) {
            self.trace.note(self.now, &[id as u64], &[], || format!("over: {undo:?}"));
            self.take_back(undo);
        }
    }

    /// Ends all faults now: every machine runs, every wire works, every clock is right and every disk has room. Lost data stays
    /// lost.
    pub fn heal(&mut self) {
        self.trace.note(self.now, &[], &[], || "all is healed".into());
        for undo in std::mem::take(&mut self.standing.undo).into_values() {
            self.take_back(undo);
        }
        if let Some(switches) = &mut self.switches {
            switches.heal();
        }
        for host in 0..self.machines.len() {
            self.machines[host].store.fail_after(None);
            self.machines[host].doomed = self.machines[host].store.has_failed();
            self.come_back(host, Duration::ZERO, Return::WithStore);
        }
    }

    fn take_back(&mut self, undo: Undo) {
        match undo {
            Undo::Unblock(blocked) => {
                for (from, to) in blocked {
                    self.unblock(from, to);
                    if !self.network.is_blocked(from, to) && !self.network.is_blocked(to, from) {
                        self.connections.resume(from, to);
                    }
                }
            }
            Undo::Thaw { host, asleep } => self.thaw(host, asleep),
            Undo::Restart(hosts, how) => {
                for host in hosts {
                    self.come_back(host, Duration::ZERO, how);
                }
            }
            Undo::Stopped(host, life) => {
                // A process that has not stopped by now is killed; but not one that died meanwhile, and is back.
                if self.machines[host].life == life {
                    let kept = self.kept(host);
                    self.end(host, Some(kept));
                }
                self.come_back(host, Duration::ZERO, Return::WithStore);
            }
            Undo::Quiet => self.network.set_noise(Noise::default()),
            Undo::Lossless(host) => self.network.set_loss(host, 0),
            Undo::Quick => self.slowness = 1,
            Undo::RightClock(host) => self.machines[host].clocks.set_right(),
            Undo::SwitchReplaced => self.replaced_switch(),
            Undo::SwitchMended(at) => self.mend_switch(at),
            Undo::Attended => self.switches().unattended -= 1,
            Undo::DiskFree(host) => self.deliver(host, Input::DiskLow(None)),
        }
    }

    fn thaw(&mut self, host: usize, asleep: bool) {
        let now = self.now;
        let machine = &mut self.machines[host];
        machine.frozen -= 1;
        machine.disturbed = now;
        if asleep {
            machine.clocks.wake(now);
        }
        if machine.frozen == 0 && machine.state == ProcessState::Frozen {
            machine.state = ProcessState::Running;
            if !machine.inbox.is_empty() {
                self.queue_turn(host);
            }
        }
    }

    /// Acts as an operator: where members in doubt wait for nodes that are gone for good, these nodes are given up.
    pub(in crate::sim) fn accept_losses(&mut self) {
        let alive: Vec<NodeId> = self.machines.iter().filter_map(|machine| machine.host.as_deref()?.node()).collect();
        for host in 0..self.machines.len() {
            let requests =
                self.machines[host].host.as_deref().map_or(Vec::new(), |process| process.accept_loss(&alive));
            if !requests.is_empty() && self.machines[host].state == ProcessState::Running {
                self.marks.hit("world: a loss is accepted");
                self.handle(host, requests);
            }
        }
    }
}
