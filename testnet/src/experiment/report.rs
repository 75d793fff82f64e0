//! The report: a page of Markdown from the files of results.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::registry::{Experiment, SECTIONS, Section};
use super::results::Results;
use super::table::{Table, shown};

/// The command that writes the page, for its readers.
const COMMAND: &str = "scatter-testnet experiment report docs/experiments > docs/experiments.md";

/// Returns the report of the results in a directory. Experiments without results are named.
///
/// # Errors
/// A description for a person: the file that cannot be read or parsed, or that there are no results at all.
pub fn report(directory: &Path) -> Result<String, String> {
    let sections = SECTIONS.iter().map(|section| Ok((section, read(section, directory)?)));
    let sections: Vec<(&Section, Vec<Results>)> = sections.collect::<Result<_, String>>()?;
    if sections.iter().all(|(_, found)| found.is_empty()) {
        let directory = directory.display();
        return Err(format!("{directory}: there are no results of experiments (NAME.csv, as --out writes them)"));
    }
    let summary: Vec<String> = sections.iter().flat_map(|(_, found)| found).map(summary).collect();
    let sections: Vec<String> = sections.iter().map(|(section, found)| page_of(section, found)).collect();
    Ok(format!("{}{SUMMARY}{}{}", introduction(), summary.concat(), sections.concat()))
}

fn introduction() -> String {
    format!(
        "# The papers' experiments, rerun\n\nGenerated from the files in [experiments](experiments) with `{COMMAND}`: edit nothing \
         here. Each table has the paper's figure in its last column, `-` where the paper has none. Models are named. `scatter-testnet \
         experiment NAME --seed SEED` repeats a run, with `--quick`, `--full` or neither for its size, and `--out DIR` writes the \
         figures as CSV and SVG.\n\n"
    )
}

/// The head of the table of all sentences.
const SUMMARY: &str = "| experiment | paper | size | ours |\n| --- | --- | --- | --- |\n";

/// Returns the line of the summary about one experiment: the first word of its sentence.
fn summary(results: &Results) -> String {
    let Results { experiment, paper, size, verdict, .. } = results;
    let word = verdict.split(':').next().unwrap_or_default().to_lowercase();
    format!("| [{experiment}](#{experiment}) | {paper} | {size} | {word} |\n")
}

/// Returns the results of a paper's experiments that were run.
fn read(section: &Section, directory: &Path) -> Result<Vec<Results>, String> {
    let one = |experiment: &Experiment| {
        let file = file(experiment, directory);
        let said = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(&file).map_err(|error| said(error.to_string()))?;
        Results::parse(&text).map_err(said)
    };
    section.experiments.iter().filter(|experiment| file(experiment, directory).exists()).map(one).collect()
}

fn page_of(section: &Section, found: &[Results]) -> String {
    let parts: Vec<String> = found.iter().map(part).collect();
    let is_missing = |experiment: &&Experiment| found.iter().all(|results| results.experiment != experiment.name);
    let missing = section.experiments.iter().filter(is_missing).map(|experiment| format!("`{}`", experiment.name));
    let missing: Vec<String> = missing.collect();
    let missing = if missing.is_empty() { String::new() } else { format!("\nNot run: {}.\n", missing.join(", ")) };
    format!("\n## {}\n{}{missing}", section.title, parts.concat())
}

fn file(experiment: &Experiment, directory: &Path) -> PathBuf {
    directory.join(format!("{}.csv", experiment.name))
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
        for text in
            ["| Fig. 1 | quick | better |", "| a ms | paper |", "| 1\\|2 | - |", "Better: so.", "seed 3", "Not run: "]
        {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        crate::file::write_text(&directory, &format!("{}.csv", experiment.name), "# x").unwrap();
        assert!(report(&directory).unwrap_err().contains("line 1"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
