//! Observation of the peers on one host: once a second what their metrics show, a line of JSON for each peer that answers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::worker::Clock;
use crate::live::ask_over;

/// Interval between two observations of a peer.
const EVERY: Duration = Duration::from_secs(1);
/// Time within which a peer must answer, or it counts as silent.
const PATIENCE: Duration = Duration::from_millis(900);

/// A group, as one of its members shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedGroup {
    /// Number of members.
    pub members: f64,
    /// Nines of the probability that the group survives; `None` where unknown.
    pub nines: Option<f64>,
    /// Whether the member hears a majority.
    pub has_quorum: bool,
}

/// What the metrics of a peer showed at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of day, in seconds since 1970.
    pub at_s: f64,
    /// Port of the peer for administrators, which names it on its host.
    pub port: u16,
    /// Whether it can serve.
    pub ready: bool,
    /// Its groups by id.
    pub groups: BTreeMap<String, ObservedGroup>,
    /// Bytes that it has sent since its start, by class of traffic.
    pub sent: BTreeMap<String, f64>,
    /// Memory that it holds, in bytes.
    pub memory: f64,
}

impl Sample {
    /// Reads metrics in Prometheus's text format. Unknown lines are skipped.
    pub fn of_metrics(text: &str) -> Sample {
        let mut sample = Sample::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, label) = match name.split_once('{') {
                Some((name, labels)) => (name, labels.split('"').nth(1).unwrap_or_default().to_owned()),
                None => (name, String::new()),
            };
            let mut group =
                |change: fn(&mut ObservedGroup, f64)| change(sample.groups.entry(label.clone()).or_default(), value);
            match name {
                "scatter_ready" => sample.ready = value > 0.0,
                "scatter_resident_memory_bytes" => sample.memory = value,
                "scatter_net_sent_bytes_total" => {
                    sample.sent.insert(label, value);
                }
                "scatter_group_members" => group(|group, value| group.members = value),
                "scatter_group_nines" => group(|group, value| group.nines = Some(value)),
                "scatter_group_has_quorum" => group(|group, value| group.has_quorum = value > 0.0),
                _ => {}
            }
        }
        sample
    }
}

/// Writes what the peers at these ports show to a file, until `stop`.
///
/// # Errors
/// The file cannot be written.
pub fn observe(ports: &[u16], file: &Path, stop: &AtomicBool) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let mut out = BufWriter::new(File::create(file).map_err(failed)?);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let samples: Vec<Option<Sample>> = crate::parallel::in_parallel(8, ports, |port| sample(*port));
        for sample in samples.into_iter().flatten() {
            serde_json::to_writer(&mut out, &sample).map_err(|error| failed(error.into()))?;
            out.write_all(b"\n").map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        while begun.elapsed() < EVERY && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Asks a peer of this host for its metrics.
fn sample(port: u16) -> Option<Sample> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    let (_, metrics) = ask_over(stream, address, "GET /metrics", PATIENCE)?;
    Some(Sample { at_s: Clock::now().wall_ns as f64 / 1e9, port, ..Sample::of_metrics(&metrics) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read() {
        let text = "# HELP x y\nscatter_ready 1\nscatter_resident_memory_bytes 19255296\nscatter_group_members{group=\"ab\"} 5.0\n\
                    scatter_group_nines{group=\"ab\"} 6.5\nscatter_group_has_quorum{group=\"ab\"} 1.0\n\
                    scatter_net_sent_bytes_total{class=\"bulk\"} 12\nnonsense\n";
        let sample = Sample::of_metrics(text);
        assert!(sample.ready && sample.memory > 1.9e7);
        let group = ObservedGroup { members: 5.0, nines: Some(6.5), has_quorum: true };
        assert_eq!(sample.groups, BTreeMap::from([("ab".to_owned(), group)]));
        assert_eq!(sample.sent, BTreeMap::from([("bulk".to_owned(), 12.0)]));
    }
}
