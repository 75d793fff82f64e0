//! Strikes of faults.

use std::time::Duration;

use node::{Durability, Input};

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
            let id = self.keep(undo);
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
                self.restart_switch(other);
                None
            }
            FaultKind::SwitchReplace { moved } => {
                self.replace_switch(moved);
                Some(Undo::SwitchReplaced)
            }
            FaultKind::SwitchCut => self.cut_switch().map(Undo::SwitchMended),
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
}
