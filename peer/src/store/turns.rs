//! When the write-behind works, when it rests, and what it says of it.
//!
//! It lets changes gather, so that a record that is changed often is written once; then it writes them in portions and
//! rests after each, for at one go it would take a core from clients for seconds. Before commits must wait for it, it works
//! without a rest.

use std::time::{Duration, Instant};

use super::behind::{Behind, Progress};
use super::config::StoreConfig;
use super::error::StoreError;
use super::room::{Gauge, Shortage};
use super::thread::{Report, StoreEvent};
use crate::seldom::Seldom;

/// How often it looks round without being called, and measures the room.
const TICK: Duration = Duration::from_millis(500);
/// After so long what has gathered is written, however little it is.
const GATHER_MAX: Duration = Duration::from_secs(30);
/// It rests at most so many times as long as the portion before took.
const REST: u32 = 4;

/// Whether the write-behind keeps up, as it was told last.
struct Load {
    most: usize,
    is_behind: bool,
}

impl Load {
    /// So many bytes wait. Once behind, it is so until a quarter less waits than the most that is well.
    fn tell(&mut self, bytes: usize, report: &Report) {
        let most = if self.is_behind { self.most / 4 * 3 } else { self.most };
        let is_behind = bytes > most;
        if std::mem::replace(&mut self.is_behind, is_behind) != is_behind {
            report.tell_all(StoreEvent::Behind(is_behind));
        }
    }
}

/// The write-behind's thread.
pub(crate) struct Turns<'a> {
    behind: Behind,
    gauge: Gauge,
    config: StoreConfig,
    report: &'a Report,
    load: Load,
    /// The room on the disk is low, as it was told last.
    low: Option<Shortage>,
    /// When the room was measured last.
    measured: Option<Instant>,
    /// Times that this failed.
    unmeasured: Seldom,
    /// When the last sweep ended.
    swept: Instant,
}

impl Turns<'_> {
    pub(crate) fn new(behind: Behind, gauge: Gauge, config: StoreConfig, report: &Report) -> Turns<'_> {
        let load = Load { most: config.behind_max(), is_behind: false };
        let unmeasured = Seldom::default();
        Turns { behind, gauge, config, report, load, low: None, measured: None, unmeasured, swept: Instant::now() }
    }

    /// Works until the store fails or stops.
    pub(crate) fn work(mut self) -> Behind {
        let (mark, backlog_max) = (self.config.behind_mark(), self.config.checkpoint_bytes);
        loop {
            let worked = self.turn();
            if self.report.value(worked).is_none() || !self.behind.pending.wait_for_work(mark, backlog_max, TICK) {
                return self.behind;
            }
        }
    }

    /// Whatever is due.
    fn turn(&mut self) -> Result<(), StoreError> {
        self.look_round()?;
        let (bytes, backlog) = self.behind.pending.sizes();
        // Each start takes a segment, however little it writes: starts in a row must not fill the disk.
        let segments_max = self.config.checkpoint_bytes / self.config.segment_bytes + 2;
        let long = backlog >= self.config.checkpoint_bytes || self.behind.chain.len() as u64 > segments_max;
        let old = bytes > 0 && self.swept.elapsed() >= GATHER_MAX;
        if bytes >= self.config.behind_mark() || long || old {
            self.sweep()?;
        }
        self.load.tell(self.behind.pending.load(self.config.pending_bytes_max), self.report);
        Ok(())
    }

    /// Writes what has gathered by now, in portions, and makes a checkpoint. At the store's end it is left as it is:
    /// whoever seals it decides how much longer that may take.
    fn sweep(&mut self) -> Result<(), StoreError> {
        loop {
            self.load.tell(self.behind.pending.load(self.config.pending_bytes_max), self.report);
            self.behind.ledger.give_way();
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
                return Ok(());
            }
            self.look_round()?;
        }
        self.swept = Instant::now();
        Ok(())
    }

    /// What may be asked for at any time: the journal's next segment, a sorted index, a word when room is low. And frees the
    /// batches of which only the newest states are needed.
    fn look_round(&mut self) -> Result<(), StoreError> {
        self.behind.prepare()?;
        self.behind.take_in();
        if self.measured.is_none_or(|last| last.elapsed() >= TICK) {
            self.measured = Some(Instant::now());
            self.measure();
        }
        Ok(())
    }

    fn measure(&mut self) {
        let room = match self.gauge.read() {
            Ok(room) => room,
            // Nothing durable hangs on it.
            Err(error) => {
                if let Some(failures) = self.unmeasured.failed(Instant::now()) {
                    tracing::warn!(%error, failures, "the room on the disk is not known");
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
                "the disk is nearly full: other members take over what this peer is primary of, and where none has room \
                 writes get -OOM"
            ),
            Some(Shortage::Given) => tracing::warn!(
                free,
                used,
                "the store has reached --max-disk: other members take over what this peer is primary of, and where none \
                 has room writes get -OOM"
            ),
            None => tracing::info!(free, used, "there is room for the store again"),
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
    use crate::store::sim::SimDisk;
    use crate::store::{Engine, StoreConfig};

    /// Whoever seals the store says how long that may take, not the sweep that is under way.
    #[test]
    fn a_sweep_is_left_at_the_end_of_the_store() {
        let disk = SimDisk::new();
        let config = StoreConfig { behind_bytes: 1000, salt: Some(1), ..StoreConfig::default() };
        let (mut engine, _) = Engine::open(Arc::new(disk.clone()), &disk.tables(), &config).expect("opens");
        let put = |number: u32| Change::PutRecord(number.to_string().into(), Bytes::from_static(&[7; 100]));
        engine.append((0..100).map(|number| vec![put(number)])).expect("appends");
        let Engine { config, behind, gauge, view, mut writer, lock: _lock } = engine;
        let report = Report::new(|_, _| (), view.pending.clone());
        view.pending.end();
        let mut turns = Turns::new(behind, gauge, config, &report);
        turns.sweep().expect("works");
        let mut behind = turns.behind;
        assert!(!behind.is_level() && behind.step(1).expect("works") == Progress::More, "much is left of it");
        while behind.step(usize::MAX).expect("works") != Progress::Done {}
        assert!(behind.is_level());
        writer.seal().expect("seals");
    }
}
