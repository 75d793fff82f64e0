//! The settings of one run, made by one seed.

use std::fmt;
use std::time::Duration;

use group::config::Defects;
use node::{Durability, Policies, Timing};

use crate::rng::Rng;
use crate::sim::fault::{Fault, Mix, Pace};
use crate::sim::network::Latency;
use crate::sim::switch::SwitchRules;
use crate::sim::workload::Load;

/// Settings of a run: all that is not chance inside the run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of all chance of the run.
    pub seed: u64,
    /// Number of machines.
    pub hosts: usize,
    /// Durability on which acknowledgements rest.
    pub durability: Durability,
    /// Reads rest on leases instead of confirmations.
    pub leases: bool,
    /// Writes of a sub-range are answered in order.
    pub coarse: bool,
    /// Intervals and timeouts of nodes, such as heartbeats.
    pub timing: Timing,
    /// Upper limit of a clock's drift, too fast or slow, in parts per million. Within [`Timing::drift_per_mille`] no property may
    /// be violated.
    pub drift_ppm: u32,
    /// Latency of the wires.
    pub latency: Latency,
    /// Range of a sync's duration.
    pub sync_time: (Duration, Duration),
    /// Range of the duration of a look-up in the store.
    pub load_time: (Duration, Duration),
    /// Time to handle the input of one moment; zero for none.
    pub service_time: Duration,
    /// Factors of [`Scenario::service_time`], assigned to machines in turn; empty: all machines take that time itself.
    pub service_factors: Vec<u32>,
    /// Interval at which nodes are told how busy their machines were, where service takes time; `None`: never.
    pub tell_busy: Option<Duration>,
    /// Time for which a connection may stall before it is given up; `None`: no limit.
    pub keepalive: Option<Duration>,
    /// Rate at which nodes are not told that a connection is gone, in 1,000.
    pub notices_lost: u32,
    /// Load of the clients.
    pub load: Load,
    /// Number of clusters: machines name one of them in turn as theirs; 0: no machine names any.
    pub clusters: usize,
    /// Least and greatest number of members that a group should have.
    pub members: (u32, u32),
    /// Limit of a node's memory, in bytes.
    pub memory_bytes_max: usize,
    /// Size limit of a value, in bytes.
    pub value_bytes_max: usize,
    /// Size limit of a message between nodes, in bytes.
    pub message_bytes_max: usize,
    /// Limit of a node's copies from other nodes, in bytes a second.
    pub transfer_bytes_per_s: u64,
    /// Data that a store has synced last can be damaged.
    pub tears: bool,
    /// Number of steps between two observations of the whole state.
    pub sweep_every: u64,
    /// Switches that spread reads over members, in runs that have switches.
    pub switch: Option<SwitchRules>,
    /// Policies by which nodes decide.
    pub policies: Policies,
    /// Period over which first starts are spread.
    pub start_within: Duration,
    /// Rules that nodes leave out on purpose.
    pub defects: Defects,
    /// Faults, in order of time.
    pub faults: Vec<Fault>,
    /// Duration of the phase with faults.
    pub fault_time: Duration,
    /// Time for which clients go on after the faults.
    pub calm_time: Duration,
    /// Limit of the time after that until the whole network must be well.
    pub converge_within: Duration,
}

impl Scenario {
    /// Returns a run without faults: three machines, a few clients.
    pub fn calm(seed: u64) -> Scenario {
        Scenario {
            seed,
            hosts: 3,
            durability: Durability::Sync,
            leases: false,
            coarse: false,
            timing: Timing::default(),
            drift_ppm: 0,
            latency: Latency::Uniform(Duration::from_micros(200), Duration::from_micros(100)),
            sync_time: (Duration::from_micros(300), Duration::from_micros(900)),
            load_time: (Duration::from_micros(20), Duration::from_micros(200)),
            service_time: Duration::ZERO,
            service_factors: Vec::new(),
            tell_busy: None,
            keepalive: Some(Duration::from_secs(10)),
            notices_lost: 0,
            load: Load::default(),
            clusters: 0,
            members: (5, 12),
            memory_bytes_max: 64 << 20,
            value_bytes_max: 64 << 10,
            message_bytes_max: 256 << 10,
            transfer_bytes_per_s: 64 << 20,
            tears: false,
            sweep_every: 1_000,
            switch: None,
            policies: Policies::default(),
            start_within: Duration::from_secs(1),
            defects: Defects::NONE,
            faults: Vec::new(),
            fault_time: Duration::from_secs(10),
            calm_time: Duration::from_secs(2),
            converge_within: Duration::from_secs(60),
        }
    }

    /// Returns the run of this seed: its size, its speed, its load, and its kinds of faults.
    pub fn from_seed(seed: u64) -> Scenario {
        Scenario::from_seed_with(seed, None)
    }

