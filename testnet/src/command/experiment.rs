//! `scatter-testnet experiment`: the papers' experiments by name, and the report of their results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use testnet::experiment::options::{ExperimentOptions, Scale};
use testnet::experiment::registry::{self, Experiment};
use testnet::experiment::report::report;
use testnet::experiment::table::Table;

use super::Error;

/// Prints all names.
const LIST: &str = "list";
/// Prints the report.
const REPORT: &str = "report";

/// Arguments of an experiment.
#[derive(Clone, Debug, clap::Args)]
pub struct ExperimentArgs {
    /// An experiment; `all`; `list` prints all names; `report DIR` prints a page of Markdown about the results in DIR
    #[arg(value_parser = names(), hide_possible_values = true)]
    name: String,
    /// Directory with results, for `report`
    #[arg(value_name = "DIR")]
    results: Option<PathBuf>,
    /// A small run of at most about 90 s on two cores
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The scale of the paper, without a limit of time [default: at most about ten minutes on two cores]
    #[arg(long)]
    full: bool,
    /// Seed of all random choices: the same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory in which NAME.csv and NAME.svg are written
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of cores to use [default: all]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// Runs experiments one after the other, also after one that fails. Several of them end with a table: name, time and sentence.
///
/// # Errors
/// The experiments that failed; of a single one the reason, too.
fn run_all(
    experiments: &[&Experiment],
    options: &ExperimentOptions,
    say: &dyn Fn(&str),
    note: &(dyn Fn(&str) + Sync),
) -> Result<(), Error> {
    let mut table = Table::new(&["experiment", "seconds", "sentence"]);
    let mut failed = Vec::new();
    for experiment in experiments {
        let start = Instant::now();
        // An experiment asserts what must hold. The ones behind it do not depend on it.
        let ran = catch_unwind(AssertUnwindSafe(|| registry::run(experiment, options, note)));
        let ran = ran.unwrap_or_else(|_| Err(format!("{}: it panicked, as said above", experiment.name)));
        let sentence = match &ran {
            Ok(results) => results.verdict.clone(),
            Err(why) => format!("FAILED: {why}"),
        };
        let seconds = format!("{:.1}", start.elapsed().as_secs_f64());
        table.push(vec![experiment.name.to_owned(), seconds, sentence]);
        match ran {
            Ok(results) => say(&format!("{results}\n")),
            Err(why) => failed.push(why),
        }
    }
    if experiments.len() > 1 {
        say(&table.to_string());
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Failed(failed.join("\n"))) }
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(registry::names().chain([LIST, REPORT]))
}

impl ExperimentArgs {
    /// Runs the command. `say` gets the results, `note` the progress, a line each.
    ///
    /// # Errors
    /// Arguments that contradict each other; an experiment that fails; a file that cannot be read or written.
    pub fn run(&self, say: &(dyn Fn(&str) + Sync), note: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
        match (self.name.as_str(), &self.results) {
            (REPORT, Some(directory)) => {
                say(report(directory).map_err(Error::Failed)?.trim_end());
                Ok(())
            }
            (REPORT, None) => Err(Error::Refused("report DIR: name the directory with the results".into())),
            (name, Some(directory)) => {
                let directory = directory.display();
                Err(Error::Refused(format!(
                    "{name} {directory}: only `report` takes a directory here; --out DIR writes files"
                )))
            }
            (LIST, None) => {
                registry::list().iter().for_each(|line| say(line.trim_end()));
                Ok(())
            }
            (name, None) => run_all(&registry::resolve(name), &self.options(), say, note),
        }
    }

    fn options(&self) -> ExperimentOptions {
        let size = match (self.quick, self.full) {
            (true, _) => Scale::Quick,
            (false, true) => Scale::Full,
            (false, false) => Scale::Default,
        };
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        ExperimentOptions {
            size,
            seed: self.seed,
            jobs: self.jobs.map_or_else(cores, usize::from),
            out: self.out.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use testnet::experiment::options::Say;
    use testnet::experiment::registry::RunExperiment;
    use testnet::experiment::table::{Comparison, ExperimentOutcome, Verdict};

    use super::*;

    fn well(_: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
        let mut table = Table::new(&["figure", "paper"]);
        table.push(vec!["1".into(), "2".into()]);
        let verdict = Verdict::new(Comparison::Better, "one is less than two".into());
        Ok(ExperimentOutcome {
            parameters: Vec::new(),
            models: Vec::new(),
            table,
            curves: None,
            charts: Vec::new(),
            verdict,
        })
    }

    fn experiment(name: &'static str, run: RunExperiment) -> Experiment {
        Experiment { name, paper: "Fig. 1", about: "It", run }
    }

    /// One that fails and one that panics are named at the end, and the ones behind them are run.
    #[test]
    fn experiments_go_on_after_a_failure() {
        let all = [
            experiment("fails", |_, _| Err("an invariant is broken".into())),
            experiment("panics", |_, _| panic!("as it should")),
            experiment("well", well),
        ];
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 1, out: None };
        let said = RefCell::new(Vec::new());
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let Err(Error::Failed(why)) = run_all(&all.each_ref(), &options, &say, &|_| {}) else { panic!("two failed") };
        assert!(why.contains("fails: an invariant is broken") && why.contains("panics: "), "{why}");
        let said = said.borrow();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[1].contains("FAILED: fails") && said[1].contains("Better: one is less than two."), "{}", said[1]);
        assert!(run_all(&[&all[2]], &options, &|_| {}, &|_| {}).is_ok());
    }
}
