//! A member answers a read alone only while the primary of its ballot has granted that, under the switch id that is on the read
//! (`Harmonia §6.3`; hazards 55, 58).
//!
//! The beliefs of primaries and members are compared in true time. A grant is over at the member, on any clock, before its primary
//! counts on that, and before a later primary serves.

use std::collections::BTreeMap;

use overlay::time::Time;
use overlay::{IntervalMap, Key, KeyRange};

use super::observation::Ballot;

/// Grants of primaries.
#[derive(Debug)]
pub struct ReadGrants {
    /// By ballot: the switch that writes pass, as seen last, and the latest end of all grants.
    grants: BTreeMap<Ballot, (Option<u32>, Time)>,
    /// The highest term that was seen to serve at each point. A term names its epoch.
    terms: IntervalMap<u64>,
}

impl Default for ReadGrants {
    fn default() -> ReadGrants {
        ReadGrants { grants: BTreeMap::new(), terms: IntervalMap::new(0) }
    }
}

impl ReadGrants {
    /// Notes a primary that begins to serve.
    pub fn on_serving(&mut self, range: KeyRange, term: u64) {
        self.terms.update(range, |known| term.max(*known));
    }

    /// Notes the switch that a primary's writes pass, if any, and the true time at which its grants are over.
    pub fn on_granted(&mut self, ballot: Ballot, switch: Option<u32>, until: Time) {
        self.grants.insert(ballot, (switch, until));
    }

    /// Checks a member that has answered a read alone, now.
    pub fn on_alone(&self, now: Time, key: &Key, ballot: Ballot, switch: u32) -> Result<(), String> {
        let later = *self.terms.get(key.point());
        if later > ballot.term {
            return Err(format!("{key:?} was answered under {ballot:?} when the primary of term {later} served"));
        }
        match self.grants.get(&ballot) {
            Some((Some(id), until)) if *id == switch && now <= *until => Ok(()),
            granted => {
                Err(format!("{key:?} was answered under {ballot:?} and switch {switch}: granted is {granted:?}"))
            }
        }
    }
}
