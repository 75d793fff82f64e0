//! The store that Chirp needs: few operations, each on one key, each linearizable and at most once.
//!
//! [`crate::remote`] is the real one. An operation that ends with [`Error::Unknown`] may have taken effect, or may do
//! so yet, at most once; with any other error it has not, and will not.

use std::future::Future;

use crate::error::Error;
use crate::patience::Pauses;

/// Version of a key's state, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// A store of keys and values.
pub trait Store: Send + Sync {
    /// Returns the value.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + Send;

    /// Returns the length of the value, in bytes; 0 where there is none.
    fn length(&self, key: &str) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Returns the value, if there is one, and its version: an absent key has one, too.
    fn versioned(&self, key: &str) -> impl Future<Output = Result<(Option<Vec<u8>>, Version), Error>> + Send;

    /// Sets an absent key; returns false where the key exists.
    fn create(&self, key: &str, value: &[u8]) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Sets a key if it still has this version; returns false where it has not.
    fn replace(&self, key: &str, seen: &Version, value: &[u8]) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Does the same as [`Store::replace`], for callers that look at the key again in any case: the write may be done
    /// although an error says otherwise. Peers need not remember it for long, so it may be used often.
    fn try_replace(&self, key: &str, seen: &Version, value: &[u8]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Appends to a key, absent or not, and returns the new length. `None` and no change where that would be more than
    /// `max`.
    fn append(&self, key: &str, max: usize, data: &[u8]) -> impl Future<Output = Result<Option<usize>, Error>> + Send;

    /// Waits for a while before a conflict with another client is tried again.
    fn pause(&self, pauses: &mut Pauses) -> impl Future<Output = ()> + Send;
}
