//! The papers' experiments, by name.

pub mod cores;
pub mod fine_coarse;
