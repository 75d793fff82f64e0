//! A switch that spreads linearizable reads over all replicas (`Harmonia`).
//!
//! [`pipeline`] is what it does with a packet, as a value: tables that a controller sets, registers that packets change. The same
//! is meant to run in software and, as a P4 program, in hardware; so it does nothing that a switch cannot do at line rate.
//!
//! With the feature `soft`, which is on by default, there is the switch in software: a pipeline with ports and counters
//! ([`device`]), and what runs it over UDP ([`soft`]).

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
