//! Which ways answers to questions for owners take, and who is told when such an answer changes (§4 of the design).
//!
//! A question comes over connections that stand, and its answer goes back over them where the one that answers is not connected to the one
//! that asked: to connect would take two more round trips. So each peer remembers for a while which peers passed a question to it, and which
//! peers it passed the question to. A peer that answered one answers it again when another primary serves the place: the operation behind the
//! question waits for that.
//!
//! # Invariants
//! - A peer sends an answer back once for each time that it got the question: peers that were asked in a circle send no answer round in it.
//! - A peer sends an answer back only where it gave the answer itself, or has it from a peer that it passed the question to: no other peer can
//!   answer, or keep the owner's answer from the origin.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use group::ballot::TermBallot;
use group::time::Time;
use overlay::{Contact, KeyRange, PeerKey, Point};

use crate::api::Class;
use crate::node::Node;
use crate::whereabouts::Located;
use crate::wire::Frame;

/// Questions are remembered for as long as a client waits.
const REMEMBERED: Duration = Duration::from_secs(3);
/// Questions remembered; of too many the oldest is forgotten. Two peers that lose all their primaries at once ask half as many.
const QUESTIONS_MAX: usize = 4096;
/// Peers remembered that one question was passed to: it is asked again some times, and goes other ways then.
const PASSED_MAX: usize = 4;

/// The place that was asked for, the peer that the question came from, and the peer that asked.
type Name = (Point, PeerKey, PeerKey);

/// A question that came to this node.
#[derive(Clone, Debug)]
struct Question {
    origin: Contact,
    /// When it came last.
    at: Time,
    /// The latest ballot that the origin knows, as far as this node does.
    told: Option<TermBallot>,
    /// The peers that it was passed to.
    passed: Vec<PeerKey>,
}

/// The questions of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    all: BTreeMap<Name, Question>,
    order: VecDeque<(Time, Name)>,
}

/// A way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// The peer that asked.
    pub(crate) origin: Contact,
    /// The peer that the question came from.
    pub(crate) from: PeerKey,
}

impl Questions {
    /// Notes that `from` asked for `point` for `origin`, who is to be answered.
    pub(crate) fn note(&mut self, point: Point, origin: &Contact, from: PeerKey, now: Time) {
        self.entry(point, origin, from, now).told = None;
    }

    /// Notes that `origin` takes the primary of the ballot `named` for that of `point`, and is to be told of a later one.
    pub(crate) fn note_named(&mut self, point: Point, origin: &Contact, named: TermBallot, now: Time) {
        let question = self.entry(point, origin, origin.node.peer, now);
        question.told = question.told.max(Some(named));
    }

    fn entry(&mut self, point: Point, origin: &Contact, from: PeerKey, now: Time) -> &mut Question {
        self.forget(now);
        let name = (point, from, origin.node.peer);
        self.order.push_back((now, name));
        let new = || Question { origin: origin.clone(), at: now, told: None, passed: Vec::new() };
        let question = self.all.entry(name).or_insert_with(new);
        question.at = now;
        question
    }

    /// Notes that the question of `origin` for `point` goes on to the peer `to`.
    pub(crate) fn note_passed(&mut self, point: Point, origin: PeerKey, to: PeerKey) {
        for (_, question) in self.at(point).filter(|((.., asked), _)| *asked == origin) {
            question.passed.retain(|known| *known != to);
            if question.passed.len() >= PASSED_MAX {
                question.passed.remove(0);
            }
            question.passed.push(to);
        }
    }

    /// Returns the ways to the peers that are to be told now that this ballot is known to serve `point`, and notes that they are told. `said`:
    /// the peer that says so; `None` for this node itself.
    pub(crate) fn take_untold(
        &mut self,
        point: Point,
        ballot: TermBallot,
        said: Option<PeerKey>,
        now: Time,
    ) -> Vec<Back> {
        self.forget(now);
        let may_say = |question: &Question| said.is_none_or(|said| question.passed.contains(&said));
        let untold = self.at(point).filter(|(_, question)| question.told < Some(ballot) && may_say(question));
        let tell = |((_, from, _), question): (&Name, &mut Question)| {
            question.told = Some(ballot);
            Back { origin: question.origin.clone(), from: *from }
        };
        untold.map(tell).collect()
    }

