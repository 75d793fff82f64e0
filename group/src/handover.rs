//! How a primary whose group ends hands its sub-range over to whoever follows it there (Scatter §4, §5), so that these need not
//! ask for promises first: two message delays less between the end of one group and service in the next.
//!
//! Phase 1 of a takeover keeps lower ballots from choosing anything more, and finds out what they may have chosen. Neither
//! need be asked for if all of this holds of a primary `p` with ballot `b` for a part `R` of a group's last division, and of a
//! primary `q` with ballot `c` of what is born of it:
//!
//! 1. *`p` served under `b`, and has ended*, in the run of its process that served. Then a quorum had accepted its base, which
//!    settles all that is older (see [`crate::committee`]); older leases were over, and `p` has given up its own. It proposes
//!    nothing more, counts no votes, and answers nothing. Nobody else ever proposes under `b`.
//! 2. *`p` says of each number it ever used what became of it*: all up to its mark are chosen, and the writes beyond are
//!    listed, whether they are chosen, accepted by some, or still on their way. Messages of `b` that arrive later, at acceptors
//!    that have not sealed, can have nothing chosen that is not on that list.
//! 3. *The last state of the group names `b` for `R`.* Terms only go up at each point, so no other primary of that group was
//!    above `b` there. Where the group went on after all (somebody had accepted its end, and it was not chosen), there are new
//!    terms, and what was handed over is void.
//! 4. *`c` is of the first division of what is born*: no lower ballot of that epoch exists, so no acceptor of it can have
//!    accepted anything there; and all earlier epochs of `R` are over.
//!
//! By 1, 2 and 3 whatever was or will be chosen before the born epoch is in the base of `b`, below its mark, or on the list; by
//! 4 nothing was chosen in the born epoch. So what `q` proposes under `c` is what it would with promises of all quorums. A later
//! primary of the born epoch finds it, or not, as ever: acceptors compare promises in phase 2 as well.
//!
//! Where one of these is not known, where some of `c`'s sub-range is not handed over, and where a message is lost, there is
//! phase 1: it is begun in any case. All of this is in memory: a process that began anew hands over nothing. `q` waits for its
//! own promise to be durable, so that it knows after a crash that this term is used up (hazard 5).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{GroupId, KeyRange, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::TermBallot;
use crate::committee::Local;
use crate::group::{Group, context, local};
use crate::message::{Base, Message, Write};
use crate::op::Limit;
use crate::state::GroupState;
use crate::transaction::plan::Plan;

/// All that may have been chosen under a ballot that is over, by whoever had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The ballot.
    pub ballot: TermBallot,
    /// Its base, which a quorum accepted.
    pub base: Arc<Base>,
    /// All its writes up to this one are chosen.
    pub chosen: u64,
    /// All others, in order.
    pub unsettled: Vec<Write>,
}

impl Handover {
    /// The sub-range.
    pub fn range(&self) -> KeyRange {
        self.base.range
    }

    fn bytes(&self) -> usize {
        self.unsettled.iter().map(|write| write.record.bytes() + write.key.encoded().len()).sum()
    }
}

/// Is this whole range handed over?
pub(crate) fn covers(handed: &[Handover], range: KeyRange) -> bool {
    !handed.is_empty() && range.without(handed.iter().map(Handover::range)).is_empty()
}

/// What primaries of this node's have to hand over, while the division names them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handovers {
    all: Vec<Handover>,
    /// Which of them others were told.
    told: Vec<TermBallot>,
}

/// What a group that is born may be handed over.
#[derive(Clone, Debug, Default)]
pub struct Inheritance {
    /// The last primaries of those that it comes of.
    last: Vec<(GroupId, KeyRange, TermBallot)>,
    /// What they handed over.
    handed: Vec<Handover>,
}

impl Inheritance {
    /// Nothing yet, from groups that ended like this.
    pub fn of(finals: &[&GroupState]) -> Inheritance {
        let ended = finals.iter().filter(|last| last.ended.is_some());
        let last = ended.flat_map(|last| last.parts().map(|(part, ballot)| (last.id, part, ballot))).collect();
        Inheritance { last, handed: Vec::new() }
    }

