//! Whatever can grow has a limit, and keeps to it (I15).

use std::collections::BTreeMap;

/// The most that was seen.
#[derive(Debug, Default)]
pub struct Bounded {
    /// By name.
    pub most: BTreeMap<&'static str, usize>,
}

impl Bounded {
    /// So much there is of something.
    pub fn on_size(&mut self, name: &'static str, size: usize, limit: usize) -> Result<(), String> {
        let most = self.most.entry(name).or_default();
        *most = size.max(*most);
        if size > limit {
            return Err(format!("{name}: {size}, and its limit is {limit}"));
        }
        Ok(())
    }
}
