//! Walk around the ring from owner to owner, by their own reports. Each is asked for the owner of the point at
//! which the one before it ends.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::time::Time;
use overlay::{GroupRef, KeyRange, Point};

use crate::api::Output;
use crate::context::Context;
use crate::routing::{Located, RoutingTable};

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

/// All walks under way.
#[derive(Debug, Default)]
pub(crate) struct RingWalks {
    all: Vec<Walking>,
}

impl RingWalks {
    /// Begins a walk at a point, or at the start of the node's own group, to this number of groups. Answered by
    /// [`Output::RingWalked`].
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        routing: &mut RoutingTable,
        (number, from, count): (u64, Option<Point>, usize),
    ) {
        let start = cx.replicas.home().map(|group| group.state().range.start());
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
            moved: cx.now.time,
            rests_until: cx.now.time,
        };
        self.all.push(walking);
        if self.all.len() > WALKS_MAX {
            let oldest = self.all.remove(0);
            end(cx, oldest);
        }
        self.go_on(cx, routing);
    }

    /// Takes the due steps of all walks.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>, routing: &mut RoutingTable) {
        let now = cx.now.time;
        let mut index = 0;
        while index < self.all.len() {
            let at = self.all[index].at;
            let walking = &mut self.all[index];
            let is_stuck = walking.is_stuck(now) && !walking.is_over();
            if is_stuck && walking.count > 1 && walking.go_past(now) {
                continue;
            }
            if is_stuck || walking.is_over() || cx.replicas.is_empty() {
                let walking = self.all.remove(index);
                end(cx, walking);
            } else if self.all[index].rests_until > now {
                index += 1;
            } else if let Some(located) = Located::here(cx.replicas, at) {
                self.all[index].go_on(located, now);
            } else {
                let asked = self.all[index].asked;
                if asked.is_none_or(|asked| now.since(asked) >= ASK_AGAIN) {
                    if asked.is_none() {
                        // This comes before the question: a group that cannot be reached is forgotten.
                        self.all[index].known = routing.known_at(cx.replicas, at);
                    }
                    self.all[index].asked = Some(now);
                    routing.ask_where(cx, at);
                }
                index += 1;
            }
        }
    }

    /// Returns the time at which a walk has a step due.
    pub(crate) fn due(&self) -> Time {
        let due = |walking: &Walking| walking.asked.map_or(walking.rests_until, |asked| asked + ASK_AGAIN);
        self.all.iter().map(due).min().unwrap_or(Time::NEVER)
    }

    /// Handles a report of a point's owner.
    pub(crate) fn on_answer(&mut self, cx: &mut Context<'_>, routing: &mut RoutingTable, located: &Located) {
        let now = cx.now.time;
        for walking in self.all.iter_mut().filter(|walking| walking.at == located.point) {
            walking.go_on(located.clone(), now);
        }
        self.go_on(cx, routing);
    }

    /// Ends all walks, with an answer.
    pub(crate) fn end_all(&mut self, cx: &mut Context<'_>) {
        while let Some(walking) = self.all.pop() {
            end(cx, walking);
        }
    }
}

/// Reports the result of a walk.
fn end(cx: &mut Context<'_>, walking: Walking) {
    let whole = walking.is_whole() && walking.silent.is_empty();
    let walk = RingWalk { groups: walking.found, whole, silent: walking.silent };
    cx.out.push(Output::RingWalked { number: walking.number, walk });
}
