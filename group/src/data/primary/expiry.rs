//! Deletion of expired values by the primary of their sub-range, by ordinary writes. A read of an expired value finds nothing, deleted or
//! not: the deletion only makes room.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::{Key, KeyRange};

use crate::data::primary::Local;
use crate::data::primary::writes::is_expired;
use overlay::time::Time;

/// Number of keys that are checked together.
const PAGE_KEYS: usize = 512;
/// Pause between two pages of a sub-range in which values expire.
const PAGE_EVERY: Duration = Duration::from_millis(100);
/// Pause between two pages of a sub-range in which no value expires: few stores have values that expire, and an idle store should sleep.
const REST: Duration = Duration::from_secs(1);

/// Progress of the search of one sub-range for expired values.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    /// Last key of the last page; `None` where the next page is the first of a pass.
    after: Option<Key>,
    /// Time of the last page.
    pub(crate) at: Time,
    /// Whether this pass has found a value that expires some time.
    finds: bool,
    /// Whether the last pass found no such value, and none has come since.
    rests: bool,
    /// Count of [`crate::data::table::Table::expiring`] at the last page.
    known: u64,
}

impl Sweep {
    pub(crate) fn new(now: Time) -> Sweep {
        Sweep { after: None, at: now, finds: false, rests: false, known: 0 }
    }

    /// Returns when the next page is due.
    pub(crate) fn due(&self) -> Time {
        self.at + if self.rests { REST } else { PAGE_EVERY }
    }

    /// Notes a page: its last key, or `None` at the end of the sub-range, and whether one of its values expires some time. `come`: the
    /// number of records that expire and have come to the member.
    fn on_page(&mut self, last: Option<Key>, expires: bool, come: u64) {
        if expires || core::mem::replace(&mut self.known, come) != come {
            (self.finds, self.rests) = (true, false);
        }
        if last.is_none() {
            self.rests = !core::mem::take(&mut self.finds);
        }
        self.after = last;
    }

    /// Checks the next page of a sub-range. Returns the keys with values that have expired.
    pub(crate) fn look(&mut self, local: &Local<'_>, range: KeyRange) -> Vec<Key> {
        let (mut expired, mut last, mut expires) = (Vec::new(), None, false);
        for (key, record) in local.table.scan(range, self.after.as_ref()).take(PAGE_KEYS) {
            expires |= record.deadline.is_some();
            if is_expired(record, local.group_time) {
                expired.push(key.clone());
            }
            last = Some(key);
        }
        let last = last.cloned();
        self.on_page(last, expires, local.table.expiring());
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages follow each other quickly until a whole pass has found no value that expires. They are quick again once such a value has come
    /// by any way, because it may lie before the page.
    #[test]
    fn a_sub_range_in_which_nothing_expires_is_looked_at_seldom() {
        let key = Some(Key::new(b"a").expect("a short key"));
        let mut sweep = Sweep::new(Time(0));
        let mut pause = |last: &Option<Key>, expires, come| {
            sweep.on_page(last.clone(), expires, come);
            sweep.due().since(sweep.at)
        };
        assert_eq!([pause(&key, true, 1), pause(&None, false, 1)], [PAGE_EVERY; 2], "this pass found one");
        assert_eq!([pause(&key, false, 1), pause(&None, false, 1)], [PAGE_EVERY, REST]);
        assert_eq!([pause(&key, false, 2), pause(&None, false, 2)], [PAGE_EVERY; 2], "one has come");
        assert_eq!([pause(&key, false, 2), pause(&None, false, 2)], [PAGE_EVERY, REST]);
    }
}
