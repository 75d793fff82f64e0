//! Chirp, a small Twitter on any Scatter peer (`Scatter §7.2.1`).
//!
//! It knows nothing of peers, groups or rings: it speaks the Redis protocol to whichever peer it is given, and what it
//! promises rests on what Scatter promises of single keys.
//!
//! | key | holds |
//! | --- | --- |
//! | `chirp/user/NAME` | the profile: set once, by whoever takes the name |
//! | `chirp/updates/NAME`, `…/1`, `…/2` … | what the user posted: a [`list`] |
//! | `chirp/follows/NAME`, `…/1`, `…/2` … | whom the user follows and does not any more: a [`list`] |
//!
//! `NAME` is in lower case, so that nobody can be `Ann` beside `ann`. The store itself hashes keys (the paper's
//! `K_updates` and `K_follows`).
//!
//! Names are trusted: whoever says to be `ann` may post as `ann`. A post can be signed, and readers see whether it is
//! ([`signature`]).

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
