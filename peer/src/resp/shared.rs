//! State that all connections share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Backend, Router};
use super::metrics::Metrics;
use crate::status::StatusSource;

/// Password, kept as its hash. A comparison takes the same time at every place of the first difference.
#[derive(Clone, Debug)]
pub struct Password(blake3::Hash);

impl Password {
    /// Hashes a password.
    pub fn new(password: &[u8]) -> Password {
        Password(blake3::hash(password))
    }

    /// Returns whether this is the password.
    pub fn is(&self, password: &[u8]) -> bool {
        self.0 == blake3::hash(password)
    }
}

/// Settings of the endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Upper limit of a value in bytes: the network's limit, checked here before anything is sent.
    pub value_bytes_max: usize,
    /// Password that a client has to give before any other command, if there is one.
    pub password: Option<Password>,
    /// Upper limit of connections; further ones are refused with an error.
    pub clients_max: usize,
    /// Upper limit of clients that owe the password; the next one takes the place of the one that has owed it for
    /// longest.
    pub strangers_max: usize,
    /// Time after which a client that owes the password makes room for new ones.
    pub stranger_max: Duration,
    /// Time of the node for a command, counted from its arrival.
    pub patience: Duration,
    /// Time after which a command is answered here if the node has not answered: it must leave time to write the answer
    /// within the 3 s that clients are promised.
    pub guard: Duration,
    /// Time after a stop after which commands at the node are given up: the node has settled all it could before.
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

/// State that all connections of an endpoint share.
pub struct Shared {
    /// Takes requests.
    pub backend: Arc<dyn Backend>,
    /// Routes answers.
    pub router: Arc<Router>,
    /// Status for `INFO` and `SCATTER.WHERE`.
    pub status: Arc<dyn StatusSource>,
    /// Settings, which do not change while the process lives.
    pub settings: Settings,
    /// Counters.
    pub metrics: Metrics,
    /// Time at which the process started.
    pub started: Instant,
}
