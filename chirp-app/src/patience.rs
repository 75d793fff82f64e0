//! Durations of attempts, and the pauses between them.

use std::time::Duration;

use rustix::time::ClockId;

/// Time after which an operation is given up. It is well below the 60 s for which a peer remembers the ids of
/// operations: after those a repetition could take effect twice.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The end of all attempts, by a clock that goes on while the machine sleeps. After a sleep a client must not send
/// operations that peers have forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Duration);

impl Deadline {
    /// Returns the deadline after this duration from now.
    pub fn after(patience: Duration) -> Deadline {
        Deadline(uptime() + patience)
    }

    /// Returns the time that is left; zero when the deadline is over.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(uptime())
    }

    /// Returns whether no more attempt may be sent.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Returns the time since the machine was started, asleep or not, where the system has such a clock.
fn uptime() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    // Neither part is ever below zero.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

const FIRST_PAUSE: Duration = Duration::from_millis(15);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// The pauses between attempts: each about twice as long as the one before, and random, so that two clients that wait
/// for the same key differ.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST_PAUSE)
    }
}

impl Pauses {
    /// Returns the next pause.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        // From three quarters of the pause to five.
        pause * (192 + u32::from(random::<1>()[0] / 2)) / 256
    }

    /// Waits for the next pause.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }
}

/// Returns bytes that cannot be guessed.
///
/// # Panics
/// Where the system has no source of random bytes: Chirp cannot go on without one.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has a source of chance");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_comes() {
        let deadline = Deadline::after(Duration::from_secs(60));
        assert!(
            !deadline.is_over()
                && deadline.left() > Duration::from_secs(50)
                && deadline.left() <= Duration::from_secs(60)
        );
        assert!(Deadline::after(Duration::ZERO).is_over());
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pauses = Pauses::default();
        let all: Vec<Duration> = (0..20).map(|_| pauses.next_pause()).collect();
        assert!(all[0] < FIRST_PAUSE * 3 / 2 && all[19] > LONGEST_PAUSE / 2);
        assert!(all.iter().all(|pause| *pause < LONGEST_PAUSE * 3 / 2));
    }
}
