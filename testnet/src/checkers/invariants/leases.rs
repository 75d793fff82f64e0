//! No two nodes may answer reads alone for the same point at the same true time (I13).

use overlay::KeyRange;
use overlay::time::Time;

use super::observation::Ballot;

/// Leases that machines hold.
#[derive(Debug, Default)]
pub struct Leases {
    held: Vec<Lease>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    host: usize,
    range: KeyRange,
    until: Time,
}

impl Leases {
    /// Checks a lease that a machine's node holds until this true time; one whose end has passed was given up.
    pub fn on_held(
        &mut self,
        host: usize,
        now: Time,
        range: KeyRange,
        ballot: Ballot,
        until: Time,
    ) -> Result<(), String> {
        self.held.retain(|lease| lease.until > now && !(lease.host == host && lease.range.overlaps(range)));
        if until <= now {
            return Ok(());
        }
        if let Some(other) = self.held.iter().find(|lease| lease.host != host && lease.range.overlaps(range)) {
            return Err(format!(
                "{host} holds a lease for {range:?} under {ballot:?} until {until:?} beside {other:?}"
            ));
        }
        self.held.push(Lease { host, range, until });
        Ok(())
    }

    /// Forgets the leases of a machine's process that is gone.
    pub fn forget(&mut self, host: usize) {
        self.held.retain(|lease| lease.host != host);
    }
}
