//! Expired values are deleted by the primary of their sub-range, by writes like any other. A read of an expired value finds nothing, deleted or
//! not: this only makes room.

use alloc::vec::Vec;
use core::time::Duration;

use overlay::Key;

use super::primary::{Local, Primary};
use super::writes::is_expired;
use crate::context::Context;
use crate::time::Time;

/// Keys that are looked at together.
const PAGE_KEYS: usize = 512;
/// Between two pages of a sub-range in which something expires.
const PAGE_EVERY: Duration = Duration::from_millis(100);
/// Between two pages of a sub-range in which nothing does: few stores have values that expire, and an idle one should sleep.
const REST: Duration = Duration::from_secs(1);

/// How far the search of one sub-range for expired values has come.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    /// The last key of the last page; `None` where the next page is the first of a pass.
    after: Option<Key>,
    /// When the last page was looked at.
    at: Time,
    /// This pass has found a value that expires some time.
    finds: bool,
    /// The last pass found none, and nothing that expires has come since.
    rests: bool,
    /// The count of [`crate::table::Table::expiring`] at the last page.
    known: u64,
}

impl Sweep {
    pub(super) fn new(now: Time) -> Sweep {
        Sweep { after: None, at: now, finds: false, rests: false, known: 0 }
    }

    /// When the next page is due.
    fn due(&self) -> Time {
        self.at + if self.rests { REST } else { PAGE_EVERY }
    }

    /// A page was looked at: its last key, or that there were none left, and whether one of its values expires some time. `come`: how many
    /// records that expire have come to the member.
    fn on_page(&mut self, last: Option<Key>, expires: bool, come: u64) {
        if expires || core::mem::replace(&mut self.known, come) != come {
            (self.finds, self.rests) = (true, false);
        }
        if last.is_none() {
            self.rests = !core::mem::take(&mut self.finds);
        }
        self.after = last;
    }
}

impl Primary {
    /// Looks at the next page of the sub-range, where that is due.
    pub(super) fn sweep_expired(&mut self, ctx: &mut Context<'_>, local: &mut Local<'_>) {
        if ctx.now.time < self.next_sweep() {
            return;
        }
        self.sweep.at = ctx.now.time;
        if !self.stalled.is_empty() {
            return; // They would only wait behind others.
        }
        let (mut expired, mut last, mut expires) = (Vec::new(), None, false);
        for (key, record) in local.table.scan(self.range, self.sweep.after.as_ref()).take(PAGE_KEYS) {
            expires |= record.deadline.is_some();
            if is_expired(record, local.group_time) {
                expired.push(key.clone());
            }
            last = Some(key);
        }
        let last = last.cloned();
        self.sweep.on_page(last, expires, local.table.expiring());
        for key in expired {
            self.keys.entry(key.clone()).or_default().expire = true;
            self.run(ctx, local, &key);
        }
    }

    /// When the next page is due.
    pub(super) fn next_sweep(&self) -> Time {
        if self.is_serving() { self.sweep.due() } else { Time::NEVER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages follow each other quickly until a whole pass has found nothing that expires, and again once something that does has come, however
    /// it came: it may lie before the page.
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
