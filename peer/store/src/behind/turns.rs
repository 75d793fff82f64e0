//! The schedule of the write-behind: its work, its rests, and its reports.
//!
//! It lets changes gather, so that a record that changes often is written once. Then it writes them in portions and rests after
//! each portion: in one go, the sweep would take a core from clients for seconds. When commits would soon have to wait for it,
//! it works without a rest.

use std::time::{Duration, Instant};

use environment::Seldom;

use crate::behind::{Behind, Progress};
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::room::{Gauge, Room, Shortage};
use crate::table::rebuild::{Copied, Size, is_in_vain, pays};
use crate::thread::{StoreEvent, StoreReporter};

/// Interval of the checks without a call, and of measuring the room.
const TICK: Duration = Duration::from_millis(500);
/// Time after which the gathered changes are written, in any amount.
const GATHER_MAX: Duration = Duration::from_secs(30);
/// The same time while room is low: deleted records make room.
const GATHER_LOW: Duration = Duration::from_secs(1);
/// Free bytes of the volume that a sweep needs to begin or go on, if it can wait. sled takes its file's room in pieces of 512
/// KiB, and a flush that finds no room ends the store.
const SWEEP_FREE: u64 = 4 << 20;
/// Additional free room that a sweep needs, as a multiple of the bytes to be written.
const SWEEP_TIMES: u64 = 4;
/// Longest rest, as a multiple of the time that the portion before it took.
const REST: u32 = 4;
/// The same for a rebuild of the table while room is low: writes are refused until the rebuild is done.
const REST_LOW: u32 = 1;
/// Time between a rebuild that was given up and the next one, doubled each time: a sled that failed stays in memory.
const REBUILD_AGAIN: Duration = Duration::from_secs(600);

/// Whether the write-behind keeps up, as it was last reported.
struct BehindLoad {
    most: usize,
    is_behind: bool,
}

impl BehindLoad {
    /// Reports a change for `bytes` waiting bytes. Once behind, the write-behind is so until a quarter less than the limit
    /// waits.
    fn tell(&mut self, bytes: usize, report: &StoreReporter) {
        let most = if self.is_behind { self.most / 4 * 3 } else { self.most };
        let is_behind = bytes > most;
        if std::mem::replace(&mut self.is_behind, is_behind) != is_behind {
            report.tell_all(StoreEvent::Behind(is_behind));
        }
    }
}

/// State of the write-behind's thread.
pub(crate) struct Turns<'a> {
    behind: Behind,
    gauge: Gauge,
    config: StoreConfig,
    report: &'a StoreReporter,
    load: BehindLoad,
    /// Whether room on the disk is low, as it was last reported.
    low: Option<Shortage>,
    /// The room as it was last measured.
    room: Option<Room>,
    /// The sizes after the last rebuild.
    fresh: Option<Size>,
    /// Free bytes when the present rebuild began.
    free: u64,
    /// The count of given-up rebuilds at the last look, their number since the last complete rebuild, and the time of the last.
    given_up: (u64, u32, Option<Instant>),
    /// Time of the last measurement of the room.
    measured: Option<Instant>,
    /// Failures of that measurement.
    unmeasured: Seldom,
    /// End of the last sweep.
    swept: Instant,
}