    /// Returns the places that were asked for and answered, of which `serves` returns a later ballot than was told.
    pub(crate) fn outdated(&mut self, serves: impl Fn(Point) -> Option<TermBallot>, now: Time) -> Vec<Point> {
        self.forget(now);
        let is_outdated = |(point, told): (Point, TermBallot)| serves(point).is_some_and(|ballot| ballot > told);
        let answered = self.all.iter().filter_map(|((point, ..), question)| Some((*point, question.told?)));
        let mut points: Vec<Point> = answered.filter(|told| is_outdated(*told)).map(|(point, _)| point).collect();
        points.dedup();
        points
    }

    fn at(&mut self, point: Point) -> impl Iterator<Item = (&Name, &mut Question)> {
        let (least, greatest) = (PeerKey([0; 32]), PeerKey([u8::MAX; 32]));
        self.all.range_mut((point, least, least)..=(point, greatest, greatest))
    }

    fn forget(&mut self, now: Time) {
        while let Some((at, name)) = self.order.front()
            && (now.since(*at) >= REMEMBERED || self.order.len() >= QUESTIONS_MAX)
        {
            // It may have come again since.
            if self.all.get(name).is_some_and(|question| question.at == *at) {
                self.all.remove(name);
            }
            self.order.pop_front();
        }
    }
}

impl Node {
    /// Answers all that asked for a place and have not heard this yet.
    pub(crate) fn answer(&mut self, located: &Located) {
        self.send_back(None, located);
    }

    /// Tells all that asked for a place, and have not heard this yet, who owns it. `said`: the peer that answered this node; `None` where it
    /// answers itself.
    pub(crate) fn send_back(&mut self, said: Option<PeerKey>, located: &Located) {
        let (point, ballot) = (located.point, located.ballot);
        for back in self.whereabouts.questions.take_untold(point, ballot, said, self.now.time) {
            match self.way_back(&back) {
                Some(to) if Some(to) != said => self.post(to, Class::Control, &Frame::Located(located.clone().into())),
                Some(_) => {}
                None => self.tell(&back.origin, &Frame::Located(located.clone().into())),
            }
        }
    }

    /// The peer that an answer is given to; `None` where no connection of those that the question came over is left.
    fn way_back(&self, back: &Back) -> Option<PeerKey> {
        [back.origin.node.peer, back.from].into_iter().find(|peer| self.is_connected_to(*peer))
    }

    /// Another primary may serve places of a group here: tells all that asked for one of them lately, where a connection stands. One answer is
    /// enough for all places of a sub-range.
    pub(crate) fn answer_anew(&mut self) {
        let serves = |point| self.hosts.at(point).filter(|group| group.state().ended.is_none())?.primary_of(point);
        let mut told: Vec<(PeerKey, KeyRange)> = Vec::new();
        for point in self.whereabouts.questions.outdated(serves, self.now.time) {
            let Some(located) = self.locate_here(point) else { continue };
            for back in self.whereabouts.questions.take_untold(point, located.ballot, None, self.now.time) {
                let name = (back.origin.node.peer, located.part);
                let Some(to) = self.way_back(&back).filter(|_| !told.contains(&name)) else { continue };
                told.push(name);
                self.post(to, Class::Control, &Frame::Located(located.clone().into()));
            }
        }
    }

    /// Operations came from outside of a group here that name other primaries than it has: their origin is told of later ones, as if it had
    /// asked, and of those that follow. One answer is enough for all places of a sub-range.
    pub(crate) fn correct(&mut self, origin: &Contact, outdated: Vec<(Point, TermBallot)>) {
        let mut told: Vec<KeyRange> = Vec::new();
        for (point, named) in outdated {
            if told.iter().any(|part| part.contains(point)) {
                continue;
            }
            let Some(located) = self.locate_here(point) else { continue };
            told.push(located.part);
            self.whereabouts.questions.note_named(point, origin, named, self.now.time);
            self.answer(&located);
        }
    }
}

#[cfg(test)]
#[path = "questions_test.rs"]
mod tests;
