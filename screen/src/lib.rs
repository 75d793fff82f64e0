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

pub mod colour;
pub mod picture;
pub mod safe;
pub mod terminal;
pub mod trial;

pub use ratatui;
