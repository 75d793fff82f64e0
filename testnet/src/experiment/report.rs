//! The report: a page of Markdown from the files of results.

use std::fmt::Write as _;
use std::path::Path;

use super::registry::{Experiment, SECTIONS, Section};
use super::results::Results;
use super::table::{Table, shown};

/// The command that writes the page, for its readers.
const COMMAND: &str = "scatter-testnet experiment report DIR > docs/experiments.md";

/// Returns the report of the results in a directory. Experiments without results are named.
///
/// # Errors
/// For a person: the file that cannot be read or makes no sense, or that there are no results at all.
pub fn report(directory: &Path) -> Result<String, String> {
    let mut page = String::from("# The papers' experiments, rerun\n\n");
    let _ = writeln!(
        page,
        "Generated from files of results with `{COMMAND}`: edit nothing here. Each table has the paper's figure in its last column. What is \
         a model is called one. `scatter-testnet experiment NAME --seed SEED` repeats a run; `--quick`, nothing or `--full` sets the size."
    );
    let mut found = 0;
    for section in SECTIONS {
        let parts: Vec<String> = parts(section, directory)?;
        found += parts.len();
        let _ = write!(page, "\n## {}\n{}", section.title, parts.concat());
        let missing = section.experiments.iter().filter(|experiment| !file(experiment, directory).exists());
        let missing: Vec<String> = missing.map(|experiment| format!("`{}`", experiment.name)).collect();
        if !missing.is_empty() {
            let _ = writeln!(page, "\nNot run: {}.", missing.join(", "));
        }
    }
    match found {
        0 => Err(format!(
            "{}: there are no results of experiments (NAME.csv, as --out writes them)",
            directory.display()
        )),
        _ => Ok(page),
    }
}

fn file(experiment: &Experiment, directory: &Path) -> std::path::PathBuf {
    directory.join(format!("{}.csv", experiment.name))
}

fn parts(section: &Section, directory: &Path) -> Result<Vec<String>, String> {
    let one = |experiment: &Experiment| {
        let file = file(experiment, directory);
        let said = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(&file).map_err(|error| said(error.to_string()))?;
        Results::parse(&text).map(|results| part(&results)).map_err(said)
    };
    section.experiments.iter().filter(|experiment| file(experiment, directory).exists()).map(one).collect()
}

/// Returns the part of the page about one experiment.
fn part(results: &Results) -> String {
    let mut text = format!("\n### {}\n\n{}. {}.\n", results.experiment, results.paper, results.about);
    let parameters = results.parameters.iter().map(|parameter| format!(", {parameter}")).collect::<String>();
    let _ = write!(text, "Size {}, seed {}{parameters}.", results.size, results.seed);
    text += &results.models.iter().map(|model| format!(" Model: {model}.")).collect::<String>();
    let _ = write!(text, "\n\n{}\n{}\n", markdown(&results.table), results.verdict);
    text
}

fn markdown(table: &Table) -> String {
    let row = |values: &mut dyn Iterator<Item = String>| {
        let values: Vec<String> = values.map(|value| shown(&value).replace('|', "\\|")).collect();
        format!("| {} |\n", values.join(" | "))
    };
    let mut text = row(&mut table.headings());
    text += &row(&mut table.columns.iter().map(|_| "---".to_owned()));
    table.rows.iter().for_each(|values| text += &row(&mut values.iter().cloned()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::registry::experiments;

    #[test]
    fn a_page_has_what_was_run_and_names_what_was_not() {
        let directory = std::env::temp_dir().join(format!("scatter-report-{}", std::process::id()));
        let refused = report(&directory).unwrap_err();
        assert!(refused.contains("no results"), "{refused}");
        let experiment = experiments().next().expect("there are some");
        let csv = format!(
            "# experiment: {}\n# paper: Fig. 1\n# about: It\n# size: quick\n# seed: 3\n# verdict: Better: so.\na_ms,paper\n1|2,-\n",
            experiment.name
        );
        crate::file::write_text(&directory, &format!("{}.csv", experiment.name), &csv).unwrap();
        let page = report(&directory).unwrap();
        for text in ["| a ms | paper |", "| 1\\|2 | - |", "Better: so.", "seed 3", "Not run: "] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        crate::file::write_text(&directory, &format!("{}.csv", experiment.name), "# x").unwrap();
        assert!(report(&directory).unwrap_err().contains("line 1"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
