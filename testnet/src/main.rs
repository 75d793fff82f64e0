//! `scatter-testnet`: experiments and checks from the command line.

fn main() {}
