//! Grants of leases, at the granting member (`docs/design/read.md`).
//!
//! A holder counts from its question, and shortens the lease by the clock drift. A granter counts from its answer, and lengthens the lease
//! by the drift. So the lease of the holder ends, on every clock, before that of any granter.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::KeyRange;

use crate::ballot::TermBallot;
use crate::control::state::Settings;
use overlay::time::Time;

/// Returns a lease's length for its holder.
pub fn holders_length(settings: &Settings) -> Duration {
    let nanos = settings.lease_ms.saturating_mul(1000) * u64::from(1000 - settings.drift_per_mille.min(900));
    Duration::from_nanos(nanos)
}

/// Returns a lease's length for all other nodes.
pub fn granters_length(settings: &Settings) -> Duration {
    let nanos = settings.lease_ms.saturating_mul(1000) * u64::from(1000 + settings.drift_per_mille);
    Duration::from_nanos(nanos)
}

/// Grants of one member, with their ends.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    granted: Vec<(TermBallot, KeyRange, Time)>,
}

impl Grants {
    /// Grants a lease from now on.
    pub fn grant(&mut self, ballot: TermBallot, range: KeyRange, settings: &Settings, now: Time) {
        self.note(ballot, range, now + granters_length(settings), now);
    }

    /// Notes that each receiver of a grant under this ballot may rely on the grant until then. This replaces earlier notes for the ballot,
    /// and drops those that are over.
    pub fn note(&mut self, ballot: TermBallot, range: KeyRange, until: Time, now: Time) {
        self.granted.retain(|(known, _, at)| *known != ballot && *at > now);
        self.granted.push((ballot, range, until));
    }

    /// Notes all grants of another list that end later than the ones noted here.
    pub fn inherit(&mut self, other: &Grants, now: Time) {
        for (ballot, range, until) in &other.granted {
            let is_longer = self.granted.iter().all(|(known, _, at)| known != ballot || at < until);
            if is_longer {
                self.note(*ballot, *range, *until, now);
            }
        }
    }

    /// Returns the end of the last grant.
    pub fn last(&self) -> Time {
        self.granted.iter().map(|(_, _, until)| *until).max().unwrap_or(Time(0))
    }

    /// Returns the rest of grants to other ballots in a range, in milliseconds, rounded up.
    pub fn left(&self, ballot: TermBallot, range: KeyRange, now: Time) -> Vec<(TermBallot, u64)> {
        let others = self
            .granted
            .iter()
            .filter(|(known, granted, until)| *known != ballot && *until > now && granted.overlaps(range));
        others.map(|(known, _, until)| (*known, until.since(now).as_nanos().div_ceil(1_000_000) as u64)).collect()
    }
}
