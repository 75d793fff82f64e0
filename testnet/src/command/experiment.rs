//! `scatter-testnet experiment`: the papers' experiments by name, and the report of their results.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use testnet::experiment::options::{ExperimentOptions, Scale};
use testnet::experiment::registry;
use testnet::experiment::report::report;

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
            (name, None) => self.run_all(name, say, note),
        }
    }

    fn run_all(&self, name: &str, say: &dyn Fn(&str), note: &(dyn Fn(&str) + Sync)) -> Result<(), Error> {
        let options = self.options();
        for experiment in registry::resolve(name) {
            let results = registry::run(experiment, &options, note).map_err(Error::Failed)?;
            say(&format!("{results}\n"));
        }
        Ok(())
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
