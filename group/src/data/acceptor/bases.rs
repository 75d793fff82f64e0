//! Acceptance of a new primary's base by an acceptor; see the text of [`crate::data`].
//!
//! # Invariants
//! - An acceptor accepts a base after all re-proposals of the base, or once the base is known to be chosen.
//! - The writes of older terms that an accepted base calls chosen are settled. The writes that it calls void are void once the base itself
//!   is known to be chosen, and are kept until then. The base may never be chosen, and an older base may stand, with a higher mark than the
//!   quorum of the newer base knew. This node may then be one of the few that hold a chosen write.

use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{KeyRange, NodeId};

use crate::ballot::{Term, TermBallot};
use crate::config::Defect;
use crate::context::Context;
use crate::contradiction::contradiction;
use crate::data::acceptor::chain::{self, ChainFate};
use crate::data::acceptor::window::Committee;
use crate::data::acceptor::{Acceptor, refused};
use crate::data::table::Table;
use crate::message::{Base, Chain, CommitteeMessage, Message};
use crate::outbox::{Durable, GroupOutput};

/// Upper limit of closed committees that are kept for members that lag; no other member needs them.
pub(crate) const CLOSED_MAX: usize = 16;

impl Acceptor {
    /// Handles a new primary's base.
    pub(crate) fn on_base(
        &mut self,
        ctx: &mut Context<'_>,
        table: &mut Table,
        from: NodeId,
        ballot: TermBallot,
        base: Arc<Base>,
        chosen: Option<u64>,
    ) {
        let range = base.range;
        if let Err(why) = self.admit(ctx, ballot, range) {
            return ctx.dropped.note(why);
        }
        if let Some(of) = self.committees.get(&ballot).and_then(|known| known.contradicted_base(&base)) {
            self.disowned.add(ballot);
            return contradiction(ctx, of, from, format_args!("lays another base under {ballot:?}"));
        }
        if let Some(promised) = self.highest_promise(range).filter(|promised| *promised > ballot) {
            ctx.out.send(&[from], refused(ballot, promised));
            return;
        }
        if ctx.state.settings.leases && ctx.now.time < self.quiet_until && !self.committees.contains_key(&ballot) {
            return; // Accepting raises the promise, which the acceptor may not do yet.
        }
        self.promise(ctx, ballot, range);
        let committee = self.committees.get(&ballot).expect("just promised");
        if committee.base().is_none() {
            if chosen.is_none() && committee.received().mark() < base.reproposed {
                return; // The re-proposals of the base come first, or come again.
            }
            if !self.accept_base(ctx, table, ballot, base) {
                return;
            }
        }
        ctx.out.send_after(&[from], Message::Committee(CommitteeMessage::BaseAccepted { ballot }));
        if let Some(mark) = chosen {
            self.settle_up_to(ctx, table, ballot, mark);
        }
    }

    /// Accepts a base. Returns false where this node was away for too long to accept it.
    fn accept_base(&mut self, ctx: &mut Context<'_>, table: &mut Table, ballot: TermBallot, base: Arc<Base>) -> bool {
        let mut missing = Vec::new();
        for (piece, chain) in &base.pieces {
            if !self.lacks_nothing_up_to(*piece, chain.first().copied()) {
                missing.push(*piece);
            }
            for (part, of, fate) in self.fates(ballot, *piece, chain) {
                let mark = match fate {
                    ChainFate::UpTo(mark) => mark,
                    ChainFate::Void => 0,
                    ChainFate::Unknown => {
                        ctx.out.push(GroupOutput::Over("it was away for longer than its group remembers"));
                        return false;
                    }
                };
                let older = self.committees.get_mut(&of).expect("just seen");
                older.settle_in(part, mark, table, ctx.out);
            }
        }
        if ctx.config.defects.has(Defect::TrustOwnCopy) {
            missing.clear();
        }
        self.bases.set(base.range, Some(ballot));
        let committee = self.committees.get_mut(&ballot).expect("promised before");
        committee.set_base(base, missing, ctx.out);
        self.drop_closed(ctx);
        true
    }

