//! Events of an experiment's world, in order of virtual time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use overlay::time::Time;

struct Planned<E>(Time, u64, E);

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Planned<E>) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Planned<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Planned<E>) -> Ordering {
        (other.0, other.1).cmp(&(self.0, self.1)) // The earliest first.
    }
}

/// Events to come, those of one moment in the order in which they were planned, and the present time.
pub struct Agenda<E> {
    now: Time,
    planned: BinaryHeap<Planned<E>>,
    count: u64,
}

impl<E> Agenda<E> {
    /// Returns an agenda without events, at time 0.
    pub fn new() -> Agenda<E> {
        Agenda { now: Time(0), planned: BinaryHeap::new(), count: 0 }
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Plans an event for a time, or for now if that time is over.
    pub fn at(&mut self, at: Time, event: E) {
        self.count += 1;
        self.planned.push(Planned(at.max(self.now), self.count, event));
    }

    /// Plans an event for this duration from now.
    pub fn after(&mut self, after: Duration, event: E) {
        self.at(self.now + after, event);
    }

    /// Takes the next event before `end`, and sets the present time to the event's. Without such an event the time becomes `end`.
    pub fn next_before(&mut self, end: Time) -> Option<E> {
        if self.planned.peek().is_none_or(|Planned(at, ..)| *at >= end) {
            self.now = self.now.max(end);
            return None;
        }
        self.planned.pop().map(|Planned(at, _, event)| {
            self.now = at;
            event
        })
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_first_of_one_moment_happens_first() {
        let mut agenda = Agenda::new();
        for (at, name) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'x')] {
            agenda.at(Time(at), name);
        }
        let seen: String = std::iter::from_fn(|| agenda.next_before(Time(9))).collect();
        assert_eq!((seen.as_str(), agenda.now()), ("abcd", Time(9)));
        agenda.at(Time(1), 'y');
        assert_eq!(
            agenda.next_before(Time(10)),
            Some('x'),
            "what comes too late comes now, and after what was planned"
        );
    }
}
