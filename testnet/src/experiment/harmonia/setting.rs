//! Settings of a simulated testbed.

use std::time::Duration;

use group::config::Defects;
use load::Distribution;
use switch::dirty::Shape;

/// Time that a machine takes for each kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A read: where it is answered, and also where it is left to the primary.
    pub read: Duration,
    /// A write, at each member, with all work that belongs to it.
    pub write: Duration,
    /// In addition: a packet that comes back from the switch with a number.
    pub pass: Duration,
    /// In addition: a vote, or a report of the executed numbers.
    pub message: Duration,
}

impl Costs {
    /// A server of the paper does 0.92 million reads or 0.8 million writes a second. Here it does nine times fewer, in the same
    /// proportion, and the cost of a write includes all work that belongs to it.
    pub const PAPER: Costs = Costs {
        read: Duration::from_micros(10),
        write: Duration::from_micros(12),
        pass: Duration::ZERO,
        message: Duration::ZERO,
    };
}

/// Load of the clients.
#[derive(Clone, Copy, Debug)]
pub enum LoadModel {
    /// Clients that each have one operation under way.
    Closed {
        /// Number of clients.
        clients: usize,
    },
    /// Operations at a rate, each sent independently of earlier outcomes.
    Open {
        /// Operations a second.
        per_s: f64,
    },
    /// Clients that only read, and clients that only write and pause after each write.
    Apart {
        /// Number of clients that read.
        readers: usize,
        /// Number of clients that write.
        writers: usize,
        /// Pause after each write.
        pause: Duration,
    },
}

/// Planned event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The switch forwards no packets.
    SwitchStops,
    /// The switch forwards packets again, and has lost its state.
    SwitchStarts,
    /// The group is told to use a switch under the next id.
    NextSwitch,
}

/// Setting of a run.
#[derive(Clone, Debug)]
pub struct SwitchSetting {
    /// Members of the group, one of which is the primary of the whole range.
    pub replicas: usize,
    /// The dirty set of the switch; `None`: there is no switch.
    pub switch: Option<Shape>,
    /// Load of the clients.
    pub load: LoadModel,
    /// Share of writes, from 0 to 1.
    pub writes: f64,
    /// Distribution of keys.
    pub keys: Distribution,
    /// Number of keys.
    pub key_count: u64,
    /// Number of keys that are dirty all the time: their objects are put into the switch directly.
    pub dirty: u64,
    /// Costs of work.
    pub costs: Costs,
    /// Time of one way on the wire, through the switch in its middle.
    pub wire: Duration,
    /// Upper limit of the time that is added to a way.
    pub jitter: Duration,
    /// Time of a sync of a disk; zero: all data is in memory.
    pub sync: Duration,
    /// Time without an answer after which a client whose read went through the switch asks the primary; `None`: never.
    pub patience: Option<Duration>,
    /// Planned events, with their times since measuring begins.
    pub happenings: Vec<(Duration, Happening)>,
    /// Time that is not measured.
    pub warm_up: Duration,
    /// Time that is measured, in virtual time.
    pub lasts: Duration,
    /// Length of the windows in which operations are counted.
    pub window: Duration,
    /// Seed of all chance.
    pub seed: u64,
    /// Rules that the members leave out.
    pub defects: Defects,
}

impl SwitchSetting {
    /// Returns the paper's default: three replicas, 5 % writes, a million keys with equal frequency; enough clients that the
    /// replicas are the limit.
    pub fn of(replicas: usize, has_switch: bool, writes: f64) -> SwitchSetting {
        SwitchSetting {
            replicas,
            switch: has_switch.then_some(Shape::DEFAULT),
            load: LoadModel::Closed { clients: 128 * replicas },
            writes,
            keys: Distribution::Uniform,
            key_count: 1_000_000,
            dirty: 0,
            costs: Costs::PAPER,
            wire: Duration::from_micros(50),
            jitter: Duration::from_micros(10),
            sync: Duration::ZERO,
            patience: None,
            happenings: Vec::new(),
            warm_up: Duration::from_millis(50),
            lasts: Duration::from_millis(200),
            window: Duration::from_millis(50),
            seed: 1,
            defects: Defects::NONE,
        }
    }
}
