//! What programs with a screen of text need: text from outside made safe, a terminal that is always given back, colours or
//! none, and pictures of a screen as text and as SVG.
//!
//! Knows nothing of Scatter.
//!
//! - [`safe`]: nothing that came over a network reaches a terminal without going through it.
//! - [`terminal`]: the terminal as a guard, with keys, sizes, ticks and signals in one place.
//! - [`colour`]: what is emphasized how, with sixteen colours or with none.
//! - [`trial`]: a terminal to try such programs in.
//! - [`picture`]: what was drawn, as plain text, as text with colours, as SVG, and as a listing for tests.

pub mod colour;
pub mod picture;
pub mod safe;
pub mod terminal;
pub mod trial;

pub use ratatui;
