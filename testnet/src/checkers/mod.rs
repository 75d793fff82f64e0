//! The properties that must always hold, and the check of each.
//!
//! | property | source | seen in | file |
//! | --- | --- | --- | --- |
//! | I1 one value is chosen | fRSM §3.3.1, Scatter §4.1 | state | [`one_value`] |
//! | I2 one configuration of an epoch | Harmony §3.3 | state | [`one_configuration`] |
//! | I3 one owner, one primary of a term | Scatter §3.2, §4.1, RECODE P1 | state | [`ring`], [`ownership`] |
//! | I4 each key is linearizable | Scatter §5 | history | [`linearizable`], with [`model`], [`calls`] and [`evidence`] |
//! | I5 acknowledged writes survive | Scatter §5 | history | [`durable`], and I4 with the last reads of a run |
//! | I6 at most once | fRSM §3.4, RECODE PTO2 | history | [`at_most_once`] |
//! | I7 only chosen values are returned | fRSM §3.3.2 | history | [`dirty`] |
//! | I8 an operation that was read as not done stays undone | fRSM §3.3, Figure 1 | history | [`settled`] |
//! | I9 one outcome | Scatter §4.2, RECODE P2 | state | [`transactions`] |
//! | I10 one lock | Scatter §4.2 | state, world | [`transactions`], and P3 |
//! | I11 neighbours agree | Scatter §4.1 | state | [`ring`] |
//! | I12 acceptors only go up | Harmony §3.1 | state | [`monotone`] |
//! | I13 leases exclude each other | Scatter §5 | state | [`leases`] |
//! | I13 a member that answers a read alone holds a grant | Harmonia §6.3 | state | [`grants`] |
//! | I14 deletes stay deleted | fRSM §5.3 | history | [`deletes`] |
//! | I15 all queues have a limit | Scatter §5 | state | [`bounded`] |
//! | I16 all ends well once faults stop | Scatter §4.1 | world | `sim/verdict.rs` |
//! | a number is given once: an id is of one life of a switch | Harmonia §6.3 | world | `sim/switch.rs` |
//! | the dirty set drains, and reads are spread again | Harmonia §6.2 | world | `sim/controller.rs` |
//! | PTO1 validity: a routecast operation is answered | RECODE §III-A | world | `sim/verdict.rs`, `sim/machine.rs` |
//! | PTO2 integrity: only requests take effect, each once | RECODE §III-A | state, history | [`routecast`], [`at_most_once`], [`dirty`] |
//! | PTO3 partition order | RECODE §III-A | state | coarse groups only: [`probes`](Probes) |
//! | PTO4 last partition | RECODE §III-A | state | [`routecast`] |
//! | PTO5 total order of a key | RECODE §III-A | state, history | [`routecast`], [`linearizable`] |
//! | P1, P2 | RECODE §III-B | | I3 and I9 |
//! | P3 handover ends: no transaction is left open | RECODE §III-B | world | `sim/verdict.rs` |
//!
//! RECODE allows for a weaker PTO3, in which deliveries to different keys are independent. In this project they are (fRSM §3), but
//! for coarse groups.
//!
//! Histories are checked by [`check_history`], states by [`Probes`] with the [`Observation`]s that nodes show. The error of a check
//! describes the violation, for a person.

use std::fmt;
use std::time::Duration;

use overlay::time::Time;

use crate::history::History;

pub mod at_most_once;
pub mod bounded;
pub mod calls;
pub mod deletes;
pub mod dirty;
pub mod durable;
pub mod evidence;
pub mod grants;
pub mod leases;
pub mod linearizable;
pub mod model;
pub mod monotone;
mod observation;
pub mod one_configuration;
pub mod one_value;
pub mod ownership;
mod probes;
pub mod ring;
pub mod routecast;
pub mod settled;
pub mod transactions;

pub use observation::{Ballot, Observation, Scope};
pub use probes::{Broken, Probes, Vantage};

use calls::CallOf;
use linearizable::SearchResult;
use model::Limits;

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the property.
    pub property: &'static str,
    /// Description of the violation.
    pub detail: String,
    /// Time of the violation.
    pub at: Time,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold at {:?}: {}", self.property, self.at, self.detail)
    }
}

/// Known circumstances of a history.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// Periods in which requests may have been kept back, joined: a request from one of them may arrive at its end. `None`:
    /// requests may be kept back at any time, and then I8 is not checked.
    pub stalls: Option<Vec<(Time, Time)>>,
    /// Greatest error of the group's clock; `None`: no time is known by which a key must have expired.
    pub clock_slack: Option<Duration>,
    /// Size limit of a value, in bytes.
    pub value_bytes_max: usize,
}

/// Checks the clients' history.
///
/// # Errors
/// The first violated property, and a description.
pub fn check_history(history: &History, circumstances: &Circumstances) -> Result<(), Broken> {
    let Circumstances { clock_slack, value_bytes_max, .. } = *circumstances;
    let limits = Limits { clock_slack, value_bytes_max };
    for (key, operations) in history.by_key() {
        let plain = [
            ("I5 durable", durable::check(&operations)),
            ("I6 at most once", at_most_once::check(&operations)),
            ("I7 no dirty read", dirty::check(&operations)),
            ("I14 deletes stay deleted", deletes::check(&operations)),
        ];
        for (property, result) in plain {
            result.map_err(|detail| (property, detail))?;
        }
        let stalls = circumstances.stalls.as_deref();
        let settles =
            |call: &CallOf<'_>, read: &CallOf<'_>| stalls.is_some_and(|stalls| settled::settles(call, read, stalls));
        let strict = linearizable::search(&operations, &settles, &limits);
        // An order that keeps those pairs is an order; so this distinguishes the two properties.
        let verdict = match (&strict, stalls) {
            (SearchResult::Impossible(_), Some(_)) => linearizable::search(&operations, &|_, _| false, &limits),
            _ => strict.clone(),
        };
        match (strict, verdict) {
            (_, SearchResult::Impossible(story)) => return Err(("I4 linearizable", format!("{key:?}: {story}"))),
            (SearchResult::Impossible(story), SearchResult::Linearizable) => {
                return Err(("I8 settled", format!("{key:?}: something took effect after a read without it: {story}")));
            }
            (_, SearchResult::Undecided(why)) | (SearchResult::Undecided(why), _) => {
                return Err(("undecided", format!("{key:?}: {why}")));
            }
            (SearchResult::Linearizable, SearchResult::Linearizable) => {}
        }
    }
    Ok(())
}
