//! Decisions only: pure functions from what was observed to an optional proposal (Scatter §6, Harmony §7).
//!
//! The mechanism never decides and these never act; the node carries a proposal across. For each decision there is a trait;
//! whoever wants another policy implements it.
#![no_std]

extern crate alloc;

pub mod capacity;
pub mod density;
pub mod diversity;
pub mod division;
pub mod halves;
pub mod history;
pub mod joining;
pub mod leading;
pub mod lifetimes;
pub mod nines;
pub mod p2p;
pub mod repartition;
pub mod risk;
pub mod size;
pub mod weights;
