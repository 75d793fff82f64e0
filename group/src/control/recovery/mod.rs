//! Recovery after a start: whether the store of this member has everything that the member acknowledged (`docs/design/durability.md`).

pub(crate) mod crash_recovery;
pub(crate) mod doubt;

use overlay::{Epoch, NodeId, PeerKey};

use crate::ballot::{LogSlot, Term};
use crate::config::{Defect, Defects};
use crate::context::Facts;
use crate::control::recovery::crash_recovery::{Acknowledgements, CrashRecovery};
use crate::control::recovery::doubt::{Doubt, Doubting};
use crate::control::state::GroupState;
use overlay::time::Time;

/// Knowledge of a member about acknowledgements: those that its own store may lack, and those that other nodes' stores may lack.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// Questions to the other members, until they have vouched for this node's store.
    crash: Option<CrashRecovery>,
    doubting: Doubting,
    pub(crate) acknowledgements: Acknowledgements,
    /// Terms up to this slot were granted to an earlier run of this process.
    granted_before: LogSlot,
}

impl Recovery {
    /// Begins with a member that has applied this state. A member of a store that `is_restored` asks the other members about it first.
    pub(crate) fn new(
        is_restored: bool,
        doubt: Option<Doubt>,
        state: &GroupState,
        defects: Defects,
        now: Time,
    ) -> Recovery {
        Recovery {
            // Also for a sealed store: it may be a copy that was made when an earlier run stopped.
            crash: is_restored.then(|| CrashRecovery::new(now)),
            doubting: Doubting::new(doubt, (state.epoch, state.applied), now),
            acknowledgements: Acknowledgements::default(),
            granted_before: if defects.has(Defect::BallotReuse) { LogSlot(0) } else { state.applied },
        }
    }

    /// Notes that no earlier run of this process can have been granted anything.
    pub(crate) fn begin_first_run(&mut self) {
        self.granted_before = LogSlot(0);
    }

    /// Returns whether this term may have been granted to an earlier run of this process.
    pub(crate) fn was_granted_before(&self, term: Term) -> bool {
        term.slot() <= self.granted_before
    }

    /// Returns the recovery for a group that is born of this one. `was_here`: the nodes with acknowledgements that still count.
    pub(crate) fn heir(&self, applied: LogSlot, was_here: impl Fn(NodeId) -> bool, now: Time) -> Recovery {
        let doubting = self.doubting.heir(applied, now);
        Recovery {
            crash: (self.crash.is_some() || doubting.doubt.is_some()).then(|| CrashRecovery::new(now)),
            doubting,
            acknowledgements: self.acknowledgements.of(was_here),
            granted_before: self.granted_before,
        }
    }

    /// Returns whether this node still finds out whether its store lost anything.
    pub(crate) fn is_asking(&self) -> bool {
        self.crash.is_some()
    }

    /// Returns the doubt of this member, if any.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        self.doubting.doubt
    }

    /// Returns whether this member may have forgotten acknowledgements of `epoch`.
    pub(crate) fn doubts(&self, epoch: Epoch) -> bool {
        Doubt::covers(self.doubting.doubt, epoch)
    }

    /// Returns whether this node must send nothing in committees of `epoch`: it is a member of it and may have forgotten a promise
    /// or an accept. A learner, or a former member that recovery asks, has made no promise in the present epoch that counts.
    pub(crate) fn is_silent_in(&self, facts: Facts<'_>, epoch: Epoch) -> bool {
        self.doubts(epoch) && (epoch != facts.state.epoch || facts.state.is_member(facts.me))
    }

    /// Begins to take part: the other members have vouched for this node, which has applied all slots up to this one.
    pub(crate) fn take_part(&mut self, applied: LogSlot) {
        self.crash = None;
        self.doubting.on_compared(applied);
    }

    /// See [`Acknowledgements::on_new_run`]. An answer of an earlier run is asked for again.
    pub(crate) fn on_new_run(&mut self, peer: PeerKey, run: u64) {
        self.acknowledgements.on_new_run(peer, run);
        if let Some(crash) = &mut self.crash {
            crash.forget(peer);
        }
    }
}
