//! Decisions only: pure functions from what was observed to an optional proposal (Scatter §6, Harmony §7).
//!
//! The mechanism never decides and these never act; the node carries a proposal across.
#![no_std]

extern crate alloc;

pub mod division;
