//! The experiments of RECODE §V: what a change of groups costs, and how the total order of keys scales with groups.

mod elasticity;
mod paper_costs;
mod reconfiguration_cost;
mod ring;
mod routecast_scaling;

use super::registry::Experiment;

/// The experiments, in the paper's order.
pub const EXPERIMENTS: &[Experiment] =
    &[reconfiguration_cost::EXPERIMENT, routecast_scaling::EXPERIMENT, elasticity::EXPERIMENT];