    /// Returns the run of this seed, with `hosts` machines if given.
    pub fn from_seed_with(seed: u64, hosts: Option<usize>) -> Scenario {
        let mut rng = Rng::new(seed, "scenario");
        let drawn = *rng.pick(&[1, 3, 3, 3, 3, 4, 5, 5]);
        let hosts = hosts.unwrap_or(drawn);
        let mut scenario = Scenario { hosts, ..Scenario::calm(seed) };
        scenario.durability = if rng.per_mille(700) { Durability::Sync } else { Durability::Memory };
        scenario.leases = rng.per_mille(400);
        scenario.coarse = Rng::new(seed, "coarse").per_mille(300);
        scenario.drift_ppm = *rng.pick(&[0, 0, 100, 9_000]);
        scenario.latency = match rng.below(4) {
            0 => Latency::ThreeSites,
            1 => Latency::Uniform(Duration::from_millis(5), Duration::from_millis(20)),
            _ => scenario.latency,
        };
        if rng.per_mille(300) {
            scenario.sync_time = (Duration::from_millis(2), Duration::from_millis(30));
        }
        if rng.per_mille(200) {
            scenario.service_time = Duration::from_micros(rng.between(10, 200));
        }
        if rng.per_mille(300) {
            scenario.keepalive = None;
        }
        scenario.notices_lost = *rng.pick(&[0, 0, 300]);
        // So little memory that records are evicted and must be loaded again.
        scenario.memory_bytes_max = *rng.pick(&[64 << 20, 64 << 20, 32 << 10]);
        if scenario.durability == Durability::Memory {
            scenario.memory_bytes_max = 64 << 20;
        }
        scenario.load = Load::draw(&mut rng);
        scenario.fault_time = Duration::from_secs(*rng.pick(&[10, 20, 40]));
        let mut rng = Rng::new(seed, "faults");
        scenario.faults = Mix::draw(&mut rng).plan(&mut rng, hosts, scenario.fault_time);
        scenario
    }

    /// Returns a run of some seconds under faults that follow each other fast, with few operations on few keys: the run that
    /// [`Scenario::from_seed_with`] makes of the seed, an order of magnitude quicker.
    pub fn small(seed: u64, hosts: Option<usize>) -> Scenario {
        let mut scenario = Scenario::from_seed_with(seed, hosts);
        let mut rng = Rng::new(seed, "small");
        if hosts.is_none() {
            scenario.hosts = *rng.pick(&[1, 3, 3, 3, 3, 3, 3, 4, 5]);
        }
        scenario.load.clients = scenario.load.clients.min(5);
        scenario.load.cold_keys = scenario.load.cold_keys.min(6);
        scenario.load.operations_max = 1_500;
        // With fewer operations, the waits between them must be as long as the run is.
        scenario.load.think = (Duration::from_millis(1), Duration::from_millis(*rng.pick(&[20, 40, 80])));
        scenario.fault_time = Duration::from_secs(*rng.pick(&[4, 6, 10]));
        scenario.calm_time = Duration::from_secs(1);
        scenario.faults = Mix::draw(&mut rng).plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario
    }

    /// Returns a short run in which members come and go all the time, and are soon excluded.
    pub fn churn(seed: u64) -> Scenario {
        let mut scenario = Scenario::small(seed, Some(3));
        let mut rng = Rng::new(seed, "churn");
        scenario.hosts = *rng.pick(&[3, 4, 4, 5, 5, 6, 7]);
        scenario.timing.exclude_after = Duration::from_millis(*rng.pick(&[2_100, 2_500, 4_000, 10_000]));
        if rng.per_mille(500) {
            scenario.timing.heartbeat = Duration::from_millis(100);
            scenario.timing.exclude_after = Duration::from_millis(*rng.pick(&[450, 700, 1_500]));
        }
        if rng.per_mille(500) {
            // Soon no node needs to remember a deleted key. Clients that repeat an operation themselves must do so before the
            // horizon has passed.
            scenario.load.once = 0;
            scenario.timing.horizon = Duration::from_millis(*rng.pick(&[100, 300, 1_000]));
            scenario.timing.purge_every = Duration::from_millis(*rng.pick(&[50, 200, 1_000]));
        }
        scenario.fault_time = Duration::from_secs(*rng.pick(&[6, 10, 15]));
        scenario.faults = Mix::churn(&mut rng).plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario
    }

    /// Returns a run in which groups split, merge and move their boundaries, while members come and go.
    pub fn ring(seed: u64) -> Scenario {
        let mut scenario = Scenario::churn(seed);
        let mut rng = Rng::new(seed, "ring");
        scenario.hosts = *rng.pick(&[3, 5, 6, 7, 8]);
        // Groups keep the size with which they are made, or change to their target size.
        let mut sizes = Rng::new(seed, "sizes");
        scenario.members = *sizes.pick(&[(1, 1_000), (1, 1_000), (2, 3), (2, 4), (3, 5)]);
        scenario.timing.resize_after = Duration::from_millis(*sizes.pick(&[200, 500, 2_000]));
        // A node that is told another group's horizon must have time to send operations there before that horizon has passed.
        scenario.timing.horizon = scenario.timing.horizon.max(Duration::from_secs(1));
        // A client at one site must wait for keys at the two other sites.
        scenario.load.patience = scenario.load.patience.max(Duration::from_secs(1));
        scenario.fault_time = Duration::from_secs(*rng.pick(&[8, 12, 20]));
        scenario.faults = Mix::reform(&mut rng).plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario
    }

