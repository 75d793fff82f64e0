//! Load on a network: clients on all its hosts, and their histories as one.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::events::{FleetEvent, FleetEventKind};
use super::host_view::HOSTS_AT_ONCE;
use super::merge::{HostHistory, merged};
use super::remote::{Feed, OPERATION_MAX, Remote};
use super::worker::{Clock, LoadKind, WorkOrder, WorkSummary};
use super::{Fleet, FleetError, HostError, Note};
use crate::history::History;
use crate::parallel::in_parallel;

/// Name of this program on the hosts.
pub(super) const TOOL: &str = "scatter-testnet";
/// Time beyond that of the load within which the clients must be done: each key is read once more at the end.
const LAST_MAX: Duration = Duration::from_secs(180);
/// Readings of a host's clock; the quickest one counts.
const CLOCK_READINGS: usize = 5;
/// Error of a reading beyond half its round trip, in nanoseconds: the clocks may drift while the load runs.
const DRIFT_NS: u64 = 1_000_000;

/// Settings of [`Fleet::load`].
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The load.
    pub kind: LoadKind,
    /// Its duration.
    pub time: Duration,
    /// Number of clients on each host.
    pub clients: u64,
    /// Wait of a client between an answer and its next request.
    pub pause: Duration,
    /// Number of users of Chirp on each host.
    pub users: usize,
    /// Seed of all choices.
    pub seed: u64,
    /// This program, which the hosts get.
    pub tool: PathBuf,
}

/// Result of [`Fleet::load`].
#[derive(Debug, Default)]
pub struct LoadReport {
    /// All operations, in one time.
    pub history: History,
    /// Keys that could not be read at the end.
    pub unread: Vec<String>,
    /// Hosts whose clients failed; their operations are missing.
    pub failed: Vec<HostError>,
}

/// What one host's clients gave back.
struct HostLoad {
    clock: Clock,
    summary: WorkSummary,
}

/// By how much a host's time of day is ahead of this machine's.
#[derive(Clone, Copy, Debug)]
struct ClockOffset {
    ahead_ns: i64,
    /// Upper limit of the error.
    error_ns: u64,
}

impl Fleet {
    /// Puts load on the network from all hosts, and returns what the clients saw.
    ///
    /// # Errors
    /// The network is not up; no host could run its clients.
    pub fn load(&self, options: &LoadOptions, stop: &AtomicBool, note: Note<'_>) -> Result<LoadReport, FleetError> {
        let state = self.state()?;
        let run = Clock::now().wall_ns / 1_000_000;
        self.install_tool(options, note)?;
        self.note_events(&[FleetEvent::now(FleetEventKind::Load, format!("{:?}", options.kind))])?;
        let before = in_parallel(HOSTS_AT_ONCE, &self.remotes, |remote| remote.clock_offset());
        let remotes: Vec<(usize, &Remote)> = self.remotes.iter().enumerate().collect();
        let work = |(index, remote): &(usize, &Remote)| {
            let order = remote.order(options, *index as u64, run, &state.network);
            let result = remote.work(&order, stop)?;
            let path = order.history.display().to_string();
            let text = remote.call_bytes("take", &[path], Feed::Nothing, LAST_MAX)?;
            let history = crate::file::read_from(&text[..]).map_err(|error| remote.error(error.to_string()))?;
            Ok((result, history))
        };
        let results = in_parallel(remotes.len(), &remotes, work);
        let after = in_parallel(HOSTS_AT_ONCE, &self.remotes, |remote| remote.clock_offset());
        let mut report = LoadReport::default();
        let mut histories = Vec::new();
        for (index, result) in results.into_iter().enumerate() {
            let times = [&before[index], &after[index]];
            match result
                .and_then(|(load, history)| self.host_history(index, &load.clock, times, history).map(|it| (load, it)))
            {
                Ok((load, history)) => {
                    report.unread.extend(load.summary.unread);
                    histories.push(history);
                }
                Err(error) => report.failed.push(error),
            }
        }
        report.history = merged(histories);
        let kept = self.directory.path().join(format!("history-{run}.jsonl"));
        crate::file::write(&kept, &report.history)
            .map_err(|error| FleetError::Failed(format!("{}: {error}", kept.display())))?;
        Ok(report)
    }

    /// Observes the peers on all hosts for this time, or until `stop`; [`super::collect()`] gets what was seen.
    ///
    /// # Errors
    /// The network is not up; a host cannot get the program. A host whose observer fails later is left out.
    pub fn watch(&self, tool: PathBuf, time: Duration, stop: &AtomicBool, note: Note<'_>) -> Result<(), FleetError> {
        let state = self.state()?;
        let run = Clock::now().wall_ns / 1_000_000;
        let (kind, pause) = (LoadKind::Watch, Duration::ZERO);
        let options = LoadOptions { kind, time, clients: 0, pause, users: 0, seed: 0, tool };
        self.install_tool(&options, note)?;
        let remotes: Vec<(usize, &Remote)> = self.remotes.iter().enumerate().collect();
        let work = |(index, remote): &(usize, &Remote)| {
            let order = remote.order(&options, *index as u64, run, &state.network);
            remote.work(&order, stop)?;
            remote.call("take", &[order.history.display().to_string()], Feed::Nothing, OPERATION_MAX)
        };
        let failed = in_parallel(remotes.len(), &remotes, work).into_iter().filter_map(Result::err);
        failed.for_each(|error| note(&format!("not observed any more: {error}")));
        Ok(())
    }

