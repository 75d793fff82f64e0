//! Whatever can grow has a limit, and keeps to it (I15).

/// The most that was seen.
#[derive(Debug, Default)]
pub struct Bounded {
    /// By name: there are few, and some are asked for with each step.
    pub most: Vec<(&'static str, usize)>,
}

impl Bounded {
    /// So much there is of something.
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
