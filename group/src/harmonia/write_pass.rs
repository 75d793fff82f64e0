//! Writes in flight through a switch, and writes that came back and are not chosen: a primary's share of the dirty set
//! ([`crate::harmonia::offload`]).
//!
//! The primary has no more writes there at once than the switch has room for. It does not know that room: a write that finds none is
//! dropped without an answer, like a lost packet. So the primary measures the room as TCP measures capacity. It passes a write that has not
//! come back again, with growing pauses. Where one write stays away while other writes come back, there is no room. Then the primary *lets
//! go* of the numbers of all writes that are not chosen, so that none of them is in the dirty set. It passes half as many at once, in
//! order. From then on it tries a few more, and after a while without such trouble many more.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use overlay::Key;

use crate::control::liveness::round_trip::RoundTrip;
use overlay::time::Time;

/// Least time after which a write that has not come back is passed again, and the time where no round trip is known yet.
const AGAIN_MIN: Duration = Duration::from_millis(2);
const AGAIN_FIRST: Duration = Duration::from_millis(5);
/// Number of tries after which a write has no room, if packets came back that were sent later than all its tries but the last. So many
/// losses by chance are rare, and do little harm.
const TRIES_WITHOUT_ROOM: u32 = 4;
/// Least time between two steps by which the window grows, because it takes a while to find out that a window is too large. A step adds an
/// eighth, or doubles the window once `CALM` has passed with room for all writes.
const GROWS_EVERY: Duration = Duration::from_millis(100);
const CALM: Duration = Duration::from_secs(1);

/// Write that has not come back.
#[derive(Clone, Debug)]
struct Away {
    key: Key,
    /// Whether the write is proposed only when it comes back.
    is_held: bool,
    /// Times of the first pass, if there was one, of the last, and of the one before the last.
    since: Option<Time>,
    sent: Time,
    before: Time,
    /// Number of passes.
    tries: u32,
}

/// Writes of one primary that pass a switch.
#[derive(Clone, Debug)]
pub(crate) struct WritePasses {
    /// Writes in flight through the switch, by their numbers `n`.
    away: BTreeMap<u64, Away>,
    /// Writes that wait for room.
    unsent: BTreeMap<u64, Away>,
    /// Numbers that the switch gave to writes that are not chosen, and the same numbers in order.
    numbers: BTreeMap<u64, u64>,
    open: BTreeSet<u64>,
    /// Highest number that came back.
    highest: u64,
    /// Upper limit of writes in the dirty set; writes chosen since it changed; time of that change; time of the last lack of room.
    window: usize,
    chosen: usize,
    changed: Time,
    full: Time,
    /// Time at which numbers were let go of, if none of those writes was chosen since.
    stalled: Option<Time>,
    round_trip: RoundTrip,
    /// Time of sending of the latest packet that came back.
    heard: Time,
}

/// Packets to pass: the number `n` of a write, and its object.
pub(crate) type NextPass = Vec<(u64, Key)>;

