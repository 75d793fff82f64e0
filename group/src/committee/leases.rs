//! Grants of leases, at who grants them (`docs/design/read.md`).
//!
//! A holder counts from when it asked, shortened by the drift; a granter from when it answered, lengthened by it. So the
//! holder's time is over, on every clock, before any granter's.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::KeyRange;

use crate::ballot::TermBallot;
use crate::state::Settings;
use crate::time::Time;

/// A lease's length to its holder.
pub fn holders_length(settings: &Settings) -> Duration {
    let nanos = settings.lease_ms.saturating_mul(1000) * u64::from(1000 - settings.drift_per_mille.min(900));
    Duration::from_nanos(nanos)
}

/// A lease's length to everyone else.
pub fn granters_length(settings: &Settings) -> Duration {
    let nanos = settings.lease_ms.saturating_mul(1000) * u64::from(1000 + settings.drift_per_mille);
    Duration::from_nanos(nanos)
}

/// What one member granted, and until when it may be relied on.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    granted: Vec<(TermBallot, KeyRange, Time)>,
}

impl Grants {
    /// Grants a lease from now on.
    pub fn grant(&mut self, ballot: TermBallot, range: KeyRange, settings: &Settings, now: Time) {
        self.note(ballot, range, now + granters_length(settings), now);
    }

    /// What may be relied on until then, by whoever it was granted to under this ballot; it replaces what was noted of that.
    pub fn note(&mut self, ballot: TermBallot, range: KeyRange, until: Time, now: Time) {
        self.granted.retain(|(known, _, at)| *known != ballot && *at > now);
        self.granted.push((ballot, range, until));
    }

    /// The same of all that another has noted, where that is for longer.
    pub fn inherit(&mut self, other: &Grants, now: Time) {
        for (ballot, range, until) in &other.granted {
            let is_longer = self.granted.iter().all(|(known, _, at)| known != ballot || at < until);
            if is_longer {
                self.note(*ballot, *range, *until, now);
            }
        }
    }

    /// All of it is over then.
    pub fn last(&self) -> Time {
        self.granted.iter().map(|(_, _, until)| *until).max().unwrap_or(Time(0))
    }

    /// What is left of grants to other ballots in a range, in milliseconds, rounded up.
    pub fn left(&self, ballot: TermBallot, range: KeyRange, now: Time) -> Vec<(TermBallot, u64)> {
        let others = self
            .granted
            .iter()
            .filter(|(known, granted, until)| *known != ballot && *until > now && granted.overlaps(range));
        others.map(|(known, _, until)| (*known, until.since(now).as_nanos().div_ceil(1_000_000) as u64)).collect()
    }
}
