//! Tables of figures, beside the paper's, and the sentence that an experiment ends with.

use std::fmt;

use crate::picture::Chart;

/// A table: names of columns with their units, and rows of values as text. The last column is `paper`: the paper's figure for the row,
/// in the paper's words where it has no number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of columns, as in `fetch_mean_ms`.
    pub columns: Vec<String>,
    /// Rows with a value for each column; an empty text where there is none.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table.
    pub fn new(columns: &[&str]) -> Table {
        Table { columns: columns.iter().map(|column| (*column).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has more or fewer values than there are columns.
    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "a value for each column: {row:?}");
        self.rows.push(row);
    }

    /// Returns a value by row and by name of its column; `None` where there is no such column or row.
    pub fn value(&self, row: usize, column: &str) -> Option<&str> {
        let place = self.columns.iter().position(|name| name == column)?;
        self.rows.get(row)?.get(place).map(String::as_str)
    }

    /// Returns the names of columns for people.
    pub fn headings(&self) -> impl Iterator<Item = String> {
        self.columns.iter().map(|name| name.replace('_', " "))
    }
}

/// Aligned columns: numbers to the right, text to the left.
impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings: Vec<String> = self.headings().collect();
        for (place, heading) in headings.iter().enumerate() {
            self.cell(out, place, heading)?;
        }
        for row in &self.rows {
            writeln!(out)?;
            for (place, value) in row.iter().enumerate() {
                self.cell(out, place, value)?;
            }
        }
        Ok(())
    }
}

impl Table {
    fn cell(&self, out: &mut fmt::Formatter<'_>, place: usize, text: &str) -> fmt::Result {
        let text = shown(text);
        let values = || self.rows.iter().map(|row| row[place].as_str());
        let width = values().chain([self.columns[place].as_str()]).map(|text| text.chars().count()).max().unwrap_or(0);
        let is_text = place == 0 || values().any(|value| !is_number(value));
        let gap = if place == 0 { "" } else { "  " };
        match (is_text, place + 1 == self.columns.len()) {
            (true, true) => write!(out, "{gap}{text}"),
            (true, false) => write!(out, "{gap}{text:<width$}"),
            (false, _) => write!(out, "{gap}{text:>width$}"),
        }
    }
}

/// Returns the text of a value for people: `-` where there is none.
pub fn shown(value: &str) -> &str {
    if value.is_empty() { "-" } else { value }
}

fn is_number(value: &str) -> bool {
    value.is_empty() || value.parse::<f64>().is_ok()
}

/// Comparison of figures with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The figures show the same.
    Reproduced,
    /// The figures are better.
    Better,
    /// The figures are worse.
    Worse,
    /// The figures measure another quantity, or one without a value in the paper.
    NotComparable,
}

/// The sentence that an experiment ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Comparison of the figures.
    pub comparison: Comparison,
    /// Reason, without a full stop.
    pub why: String,
}

impl Verdict {
    /// Returns the verdict of this comparison.
    pub fn new(comparison: Comparison, why: String) -> Verdict {
        Verdict { comparison, why }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comparison = match self.comparison {
            Comparison::Reproduced => "Reproduced",
            Comparison::Better => "Better",
            Comparison::Worse => "Worse",
            Comparison::NotComparable => "Not comparable",
        };
        write!(out, "{comparison}: {}.", self.why)
    }
}

/// The results of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentOutcome {
    /// Names and values of parameters, beside size and seed.
    pub parameters: Vec<(&'static str, String)>,
    /// Sentences that name models.
    pub models: Vec<String>,
    /// The figures.
    pub table: Table,
    /// The points of curves, for a file alone.
    pub curves: Option<Table>,
    /// Pictures.
    pub charts: Vec<Chart>,
    /// Comparison with the paper's figures.
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_text_to_the_left() {
        let mut table = Table::new(&["system", "mean_ms", "paper"]);
        table.push(["Scatter", "12.5", "1.3 s"].map(String::from).into());
        table.push(["DHT", "7", ""].map(String::from).into());
        assert_eq!(table.to_string(), "system   mean ms  paper\nScatter     12.5  1.3 s\nDHT            7  -");
        assert_eq!(
            (table.value(1, "mean_ms"), table.value(2, "mean_ms"), table.value(0, "x")),
            (Some("7"), None, None)
        );
    }
}
