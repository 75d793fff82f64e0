//! The end of a run: healed, the network must converge; then the clients' history is judged.

use std::collections::BTreeSet;
use std::time::Duration;

use group::op::{Op, Read};
use overlay::Key;

use crate::checkers::{Broken, Circumstances, Failure, check_history};
use crate::history::Outcome;
use crate::sim::fault::{FaultKind, stalls};
use crate::sim::host::{Host, Owned};
use crate::sim::world::World;

/// Upper limit of the machines that one key is read through at one time.
const ASKED_MAX: usize = 64;
/// Pause before open requests are checked, or keys are read, once more.
const PAUSE: Duration = Duration::from_millis(500);

impl<H: Host> World<H> {
    /// Runs the whole scenario: faults, then healing, then convergence, then judgement.
    ///
    /// # Errors
    /// The first violated property, or an end of the run that is not reached in time.
    pub fn run(&mut self) -> Result<(), Failure> {
        self.run_for(self.scenario.fault_time);
        self.heal();
        self.run_for(self.scenario.calm_time);
        self.converge();
        self.judge();
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Demands that all requests end, that each key can be read through a machine, and some keys through every machine, and that
    /// the machines' states become equal, all within the scenario's time.
    pub fn converge(&mut self) {
        self.workload.stop();
        let end = self.now() + self.scenario.converge_within;
        while self.workload.waiting() > 0 && self.now() < end && self.failure.is_none() {
            self.run_for(PAUSE);
        }
        let keys: BTreeSet<Key> = self.history().operations.iter().map(|operation| operation.key.clone()).collect();
        let mut open: Vec<(usize, Key)> = Vec::new();
        let stride = self.scenario.hosts.div_ceil(ASKED_MAX);
        for (index, key) in keys.into_iter().enumerate() {
            // Each key is read once, and some keys through every machine, or through as many as [`ASKED_MAX`] permits.
            for host in 0..self.scenario.hosts {
                if index % self.scenario.hosts == host || index < 3 && host % stride == index % stride {
                    open.push((host, key.clone()));
                }
            }
        }
        loop {
            open = self.read_all(open);
            self.sweep();
            let differs = || self.probes.difference().map(|detail| ("I16 live", format!("difference: {detail}")));
            let flaw = differs().or_else(|| self.ring_flaw()).or_else(|| self.switch_flaw());
            if self.failure.is_some() {
                return;
            }
            if open.is_empty() && flaw.is_none() {
                if self.switches.is_some() {
                    self.marks.hit("switch: reads are spread again, and the dirty set is empty");
                }
                return;
            }
            if self.now() >= end {
                let unread = || ("PTO1 validity", format!("{} keys cannot be read ({:?})", open.len(), open.first()));
                let (property, detail) = flaw.unwrap_or_else(unread);
                return self.fail(property, detail);
            }
            self.accept_losses();
            self.run_for(PAUSE);
        }
    }

    /// Returns a flaw of the ring as a whole: groups must cover it exactly, know their neighbours, be at rest, and agree on
    /// policies.
    fn ring_flaw(&self) -> Option<Broken> {
        let mut groups: Vec<Owned> = Vec::new();
        for process in (0..self.scenario.hosts).filter_map(|host| self.host(host)) {
            match process.owned() {
                Ok(owned) => groups.extend(owned),
                Err(why) => return Some(why),
            }
        }
        groups.sort_by_key(|group| (group.range.start(), group.id));
        groups.dedup();
        for (index, group) in groups.iter().enumerate() {
            let next = &groups[(index + 1) % groups.len()];
            if group.range.end() != next.range.start() || group.behind != next.id || next.before != group.id {
                return Some(("I16 live", format!("behind {group:?} is {next:?}")));
            }
            if group.policies != next.policies {
                return Some(("I16 live", format!("behind {group:?} is {next:?}, with other policies")));
            }
        }
        None
    }

    /// Reads keys through machines, and returns those that were not answered.
    fn read_all(&mut self, open: Vec<(usize, Key)>) -> Vec<(usize, Key)> {
        let mut asked = Vec::new();
        for (host, key) in open {
            let (ask, index) = self.workload.ask_apart(host, self.now(), key.clone(), Op::Read(Read::Value));
            self.ask(ask);
            asked.push((host, key, index));
        }
        while self.workload.waiting() > 0 && self.failure.is_none() {
            self.run_for(Duration::from_millis(20));
        }
        let operations = &self.history().operations;
        asked.retain(|(_, _, index)| !matches!(operations[*index].outcome, Outcome::Answered(_)));
        asked.into_iter().map(|(host, key, _)| (host, key)).collect()
    }

    /// Judges the history of the clients.
    pub fn judge(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let jumps = self.scenario.faults.iter().any(|fault| matches!(fault.kind, FaultKind::WallJump(..)));
        let circumstances = Circumstances {
            stalls: Some(stalls(&self.scenario.faults)),
            clock_slack: (!jumps).then_some(Duration::from_secs(10)),
            value_bytes_max: self.scenario.value_bytes_max,
        };
        if let Err((property, detail)) = check_history(self.history(), &circumstances) {
            self.fail(property, detail);
        }
    }
}
