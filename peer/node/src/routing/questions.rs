//! Ways back of answers to questions for owners, and the peers that hear of a changed answer (`docs/design/routing.md`).
//!
//! A question comes over open connections. Its answer goes back over them if the answering peer is not connected to the origin: a new
//! connection would take two more round trips. So each peer remembers for a while which peers passed a question to it, and to which peers
//! it passed the question. A peer that answered a question answers again when another primary serves the point. The origin does not believe
//! that answer: it asks again, since an operation of its own may wait for a primary that is dead.
//!
//! # Invariants
//! - A peer sends an answer back once for each time that the question came: peers that were asked in a circle send no answer round in it.
//! - A peer sends an answer back only if it gave the answer itself, or if the answer comes from a peer that it passed the question to. No
//!   other peer can answer, or keep the owner's answer from the origin.
//! - No peer makes this one forget the questions of other peers.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use group::ballot::TermBallot;
use overlay::time::Time;
use overlay::{Contact, PeerKey, Point};

use crate::api::Class;
use crate::context::Context;
use crate::routing::{Located, RoutingTable};
use crate::wire::Frame;

/// Time for which a question is remembered: as long as a client waits.
const REMEMBERED: Duration = Duration::from_secs(3);
/// Upper limit of remembered questions of one peer; of more, the oldest is forgotten. A peer has that many under way at most.
const EACH_MAX: usize = 1024;
/// Upper limit of remembered questions in all; more are not remembered.
const ALL_MAX: usize = 16 * EACH_MAX;
/// Upper limit of remembered peers that one question was passed to: a question that is asked again goes other ways.
const PASSED_MAX: usize = 4;
/// Upper limit of an origin's remembered addresses, in bytes; no connection is made to an origin with longer ones.
const ADDRESSES_MAX: usize = 256;

/// The point of a question, the peer that it came from, and its origin.
type Name = (Point, PeerKey, PeerKey);

/// A question that came to this node.
#[derive(Clone, Debug)]
struct Question {
    origin: Contact,
    /// Time at which it last came.
    at: Time,
    /// Latest ballot that was sent back.
    told: Option<TermBallot>,
    /// Peers that it was passed to.
    passed: Vec<PeerKey>,
}

/// The questions of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    all: BTreeMap<Name, Question>,
    /// Questions by the peer that they came from, in the order in which they came, with the time.
    order: BTreeMap<PeerKey, VecDeque<(Time, Name)>>,
}

/// A way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// The origin.
    pub(crate) origin: Contact,
    /// The peer that the question came from.
    pub(crate) from: PeerKey,
}

impl Questions {
    /// Notes a question for `point` of `origin`, which is to be answered; it came from `from`.
    pub(crate) fn note(&mut self, point: Point, origin: &Contact, from: PeerKey, now: Time) {
        let name = (point, from, origin.node.peer);
        if let Some(known) = self.all.get_mut(&name) {
            (known.at, known.told) = (now, None);
            return;
        }
        if self.order.get(&from).is_some_and(|order| order.len() >= EACH_MAX)
            && let Some((_, oldest)) = self.order.get_mut(&from).and_then(VecDeque::pop_front)
        {
            self.all.remove(&oldest);
        }
        if self.all.len() >= ALL_MAX {
            return;
        }
        let bytes: usize = origin.addresses.iter().map(|address| address.len()).sum();
        let addresses = if bytes <= ADDRESSES_MAX { origin.addresses.clone() } else { Vec::new() };
        let origin = Contact { node: origin.node, addresses, name: None };
        self.all.insert(name, Question { origin, at: now, told: None, passed: Vec::new() });
        self.order.entry(from).or_default().push_back((now, name));
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

    /// Returns the ways to the peers that must be told now that this ballot is known to serve `point`, and notes that they are told. `said`
    /// is the peer that reported it; `None` for this node itself.
    pub(crate) fn take_untold(&mut self, point: Point, ballot: TermBallot, said: Option<PeerKey>) -> Vec<Back> {
        let may_say = |question: &Question| said.is_none_or(|said| question.passed.contains(&said));
        let untold = self.at(point).filter(|(_, question)| question.told < Some(ballot) && may_say(question));
        let tell = |((_, from, _), question): (&Name, &mut Question)| {
            question.told = Some(ballot);
            Back { origin: question.origin.clone(), from: *from }
        };
        untold.map(tell).collect()
    }

    /// Returns the answered points for which `serves` returns a later ballot than was sent back.
    pub(crate) fn outdated(&self, serves: impl Fn(Point) -> Option<TermBallot>) -> Vec<Point> {
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

    /// Forgets the questions that no peer waits for any more.
    pub(crate) fn forget(&mut self, now: Time) {
        let is_old = |order: &VecDeque<(Time, Name)>| order.front().is_some_and(|(at, _)| now.since(*at) >= REMEMBERED);
        let old: Vec<PeerKey> = self.order.iter().filter(|(_, order)| is_old(order)).map(|(from, _)| *from).collect();
        for from in old {
            let Some(order) = self.order.get_mut(&from) else { continue };
            while is_old(order)
                && let Some((noted, name)) = order.pop_front()
            {
                match self.all.get(&name) {
                    // The question came again since.
                    Some(question) if question.at > noted => order.push_back((question.at, name)),
                    _ => drop(self.all.remove(&name)),
                }
            }
            if order.is_empty() {
                self.order.remove(&from);
            }
        }
    }
}

impl RoutingTable {
    /// Tells the owner to all peers that asked for the point and have not heard this answer yet. `said` is the peer that answered this
    /// node; `None` if this node answers itself.
    pub(crate) fn send_back(&mut self, cx: &mut Context<'_>, said: Option<PeerKey>, located: &Located) {
        for back in self.questions.take_untold(located.point, located.ballot, said) {
            let to = way_back(cx, &back);
            if to.is_some() && to == said {
                continue;
            }
            let frame = Frame::Located(located.clone().into());
            match to {
                Some(to) => cx.post(to, Class::Control, &frame),
                None => cx.tell(&back.origin, &frame),
            }
        }
    }

    /// Tells the peers that recently asked for a point here that another primary may serve it, over open connections. One answer is enough
    /// for all points of a sub-range.
    pub(crate) fn answer_anew(&mut self, cx: &mut Context<'_>) {
        let serves = |point| cx.replicas.at(point).filter(|group| group.state().ended.is_none())?.primary_of(point);
        let mut told: BTreeSet<(PeerKey, PeerKey, Point)> = BTreeSet::new();
        let mut answer: Option<Located> = None;
        // In the order of the ring, one lookup is enough for all points of a sub-range.
        for point in self.questions.outdated(serves) {
            answer = answer.filter(|known| known.part.contains(point)).or_else(|| Located::here(cx.replicas, point));
            let Some(located) = &answer else { continue };
            for back in self.questions.take_untold(point, located.ballot, None) {
                if let Some(to) = way_back(cx, &back)
                    && told.insert((to, back.origin.node.peer, located.part.start()))
                {
                    let located = Located { point, ..located.clone() };
                    cx.post(to, Class::Control, &Frame::Located(located.into()));
                }
            }
        }
    }
}

/// Returns the peer that an answer goes to; `None` if none of the connections that the question came over is left.
fn way_back(cx: &Context<'_>, back: &Back) -> Option<PeerKey> {
    [back.origin.node.peer, back.from].into_iter().find(|peer| cx.is_connected_to(*peer))
}

#[cfg(test)]
#[path = "questions_test.rs"]
mod tests;
