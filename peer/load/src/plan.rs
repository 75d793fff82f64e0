//! The plan of a load.

use std::net::SocketAddr;
use std::time::Duration;

use crate::keys::Distribution;

/// Pace of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each connection always has a fixed number of requests in flight.
    Closed {
        /// Requests in flight on each connection; at least 1.
        in_flight: usize,
    },
    /// Requests are due at a fixed rate, evenly over all connections.
    Open {
        /// Requests a second; above 0.
        rate: f64,
        /// Upper limit of requests in flight on a connection, at least 1. Requests that are due beyond it wait, and
        /// their waiting counts.
        in_flight_max: usize,
    },
}

/// A load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers, at least one. Connections are spread over them evenly.
    pub targets: Vec<SocketAddr>,
    /// Number of connections in all; at least 1.
    pub connections: usize,
    /// Number of threads that drive them; at least 1, and no more than connections.
    pub threads: usize,
    /// Pace of requests.
    pub pace: Pace,
    /// The number of keys, which are numbers below it; at least 1.
    pub keys: u64,
    /// Distribution of requests over the keys.
    pub distribution: Distribution,
    /// The share of requests that are writes, 0 to 1.
    pub writes: f64,
    /// Length of a written value, in bytes.
    pub value_bytes: usize,
    /// Time before the counted time.
    pub warm_up: Duration,
    /// The counted time.
    pub duration: Duration,
    /// Time without an answer after which a connection and its requests are given up.
    pub patience: Duration,
    /// The keys, and the choice between reads and writes, depend on it alone.
    pub seed: u64,
}

impl Plan {
    /// Creates a closed loop over these servers with the usual sizes: 16 connections with 16 requests each, 100,000
    /// keys, uniform, 100-byte values, writes only, ten seconds after two to warm up.
    pub fn new(targets: Vec<SocketAddr>) -> Plan {
        Plan {
            targets,
            connections: 16,
            threads: 1,
            pace: Pace::Closed { in_flight: 16 },
            keys: 100_000,
            distribution: Distribution::Uniform,
            writes: 1.0,
            value_bytes: 100,
            warm_up: Duration::from_secs(2),
            duration: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            seed: 1,
        }
    }

    /// Returns the plan that writes each of the keys once, as a load with reads needs before it.
    pub fn filling(&self) -> Plan {
        Plan {
            distribution: Distribution::Once,
            writes: 1.0,
            pace: Pace::Closed { in_flight: 32 },
            warm_up: Duration::ZERO,
            ..self.clone()
        }
    }

    /// Returns the first fault of the plan, if any.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let pace_is_wrong = match self.pace {
            Pace::Closed { in_flight } => in_flight == 0,
            Pace::Open { rate, in_flight_max } => !(rate > 0.0 && rate.is_finite()) || in_flight_max == 0,
        };
        [
            (self.targets.is_empty(), "no server is given"),
            (self.connections == 0, "at least one connection is needed"),
            (self.threads == 0 || self.threads > self.connections, "threads must be 1 up to the number of connections"),
            (pace_is_wrong, "the rate and the requests under way must be above 0"),
            (self.keys == 0, "at least one key is needed"),
            (!self.distribution.is_sound(), "the exponent of a Zipf distribution must be 0 or more"),
            (!(0.0..=1.0).contains(&self.writes), "the share of writes must be 0 to 1"),
            (self.duration.is_zero(), "the duration must be above 0"),
        ]
        .into_iter()
        .find_map(|(wrong, why)| wrong.then_some(why))
    }
}
