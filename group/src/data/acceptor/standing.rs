//! Statements of an acceptor about itself: the acknowledgements that it still has, its progress, and single records.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use overlay::{Epoch, Incarnation, Key, KeyRange, NodeId, PeerKey, Point};

use crate::ballot::{Term, TermBallot};
use crate::context::Context;
use crate::data::acceptor::window::Committee;
use crate::data::acceptor::{ASKED_MAX, Acceptor, Asker, COMMITTEES_MAX, refused};
use crate::data::table::{Lookup, Table};
use crate::harmonia::Answers;
use crate::message::{CommitteeMessage, Message, Progress, VouchedCommittee};
use crate::number_set::NumberSet;
use crate::outbox::Durable;
use crate::validate::Violation;
use overlay::time::Time;

/// Bases that were asked for, and when: a base is not asked for with every message that rests on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskedBases(BTreeMap<TermBallot, Time>);

impl AskedBases {
    pub(crate) fn ask(&mut self, ctx: &mut Context<'_>, of: NodeId, ballot: TermBallot) {
        let asked = self.0.get(&ballot).copied();
        if asked.is_some_and(|asked| ctx.now.time.since(asked) < ctx.config.timing.resend / 10) {
            return;
        }
        if self.0.len() >= COMMITTEES_MAX {
            self.0.clear(); // Some are asked for once too often.
        }
        self.0.insert(ballot, ctx.now.time);
        ctx.out.send(&[of], Message::Committee(CommitteeMessage::AskBase { ballot }));
    }
}

/// Returns a ballot above every ballot of an epoch, and below all of the next.
pub(crate) fn seal_of(epoch: Epoch) -> TermBallot {
    let node = NodeId { peer: PeerKey([u8::MAX; 32]), incarnation: Incarnation(u64::MAX) };
    TermBallot { epoch, term: Term(u64::MAX), node }
}

impl Acceptor {
    /// Returns whether this member may answer a read that a switch of this id has stamped with this point.
    pub fn may_answer(&mut self, ctx: &Context<'_>, ballot: TermBallot, switch: u32, point: u64) -> Answers {
        let Some(committee) = self.committees.get(&ballot) else { return Answers::No };
        self.replicas.may_answer(ctx, committee, switch, point)
    }

    /// Returns the end of the last grant that this node gave as a primary, for checks.
    pub fn delegated_until(&self) -> Time {
        self.replicas.delegated_until()
    }

    /// Asks for the bases that a newcomer lacks. Returns whether it lacks some.
    pub fn ask_for_bases(&mut self, ctx: &mut Context<'_>) -> bool {
        let parts = ctx.state.parts().map(|(_, ballot)| ballot);
        let has = |ballot: &TermBallot| self.committees.get(ballot).is_some_and(|committee| committee.base().is_some());
        let lacking: Vec<TermBallot> = parts.filter(|ballot| !has(ballot)).collect();
        for ballot in &lacking {
            self.asked_bases.ask(ctx, ballot.node, *ballot);
        }
        !lacking.is_empty()
    }

    /// Seals an epoch: the acceptor accepts nothing more of it, at any point, so no primary of it can act here any more
    /// (`docs/design/epochs.md`). The seal is a promise like any other, and as durable.
    pub fn seal(&mut self, ctx: &mut Context<'_>, epoch: Epoch) {
        let seal = seal_of(epoch);
        self.promises.update(KeyRange::FULL, |known| (*known).max(Some(seal)));
        ctx.out.persist(Durable::Promises(self.promises.clone()));
        self.committees.range_mut(..seal).for_each(|(_, committee)| committee.supersede());
    }

    /// Returns whether this acceptor has sealed this epoch, the last that it knows of.
    pub fn has_sealed(&self, epoch: Epoch) -> bool {
        *self.promises.get(Point(0)) >= Some(seal_of(epoch))
    }

    /// Returns whether this acceptor still has all that another member knows it acknowledged in a committee.
    pub fn holds(&self, known: &VouchedCommittee) -> bool {
        let promised = self.promises.pieces(known.range).iter().all(|(_, promised)| *promised >= Some(known.ballot));
        // A committee is dropped only where newer ones replaced it everywhere.
        let forgotten = || self.promises.pieces(known.range).iter().all(|(_, above)| *above > Some(known.ballot));
        let received = match self.committees.get(&known.ballot) {
            Some(committee) => {
                let has = committee.received().contains_all(&known.accepted);
                has && (committee.base().is_some() || !known.based)
            }
            None => forgotten(),
        };
        promised && received
    }

    /// Returns the committees in which this acceptor has accepted a base or writes: with the accepted numbers where `of` is the primary,
    /// and elsewhere without numbers and only where the acceptor has the base.
    pub fn held(&self, of: NodeId) -> Vec<VouchedCommittee> {
        let accepted = |it: &Committee| {
            let is_theirs = it.ballot().node == of;
            if is_theirs { it.received().clone() } else { NumberSet::default() }
        };
        let held = self.committees.values().map(|it| VouchedCommittee {
            ballot: it.ballot(),
            range: it.range(),
            based: it.base().is_some(),
            accepted: accepted(it),
        });
        held.filter(|held| held.based || held.accepted.last() > 0).collect()
    }

