//! What all connections share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Backend, Router};
use super::metrics::Metrics;
use crate::status::StatusSource;

/// A password, kept as its hash. Comparing takes the same time wherever the first difference lies.
#[derive(Clone, Debug)]
pub struct Password(blake3::Hash);

impl Password {
    /// Takes the password itself.
    pub fn new(password: &[u8]) -> Password {
        Password(blake3::hash(password))
    }

    /// Whether this is it.
    pub fn is(&self, password: &[u8]) -> bool {
        self.0 == blake3::hash(password)
    }
}

/// What may be set about the endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest value, in bytes: the network's limit, checked here before anything is sent.
    pub value_bytes_max: usize,
    /// Needed before anything else, if there is one.
    pub password: Option<Password>,
    /// More connections than this are refused with an error.
    pub clients_max: usize,
    /// Clients that owe the password, at most; the next one takes the place of the one that has owed it for longest.
    pub strangers_max: usize,
    /// A client that owes the password for so long makes room for others.
    pub stranger_max: Duration,
    /// How long the node has for a command, counted from its arrival.
    pub patience: Duration,
    /// After so long a command is answered here if the node has not: must leave time to write the answer within the 3 s
    /// that clients are promised.
    pub guard: Duration,
    /// After a stop, commands that the node still has are given up after so long: it has settled what it could before.
    pub last_call: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            value_bytes_max: 64 * 1024,
            password: None,
            clients_max: 4096,
            strangers_max: 128,
            stranger_max: Duration::from_secs(30),
            patience: Duration::from_millis(2800),
            guard: Duration::from_millis(2900),
            last_call: Duration::from_millis(700),
        }
    }
}

/// What all connections of an endpoint share.
pub struct Shared {
    /// Where requests go.
    pub backend: Arc<dyn Backend>,
    /// Where answers come from.
    pub router: Arc<Router>,
    /// For `INFO` and `SCATTER.WHERE`.
    pub status: Arc<dyn StatusSource>,
    /// Does not change while the process lives.
    pub settings: Settings,
    /// Counts.
    pub metrics: Metrics,
    /// When the process started.
    pub started: Instant,
}
