//! Checks of the nodes' states, after each step: [`Probes`] takes the [`Observation`]s that nodes show.

pub mod bounded;
pub mod grants;
pub mod leases;
pub mod monotone;
mod observation;
pub mod one_configuration;
pub mod one_value;
pub mod ownership;
mod probes;
pub mod ring;
pub mod routecast;
pub mod transactions;

pub use observation::{Ballot, Observation, Scope};
pub use probes::{Broken, Probes, Vantage};
