//! Refresh of a node's knowledge of the ring (`docs/design/routing.md`). From time to time the node asks for the owner of one of the
//! points whose owners it should know, independent of any request.
//!
//! One question is under way at a time, and it costs some hops and an answer. While an owner is missing, questions follow each other
//! ([`crate::Timing::look_around`]). If all owners are known, or no peer answers, they are much slower. Neighbouring groups tell each
//! other their changes: rings of up to three groups need none of this.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::time::Time;
use overlay::{GroupRef, Point};

use crate::node::Node;

/// Factor by which questions are further apart if no owner is missing, or no peer answers.
const SLOWER: u32 = 16;
/// Time without an answer after which a question is repeated: by then a group that cannot be reached is known as such.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Number of questions in vain after which the assumed owner of the point is forgotten.
const ASKED_MAX: u8 = 3;

/// State of the refresh.
#[derive(Debug, Default)]
pub(crate) struct Refresh {
    /// Number of points asked for so far.
    looks: u64,
    looking: Option<Looking>,
    /// Time of the next step.
    due: Time,
}

/// A question under way.
#[derive(Debug)]
struct Looking {
    point: Point,
    is_lacking: bool,
    asked: u8,
}

impl Refresh {
    /// Returns whether `point` is being asked for.
    pub(crate) fn looks_at(&self, point: Point) -> bool {
        self.looking.as_ref().is_some_and(|looking| looking.point == point)
    }
}

impl Node {
    /// Takes the next step, if it is due.
    pub(crate) fn look_around(&mut self) {
        if self.now.time < self.routing.refresh.due {
            return;
        }
        match self.routing.refresh.looking.take() {
            Some(looking) if self.replicas.at(looking.point).is_some() => self.look_later(looking.is_lacking),
            Some(looking) if looking.asked < ASKED_MAX => self.look(looking),
            Some(looking) => {
                if let Some(silent) = self.routing.hints.at(looking.point) {
                    self.routing.hints.forget(&silent);
                }
                self.look_later(false);
            }
            None => self.look_on(),
        }
    }

    /// Asks for the next point, if there is one.
    fn look_on(&mut self) {
        let refresh = &mut self.routing.refresh;
        refresh.looks += 1;
        let looks = refresh.looks;
        let takes_part = self.entered && self.stopping.is_none();
        let serials: Vec<u64> = self.replicas.all.iter().filter(|_| takes_part).map(|replica| replica.serial).collect();
        for serial in &serials {
            self.learn_neighbours(*serial);
        }
        match self.routing.hints.to_look_at(looks).filter(|_| !serials.is_empty()) {
            Some(look) => self.look(Looking { point: look.point, is_lacking: look.is_lacking, asked: 0 }),
            // No random number is drawn here.
            None => self.routing.refresh.due = self.now.time + self.config.timing.look_around * SLOWER,
        }
    }

    fn look(&mut self, looking: Looking) {
        let refresh = &mut self.routing.refresh;
        refresh.due = self.now.time + ANSWERED_WITHIN;
        let point = looking.point;
        refresh.looking = Some(Looking { asked: looking.asked + 1, ..looking });
        self.ask_where(point);
    }

    /// Handles the report of a member whose group owns the point. The member's group is also asked for its observations of lifetimes.
    pub(crate) fn on_looked(&mut self, point: Point, group: &GroupRef) {
        if self.routing.refresh.looks_at(point)
            && let Some(looking) = self.routing.refresh.looking.take()
        {
            self.look_later(looking.is_lacking);
            self.ask_for_lifetimes(group);
        }
    }

    fn look_later(&mut self, soon: bool) {
        let usual = self.config.timing.look_around * if soon { 1 } else { SLOWER };
        // Nodes do not ask all at one time.
        self.routing.refresh.due = self.now.time + usual / 2 + self.rng.duration_below(usual);
    }

    /// Brings the next step forward: the node's place on the ring, or a neighbour, has changed.
    pub(crate) fn look_soon(&mut self) {
        let refresh = &mut self.routing.refresh;
        if refresh.looking.is_none() {
            refresh.due = refresh.due.min(self.now.time + self.config.timing.look_around);
        }
    }

    /// Returns the time of the next step.
    pub(crate) fn looks_due(&self) -> Time {
        let alone = self.replicas.is_empty() || !self.replicas.is_partial();
        if alone { Time::NEVER } else { self.routing.refresh.due }
    }
}

#[cfg(test)]
#[path = "refresh_test.rs"]
mod tests;
