//! Dials of peers: their addresses, the schedule of attempts, and the results.

pub(crate) mod addresses;
pub(crate) mod redial;
pub(crate) mod tried;
