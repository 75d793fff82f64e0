//! Reads by any member, scheduled by a switch (`Harmonia`; `docs/design/switch.md`).
//!
//! - [`switch`]: the switch that the group's log names.
//! - `offload`: the primary's side: grants, and the point up to which members may answer; `write_pass`: its writes on their way through the
//!   switch.
//! - `replica`: the side of an answering member; [`read_scheduler`]: the reads that reach it.

pub(crate) mod offload;
pub mod read_scheduler;
pub(crate) mod replica;
pub mod switch;
pub(crate) mod write_pass;

pub use offload::{ReturnedWrite, TRIAL, WritePass};
pub use replica::Answers;
