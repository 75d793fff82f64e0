//! Options that all experiments take.

use std::path::PathBuf;
use std::time::Duration;

/// The scale of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Ends within about 90 s on two cores.
    Quick,
    /// Ends within about ten minutes on two cores.
    Default,
    /// The paper's scale, however long that takes.
    Full,
}

impl Scale {
    /// Returns the word for this size in files and on the command line.
    pub fn name(self) -> &'static str {
        self.pick("quick", "default", "full")
    }

    /// Returns the value for this size.
    pub fn pick<T>(self, quick: T, default: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Default => default,
            Scale::Full => full,
        }
    }
}

/// The options of one run.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    /// Scale of the run.
    pub size: Scale,
    /// Seed of all chance.
    pub seed: u64,
    /// Threads at a time, at least 1.
    pub jobs: usize,
    /// The directory for files; `None`: no file is written. Results of other experiments are looked for there, too.
    pub out: Option<PathBuf>,
}

impl ExperimentOptions {
    /// Returns a measuring time of virtual time: a quarter of `default` where the run is quick, five times as much where it is full.
    pub fn lasts(&self, default: Duration) -> Duration {
        self.size.pick(default / 4, default, default * 5)
    }
}

/// Receiver of lines about progress, from any thread.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);
