//! The experiments of Scatter §6 and §7, and of Harmony §8: whole simulated networks of real nodes, some beside the baseline DHT.

mod availability;
mod churn;
pub(super) mod closed_loop;
mod group_failure;
mod group_throughput;
mod join_policy;
mod load;
mod load_join;
mod operation_latency;
mod reconfiguration;
mod reconfiguration_table;
mod sampling;
mod scaling;
mod scaling_churn;
pub(super) mod timed;
mod write_latency;
pub(super) mod writes;

use crate::baseline;
use crate::experiment::registry::Experiment;
use crate::picture::{Chart, Line};
use crate::study::{Figures, Study, System, run};

/// The experiments, in the papers' order.
pub const EXPERIMENTS: &[Experiment] = &[
    group_failure::EXPERIMENT,
    sampling::EXPERIMENT,
    operation_latency::EXPERIMENT,
    join_policy::EXPERIMENT,
    group_throughput::EXPERIMENT,
    reconfiguration_table::EXPERIMENT,
    reconfiguration::EXPERIMENT,
    churn::POISSON,
    churn::PARETO,
    load::EXPERIMENT,
    scaling::EXPERIMENT,
    scaling_churn::EXPERIMENT,
    load_join::EXPERIMENT,
    write_latency::EXPERIMENT,
    availability::EXPERIMENT,
];

/// The sentence about the model in each of these networks.
const PLANET: &str = "latencies are synthetic, like PlanetLab's: five regions, log-normal last miles, 5 % slow machines, 124 ms for a \
                      majority of nine";
/// The sentence about the baseline.
const BASELINE: &str = "the DHT is a model of OpenDHT in the same simulated world: leaf sets, the same heartbeats and routing, nine \
                        copies, no agreement";

/// A system that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MeasuredSystem {
    Scatter,
    Dht,
}

/// Both systems, ours first.
const BOTH: [MeasuredSystem; 2] = [MeasuredSystem::Scatter, MeasuredSystem::Dht];

impl MeasuredSystem {
    fn name(self) -> &'static str {
        match self {
            MeasuredSystem::Scatter => node::Node::NAME,
            MeasuredSystem::Dht => baseline::Peer::NAME,
        }
    }

    /// Runs a study of the system. `say` receives lines about progress, and about each lost group.
    fn run(self, study: &Study, say: &(dyn Fn(&str) + Sync)) -> Result<Figures, String> {
        let say = &mut |line: &str| say(&format!("{}, {}: {line}", self.name(), lives(study)));
        let figures = match self {
            MeasuredSystem::Scatter => run::<node::Node>(study, say),
            MeasuredSystem::Dht => run::<baseline::Peer>(study, say),
        }?;
        figures.losses.iter().for_each(|line| say(&format!("lost: {line}")));
        Ok(figures)
    }
}

fn lives(study: &Study) -> String {
    study.lives.map_or_else(|| "no deaths".into(), |lives| lives.to_string())
}

/// Returns a chart with a line for each system, dashed for the baseline. `points` returns the points of a system's line.
fn chart_of_both(title: &str, across: &str, up: &str, points: impl Fn(MeasuredSystem) -> Vec<(f64, f64)>) -> Chart {
    let line = |system: MeasuredSystem| Line {
        name: system.name().into(),
        points: points(system),
        dashed: system == MeasuredSystem::Dht,
    };
    Chart {
        title: title.into(),
        across: across.into(),
        up: up.into(),
        dots: true,
        lines: BOTH.map(line).into(),
        ..Chart::default()
    }
}

/// Returns a time in milliseconds, for a table.
fn ms(time: std::time::Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1e3)
}
