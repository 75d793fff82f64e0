//! Coverage marks: rare events that a run reached. A simulation that never reaches them proves nothing.

use std::collections::BTreeMap;
use std::fmt;

/// Number of hits of each mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<&'static str, u64>);

impl Marks {
    /// Hits a mark.
    pub(crate) fn hit(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// Returns how often a mark was hit.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds the marks of another run.
    pub fn merge(&mut self, other: &Marks) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.0 {
            writeln!(f, "  {count:>9}  {name}")?;
        }
        Ok(())
    }
}
