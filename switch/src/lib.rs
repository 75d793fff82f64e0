//! A switch that spreads linearizable reads over all replicas (`Harmonia`).
//!
//! [`pipeline`] is what it does with a packet, as a value: tables that a controller sets, registers that packets change. The same
//! is meant to run in software and, as a P4 program (`p4/harmonia.p4`), in hardware; so it does nothing that a switch cannot do at
//! line rate. [`trace`] has stories of what becomes of packets, to be told to either.
//!
//! With the feature `soft`, which is on by default, there is the switch in software: a pipeline with ports and counters (`device`),
//! and what runs it over UDP (`soft`). With the feature `p4runtime`, on by default as well, there is `p4rt`: how a controller sets
//! the tables of any of them. And with `control` there is what decides how they are set: the controller (`control`).

#[cfg(feature = "control")]
pub mod control;
#[cfg(feature = "soft")]
pub mod device;
pub mod dirty;
#[cfg(feature = "p4runtime")]
pub mod p4rt;
pub mod pipeline;
#[cfg(feature = "soft")]
pub mod soft;
pub mod tables;
pub mod trace;
