//! The figures of `Harmonia` §10, from the real group and the real pipeline, in virtual time.
//!
//! - `testbed`: some machines, a switch and clients; `setting`: settings of a run; `measured`: results of a run.
//! - `replicas`: figure 9; [`slots`]: figures 13a and 13b; `failure`: figure 15; `latency`: cost of a pass for a write.
//!
//! One seed, one figure: two runs do not differ. No figure has a read that is too old.

mod clients;
mod fabric;
mod failure;
mod latency;
mod measured;
mod replicas;
mod setting;
pub mod slots;
mod testbed;

#[cfg(test)]
mod tests;

use std::time::Duration;

use measured::SwitchMeasured;
use setting::SwitchSetting;

use super::options::ExperimentOptions;
use super::registry::Experiment;

/// The figures.
pub const EXPERIMENTS: &[Experiment] =
    &[replicas::EXPERIMENT, slots::BY_SLOTS, slots::BY_DIRTY, failure::EXPERIMENT, latency::EXPERIMENT];

/// The sentence about the model in these figures.
const MODEL: &str = "machines and wires in virtual time take fixed times, nine times those of the paper's servers; group and pipeline \
                     are real";

/// Runs a setting, and checks that its answers are consistent.
///
/// # Panics
/// If a read is too old.
fn one(setting: &SwitchSetting) -> SwitchMeasured {
    let measured = testbed::run(setting);
    assert_eq!(measured.stale, 0, "reads that are too old: {setting:?}");
    measured
}

/// Returns the parameters of a figure that is measured for this duration.
fn parameters(lasts: Duration) -> Vec<(&'static str, String)> {
    vec![("measured", format!("{lasts:?}")), ("inconsistent reads", "0".into())]
}

/// Duration in virtual time, and seed, of a figure's runs.
#[derive(Clone, Copy, Debug)]
pub struct RunLength {
    /// Duration that is measured, in virtual time.
    pub lasts: Duration,
    /// Seed of all chance.
    pub seed: u64,
}

impl RunLength {
    fn new(options: &ExperimentOptions, default: Duration) -> RunLength {
        RunLength { lasts: options.lasts(default), seed: options.seed }
    }

    /// Returns the setting of a run: see [`SwitchSetting::of`].
    fn of(self, replicas: usize, has_switch: bool, writes: f64) -> SwitchSetting {
        SwitchSetting { lasts: self.lasts, seed: self.seed, ..SwitchSetting::of(replicas, has_switch, writes) }
    }
}
