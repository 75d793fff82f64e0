//! Since when a command has been waiting.
//!
//! Every command is to be answered within 3 s, but while a connection is at its limits its next commands wait unread in
//! the kernel, which does not tell since when. After a long block, all that lies in the kernel then is taken to have
//! waited as long as the block: commands that were sent in one go to a network that does not answer are refused in time,
//! all of them, rather than one limit's worth every 3 s.

use std::time::{Duration, Instant};

/// A block shorter than this is ordinary back-pressure, not worth a system call.
const LONG: Duration = Duration::from_millis(500);

/// Keeps the time at which bytes arrived.
#[derive(Debug)]
pub struct Arrival {
    /// When what is in the decoder's buffer arrived.
    stamp: Instant,
    /// Bytes read ever.
    read: u64,
    /// Since when nothing is read.
    blocked: Option<Instant>,
    /// Bytes up to this count have waited since then.
    backlog: Option<(u64, Instant)>,
}

impl Arrival {
    /// A connection that has sent nothing.
    pub fn new(now: Instant) -> Arrival {
        Arrival { stamp: now, read: 0, blocked: None, backlog: None }
    }

    /// When what was read last arrived.
    pub fn stamp(&self) -> Instant {
        self.stamp
    }

    /// Notes whether the connection is read from now on; `waiting` tells how many bytes lie in the kernel.
    pub fn reading(&mut self, reads: bool, now: Instant, waiting: impl FnOnce() -> u64) {
        if !reads {
            self.blocked.get_or_insert(now);
        } else if let Some(since) = self.blocked.take()
            && now.duration_since(since) >= LONG
        {
            self.backlog = Some((self.read + waiting(), since));
        }
    }

    /// Notes that the client takes its answers again: until now it was waiting for nothing, so nothing has waited.
    pub fn caught_up(&mut self, now: Instant) {
        self.stamp = now;
        self.backlog = None;
        self.blocked = self.blocked.map(|_| now);
    }

    /// Notes that bytes were read.
    pub fn arrived(&mut self, bytes: usize, now: Instant) {
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
