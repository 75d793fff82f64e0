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
//!
//! # Examples
//!
//! ```
//! use chirp_app::{Record, Text, UserName};
//!
//! let (ann, text): (UserName, Text) = ("Ann".parse()?, "hello, world".parse()?);
//! assert_eq!(ann.folded(), "ann");
//! assert!("x".repeat(141).parse::<Text>().is_err(), "a chirp has at most 140 characters");
//! // A chirp as it is stored.
//! let record = Record::new(&ann, &text, 1_795_585_100_000, None);
//! assert_eq!(Record::from_item(&record.to_item()), Some(record));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A post through a peer of a network:
//!
//! ```no_run
//! use chirp_app::Chirp;
//! use chirp_app::list::AppendMode;
//! use chirp_app::remote::Remote;
//!
//! # async fn post() -> Result<(), Box<dyn std::error::Error>> {
//! let peers = ["127.0.0.1:6479".to_owned()];
//! let chirp = Chirp::new(Remote::connect(&peers, None).await?, AppendMode::Atomic);
//! chirp.post(&"ann".parse()?, &"hello, world".parse()?, None).await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod cli;
pub mod follows;
pub mod list;
pub mod patience;
pub mod people;
pub mod remote;
pub mod signature;
pub mod store;
pub mod timeline;

mod age;
mod chirp;
mod error;
mod name;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod ram;
mod record;
mod text;
mod ui;

pub use chirp::Chirp;
pub use error::Error;
pub use name::UserName;
pub use record::Record;
pub use text::Text;
