//! All experiments, by name and by paper.

use super::options::{ExperimentOptions, Say};
use super::results::Results;
use super::table::ExperimentOutcome;
use super::{frsm, harmonia, recode, scatter};

/// Runs an experiment. The third argument receives lines about progress.
///
/// # Errors
/// A description for a person: a run that broke an invariant, or a file that cannot be read.
pub type RunExperiment = fn(&ExperimentOptions, Say<'_>) -> Result<ExperimentOutcome, String>;

/// One experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name on the command line, and of files.
    pub name: &'static str,
    /// The figure or table of a paper, by the paper's short name.
    pub paper: &'static str,
    /// The measurement, in one sentence without a full stop.
    pub about: &'static str,
    /// Runs it.
    pub run: RunExperiment,
}

/// The experiments of one paper.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The paper.
    pub title: &'static str,
    /// Experiments of the paper, in the paper's order.
    pub experiments: &'static [Experiment],
}

/// The name for all experiments.
pub const ALL: &str = "all";

/// All experiments.
pub(crate) const SECTIONS: &[Section] = &[
    Section { title: "Scatter and Harmony", experiments: scatter::EXPERIMENTS },
    Section { title: "RECODE", experiments: recode::EXPERIMENTS },
    Section { title: "fRSM", experiments: frsm::EXPERIMENTS },
    Section { title: "Harmonia", experiments: harmonia::EXPERIMENTS },
];

/// Names that stand for several experiments: those whose names begin so, with `-` behind it.
const FAMILIES: [&str; 1] = ["harmonia"];

/// Returns all experiments, in the order of `SECTIONS`.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    SECTIONS.iter().flat_map(|section| section.experiments)
}

/// Returns the names that [`resolve`] knows: of experiments, of families, and [`ALL`].
pub fn names() -> impl Iterator<Item = &'static str> {
    experiments().map(|experiment| experiment.name).chain(FAMILIES).chain([ALL])
}

/// Returns the experiments that a name stands for; none where there is no such name.
pub fn resolve(name: &str) -> Vec<&'static Experiment> {
    let family = FAMILIES.iter().find(|family| **family == name).map(|family| format!("{family}-"));
    let is_meant = |experiment: &&Experiment| {
        name == ALL
            || experiment.name == name
            || family.as_ref().is_some_and(|family| experiment.name.starts_with(family))
    };
    experiments().filter(is_meant).collect()
}

/// Returns a line for each name: the name, the figure, and the measurement.
pub fn list() -> Vec<String> {
    let width = names().map(str::len).max().unwrap_or(0);
    let line = |name: &str, paper: &str, about: &str| format!("{name:<width$}  {paper:<32}  {about}");
    let one = |experiment: &Experiment| line(experiment.name, experiment.paper, experiment.about);
    let family = |name: &&str| {
        let members: Vec<&str> = resolve(name).iter().map(|experiment| experiment.name).collect();
        line(name, "", &format!("All of {}", members.join(", ")))
    };
    let all = line(ALL, "", "All experiments");
    experiments().map(one).chain(FAMILIES.iter().map(family)).chain([all]).collect()
}

/// Runs an experiment, and writes its files where they are wanted.
///
/// # Errors
/// A description for a person: the failure, or the file that cannot be written.
pub fn run(experiment: &Experiment, options: &ExperimentOptions, say: Say<'_>) -> Result<Results, String> {
    let outcome = (experiment.run)(options, say).map_err(|why| format!("{}: {why}", experiment.name))?;
    let results = Results::new(experiment, options, &outcome);
    options.out.as_deref().map_or(Ok(()), |directory| results.write(&outcome, directory))?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_stand_for_experiments() {
        let mut all: Vec<&str> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{all:?}");
        assert!(all.iter().all(|name| !resolve(name).is_empty()));
        assert!(resolve("harmonia").len() > 3 && resolve("fine-coarse").len() == 1);
        assert!(resolve("harmonia-").is_empty() && resolve("").is_empty());
        assert_eq!(resolve(ALL).len(), experiments().count());
        assert_eq!(list().len(), count);
    }

    /// The report and the list take these texts as they are.
    #[test]
    fn texts_fit_on_a_line() {
        for Experiment { name, paper, about, .. } in experiments() {
            assert!(name.len() <= 24 && paper.len() <= 32 && about.len() <= 120, "{name}: {paper}: {about}");
            assert!(!about.ends_with('.') && !about.contains('\n'), "{about}");
        }
    }
}
