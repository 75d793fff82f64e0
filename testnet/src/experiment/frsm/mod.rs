//! The experiments of fRSM §2, §4 and its appendix: a state machine for each key.

mod cores;
mod fine_coarse;

use super::registry::Experiment;

/// The experiments, in the paper's order.
pub const EXPERIMENTS: &[Experiment] = &[
    fine_coarse::EXPERIMENT,
];
