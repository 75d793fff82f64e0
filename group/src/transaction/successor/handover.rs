//! Handover of a sub-range from a primary whose group ends to the primaries that succeed it (Scatter §4, §5), so these need not ask for
//! promises first: two message delays less between the end of one group and service in the next.
//!
//! Phase 1 of a takeover keeps lower ballots from choosing anything more, and finds out which values they may have chosen. Neither is
//! necessary if all of this holds of a primary `p` with ballot `b` for a part `R` of a group's last division, and of a primary `q` with
//! ballot `c` of a group that is born of it:
//!
//! 1. *`p` served under `b`, and has ended*, in the run of its process that served. Then a quorum had accepted its base, which settles all
//!    that is older (see [`crate::data`]); older leases were over, and `p` has given up its own. It proposes nothing more, counts no
//!    votes, and answers nothing. No other node ever proposes under `b`.
//! 2. *`p` accounts for each number that it ever used*: all up to its mark are chosen, and the writes beyond are listed, whether they are
//!    chosen, accepted by some members, or still on their way. Messages of `b` that arrive later, at acceptors that have not sealed, can
//!    have nothing chosen that is not on that list.
//! 3. *The last state of the group names `b` for `R`.* Terms only go up at each point, so no other primary of that group was above `b`
//!    there. Where the group continued after all (a member had accepted its end, and the end was not chosen), there are new terms, and the
//!    handover is void.
//! 4. *`c` is of the first division of the new group*: no lower ballot of that epoch exists, so no acceptor of it can have accepted
//!    anything there; and all earlier epochs of `R` are over.
//!
//! By 1, 2 and 3 each value that was or will be chosen before the new epoch is in the base of `b`, below its mark, or on the list; by 4
//! nothing was chosen in the new epoch. So `q` proposes under `c` exactly what it would propose with promises of all quorums. A later
//! primary of the new epoch finds it, or not, as usual: acceptors compare promises in phase 2 as well.
//!
//! Phase 1 is begun in any case, and counts where one of these is not known, where a part of `c`'s sub-range is not handed over, and where
//! a message is lost. All of this is in memory: a process that started again hands over nothing. `q` waits for its own promise to be
//! durable, so that it knows after a crash that this term is used up (hazard 5).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{GroupId, KeyRange, NodeId};
use serde::{Deserialize, Serialize};

use crate::ballot::TermBallot;
use crate::context::Context;
use crate::control::state::GroupState;
use crate::data::Local;
use crate::data::operations::Primaries;
use crate::message::{Base, Message, Write};
use crate::transaction::plan::Plan;

/// Statement of a primary about all writes that may have been chosen under its ballot, which is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Ballot of the primary.
    pub ballot: TermBallot,
    /// Base of the ballot, which a quorum accepted.
    pub base: Arc<Base>,
    /// All its writes up to this number are chosen.
    pub chosen: u64,
    /// All other writes, in order.
    pub unsettled: Vec<Write>,
}

impl Handover {
    /// Returns the sub-range.
    pub fn range(&self) -> KeyRange {
        self.base.range
    }

    fn bytes(&self) -> usize {
        self.unsettled.iter().map(|write| write.record.bytes() + write.key.encoded().len()).sum()
    }
}

/// Returns whether the handovers cover this whole range.
pub(crate) fn covers(handed: &[Handover], range: KeyRange) -> bool {
    !handed.is_empty() && range.without(handed.iter().map(Handover::range)).is_empty()
}

/// Handovers of this node's primaries, while the division names these, and handovers to this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handovers {
    all: Vec<Handover>,
    /// Ballots of the handovers that were sent.
    told: Vec<TermBallot>,
    /// Handovers to this group, where it is born of others.
    inherited: Inheritance,
}

/// Handovers to a group that is born.
#[derive(Clone, Debug, Default)]
pub struct Inheritance {
    /// Last primaries of the groups that it is born of.
    last: Vec<(GroupId, KeyRange, TermBallot)>,
    /// Handovers of these primaries.
    handed: Vec<Handover>,
}

impl Inheritance {
    /// Creates an empty inheritance from groups with these last states.
    pub fn of(finals: &[&GroupState]) -> Inheritance {
        let ended = finals.iter().filter(|last| last.ended.is_some());
        let last = ended.flat_map(|last| last.parts().map(|(part, ballot)| (last.id, part, ballot))).collect();
        Inheritance { last, handed: Vec::new() }
    }

