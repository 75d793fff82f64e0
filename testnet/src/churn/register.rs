//! Knowledge of a key's only writer about the key.

/// The values of one key, which are the numbers of its writes. Its writer does one operation at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Register {
    /// The last write that was acknowledged or read; 0 before the first.
    known: u64,
    /// The last write that has begun.
    begun: u64,
    /// Writes of unknown outcome: each may take effect at any time, once, or never.
    open: Vec<u64>,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The write was acknowledged.
    Acknowledged,
    /// The write has not taken effect, and never will (`TRYAGAIN`).
    Refused,
    /// The write may have taken effect, or may do so later: `UNCERTAIN`, or no answer.
    Unknown,
}

impl Register {
    /// Begins a write, and returns its value.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Returns whether the outcome of each write is known.
    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes the outcome of the write of this value.
    pub(crate) fn end(&mut self, value: u64, written: Written) {
        match written {
            Written::Acknowledged => self.known = value,
            Written::Refused => {}
            Written::Unknown => self.open.push(value),
        }
    }

    /// Notes the value that a read answered (`0`: none).
    ///
    /// # Errors
    /// If no order of the writes explains the value.
    pub(crate) fn read(&mut self, value: u64) -> Result<(), String> {
        if value == self.known {
            return Ok(());
        }
        let Some(place) = self.open.iter().position(|open| *open == value) else {
            return Err(format!("read {value}, acknowledged {}, outcome unknown {:?}", self.known, self.open));
        };
        self.open.remove(place); // It took effect, once.
        self.known = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(register: &mut Register, how: Written) -> u64 {
        let value = register.begin();
        register.end(value, how);
        value
    }

    #[test]
    fn a_lost_or_stale_value_is_seen() {
        let mut register = Register::default();
        assert_eq!(register.read(0), Ok(()));
        let first = written(&mut register, Written::Acknowledged);
        assert!(register.read(0).is_err(), "an acknowledged write is lost");
        let second = written(&mut register, Written::Acknowledged);
        assert!(register.read(first).is_err(), "an older value");
        assert_eq!(register.read(second), Ok(()));
        let refused = written(&mut register, Written::Refused);
        assert!(register.read(refused).is_err(), "a refused write took effect");
        assert!(register.read(refused + 1).is_err(), "a write that never was");
    }

    #[test]
    fn a_write_of_unknown_outcome_may_come_late_but_once() {
        let mut register = Register::default();
        let unknown = written(&mut register, Written::Unknown);
        let last = written(&mut register, Written::Acknowledged);
        assert_eq!(register.read(last), Ok(()));
        assert!(!register.is_settled());
        assert_eq!(register.read(unknown), Ok(()));
        assert!(register.is_settled());
        assert!(register.read(last).is_err(), "what was seen later stays");
        assert_eq!(register.read(unknown), Ok(()));
    }
}
