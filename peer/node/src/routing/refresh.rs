//! Refresh of a node's knowledge of the ring (`docs/design/routing.md`). From time to time the node asks for the owner of one of the
//! points whose owners it should know, independent of any request.
//!
//! One question is under way at a time, and it costs some hops and an answer. While an owner is missing, questions follow each other
//! ([`crate::Timing::look_around`]). If all owners are known, or no peer answers, they are much slower. Neighbouring groups tell each
//! other their changes: rings of up to three groups need none of this.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::Point;
use overlay::time::Time;

use crate::context::Context;
use crate::replicas::LocalReplicas;
use crate::routing::RoutingTable;

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

impl RoutingTable {
    /// Takes the next step, if it is due.
    pub(crate) fn look_around(&mut self, cx: &mut Context<'_>) {
        if cx.now.time < self.refresh.due {
            return;
        }
        match self.refresh.looking.take() {
            Some(looking) if cx.replicas.at(looking.point).is_some() => self.look_later(cx, looking.is_lacking),
            Some(looking) if looking.asked < ASKED_MAX => self.look(cx, looking),
            Some(looking) => {
                if let Some(silent) = self.hints.at(looking.point) {
                    self.hints.forget(&silent);
                }
                self.look_later(cx, false);
            }
            None => self.look_on(cx),
        }
    }

    /// Asks for the next point, if there is one.
    fn look_on(&mut self, cx: &mut Context<'_>) {
        let refresh = &mut self.refresh;
        refresh.looks += 1;
        let looks = refresh.looks;
        let takes_part = cx.stage.entered && cx.stage.stopping.is_none();
        let serials: Vec<_> = cx.replicas.all.iter().filter(|_| takes_part).map(|replica| replica.serial).collect();
        for serial in &serials {
            self.learn_neighbours(cx, *serial);
        }
        match self.hints.to_look_at(looks).filter(|_| !serials.is_empty()) {
            Some(look) => self.look(cx, Looking { point: look.point, is_lacking: look.is_lacking, asked: 0 }),
            // No random number is drawn here.
            None => self.refresh.due = cx.now.time + cx.config.timing.look_around * SLOWER,
        }
    }

    fn look(&mut self, cx: &mut Context<'_>, looking: Looking) {
        let refresh = &mut self.refresh;
        refresh.due = cx.now.time + ANSWERED_WITHIN;
        let point = looking.point;
        refresh.looking = Some(Looking { asked: looking.asked + 1, ..looking });
        self.ask_where(cx, point);
    }

    /// Handles the report of a member whose group owns the point. Returns whether the point was being asked for: then the member's group
    /// is also to be asked for its observations of lifetimes.
    pub(crate) fn on_looked(&mut self, cx: &mut Context<'_>, point: Point) -> bool {
        let looking = self.refresh.looking.take_if(|looking| looking.point == point);
        looking.map(|looking| self.look_later(cx, looking.is_lacking)).is_some()
    }

    fn look_later(&mut self, cx: &mut Context<'_>, soon: bool) {
        let usual = cx.config.timing.look_around * if soon { 1 } else { SLOWER };
        // Nodes do not ask all at one time.
        self.refresh.due = cx.now.time + usual / 2 + cx.rng.duration_below(usual);
    }

    /// Brings the next step forward: the node's place on the ring, or a neighbour, has changed.
    pub(crate) fn look_soon(&mut self, cx: &mut Context<'_>) {
        let refresh = &mut self.refresh;
        if refresh.looking.is_none() {
            refresh.due = refresh.due.min(cx.now.time + cx.config.timing.look_around);
        }
    }

    /// Returns the time of the next step.
    pub(crate) fn looks_due(&self, replicas: &LocalReplicas) -> Time {
        let alone = replicas.is_empty() || !replicas.is_partial();
        if alone { Time::NEVER } else { self.refresh.due }
    }
}

#[cfg(test)]
#[path = "refresh_test.rs"]
mod tests;
