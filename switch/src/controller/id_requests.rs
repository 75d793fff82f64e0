//! Ids that groups are asked for.
//!
//! An id is used for a *pair* of a partition and an id (rule S1), and a partition belongs to one group. So ids of different
//! groups need no order between them, and may be equal. Two groups may share a partition's number, and one may follow the other
//! in the tables under one id: [`Spent`](crate::p4rt::ids::Spent) has that pair. A new id for a group is above all ids that this
//! group's own log is known to have named, and above all that it was asked for before. So a report about one group costs no other
//! group its ids.
//!
//! # Two controllers of one group
//! A group has one switch. If the controllers of two switches want the group, each would have it name an id of its own as soon as
//! it saw the other's. Each new id makes the group wait for the end of its grants. So a controller steps back if it had an id in
//! the group's log and sees there one that it did not ask for. It leaves the group alone for a while, each time for twice as
//! long, until its own id has stood for longer than the other controller can have waited. A controller that had no id in the log,
//! as after a restart, does not wait. Nor does it wait if the group uses no switch.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::reports::{Group, Known};

/// Time for which a group is left alone after another controller has named an id for it; it doubles each time.
const REST_MIN: Duration = Duration::from_secs(5);
/// Upper limit of that time, without a random part of up to a quarter.
const REST_MAX: Duration = Duration::from_secs(300);
/// Time for which an id has to stand until former losses are forgotten: no other controller can still be waiting then.
const PEACE: Duration = Duration::from_secs(600);
/// Upper limit of ids that are remembered for a group: the results of the last requests may be unknown.
const ASKED_MAX: usize = 8;

/// Ids that each group was asked for.
#[derive(Debug, Default)]
pub struct IdRequests {
    groups: BTreeMap<Group, GroupRequests>,
}

#[derive(Debug, Default)]
struct GroupRequests {
    /// Ids of the last requests, the highest at the end.
    asked: VecDeque<u32>,
    /// The last of these that the group's log has named, and the time since when the log names such ids.
    held: Option<(u32, Duration)>,
    /// Number of times in a row that another controller named an id.
    losses: u32,
    /// End and length of the time for which the group is left alone.
    rest: Option<(Duration, Duration)>,
}

impl GroupRequests {
    fn hold(&mut self, id: u32, now: Duration) {
        self.held = Some((id, self.held.map_or(now, |(_, since)| since)));
        self.rest = None;
    }
}

impl IdRequests {
    /// Returns a new id for a group whose log has named the id `named`, and records the request. The id is the time `unix`, or
    /// `step` above the highest known id if that is not below the time. Returns `None` if there are no higher ids any more.
    pub fn next(&mut self, group: Group, named: u32, unix: u32, step: u32) -> Option<u32> {
        let requests = self.groups.entry(group).or_default();
        let floor = named.max(requests.asked.back().copied().unwrap_or(0));
        let id = if unix > floor { unix } else { floor.saturating_add(step.max(1)) };
        (id < u32::MAX).then(|| {
            requests.asked.push_back(id);
            if requests.asked.len() > ASKED_MAX {
                requests.asked.pop_front();
            }
            id
        })
    }

    /// Records that a group has taken an id that it was asked for.
    pub fn given(&mut self, group: Group, id: u32, now: Duration) {
        self.groups.entry(group).or_default().hold(id, now);
    }

    /// Takes the state of a group. `seed` makes different controllers wait for different times.
    pub fn see(&mut self, group: Group, known: &Known, now: Duration, seed: u32) {
        let Some(requests) = self.groups.get_mut(&group) else { return };
        match requests.held {
            // A group that was just born of a transaction, for example, has no switch.
            _ if !known.on => (requests.held, requests.rest) = (None, None),
            _ if requests.asked.contains(&known.id) => {
                requests.hold(known.id, now);
                if requests.held.is_some_and(|(_, since)| now >= since + PEACE) {
                    requests.losses = 0;
                }
            }
            Some((held, _)) if known.id > held => {
                let wait = (REST_MIN * (1 << requests.losses.min(16))).min(REST_MAX);
                requests.losses += 1;
                let more = wait / 100 * (seed.wrapping_mul(7).wrapping_add(requests.losses.wrapping_mul(11)) % 26);
                requests.held = None;
                requests.rest = Some((now + wait + more, wait));
            }
            _ => {}
        }
    }

    /// Returns the length of the time for which a group is left alone, if that time is not over.
    pub fn rests(&self, group: Group, now: Duration) -> Option<Duration> {
        let (until, wait) = self.groups.get(&group)?.rest?;
        (now < until).then_some(wait)
    }

    /// Forgets all groups that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&Group) -> bool) {
        self.groups.retain(|group, _| is_there(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_ids_of_its_own() {
        let mut id_requests = IdRequests::default();
        let (one, other) = (Group(1), Group(2));
        assert_eq!(id_requests.next(one, u32::MAX - 2, 100, 1), Some(u32::MAX - 1));
        assert_eq!(id_requests.next(one, 0, 100, 1), None);
        assert_eq!(id_requests.next(other, 0, 100, 3), Some(100));
        assert_eq!(id_requests.next(other, 0, 100, 3), Some(103), "what became of the first is not known");
        assert_eq!(id_requests.next(other, 200, 104, 3), Some(203));
        assert_eq!(id_requests.next(other, 200, 300, 3), Some(300));
        id_requests.retain(|group| *group == other);
        assert_eq!(id_requests.next(one, 5, 100, 1), Some(100));
    }
}