    /// Returns a small run of any of these kinds, in which all members stand beside two switches that spread their reads, and lose
    /// their state.
    pub fn switched(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed, "switched");
        let mut scenario = match rng.below(10) {
            0..5 => Scenario::small(seed, Some(*rng.pick(&[3, 3, 4, 5]))),
            5..8 => Scenario::churn(seed),
            _ => Scenario::ring(seed),
        };
        (scenario.leases, scenario.coarse) = (true, true);
        scenario.timing.lease = Duration::from_millis(*rng.pick(&[200, 1_000]));
        // The load needs clients that read the writes of other clients.
        scenario.load.clients = scenario.load.clients.max(3);
        scenario.load.reads = *rng.pick(&[400, 700]);
        scenario.load.think.1 = scenario.load.think.1.min(Duration::from_millis(*rng.pick(&[5, 20, 40])));
        scenario.load.operations_max = 4_000;
        scenario.switch = Some(SwitchRules::draw(&mut rng));
        let mix = Mix::switches(&mut rng);
        let more = mix.plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario.faults.extend(more);
        scenario.faults.sort_by_key(|fault| fault.at);
        scenario
    }

    /// Returns a small run of any of these kinds, in which ends of journals are torn and damaged.
    pub fn torn(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed, "torn");
        let mut scenario = match rng.below(10) {
            0..6 => Scenario::small(seed, Some(*rng.pick(&[1, 2, 3, 3, 3, 4, 5]))),
            6..8 => Scenario::churn(seed),
            _ => Scenario::ring(seed),
        };
        scenario.durability = Durability::Sync;
        scenario.tears = true;
        // In some runs no other fault occurs.
        if rng.per_mille(300) {
            scenario.faults.clear();
        }
        let more = Mix::tails().plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario.faults.extend(more);
        scenario.faults.sort_by_key(|fault| fault.at);
        scenario
    }

    /// Returns a ring with `hosts` machines: groups of three to five members form by themselves, and other groups on request.
    pub fn wide_ring(seed: u64, hosts: usize) -> Scenario {
        let mut scenario = Scenario::ring(seed);
        let mut rng = Rng::new(seed, "wide ring");
        scenario.hosts = hosts;
        scenario.members = (3, 5);
        scenario.timing.resize_after = Duration::from_millis(500);
        scenario.fault_time = Duration::from_secs(30);
        scenario.faults = Mix::reform(&mut rng).plan_at(&mut rng, hosts, scenario.fault_time, &Pace::QUICK);
        scenario
    }

    /// Returns a run with these kinds of faults alone.
    pub fn of(seed: u64, hosts: usize, mix: &Mix) -> Scenario {
        let mut scenario = Scenario { hosts, ..Scenario::calm(seed) };
        scenario.fault_time = Duration::from_secs(20);
        let mut rng = Rng::new(seed, "faults");
        scenario.faults = mix.plan(&mut rng, hosts, scenario.fault_time);
        scenario
    }

    /// Makes faults occur for this duration.
    pub fn stretch(&mut self, time: Duration) {
        let mut rng = Rng::new(self.seed, "faults");
        self.fault_time = time;
        self.faults = Mix::draw(&mut rng).plan(&mut rng, self.hosts, time);
        self.load.operations_max = u64::MAX;
    }

    /// Returns the time that a machine takes for this number of inputs (a model: a time for each input).
    pub(super) fn service_time_of(&self, host: usize, inputs: usize) -> Duration {
        let factor = host.checked_rem(self.service_factors.len()).map_or(1, |index| self.service_factors[index]);
        self.service_time * factor * inputs as u32
    }

    /// Returns the same run with these faults alone.
    pub fn with_faults(&self, faults: Vec<Fault>) -> Scenario {
        Scenario { faults, ..self.clone() }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} hosts, {:?}, leases {}, coarse {}, drift {} ppm, {:?}, sync {:?}, service {:?}, keepalive {:?}",
            self.seed,
            self.hosts,
            self.durability,
            if self.leases { "on" } else { "off" },
            if self.coarse { "on" } else { "off" },
            self.drift_ppm,
            self.latency,
            self.sync_time,
            self.service_time,
            self.keepalive,
        )?;
        writeln!(f, "  {:?}", self.load)?;
        if let Some(rules) = &self.switch {
            writeln!(f, "  lease {:?}, {rules:?}", self.timing.lease)?;
        }
        for fault in &self.faults {
            writeln!(f, "  {:>9.3}s {:?} for {:?}", fault.at.as_secs_f64(), fault.kind, fault.lasts)?;
        }
        Ok(())
    }
}
