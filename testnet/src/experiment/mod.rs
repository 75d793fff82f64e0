//! The papers' experiments, by name.

pub mod agenda;
pub mod cores;
pub mod fine_coarse;
pub mod harmonia;
pub mod members;