impl Default for WritePasses {
    fn default() -> WritePasses {
        WritePasses {
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

impl WritePasses {
    /// Returns a state with no write in flight, in which numbers continue after this one.
    pub(crate) fn behind(highest: u64) -> WritePasses {
        WritePasses { highest, ..WritePasses::default() }
    }

    /// Adds a write that is to pass; [`WritePasses::next`] determines when.
    pub(crate) fn add(&mut self, n: u64, key: Key, is_held: bool) {
        self.unsent.insert(n, Away::new(key, is_held));
    }

    /// Returns whether a write has not come back: then it is not chosen, even if a quorum has it.
    pub(crate) fn is_away(&self, n: u64) -> bool {
        self.away.contains_key(&n) || self.unsent.contains_key(&n)
    }

    /// Returns whether a write has not come back, and is proposed to no member before it does.
    pub(crate) fn is_held(&self, n: u64) -> bool {
        self.away.get(&n).or_else(|| self.unsent.get(&n)).is_some_and(|away| away.is_held)
    }

    /// Returns the writes that have not come back and are proposed.
    pub(crate) fn proposed(&self) -> impl Iterator<Item = u64> {
        self.away.iter().chain(&self.unsent).filter(|(_, away)| !away.is_held).map(|(n, _)| *n)
    }

    /// Returns the writes that came back and are not chosen.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = u64> {
        self.numbers.keys().copied()
    }

    /// Returns the highest number that came back.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Returns the lowest number of a write that is not chosen.
    pub(crate) fn lowest_open(&self) -> Option<u64> {
        self.open.first().copied()
    }

    /// Notes that a packet came back with this number, which is not void.
    pub(crate) fn note(&mut self, number: u64) {
        self.highest = self.highest.max(number);
    }

    /// Notes that a packet came back that was sent at `sent`.
    pub(crate) fn note_heard(&mut self, sent: Time, now: Time) {
        self.heard = self.heard.max(sent);
        self.round_trip.took(now.since(sent));
    }

    /// Returns whether this number was given to another write than `n`, and that write is not chosen.
    pub(crate) fn is_others(&self, number: u64, n: u64) -> bool {
        self.open.contains(&number) && self.numbers.get(&n) != Some(&number)
    }

    /// Takes a write that came back with a number that is not void. Returns `None` where it had come back before, and otherwise whether it
    /// was held.
    pub(crate) fn come_back(&mut self, n: u64, number: u64) -> Option<bool> {
        let away = self.away.remove(&n).or_else(|| self.unsent.remove(&n))?;
        self.numbers.insert(n, number);
        self.open.insert(number);
        Some(away.is_held)
    }

    /// Passes a write again at once: it came back with a void number.
    pub(crate) fn again(&mut self, n: u64, now: Time) -> NextPass {
        let away = self.away.get_mut(&n);
        away.map(|away| (n, away.send(now))).into_iter().collect()
    }

    /// Notes that a write is chosen.
    pub(crate) fn on_chosen(&mut self, n: u64, now: Time) {
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

    /// Returns the writes for which there is room, in order. One write always is in flight: a write that came back late, after numbers were
    /// let go of, may become chosen only behind it.
    pub(crate) fn next(&mut self, now: Time) -> NextPass {
        let mut next = Vec::new();
        while self.inside() < self.window || self.away.is_empty() {
            let Some((n, mut away)) = self.unsent.pop_first() else { break };
            away.since.get_or_insert(now);
            next.push((n, away.send(now)));
            self.away.insert(n, away);
        }
        next
    }

    /// Returns the number of writes that may have a place in the dirty set.
    fn inside(&self) -> usize {
        self.away.len() + self.open.len()
    }

    /// Returns the writes that have been away for so long that they are passed again; the pause between two passes is at most `longest`.
    pub(crate) fn overdue(&mut self, now: Time, longest: Duration) -> NextPass {
        let first = self.again_first(longest);
        let is_due = |away: &Away| now.since(away.sent) >= away.waits(first, longest);
        let due = self.away.iter_mut().filter(|(_, away)| is_due(away));
        due.map(|(n, away)| (*n, away.send(now))).collect()
    }

    fn again_first(&self, longest: Duration) -> Duration {
        self.round_trip.patience().unwrap_or(AGAIN_FIRST).clamp(AGAIN_MIN, longest.max(AGAIN_MIN))
    }

    /// Returns when [`WritePasses::overdue`] has a write next.
    pub(crate) fn next_timeout(&self, longest: Duration) -> Time {
        let first = self.again_first(longest);
        let due = self.away.values().map(|away| away.sent + away.waits(first, longest));
        due.min().unwrap_or(Time::NEVER)
    }

    /// Returns whether one write stays away while packets sent later come back.
    pub(crate) fn has_no_room(&self) -> bool {
        self.away.values().any(|away| away.tries >= TRIES_WITHOUT_ROOM && self.heard > away.before)
    }

    /// Returns since when there is no progress: the first pass of the first write that is away, or the time at which numbers were let go
    /// of, if no write was chosen since.
    pub(crate) fn stuck_since(&self) -> Option<Time> {
        let first = self.away.values().next()?;
        first.since.into_iter().chain(self.stalled).min()
    }

    /// Voids all numbers of writes that are not chosen: these writes count as not come back. The new window is at most the number of writes
    /// that had room, and at most half of the writes inside.
    pub(crate) fn release(&mut self, now: Time, key_of: impl Fn(u64) -> Key) {
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

    /// Ends the passes of writes. Returns those that were held.
    pub(crate) fn end(&mut self) -> Vec<u64> {
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

    /// Returns the pause until the write is passed once more.
    fn waits(&self, first: Duration, longest: Duration) -> Duration {
        (first * (1 << (self.tries - 1).min(16))).min(longest.max(AGAIN_MIN))
    }
}
