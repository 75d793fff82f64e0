//! Strikes of faults, and their ends.

use std::time::Duration;

use node::{Durability, Input};
use overlay::NodeId;

use crate::sim::fault::survival::{can_lose, may_forget};
use crate::sim::fault::undo::Undo;
use crate::sim::fault::{FaultKind, Target};
use crate::sim::host::Host;
use crate::sim::machine::{ProcessState, Return};
use crate::sim::network::Noise;
use crate::sim::queue::Event;
use crate::sim::world::World;

impl<H: Host> World<H> {
    pub(in crate::sim) fn on_fault(&mut self, index: usize) {
        let fault = self.scenario.faults[index];
        if let Some(undo) = self.strike(fault.kind) {
            self.trace.note(self.now, &[index as u64], &[], || format!("fault {:?} for {:?}", fault.kind, fault.lasts));
            let id = self.standing.keep(undo);
            self.queue_in(fault.lasts, Event::FaultEnds(id));
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

    /// Causes a fault now. Returns its effect, if it can be undone.
    pub(super) fn strike(&mut self, kind: FaultKind) -> Option<Undo> {
        match kind {
            FaultKind::Crash(target) => self.crash(self.resolve(target)),
            FaultKind::Lose(target) => self.lose(self.resolve(target)),
            FaultKind::CrashAll => self.crash_all(false),
            FaultKind::TearAll => self.crash_all(true),
            FaultKind::Tear(target) => self.tear(self.resolve(target)),
            FaultKind::Flip(target) => self.flip(self.resolve(target)),
            FaultKind::Stop(target) => self.stop(self.resolve(target)),
            FaultKind::Leave(target) => self.leave(self.resolve(target)),
            FaultKind::StopEpoch(target) => self.stop_epoch(self.resolve(target)),
            FaultKind::Reform(target, chance) => self.reform(self.resolve(target), chance),
            FaultKind::Repair(target) => self.repair(self.resolve(target)),
            FaultKind::Pause(target) => self.freeze(self.resolve(target), false),
            FaultKind::Suspend(target) => self.freeze(self.resolve(target), true),
            FaultKind::Slow(factor) => self.slow(factor),
            FaultKind::WallJump(target, milliseconds) => self.jump(self.resolve(target), milliseconds),
            FaultKind::DiskLow(target) => self.fill_disk(self.resolve(target)),
            FaultKind::StoreFails(target, calls) => self.fail_store(self.resolve(target), calls),
            FaultKind::SwitchRestart { other } => {
                self.switches.as_mut()?.restart(other, &mut self.marks);
                None
            }
            FaultKind::SwitchReplace { moved } => {
                self.switches.as_mut()?.replace(moved, &mut self.marks);
                Some(Undo::SwitchReplaced)
            }
            FaultKind::SwitchCut => Some(Undo::SwitchMended(self.switches.as_mut()?.cut())),
            FaultKind::Unattended => self.unattend(),
            FaultKind::Isolate(_)
            | FaultKind::Deafen(_)
            | FaultKind::Mute(_)
            | FaultKind::Split(_)
            | FaultKind::Triangle(..)
            | FaultKind::Clog(..) => self.cut_wires(kind),
            FaultKind::Reset(a, b) => self.reset(a, b),
            FaultKind::Noise(noise) => self.make_noise(noise),
            FaultKind::Lossy(target, per_mille) => self.lose_frames(self.resolve(target), per_mille),
        }
    }

    /// Blocks wires, as a fault of this kind does; no other fault blocks any.
    fn cut_wires(&mut self, kind: FaultKind) -> Option<Undo> {
        match kind {
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
            _ => None,
        }
    }

    fn reset(&mut self, a: usize, b: usize) -> Option<Undo> {
        if a != b && self.connections.broken(a, b) {
            self.marks.hit("fault: connection reset");
            self.forget_connection(a, b);
        }
        None
    }

    fn make_noise(&mut self, noise: Noise) -> Option<Undo> {
        self.marks.hit("fault: noise");
        self.network.set_noise(noise);
        Some(Undo::Quiet)
    }

    fn lose_frames(&mut self, host: usize, per_mille: u32) -> Option<Undo> {
        self.marks.hit("fault: a machine's frames are lost");
        self.network.set_loss(host, per_mille);
        Some(Undo::Lossless(host))
    }

    fn slow(&mut self, factor: u32) -> Option<Undo> {
        self.marks.hit("fault: all machines are slow");
        self.slowness = factor;
        Some(Undo::Quick)
    }

    fn jump(&mut self, host: usize, milliseconds: i64) -> Option<Undo> {
        self.marks.hit("fault: wall clock jumps");
        self.machines[host].clocks.jump(milliseconds);
        Some(Undo::RightClock(host))
    }

    fn fill_disk(&mut self, host: usize) -> Option<Undo> {
        self.marks.hit("fault: disk nearly full");
        self.deliver(host, Input::DiskLow(Some(group::op::Limit::Disk)));
        Some(Undo::DiskFree(host))
    }

    fn fail_store(&mut self, host: usize, calls: u64) -> Option<Undo> {
        let is_durable = self.scenario.durability == Durability::Sync;
        if self.machines.len() > 1 && (is_durable || can_lose(&self.machines, &self.network, host)) {
            self.marks.hit("fault: store is about to fail");
            self.machines[host].doomed = true;
            self.machines[host].store.fail_after(Some(calls));
        }
        None
    }

    fn unattend(&mut self) -> Option<Undo> {
        self.marks.hit("fault: nobody sets a switch's tables");
        self.switches.as_mut()?.unattended += 1;
        Some(Undo::Attended)
    }

    fn repair(&mut self, host: usize) -> Option<Undo> {
        self.marks.hit("fault: a range is declared lost");
        if let Some(wish) = self.process(host).and_then(H::repair) {
            self.handle(host, [wish]);
        }
        None
    }

    fn crash(&mut self, host: usize) -> Option<Undo> {
        if self.scenario.durability == Durability::Memory && !can_lose(&self.machines, &self.network, host) {
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
        if !may_forget(&mut self.machines, host) {
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

    fn lose(&mut self, host: usize) -> Option<Undo> {
        if !can_lose(&self.machines, &self.network, host) {
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
        if self.scenario.durability == Durability::Memory && !can_lose(&self.machines, &self.network, host) {
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

    fn stop_epoch(&mut self, host: usize) -> Option<Undo> {
        self.marks.hit("fault: an epoch is stopped");
        if let Some(mut process) = self.machines[host].host.take() {
            process.stop_epoch();
            self.obey(host, &mut process);
            if self.machines[host].state != ProcessState::Down {
                self.machines[host].host = Some(process);
            }
        }
        None
    }

    /// Reforms a group, and every other time changes a policy, as an administrator may meanwhile.
    fn reform(&mut self, host: usize, chance: u64) -> Option<Undo> {
        self.reform_first(host, chance);
        if chance >> 50 & 1 == 1
            && let Some(wish) = self.process(host).and_then(|process| process.set_policies(chance >> 51))
        {
            self.marks.hit("fault: policies change");
            self.handle(host, [wish]);
        }
        None
    }

    /// Reforms the first group, from that machine on, that can be reformed. Not while a machine ends that keeps no data: a part of
    /// its group may consist of this machine and one other.
    fn reform_first(&mut self, host: usize, chance: u64) {
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
            self.forget_connection(a, b);
        }
    }

    /// Forgets the frames of a connection that broke, and lets both sides notice.
    fn forget_connection(&mut self, a: usize, b: usize) {
        self.network.forget_held(a, b);
        self.queue_notice(a, b, Duration::ZERO);
        self.queue_notice(b, a, Duration::ZERO);
    }

    /// Strikes now. The fault lasts until [`World::undo`] with the returned number, or [`World::heal`]. `None` if there is nothing
    /// to undo.
    pub fn inject(&mut self, kind: FaultKind) -> Option<usize> {
        self.trace.note(self.now, &[], &[], || format!("fault {kind:?}"));
        let undo = self.strike(kind)?;
        Some(self.standing.keep(undo))
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
        Some(self.standing.keep(Undo::Restart(vec![host], how)))
    }

    pub(in crate::sim) fn on_fault_ends(&mut self, id: usize) {
        if let Some(undo) = self.standing.take(id) {
            self.trace.note(self.now, &[id as u64], &[], || format!("over: {undo:?}"));
            self.take_back(undo);
        }
    }

    /// Ends all faults now: every machine runs, every wire works, every clock is right and every disk has room. Lost data stays
    /// lost.
    pub fn heal(&mut self) {
        self.trace.note(self.now, &[], &[], || "all is healed".into());
        for undo in self.standing.take_all() {
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
            Undo::SwitchReplaced => self.switches().replaced(),
            Undo::SwitchMended(at) => self.switches().mend(at),
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