    /// Copies this program to the hosts that do not have it.
    fn install_tool(&self, options: &LoadOptions, note: Note<'_>) -> Result<(), FleetError> {
        let sum = super::up::checksum(&options.tool)?;
        let install = |remote: &Remote| -> Result<bool, HostError> {
            let there = remote.call("sum", &[TOOL.to_owned()], Feed::Nothing, OPERATION_MAX)?;
            if there.trim() == sum {
                return Ok(false);
            }
            remote.install(TOOL, &options.tool, &sum).map(|()| true)
        };
        let mut copied = 0;
        for result in in_parallel(HOSTS_AT_ONCE, &self.remotes, install) {
            copied += usize::from(result?);
        }
        if copied > 0 {
            note(&format!("copied the clients' program to {copied} hosts"));
        }
        Ok(())
    }

    /// Returns a host's history with what brings it to the time of this machine's steady clock.
    fn host_history(
        &self,
        index: usize,
        clock: &Clock,
        offsets: [&Result<ClockOffset, HostError>; 2],
        history: History,
    ) -> Result<HostHistory, HostError> {
        let (host, here) = (index as u64, Clock::now());
        if clock.boot == here.boot && !here.boot.is_empty() {
            let offset_ns = i64::try_from(clock.steady_ns).unwrap_or(i64::MAX);
            return Ok(HostHistory { host, offset_ns, error_ns: 0, history });
        }
        let [before, after] = offsets.map(Clone::clone);
        let (before, after) = (before?, after?);
        let error_ns = before.error_ns.max(after.error_ns) + before.ahead_ns.abs_diff(after.ahead_ns) + DRIFT_NS;
        // From the host's time of day to that of this machine, and from there to its steady clock.
        let there = i128::from(clock.wall_ns) - i128::from(before.ahead_ns);
        let offset = there - i128::from(here.wall_ns) + i128::from(here.steady_ns);
        let offset_ns =
            i64::try_from(offset).map_err(|_| self.remotes[index].error("its clock is off by centuries"))?;
        Ok(HostHistory { host, offset_ns, error_ns, history })
    }
}

impl Remote {
    /// Returns what this host is to do for a load.
    fn order(&self, options: &LoadOptions, host: u64, run: u64, network: &str) -> WorkOrder {
        let ports = || (0..self.entry.peers).map(|place| self.entry.ports_of(place));
        WorkOrder {
            kind: options.kind,
            resp: ports().map(|ports| ports.resp).collect(),
            http: ports().map(|ports| ports.http).collect(),
            host,
            clients: options.clients,
            pause: options.pause,
            time: options.time,
            users: options.users.max(1),
            prefix: format!("{network}.{run}."),
            seed: options.seed,
            history: format!("history-{run}.jsonl").into(),
            observed: format!("observed-{run}.jsonl").into(),
        }
    }

    /// Measures by how much the host's time of day is ahead of this machine's.
    fn clock_offset(&self) -> Result<ClockOffset, HostError> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..CLOCK_READINGS {
            let before = Clock::now().wall_ns;
            let text = self.call("clock", &[], Feed::Nothing, OPERATION_MAX)?;
            let after = Clock::now().wall_ns;
            let there: u64 = text.trim().parse().map_err(|_| self.error("its `date` knows no nanoseconds"))?;
            let error_ns = after.saturating_sub(before) / 2;
            let ahead_ns = there.cast_signed().wrapping_sub((before + error_ns).cast_signed());
            best = best.filter(|best| best.error_ns <= error_ns).or(Some(ClockOffset { ahead_ns, error_ns }));
        }
        best.ok_or_else(|| self.error("its clock was not read"))
    }

    /// Lets the clients on the host do their work, and waits for them.
    fn work(&self, order: &WorkOrder, stop: &AtomicBool) -> Result<HostLoad, HostError> {
        let text = serde_json::to_string(order).map_err(|error| self.error(error.to_string()))?;
        let mut command = self.command("work", &[text]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(|error| self.error(error.to_string()))?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(|| self.error("no output"))?).lines();
        let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<String>>());
        let until = Instant::now() + order.time + LAST_MAX;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() > until => {
                    let _ = child.kill();
                }
                // The end of its input asks it to stop.
                Ok(None) if stop.load(Ordering::Relaxed) => drop(child.stdin.take()),
                Ok(None) => {}
                Err(error) => return Err(self.error(error.to_string())),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let lines = reader.join().unwrap_or_default();
        let clock = lines.first().and_then(|line| serde_json::from_str(line).ok());
        let summary = lines.last().and_then(|line| serde_json::from_str(line).ok());
        match (clock, summary) {
            (Some(clock), Some(summary)) if status.success() => Ok(HostLoad { clock, summary }),
            _ => Err(self.error(format!("its clients ended with {status}"))),
        }
    }
}
