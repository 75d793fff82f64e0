//! Results as files: CSV with a head that names the experiment, its parameters and its models.
//!
//! ```text
//! # experiment: churn-poisson
//! # paper: Scatter Fig. 13
//! # about: Chirp under churn
//! # size: quick
//! # seed: 1
//! # parameter: peers = 60
//! # model: latencies are synthetic
//! # verdict: Reproduced: no fetch was inconsistent.
//! system,mean_life_s,paper
//! Scatter,180,"zero, at 180 s"
//! ```

use std::fmt::{self, Write as _};
use std::path::Path;

use super::options::ExperimentOptions;
use super::registry::Experiment;
use super::table::{ExperimentOutcome, Table};
use crate::file::write_text;

/// The results of one run of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The experiment's name.
    pub experiment: String,
    /// The figure of a paper.
    pub paper: String,
    /// The measurement.
    pub about: String,
    /// The scale of the run.
    pub size: String,
    /// The seed.
    pub seed: String,
    /// Further parameters, as `name = value`.
    pub parameters: Vec<String>,
    /// Sentences that name models.
    pub models: Vec<String>,
    /// The sentence at the end.
    pub verdict: String,
    /// The figures.
    pub table: Table,
}

impl Results {
    /// Returns the results of a run.
    pub fn new(experiment: &Experiment, options: &ExperimentOptions, outcome: &ExperimentOutcome) -> Results {
        let parameters = outcome.parameters.iter().map(|(name, value)| format!("{name} = {value}"));
        Results {
            experiment: experiment.name.into(),
            paper: experiment.paper.into(),
            about: experiment.about.into(),
            size: options.size.name().into(),
            seed: options.seed.to_string(),
            parameters: parameters.collect(),
            models: outcome.models.clone(),
            verdict: outcome.verdict.to_string(),
            table: outcome.table.clone(),
        }
    }

    /// Returns the text of the file.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.head() {
            let _ = writeln!(text, "# {name}: {value}");
        }
        for row in std::iter::once(&self.table.columns).chain(&self.table.rows) {
            let values: Vec<String> = row.iter().map(|value| quoted(value)).collect();
            let _ = writeln!(text, "{}", values.join(","));
        }
        text
    }

    fn head(&self) -> Vec<(&'static str, &str)> {
        let mut head = vec![
            ("experiment", self.experiment.as_str()),
            ("paper", &self.paper),
            ("about", &self.about),
            ("size", &self.size),
            ("seed", &self.seed),
        ];
        head.extend(self.parameters.iter().map(|parameter| ("parameter", parameter.as_str())));
        head.extend(self.models.iter().map(|model| ("model", model.as_str())));
        head.push(("verdict", &self.verdict));
        head
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The number of the line that cannot be parsed, and the reason.
    pub fn parse(text: &str) -> Result<Results, String> {
        let mut results = Results::default();
        for (index, line) in text.lines().enumerate() {
            let at = |why: String| format!("line {}: {why}", index + 1);
            match line.strip_prefix("# ") {
                Some(head) => results.take_head(head).map_err(at)?,
                None => results.take_row(line).map_err(at)?,
            }
        }
        match results.experiment.is_empty() || results.table.columns.is_empty() {
            true => Err("no results of an experiment: there must be `# experiment: NAME` and names of columns".into()),
            false => Ok(results),
        }
    }

    fn take_head(&mut self, head: &str) -> Result<(), String> {
        let (name, value) = head.split_once(": ").ok_or("a head is `# NAME: VALUE`")?;
        let value = value.to_owned();
        match name {
            "experiment" => self.experiment = value,
            "paper" => self.paper = value,
            "about" => self.about = value,
            "size" => self.size = value,
            "seed" => self.seed = value,
            "parameter" => self.parameters.push(value),
            "model" => self.models.push(value),
            "verdict" => self.verdict = value,
            _ => return Err(format!("`{name}` is no head of results")),
        }
        Ok(())
    }

    fn take_row(&mut self, line: &str) -> Result<(), String> {
        let values = unquoted(line)?;
        if self.table.columns.is_empty() {
            self.table.columns = values;
        } else if values.len() == self.table.columns.len() {
            self.table.rows.push(values);
        } else {
            return Err(format!("{} values for {} columns", values.len(), self.table.columns.len()));
        }
        Ok(())
    }

    /// Writes NAME.csv, NAME.svg where there are pictures, and NAME-curves.csv where there are curves.
    ///
    /// # Errors
    /// A description for a person: the file, and the error of the operating system.
    pub fn write(&self, outcome: &ExperimentOutcome, directory: &Path) -> Result<(), String> {
        write_text(directory, &format!("{}.csv", self.experiment), &self.csv())?;
        if let Some(curves) = &outcome.curves {
            let curves = Results { table: curves.clone(), ..self.clone() };
            write_text(directory, &curves_name(&self.experiment), &curves.csv())?;
        }
        match outcome.charts.is_empty() {
            true => Ok(()),
            false => write_text(directory, &format!("{}.svg", self.experiment), &crate::picture::draw(&outcome.charts)),
        }
    }
}

/// Returns the name of the file with an experiment's curves.
pub fn curves_name(experiment: &str) -> String {
    format!("{experiment}-curves.csv")
}

fn quoted(value: &str) -> String {
    match value.contains([',', '"']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}

fn unquoted(line: &str) -> Result<Vec<String>, String> {
    let (mut values, mut value, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => value.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => values.push(std::mem::take(&mut value)),
            other => value.push(other),
        }
    }
    if is_quoted {
        return Err("a quotation mark has no end".into());
    }
    values.push(value);
    Ok(values)
}

/// Text for a terminal.
impl fmt::Display for Results {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}: {}. {}", self.experiment, self.paper, self.about)?;
        write!(out, "size {}, seed {}", self.size, self.seed)?;
        self.parameters.iter().try_for_each(|parameter| write!(out, ", {parameter}"))?;
        self.models.iter().try_for_each(|model| write!(out, "\nmodel: {model}"))?;
        write!(out, "\n\n{}\n\n{}", self.table, self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let mut table = Table::new(&["system", "mean_ms", "paper"]);
        table.push(["Scatter", "1.5", "zero, and \"fast\""].map(String::from).into());
        table.push(["DHT", "", "over 5 %"].map(String::from).into());
        Results {
            experiment: "churn".into(),
            paper: "Scatter Fig. 13".into(),
            about: "Chirp: under churn".into(),
            size: "quick".into(),
            seed: "7".into(),
            parameters: vec!["peers = 60".into()],
            models: vec!["latencies".into(), "costs".into()],
            verdict: "Better: it is.".into(),
            table,
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        assert_eq!(Results::parse(&results().csv()), Ok(results()));
        let shown = results().to_string();
        for part in ["Scatter Fig. 13", "quick, seed 7, peers = 60", "model: costs", "over 5 %", "Better: it is."] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        let refused = |text: &str| Results::parse(text).unwrap_err();
        assert!(refused("").contains("experiment"));
        assert!(refused("# experiment: x\n# colour: red").contains("line 2: `colour`"));
        assert!(refused("# experiment: x\na,b\n1").contains("line 3: 1 values for 2 columns"));
        assert!(refused("# experiment: x\na,\"b").contains("line 2: a quotation mark"));
        assert!(refused("# experiment").contains("line 1"));
    }
}
