//! Periods in which a condition holds for groups.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use overlay::GroupId;
use overlay::time::Time;

use crate::churn::quantiles;

/// Periods in which a condition held for groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spells {
    /// Share of these periods in the time of all groups, from 0 to 1.
    pub share: f64,
    /// Length of each period that is over, to a second.
    pub each: Vec<Duration>,
}

impl fmt::Display for Spells {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, p99] = quantiles(&self.each, [0.5, 0.99]);
        let longest = self.each.iter().max().copied().unwrap_or_default();
        write!(
            out,
            "{:.1} % of the time, for {median:.0?} at the median, {p99:.0?} for 99 %, {longest:.0?} at most",
            self.share * 100.0
        )
    }
}

/// Watches for a condition, one look at each group at a time.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Groups for which the condition holds, and since when.
    since: BTreeMap<GroupId, Time>,
    /// Lengths of the periods that are over.
    over: Vec<Duration>,
    /// Groups for which the condition held, summed over all looks that count.
    sum: u64,
}

impl Watch {
    /// Looks at a group. `counts`: whether this look is part of the figures.
    pub(super) fn look(&mut self, id: GroupId, is_true: bool, now: Time, counts: bool) {
        if is_true {
            self.since.entry(id).or_insert(now);
            self.sum += u64::from(counts);
        } else if let Some(since) = self.since.remove(&id)
            && counts
        {
            self.over.push(now.since(since));
        }
    }

    /// Ends the times of groups that are no more.
    pub(super) fn end_without(&mut self, is_group: impl Fn(&GroupId) -> bool, now: Time, counts: bool) {
        let ended = self.since.extract_if(.., |id, _| !is_group(id)).map(|(_, since)| now.since(since));
        if counts {
            self.over.extend(ended);
        } else {
            ended.for_each(drop);
        }
    }

    /// Returns the observed periods, where groups were looked at `looks` times in all.
    pub(super) fn spells(&self, looks: u64) -> Spells {
        Spells { share: self.sum as f64 / looks.max(1) as f64, each: self.over.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spells_begin_and_end() {
        let (mut watch, id) = (Watch::default(), |id| GroupId(id));
        let at = |seconds| Time(0) + Duration::from_secs(seconds);
        for second in 0..10 {
            watch.look(id(1), (3..7).contains(&second), at(second), second >= 5);
            watch.look(id(2), true, at(second), second >= 5);
        }
        watch.end_without(|other| *other == id(1), at(10), true);
        let spells = watch.spells(10);
        assert_eq!((spells.share, spells.each), (0.7, [4, 10].map(Duration::from_secs).to_vec()));
        assert!(watch.since.is_empty());
    }
}
