//! The experiments of fRSM §2, §4 and its appendix: a state machine for each key.

mod cores;
mod fine_coarse;
mod journal_striping;
mod shard_skew;

use super::registry::Experiment;

/// The experiments, in the paper's order.
pub const EXPERIMENTS: &[Experiment] = &[
    shard_skew::EXPERIMENT,
    journal_striping::EXPERIMENT,
    fine_coarse::EXPERIMENT,
];