    /// Returns the fates of older terms that have unsettled writes here, part by part of a piece with this chain.
    ///
    /// Where the chain does not go back so far, the base of a term in the chain continues it: a node that has such a base was not away.
    fn fates(&self, ballot: TermBallot, piece: KeyRange, chain: &Chain) -> Vec<(KeyRange, TermBallot, ChainFate)> {
        let mut fates = Vec::new();
        let open = self.committees.range(..ballot).filter(|(_, older)| older.has_unsettled_in(piece));
        for (of, _) in open {
            let known = chain::fate(chain, of.term);
            if known != ChainFate::Unknown {
                fates.push((piece, *of, known));
                continue;
            }
            // The oldest of them goes back furthest.
            let stands = |older: &&Committee| chain.iter().any(|(term, _)| *term == older.ballot().term);
            let bases = self.committees.values().filter(stands).filter_map(Committee::base);
            let mine = bases.into_iter().find(|base| base.range.contains_range(piece));
            let parts = mine.map_or(Vec::new(), |base| chain::parts_of(base, piece));
            let told = |(part, chain): (KeyRange, &Chain)| (part, *of, chain::fate(chain, of.term));
            fates.extend(parts.into_iter().map(told));
            if mine.is_none() {
                fates.push((piece, *of, ChainFate::Unknown));
            }
        }
        fates
    }

    /// Settles writes: a primary said that its base is chosen, and all of its writes up to `mark`.
    pub(crate) fn settle_up_to(&mut self, ctx: &mut Context<'_>, table: &mut Table, ballot: TermBallot, mark: u64) {
        let Some(committee) = self.committees.get_mut(&ballot) else { return };
        let was_known = committee.chosen().is_some();
        committee.settle_up_to(mark, table, ctx.out);
        let Some(base) = committee.base().filter(|_| !was_known).cloned() else { return };
        if ctx.config.defects.has(Defect::VoidComesBack) {
            return;
        }
        for (piece, chain) in &base.pieces {
            for (part, of, fate) in self.fates(ballot, *piece, chain) {
                let mark = match fate {
                    ChainFate::UpTo(mark) => mark,
                    // A node that does not know the fate ended when it was asked to accept the base.
                    ChainFate::Void | ChainFate::Unknown => 0,
                };
                let older = self.committees.get_mut(&of).expect("just seen");
                older.close_in(part, mark, table, ctx.out);
            }
        }
    }

    /// Returns whether this node holds everything that was chosen in this piece up to the end of the previous term.
    fn lacks_nothing_up_to(&self, piece: KeyRange, last: Option<(Term, u64)>) -> bool {
        let Some((term, mark)) = last else { return true };
        self.committee_of(term, piece)
            .is_some_and(|committee| committee.lacks_nothing_before(piece) && committee.received().mark() >= mark)
    }

    /// Drops committees that newer ones replaced everywhere, except for some that lagging members may catch up from.
    pub(crate) fn drop_closed(&mut self, ctx: &mut Context<'_>) {
        let live: Vec<TermBallot> = self.bases.pieces(KeyRange::FULL).into_iter().filter_map(|(_, b)| b).collect();
        let closed: Vec<TermBallot> = self
            .committees
            .values()
            .filter(|committee| {
                let promised = self.promises.pieces(committee.range());
                let outrun = promised.iter().all(|(_, promised)| promised.is_some_and(|p| p > committee.ballot()));
                outrun && !committee.has_unsettled() && !live.contains(&committee.ballot())
            })
            .map(Committee::ballot)
            .collect();
        for ballot in closed.iter().take(closed.len().saturating_sub(CLOSED_MAX)) {
            self.committees.remove(ballot);
            self.catch_up.forget(*ballot);
            ctx.out.persist(Durable::CommitteeForget(*ballot));
        }
    }
}
