//! Metrics in Prometheus's text format.

use std::fmt::Write as _;

/// Name, kind and help text of a metric.
pub type Family = (&'static str, &'static str, &'static str);

/// Text in Prometheus's format. Names and labels are constants of this crate and numbers: they need no escaping.
#[derive(Debug)]
pub struct Exposition {
    /// First part of all names.
    prefix: &'static str,
    text: String,
}

impl Exposition {
    /// Returns a text without metrics. `prefix` stands before all names.
    pub fn new(prefix: &'static str) -> Exposition {
        Exposition { prefix, text: String::with_capacity(8 << 10) }
    }

    /// Returns the whole text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Begins a metric; its lines follow.
    pub fn head(&mut self, (name, kind, what): Family) {
        let prefix = self.prefix;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {prefix}_{name} {what}\n# TYPE {prefix}_{name} {kind}");
    }

    /// Adds a value of the metric that was begun last.
    pub fn line(&mut self, name: &str, labels: std::fmt::Arguments<'_>, value: u64) {
        let _ = writeln!(self.text, "{}_{name}{labels} {value}", self.prefix);
    }

    /// Adds a metric with one value.
    pub fn one(&mut self, family: Family, value: u64) {
        self.head(family);
        self.line(family.0, format_args!(""), value);
    }

    /// Adds a metric with a value for each value of a label.
    pub fn many(&mut self, family: Family, label: &str, values: impl IntoIterator<Item = (&'static str, u64)>) {
        self.head(family);
        for (is, value) in values {
            self.line(family.0, format_args!("{{{label}=\"{is}\"}}"), value);
        }
    }
}
