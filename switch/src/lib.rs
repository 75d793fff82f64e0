//! A switch that spreads linearizable reads over all replicas (`Harmonia`).
//!
//! [`pipeline`] is the treatment of a packet, as a value: tables that a controller sets, and registers that packets change. The
//! same treatment is meant to run in software and, as a P4 program (`p4/harmonia.p4`), in hardware. So it does nothing that a
//! switch cannot do at line rate. [`trace`] has stories: packets with their expected treatment, which either of them can be
//! tested with.
//!
//! The feature `soft`, on by default, adds the switch in software: a pipeline with ports and counters (`device`), and the loop
//! that runs it over UDP (`soft`), both with an endpoint for monitoring (`monitoring`). The feature `p4runtime`, also on by
//! default, adds `p4rt`: the protocol by which a controller sets the tables of any such switch. The feature `control` adds the
//! controller, which decides about the content of the tables (`controller`).

#[cfg(feature = "control")]
pub mod controller;
#[cfg(feature = "soft")]
pub mod device;
pub mod dirty;
#[cfg(feature = "soft")]
pub mod monitoring;
#[cfg(feature = "p4runtime")]
pub mod p4rt;
pub mod pipeline;
#[cfg(feature = "soft")]
pub mod soft;
pub mod tables;
pub mod trace;
