//! Changes of groups and members that a leader decides by its policies, or that a peer asks for (Scatter §4, §6).
//!
//! - `sizing`: splits, merges and migrations; `repartition`: boundaries; `leading`: another leader.
//! - `preparing` and [`copying`]: the copies of data before a transaction begins.
//! - `leaving`: a peer that leaves for good.

pub mod copying;
pub(crate) mod leading;
pub(crate) mod leaving;
pub(crate) mod preparing;
pub(crate) mod repartition;
pub(crate) mod sizing;

use overlay::time::Time;

use crate::context::Context;
use crate::policies::lifetimes::LifeWatch;
use crate::reconfigure::leading::LeadWatch;
use crate::reconfigure::leaving::Leave;
use crate::reconfigure::preparing::Preparation;
use crate::reconfigure::repartition::LoadWatch;
use crate::reconfigure::sizing::SizeWatch;

/// All parts of a node that change groups and their members.
#[derive(Default)]
pub(crate) struct Reconfigure {
    pub(crate) preparation: Preparation,
    pub(crate) size: SizeWatch,
    pub(crate) load: LoadWatch,
    pub(crate) lead: LeadWatch,
    pub(crate) leave: Leave,
}

impl Reconfigure {
    /// Checks from time to time the group that this node leads.
    pub(crate) fn watch(&mut self, cx: &mut Context<'_>, lives: &LifeWatch) {
        self.size.watch(cx, &mut self.preparation, lives);
        self.load.watch(cx, &mut self.preparation, lives);
        self.lead.watch(cx);
    }

    /// Returns the time at which a leader checks its group next.
    pub(crate) fn watch_due(&self) -> Time {
        self.size.due().min(self.load.due()).min(self.lead.due())
    }
}
