//! The experiments of fRSM §2, §4 and its appendix: a state machine for each key.

mod after_takeover;
mod cores;
mod fine_coarse;
mod journal_striping;
mod node_return;
mod read_modes;
mod returning;
mod shard_skew;

use super::registry::Experiment;

/// The experiments, in the paper's order.
pub const EXPERIMENTS: &[Experiment] = &[
    shard_skew::EXPERIMENT,
    journal_striping::EXPERIMENT,
    fine_coarse::EXPERIMENT,
    after_takeover::EXPERIMENT,
    read_modes::EXPERIMENT,
    node_return::EXPERIMENT,
];
