//! Results of a run.

use std::time::Duration;

use overlay::time::Time;

use super::setting::SwitchSetting;

/// Kinds of work that take a machine's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A read that the switch gave to a member.
    Read,
    /// A read that the switch gave to the primary.
    DirtyRead,
    /// A read that a client, or a member that could not answer it, asked of the primary.
    AskedRead,
    /// A write, at its primary or another member.
    Write,
    /// A packet that came back from the switch.
    WritePass,
    /// A vote, or a report of the executed numbers.
    Message,
}

/// Number of kinds.
const KINDS: usize = Done::Message as usize + 1;

/// Work of one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineWork {
    counts: [u64; KINDS],
    busy: [Duration; KINDS],
}

impl MachineWork {
    /// Returns how often work of this kind was done.
    pub fn count(&self, done: Done) -> u64 {
        self.counts[done as usize]
    }

    /// Returns the time of all work.
    pub fn busy(&self) -> Duration {
        self.busy.iter().sum()
    }
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchMeasured {
    begun: Time,
    lasts: Duration,
    window: Duration,
    reads: Vec<Duration>,
    writes: Vec<Duration>,
    /// Reads and writes that were answered in each window.
    pub windows: Vec<[u64; 2]>,
    /// Work of each machine.
    pub machines: Vec<MachineWork>,
    /// Reads that a member left to the primary.
    pub left: u64,
    /// Writes that found no room in the dirty set, each time that they passed.
    pub full: u64,
    /// Packets that came to a switch that does not run.
    pub lost: u64,
    /// Reads that were older than the version known when they were sent: there must be none.
    pub stale: u64,
    /// Number of writes that passed the switch; then, at such passes, the numbers that were given and not complete: their sum, and
    /// their maximum.
    passed: u64,
    open: u64,
    /// Greatest number of open numbers at one pass.
    pub open_max: u64,
}

impl SwitchMeasured {
    pub(super) fn new(begun: Time, setting: &SwitchSetting) -> SwitchMeasured {
        let windows = setting.lasts.as_nanos().div_ceil(setting.window.as_nanos()) as usize;
        SwitchMeasured {
            begun,
            lasts: setting.lasts,
            window: setting.window,
            reads: Vec::new(),
            writes: Vec::new(),
            windows: vec![[0; 2]; windows],
            machines: vec![MachineWork::default(); setting.replicas],
            left: 0,
            full: 0,
            lost: 0,
            stale: 0,
            passed: 0,
            open: 0,
            open_max: 0,
        }
    }

    pub(super) fn works(&mut self, machine: usize, done: Done, count: u64, takes: Duration) {
        let work = &mut self.machines[machine];
        work.counts[done as usize] += count;
        work.busy[done as usize] += takes;
    }

    pub(super) fn answered(&mut self, is_write: bool, waited: Duration, now: Time) {
        let window = now.since(self.begun).as_nanos() / self.window.as_nanos();
        if let Some(counts) = self.windows.get_mut(window as usize) {
            counts[usize::from(is_write)] += 1;
        }
        if is_write { &mut self.writes } else { &mut self.reads }.push(waited);
    }

    pub(super) fn passes(&mut self, open: u64, is_full: bool) {
        self.full += u64::from(is_full);
        (self.passed, self.open, self.open_max) = (self.passed + 1, self.open + open, self.open_max.max(open));
    }

    /// Returns the operations a second.
    pub fn ops_per_s(&self) -> f64 {
        (self.reads.len() + self.writes.len()) as f64 / self.lasts.as_secs_f64()
    }

    /// Returns the writes a second.
    pub fn writes_per_s(&self) -> f64 {
        self.writes.len() as f64 / self.lasts.as_secs_f64()
    }

    /// Returns the waiting time that this share of the writes did not exceed.
    pub fn write_wait(&self, share: f64) -> Duration {
        quantile(&self.writes, share)
    }

    /// Returns the waiting time that this share of the reads did not exceed.
    pub fn read_wait(&self, share: f64) -> Duration {
        quantile(&self.reads, share)
    }

    /// Returns the share of the time in which this machine was busy.
    pub fn busy(&self, machine: usize) -> f64 {
        self.machines[machine].busy().as_secs_f64() / self.lasts.as_secs_f64()
    }

    /// Returns how often all machines together did work of this kind.
    pub fn count(&self, done: Done) -> u64 {
        self.machines.iter().map(|work| work.count(done)).sum()
    }

    /// Returns the average count of open numbers when a write passed.
    pub fn open_mean(&self) -> f64 {
        self.open as f64 / self.passed.max(1) as f64
    }
}

fn quantile(waits: &[Duration], share: f64) -> Duration {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    let index = ((waits.len() as f64 * share) as usize).min(waits.len().saturating_sub(1));
    waits.get(index).copied().unwrap_or_default()
}
