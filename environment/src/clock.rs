//! Wall clock of the machine.

use std::time::{Duration, SystemTime};

/// Returns the time of the wall clock since the start of 1970 (UTC); zero where the clock is set to an earlier time.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time of the wall clock in milliseconds since the start of 1970 (UTC); 0 where the clock is set to an earlier time.
pub fn unix_ms() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}
