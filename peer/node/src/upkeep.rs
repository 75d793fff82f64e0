//! How a node comes to know the ring, and what it knows stays true (`docs/design/routing.md`): now and then it asks who owns one of the
//! places whose owners it should know, whether or not anybody asks it for anything.
//!
//! One question is under way at a time, and it costs some hops and an answer. Where something is missing they come one after
//! the other ([`crate::Timing::look_around`]); where all is known, and where nobody answers, much slower. Groups that are each
//! other's neighbours tell each other what becomes of them: rings of up to three groups need none of this.

use alloc::vec::Vec;
use core::time::Duration;

use group::time::Time;
use overlay::{GroupRef, Point};

use crate::node::Node;

/// Where nothing is missing, or nobody answers, looks are so many times further apart.
const SLOWER: u32 = 16;
/// A look that was not answered for so long is repeated: by then a group that cannot be reached is known as such.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Asked so often in vain, whoever was thought to own the place is forgotten.
const ASKED_MAX: u8 = 3;

/// What a node looks at.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    /// How often it has looked.
    looks: u64,
    looking: Option<Looking>,
    /// When something is due about that.
    due: Time,
}

/// A question under way.
#[derive(Debug)]
struct Looking {
    point: Point,
    is_lacking: bool,
    asked: u8,
}

impl Upkeep {
    /// Is this place being looked at?
    pub(crate) fn looks_at(&self, point: Point) -> bool {
        self.looking.as_ref().is_some_and(|looking| looking.point == point)
    }
}

impl Node {
    /// Looks at a place, where that is due.
    pub(crate) fn look_around(&mut self) {
        if self.now.time < self.whereabouts.upkeep.due {
            return;
        }
        match self.whereabouts.upkeep.looking.take() {
            Some(looking) if self.hosts.at(looking.point).is_some() => self.look_later(looking.is_lacking),
            Some(looking) if looking.asked < ASKED_MAX => self.look(looking),
            Some(looking) => {
                if let Some(silent) = self.whereabouts.hints.at(looking.point) {
                    self.whereabouts.hints.forget(&silent);
                }
                self.look_later(false);
            }
            None => self.look_on(),
        }
    }

    /// The next place, if there is one.
    fn look_on(&mut self) {
        let upkeep = &mut self.whereabouts.upkeep;
        upkeep.looks += 1;
        let looks = upkeep.looks;
        let takes_part = self.entered && self.stopping.is_none();
        let serials: Vec<u64> = self.hosts.all.iter().filter(|_| takes_part).map(|hosted| hosted.serial).collect();
        for serial in &serials {
            self.learn_neighbours(*serial);
        }
        match self.whereabouts.hints.to_look_at(looks).filter(|_| !serials.is_empty()) {
            Some(look) => self.look(Looking { point: look.point, is_lacking: look.is_lacking, asked: 0 }),
            // Chance is left to those who need it.
            None => self.whereabouts.upkeep.due = self.now.time + self.config.timing.look_around * SLOWER,
        }
    }

    fn look(&mut self, looking: Looking) {
        let upkeep = &mut self.whereabouts.upkeep;
        upkeep.due = self.now.time + ANSWERED_WITHIN;
        let point = looking.point;
        upkeep.looking = Some(Looking { asked: looking.asked + 1, ..looking });
        self.ask_where(point);
    }

    /// A member of a group says that this group owns the place. It is asked how long peers live there, too.
    pub(crate) fn on_looked(&mut self, point: Point, group: &GroupRef) {
        if self.whereabouts.upkeep.looks_at(point)
            && let Some(looking) = self.whereabouts.upkeep.looking.take()
        {
            self.look_later(looking.is_lacking);
            self.ask_for_lifetimes(group);
        }
    }

    fn look_later(&mut self, soon: bool) {
        let usual = self.config.timing.look_around * if soon { 1 } else { SLOWER };
        // Not all at one time.
        self.whereabouts.upkeep.due = self.now.time + usual / 2 + self.rng.duration_below(usual);
    }

    /// The node's place on the ring has changed, or who is beside it.
    pub(crate) fn look_soon(&mut self) {
        let upkeep = &mut self.whereabouts.upkeep;
        if upkeep.looking.is_none() {
            upkeep.due = upkeep.due.min(self.now.time + self.config.timing.look_around);
        }
    }

    /// When a look is due.
    pub(crate) fn looks_due(&self) -> Time {
        let alone = self.hosts.is_empty() || !self.hosts.is_partial();
        if alone { Time::NEVER } else { self.whereabouts.upkeep.due }
    }
}

#[cfg(test)]
#[path = "upkeep_test.rs"]
mod tests;
