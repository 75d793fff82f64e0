//! The figures of `Harmonia` §10, from the real group and the real pipeline, in virtual time.
//!
//! - [`hall`]: some machines, a switch and clients; [`setting`] what a hall is like, [`measured`] what came of a run.
//! - [`replicas`]: figure 9; [`slots`]: figures 13a and 13b; [`failure`]: figure 15; [`latency`]: what a pass costs a write.
//!
//! One seed, one figure: two runs do not differ. No figure has a read that is too old.

mod clients;
mod fabric;
pub mod failure;
pub mod hall;
pub mod latency;
pub mod measured;
pub mod replicas;
pub mod setting;
pub mod slots;

#[cfg(test)]
mod tests;

use std::time::Duration;

use measured::Measured;
use setting::Setting;

use super::options::Options;
use super::registry::Experiment;

/// The figures.
pub const EXPERIMENTS: &[Experiment] =
    &[replicas::EXPERIMENT, slots::BY_SLOTS, slots::BY_DIRTY, failure::EXPERIMENT, latency::EXPERIMENT];

/// The sentence about the model in these figures.
const MODEL: &str = "machines and wires in virtual time take fixed times, nine times those of the paper's servers; group and pipeline \
                     are real";

/// One run, whose answers go together.
///
/// # Panics
/// Where they do not.
fn one(setting: &Setting) -> Measured {
    let measured = hall::run(setting);
    assert_eq!(measured.stale, 0, "reads that are too old: {setting:?}");
    measured
}

/// Returns the parameters of a figure that is measured for so long.
fn parameters(lasts: Duration) -> Vec<(&'static str, String)> {
    vec![("measured", format!("{lasts:?}")), ("inconsistent reads", "0".into())]
}

/// How a figure is measured: for so long, in virtual time, and with this seed.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Measured in virtual time.
    pub lasts: Duration,
    /// All chance comes of it.
    pub seed: u64,
}

impl Run {
    fn new(options: &Options, default: Duration) -> Run {
        Run { lasts: options.lasts(default), seed: options.seed }
    }

    /// Returns the setting of a run: see [`Setting::of`].
    fn of(self, replicas: usize, has_switch: bool, writes: f64) -> Setting {
        Setting { lasts: self.lasts, seed: self.seed, ..Setting::of(replicas, has_switch, writes) }
    }
}
