//! Recovery after a start: whether the store of this member has everything that the member acknowledged (`docs/design/durability.md`).

pub(crate) mod crash_recovery;
pub(crate) mod doubt;
