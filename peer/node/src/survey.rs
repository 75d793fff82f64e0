//! Who owns the ring, as the owners themselves say: a walk from group to group, each asked where the one before it ends.

use alloc::vec::Vec;
use core::time::Duration;

use group::time::Time;
use overlay::{GroupRef, KeyRange, Point};

use crate::api::Output;
use crate::node::Node;
use crate::whereabouts::{Locate, Located, Wanted};

/// Walks at one time; of more the oldest ends.
const SURVEYS_MAX: usize = 16;
/// Before the same is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Without an answer for so long a walk ends where it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// And for so long behind a range whose owners did not answer: several may be gone.
const PATIENCE_BEHIND: Duration = Duration::from_millis(700);
/// Ranges without an answer that a walk goes past at most: whoever asked waits for it.
const SILENT_MAX: usize = 3;
/// The ring changes while somebody walks along it; then the walk begins anew, so often at most.
const BEGUN_MAX: u8 = 8;

/// What came of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The groups that were met, in ring order.
    pub groups: Vec<Located>,
    /// It came as far as it should: each group begins where the one before it ends.
    pub whole: bool,
    /// Ranges whose owners did not answer, in ring order; the last one reaches to where the walk began, where nothing is known
    /// of what lies behind.
    pub silent: Vec<Silent>,
}

/// A range of which no member of its group answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The range.
    pub range: KeyRange,
    /// The group that owned it when it was last heard of, as neighbours and hints have it.
    pub group: Option<GroupRef>,
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
    silent: Vec<Silent>,
    /// The group that was known to own the next place when it was asked for first.
    known: Option<GroupRef>,
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
        self.trim_silent(range);
        let begins = self.found.is_empty() || range.start() == self.at;
        if !begins || self.overtakes(range) {
            // It is not what it was any more.
            (self.at, self.begun, self.rests_until) = (self.from, self.begun + 1, now + ASK_AGAIN);
            self.found.clear();
            self.silent.clear();
        } else {
            self.at = range.end();
            self.found.push(located);
        }
        (self.asked, self.moved, self.known) = (None, now, None);
    }

    /// Nobody has answered for the next place: goes on behind the group that was known to own it. False where the walk ends here.
    fn go_past(&mut self, now: Time) -> bool {
        let Some(first) = self.found.first().map(|first| first.group.range.start()) else { return false };
        let rest = KeyRange::new(self.at, first);
        let is_ahead = |group: &GroupRef| rest.contains_range(KeyRange::new(self.at, group.range.end()));
        let has_room = self.silent.len() + 1 < SILENT_MAX;
        let known = self.known.take().filter(|group| has_room && is_ahead(group));
        let end = known.as_ref().map_or(first, |group| group.range.end());
        self.silent.push(Silent { range: KeyRange::new(self.at, end), group: known });
        (self.at, self.asked, self.moved) = (end, None, now);
        end != first
    }

    /// The group behind a silent one begins earlier than it was known to.
    fn trim_silent(&mut self, range: KeyRange) {
        let Some(last) = self.silent.last_mut().filter(|last| last.range.end() == self.at) else { return };
        let (start, end) = (last.range.start(), range.start());
        if !last.range.contains(end) {
            return;
        }
        self.at = end;
        if start == end {
            self.silent.pop();
        } else {
            last.range = KeyRange::new(start, end);
        }
    }

    /// Does it reach into the first one?
    fn overtakes(&self, range: KeyRange) -> bool {
        self.found.first().is_some_and(|first| first.group.range.overlaps(range))
    }

    fn is_whole(&self) -> bool {
        let around = self.found.first().is_some_and(|first| first.group.range.start() == self.at);
        around || (self.found.len() >= self.count && !self.found.is_empty())
    }

    fn is_over(&self) -> bool {
        self.is_whole() || self.begun >= BEGUN_MAX
    }

    /// Nobody has answered for the next place.
    fn is_stuck(&self, now: Time) -> bool {
        now.since(self.moved) >= if self.silent.is_empty() { PATIENCE } else { PATIENCE_BEHIND }
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
            silent: Vec::new(),
            known: None,
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
            let walking = &mut self.surveys[index];
            let is_stuck = walking.is_stuck(now) && !walking.is_over();
            if is_stuck && walking.count > 1 && walking.go_past(now) {
                continue;
            }
            if is_stuck || walking.is_over() || self.hosts.is_empty() {
                let walking = self.surveys.remove(index);
                self.end_survey(walking);
            } else if self.surveys[index].rests_until > now {
                index += 1;
            } else if let Some(located) = self.locate_here(at) {
                self.surveys[index].go_on(located, now);
            } else {
                let asked = self.surveys[index].asked;
                if asked.is_none_or(|asked| now.since(asked) >= ASK_AGAIN) {
                    if asked.is_none() {
                        // Before it is asked for: a group that cannot be reached is forgotten.
                        self.surveys[index].known = self.known_at(at);
                    }
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
        let origin = self.contact();
        self.pass_on(Locate::new(ring, point, origin, Wanted::Owner));
    }

    /// The group that owned a place when it was last heard of: a neighbour, or one that hints name.
    fn known_at(&self, point: Point) -> Option<GroupRef> {
        let links = self.hosts.living().map(|group| &group.state().dealings);
        let mut links = links.flat_map(|dealings| dealings.predecessor().into_iter().chain(dealings.successor()));
        let link = links.find(|link| link.range.contains(point)).cloned();
        link.or_else(|| self.whereabouts.hints.at(point))
    }

    pub(crate) fn end_survey(&mut self, walking: Walking) {
        let whole = walking.is_whole() && walking.silent.is_empty();
        let survey = Survey { groups: walking.found, whole, silent: walking.silent };
        self.outputs.push_back(Output::Surveyed { number: walking.number, survey });
    }
}
