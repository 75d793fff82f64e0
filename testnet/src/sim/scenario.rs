//! One run, made by one seed.

use std::fmt;
use std::time::Duration;

use group::config::Defects;
use node::{Durability, Policies, Timing};

use crate::rng::Rng;
use crate::sim::fault::{Fault, Mix, Pace};
use crate::sim::network::Latency;
use crate::sim::switches::SwitchRules;
use crate::sim::workload::Load;

/// Everything about a run that is not chance inside it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Feeds all chance of the run.
    pub seed: u64,
    /// So many machines.
    pub hosts: usize,
    /// What acknowledgements rest on.
    pub durability: Durability,
    /// Leased instead of confirmed reads.
    pub leases: bool,
    /// Writes of a sub-range are answered in order.
    pub coarse: bool,
    /// Heartbeats and the like.
    pub timing: Timing,
    /// Clocks run at most so much too fast or slow, in parts per million. Within [`Timing::drift_per_mille`] nothing
    /// may go wrong.
    pub drift_ppm: u32,
    /// Of the wires.
    pub latency: Latency,
    /// Of a sync.
    pub sync_time: (Duration, Duration),
    /// Of a look-up in the store.
    pub load_time: (Duration, Duration),
    /// Of handling what came in at one moment; zero for none.
    pub service_time: Duration,
    /// Machines take these times as long as [`Scenario::service_time`], in turn; empty: all of them take that.
    pub service_factors: Vec<u32>,
    /// How often nodes are told how busy their machines were, where service takes time; `None`: never.
    pub tell_busy: Option<Duration>,
    /// A connection is given up after it stalled for so long; `None`: never.
    pub keepalive: Option<Duration>,
    /// Nodes are not always told that a connection is gone, in 1,000.
    pub notices_lost: u32,
    /// What clients do.
    pub load: Load,
    /// Machines name one of so many clusters in turn as theirs; 0: none names any.
    pub clusters: usize,
    /// Members that a group should have, at least and at most.
    pub members: (u32, u32),
    /// Limit of a node's memory, in bytes.
    pub memory_bytes_max: usize,
    /// The longest value, in bytes.
    pub value_bytes_max: usize,
    /// The largest message between nodes, in bytes.
    pub message_bytes_max: usize,
    /// How much a node copies from others at most, in bytes a second.
    pub transfer_bytes_per_s: u64,
    /// What a store has synced last can go bad.
    pub tears: bool,
    /// So many steps lie between two looks at everything that there is.
    pub sweep_every: u64,
    /// Switches that spread reads over members, where there are such.
    pub switch: Option<SwitchRules>,
    /// How nodes decide.
    pub policies: Policies,
    /// First starts are spread over so long.
    pub start_within: Duration,
    /// Rules that nodes leave out on purpose.
    pub defects: Defects,
    /// What goes wrong; in order of time.
    pub faults: Vec<Fault>,
    /// How long things go wrong.
    pub fault_time: Duration,
    /// How long clients go on after that.
    pub calm_time: Duration,
    /// By when everything must be well after that.
    pub converge_within: Duration,
}

impl Scenario {
    /// Nothing goes wrong: three machines, a few clients.
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

    /// The run of this seed: its size, its speed, what clients do, and which faults there are at all.
    pub fn from_seed(seed: u64) -> Scenario {
        Scenario::from_seed_with(seed, None)
    }

    /// The same, with so many machines whatever the seed says.
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
        // So little that records are evicted and must be loaded again.
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

    /// A run of some seconds under faults that follow each other fast, with few operations on few keys: what
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

    /// A short run in which members come and go all the time, and are put out soon.
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
            // Soon nobody needs to remember a key that is gone. Clients that repeat an operation themselves must do so
            // before the horizon has passed.
            scenario.load.once = 0;
            scenario.timing.horizon = Duration::from_millis(*rng.pick(&[100, 300, 1_000]));
            scenario.timing.purge_every = Duration::from_millis(*rng.pick(&[50, 200, 1_000]));
        }
        scenario.fault_time = Duration::from_secs(*rng.pick(&[6, 10, 15]));
        scenario.faults = Mix::churn(&mut rng).plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario
    }

    /// A run in which groups split, merge and move their boundaries, while members come and go.
    pub fn ring(seed: u64) -> Scenario {
        let mut scenario = Scenario::churn(seed);
        let mut rng = Rng::new(seed, "ring");
        scenario.hosts = *rng.pick(&[3, 5, 6, 7, 8]);
        // Groups stay as they are made, or become what they should be.
        let mut sizes = Rng::new(seed, "sizes");
        scenario.members = *sizes.pick(&[(1, 1_000), (1, 1_000), (2, 3), (2, 4), (3, 5)]);
        scenario.timing.resize_after = Duration::from_millis(*sizes.pick(&[200, 500, 2_000]));
        // Who is told of another group's horizon must have time to come there.
        scenario.timing.horizon = scenario.timing.horizon.max(Duration::from_secs(1));
        // And whoever asks in one site for what is in two others must wait for it.
        scenario.load.patience = scenario.load.patience.max(Duration::from_secs(1));
        scenario.fault_time = Duration::from_secs(*rng.pick(&[8, 12, 20]));
        scenario.faults = Mix::reform(&mut rng).plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario
    }

    /// A small run of any of these kinds, in which all members stand beside two switches that spread their reads, and lose what
    /// they remember.
    pub fn switched(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed, "switched");
        let mut scenario = match rng.below(10) {
            0..5 => Scenario::small(seed, Some(*rng.pick(&[3, 3, 4, 5]))),
            5..8 => Scenario::churn(seed),
            _ => Scenario::ring(seed),
        };
        (scenario.leases, scenario.coarse) = (true, true);
        scenario.timing.lease = Duration::from_millis(*rng.pick(&[200, 1_000]));
        // Somebody has to read what others write.
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

    /// A small run of any of these kinds, in which ends of journals are torn, and go bad.
    pub fn torn(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed, "torn");
        let mut scenario = match rng.below(10) {
            0..6 => Scenario::small(seed, Some(*rng.pick(&[1, 2, 3, 3, 3, 4, 5]))),
            6..8 => Scenario::churn(seed),
            _ => Scenario::ring(seed),
        };
        scenario.durability = Durability::Sync;
        scenario.tears = true;
        // In some runs nothing else happens.
        if rng.per_mille(300) {
            scenario.faults.clear();
        }
        let more = Mix::tails().plan_at(&mut rng, scenario.hosts, scenario.fault_time, &Pace::QUICK);
        scenario.faults.extend(more);
        scenario.faults.sort_by_key(|fault| fault.at);
        scenario
    }

    /// The same with so many machines: groups of three to five members come to be by themselves, and others are asked for.
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

    /// A run in which these things alone go wrong.
    pub fn of(seed: u64, hosts: usize, mix: &Mix) -> Scenario {
        let mut scenario = Scenario { hosts, ..Scenario::calm(seed) };
        scenario.fault_time = Duration::from_secs(20);
        let mut rng = Rng::new(seed, "faults");
        scenario.faults = mix.plan(&mut rng, hosts, scenario.fault_time);
        scenario
    }

    /// Makes things go wrong for so long.
    pub fn stretch(&mut self, time: Duration) {
        let mut rng = Rng::new(self.seed, "faults");
        self.fault_time = time;
        self.faults = Mix::draw(&mut rng).plan(&mut rng, self.hosts, time);
        self.load.operations_max = u64::MAX;
    }

    /// The same with some of the faults alone.
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
