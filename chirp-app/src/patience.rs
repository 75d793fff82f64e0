//! How long and how often something is tried again.

use std::time::Duration;

/// What is not done after this long is given up. Well below the 60 s for which a peer remembers the ids of operations: after
/// those a repetition could take effect twice.
pub const PATIENCE: Duration = Duration::from_secs(15);

const FIRST_PAUSE: Duration = Duration::from_millis(15);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// The pauses between attempts: each about twice as long as the one before, and never the same for two who wait for the
/// same thing.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST_PAUSE)
    }
}

impl Pauses {
    /// The next pause.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        // From three quarters of it to five.
        pause * (192 + u32::from(random::<1>()[0] / 2)) / 256
    }

    /// Waits for as long as the next pause is.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }
}

/// Bytes that nobody can guess.
///
/// # Panics
/// Where the system has no source of chance: nothing here can go on without one.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has a source of chance");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pauses = Pauses::default();
        let all: Vec<Duration> = (0..20).map(|_| pauses.next_pause()).collect();
        assert!(all[0] < FIRST_PAUSE * 3 / 2 && all[19] > LONGEST_PAUSE / 2);
        assert!(all.iter().all(|pause| *pause < LONGEST_PAUSE * 3 / 2));
    }
}
