//! Writes on their way through a switch and back, and those that came back and are not chosen: what of its dirty set is a
//! primary's ([`super::offload`]).
//!
//! No more are there at once than the switch has room for, which nobody knows: what finds none is dropped in silence, like what
//! is lost. So that is found out as TCP finds it out. What has not come back is passed again, later each time; where one stays away
//! while others come back, there is no room. Then the primary *lets go* of all numbers of what is not chosen, so that nothing of
//! it is in the dirty set, and passes half as many at once, in order; from then on it tries a few more, and after a while without
//! such trouble many more.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::Key;

use crate::round_trip::RoundTrip;
use crate::time::Time;

/// What has not come back is passed again after this at the earliest, and after this where nothing is known of the way.
const AGAIN_MIN: Duration = Duration::from_millis(2);
const AGAIN_FIRST: Duration = Duration::from_millis(5);
/// What was passed so often, while others came back that were sent later than all but the last of it, has no room. That so many were
/// lost is rare, and does little harm.
const TRIES_WITHOUT_ROOM: u32 = 4;
/// The window grows by an eighth so often, for finding out that it is too large takes a while; and doubles after so long with room
/// for all.
const GROWS_EVERY: Duration = Duration::from_millis(100);
const CALM: Duration = Duration::from_secs(1);

/// A write that has not come back.
#[derive(Clone, Debug)]
struct Away {
    key: Key,
    /// It is proposed when it comes back, and not yet.
    is_held: bool,
    /// When it was sent first, if it was, and last, and before that.
    since: Option<Time>,
    sent: Time,
    before: Time,
    /// How often it was sent.
    tries: u32,
}

/// What a primary has pass.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    /// What is on its way.
    away: BTreeMap<u64, Away>,
    /// What waits for room.
    unsent: BTreeMap<u64, Away>,
    /// The numbers that the switch gave to writes that are not chosen, and those numbers in order.
    numbers: BTreeMap<u64, u64>,
    open: BTreeSet<u64>,
    /// The highest number that came back.
    highest: u64,
    /// So many may be in the dirty set; how many were chosen since it changed, and when that was; when there was no room last.
    window: usize,
    chosen: usize,
    changed: Time,
    full: Time,
    /// Since when numbers were let go of, and none of them was chosen.
    stalled: Option<Time>,
    round_trip: RoundTrip,
    /// When the last was sent of what came back.
    heard: Time,
}

/// What is to be passed: a write's object, and its name.
pub(super) type ToPass = Vec<(u64, Key)>;

impl Default for Passing {
    fn default() -> Passing {
        Passing {
            away: BTreeMap::new(),
            unsent: BTreeMap::new(),
            numbers: BTreeMap::new(),
            open: BTreeSet::new(),
            highest: 0,
            window: usize::MAX,
            chosen: 0,
            changed: Time(0),
            full: Time(0),
            stalled: None,
            round_trip: RoundTrip::default(),
            heard: Time(0),
        }
    }
}

impl Passing {
    /// Nothing is under way, and numbers go on behind this one.
    pub(super) fn behind(highest: u64) -> Passing {
        Passing { highest, ..Passing::default() }
    }

    /// A write is to pass; [`Passing::next`] says when.
    pub(super) fn add(&mut self, n: u64, key: Key, is_held: bool) {
        self.unsent.insert(n, Away::new(key, is_held));
    }

    /// It has not come back: so it is not chosen, whoever has it.
    pub(super) fn is_away(&self, n: u64) -> bool {
        self.away.contains_key(&n) || self.unsent.contains_key(&n)
    }

    /// It has not come back, and is proposed to nobody before it does.
    pub(super) fn is_held(&self, n: u64) -> bool {
        self.away.get(&n).or_else(|| self.unsent.get(&n)).is_some_and(|away| away.is_held)
    }

    /// Those that have not come back and are proposed.
    pub(super) fn proposed(&self) -> impl Iterator<Item = u64> {
        self.away.iter().chain(&self.unsent).filter(|(_, away)| !away.is_held).map(|(n, _)| *n)
    }

    /// Those that came back and are not chosen.
    pub(super) fn numbered(&self) -> impl Iterator<Item = u64> {
        self.numbers.keys().copied()
    }

    /// The highest number that came back.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// The lowest number of what is not chosen.
    pub(super) fn lowest_open(&self) -> Option<u64> {
        self.open.first().copied()
    }

    /// Something came back with this number, which is not void.
    pub(super) fn note(&mut self, number: u64) {
        self.highest = self.highest.max(number);
    }

    /// Something came back that was sent then.
    pub(super) fn note_heard(&mut self, sent: Time, now: Time) {
        self.heard = self.heard.max(sent);
        self.round_trip.took(now.since(sent));
    }

    /// Was this number given to another write than this one, which is not chosen?
    pub(super) fn is_others(&self, number: u64, n: u64) -> bool {
        self.open.contains(&number) && self.numbers.get(&n) != Some(&number)
    }

