//! Who owns the ring, as the owners themselves say: a walk from group to group, each asked where the one before it ends.

use alloc::vec::Vec;
use core::time::Duration;

use group::time::Time;
use overlay::{Contact, KeyRange, Point};

use crate::api::Output;
use crate::node::Node;
use crate::whereabouts::{Locate, Located, Wanted};

/// Walks at one time; of more the oldest ends.
const SURVEYS_MAX: usize = 16;
/// Before the same is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Without an answer for so long a walk ends where it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// The ring changes while somebody walks along it; then the walk begins anew, so often at most.
const BEGUN_MAX: u8 = 8;

/// What came of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The groups that were met, in ring order.
    pub groups: Vec<Located>,
    /// It came as far as it should: each group begins where the one before it ends.
    pub whole: bool,
}

/// A walk under way.
#[derive(Debug)]
pub(crate) struct Walking {
    number: u64,
    from: Point,
    /// Groups wanted; the whole ring where that is reached before.
    count: usize,
    at: Point,
    found: Vec<Located>,
    begun: u8,
    asked: Option<Time>,
    moved: Time,
    /// Having begun anew, it waits until the ring has changed.
    rests_until: Time,
}

impl Walking {
    /// Somebody says who owns the next place.
    fn go_on(&mut self, located: Located, now: Time) {
        let range = located.group.range;
        let begins = self.found.is_empty() || range.start() == self.at;
        if !begins || self.overtakes(range) {
            // It is not what it was any more.
            (self.at, self.begun, self.rests_until) = (self.from, self.begun + 1, now + ASK_AGAIN);
            self.found.clear();
        } else {
            self.at = range.end();
            self.found.push(located);
        }
        (self.asked, self.moved) = (None, now);
    }

    /// Does it reach into the first one?
    fn overtakes(&self, range: KeyRange) -> bool {
        self.found.first().is_some_and(|first| first.group.range.overlaps(range))
    }

    fn is_whole(&self) -> bool {
        let around = self.found.first().is_some_and(|first| first.group.range.start() == self.at);
        around || (self.found.len() >= self.count && !self.found.is_empty())
    }

    fn is_over(&self, now: Time) -> bool {
        self.is_whole() || self.begun >= BEGUN_MAX || now.since(self.moved) >= PATIENCE
    }
}

impl Node {
    /// Begins a walk at a place, or at the start of the node's own group, to so many groups; answered by
    /// [`Output::Surveyed`].
    pub(crate) fn survey(&mut self, number: u64, from: Option<Point>, count: usize) {
        let start = self.hosts.home().map(|group| group.state().range.start());
        let from = from.or(start).unwrap_or_default();
        let walking = Walking {
            number,
            from,
            count: count.max(1),
            at: from,
            found: Vec::new(),
            begun: 0,
            asked: None,
            moved: self.now.time,
            rests_until: self.now.time,
        };
        self.surveys.push(walking);
        if self.surveys.len() > SURVEYS_MAX {
            let oldest = self.surveys.remove(0);
            self.end_survey(oldest);
        }
        self.go_on_surveying();
    }

    /// What is due with walks.
    pub(crate) fn go_on_surveying(&mut self) {
        let now = self.now.time;
        let mut index = 0;
        while index < self.surveys.len() {
            let at = self.surveys[index].at;
            if self.surveys[index].is_over(now) || self.hosts.is_empty() {
                let walking = self.surveys.remove(index);
                self.end_survey(walking);
            } else if self.surveys[index].rests_until > now {
                index += 1;
            } else if let Some(located) = self.locate_here(at) {
                self.surveys[index].go_on(located, now);
            } else {
                if self.surveys[index].asked.is_none_or(|asked| now.since(asked) >= ASK_AGAIN) {
                    self.surveys[index].asked = Some(now);
                    self.ask_where(at);
                }
                index += 1;
            }
        }
    }

    /// When something is due with walks.
    pub(crate) fn surveys_due(&self) -> Time {
        let due = |walking: &Walking| walking.asked.map_or(walking.rests_until, |asked| asked + ASK_AGAIN);
        self.surveys.iter().map(due).min().unwrap_or(Time::NEVER)
    }

    /// Somebody says who owns a place.
    pub(crate) fn on_surveyed(&mut self, located: &Located) {
        let now = self.now.time;
        for walking in self.surveys.iter_mut().filter(|walking| walking.at == located.point) {
            walking.go_on(located.clone(), now);
        }
        self.go_on_surveying();
    }

    pub(crate) fn ask_where(&mut self, point: Point) {
        let Some(ring) = self.ring else { return };
        let origin = Contact { node: self.me, addresses: self.addresses.clone() };
        self.pass_on(Locate::new(ring, point, origin, Wanted::Owner));
    }

    fn end_survey(&mut self, walking: Walking) {
        let whole = walking.is_whole();
        let survey = Survey { groups: walking.found, whole };
        self.outputs.push_back(Output::Surveyed { number: walking.number, survey });
    }
}
