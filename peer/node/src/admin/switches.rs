//! Requests for a switch: to name one, and to bar the use of any.

use alloc::string::{String, ToString};
use core::cmp::Ordering;

use group::Group;
use group::control::state::Entry;
use group::harmonia::switch::Switch;
use group::transaction::member::BeginRefusal;
use overlay::GroupId;

use super::{AdminOutcome, AdminRequest, AdminRequests, Taken};

/// Limit of the distance of a switch's id from the time in seconds and from the last id: a slip must not use up all ids.
const ID_AHEAD_MAX: u64 = 1 << 20;

impl AdminRequests {
    /// Returns the highest id of a switch that is proposed for another request to the same group; 0 if none is.
    pub(super) fn switch_open(&self, index: usize) -> u32 {
        let group = self.taken[index].group;
        let open = |other: &Taken| match other.request {
            AdminRequest::Switch { id } if other.group == group && other.proposed.is_some() => Some(id),
            _ => None,
        };
        let others = self.taken.iter().enumerate().filter(|(other, _)| *other != index);
        others.filter_map(|(_, other)| open(other)).max().unwrap_or(0)
    }

    /// Returns whether a request to bar the group's switch is proposed.
    pub(super) fn is_bar_open(&self, group: GroupId) -> bool {
        let is_bar = |other: &Taken| other.request == AdminRequest::UseSwitch { on: false } && other.proposed.is_some();
        self.taken.iter().any(|other| other.group == group && is_bar(other))
    }
}

impl Taken {
    /// Proposes a switch in the group's log; returns `None` until it is chosen.
    ///
    /// Of all requests for one id, one gets the answer that it has it (hazard 55: two switches under one id). A leader proposes
    /// only ids above its state, which has all entries chosen before its ballot, and above its own proposals. So an entry of its
    /// own ballot with this id is the one that it proposed for this request. Under another ballot it does not know that.
    pub(super) fn use_switch(
        &mut self,
        group: &mut Group,
        id: u32,
        (open, is_barred): (u32, bool),
        unix_s: u64,
    ) -> Option<AdminOutcome> {
        let known = group.state().switch;
        let ballot = group.log().leads_under().filter(|_| group.log().leads());
        let ballot = ballot.map(|ballot| (group.state().epoch, ballot));
        if self.proposed.is_some() && self.proposed != ballot {
            return Some(AdminOutcome::Unknown);
        }
        let highest = u64::from(known.id).max(unix_s) + ID_AHEAD_MAX;
        match known.id.cmp(&id) {
            Ordering::Equal if self.proposed.is_some() => Some(AdminOutcome::Done(alloc::vec![group.state().id])),
            Ordering::Equal | Ordering::Greater => Some(AdminOutcome::Refused(is_used(known.id))),
            Ordering::Less if ballot.is_none() => Some(BeginRefusal::NotLeader(None).into()),
            Ordering::Less if self.proposed.is_some() => None,
            Ordering::Less if is_barred || known.is_barred() => {
                let why = "the group's switch was turned off by an administrator: request {\"on\": true} first";
                Some(AdminOutcome::Refused(why.to_string()))
            }
            Ordering::Less if id <= open => Some(AdminOutcome::Refused(is_used(open))),
            Ordering::Less if u64::from(id) > highest => Some(AdminOutcome::Refused(alloc::format!(
                "a switch id follows the Unix time in seconds; the highest that is accepted now is {highest}"
            ))),
            Ordering::Less => match group.state().fits_switch() {
                Err(why) => Some(AdminOutcome::Refused(why.to_string())),
                Ok(()) => {
                    group.propose(Entry::Switch(Switch::on(id)));
                    self.proposed = ballot;
                    None
                }
            },
        }
    }

    /// Proposes in the group's log that no switch is used, or that one may be; returns `None` until it is chosen.
    pub(super) fn bar_switch(&mut self, group: &mut Group, on: bool) -> Option<AdminOutcome> {
        let (known, leads) = (group.state().switch, group.log().leads());
        match () {
            () if known.is_barred() != on => Some(AdminOutcome::Done(alloc::vec![group.state().id])),
            // The proposal of this node may still be chosen.
            () if !leads && self.proposed.is_some() => Some(AdminOutcome::Unknown),
            () if !leads => Some(BeginRefusal::NotLeader(None).into()),
            () if self.proposed.is_some() => None,
            () => {
                let switch = if on { Switch::off(known.id) } else { Switch::barred(known.id.max(1)) };
                group.propose(Entry::Switch(switch));
                self.proposed = group.log().leads_under().map(|ballot| (group.state().epoch, ballot));
                None
            }
        }
    }
}

/// Returns the reason for which an id is not taken.
fn is_used(id: u32) -> String {
    alloc::format!("switch ids only increase, and the group has used {id} already")
}
