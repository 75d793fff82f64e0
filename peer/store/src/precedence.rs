//! The precedence of answers over the write-behind.
//!
//! After a start a range of the table is compared with its books before the first answer from it, and a mutex is not fair.
//! A busy write-behind would take the books again and again, for longer than a comparison takes, before any other thread
//! wakes up.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use environment::lock;

/// Time after an answer for which another one is expected.
const ASKS_AGAIN: Duration = Duration::from_millis(5);
/// Longest wait of the write-behind: commits wait for room in the end.
const GIVE_WAY_MAX: Duration = Duration::from_millis(250);

/// The precedence of answers; see the module.
#[derive(Default)]
pub(crate) struct Precedence {
    state: Mutex<PrecedenceState>,
    left: Condvar,
}

#[derive(Clone, Copy, Default)]
struct PrecedenceState {
    /// Number of threads that work on an answer now.
    asking: usize,
    /// Time when the last answer was done.
    asked: Option<Instant>,
}

impl PrecedenceState {
    /// Returns how long the write-behind gives way from now on, unless an answer is done sooner.
    fn gives_way(&self, now: Instant) -> Option<Duration> {
        if self.asking > 0 {
            return Some(GIVE_WAY_MAX);
        }
        let since = now.saturating_duration_since(self.asked?);
        ASKS_AGAIN.checked_sub(since).filter(|rest| !rest.is_zero())
    }
}

impl Precedence {
    /// Begins an answer, which lasts until the result is dropped.
    pub(crate) fn ask(&self) -> Asking<'_> {
        lock(&self.state).asking += 1;
        Asking(self)
    }

    /// Waits while a thread works on an answer, or is likely to. For a quarter of a second at most.
    pub(crate) fn give_way(&self) {
        let until = Instant::now() + GIVE_WAY_MAX;
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let rest = state.gives_way(now).map(|rest| rest.min(until.saturating_duration_since(now)));
            let Some(rest) = rest.filter(|rest| !rest.is_zero()) else { return };
            state = self.left.wait_timeout(state, rest).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    #[cfg(test)]
    pub(crate) fn gives_way(&self, now: Instant) -> Option<Duration> {
        lock(&self.state).gives_way(now)
    }
}

/// Guard of one answer in progress.
pub(crate) struct Asking<'a>(&'a Precedence);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.asking -= 1;
        state.asked = Some(Instant::now());
        self.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn way_is_given_while_somebody_asks_and_shortly_after() {
        let precedence = Precedence::default();
        let now = Instant::now();
        assert_eq!(precedence.gives_way(now), None);
        let (first, second) = (precedence.ask(), precedence.ask());
        drop(first);
        assert_eq!(precedence.gives_way(now + 10 * GIVE_WAY_MAX), Some(GIVE_WAY_MAX));
        drop(second);
        let asked = lock(&precedence.state).asked.expect("two have asked");
        assert_eq!(precedence.gives_way(asked), Some(ASKS_AGAIN));
        assert_eq!(precedence.gives_way(asked + ASKS_AGAIN / 5), Some(ASKS_AGAIN * 4 / 5));
        assert_eq!(precedence.gives_way(asked + ASKS_AGAIN), None);
    }

    /// Longer is possible on a busy machine; sooner is not.
    #[test]
    fn nobody_waits_for_ever_and_nobody_passes() {
        let precedence = Precedence::default();
        let asking = precedence.ask();
        let began = Instant::now();
        precedence.give_way();
        assert!(began.elapsed() >= GIVE_WAY_MAX);
        drop(asking);
        let asked = lock(&precedence.state).asked.expect("one has asked");
        precedence.give_way();
        assert!(asked.elapsed() >= ASKS_AGAIN);
    }
}
