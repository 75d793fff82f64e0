//! Helpers of benchmarks of daemons: many keys, and waiting times of clients.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Connection, Reply};

/// Size of each value that [`fill`] stores, in bytes.
pub const FILL_VALUE_BYTES: usize = 100;
/// Number of keys that are stored in requests at one time.
const FILL_PIPELINE: u64 = 500;
/// Time limit of [`fill`].
const FILL_MAX: Duration = Duration::from_secs(90);
const PATIENCE: Duration = Duration::from_secs(30);

/// Stores keys, named as `redis-benchmark` names them, through all peers at once. Returns the number of keys that are stored when
/// the time for it is over: 90 s.
///
/// # Panics
/// If a peer does not serve.
pub fn fill(endpoints: &[SocketAddr], keys: u64) -> u64 {
    let (next, filled, until) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now() + FILL_MAX);
    thread::scope(|scope| {
        for at in endpoints {
            scope.spawn(|| {
                let mut connection = Connection::open(*at, PATIENCE).expect("it serves");
                while Instant::now() < until {
                    let first = next.fetch_add(FILL_PIPELINE, Ordering::Relaxed);
                    if first >= keys {
                        break;
                    }
                    let batch = first..(first + FILL_PIPELINE).min(keys);
                    filled.fetch_add(fill_batch(&mut connection, batch), Ordering::Relaxed);
                }
            });
        }
    });
    filled.into_inner()
}

/// Stores these keys, again where the peer asked to try again.
fn fill_batch(connection: &mut Connection, batch: Range<u64>) -> u64 {
    let value = "x".repeat(FILL_VALUE_BYTES);
    let mut left: Vec<u64> = batch.clone().collect();
    while !left.is_empty() {
        let mut bytes = String::new();
        for key in &left {
            bytes.push_str(&format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${FILL_VALUE_BYTES}\r\n{value}\r\n"));
        }
        connection.write_raw(bytes.as_bytes()).expect("it serves");
        left.retain(|_| !is_ok(&connection.receive().expect("it answers")));
    }
    batch.end - batch.start
}

/// Returns whether the reply is `OK`.
pub fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Simple(text) if text == "OK")
}

/// Waiting times of clients.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Median waiting time.
    pub p50: Duration,
    /// Upper limit of the waiting time for 99 of 100 operations.
    pub p99: Duration,
    /// The longest waiting time.
    pub most: Duration,
}

impl Spread {
    /// Returns the spread of these waiting times.
    pub fn of(mut took: Vec<Duration>) -> Spread {
        took.sort_unstable();
        let at = |per_cent: usize| took.get(took.len() * per_cent / 100).copied().unwrap_or_default();
        Spread { p50: at(50), p99: at(99), most: took.last().copied().unwrap_or_default() }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "p50 {:.1} ms, p99 {:.1} ms, at most {:.0} ms", ms(self.p50), ms(self.p99), ms(self.most))
    }
}
