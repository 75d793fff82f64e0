//! The papers' experiments, by name: [`registry`] has all of them.
//!
//! An experiment takes [`options`] and returns an [`table::ExperimentOutcome`]: a table with the paper's figures in its last column,
//! pictures, and one sentence that compares our figures with the paper's. [`results`] writes and reads files, [`report`] makes a
//! page of them.

pub mod agenda;
pub mod cores;
pub mod fine_coarse;
pub mod harmonia;
pub mod members;
pub mod options;
pub mod registry;
pub mod report;
pub mod results;
pub mod scatter;
pub mod table;
pub mod testbed;
