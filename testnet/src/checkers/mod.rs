//! The properties that must always hold, and the check of each.
//!
//! | property | source | seen in | file |
//! | --- | --- | --- | --- |
//! | I1 one value is chosen | fRSM §3.3.1, Scatter §4.1 | state | `invariants/one_value.rs` |
//! | I2 one configuration of an epoch | Harmony §3.3 | state | `invariants/one_configuration.rs` |
//! | I3 one owner, one primary of a term | Scatter §3.2, §4.1, RECODE P1 | state | `invariants/ring.rs`, `invariants/ownership.rs` |
//! | I4 each key is linearizable | Scatter §5 | history | `history/linearizable.rs`, with `history/model.rs`, `history/calls.rs` and `history/evidence.rs` |
//! | I5 acknowledged writes survive | Scatter §5 | history | `history/durable.rs`, and I4 with the last reads of a run |
//! | I6 at most once | fRSM §3.4, RECODE PTO2 | history | `history/at_most_once.rs` |
//! | I7 only chosen values are returned | fRSM §3.3.2 | history | `history/dirty.rs` |
//! | I8 an operation that was read as not done stays undone | fRSM §3.3, Figure 1 | history | `history/settled.rs` |
//! | I9 one outcome | Scatter §4.2, RECODE P2 | state | `invariants/transactions.rs` |
//! | I10 one lock | Scatter §4.2 | state, world | `invariants/transactions.rs`, and P3 |
//! | I11 neighbours agree | Scatter §4.1 | state | `invariants/ring.rs` |
//! | I12 acceptors only go up | Harmony §3.1 | state | `invariants/monotone.rs` |
//! | I13 leases exclude each other | Scatter §5 | state | `invariants/leases.rs` |
//! | I13 a member that answers a read alone holds a grant | Harmonia §6.3 | state | `invariants/grants.rs` |
//! | I14 deletes stay deleted | fRSM §5.3 | history | `history/deletes.rs` |
//! | I15 all queues have a limit | Scatter §5 | state | `invariants/bounded.rs` |
//! | I16 all ends well once faults stop | Scatter §4.1 | world | `sim/verdict.rs` |
//! | a number is given once: an id is of one life of a switch | Harmonia §6.3 | world | `sim/switch/controller.rs` |
//! | the dirty set drains, and reads are spread again | Harmonia §6.2 | world | `sim/switch/controller.rs` |
//! | PTO1 validity: a routecast operation is answered | RECODE §III-A | world | `sim/verdict.rs`, `sim/machine/process.rs` |
//! | PTO2 integrity: only requests take effect, each once | RECODE §III-A | state, history | `invariants/routecast.rs`, `history/at_most_once.rs`, `history/dirty.rs` |
//! | PTO3 partition order | RECODE §III-A | state | coarse groups only: `invariants/probes.rs` |
//! | PTO4 last partition | RECODE §III-A | state | `invariants/routecast.rs` |
//! | PTO5 total order of a key | RECODE §III-A | state, history | `invariants/routecast.rs`, `history/linearizable.rs` |
//! | P1, P2 | RECODE §III-B | | I3 and I9 |
//! | P3 handover ends: no transaction is left open | RECODE §III-B | world | `sim/verdict.rs` |
//!
//! RECODE allows for a weaker PTO3, in which deliveries to different keys are independent. In this project they are (fRSM §3), but
//! for coarse groups.
//!
//! Histories are checked by [`check_history`], states by [`Probes`] with the [`Observation`]s that nodes show. The error of a check
//! describes the violation, for a person.

use std::fmt;

use overlay::time::Time;

mod history;
pub(crate) mod invariants;

pub use history::{Circumstances, Limits, check_history};
pub use invariants::{Ballot, Broken, Observation, Probes, Scope, Vantage};

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