    /// A write came back with a number that is not void. `None` where it had come back before; else whether it was held.
    pub(super) fn come_back(&mut self, n: u64, number: u64) -> Option<bool> {
        let away = self.away.remove(&n).or_else(|| self.unsent.remove(&n))?;
        self.numbers.insert(n, number);
        self.open.insert(number);
        Some(away.is_held)
    }

    /// It came back with a void number: it is passed again, at once.
    pub(super) fn again(&mut self, n: u64, now: Time) -> ToPass {
        let away = self.away.get_mut(&n);
        away.map(|away| (n, away.send(now))).into_iter().collect()
    }

    /// It is chosen.
    pub(super) fn on_chosen(&mut self, n: u64, now: Time) {
        let Some(number) = self.numbers.remove(&n) else { return };
        self.open.remove(&number);
        self.stalled = None;
        self.chosen += 1;
        if self.chosen >= self.window && now.since(self.changed) >= GROWS_EVERY {
            let is_calm = now.since(self.full) >= CALM;
            let more = if is_calm { self.window } else { (self.window / 8).max(1) };
            (self.window, self.chosen, self.changed) = (self.window.saturating_add(more), 0, now);
        }
    }

    /// What there is room for, in order. One always is on its way: what came back late, after numbers were let go of, may be
    /// chosen behind it alone.
    pub(super) fn next(&mut self, now: Time) -> ToPass {
        let mut next = Vec::new();
        while self.inside() < self.window || self.away.is_empty() {
            let Some((n, mut away)) = self.unsent.pop_first() else { break };
            away.since.get_or_insert(now);
            next.push((n, away.send(now)));
            self.away.insert(n, away);
        }
        next
    }

    /// So many may have a place in the dirty set.
    fn inside(&self) -> usize {
        self.away.len() + self.open.len()
    }

    /// What has been away for so long that it is to be passed again; none waits for longer than `longest` between two times.
    pub(super) fn overdue(&mut self, now: Time, longest: Duration) -> ToPass {
        let first = self.again_first(longest);
        let is_due = |away: &Away| now.since(away.sent) >= away.waits(first, longest);
        let due = self.away.iter_mut().filter(|(_, away)| is_due(away));
        due.map(|(n, away)| (*n, away.send(now))).collect()
    }

    fn again_first(&self, longest: Duration) -> Duration {
        self.round_trip.patience().unwrap_or(AGAIN_FIRST).clamp(AGAIN_MIN, longest.max(AGAIN_MIN))
    }

    /// When [`Passing::overdue`] has something next.
    pub(super) fn next_timeout(&self, longest: Duration) -> Time {
        let first = self.again_first(longest);
        let due = self.away.values().map(|away| away.sent + away.waits(first, longest));
        due.min().unwrap_or(Time::NEVER)
    }

    /// Does one stay away while others come back?
    pub(super) fn has_no_room(&self) -> bool {
        self.away.values().any(|away| away.tries >= TRIES_WITHOUT_ROOM && self.heard > away.before)
    }

    /// Since when nothing gets on: the first of those that are away was sent then, or numbers were let go of and none was chosen since.
    pub(super) fn stuck_since(&self) -> Option<Time> {
        let first = self.away.values().next()?;
        first.since.into_iter().chain(self.stalled).min()
    }

    /// All numbers of what is not chosen are void from now on, and it has not come back. What passes again is no more than what
    /// had room, and half as much at most.
    pub(super) fn let_go(&mut self, now: Time, key_of: impl Fn(u64) -> Key) {
        let window = self.open.len().min(self.inside() / 2).max(1);
        (self.window, self.chosen, self.changed, self.full) = (window, 0, now, now);
        self.stalled.get_or_insert(now);
        self.open.clear();
        for n in core::mem::take(&mut self.numbers).into_keys() {
            self.add(n, key_of(n), false);
        }
        for (n, away) in core::mem::take(&mut self.away) {
            self.add(n, away.key, away.is_held);
        }
    }

    /// No switch is passed any more: those that were held.
    pub(super) fn end(&mut self) -> Vec<u64> {
        self.numbers.clear();
        self.open.clear();
        self.away.append(&mut self.unsent);
        let away = core::mem::take(&mut self.away).into_iter();
        away.filter(|(_, away)| away.is_held).map(|(n, _)| n).collect()
    }
}

impl Away {
    fn new(key: Key, is_held: bool) -> Away {
        Away { key, is_held, since: None, sent: Time(0), before: Time(0), tries: 0 }
    }

    fn send(&mut self, now: Time) -> Key {
        (self.before, self.sent, self.tries) = (self.sent, now, self.tries + 1);
        self.key.clone()
    }

    /// How long it is waited for until it is passed once more.
    fn waits(&self, first: Duration, longest: Duration) -> Duration {
        (first * (1 << (self.tries - 1).min(16))).min(longest.max(AGAIN_MIN))
    }
}
