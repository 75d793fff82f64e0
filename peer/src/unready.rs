//! Times at which a peer that does not serve logs the reason: after three seconds, and then each minute.

use std::time::{Duration, Instant};

use crate::status::Readiness;

/// Time before the first report: ordinary starts and changes of leaders take less.
const FIRST: Duration = Duration::from_secs(3);
/// Interval of the reports.
const EVERY: Duration = Duration::from_secs(60);

/// Time since which a peer does not serve, and time of the next report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unready {
    since: Option<(Instant, Instant)>,
}

impl Unready {
    /// Returns the state of a peer that starts: it does not serve yet.
    pub fn new(now: Instant) -> Unready {
        Unready { since: Some((now, now + FIRST)) }
    }

    /// Records that the peer serves.
    pub fn ready(&mut self) {
        self.since = None;
    }

    /// Records that the peer does not serve any more.
    pub fn not_ready(&mut self, now: Instant) {
        self.since.get_or_insert((now, now + FIRST));
    }

    /// Takes the result of the readiness checks.
    pub fn look(&mut self, is_ready: bool, now: Instant) {
        if is_ready { self.ready() } else { self.not_ready(now) }
    }

    /// Returns the time for which the peer has not served, where a report is due now.
    pub fn due(&mut self, now: Instant) -> Option<Duration> {
        let (since, next) = self.since.as_mut().filter(|(_, next)| *next <= now)?;
        *next = now + EVERY;
        Some(now.duration_since(*since))
    }

    /// Returns whether the peer has not served for longer than an ordinary start takes.
    pub(crate) fn is_long(&self, now: Instant) -> bool {
        self.since.is_some_and(|(since, _)| now.duration_since(since) >= FIRST)
    }
}

/// Lists the failing checks in a line; for a peer in no group, only the checks that concern entering one.
pub fn failing(readiness: &Readiness) -> String {
    let is_outside = readiness.checks.iter().any(|check| check.name == "in_group" && !check.ok);
    let matters = |name: &str| !is_outside || ["in_group", "peers"].contains(&name);
    let failing = readiness.checks.iter().filter(|check| !check.ok && matters(&check.name));
    failing.map(|check| format!("{}: {}", check.name, check.detail)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Check;

    #[test]
    fn it_is_said_at_three_seconds_and_each_minute() {
        let start = Instant::now();
        let mut unready = Unready::new(start);
        let said = |unready: &mut Unready, range: std::ops::Range<u64>| -> Vec<u64> {
            range.filter(|second| unready.due(start + Duration::from_secs(*second)).is_some()).collect()
        };
        assert_eq!(said(&mut unready, 0..130), [3, 63, 123]);
        unready.look(true, start + Duration::from_secs(130));
        assert!(said(&mut unready, 130..300).is_empty());
        unready.look(false, start + Duration::from_secs(300));
        unready.look(false, start + Duration::from_secs(301));
        assert_eq!(said(&mut unready, 300..370), [303, 363]);
        assert!(
            unready.is_long(start + Duration::from_secs(303)) && !unready.is_long(start + Duration::from_secs(302))
        );
    }

    #[test]
    fn only_what_fails_is_said() {
        let check = |name: &str, ok| Check { name: name.into(), ok, detail: "so".into() };
        let checks = vec![check("one", true), check("two", false), check("three", false)];
        assert_eq!(failing(&Readiness { checks, ..Readiness::default() }), "two: so; three: so");
        let checks = vec![check("in_group", false), check("leader", false), check("peers", false)];
        assert_eq!(failing(&Readiness { checks, ..Readiness::default() }), "in_group: so; peers: so");
    }
}
