//! Metrics of a switch in software, in Prometheus's format.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Link;
use super::clients::CLIENTS_MAX;
use crate::device::{BATCH_BOUNDS, Counters, Cut, Device, PartitionCounters};
use crate::monitoring::{Exposition, Family, Monitored};

/// Upper limit between two beats: without a beat for longer, the packet loop counts as hung.
const BEAT_MAX: Duration = Duration::from_secs(5);

/// Sign of life of the packet loop: it beats even if no packets come.
#[derive(Clone, Debug)]
pub struct Pulse {
    began: Instant,
    /// Time of the last beat, in milliseconds since `began`.
    last: Arc<AtomicU64>,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse { began: Instant::now(), last: Arc::default() }
    }
}

impl Pulse {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub(super) fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Returns whether the loop has beaten lately.
    pub fn is_alive(&self) -> bool {
        u128::from(self.now().saturating_sub(self.last.load(Ordering::Relaxed))) < BEAT_MAX.as_millis()
    }
}

/// Data of a switch that is visible from outside.
#[derive(Debug)]
pub struct Metrics {
    /// Tables and counters.
    pub device: Arc<Device>,
    /// The switch's socket.
    pub socket: UdpSocket,
    /// Sign of life of the packet loop.
    pub pulse: Pulse,
}

impl Monitored for Metrics {
    fn metrics(&self) -> String {
        let (counters, partitions, ports) = {
            let state = self.device.lock();
            (state.counters.clone(), state.partitions().to_vec(), state.ports.len())
        };
        let mut out = Exposition::new("scatter_switch");
        of_all(&mut out, &counters);
        of_partitions(&mut out, &partitions);
        out.one(("ports", "gauge", "Replicas that have a port."), ports as u64);
        out.one(("clients_max", "gauge", "Upper limit of remembered clients."), CLIENTS_MAX as u64);
        if let Some(lost) = Link::lost(&self.socket) {
            let what = "Datagrams that the kernel dropped because they were not received in time.";
            out.one(("kernel_dropped_total", "counter", what), lost);
        }
        if let Some(room) = Link::room(&self.socket) {
            out.one(("receive_buffer_bytes", "gauge", "Memory for datagrams that wait to be received."), room);
        }
        out.into_text()
    }

    fn health(&self) -> Option<Result<(), &'static str>> {
        Some(if self.pulse.is_alive() { Ok(()) } else { Err("the switch does not forward packets") })
    }
}

fn of_all(out: &mut Exposition, counters: &Counters) {
    for (family, value) in [
        (("packets_received_total", "counter", "Datagrams received."), counters.received),
        (("packets_forwarded_total", "counter", "Packets forwarded."), counters.forwarded),
        (("packets_absorbed_total", "counter", "Completions that were for the switch alone."), counters.absorbed),
        (("writes_total", "counter", "Writes."), counters.writes),
        (("write_rests_total", "counter", "Packets of writes after the first of each write."), counters.write_rests),
        (("completions_total", "counter", "Completions that were applied."), counters.completions),
        (("replies_total", "counter", "Answers from replicas."), counters.replies),
        (("clients_evicted_total", "counter", "Clients that were forgotten early."), counters.clients_evicted),
        (("receive_errors_total", "counter", "Receive calls that failed."), counters.receive_errors),
    ] {
        out.one(family, value);
    }
    let dropped = ("packets_dropped_total", "counter", "Packets dropped.");
    out.many(dropped, "reason", Cut::ALL.iter().map(|cut| (cut.name(), counters.of(*cut))));
    let reads = ("reads_total", "counter", "Reads by destination: a single replica, or the primary.");
    out.many(reads, "to", [("single", counters.reads_single), ("primary", counters.reads_primary)]);
    batches(out, counters);
}

fn of_partitions(out: &mut Exposition, partitions: &[(u32, PartitionCounters)]) {
    out.one(("partitions", "gauge", "Partitions that are set."), partitions.len() as u64);
    type Value = fn(&PartitionCounters) -> u64;
    let families: [(Family, &[(&str, Value)]); 4] = [
        (
            ("partition_reads_total", "counter", "Reads of a partition."),
            &[(",to=\"single\"", |of| of.reads_single), (",to=\"primary\"", |of| of.reads_primary)],
        ),
        (("partition_writes_total", "counter", "Writes of a partition."), &[("", |of| of.writes)]),
        (("partition_completions_total", "counter", "Completions of a partition."), &[("", |of| of.completions)]),
        (
            ("partition_dropped_total", "counter", "Packets of a partition that were dropped."),
            &[(",reason=\"full\"", |of| of.full), (",reason=\"stale\"", |of| of.stale)],
        ),
    ];
    for (family, values) in families {
        out.head(family);
        for (number, counters) in partitions {
            for (label, value) in values {
                out.line(family.0, format_args!("{{partition=\"{number}\"{label}}}"), value(counters));
            }
        }
    }
}

fn batches(out: &mut Exposition, counters: &Counters) {
    out.head(("batch_packets", "histogram", "Datagrams received in one batch."));
    let mut all = 0;
    for (bound, count) in BATCH_BOUNDS.into_iter().zip(counters.batches) {
        all += count;
        out.line("batch_packets_bucket", format_args!("{{le=\"{bound}\"}}"), all);
    }
    out.line("batch_packets_bucket", format_args!("{{le=\"+Inf\"}}"), all);
    out.line("batch_packets_sum", format_args!(""), counters.received);
    out.line("batch_packets_count", format_args!(""), all);
}
