//! The papers' experiments, by name: [`registry`] has all of them.
//!
//! An experiment takes [`options`] and returns an `ExperimentOutcome`: a table with the paper's figures in its last column,
//! pictures, and one sentence that compares our figures with the paper's. `results` writes and reads files, [`report`] makes a
//! page of them.

mod agenda;
mod frsm;
mod group_testbed;
pub mod harmonia;
mod members;
pub mod options;
mod recode;
pub mod registry;
pub mod report;
mod results;
mod scatter;
pub mod table;
mod testbed;
