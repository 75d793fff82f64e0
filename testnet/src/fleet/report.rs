//! FleetPage of what was collected: plots over time, and a page with all of them that needs nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::FleetError;
use super::events::FleetEvent;
use super::observer::Sample;
use crate::history::Operation;
use crate::picture::{Chart, Line};

/// Width of an interval of the plots, in seconds.
const STEP_S: f64 = 5.0;

/// Data of a directory that [`super::collect()`] filled.
#[derive(Debug, Default)]
struct Collected {
    /// Samples by host.
    samples: Vec<(String, Sample)>,
    events: Vec<FleetEvent>,
    operations: Vec<Operation>,
}

/// Files that [`report`] wrote, and a summary for a terminal.
#[derive(Clone, Debug, Default)]
pub struct FleetPage {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Lines with figures.
    pub lines: Vec<String>,
}

/// Writes `report.html` and its plots as SVG files into a directory with collected data.
///
/// # Errors
/// There is no data, or a file cannot be read or written.
pub fn report(directory: &Path) -> Result<FleetPage, FleetError> {
    let failed = |path: &Path, why: String| FleetError::Failed(format!("{}: {why}", path.display()));
    let data = Collected::read(directory).map_err(|(path, why)| failed(&path, why))?;
    if data.samples.is_empty() && data.operations.is_empty() {
        return Err(failed(
            directory,
            "there is nothing to report: `net load` or `net churn` first, then `net collect`".into(),
        ));
    }
    let charts = data.charts();
    let mut report = FleetPage { lines: data.lines(), files: Vec::new() };
    let mut body = String::new();
    for (name, chart) in &charts {
        let svg = chart.draw();
        let path = directory.join(format!("{name}.svg"));
        std::fs::write(&path, &svg).map_err(|error| failed(&path, error.to_string()))?;
        report.files.push(path);
        body.push_str(&svg);
    }
    let page = directory.join("report.html");
    std::fs::write(&page, html(&report.lines, &body)).map_err(|error| failed(&page, error.to_string()))?;
    report.files.push(page);
    Ok(report)
}

