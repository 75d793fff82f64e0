//! Arrival times of commands.
//!
//! Every command has to be answered within 3 s, but while a connection is at its limits its next commands wait unread in
//! the kernel, which does not report their arrival. After a long block, all bytes in the kernel count as having waited
//! as long as the block. So commands that were sent in one go to a network that does not answer are all refused in time,
//! not one limit's worth every 3 s.

use std::time::{Duration, Instant};

/// Shortest block that counts: a shorter one is ordinary back-pressure, not worth a system call.
const LONG: Duration = Duration::from_millis(500);

/// Tracks the arrival time of bytes.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Arrival time of the bytes in the decoder's buffer.
    stamp: Instant,
    /// Total number of bytes read.
    read: u64,
    /// Time since which nothing is read.
    blocked: Option<Instant>,
    /// Bytes up to this count have waited since that time.
    backlog: Option<(u64, Instant)>,
}

impl Arrival {
    /// Returns the state of a connection that has sent nothing.
    pub fn new(now: Instant) -> Arrival {
        Arrival { stamp: now, read: 0, blocked: None, backlog: None }
    }

    /// Returns the arrival time of the bytes that were read last.
    pub(crate) fn stamp(&self) -> Instant {
        self.stamp
    }

    /// Records whether the connection is read from now on; `waiting` returns the number of bytes in the kernel.
    pub(crate) fn reading(&mut self, reads: bool, now: Instant, waiting: impl FnOnce() -> u64) {
        if !reads {
            self.blocked.get_or_insert(now);
        } else if let Some(since) = self.blocked.take()
            && now.duration_since(since) >= LONG
        {
            self.backlog = Some((self.read + waiting(), since));
        }
    }

    /// Records that the client takes its answers again: until now the client was not waiting, so no command has waited.
    pub(crate) fn caught_up(&mut self, now: Instant) {
        self.stamp = now;
        self.backlog = None;
        self.blocked = self.blocked.map(|_| now);
    }

    /// Records that bytes were read.
    pub(crate) fn arrived(&mut self, bytes: usize, now: Instant) {
        self.stamp = match self.backlog {
            Some((until, since)) if self.read < until => since,
            _ => now,
        };
        self.read += bytes as u64;
        if self.backlog.is_some_and(|(until, _)| self.read >= until) {
            self.backlog = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lay_in_the_kernel_has_waited_as_long_as_the_block() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut arrival = Arrival::new(start);
        arrival.arrived(10, at(1));
        assert_eq!(arrival.stamp(), at(1));
        arrival.reading(false, at(2), || 0);
        arrival.reading(false, at(1000), || 0);
        arrival.reading(true, at(2900), || 100);
        arrival.arrived(60, at(2901));
        assert_eq!(arrival.stamp(), at(2));
        arrival.arrived(60, at(2902));
        assert_eq!(arrival.stamp(), at(2));
        arrival.arrived(60, at(2903));
        assert_eq!(arrival.stamp(), at(2903));
    }

    #[test]
    fn a_client_that_does_not_read_is_not_waiting() {
        let start = Instant::now();
        let later = start + Duration::from_secs(30);
        let mut arrival = Arrival::new(start);
        arrival.arrived(10, start);
        arrival.reading(false, start, || 0);
        arrival.caught_up(later);
        assert_eq!(arrival.stamp(), later);
        arrival.reading(true, later, || unreachable!("no system call for this"));
        arrival.arrived(10, later + LONG);
        assert_eq!(arrival.stamp(), later + LONG);
    }

    #[test]
    fn a_short_block_is_forgotten() {
        let start = Instant::now();
        let mut arrival = Arrival::new(start);
        arrival.reading(false, start, || 0);
        arrival.reading(true, start + LONG / 2, || unreachable!("no system call for this"));
        arrival.arrived(1, start + LONG);
        assert_eq!(arrival.stamp(), start + LONG);
    }
}
