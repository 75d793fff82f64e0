//! Checks of the history of clients: linearizability, and properties that are quicker to check.

use std::time::Duration;

use overlay::time::Time;

use crate::checkers::Broken;
use crate::history::History;

mod at_most_once;
mod calls;
mod deletes;
mod dirty;
mod durable;
mod evidence;
mod linearizable;
mod model;
mod settled;

pub use model::Limits;

use calls::CallOf;
use linearizable::SearchResult;

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

impl Circumstances {
    /// Returns the circumstances of real daemons with default settings: requests may be kept back at any time, and the group's clock may be off by
    /// ten seconds.
    pub fn of_daemons() -> Circumstances {
        let value_bytes_max = Limits::default().value_bytes_max;
        Circumstances { stalls: None, clock_slack: Some(Duration::from_secs(10)), value_bytes_max }
    }
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
