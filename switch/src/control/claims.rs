//! The ids that groups are asked for.
//!
//! What an id is used for is a *pair* of a partition and an id (rule S1), and a partition is one group's: so ids of different groups
//! need no order between them, and may be the same. Where two groups share a name for a partition, and one follows the other in the
//! tables under one id, [`Spent`](crate::p4rt::ids::Spent) has that pair. An id for a group is above what that group's own log is
//! known to have named, and above all that it was asked for before; so whatever is said of one group costs no other one its ids.

use std::collections::BTreeMap;

use super::word::Group;

/// What each group was asked for.
#[derive(Debug, Default)]
pub struct Claims {
    groups: BTreeMap<Group, Claim>,
}

#[derive(Debug, Default)]
struct Claim {
    /// The highest id that it was asked for.
    highest: u32,
}

impl Claims {
    /// A new id for a group whose log has named this one: the time, or so much above what there was. Asked for from now on.
    /// `None` where there are no higher ids any more.
    pub fn next(&mut self, group: Group, named: u32, unix: u32, step: u32) -> Option<u32> {
        let claim = self.groups.entry(group).or_default();
        let floor = named.max(claim.highest);
        let id = if unix > floor { unix } else { floor.saturating_add(step.max(1)) };
        (id < u32::MAX).then(|| {
            claim.highest = id;
            id
        })
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
