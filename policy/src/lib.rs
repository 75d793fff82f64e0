//! Decisions only: pure functions from observations to an optional proposal (Scatter §6, Harmony §7).
//!
//! Policies never act, and mechanisms never decide: the node carries a proposal across. Each decision is a trait; another
//! policy is another implementation.
//!
//! # Examples
//!
//! ```
//! use policy::size::{Resize, Sizes, Sizing, Thresholds};
//!
//! let sizes = Sizes { own: 13, successor: Some(6), min: 5, max: 12, prospects: None };
//! assert_eq!(Thresholds.propose(&sizes), Some(Resize::Split));
//! assert_eq!(Thresholds.propose(&Sizes { own: 4, ..sizes }), Some(Resize::Merge));
//! assert_eq!(Thresholds.propose(&Sizes { own: 8, ..sizes }), None);
//! ```
#![forbid(unsafe_code)]
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
