//! A poll that ends at a moment, more exactly than the whole milliseconds of a poll's timeout.

use std::io;
use std::time::Duration;

use mio::{Events, Poll, Registry, Token};

/// A timer that can be polled, as Linux has. On other systems it is empty, and a poll ends within a millisecond of its moment.
pub(crate) struct Timer {
    #[cfg(target_os = "linux")]
    descriptor: std::os::fd::OwnedFd,
}

impl Timer {
    /// Creates a timer whose events have this token; these events are to be ignored.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Timer> {
        use std::os::fd::AsRawFd as _;

        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut mio::unix::SourceFd(&descriptor.as_raw_fd()), token, mio::Interest::READABLE)?;
        Ok(Timer { descriptor })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(_: &Registry, _: Token) -> io::Result<Timer> {
        Ok(Timer {})
    }

    /// Waits for events, for exactly `exactly`, or for about `most`.
    pub(crate) fn poll(
        &self,
        poll: &mut Poll,
        events: &mut Events,
        exactly: Option<Duration>,
        most: Duration,
    ) -> io::Result<()> {
        let most = match exactly {
            Some(exactly) => self.set(exactly)?.unwrap_or(most),
            None => most,
        };
        match poll.poll(events, Some(most)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            polled => polled,
        }
    }

    #[cfg(target_os = "linux")]
    fn set(&self, after: Duration) -> io::Result<Option<Duration>> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // Zero would disarm the timer.
        let after = after.max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(None)
    }

    #[cfg(not(target_os = "linux"))]
    fn set(&self, after: Duration) -> io::Result<Option<Duration>> {
        Ok(Some(after))
    }
}
