//! The machine's clocks, as a node reads them.

use overlay::time::{Now, Time, WallMillis};
use rustix::time::{ClockId, clock_gettime};

/// Reader of the clocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    /// Milliseconds that are added to the wall clock, so that tests can have a wrong one.
    wall_offset_ms: i64,
}

/// Environment variable for tests: milliseconds by which this process's wall clock is wrong.
const WALL_OFFSET: &str = "SCATTER_TEST_WALL_OFFSET_MS";

impl Clocks {
    /// Returns the machine's clocks, with the wall clock's offset from the environment.
    pub(crate) fn from_env() -> Clocks {
        let offset = std::env::var(WALL_OFFSET).ok().and_then(|text| text.parse().ok());
        Clocks { wall_offset_ms: offset.unwrap_or(0) }
    }

    /// Reads all clocks.
    pub fn now(&self) -> Now {
        Now { time: read(ClockId::Boottime), awake: read(ClockId::Monotonic), wall: self.wall() }
    }

    /// Reads the wall clock.
    pub fn wall(&self) -> WallMillis {
        WallMillis(environment::unix_ms().saturating_add_signed(self.wall_offset_ms))
    }
}

fn read(clock: ClockId) -> Time {
    let time = clock_gettime(clock);
    // Both clocks start at boot, so neither is negative.
    Time(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