fn html(lines: &[String], body: &str) -> String {
    let list: String = lines.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>A network of real daemons</title>\n\
         <style>body{{font:16px sans-serif;max-width:80em;margin:2em auto;padding:0 1em}}svg{{max-width:100%;height:auto}}</style>\n\
         <h1>A network of real daemons</h1>\n<ul>\n{list}</ul>\n{body}</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Collected {
    /// Reads a directory.
    fn read(directory: &Path) -> Result<Collected, (PathBuf, String)> {
        let mut data = Collected::default();
        for path in entries(directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                for file in entries(&path)? {
                    if is_jsonl(&file, "observed") {
                        let samples: Vec<Sample> = lines_of(&file)?;
                        data.samples.extend(samples.into_iter().map(|sample| (name.clone(), sample)));
                    }
                }
            } else if is_jsonl(&path, "events") {
                data.events.extend(lines_of::<FleetEvent>(&path)?);
            } else if is_jsonl(&path, "history") {
                let history = crate::file::read(&path).map_err(|error| (path.clone(), error.to_string()))?;
                data.operations.extend(history.operations);
            }
        }
        // A load and a churn at the same time observe the same peers.
        data.samples.sort_by(|(host, one), (other, two)| {
            (host, one.port).cmp(&(other, two.port)).then(one.at_s.total_cmp(&two.at_s))
        });
        data.samples
            .dedup_by(|(host, one), (other, two)| host == other && one.port == two.port && one.at_s - two.at_s < 0.5);
        Ok(data)
    }

    /// Returns the first moment of all, in seconds since 1970.
    fn begin(&self) -> f64 {
        let all = self.samples.iter().map(|(_, sample)| sample.at_s).chain(self.events.iter().map(FleetEvent::at_s));
        all.fold(f64::INFINITY, f64::min)
    }

    /// Returns all samples by interval since the beginning.
    fn by_interval(&self) -> BTreeMap<u64, Vec<&(String, Sample)>> {
        let begin = self.begin();
        let mut intervals: BTreeMap<u64, Vec<&(String, Sample)>> = BTreeMap::new();
        for sample in &self.samples {
            intervals.entry(((sample.1.at_s - begin) / STEP_S) as u64).or_default().push(sample);
        }
        intervals
    }

    fn charts(&self) -> Vec<(&'static str, Chart)> {
        let mut charts = Vec::new();
        if !self.samples.is_empty() {
            charts.extend([
                ("peers", self.peers()),
                ("groups", self.groups()),
                ("nines", self.nines()),
                ("traffic", self.traffic()),
            ]);
        }
        if !self.operations.is_empty() {
            charts.extend([("latency", self.latency()), ("failures", self.failures())]);
        }
        charts
    }

    /// Draws a value of each interval.
    fn over_time(&self, value: impl Fn(&[&(String, Sample)]) -> Option<f64>) -> Vec<(f64, f64)> {
        let intervals = self.by_interval();
        intervals.iter().filter_map(|(step, samples)| Some((*step as f64 * STEP_S, value(samples)?))).collect()
    }

    fn peers(&self) -> Chart {
        let ready = |samples: &[&(String, Sample)]| {
            let serving: BTreeSet<(&str, u16)> =
                samples.iter().filter(|it| it.1.ready).map(|it| (it.0.as_str(), it.1.port)).collect();
            Some(serving.len() as f64)
        };
        let begin = self.begin();
        let mut deaths: BTreeMap<u64, f64> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.is_death()) {
            *deaths.entry(((event.at_s() - begin) / STEP_S) as u64).or_default() += 1.0;
        }
        let deaths = deaths.into_iter().map(|(step, count)| (step as f64 * STEP_S, count)).collect();
        chart(
            "Peers",
            "peers",
            vec![line("peers that serve", self.over_time(ready)), line(&format!("deaths in {STEP_S} s"), deaths)],
        )
    }

    fn groups(&self) -> Chart {
        let count = |samples: &[&(String, Sample)]| {
            let ids: BTreeSet<&String> = samples.iter().flat_map(|it| it.1.groups.keys()).collect();
            Some(ids.len() as f64)
        };
        let members = |samples: &[&(String, Sample)]| {
            let all: Vec<f64> = samples.iter().flat_map(|it| it.1.groups.values().map(|group| group.members)).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        let fewest = |samples: &[&(String, Sample)]| {
            samples.iter().flat_map(|it| it.1.groups.values().map(|group| group.members)).reduce(f64::min)
        };
        chart(
            "Groups",
            "groups, members",
            vec![
                line("groups seen", self.over_time(count)),
                line("members, mean as peers see them", self.over_time(members)),
                line("members of the smallest group", self.over_time(fewest)),
            ],
        )
    }

    fn nines(&self) -> Chart {
        let fewest = |samples: &[&(String, Sample)]| {
            samples.iter().flat_map(|it| it.1.groups.values().filter_map(|group| group.nines)).reduce(f64::min)
        };
        chart(
            "Nines of survival until the dead are replaced",
            "nines",
            vec![line("the worst group", self.over_time(fewest))],
        )
    }

    /// Draws the traffic of all peers: differences of counters, which begin again with each process.
    fn traffic(&self) -> Chart {
        let begin = self.begin();
        let mut last: BTreeMap<(&str, u16, &str), (f64, f64)> = BTreeMap::new();
        let mut rates: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
        for (host, sample) in &self.samples {
            for (class, sent) in &sample.sent {
                let before = last.insert((host, sample.port, class), (sample.at_s, *sent));
                let more = before.map_or(0.0, |(_, before)| if *sent >= before { sent - before } else { *sent });
                let step = ((sample.at_s - begin) / STEP_S) as u64;
                *rates.entry(class).or_default().entry(step).or_default() += more / STEP_S / 1024.0;
            }
        }
        let lines = rates.into_iter().map(|(class, rates)| {
            line(class, rates.into_iter().map(|(step, rate)| (step as f64 * STEP_S, rate)).collect())
        });
        chart("Traffic sent by all peers", "KiB/s", lines.collect())
    }

    /// Returns the operations by interval since the first one.
    fn operations_by_interval(&self) -> BTreeMap<u64, Vec<&Operation>> {
        let begin = self.operations.iter().map(|it| it.invoked.time).min().unwrap_or_default();
        let mut intervals: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            let since = operation.invoked.time.since(begin).as_secs_f64();
            intervals.entry((since / STEP_S) as u64).or_default().push(operation);
        }
        intervals
    }

    fn latency(&self) -> Chart {
        let quantile = |share: f64| {
            let points = self.operations_by_interval().into_iter().filter_map(move |(step, operations)| {
                let mut times: Vec<f64> = operations.iter().filter_map(|it| milliseconds(it)).collect();
                times.sort_by(f64::total_cmp);
                let at = ((times.len() as f64 - 1.0) * share).round() as usize;
                Some((step as f64 * STEP_S, *times.get(at)?))
            });
            points.collect::<Vec<_>>()
        };
        chart(
            "Time until the answer",
            "ms",
            vec![line("median", quantile(0.5)), line("99th percentile", quantile(0.99))],
        )
    }

    fn failures(&self) -> Chart {
        let failed = self.operations_by_interval().into_iter().map(|(step, operations)| {
            let failed = operations.iter().filter(|it| it.outcome.answer().is_none()).count();
            (step as f64 * STEP_S, 100.0 * failed as f64 / operations.len().max(1) as f64)
        });
        chart("Operations without an answer", "percent", vec![line("failed", failed.collect())])
    }

    fn lines(&self) -> Vec<String> {
        let deaths = self.events.iter().filter(|event| event.is_death()).count();
        let mut lines = vec![format!("{} samples of peers, {deaths} deaths", self.samples.len())];
        let mut times: Vec<f64> = self.operations.iter().filter_map(milliseconds).collect();
        times.sort_by(f64::total_cmp);
        if let (Some(median), Some(p99)) = (times.get(times.len() / 2), times.get(times.len() * 99 / 100)) {
            let failed = self.operations.len() - times.len();
            let mut line = format!("{} operations, ", self.operations.len());
            let _ = write!(line, "{:.2} % without an answer; ", 100.0 * failed as f64 / self.operations.len() as f64);
            let _ = write!(line, "median {median:.1} ms, 99th percentile {p99:.1} ms");
            lines.push(line);
        }
        lines
    }
}

/// Returns the time until an operation's answer.
fn milliseconds(operation: &Operation) -> Option<f64> {
    operation.outcome.answer()?;
    Some(operation.completed?.time.since(operation.invoked.time).as_secs_f64() * 1e3)
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), points, dashed: false }
}

fn chart(title: &str, up: &str, lines: Vec<Line>) -> Chart {
    Chart { title: title.to_owned(), across: "seconds".to_owned(), up: up.to_owned(), lines, ..Chart::default() }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, (PathBuf, String)> {
    let failed = |error: std::io::Error| (directory.to_owned(), error.to_string());
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn is_jsonl(path: &Path, begin: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(begin) && name.ends_with(".jsonl")
}

/// Reads a file of JSON lines. A last line that is not whole, as of a process that was killed, is left out.
fn lines_of<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, (PathBuf, String)> {
    let text = std::fs::read_to_string(path).map_err(|error| (path.to_owned(), error.to_string()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| (path.to_owned(), format!("line {}: {error}", index + 1)))
    };
    whole.lines().enumerate().map(parse).collect()
}
