//! Seal of a member on its epoch, and the end of a sealed epoch (hazard 21).

use crate::context::{Context, Facts};
use crate::control::log::Log;
use overlay::time::Time;

/// Seal of this member on the present epoch: a member that has sealed accepts nothing more in the epoch, and sees to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seal {
    /// Time since which this member waits for the end of the epoch that it sealed; in the future after an attempt of its own.
    since: Option<Time>,
}

impl Seal {
    /// Returns the seal of a member that begins now, and that may have sealed the epoch before.
    pub(crate) fn new(is_sealed: bool, now: Time) -> Seal {
        Seal { since: is_sealed.then_some(now) }
    }

    /// Notes that this member has sealed the epoch.
    pub(crate) fn set(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// Notes that the epoch is over.
    pub(crate) fn clear(&mut self) {
        self.since = None;
    }

    /// Returns whether this member has sealed the epoch.
    pub(crate) fn is_set(&self) -> bool {
        self.since.is_some()
    }

    /// Returns whether this member is to end an epoch that it sealed, as no other member does.
    pub(crate) fn tick(&mut self, ctx: &mut Context<'_>, log: &Log) -> bool {
        let Some(due) = self.due(ctx.facts(), log) else { return false };
        let ends = ctx.now.time >= due && log.leads_under().is_none();
        if ends {
            // Members try at different times.
            let spread = log.spread(ctx.config.timing.seal_patience);
            self.since = Some(ctx.now.time + ctx.rng.duration_below(spread));
        }
        ends
    }

    /// Returns when this member ends an epoch that it has sealed, unless it leads then.
    pub(crate) fn due(&self, facts: Facts<'_>, log: &Log) -> Option<Time> {
        let since = self.since?;
        let attempt = log.promised_other().unwrap_or(since);
        let due = since.max(attempt) + facts.config.timing.seal_patience;
        Some(log.ending_until(&facts.config.timing).map_or(due, |until| until.max(due)))
    }
}
