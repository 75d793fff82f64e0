//! The last events, each told once: an event that recurs within seconds is one entry with a count.

use std::collections::VecDeque;

use super::happenings::{Family, Happening};
use crate::status::Told;

/// Upper limit of entries.
const ENTRIES_MAX: usize = 1000;
/// Time in milliseconds within which the same event of the same subject is a recurrence.
const AGAIN_MS: u64 = 10_000;

/// Bounded list of events, in the order of `seq`.
#[derive(Debug, Default)]
pub(crate) struct RecentEvents {
    entries: VecDeque<(Family, Told)>,
    /// Last `seq` that was given.
    last: u64,
}

impl RecentEvents {
    /// Adds an event at this wall-clock time, which may go back. Returns its number of occurrences, or `None` where it is
    /// in the log already.
    pub fn tell(&mut self, happening: Happening, unix_ms: u64) -> Option<u64> {
        let family = happening.family();
        let place = self.entries.iter().rposition(|(of, _)| *of == family);
        let known = place.and_then(|place| self.entries.get(place)).map(|(_, told)| told);
        let again = known.filter(|told| unix_ms.saturating_sub(told.unix_ms) < AGAIN_MS);
        let stays = known.is_some_and(|told| says(told, &happening));
        if stays && (family.is_state() || family.is_pair() && again.is_some()) {
            return None;
        }
        self.last += 1;
        let (id, since_unix_ms, count) = match again {
            // Suspected, heard again and suspected again is twice.
            Some(told) => {
                (told.id, told.since_unix_ms, told.count + u64::from(happening.kind.is_first_of_its_family()))
            }
            None => (self.last, unix_ms, 1),
        };
        if again.is_some()
            && let Some(place) = place
        {
            self.entries.remove(place);
        }
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.pop_front();
        }
        let Happening { kind, group, peer, text } = happening;
        let kind = kind.name().into();
        self.entries
            .push_back((family, Told { id, seq: self.last, unix_ms, since_unix_ms, count, kind, group, peer, text }));
        Some(count)
    }

    /// Returns the events behind `seq`, oldest first, and the last number that was given.
    pub fn after(&self, seq: u64) -> (Vec<Told>, u64) {
        let behind = self.entries.iter().map(|(_, told)| told).filter(|told| told.seq > seq);
        (behind.cloned().collect(), self.last)
    }
}

/// Returns whether the log has this event already. A peer that falls silent does so in each lane, and so in each lane's
/// group: that is one event.
fn says(told: &Told, happening: &Happening) -> bool {
    let same_group = told.group == happening.group || matches!(happening.family(), Family::Hearing(_));
    told.kind == happening.kind.name() && told.peer == happening.peer && same_group
}

#[cfg(test)]
mod tests {
    use super::super::happenings::EventKind;
    use super::*;

    fn happening(kind: EventKind, peer: &str) -> Happening {
        Happening::of(kind, Some("g"), Some(peer), format!("{peer} {}", kind.name()))
    }

    fn told(log: &RecentEvents) -> Vec<(u64, u64, String, u64)> {
        log.after(0).0.into_iter().map(|told| (told.id, told.seq, told.text, told.count)).collect()
    }

    #[test]
    fn what_flickers_is_one_thing() {
        let mut log = RecentEvents::default();
        for (at, kind) in [
            (0, EventKind::Suspected),
            (1, EventKind::HeardAgain),
            (8, EventKind::Suspected),
            (9, EventKind::HeardAgain),
        ] {
            log.tell(happening(kind, "a"), at * 1000);
            log.tell(happening(EventKind::Suspected, "b"), at * 1000);
        }
        let wanted = [(1, 5, "a heard_again".to_owned(), 2), (2, 2, "b suspected".to_owned(), 1)];
        let mut all = told(&log);
        all.sort();
        assert_eq!(all, wanted, "a state that stays is told once, one that comes back with a count");
        // A reader that has seen the event gets it anew, under the same id.
        assert_eq!(log.after(4).0.iter().map(|told| told.id).collect::<Vec<_>>(), [1]);
        log.tell(happening(EventKind::Suspected, "a"), 60_000);
        assert_eq!(told(&log).len(), 3, "much later it is another thing");
    }

    #[test]
    fn who_falls_silent_does_so_once_whatever_lanes_there_are() {
        let mut log = RecentEvents::default();
        for kind in [EventKind::Suspected, EventKind::HeardAgain] {
            for (lane, group) in ["g", "h", "i", "j"].into_iter().enumerate() {
                log.tell(Happening::of(kind, Some(group), Some("a"), format!("a {}", kind.name())), lane as u64 * 250);
            }
        }
        assert_eq!(told(&log), [(1, 2, "a heard_again".to_owned(), 1)]);
    }

    #[test]
    fn a_leader_is_told_once() {
        let mut log = RecentEvents::default();
        for peer in ["a", "a", "b", "a", "a"] {
            log.tell(happening(EventKind::Led, peer), 1000);
        }
        assert_eq!(told(&log), [(1, 3, "a led".to_owned(), 3)]);
        log.tell(happening(EventKind::Led, "a"), 100_000);
        assert_eq!(told(&log).len(), 1, "who leads already does not begin to");
        log.tell(happening(EventKind::Led, "b"), 200_000);
        assert_eq!(told(&log).len(), 2);
    }

    #[test]
    fn who_is_let_in_and_becomes_a_member_is_one_thing() {
        let mut log = RecentEvents::default();
        log.tell(happening(EventKind::Learning, "a"), 1000);
        log.tell(happening(EventKind::Joined, "a"), 2000);
        log.tell(happening(EventKind::Learning, "b"), 2000);
        log.tell(happening(EventKind::Joined, "b"), 60_000);
        let kinds: Vec<(u64, String)> = log.after(0).0.into_iter().map(|told| (told.id, told.kind)).collect();
        assert_eq!(kinds, [(1, "joined".to_owned()), (3, "learning".to_owned()), (4, "joined".to_owned())]);
    }

    #[test]
    fn it_is_bounded_and_survives_a_clock_that_goes_back() {
        let mut log = RecentEvents::default();
        for n in 0..3000_u64 {
            log.tell(happening(EventKind::Joined, &n.to_string()), 3_000_000 - n * 1000);
        }
        let (all, last) = log.after(0);
        assert_eq!((all.len(), all[0].seq, last), (ENTRIES_MAX, 2001, 3000));
    }
}
