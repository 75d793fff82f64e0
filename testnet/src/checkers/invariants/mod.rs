//! Checks of the nodes' states, after each step: [`Probes`] takes the [`Observation`]s that nodes show.

mod bounded;
mod grants;
mod leases;
mod monotone;
mod observation;
mod one_configuration;
mod one_value;
mod ownership;
mod probes;
mod ring;
mod routecast;
mod transactions;

pub use observation::{Ballot, Observation, Scope};
pub use probes::{Broken, Probes, Vantage};
pub(crate) use ring::Place;
pub(crate) use transactions::TransactionStep;
