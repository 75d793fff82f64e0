//! Helpers that several tests of the program share.

pub mod process;
