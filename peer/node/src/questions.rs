//! Which ways answers to questions for owners take, and who is told when such an answer changes (§4 of the design).
//!
//! A question comes over connections that stand, and its answer goes back over them where the one that answers is not connected to the one
//! that asked: to connect would take two more round trips. So each peer remembers for a while which peer passed a question to it. Whoever answered one
//! answers it again when another primary serves the place: the operation behind the question waits for that.
//!
//! # Invariants
//! - An answer passes each peer once, for each time the question came: peers that were asked in a circle send no answer round in it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use group::ballot::TermBallot;
use group::time::Time;
use overlay::{KeyRange, PeerKey, Point};

use crate::api::Class;
use crate::node::Node;
use crate::whereabouts::Located;
use crate::wire::Frame;

/// Questions are remembered for as long as a client waits.
const REMEMBERED: Duration = Duration::from_secs(3);
/// The same question on a longer way may have gone in a circle: for so long the shorter way counts.
const SHORTER_FOR: Duration = Duration::from_secs(1);
/// Questions remembered; of too many the oldest is forgotten.
const QUESTIONS_MAX: usize = 1024;

/// A question that came to this node.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// The peer that passed it on, or asked.
    from: PeerKey,
    /// How many peers had passed it on, and when it came that way.
    hops: u8,
    since: Time,
    /// When it came last, on whatever way.
    at: Time,
    /// The latest ballot that went back.
    told: Option<TermBallot>,
}

/// The questions of the last seconds, by the place that was asked for and the peer that asked.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    all: BTreeMap<(Point, PeerKey), Question>,
    order: VecDeque<(Time, (Point, PeerKey))>,
}

/// The peers that an answer may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// The peer that asked.
    pub(crate) origin: PeerKey,
    /// The peer that the question came from.
    pub(crate) from: PeerKey,
}

impl Questions {
    /// Notes that `origin` asked for `point`, and that this came from the peer `from` after so many hops.
    pub(crate) fn note(&mut self, point: Point, Back { origin, from }: Back, hops: u8, now: Time) {
        self.forget(now);
        let key = (point, origin);
        let asked = Question { from, hops, since: now, at: now, told: None };
        let known = self.all.entry(key).or_insert(asked);
        let is_shorter = known.hops < hops && now.since(known.since) < SHORTER_FOR;
        *known = if is_shorter { Question { at: now, told: None, ..*known } } else { asked };
        self.order.push_back((now, key));
    }

    /// Returns the peers that are to be told now that this ballot is known to serve `point`, and notes that they are.
    pub(crate) fn take_untold(&mut self, point: Point, ballot: TermBallot, now: Time) -> Vec<Back> {
        self.forget(now);
        let from_all = (point, PeerKey([0; 32]))..=(point, PeerKey([u8::MAX; 32]));
        let untold = self.all.range_mut(from_all).filter(|(_, question)| question.told < Some(ballot));
        let tell = |((_, origin), question): (&(Point, PeerKey), &mut Question)| {
            question.told = Some(ballot);
            Back { origin: *origin, from: question.from }
        };
        untold.map(tell).collect()
    }

    /// Returns the places that were asked for and answered, of which `serves` returns a later ballot than was told.
    pub(crate) fn outdated(&mut self, serves: impl Fn(Point) -> Option<TermBallot>, now: Time) -> Vec<Point> {
        self.forget(now);
        let is_outdated = |(point, told): (Point, TermBallot)| serves(point).is_some_and(|ballot| ballot > told);
        let answered = self.all.iter().filter_map(|((point, _), question)| Some((*point, question.told?)));
        let mut points: Vec<Point> = answered.filter(|told| is_outdated(*told)).map(|(point, _)| point).collect();
        points.dedup();
        points
    }

    fn forget(&mut self, now: Time) {
        while let Some((at, key)) = self.order.front()
            && (now.since(*at) >= REMEMBERED || self.order.len() > QUESTIONS_MAX)
        {
            // It may have come again since.
            if self.all.get(key).is_some_and(|question| question.at == *at) {
                self.all.remove(key);
            }
            self.order.pop_front();
        }
    }
}

impl Node {
    /// Tells all who asked for a place, and have not heard this yet, who owns it, as the peer `said` says.
    pub(crate) fn send_back(&mut self, said: PeerKey, located: &Located) {
        let questions = self.whereabouts.questions.take_untold(located.point, located.ballot, self.now.time);
        for Back { origin, from } in questions {
            let to = if self.is_connected_to(origin) { origin } else { from };
            if to != said && to != self.me.peer {
                self.post(to, Class::Control, &Frame::Located(located.clone().into()));
            }
        }
    }

    /// Another primary may serve places of a group here: tells all who asked for one of them lately.
    pub(crate) fn answer_anew(&mut self) {
        let serves = |point| self.hosts.at(point).filter(|group| group.state().ended.is_none())?.primary_of(point);
        for point in self.whereabouts.questions.outdated(serves, self.now.time) {
            if let Some(located) = self.locate_here(point) {
                self.send_back(self.me.peer, &located);
            }
        }
    }

    /// Operations came from outside of a group here that name other primaries than it has: their origin is told of later ones, as if it had
    /// asked, and of those that follow. One answer is enough for all operations on a sub-range.
    pub(crate) fn correct(&mut self, origin: PeerKey, outdated: Vec<(Point, TermBallot)>) {
        let mut told: Vec<KeyRange> = Vec::new();
        for (point, named) in outdated {
            if told.iter().any(|part| part.contains(point)) {
                continue;
            }
            self.whereabouts.questions.note(point, Back { origin, from: origin }, 0, self.now.time);
            if let Some(located) = self.locate_here(point).filter(|located| located.ballot > named) {
                told.push(located.part);
                self.send_back(self.me.peer, &located);
            }
        }
    }
}

#[cfg(test)]
#[path = "questions_test.rs"]
mod tests;