impl Turns<'_> {
    pub(crate) fn new(behind: Behind, gauge: Gauge, config: StoreConfig, report: &StoreReporter) -> Turns<'_> {
        let load = BehindLoad { most: config.behind_max(), is_behind: false };
        Turns {
            behind,
            gauge,
            config,
            report,
            load,
            low: None,
            room: None,
            fresh: None,
            free: 0,
            given_up: (0, 0, None),
            measured: None,
            unmeasured: Seldom::default(),
            swept: Instant::now(),
        }
    }

    /// Works until the store fails or stops.
    pub(crate) fn work(mut self) -> Behind {
        let (mark, backlog_max) = (self.config.behind_mark(), self.config.checkpoint_bytes);
        loop {
            let worked = self.turn();
            let Some(rest) = self.report.value(worked) else { return self.behind };
            if !self.behind.pending.wait_for_work(mark, backlog_max, rest) {
                return self.behind;
            }
        }
    }

    /// Does the work that is due, and returns the time to rest after it.
    fn turn(&mut self) -> Result<Duration, StoreError> {
        self.look_round()?;
        let (bytes, _) = self.behind.pending.sizes();
        let gather_max = if self.low.is_some() { GATHER_LOW } else { GATHER_MAX };
        let old = bytes > 0 && self.swept.elapsed() >= gather_max;
        let began = Instant::now();
        if (self.is_pressing() || old) && !self.sweep()? {
            return Ok(TICK);
        }
        self.load.tell(self.behind.pending.load(self.config.pending_bytes_max), self.report);
        // Also where one sweep follows another.
        self.rebuild((began.elapsed() / REST).min(TICK))
    }

    /// Returns whether so many bytes wait that they must be written, even with little room.
    fn is_pressing(&self) -> bool {
        let (bytes, backlog) = self.behind.pending.sizes();
        // Each start takes a segment, even if it writes little: repeated starts must not fill the disk.
        let segments_max = self.config.checkpoint_bytes / self.config.segment_bytes + 2;
        let chain = self.behind.chain.len() as u64;
        bytes >= self.config.behind_mark() || backlog >= self.config.checkpoint_bytes || chain > segments_max
    }

    /// Returns whether a sweep finds the room that it takes on the volume, as far as that is known. A store that does not sweep
    /// continues for long on a full volume: its journal has its room already.
    fn has_room_to_sweep(&self) -> bool {
        let low = self.config.low_bytes.unwrap_or(u64::MAX);
        let needed = SWEEP_FREE.min(low / 2) + SWEEP_TIMES * self.behind.pending.sizes().0 as u64;
        self.room.is_none_or(|room| room.free >= needed)
    }

    /// Copies the table into a new one, where that pays or is under way: at least one portion, and more portions for `share`.
    /// Returns the time to rest.
    fn rebuild(&mut self, share: Duration) -> Result<Duration, StoreError> {
        self.note_given_up();
        if self.behind.pending.is_ended() {
            return Ok(TICK);
        }
        if self.behind.rebuild.is_none() {
            // Records that were dropped meanwhile need not be copied.
            if !self.is_rebuild_due() || !self.sweep()? {
                return Ok(TICK);
            }
            self.free = self.room.map_or(0, |room| room.free);
        }
        let (began, rebuilds) = (Instant::now(), self.behind.pending.stats().rebuilds);
        let copied = loop {
            self.behind.current.get().give_way();
            let copied = self.behind.rebuild(self.config.behind_bytes)?;
            self.look_round()?;
            let goes_on = copied == Copied::More && self.behind.rebuild.is_some();
            if !goes_on || began.elapsed() >= share || self.behind.pending.is_ended() {
                break copied;
            }
        };
        let times = if self.low.is_some() { REST_LOW } else { REST };
        let rest = (began.elapsed() * times).min(TICK);
        if copied == Copied::All {
            self.sweep()?;
        }
        if self.behind.pending.stats().rebuilds > rebuilds {
            self.note_rebuilt();
        }
        Ok(rest)
    }

    fn is_rebuild_due(&self) -> bool {
        let (_, times, last) = self.given_up;
        let again = REBUILD_AGAIN.saturating_mul(1 << times.saturating_sub(1).min(16));
        let waits = last.is_some_and(|last| last.elapsed() < again) || self.behind.former.is_some();
        !waits && self.room.is_some_and(|room| pays(&room, self.held(), self.fresh))
    }

    /// Notes whether a rebuild was given up.
    fn note_given_up(&mut self) {
        let all = self.behind.pending.stats().given_up;
        if self.given_up.0 < all {
            self.given_up = (all, self.given_up.1 + 1, Some(Instant::now()));
        }
    }

    /// Returns the bytes that the table holds.
    fn held(&self) -> u64 {
        self.behind.current.get().stands().1.bytes
    }

    /// Logs and keeps the result of a rebuild.
    fn note_rebuilt(&mut self) {
        let before = self.room.map(|room| room.table);
        self.behind.remove_former();
        self.measure();
        let Some(now) = self.room.map(|room| room.table) else { return };
        tracing::info!(before, now, "the store's table takes several times the bytes of its records: it is rebuilt");
        self.fresh = Some(Size { files: now, held: self.held() });
        self.given_up = (self.given_up.0, 0, None);
    }

    /// Gives up a rebuild that takes more room than there is.
    fn watch_rebuild(&mut self, room: &Room) -> Result<(), StoreError> {
        let why = self.behind.new_bytes()?.and_then(|new| is_in_vain(room, new, self.free));
        why.into_iter().for_each(|why| self.behind.give_up(why));
        Ok(())
    }

    /// Writes the changes that are gathered by now, in portions, and makes a checkpoint. Returns whether it came to its end. At
    /// the store's end it stops early: the caller that seals the store decides how much longer that may take. It also stops
    /// where the volume has no room for it.
    fn sweep(&mut self) -> Result<bool, StoreError> {
        loop {
            if !self.is_pressing() && !self.has_room_to_sweep() {
                return Ok(false);
            }
            self.load.tell(self.behind.pending.load(self.config.pending_bytes_max), self.report);
            self.behind.current.get().give_way();
            let began = Instant::now();
            let progress = self.behind.step(self.config.behind_bytes)?;
            let pending = &self.behind.pending;
            let goes_on = match progress {
                Progress::Done => break,
                Progress::More => {
                    let (bytes_max, backlog_max) = self.config.pressing();
                    pending.wait_for_work(bytes_max, backlog_max, (began.elapsed() * REST).min(TICK))
                }
                Progress::Waits(batch) => pending.wait_for_durable(batch, TICK),
            };
            if !goes_on {
                return Ok(false);
            }
            self.look_round()?;
        }
        self.swept = Instant::now();
        Ok(true)
    }

    /// Does the tasks that may be due at any time: the journal's next segment, a sorted index, a report of low room. Also frees
    /// the batches of which only the newest states are needed.
    fn look_round(&mut self) -> Result<(), StoreError> {
        let segments = 2 * self.config.segment_bytes;
        if self.room.is_none_or(|room| room.free >= segments) {
            self.behind.prepare()?;
        } else {
            self.behind.remove_former();
        }
        self.behind.take_in();
        if self.measured.is_none_or(|last| last.elapsed() >= TICK) {
            self.measured = Some(Instant::now());
            self.measure();
        }
        Ok(())
    }

    fn measure(&mut self) {
        let measured = self.behind.beside().and_then(|beside| self.gauge.read(beside));
        let measured = measured.and_then(|room| self.watch_rebuild(&room).map(|()| room));
        self.room = measured.as_ref().ok().copied();
        let room = match measured {
            Ok(room) => room,
            // No durable state depends on it.
            Err(error) => {
                if let Some(failures) = self.unmeasured.failed(Instant::now()) {
                    tracing::warn!(%error, failures, "the free space on the disk cannot be measured");
                }
                return;
            }
        };
        self.behind.pending.meters.used(room.used);
        if std::mem::replace(&mut self.low, room.low) == room.low {
            return;
        }
        let (free, used) = (room.free, room.used);
        match room.low {
            Some(Shortage::Volume) => tracing::warn!(
                free,
                used,
                "the disk is nearly full: other members take over this peer's primary ranges, and writes get -OOM \
                where none has room"
            ),
            Some(Shortage::Given) => tracing::warn!(
                free,
                used,
                "the store has reached --max-disk: other members take over this peer's primary ranges, and writes get \
                -OOM where none has room"
            ),
            None => tracing::info!(free, used, "the store has room again: this peer accepts writes"),
        }
        self.report.tell_all(StoreEvent::DiskLow(room.low));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use node::Change;

    use super::*;
    use crate::sim::SimDisk;
    use crate::{Engine, StoreConfig};

    /// The caller that seals the store sets how long that may take, not the sweep that is under way.
    #[test]
    fn a_sweep_is_left_at_the_end_of_the_store() {
        let disk = SimDisk::new();
        let config = StoreConfig { behind_bytes: 1000, salt: Some(1), ..StoreConfig::default() };
        let (mut engine, _) = Engine::open(Arc::new(disk.clone()), disk.tables(), &config).expect("opens");
        let put = |number: u32| Change::PutRecord(number.to_string().into(), Bytes::from_static(&[7; 100]));
        engine.append((0..100).map(|number| vec![put(number)])).expect("appends");
        let Engine { config, behind, gauge, view, mut writer, lock: _lock } = engine;
        let report = StoreReporter::new(|_, _| (), view.pending.clone());
        view.pending.end();
        let mut turns = Turns::new(behind, gauge, config, &report);
        assert!(!turns.sweep().expect("works"));
        let mut behind = turns.behind;
        assert!(!behind.is_level() && behind.step(1).expect("works") == Progress::More, "much is left of it");
        while behind.step(usize::MAX).expect("works") != Progress::Done {}
        assert!(behind.is_level());
        writer.seal().expect("seals");
    }
}
