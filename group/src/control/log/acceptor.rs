//! The acceptor of the log: one promise for all slots, and the entries accepted after the applied state.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ballot::{Ballot, LogSlot};
use crate::context::Context;
use crate::control::state::Entry;
use crate::outbox::{Durable, Outbox};

/// Acceptor state of one epoch's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogAcceptor {
    promised: Option<Ballot>,
    accepted: BTreeMap<LogSlot, (Ballot, Entry)>,
}

impl LogAcceptor {
    /// Returns an acceptor as it was stored.
    pub fn restored(promised: Option<Ballot>, accepted: BTreeMap<LogSlot, (Ballot, Entry)>) -> LogAcceptor {
        LogAcceptor { promised, accepted }
    }

    /// Returns the highest ballot promised.
    pub fn promised(&self) -> Option<Ballot> {
        self.promised
    }

    /// Returns the last slot with an accepted entry.
    pub fn last_accepted(&self) -> Option<LogSlot> {
        self.accepted.last_key_value().map(|(slot, _)| *slot)
    }

    /// Returns the entry accepted in a slot, with its ballot.
    pub fn accepted(&self, slot: LogSlot) -> Option<(Ballot, &Entry)> {
        self.accepted.get(&slot).map(|(ballot, entry)| (*ballot, entry))
    }

    /// Returns all entries accepted after a slot.
    pub fn accepted_behind(&self, slot: LogSlot) -> Vec<(LogSlot, Ballot, Entry)> {
        self.accepted.range(slot.next()..).map(|(slot, (ballot, entry))| (*slot, *ballot, entry.clone())).collect()
    }

    /// Promises a ballot (phase 1b). An equal ballot is a repetition.
    ///
    /// # Errors
    /// The higher ballot that was promised before; the acceptor is unchanged.
    pub fn prepare(&mut self, ballot: Ballot, ctx: &mut Context<'_>) -> Result<(), Ballot> {
        self.raise(ballot, ctx)
    }

    /// Returns the first of these slots in which another entry was accepted under the same ballot.
    pub fn contradicted(&self, ballot: Ballot, entries: &[(LogSlot, Entry)]) -> Option<LogSlot> {
        let differs = |(slot, entry): &&(LogSlot, Entry)| {
            self.accepted.get(slot).is_some_and(|(under, known)| *under == ballot && known != entry)
        };
        entries.iter().find(differs).map(|(slot, _)| *slot)
    }

    /// Accepts entries (phase 2b). Returns the slots accepted, without those already applied.
    ///
    /// # Errors
    /// The higher ballot that was promised before; no entry is accepted.
    ///
    /// # Panics
    /// If the entries contradict accepted ones; see [`LogAcceptor::contradicted`].
    pub fn accept(
        &mut self,
        ballot: Ballot,
        entries: Vec<(LogSlot, Entry)>,
        ctx: &mut Context<'_>,
    ) -> Result<Vec<LogSlot>, Ballot> {
        self.raise(ballot, ctx)?;
        let mut slots = Vec::with_capacity(entries.len());
        for (slot, entry) in entries {
            if slot <= ctx.state.applied {
                continue; // Chosen and forgotten: the leader learns so from the state.
            }
            if let Some((accepted, known)) = self.accepted.get(&slot)
                && *accepted == ballot
            {
                assert_eq!(*known, entry, "two values under ballot {ballot:?} in slot {slot:?}");
            } else {
                ctx.out.persist(Durable::LogAccepted(slot, ballot, entry.clone()));
                self.accepted.insert(slot, (ballot, entry));
            }
            slots.push(slot);
        }
        Ok(slots)
    }

    /// Forgets entries up to this slot: they are part of the state now.
    pub fn forget(&mut self, applied: LogSlot, out: &mut Outbox) {
        if self.accepted.first_key_value().is_some_and(|(slot, _)| *slot <= applied) {
            self.accepted = self.accepted.split_off(&applied.next());
            out.persist(Durable::LogForget(Some(applied)));
        }
    }

    fn raise(&mut self, ballot: Ballot, ctx: &mut Context<'_>) -> Result<(), Ballot> {
        match self.promised {
            Some(promised) if promised > ballot => Err(promised),
            Some(promised) if promised == ballot => Ok(()),
            _ => {
                self.promised = Some(ballot);
                ctx.out.persist(Durable::LogPromised(ctx.state.epoch, self.promised));
                Ok(())
            }
        }
    }
}
