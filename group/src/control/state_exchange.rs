//! Exchange of whole states between members, where one of them lacks entries of the log, and of messages that came before the state.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use overlay::{Epoch, NodeId};

use crate::context::{Context, Facts};
use crate::message::{Message, Sender};
use overlay::time::Time;

/// Upper limit of kept messages of a later epoch: the first ones of its leader and of its primaries.
const EARLY_MAX: usize = 128;
/// Upper limit of nodes with remembered times: beyond it all are forgotten.
const SENT_MAX: usize = 1024;

/// Questions for whole states, answers to them, and messages of epochs that this node does not know yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateExchange {
    early: Vec<(Sender, Message)>,
    /// Time of the last question; [`Time`] 0: none.
    asked: Time,
    /// Time at which each node was last sent the state.
    sent: BTreeMap<NodeId, Time>,
}

impl StateExchange {
    /// Asks for the whole state, but not for every message that shows the need.
    pub(crate) fn ask(&mut self, ctx: &mut Context<'_>, of: NodeId) {
        if self.asked == Time(0) || ctx.now.time.since(self.asked) >= ctx.config.timing.heartbeat / 10 {
            self.asked = ctx.now.time;
            ctx.out.send(&[of], Message::AskState);
        }
    }

    /// Returns whether this node may be sent the state now: not for every message that shows the need.
    pub(crate) fn may_send(&mut self, facts: Facts<'_>, to: NodeId) -> bool {
        let last = self.sent.get(&to).copied().unwrap_or(Time(0));
        if last > Time(0) && facts.now.since(last) < facts.config.timing.heartbeat / 10 {
            return false;
        }
        self.sent.insert(to, facts.now);
        if self.sent.len() > SENT_MAX {
            self.sent.clear();
        }
        true
    }

    /// Keeps a message of a later epoch, if it may begin that epoch for this node.
    pub(crate) fn keep_early(&mut self, from: Sender, message: Message) {
        if self.early.len() < EARLY_MAX && message.begins_epoch() {
            self.early.push((from, message));
        }
    }

    /// Takes all kept messages.
    pub(crate) fn take_early(&mut self) -> Vec<(Sender, Message)> {
        core::mem::take(&mut self.early)
    }

    /// Takes all kept messages if one of them is due in this epoch; those of later epochs are to be put back.
    pub(crate) fn take_due(&mut self, now: Epoch) -> Vec<(Sender, Message)> {
        let is_due = self.early.iter().any(|(from, _)| from.epoch <= now);
        if is_due { self.take_early() } else { Vec::new() }
    }

    /// Puts a message back that was taken too early.
    pub(crate) fn put_back(&mut self, from: Sender, message: Message) {
        self.early.push((from, message));
    }
}
