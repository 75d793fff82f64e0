//! Metrics in the text format that a scraper asks for: OpenMetrics where it names that, and otherwise Prometheus's own
//! text.
//!
//! The encoder writes OpenMetrics. The older format has the same samples; it names a counter's family by its sample, knows
//! neither units nor an end mark, and has no types `info` and `unknown`.

use axum::http::{HeaderMap, header};

/// Name of OpenMetrics in `Accept` and `Content-Type`.
const OPEN_METRICS: &str = "application/openmetrics-text";
/// Content type of OpenMetrics.
pub const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of Prometheus's own text.
pub const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns whether a scraper wants OpenMetrics: it names that format, with at least the quality of plain text.
pub(crate) fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut open, mut text) = (0.0_f32, 0.0_f32);
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.trim().parse().unwrap_or(0.0));
        match kind.as_str() {
            OPEN_METRICS => open = open.max(quality),
            "text/plain" => text = text.max(quality),
            _ => {}
        }
    }
    open > 0.0 && open >= text
}

/// Converts the same metrics into Prometheus's own text.
pub fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // A family's help stands before its type, on which its name depends.
    let mut help = None;
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next().unwrap_or("")) {
            (Some("HELP"), Some(_), words) => help = Some(words),
            (Some("TYPE"), Some(family), kind) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some(help) = help.take() {
                    text.push_str(&format!("# HELP {family}{suffix} {help}\n"));
                }
                text.push_str(&format!("# TYPE {family}{suffix} {kind}\n"));
            }
            // Units and the end mark.
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn plain_text_has_the_names_of_its_samples() {
        let mut registry = Registry::with_prefix("scatter");
        let (counter, gauge) = (Counter::<u64>::default(), Gauge::<i64>::default());
        counter.inc_by(3);
        registry.register("frames", "Frames sent", counter);
        registry.register("ready", "1 if it serves", gauge);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(
            plain(&text),
            "# HELP scatter_frames_total Frames sent.\n# TYPE scatter_frames_total counter\nscatter_frames_total 3\n\
             # HELP scatter_ready 1 if it serves.\n# TYPE scatter_ready gauge\nscatter_ready 0\n"
        );
    }

    #[test]
    fn open_metrics_is_what_is_asked_for() {
        let asks = |accept: Option<&str>| {
            let mut headers = HeaderMap::new();
            accept.map(|accept| headers.insert(header::ACCEPT, accept.parse().unwrap()));
            wants_open_metrics(&headers)
        };
        assert!(!asks(None) && !asks(Some("*/*")) && !asks(Some("text/plain;version=0.0.4")));
        assert!(asks(Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1")));
        assert!(!asks(Some("application/openmetrics-text; q=0, text/plain")));
        assert!(!asks(Some("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5")));
        assert!(asks(Some("text/plain;q=0.5,Application/OpenMetrics-Text;q=0.5")));
    }
}
