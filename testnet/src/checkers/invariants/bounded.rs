//! Each quantity that can grow has a limit, and keeps to it (I15).

/// Greatest sizes so far.
#[derive(Debug, Default)]
pub struct Bounded {
    /// By name: there are few, and some are noted with each step.
    pub most: Vec<(&'static str, usize)>,
}

impl Bounded {
    /// Checks the size of a quantity.
    pub fn on_size(&mut self, name: &'static str, size: usize, limit: usize) -> Result<(), String> {
        match self.most.iter_mut().find(|(known, _)| *known == name) {
            Some((_, most)) => *most = size.max(*most),
            None => self.most.push((name, size)),
        }
        if size > limit {
            return Err(format!("{name}: {size}, and its limit is {limit}"));
        }
        Ok(())
    }
}
