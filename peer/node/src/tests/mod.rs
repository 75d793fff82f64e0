//! Tests of several nodes in memory that concern more than one part of a node.

mod ended;
mod names;
mod repair;
mod room;
pub(crate) mod small_net;
