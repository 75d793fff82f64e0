//! Monitoring over HTTP, the same for the switch in software and for the controller.
//!
//! A program describes itself as a [`Monitored`] value, and [`serve`] answers for it. [`Exposition`] writes metrics in
//! Prometheus's format.

mod exposition;
mod host;
mod http;

pub use exposition::{Exposition, Family};
pub use http::serve;

/// Program behind an endpoint for monitoring.
pub trait Monitored: Send + Sync + 'static {
    /// Returns all metrics in Prometheus's format, for `/metrics`.
    fn metrics(&self) -> String;

    /// Returns the health for `/healthz`: if the program does not work, the reason. `None` if it has no such page.
    fn health(&self) -> Option<Result<(), &'static str>> {
        None
    }
}
