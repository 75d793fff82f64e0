//! Coverage marks: rare things that a run came by. A simulation that never gets there proves nothing.

use std::collections::BTreeMap;
use std::fmt;

/// How often each mark was hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<&'static str, u64>);

impl Marks {
    /// Hits a mark.
    pub fn hit(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// How often it was hit.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds those of another run.
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