    /// Returns whether this acceptor has all that another member has accepted. No other node knows the votes of a primary for itself.
    /// But with each majority that the primary was part of, some other member accepted the same. If its store was left with a higher
    /// promise, writes that it may have stored after that acknowledged nothing lower.
    pub fn holds_alike(&self, held: &VouchedCommittee) -> bool {
        let is_outrun = || self.promises.pieces(held.range).iter().all(|(_, promised)| *promised > Some(held.ballot));
        let has = |it: &Committee| (it.base().is_some() || !held.based) && it.received().contains_all(&held.accepted);
        self.committees.get(&held.ballot).is_some_and(has) || is_outrun()
    }

    /// Returns whether this acceptor shows the progress that another node says it has reported.
    pub fn shows(&self, progress: &Progress) -> bool {
        let committee = |term: Term| self.committees.values().rev().find(|it| it.ballot().term == term);
        let complete = progress.complete.iter().all(|term| committee(*term).is_some_and(Committee::is_complete));
        let marks = progress.marks.iter().all(|(term, mark)| {
            committee(*term).map_or(*mark == 0, |it| it.chosen().unwrap_or(0).min(it.received().mark()) >= *mark)
        });
        complete && marks
    }

    /// Returns whether this acceptor holds, in this piece, everything that was chosen up to this number. This also holds where it lacks
    /// nothing from before a later term.
    pub fn holds_up_to(&self, piece: KeyRange, term: Term, n: u64) -> bool {
        let here = self.committees.values().filter(|it| it.range().contains_range(piece));
        let mut holding = here.filter(|it| it.lacks_nothing_before(piece) && it.chosen().is_some());
        holding.any(|it| {
            let known = it.ballot().term;
            known > term || known == term && it.received().mark().min(it.chosen().unwrap_or(0)) >= n
        })
    }

    /// Returns the terms of the current division for which this node holds everything chosen before them, and its marks.
    pub fn progress(&self, epoch: Epoch, parts: &[(KeyRange, TermBallot)]) -> (Vec<Term>, Vec<(Term, u64)>) {
        let mine = parts.iter().filter(|(_, ballot)| ballot.epoch == epoch);
        let committees: Vec<&Committee> = mine.filter_map(|(_, ballot)| self.committees.get(ballot)).collect();
        let complete = |committee: &&&Committee| {
            committee.is_complete()
                && committee.base().is_some_and(|base| committee.received().mark() >= base.reproposed)
        };
        (
            committees.iter().filter(complete).map(|committee| committee.ballot().term).collect(),
            committees.iter().map(|c| (c.ballot().term, c.chosen().unwrap_or(0).min(c.received().mark()))).collect(),
        )
    }

    /// Returns the same as [`Acceptor::take_completeness_changed`], and leaves the flag set.
    pub fn completeness_changed(&self) -> bool {
        self.committees.completeness_changed()
    }

    /// Returns whether [`Acceptor::progress`] may report other terms than at the last call.
    pub fn take_completeness_changed(&mut self) -> bool {
        self.committees.take_completeness_changed()
    }

    /// Answers a quorum read. Only an acceptor of the reader's base knows which of its own records stand.
    pub(crate) fn on_ask_record(&mut self, ctx: &mut Context<'_>, table: &mut Table, asker: Asker, key: Key) {
        let (from, ballot, attempt) = asker;
        let Some(committee) = self.committees.get(&ballot) else {
            self.asked_bases.ask(ctx, from, ballot);
            return;
        };
        if committee.is_superseded() {
            let promised = self.highest_promise(committee.range()).expect("superseded by somebody");
            ctx.out.send(&[from], refused(ballot, promised));
            return;
        }
        if committee.base().is_none() {
            return;
        }
        match table.get(&key, true, ctx.out) {
            Lookup::Known(record) => {
                let message = CommitteeMessage::RecordIs { ballot, key, attempt, record, doubt: ctx.doubt };
                // The facts that the answer rests on may not be durable yet.
                ctx.out.send_after(&[from], Message::Committee(message));
            }
            // The reader will ask again.
            Lookup::Loading if self.asked.len() >= ASKED_MAX => ctx.dropped.note(Violation::NoRoom),
            Lookup::Loading => {
                self.asked.insert((key, asker));
            }
        }
    }

    /// Answers the primaries that asked for a record: it was loaded.
    pub fn on_loaded(&mut self, ctx: &mut Context<'_>, table: &mut Table, key: &Key) {
        let first = |(asked, _): &(Key, Asker)| asked == key;
        let asked: Vec<_> = self.asked.iter().filter(|asked| first(asked)).cloned().collect();
        for asked in asked {
            self.asked.remove(&asked);
            let (key, asker) = asked;
            self.on_ask_record(ctx, table, asker, key);
        }
        self.install_deferred(ctx, table);
    }
}
