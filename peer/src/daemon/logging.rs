//! The start of the log on stderr, and the metric of its dropped lines.

use std::io::{self, IsTerminal as _};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;

use crate::config::Format;
use crate::log::{self, Log};

/// Starts the log on stderr; stdout is for the ready line that scripts wait for.
pub(super) fn start_log(format: Format) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,libp2p_swarm=warn"));
    // Without a thread there is no log; the peer's own threads will not start either.
    let Ok(writer) = Log::start(io::stderr(), format) else { return };
    log::set(writer.clone());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    let builder = builder.log_internal_errors(false);
    // A second start within one process (a test) keeps the first log.
    let _ = match format {
        Format::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    // The default hook writes to stderr itself, and blocks while its reader does not read.
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        match backtrace.status() {
            std::backtrace::BacktraceStatus::Captured => tracing::error!("{panic}\n{backtrace}"),
            _ => tracing::error!("{panic}"),
        }
    }));
}

/// Metric of dropped log lines.
#[derive(Debug)]
pub(super) struct LogMetrics;

impl Collector for LogMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let counter = ConstCounter::new(log::dropped());
        let help = "Log lines that were dropped because stderr did not take them";
        let metric = encoder.encode_descriptor("log_dropped", help, None, counter.metric_type())?;
        counter.encode(metric)
    }
}
