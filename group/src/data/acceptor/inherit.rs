//! State that an acceptor brings into a group that is born of its own (Scatter §4, `docs/design/transactions.md`).
//!
//! # Invariants
//! - Promises and accepted writes in the new range stand, because a recovering primary asks for them there. The old group's epochs are
//!   sealed at every point.
//! - Nothing outside the new range settles or is reported here: it belongs to the groups that own the rest.
//! - Nothing is brought from parts where tombstones were dropped without this node (`Group::forgotten`).

use alloc::vec::Vec;

use overlay::{Epoch, KeyRange};

use crate::data::acceptor::Acceptor;
use crate::data::acceptor::standing::seal_of;
use crate::data::acceptor::window::Committee;
use crate::outbox::{Durable, Outbox};

impl Acceptor {
    /// Returns the acceptor of the same node in a group with this range, which begins with an epoch after `sealed`. Its records in the
    /// `forgotten` parts are of no use.
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

    /// Persists everything, for a store that has none of it.
    pub fn persist_all(&self, out: &mut Outbox) {
        out.persist(Durable::Promises(self.promises.clone()));
        for committee in self.committees.values() {
            committee.persist_all(out);
        }
    }
}

impl Committee {
    /// Returns the committee for a group that has this range. The committee is over. Its writes elsewhere belong to other groups, but their
    /// numbers still count.
    fn heir(&self, range: KeyRange, forgotten: &[KeyRange]) -> Committee {
        let mut heir = self.clone();
        heir.supersede();
        let kept = |point| range.contains(point) && !forgotten.iter().any(|piece| piece.contains(point));
        let elsewhere = |n: &u64| !kept(self.unsettled_write(*n).key.point());
        let elsewhere: Vec<u64> = self.unsettled_numbers().filter(elsewhere).collect();
        elsewhere.into_iter().for_each(|n| heir.give_away(n));
        // Records from there cannot be relied on any more, if that part of the ring comes back one day.
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
