//! Support for programs with a text screen: safe text from outside, a terminal that is always given back, colours or none,
//! and pictures of a screen as text and as SVG.
//!
//! The crate knows nothing of Scatter.
//!
//! - [`safe`]: all text from a network goes through it on its way to a terminal.
//! - [`terminal`]: the terminal as a guard, with keys, sizes, ticks and signals in one place.
//! - [`colour`]: styles for emphasis, with sixteen colours or with none.
//! - [`trial`]: a terminal to try such programs in.
//! - [`picture`]: drawn content as plain text, as text with colours, as SVG, and as a listing for tests.
//!
//! # Examples
//!
//! ```
//! use screen::picture;
//! use screen::ratatui::buffer::Buffer;
//! use screen::safe;
//!
//! // A stranger's name cannot steer the terminal.
//! assert_eq!(safe::line("ann\x1b[2J"), "ann␛[2J");
//! assert_eq!(safe::cut("a long name", 6), "a lon…");
//! let screen = Buffer::with_lines(["ann: hello", "bob: hi"]);
//! assert_eq!(picture::text(&screen), "ann: hello\nbob: hi\n");
//! ```
#![forbid(unsafe_code)]

pub mod colour;
pub mod picture;
pub mod safe;
pub mod terminal;
pub mod trial;

pub use ratatui;