    /// Takes a handover of a primary of that group. Returns `false` if the primary is not one of the last, or its range was handed over
    /// before.
    pub fn take(&mut self, group: GroupId, handover: &Handover) -> bool {
        let is_last = self.last.contains(&(group, handover.range(), handover.ballot));
        let is_new = is_last && self.handed.iter().all(|known| known.range() != handover.range());
        if is_new {
            self.handed.push(handover.clone());
        }
        is_new
    }

    /// Keeps all that may concern a group with this range.
    pub(crate) fn of_range(mut self, range: KeyRange) -> Inheritance {
        self.last.retain(|(_, part, _)| part.overlaps(range));
        self.handed.retain(|handover| handover.range().overlaps(range));
        self
    }

    /// Returns the handovers that concern this range.
    pub(crate) fn within(&self, range: KeyRange) -> Vec<Handover> {
        self.handed.iter().filter(|handover| handover.range().overlaps(range)).cloned().collect()
    }
}

impl Handovers {
    /// Takes over what is known of the handovers to a group that is born.
    pub(crate) fn inheriting(inherited: Inheritance) -> Handovers {
        Handovers { inherited, ..Handovers::default() }
    }

    /// Returns the handovers of this node's primaries, since the division named these.
    pub(crate) fn all(&self) -> &[Handover] {
        &self.all
    }

    /// Forgets the handovers to this group: all its first primaries have taken over.
    pub(crate) fn forget_inherited(&mut self) {
        self.inherited = Inheritance::default();
    }

    /// Takes a handover of a primary of a group that this one may be born of.
    pub(crate) fn on_handover(
        &mut self,
        ctx: &mut Context<'_>,
        local: &mut Local<'_>,
        primaries: &mut Primaries,
        group: GroupId,
        handover: &Handover,
    ) {
        if !self.inherited.take(group, handover) {
            return;
        }
        for primary in primaries.all_mut() {
            if is_first(ctx.state, primary.ballot()) && primary.range().overlaps(handover.range()) {
                primary.on_handover(ctx, local, handover.clone());
            }
        }
    }

    /// Returns the handovers to a new primary of this ballot: only to one of the first division.
    pub(crate) fn to(&self, state: &GroupState, ballot: TermBallot, range: KeyRange) -> Vec<Handover> {
        if is_first(state, ballot) { self.inherited.within(range) } else { Vec::new() }
    }

    /// Keeps the handovers of primaries that are over.
    pub(crate) fn keep(&mut self, state: &GroupState, ended: impl Iterator<Item = Handover>) {
        self.all.extend(ended);
        let granted: Vec<TermBallot> = state.parts().map(|(_, ballot)| ballot).collect();
        self.all.retain(|handover| granted.contains(&handover.ballot));
        self.told.retain(|ballot| granted.contains(ballot));
    }

    /// Sends handovers when the group ends, or may end: to the members of each new group that gets a sub-range of this node's primaries,
    /// but not this node. Once: if a handover is lost there is phase 1. To be called once the primaries that are over were dropped.
    pub(crate) fn hand_over(&mut self, ctx: &mut Context<'_>) {
        let (state, me) = (ctx.state, ctx.me);
        let transactions = &state.transactions;
        let touches = |plan: &&Plan| plan.party(state.id).is_some_and(|party| party.touched);
        let open =
            || transactions.coordinates().into_iter().chain(transactions.voted()).map(|(_, plan)| plan).find(touches);
        let Some(plan) = state.ending().map(|(_, plan)| plan).or_else(open) else { return };
        let mut said: Vec<(Vec<NodeId>, Handover)> = Vec::new();
        for handover in &self.all {
            if self.told.contains(&handover.ballot) || handover.bytes() > ctx.config.message_bytes_max {
                continue;
            }
            let nodes = |index: usize| plan.births[index].members.iter().map(|contact| contact.node);
            let follows = |index: &usize| {
                plan.births[*index].range.overlaps(handover.range()) && nodes(*index).all(|node| node != me)
            };
            let to: Vec<NodeId> = (0..plan.births.len()).filter(follows).flat_map(nodes).collect();
            if !to.is_empty() {
                said.push((to, handover.clone()));
            }
        }
        for (to, handover) in said {
            self.told.push(handover.ballot);
            ctx.out.send(&to, Message::Handover(Box::new(handover)));
        }
    }
}

/// Returns whether a ballot is of the first division of its group.
fn is_first(state: &GroupState, ballot: TermBallot) -> bool {
    ballot.epoch == state.born && ballot.term.slot() == state.born_at
}
