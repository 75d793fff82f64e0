//! What benches of daemons need: many keys, and how long clients waited.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Connection, Reply};

/// Of each value that [`fill`] stores.
pub const FILL_VALUE_BYTES: usize = 100;
/// Keys are stored in so many requests at a time, and no longer than this.
const FILL_PIPELINE: u64 = 500;
const FILL_MAX: Duration = Duration::from_secs(90);
const PATIENCE: Duration = Duration::from_secs(30);

/// Stores keys, named as `redis-benchmark` names them, through all peers at once. Says how many there are when the time
/// for it is over: 90 s.
///
/// # Panics
/// Where a peer does not serve.
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

/// Stores these, again where it was told to try again.
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

/// Was it done?
pub fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Simple(text) if text == "OK")
}

/// How long clients waited.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Half of them, no longer than this.
    pub p50: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// The longest.
    pub most: Duration,
}

impl Spread {
    /// Of all these.
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
