//! Golden files: the bytes of every stored and every sent type, checked in, so that none changes without its version.
//!
//! [`examples`] makes values of a type by itself, until each variant of each enum in it has occurred: a new variant has
//! an example at once. [`Golden`] compares their bytes with a file. Its message about a difference names the version
//! constant to raise, and the one command that writes the file anew (`SCATTER_BLESS=1 cargo test … golden`). The command
//! refuses where bytes have changed and the version has not.
//!
//! # Examples
//!
//! ```
//! #[derive(serde::Deserialize)]
//! #[allow(dead_code)]
//! enum Order {
//!     Stop,
//!     Move { metres: u32 },
//! }
//!
//! let found = golden::examples::<Order>();
//! let names: Vec<&str> = found.values.iter().map(|(name, _)| name.as_str()).collect();
//! assert_eq!(names, ["Order::Stop", "Order::Move"]);
//! ```
#![forbid(unsafe_code)]

mod example;
mod file;

pub use example::{Examples, examples};
pub use file::{Format, Golden};
