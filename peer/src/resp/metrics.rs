//! Metrics of the endpoint, for `/metrics` and `INFO`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::latencies::Latencies;
use super::reply::Reply;
use super::table;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandLabel {
    command: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

/// Metrics of one RESP endpoint.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Connections that are open.
    pub clients: Gauge<i64, AtomicI64>,
    /// Connections since the start.
    pub clients_total: Counter<u64, AtomicU64>,
    /// Connections that were refused over the limit.
    pub clients_refused: Counter<u64, AtomicU64>,
    /// Commands of each row of the table: looked up once, so that counting takes no lock.
    commands: Vec<Counter<u64, AtomicU64>>,
    try_again: Counter<u64, AtomicU64>,
    uncertain: Counter<u64, AtomicU64>,
    out_of_memory: Counter<u64, AtomicU64>,
    other_errors: Counter<u64, AtomicU64>,
    /// Commands that the node left without an answer until the guard gave one.
    pub guarded: Counter<u64, AtomicU64>,
    /// Time from arrival to answer of commands that go to the node, in seconds.
    seconds: Histogram,
    /// Latencies of the same commands, for percentiles of each second.
    pub latencies: Arc<Latencies>,
}

impl Metrics {
    /// Returns metrics that begin at zero, registered in `registry`.
    pub fn new(registry: &mut Registry) -> Metrics {
        let registry = registry.sub_registry_with_prefix("resp");
        let commands = Family::<CommandLabel, Counter>::default();
        registry.register("commands", "Commands received", commands.clone());
        let errors = Family::<CodeLabel, Counter>::default();
        registry.register("errors", "Commands answered with an error", errors.clone());
        let of_code = |code| errors.get_or_create(&CodeLabel { code }).clone();
        let metrics = Metrics {
            clients: Gauge::default(),
            clients_total: Counter::default(),
            clients_refused: Counter::default(),
            commands: table::COMMANDS
                .iter()
                .map(|command| commands.get_or_create(&CommandLabel { command: command.name }).clone())
                .collect(),
            try_again: of_code("TRYAGAIN"),
            uncertain: of_code("UNCERTAIN"),
            out_of_memory: of_code("OOM"),
            other_errors: of_code("other"),
            guarded: Counter::default(),
            seconds: Histogram::new([
                0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0,
            ]),
            latencies: Arc::default(),
        };
        registry.register("clients", "Client connections open", metrics.clients.clone());
        registry.register("clients_accepted", "Client connections accepted", metrics.clients_total.clone());
        registry.register("clients_refused", "Client connections over the limit", metrics.clients_refused.clone());
        registry.register("guarded", "Commands the node did not answer in time", metrics.guarded.clone());
        registry.register_with_unit(
            "latency",
            "Time from the arrival of a command to its answer",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        metrics
    }

    /// Counts one command.
    pub fn command(&self, index: usize) {
        if let Some(counter) = self.commands.get(index) {
            counter.inc();
        }
    }

    /// Records the time in which a command that went to the node was answered.
    pub fn took(&self, time: Duration) {
        self.seconds.observe(time.as_secs_f64());
        self.latencies.count(time);
    }

    /// Counts an answer that is an error.
    pub fn answered(&self, reply: &Reply) {
        let Reply::Error(text) = reply else {
            return;
        };
        match text.split(' ').next() {
            Some("TRYAGAIN") => self.try_again.inc(),
            Some("UNCERTAIN") => self.uncertain.inc(),
            Some("OOM") => self.out_of_memory.inc(),
            _ => self.other_errors.inc(),
        };
    }

    /// Returns the number of commands so far.
    pub(crate) fn commands_total(&self) -> u64 {
        self.commands.iter().map(Counter::get).sum()
    }

    /// Returns the number of errors so far.
    pub(crate) fn errors_total(&self) -> u64 {
        [&self.try_again, &self.uncertain, &self.out_of_memory, &self.other_errors]
            .iter()
            .map(|counter| counter.get())
            .sum()
    }
}
