//! `scatter`: the daemon and the client commands.

fn main() {}
