//! The leader's side of the log: phase 2, pipelined.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use overlay::{Epoch, NodeId};

use crate::ballot::{Ballot, LogSlot};
use crate::config::Defect;
use crate::context::Context;
use crate::control::state::Entry;
use crate::message::{LogMessage, Message};
use overlay::time::Time;

/// Entry in flight.
#[derive(Clone, Debug)]
struct Open {
    entry: Entry,
    /// Nodes that have voted for the entry, each with the last epoch about which its statements were in doubt then.
    votes: BTreeMap<NodeId, Epoch>,
    sent: Time,
}

/// State of a leader.
#[derive(Clone, Debug)]
pub(super) struct Leadership {
    ballot: Ballot,
    next: LogSlot,
    open: BTreeMap<LogSlot, Open>,
    /// Once everything up to here is chosen, an entry of this leader is, and it may decide anew (one change at a time).
    barrier: LogSlot,
    confirmed: bool,
}

impl Leadership {
    /// Begins to lead after phase 1: proposes entries again that may have been chosen, fills the holes, and closes with an entry of its
    /// own. That entry is the end of the epoch if the leader is to `stop` it, and no entry that may have been chosen ends it.
    pub(super) fn begin(
        ctx: &mut Context<'_>,
        ballot: Ballot,
        mut adopted: BTreeMap<LogSlot, (Ballot, Entry)>,
        stop: bool,
    ) -> Leadership {
        if stop && ctx.config.defects.has(Defect::StopTooLow) {
            adopted.clear();
        }
        let ends = adopted.values().any(|(_, entry)| entry.ends_epoch());
        let mut slot = ctx.state.applied.next();
        let last = adopted.last_key_value().map_or(ctx.state.applied, |(slot, _)| *slot);
        let mut leadership =
            Leadership { ballot, next: slot, open: BTreeMap::new(), barrier: last.next(), confirmed: false };
        while slot <= last {
            let entry = adopted.remove(&slot).map_or(Entry::Noop, |(_, entry)| entry);
            leadership.propose(ctx, entry);
            slot = slot.next();
        }
        let last = if stop && !ends { Entry::Next(ctx.state.members.clone()) } else { Entry::Noop };
        leadership.propose(ctx, last);
        leadership
    }

    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Returns whether an entry of this leadership is chosen.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// Proposes an entry in the next slot (phase 2a).
    pub(super) fn propose(&mut self, ctx: &mut Context<'_>, entry: Entry) -> LogSlot {
        let slot = self.next;
        self.next = slot.next();
        let entries = alloc::vec![(slot, entry.clone())];
        self.open.insert(slot, Open { entry, votes: BTreeMap::new(), sent: ctx.now.time });
        let chosen = self.chosen(ctx.state.applied);
        let nodes = ctx.state.nodes();
        ctx.out.send(&nodes, Message::Log(LogMessage::Accept { ballot: self.ballot, entries, chosen }));
        slot
    }

    /// Counts votes (phase 2b). Returns the entries that these votes made chosen.
    pub(super) fn on_accepted(
        &mut self,
        (from, doubt): (NodeId, Epoch),
        slots: &[LogSlot],
        is_chosen: impl Fn(&BTreeMap<NodeId, Epoch>) -> bool,
    ) -> Vec<(LogSlot, Entry)> {
        let mut chosen = Vec::new();
        for slot in slots {
            let Some(open) = self.open.get_mut(slot) else { continue };
            open.votes.insert(from, doubt);
            if is_chosen(&open.votes) {
                let open = self.open.remove(slot).expect("just seen");
                chosen.push((*slot, open.entry));
            }
        }
        if self.open.range(..=self.barrier).next().is_none() {
            self.confirmed = true;
        }
        chosen
    }

    /// Drops entries up to this slot, which the state contains. Returns false where this leadership does not know one of them to be chosen.
    /// Another leader may have had another entry chosen there, so entries that were accepted under this ballot do not count as chosen.
    #[must_use]
    pub(super) fn forget(&mut self, applied: LogSlot) -> bool {
        let later = self.open.split_off(&applied.next());
        let knew_all = core::mem::replace(&mut self.open, later).is_empty();
        self.next = self.next.max(applied.next());
        knew_all
    }

    /// Repeats proposals that have waited too long.
    pub(super) fn resend(&mut self, ctx: &mut Context<'_>) {
        let chosen = self.chosen(ctx.state.applied);
        for (slot, open) in &mut self.open {
            if ctx.now.time.since(open.sent) < ctx.config.timing.resend {
                continue;
            }
            open.sent = ctx.now.time;
            let to: Vec<NodeId> = ctx.state.nodes().into_iter().filter(|node| !open.votes.contains_key(node)).collect();
            let entries = alloc::vec![(*slot, open.entry.clone())];
            ctx.out.send(&to, Message::Log(LogMessage::Accept { ballot: self.ballot, entries, chosen }));
        }
    }

    /// Returns the slot up to which all slots are chosen: it lies before all open ones.
    fn chosen(&self, applied: LogSlot) -> LogSlot {
        self.open.first_key_value().map_or(LogSlot(self.next.0 - 1), |(slot, _)| LogSlot(slot.0 - 1)).max(applied)
    }
}
