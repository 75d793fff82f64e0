//! What an acceptor takes along into a group that is born of its own (Scatter §4, `docs/design/transactions.md`).
//!
//! # Invariants
//! - What was promised and accepted in the new range stands, as whoever recovers asks for it there. The old group's epochs
//!   are sealed at every point.
//! - Nothing outside the new range settles or is told here: it belongs to who came of the rest.
//! - Nothing goes along from where tombstones were let go of without this node (`Group::forgotten`).

use alloc::vec::Vec;

use overlay::{Epoch, KeyRange};

use super::acceptor::Acceptor;
use super::standing::seal_of;
use super::window::Committee;
use crate::outbox::{Durable, Outbox};

impl Acceptor {
    /// The acceptor of the same node in a group with this range, whose first epoch is behind `sealed`. What it held in the
    /// `forgotten` parts is of no use.
    pub fn heir(&self, range: KeyRange, sealed: Epoch, forgotten: &[KeyRange]) -> Acceptor {
        let mut heir = Acceptor::new(self.quiet_until);
        for (piece, promised) in self.promises.pieces(range) {
            heir.promises.set(piece, promised);
        }
        let seal = Some(seal_of(sealed));
        heir.promises.update(KeyRange::FULL, |known| (*known).max(seal));
        for (piece, base) in self.bases.pieces(range) {
            heir.bases.set(piece, base);
        }
        forgotten.iter().for_each(|piece| heir.bases.set(*piece, None));
        let here = self.committees.iter().filter(|(_, committee)| committee.range().overlaps(range));
        heir.committees = here.map(|(ballot, committee)| (*ballot, committee.heir(range, forgotten))).collect();
        heir.grants = self.grants.clone();
        heir.replicas = self.replicas.heir();
        heir.catch_up = self.catch_up.heir();
        heir
    }

    /// Remembers everything, for a store that has nothing of it.
    pub fn persist_all(&self, out: &mut Outbox) {
        out.persist(Durable::Promises(self.promises.clone()));
        for committee in self.committees.values() {
            committee.persist_all(out);
        }
    }
}

impl Committee {
    /// What it is to a group that has this range. It is over; what it holds elsewhere is that others' affair, but numbers
    /// are counted on.
    fn heir(&self, range: KeyRange, forgotten: &[KeyRange]) -> Committee {
        let mut heir = self.clone();
        heir.supersede();
        let kept = |point| range.contains(point) && !forgotten.iter().any(|piece| piece.contains(point));
        let elsewhere = |n: &u64| !kept(self.unsettled_write(*n).key.point());
        let elsewhere: Vec<u64> = self.unsettled_numbers().filter(elsewhere).collect();
        elsewhere.into_iter().for_each(|n| heir.give_away(n));
        // Of that nothing can be relied on any more, should it come back one day.
        heir.lack(self.range().without([range]));
        heir.lack(forgotten.iter().flat_map(|piece| self.range().intersection(*piece)).flatten().collect());
        heir
    }

    fn persist_all(&self, out: &mut Outbox) {
        self.persist_head(out);
        out.persist(Durable::CommitteeProgress(self.ballot(), self.received().clone(), self.chosen()));
        self.unsettled_numbers().for_each(|n| out.accept(self.unsettled_write(n)));
    }
}
