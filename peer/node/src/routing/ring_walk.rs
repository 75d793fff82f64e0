//! Walk around the ring from owner to owner, by their own reports. Each is asked for the owner of the point at
//! which the one before it ends.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::time::Time;
use overlay::{GroupRef, KeyRange, Point};

use crate::api::Output;
use crate::node::Node;
use crate::routing::{Locate, Located, Wanted};

/// Upper limit of walks at one time; of more, the oldest ends.
const WALKS_MAX: usize = 16;
/// Pause before the same point is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Time without an answer after which a walk ends where it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same behind a range of which no owner answered: several groups may be gone.
const PATIENCE_BEHIND: Duration = Duration::from_millis(700);
/// Upper limit of ranges without an answer that a walk passes: its client waits for the result.
const SILENT_MAX: usize = 3;
/// Upper limit of the number of times that a walk begins anew because the ring changed on its way.
const BEGUN_MAX: u8 = 8;

/// Result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingWalk {
    /// The groups that answered, in ring order.
    pub groups: Vec<Located>,
    /// Whether the walk is complete: each group begins where the one before it ends.
    pub whole: bool,
    /// Ranges of which no owner answered, in ring order. The last one reaches to the start of the walk if the groups behind it
    /// are unknown.
    pub silent: Vec<Silent>,
}

/// A range of which no member of the owner answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The range.
    pub range: KeyRange,
    /// Its last known owner, from neighbours and hints.
    pub group: Option<GroupRef>,
}

/// A walk under way.
#[derive(Debug)]
pub(crate) struct Walking {
    number: u64,
    from: Point,
    /// Number of groups wanted; the walk ends earlier once it has gone round the ring.
    count: usize,
    at: Point,
    found: Vec<Located>,
    silent: Vec<Silent>,
    /// Known owner of the next point when it was first asked for.
    known: Option<GroupRef>,
    begun: u8,
    asked: Option<Time>,
    moved: Time,
    /// Time until which a walk that began anew waits for the ring to change.
    rests_until: Time,
}

impl Walking {
    /// Takes the report of the next point's owner.
    fn go_on(&mut self, located: Located, now: Time) {
        let range = located.group.range;
        self.trim_silent(range);
        let begins = self.found.is_empty() || range.start() == self.at;
        if !begins || self.overtakes(range) {
            // The ring has changed since the walk began.
            (self.at, self.begun, self.rests_until) = (self.from, self.begun + 1, now + ASK_AGAIN);
            self.found.clear();
            self.silent.clear();
        } else {
            self.at = range.end();
            self.found.push(located);
        }
        (self.asked, self.moved, self.known) = (None, now, None);
    }

    /// Goes on behind the known owner of the next point, of which no member answered. Returns false if the walk ends here.
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

    /// Shortens a silent range: the group behind it begins earlier than was known.
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

    /// Returns whether a range reaches into that of the first group.
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

    /// Returns whether there was no answer for the next point in time.
    fn is_stuck(&self, now: Time) -> bool {
        now.since(self.moved) >= if self.silent.is_empty() { PATIENCE } else { PATIENCE_BEHIND }
    }
}

impl Node {
    /// Begins a walk at a point, or at the start of the node's own group, to this number of groups. Answered by
    /// [`Output::RingWalked`].
    pub(crate) fn walk_ring(&mut self, number: u64, from: Option<Point>, count: usize) {
        let start = self.replicas.home().map(|group| group.state().range.start());
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
        self.ring_walks.push(walking);
        if self.ring_walks.len() > WALKS_MAX {
            let oldest = self.ring_walks.remove(0);
            self.end_ring_walk(oldest);
        }
        self.continue_ring_walk();
    }

    /// Takes the due steps of all walks.
    pub(crate) fn continue_ring_walk(&mut self) {
        let now = self.now.time;
        let mut index = 0;
        while index < self.ring_walks.len() {
            let at = self.ring_walks[index].at;
            let walking = &mut self.ring_walks[index];
            let is_stuck = walking.is_stuck(now) && !walking.is_over();
            if is_stuck && walking.count > 1 && walking.go_past(now) {
                continue;
            }
            if is_stuck || walking.is_over() || self.replicas.is_empty() {
                let walking = self.ring_walks.remove(index);
                self.end_ring_walk(walking);
            } else if self.ring_walks[index].rests_until > now {
                index += 1;
            } else if let Some(located) = self.locate_here(at) {
                self.ring_walks[index].go_on(located, now);
            } else {
                let asked = self.ring_walks[index].asked;
                if asked.is_none_or(|asked| now.since(asked) >= ASK_AGAIN) {
                    if asked.is_none() {
                        // This comes before the question: a group that cannot be reached is forgotten.
                        self.ring_walks[index].known = self.known_at(at);
                    }
                    self.ring_walks[index].asked = Some(now);
                    self.ask_where(at);
                }
                index += 1;
            }
        }
    }

    /// Returns the time at which a walk has a step due.
    pub(crate) fn ring_walks_due(&self) -> Time {
        let due = |walking: &Walking| walking.asked.map_or(walking.rests_until, |asked| asked + ASK_AGAIN);
        self.ring_walks.iter().map(due).min().unwrap_or(Time::NEVER)
    }

    /// Handles a report of a point's owner.
    pub(crate) fn on_ring_walk_answer(&mut self, located: &Located) {
        let now = self.now.time;
        for walking in self.ring_walks.iter_mut().filter(|walking| walking.at == located.point) {
            walking.go_on(located.clone(), now);
        }
        self.continue_ring_walk();
    }

    pub(crate) fn ask_where(&mut self, point: Point) {
        let Some(ring) = self.ring else { return };
        let origin = self.contact();
        self.pass_on(Locate::new(ring, point, origin, Wanted::Owner));
    }

    /// Returns the last known owner of a point: a neighbour, or a group that hints name.
    fn known_at(&self, point: Point) -> Option<GroupRef> {
        let links = self.replicas.living().map(|group| &group.state().transactions);
        let mut links = links.flat_map(|transactions| transactions.neighbours());
        let link = links.find(|link| link.range.contains(point)).cloned();
        link.or_else(|| self.routing.hints.at(point))
    }

    pub(crate) fn end_ring_walk(&mut self, walking: Walking) {
        let whole = walking.is_whole() && walking.silent.is_empty();
        let walk = RingWalk { groups: walking.found, whole, silent: walking.silent };
        self.outputs.push_back(Output::RingWalked { number: walking.number, walk });
    }
}
