//! Commands of `scatter-testnet`, a file each.

pub mod study;
