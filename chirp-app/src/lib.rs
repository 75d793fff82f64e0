//! Chirp, a small Twitter on any Scatter peer (`Scatter §7.2.1`).
//!
//! Chirp knows nothing of peers, groups or rings: it speaks the Redis protocol to the peer that it is given, and its
//! promises rest on Scatter's promises for single keys.
//!
//! | key | content |
//! | --- | --- |
//! | `chirp/user/NAME` | the profile: set once, by the user that takes the name |
//! | `chirp/updates/NAME`, `…/1`, `…/2` … | the user's posts: a [`list`] |
//! | `chirp/follows/NAME`, `…/1`, `…/2` … | the users that the user follows, or follows no more: a [`list`] |
//!
//! `NAME` is in lower case, so that no user can be `Ann` beside `ann`. The store itself hashes keys (the paper's
//! `K_updates` and `K_follows`).
//!
//! Names are trusted: every client that claims to be `ann` may post as `ann`. A post can be signed, and readers see
//! whether it is ([`signature`]).

pub mod cli;
pub mod error;
pub mod follows;
pub mod list;
pub mod name;
pub mod patience;
pub mod people;
pub mod record;
pub mod remote;
pub mod signature;
pub mod store;
pub mod text;
pub mod timeline;
pub mod ui;

mod age;
mod chirp;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod ram;

pub use chirp::Chirp;
pub use error::Error;
pub use name::UserName;
pub use record::Record;
pub use text::Text;
