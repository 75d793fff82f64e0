//! The ids that groups are asked for.
//!
//! What an id is used for is a *pair* of a partition and an id (rule S1), and a partition is one group's: so ids of different groups
//! need no order between them, and may be the same. Where two groups share a name for a partition, and one follows the other in the
//! tables under one id, [`Spent`](crate::p4rt::ids::Spent) has that pair. An id for a group is above what that group's own log is
//! known to have named, and above all that it was asked for before; so whatever is said of one group costs no other one its ids.
//!
//! # Two controllers of one group
//! A group has one switch. Where controllers of two want it to be theirs, each would have it name its own id as soon as it saw the
//! other's, and each new id costs the group a wait for what it granted. So whoever had an id in a group's log, and sees one there
//! that it did not ask for, leaves the group alone for a while, and each time for twice as long, until its own has stood for longer
//! than the other one can have waited. Who had none there, as after a restart, does not wait; nor does a group that uses no switch.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::word::{Group, Known};

/// A group that another controller has named an id for is left alone for so long, and then for twice as long each time.
const REST_MIN: Duration = Duration::from_secs(5);
/// But never longer than this, and a quarter.
const REST_MAX: Duration = Duration::from_secs(300);
/// Where an id has stood for so long, nobody waits to name another.
const PEACE: Duration = Duration::from_secs(600);
/// So many ids that a group was asked for are remembered: what became of the last ones need not be known.
const ASKED_MAX: usize = 8;

/// What each group was asked for.
#[derive(Debug, Default)]
pub struct Claims {
    groups: BTreeMap<Group, Claim>,
}

#[derive(Debug, Default)]
struct Claim {
    /// What it was asked for last, the highest at the end.
    asked: VecDeque<u32>,
    /// The last of these that its log has named, and since when the log names such.
    held: Option<(u32, Duration)>,
    /// So many times in a row somebody else named another.
    losses: u32,
    /// Until then, and for how long, it is left alone.
    rest: Option<(Duration, Duration)>,
}

impl Claim {
    fn hold(&mut self, id: u32, now: Duration) {
        self.held = Some((id, self.held.map_or(now, |(_, since)| since)));
        self.rest = None;
    }
}

impl Claims {
    /// A new id for a group whose log has named this one: the time, or so much above what there was. Asked for from now on.
    /// `None` where there are no higher ids any more.
    pub fn next(&mut self, group: Group, named: u32, unix: u32, step: u32) -> Option<u32> {
        let claim = self.groups.entry(group).or_default();
        let floor = named.max(claim.asked.back().copied().unwrap_or(0));
        let id = if unix > floor { unix } else { floor.saturating_add(step.max(1)) };
        (id < u32::MAX).then(|| {
            claim.asked.push_back(id);
            if claim.asked.len() > ASKED_MAX {
                claim.asked.pop_front();
            }
            id
        })
    }

    /// A group has taken an id that it was asked for.
    pub fn given(&mut self, group: Group, id: u32, now: Duration) {
        self.groups.entry(group).or_default().hold(id, now);
    }

    /// A group is known like this. `seed`: different controllers do not wait for equally long.
    pub fn see(&mut self, group: Group, known: &Known, now: Duration, seed: u32) {
        let Some(claim) = self.groups.get_mut(&group) else { return };
        match claim.held {
            // What is born of a group, say, has no switch.
            _ if !known.on => (claim.held, claim.rest) = (None, None),
            _ if claim.asked.contains(&known.id) => {
                claim.hold(known.id, now);
                if claim.held.is_some_and(|(_, since)| now >= since + PEACE) {
                    claim.losses = 0;
                }
            }
            Some((held, _)) if known.id > held => {
                let wait = (REST_MIN * (1 << claim.losses.min(16))).min(REST_MAX);
                claim.losses += 1;
                let more = wait / 100 * (seed.wrapping_mul(7).wrapping_add(claim.losses.wrapping_mul(11)) % 26);
                claim.held = None;
                claim.rest = Some((now + wait + more, wait));
            }
            _ => {}
        }
    }

    /// For how long a group is left alone, if it still is.
    pub fn rests(&self, group: Group, now: Duration) -> Option<Duration> {
        let (until, wait) = self.groups.get(&group)?.rest?;
        (now < until).then_some(wait)
    }

    /// All other groups are gone.
    pub fn retain(&mut self, is_there: impl Fn(&Group) -> bool) {
        self.groups.retain(|group, _| is_there(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_ids_of_its_own() {
        let mut claims = Claims::default();
        let (one, other) = (Group(1), Group(2));
        assert_eq!(claims.next(one, u32::MAX - 2, 100, 1), Some(u32::MAX - 1));
        assert_eq!(claims.next(one, 0, 100, 1), None);
        assert_eq!(claims.next(other, 0, 100, 3), Some(100));
        assert_eq!(claims.next(other, 0, 100, 3), Some(103), "what became of the first is not known");
        assert_eq!(claims.next(other, 200, 104, 3), Some(203));
        assert_eq!(claims.next(other, 200, 300, 3), Some(300));
        claims.retain(|group| *group == other);
        assert_eq!(claims.next(one, 5, 100, 1), Some(100));
    }
}
