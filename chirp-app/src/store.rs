//! What Chirp asks of a store: few operations, each on one key, each linearizable and at most once.
//!
//! [`crate::remote`] is the real one. An operation that ends with [`Error::Unknown`] may have taken effect, or may do so
//! yet, at most once; with any other error it has not, and will not.

use std::future::Future;

use crate::error::Error;
use crate::patience::Pauses;

/// Which state of a key was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// A store of keys and values.
pub trait Store: Send + Sync {
    /// The value.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + Send;

    /// How long the value is, in bytes; 0 where there is none.
    fn length(&self, key: &str) -> impl Future<Output = Result<usize, Error>> + Send;

    /// The value, if there is one, and which state that is: "not there" is one, too.
    fn versioned(&self, key: &str) -> impl Future<Output = Result<(Option<Vec<u8>>, Version), Error>> + Send;

    /// Sets a key that is not there; false where it is.
    fn create(&self, key: &str, value: &[u8]) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Sets a key if it is still in this state; false where it is not.
    fn replace(&self, key: &str, seen: &Version, value: &[u8]) -> impl Future<Output = Result<bool, Error>> + Send;

    /// As [`Store::replace`], for whoever looks at the key again in any case: it may be done where an error says otherwise.
    /// Peers need not remember it for long, so it may be used often.
    fn try_replace(&self, key: &str, seen: &Version, value: &[u8]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Appends to a key, there or not: its new length. `None` and no change where that would be more than `max`.
    fn append(&self, key: &str, max: usize, data: &[u8]) -> impl Future<Output = Result<Option<usize>, Error>> + Send;

    /// Waits for a while, before what somebody else was in the way of is tried again.
    fn pause(&self, pauses: &mut Pauses) -> impl Future<Output = ()> + Send;
}