    /// A primary of that group says this. False where it is not one of the last, or has said so before.
    pub fn take(&mut self, group: GroupId, handover: &Handover) -> bool {
        let is_last = self.last.contains(&(group, handover.range(), handover.ballot));
        let is_new = is_last && self.handed.iter().all(|known| known.range() != handover.range());
        if is_new {
            self.handed.push(handover.clone());
        }
        is_new
    }

    /// All that may concern a group with this range.
    pub(crate) fn of_range(mut self, range: KeyRange) -> Inheritance {
        self.last.retain(|(_, part, _)| part.overlaps(range));
        self.handed.retain(|handover| handover.range().overlaps(range));
        self
    }

    /// What of it concerns this range.
    pub(crate) fn within(&self, range: KeyRange) -> Vec<Handover> {
        self.handed.iter().filter(|handover| handover.range().overlaps(range)).cloned().collect()
    }
}

impl Group {
    /// What primaries of this node's have handed over, since the division named them.
    pub fn handovers(&self) -> &[Handover] {
        &self.handovers.all
    }

    /// A primary of a group that this one may have come of says what it hands over.
    pub fn on_handover(&mut self, group: GroupId, handover: &Handover) {
        if !self.inheritance.take(group, handover) {
            return;
        }
        let (born, born_at) = (self.state.born, self.state.born_at);
        for (ballot, primary) in &mut self.primaries {
            if ballot.epoch == born && ballot.term.slot() == born_at && primary.range().overlaps(handover.range()) {
                primary.on_handover(&mut context!(self), &mut local!(self), handover.clone());
            }
        }
    }

    /// What is handed over to a primary of this ballot that begins: only to one of the first division.
    pub(crate) fn handed_to(&self, ballot: TermBallot, range: KeyRange) -> Vec<Handover> {
        let is_first = ballot.epoch == self.state.born && ballot.term.slot() == self.state.born_at;
        if is_first { self.inheritance.within(range) } else { Vec::new() }
    }

    /// Keeps what primaries that are over hand over.
    pub(crate) fn keep_handovers(&mut self, ended: impl IntoIterator<Item = Handover>) {
        self.handovers.all.extend(ended);
        let granted: Vec<TermBallot> = self.state.parts().map(|(_, ballot)| ballot).collect();
        self.handovers.all.retain(|handover| granted.contains(&handover.ballot));
        self.handovers.told.retain(|ballot| granted.contains(ballot));
    }

    /// The group ends, or may: tells those who may follow primaries of this node's that do not go with their keys. Once: if
    /// it is lost there is phase 1.
    pub(crate) fn hand_over(&mut self) {
        self.drop_ended();
        let dealings = &self.state.dealings;
        let touches = |plan: &&Plan| plan.party(self.state.id).is_some_and(|party| party.touched);
        let open = || dealings.coordinates().into_iter().chain(dealings.voted()).map(|(_, plan)| plan).find(touches);
        let Some(plan) = self.state.ending().map(|(_, plan)| plan).or_else(open) else { return };
        let mut said: Vec<(Vec<NodeId>, Handover)> = Vec::new();
        for handover in &self.handovers.all {
            if self.handovers.told.contains(&handover.ballot) || handover.bytes() > self.config.message_bytes_max {
                continue;
            }
            let nodes = |index: usize| plan.births[index].members.iter().map(|contact| contact.node);
            let follows = |index: &usize| {
                plan.births[*index].range.overlaps(handover.range()) && nodes(*index).all(|node| node != self.me)
            };
            let to: Vec<NodeId> = (0..plan.births.len()).filter(follows).flat_map(nodes).collect();
            if !to.is_empty() {
                said.push((to, handover.clone()));
            }
        }
        for (to, handover) in said {
            self.handovers.told.push(handover.ballot);
            self.out.send(&to, Message::Handover(Box::new(handover)));
        }
    }
}
