//! The counters of store and network as metrics, encoded anew for each scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::{ClassStats, NetHandle};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use store::StoreStats;

use super::packets::PacketCounts;
use crate::http::encode;

/// Metrics of the store, read from its watch.
pub(crate) struct StoreMetrics<F>(pub F);

impl<F> fmt::Debug for StoreMetrics<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreMetrics")
    }
}

impl<F: Fn() -> StoreStats + Send + Sync + 'static> Collector for StoreMetrics<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = (self.0)();
        let metrics: [(&str, &str, MetricValue); 11] = [
            ("store_frames", "Frames written to the journal, with one sync each", MetricValue::Count(stats.frames)),
            ("store_journal_bytes", "Bytes written to the journal", MetricValue::Count(stats.bytes)),
            ("store_writing_seconds", "Time that these writes and syncs took", seconds(stats.writing)),
            ("store_no_room_seconds", "Time that commits waited for the write-behind", seconds(stats.no_room)),
            ("store_table_records", "Records written to the table on disk", MetricValue::Count(stats.records)),
            ("store_checkpoints", "Checkpoints made", MetricValue::Count(stats.checkpoints)),
            (
                "store_rebuilds",
                "Times that the table on disk was rebuilt to free room",
                MetricValue::Count(stats.rebuilds),
            ),
            (
                "store_rebuilds_given_up",
                "Rebuilds of the table that were given up: no room, or the new table failed",
                MetricValue::Count(stats.given_up),
            ),
            (
                "store_pending_bytes",
                "Bytes that wait to be written to the table",
                MetricValue::Now(stats.pending_bytes as f64),
            ),
            (
                "store_backlog_bytes",
                "Bytes of the journal after its last checkpoint",
                MetricValue::Now(stats.backlog_bytes as f64),
            ),
            ("store_used_bytes", "Bytes that the store takes on its disk", MetricValue::Now(stats.used_bytes as f64)),
        ];
        metrics.iter().try_for_each(|(name, help, value)| value.encode(&mut encoder, name, help))
    }
}

/// Metrics of the network, read from its handle.
#[derive(Debug)]
pub(crate) struct NetMetrics(pub NetHandle);

/// A metric of one class of frames, over all peers.
type ByClass = (&'static str, &'static str, fn(&ClassStats) -> u64);

impl Collector for NetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.0.stats();
        let up = stats.peers.iter().filter(|peer| peer.up).count();
        let metrics: [(&str, &str, MetricValue); 8] = [
            ("net_peers", "Peers that are connected", MetricValue::Now(up as f64)),
            ("net_connections", "Connections with peers", MetricValue::Now(stats.connections as f64)),
            ("net_queued_bytes", "Bytes that wait to be sent", MetricValue::Now(stats.queued_bytes as f64)),
            (
                "net_dropped_unknown_peer",
                "Frames for peers that are not connected",
                MetricValue::Count(stats.dropped_unknown_peer),
            ),
            ("net_refused", "Peers refused, or that refused this one", MetricValue::Count(stats.refused.iter().sum())),
            (
                "net_violations",
                "Connections ended because a peer sent malformed frames",
                MetricValue::Count(stats.violations),
            ),
            ("net_stalled", "Connections ended because a peer stopped reading", MetricValue::Count(stats.stalled)),
            ("net_over_limit", "Connections refused because of a limit", MetricValue::Count(stats.over_limit)),
        ];
        metrics.iter().try_for_each(|(name, help, value)| value.encode(&mut encoder, name, help))?;
        let by_class: [ByClass; 5] = [
            ("net_sent_frames", "Frames sent", |class| class.sent_frames),
            ("net_sent_bytes", "Bytes of frames sent", |class| class.sent_bytes),
            ("net_received_frames", "Frames received", |class| class.received_frames),
            ("net_received_bytes", "Bytes of frames received", |class| class.received_bytes),
            ("net_dropped_frames", "Frames dropped because they waited too long or there was no room", |class| {
                class.dropped_full + class.dropped_late
            }),
        ];
        for (name, help, of) in by_class {
            let metric = ConstCounter::new(0_u64);
            let mut family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            for (index, class) in ["control", "data", "bulk"].into_iter().enumerate() {
                let sum = stats.peers.iter().map(|peer| of(&peer.classes[index])).sum::<u64>();
                ConstCounter::new(sum).encode(family.encode_family(&[("class", class)])?)?;
            }
        }
        Ok(())
    }
}

/// Metrics of the packets between this peer and its switch, in all lanes.
#[derive(Debug)]
pub(crate) struct PacketMetrics(pub Vec<Arc<PacketCounts>>);

impl Collector for PacketMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sum = |of: fn(&PacketCounts) -> &AtomicU64| {
            MetricValue::Count(self.0.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum())
        };
        let metrics: [(&str, &str, MetricValue); 3] = [
            ("switch_packets_received", "Packets that came from the switch", sum(|counts| &counts.received)),
            ("switch_packets_sent", "Packets sent to the switch", sum(|counts| &counts.sent)),
            (
                "switch_packets_lost",
                "Packets dropped for lack of room or of a route to the switch",
                sum(|counts| &counts.lost),
            ),
        ];
        metrics.iter().try_for_each(|(name, help, value)| value.encode(&mut encoder, name, help))
    }
}

enum MetricValue {
    Count(u64),
    Seconds(f64),
    Now(f64),
}

fn seconds(duration: std::time::Duration) -> MetricValue {
    MetricValue::Seconds(duration.as_secs_f64())
}

impl MetricValue {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result {
        match self {
            MetricValue::Count(count) => encode(encoder, name, help, &ConstCounter::new(*count)),
            MetricValue::Seconds(seconds) => encode(encoder, name, help, &ConstCounter::new(*seconds)),
            MetricValue::Now(value) => encode(encoder, name, help, &ConstGauge::new(*value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn seconds_and_counts_are_what_they_are_called() {
        let mut registry = Registry::default();
        let stats =
            StoreStats { frames: 3, writing: Duration::from_millis(1500), pending_bytes: 7, ..StoreStats::default() };
        registry.register_collector(Box::new(StoreMetrics(move || stats)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("can be written");
        for line in ["store_frames_total 3\n", "store_writing_seconds_total 1.5\n", "store_pending_bytes 7.0\n"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
