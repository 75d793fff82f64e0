//! Time, as a driver supplies it. The cores have no clock of their own.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of a steady clock with an arbitrary start. Only a driver makes one; it never goes backwards.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// A time that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the time since `earlier`; zero if that is still to come.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1000 % 1_000_000)
    }
}

/// Milliseconds since 1970 by a wall clock: for display, expiry and other user data, never for order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WallMillis(pub u64);

/// Clocks of a driver at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Clock for all timers and leases. Runs on while the machine sleeps (`CLOCK_BOOTTIME`).
    pub time: Time,
    /// Clock that stops while the machine sleeps (`CLOCK_MONOTONIC`): where the two drift apart, it slept.
    pub awake: Time,
    /// Wall clock.
    pub wall: WallMillis,
}
