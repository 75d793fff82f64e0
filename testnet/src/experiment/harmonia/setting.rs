//! What a hall is like.

use std::time::Duration;

use group::config::Defects;
use load::Distribution;
use switch::dirty::Shape;

/// How long a machine has to do with what comes.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A read, where it is answered, and also where it is not and left to the primary.
    pub read: Duration,
    /// A write, at each member, with all that belongs to it.
    pub write: Duration,
    /// Beside that: a packet that comes back from the switch with a number.
    pub pass: Duration,
    /// Beside that: a vote, or a word of how far numbers are executed.
    pub message: Duration,
}

impl Costs {
    /// A server of the paper does 0.92 million reads or 0.8 million writes a second: here nine times less, in the same
    /// proportion, and all that belongs to a write is in it.
    pub const PAPER: Costs = Costs {
        read: Duration::from_micros(10),
        write: Duration::from_micros(12),
        pass: Duration::ZERO,
        message: Duration::ZERO,
    };
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// So many clients, each with one operation under way.
    Closed {
        /// How many.
        clients: usize,
    },
    /// So many operations a second, each by itself, whatever becomes of them.
    Open {
        /// How many.
        per_s: f64,
    },
    /// Clients that only read, and clients that only write and pause after each write.
    Apart {
        /// How many read.
        readers: usize,
        /// How many write.
        writers: usize,
        /// For so long.
        pause: Duration,
    },
}

/// What happens to the hall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The switch passes on nothing.
    SwitchStops,
    /// It does again, and has forgotten all.
    SwitchStarts,
    /// The group is told to use a switch under the next id.
    NextSwitch,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Members of the group, one of which is primary of all.
    pub replicas: usize,
    /// The dirty set of the switch; `None`: there is no switch.
    pub switch: Option<Shape>,
    /// Who asks.
    pub load: Load,
    /// The share of writes.
    pub writes: f64,
    /// Which keys.
    pub keys: Distribution,
    /// So many keys.
    pub key_count: u64,
    /// So many of them are dirty all the time: their names are put into the switch by hand.
    pub dirty: u64,
    /// What things cost.
    pub costs: Costs,
    /// One way on the wire, through the middle of it.
    pub wire: Duration,
    /// And up to so much more.
    pub jitter: Duration,
    /// A sync of a disk; zero: all is in memory.
    pub sync: Duration,
    /// A client that asked by way of the switch asks the primary after so long, if it has heard nothing; `None`: never.
    pub patience: Option<Duration>,
    /// What happens, counted from when measuring begins.
    pub happenings: Vec<(Duration, Happening)>,
    /// Not measured.
    pub warm_up: Duration,
    /// Measured, in virtual time.
    pub lasts: Duration,
    /// What is done is counted for each so long.
    pub window: Duration,
    /// All chance comes of it.
    pub seed: u64,
    /// What is wrong with the members.
    pub defects: Defects,
}

impl Setting {
    /// The paper's default: three replicas, 5 % writes, a million keys as often as each other; enough clients that the
    /// replicas are the limit.
    pub fn of(replicas: usize, has_switch: bool, writes: f64) -> Setting {
        Setting {
            replicas,
            switch: has_switch.then_some(Shape::DEFAULT),
            load: Load::Closed { clients: 128 * replicas },
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
