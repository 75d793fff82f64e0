//! Strikes of faults, and their ends.

use std::collections::BTreeMap;
use std::time::Duration;

use node::{Durability, Input};
use overlay::NodeId;

use crate::sim::fault::{FaultKind, Target};
use crate::sim::host::Host;
use crate::sim::machine::{Machine, ProcessState, Return};
use crate::sim::network::Noise;
use crate::sim::queue::Event;
use crate::sim::world::World;

/// Effect of a fault that can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
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
    pub(in crate::sim) fn on_fault(&mut self, index: usize) {
        let fault = self.scenario.faults[index];
        if let Some(undo) = self.strike(fault.kind) {
            self.trace.note(self.now, &[index as u64], &[], || format!("fault {:?} for {:?}", fault.kind, fault.lasts));
            let id = self.keep(undo);
            self.queue_in(fault.lasts, Event::FaultEnds(id));
        }
    }

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

    fn keep(&mut self, undo: Undo) -> usize {
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

    /// Returns the machine that a target means.
    pub fn resolve(&self, target: Target) -> usize {
        match target {
            Target::Host(host) => host,
            Target::Primary => self.probes.last_primary(),
            Target::Leader => {
                let leads = |host: &usize| self.process(*host).is_some_and(H::leads);
                (0..self.machines.len()).find(leads).unwrap_or_else(|| self.probes.last_primary())
            }
        }
    }

    fn strike(&mut self, kind: FaultKind) -> Option<Undo> {
        let n = self.machines.len();
        match kind {
            FaultKind::Crash(target) => self.crash(self.resolve(target)),
            FaultKind::Lose(target) => self.lose(self.resolve(target)),
            FaultKind::CrashAll => self.crash_all(false),
            FaultKind::TearAll => self.crash_all(true),
            FaultKind::Tear(target) => self.tear(self.resolve(target)),
            FaultKind::Flip(target) => self.flip(self.resolve(target)),
            FaultKind::Stop(target) => self.stop(self.resolve(target)),
            FaultKind::Leave(target) => self.leave(self.resolve(target)),
            FaultKind::StopEpoch(target) => {
                self.marks.hit("fault: an epoch is stopped");
                let host = self.resolve(target);
                self.stop_epoch(host);
                None
            }
            FaultKind::Reform(target, chance) => {
                let host = self.resolve(target);
                self.reform(host, chance);
                // Every other time an administrator changes a policy while groups are reformed.
                if chance >> 50 & 1 == 1
                    && let Some(wish) = self.process(host).and_then(|process| process.set_policies(chance >> 51))
                {
                    self.marks.hit("fault: policies change");
                    self.handle(host, [wish]);
                }
                None
            }
            FaultKind::Repair(target) => {
                self.marks.hit("fault: a range is declared lost");
                let host = self.resolve(target);
                if let Some(wish) = self.process(host).and_then(H::repair) {
                    self.handle(host, [wish]);
                }
                None
            }
            FaultKind::Pause(target) => self.freeze(self.resolve(target), false),
            FaultKind::Suspend(target) => self.freeze(self.resolve(target), true),
            FaultKind::Isolate(target) => {
                let host = self.resolve(target);
                self.cut("fault: isolated", |from, to| from == host || to == host)
            }
            FaultKind::Deafen(target) => {
                let host = self.resolve(target);
                self.cut("fault: deafened", |_, to| to == host)
            }
            FaultKind::Mute(target) => {
                let host = self.resolve(target);
                self.cut("fault: muted", |from, _| from == host)
            }
            FaultKind::Split(side) => {
                let is_set = |host: usize| side >> (host % 64) & 1 == 1;
                self.cut("fault: split", move |from, to| is_set(from) != is_set(to))
            }
            FaultKind::Triangle(a, b) => {
                self.cut("fault: triangle", |from, to| (from, to) == (a, b) || (to, from) == (a, b))
            }
            FaultKind::Clog(a, b) => self.cut("fault: clog", |from, to| (from, to) == (a, b)),
            FaultKind::Reset(a, b) => {
                if a != b && self.connections.broken(a, b) {
                    self.marks.hit("fault: connection reset");
                    self.network.forget_held(a, b);
                    self.queue_notice(a, b, Duration::ZERO);
                    self.queue_notice(b, a, Duration::ZERO);
                }
                None
            }
            FaultKind::Noise(noise) => {
                self.marks.hit("fault: noise");
                self.network.set_noise(noise);
                Some(Undo::Quiet)
            }
            FaultKind::Lossy(target, per_mille) => {
                let host = self.resolve(target);
                self.marks.hit("fault: a machine's frames are lost");
                self.network.set_loss(host, per_mille);
                Some(Undo::Lossless(host))
            }
            FaultKind::Slow(factor) => {
                self.marks.hit("fault: all machines are slow");
                self.slowness = factor;
                Some(Undo::Quick)
            }
            FaultKind::WallJump(target, milliseconds) => {
                let host = self.resolve(target);
                self.marks.hit("fault: wall clock jumps");
                self.machines[host].clocks.jump(milliseconds);
                Some(Undo::RightClock(host))
            }
            FaultKind::DiskLow(target) => {
                let host = self.resolve(target);
                self.marks.hit("fault: disk nearly full");
                self.deliver(host, Input::DiskLow(Some(group::op::Limit::Disk)));
                Some(Undo::DiskFree(host))
            }
            FaultKind::SwitchRestart { other } => {
                self.restart_switch(other);
                None
            }
            FaultKind::SwitchReplace { moved } => {
                self.replace_switch(moved);
                Some(Undo::SwitchReplaced)
            }
            FaultKind::SwitchCut => self.cut_switch().map(Undo::SwitchMended),
            FaultKind::Unattended => {
                self.marks.hit("fault: nobody sets a switch's tables");
                self.switches.as_mut()?.unattended += 1;
                Some(Undo::Attended)
            }
            FaultKind::StoreFails(target, calls) => {
                let host = self.resolve(target);
                if n > 1 && (self.scenario.durability == Durability::Sync || self.can_lose(host)) {
                    self.marks.hit("fault: store is about to fail");
                    self.machines[host].doomed = true;
                    self.machines[host].store.fail_after(Some(calls));
                }
                None
            }
        }
    }

    fn crash(&mut self, host: usize) -> Option<Undo> {
        if self.scenario.durability == Durability::Memory && !self.can_lose(host) {
            self.marks.hit("fault: left out, the group could not survive it");
            return None;
        }
        if self.machines[host].state == ProcessState::Down {
            return None;
        }
        self.marks.hit("fault: crash");
        let kept = self.kept(host);
        self.end(host, Some(kept));
        Some(Undo::Restart(vec![host], Return::WithStore))
    }

    fn tear(&mut self, host: usize) -> Option<Undo> {
        if self.scenario.durability == Durability::Memory || self.machines[host].state == ProcessState::Down {
            return None;
        }
        self.marks.hit("fault: crash, and the store's end is torn");
        let kept = self.kept(host);
        self.end(host, Some(kept));
        self.machines[host].store.tear();
        Some(Undo::Restart(vec![host], Return::WithStore))
    }

    fn flip(&mut self, host: usize) -> Option<Undo> {
        if self.machines[host].state == ProcessState::Down || self.scenario.durability == Durability::Memory {
            return None;
        }
        if !self.machines[host].store.has_last() {
            self.marks.hit("fault: left out, nothing was made durable");
            return None;
        }
        if !self.may_forget(host) {
            self.marks.hit("fault: left out, the group could not survive it");
            return None;
        }
        self.marks.hit("fault: crash, and what was durable last goes bad");
        self.end(host, Some(0));
        let machine = &mut self.machines[host];
        machine.store.lose_last();
        machine.forgot = true;
        if let Some(node) = machine.kept {
            self.probes.forget_node(node);
        }
        Some(Undo::Restart(vec![host], Return::WithStore))
    }

    /// Returns whether this machine may lose the data that it acknowledged last: no other machine has lost acknowledged data, and all
    /// nodes that could be asked for that data hold all data that they acknowledged.
    fn may_forget(&mut self, host: usize) -> bool {
        for machine in &mut self.machines {
            let is_sure = |host: &H| !host.is_in_doubt();
            machine.forgot &= !(machine.ready && machine.host.as_deref().is_some_and(is_sure));
        }
        let others_forgot = self.machines.iter().enumerate().any(|(other, machine)| other != host && machine.forgot);
        let node = |machine: &Machine<H>| machine.host.as_deref().map_or(machine.kept, H::node);
        let held: Vec<NodeId> = self.machines.iter().filter_map(node).collect();
        let Some(id) = self.machines[host].host.as_deref().and_then(H::node) else { return false };
        let mut processes = self.machines.iter().filter_map(|machine| machine.host.as_deref());
        !others_forgot && processes.all(|process| process.survives_doubt(id, &held))
    }

    /// Acts as an operator: where members in doubt wait for nodes that are gone for good, these nodes are given up.
    pub(in crate::sim) fn accept_losses(&mut self) {
        let alive: Vec<NodeId> = self.machines.iter().filter_map(|machine| machine.host.as_deref()?.node()).collect();
        for host in 0..self.machines.len() {
            let wishes = self.machines[host].host.as_deref().map_or(Vec::new(), |process| process.accept_loss(&alive));
            if !wishes.is_empty() && self.machines[host].state == ProcessState::Running {
                self.marks.hit("world: a loss is accepted");
                self.handle(host, wishes);
            }
        }
    }

    fn lose(&mut self, host: usize) -> Option<Undo> {
        if !self.can_lose(host) {
            self.marks.hit("fault: left out, the group could not survive it");
            return None;
        }
        self.marks.hit("fault: crash, and the store is gone");
        self.end(host, Some(0));
        self.machines[host].kept = None;
        Some(Undo::Restart(vec![host], Return::Empty))
    }

    fn crash_all(&mut self, torn: bool) -> Option<Undo> {
        if self.scenario.durability == Durability::Memory {
            return None;
        }
        self.marks.hit(if torn { "fault: all crash at once, torn" } else { "fault: all crash at once" });
        for host in 0..self.machines.len() {
            if self.machines[host].state == ProcessState::Down {
                continue;
            }
            let kept = self.kept(host);
            self.end(host, Some(kept));
            if torn {
                self.machines[host].store.tear();
            }
        }
        Some(Undo::Restart((0..self.machines.len()).collect(), Return::WithStore))
    }

    fn stop(&mut self, host: usize) -> Option<Undo> {
        if self.scenario.durability == Durability::Memory && !self.can_lose(host) {
            return None;
        }
        if self.machines[host].state != ProcessState::Running {
            return None;
        }
        self.marks.hit("fault: asked to stop");
        self.machines[host].doomed = true;
        self.deliver(host, Input::Stop);
        Some(Undo::Stopped(host, self.machines[host].life))
    }

    fn leave(&mut self, host: usize) -> Option<Undo> {
        if self.machines[host].state != ProcessState::Running {
            return None;
        }
        self.marks.hit("fault: asked to leave");
        self.deliver(host, Input::Leave { force: false });
        None
    }

    fn stop_epoch(&mut self, host: usize) {
        if let Some(mut process) = self.machines[host].host.take() {
            process.stop_epoch();
            self.obey(host, &mut process);
            if self.machines[host].state != ProcessState::Down {
                self.machines[host].host = Some(process);
            }
        }
    }

    /// Reforms the first group, from that machine on, that can be reformed. Not while a machine ends that keeps no data: a part of
    /// its group may consist of this machine and one other.
    fn reform(&mut self, host: usize, chance: u64) {
        let hosts = self.machines.len();
        if self.scenario.durability == Durability::Memory && self.machines.iter().any(|machine| machine.doomed) {
            return self.marks.hit("fault: left out, the group could not survive it");
        }
        for host in (host..hosts).chain(0..host) {
            if self.machines[host].state != ProcessState::Running {
                continue;
            }
            let Some(mut process) = self.machines[host].host.take() else { continue };
            let begun = process.reform(chance);
            self.obey(host, &mut process);
            if self.machines[host].state != ProcessState::Down {
                self.machines[host].host = Some(process);
            }
            if begun {
                return self.marks.hit("fault: a group becomes another");
            }
        }
    }

    fn freeze(&mut self, host: usize, asleep: bool) -> Option<Undo> {
        self.marks.hit(if asleep { "fault: machine sleeps" } else { "fault: process frozen" });
        let now = self.now;
        let machine = &mut self.machines[host];
        machine.frozen += 1;
        machine.disturbed = now;
        if machine.state == ProcessState::Running {
            machine.state = ProcessState::Frozen;
        }
        if asleep {
            machine.clocks.sleep(now);
        }
        Some(Undo::Thaw { host, asleep })
    }

    fn cut(&mut self, mark: &'static str, which: impl Fn(usize, usize) -> bool) -> Option<Undo> {
        let n = self.machines.len();
        let blocked: Vec<(usize, usize)> = (0..n)
            .flat_map(|from| (0..n).map(move |to| (from, to)))
            .filter(|&(from, to)| from != to && which(from, to))
            .collect();
        if blocked.is_empty() {
            return None;
        }
        self.marks.hit(mark);
        for &(from, to) in &blocked {
            self.network.block(from, to);
            if let Some(keepalive) = self.scenario.keepalive {
                let serial = self.connections.stall(from, to);
                self.queue_in(keepalive, Event::Stalled { a: from, b: to, serial });
            }
        }
        Some(Undo::Unblock(blocked))
    }

    pub(in crate::sim) fn on_stalled(&mut self, a: usize, b: usize, serial: u64) {
        if self.connections.still_stalled(a, b, serial) && self.connections.broken(a, b) {
            self.marks.hit("network: keep-alive gave a connection up");
            self.network.forget_held(a, b);
            self.queue_notice(a, b, Duration::ZERO);
            self.queue_notice(b, a, Duration::ZERO);
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

    /// Returns whether the other machines hold all data that the group must not lose, and can go on without this one's state.
    fn can_lose(&self, host: usize) -> bool {
        let n = self.machines.len();
        n >= 3
            && self.machines[host].state != ProcessState::Down
            && !self.is_depended_on(host)
            && (0..n).filter(|&other| other != host).all(|other| {
                let machine = &self.machines[other];
                machine.state == ProcessState::Running
                    && !machine.doomed
                    && machine.ready
                    && !machine.store.has_failed()
                    && machine.host.as_deref().is_some_and(H::is_whole)
                    && (0..n).all(|to| to == other || to == host || !self.network.is_blocked(other, to))
            })
    }

    /// Returns whether a group, known to some node or about to be born, would have no quorum for ever without this machine's state.
    fn is_depended_on(&self, host: usize) -> bool {
        let Some(other) = &self.machines[host].host else { return false };
        let processes = || self.machines.iter().filter_map(|machine| machine.host.as_deref());
        let alive: Vec<NodeId> = processes().filter_map(H::node).collect();
        processes().any(|process| process.depends_on(other, &alive))
    }
}
