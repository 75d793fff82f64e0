//! Throughput of two and of six journals, and the tail of 4 KB reads and writes of the store (fRSM §2.3, Fig. 4 and 5).
//!
//! The one experiment without virtual time: real stores of this program write and sync to a directory of this machine, each in a thread.
//! Keys and their order follow from the seed, and times from the machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::Change;
use store::{Engine, StoreConfig};

use crate::churn::quantiles;
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;
use crate::study::mean;

/// Figures 4 and 5.
pub const EXPERIMENT: Experiment = Experiment {
    name: "journal-striping",
    paper: "fRSM Fig. 4, 5",
    about: "Bytes a second of two and of six journals with the same batches, and the tail of 4 KB reads and writes",
    run: |options, _: Say<'_>| experiment(&StripingSetting::new(options), options),
};

/// Numbers of journals.
const JOURNALS: [usize; 2] = [2, 6];
/// Size of a value, and values of a batch.
const VALUE_BYTES: usize = 4 << 10;
const BATCH: usize = 16;
/// The paper's ratio of throughputs, and its ratios of the 99.9th percentile and the mean of reads and writes.
const PAPER_RATIO: f64 = 1.6;
const PAPER_TAILS: [f64; 2] = [57.1, 48.4];
/// Part of the paper's ratio within which a ratio counts as the same, and the same as a factor for tails.
const CLOSE: f64 = 0.25;
const TAIL_FACTOR: f64 = 2.0;
/// Rounds in which two and six journals are measured in turn, as other programs use the machine, too.
const ROUNDS: usize = 5;

/// The parameters of the experiment.
struct StripingSetting {
    /// Batches of all journals together.
    batches: usize,
    /// Records of the store, and random reads and writes of it.
    records: u64,
    reads: usize,
    writes: usize,
    seed: u64,
}

impl StripingSetting {
    fn new(options: &ExperimentOptions) -> StripingSetting {
        StripingSetting {
            batches: options.size.pick(300, 3_000, 30_000),
            records: options.size.pick(10_000, 100_000, 1_000_000),
            reads: options.size.pick(20_000, 200_000, 1_000_000),
            writes: options.size.pick(2_000, 20_000, 200_000),
            seed: options.seed,
        }
    }
}

/// A directory for stores that is removed at the end.
struct StoreDirectory(PathBuf);

impl StoreDirectory {
    fn new(name: &str) -> StoreDirectory {
        StoreDirectory(std::env::temp_dir().join(format!("scatter-{name}-{}", std::process::id())))
    }

    fn open(&self, name: &str) -> Result<Engine, String> {
        let directory = self.0.join(name);
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let config = StoreConfig { cache_bytes: 8 << 20, ..StoreConfig::default() };
        let opened = Engine::open_dir(&directory, &config);
        opened.map(|(engine, _)| engine).map_err(|error| format!("{}: {error}", directory.display()))
    }
}

impl Drop for StoreDirectory {
    fn drop(&mut self) {
        // What stays is in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key-{number:012}"))
}

fn value(rng: &mut Rng) -> Bytes {
    let words = (0..VALUE_BYTES / 8).flat_map(|_| rng.bits().to_le_bytes());
    Bytes::from(words.collect::<Vec<u8>>())
}

/// Returns the MiB a second of this number of journals that share the batches.
fn journals(setting: &StripingSetting, round: usize, count: usize, directory: &StoreDirectory) -> Result<f64, String> {
    let numbers: Vec<usize> = (0..count).collect();
    let engines =
        numbers.iter().map(|number| directory.open(&format!("{round}-{count}-{number}")).map(std::sync::Mutex::new));
    let engines: Vec<std::sync::Mutex<Engine>> = engines.collect::<Result<_, String>>()?;
    let start = Instant::now();
    let done = in_parallel(count, &numbers, |number| {
        let mut engine = engines[*number].lock().map_err(|_| "a journal's thread panicked".to_owned())?;
        let mut rng = Rng::new(setting.seed ^ (*number as u64) << 32, "journals");
        let value = value(&mut rng);
        for batch in (*number..setting.batches).step_by(count) {
            let changes = (0..BATCH).map(|place| Change::PutRecord(key((batch * BATCH + place) as u64), value.clone()));
            engine.append([changes.collect()]).map_err(|error| error.to_string())?;
        }
        Ok(())
    });
    done.into_iter().collect::<Result<Vec<()>, String>>()?;
    let mib = (setting.batches * BATCH * VALUE_BYTES) as f64 / f64::from(1 << 20);
    Ok(mib / start.elapsed().as_secs_f64())
}

/// Returns the times of random reads and of random durable writes of a store, whose table is written behind between them.
fn tails(setting: &StripingSetting, directory: &StoreDirectory) -> Result<[Vec<Duration>; 2], String> {
    let said = |error: store::StoreError| error.to_string();
    let mut engine = directory.open("store")?;
    let mut rng = Rng::new(setting.seed, "store");
    for first in (0..setting.records).step_by(BATCH) {
        let numbers = first..(first + BATCH as u64).min(setting.records);
        let changes = numbers.map(|number| Change::PutRecord(key(number), value(&mut rng))).collect();
        engine.append([changes]).map_err(said)?;
        engine.write_behind().map_err(said)?;
    }
    engine.checkpoint().map_err(said)?;
    let mut reads = Vec::new();
    for _ in 0..setting.reads {
        let key = key(rng.below(setting.records));
        let start = Instant::now();
        engine.load(&key).map_err(said)?.ok_or("a record is missing")?;
        reads.push(start.elapsed());
    }
    let mut writes = Vec::new();
    for _ in 0..setting.writes {
        let change = Change::PutRecord(key(rng.below(setting.records)), value(&mut rng));
        let start = Instant::now();
        engine.append([vec![change]]).map_err(said)?;
        writes.push(start.elapsed());
        engine.write_behind().map_err(said)?;
    }
    Ok([reads, writes])
}

/// Returns the ratio of the 99.9th percentile and the mean.
fn tail(took: &[Duration]) -> f64 {
    quantiles(took, [0.999])[0].as_secs_f64() / mean(took).as_secs_f64().max(1e-9)
}

fn experiment(setting: &StripingSetting, _: &ExperimentOptions) -> Result<ExperimentOutcome, String> {
    let directory = StoreDirectory::new("striping");
    let rounds = (0..ROUNDS).map(|round| {
        let [two, six] = JOURNALS.map(|count| journals(setting, round, count, &directory));
        Ok([two?, six?])
    });
    let mut rounds: Vec<[f64; 2]> = rounds.collect::<Result<_, String>>()?;
    rounds.sort_by(|one, other| (one[1] / one[0]).total_cmp(&(other[1] / other[0])));
    let times = tails(setting, &directory)?;
    let mut table =
        Table::new(&["measurement", "mib_per_s", "mean_us", "p50_us", "p999_us", "p999_times_mean", "paper"]);
    // The round whose ratio is the median.
    for (count, rate) in JOURNALS.iter().zip(&rounds[rounds.len() / 2]) {
        let paper = if *count == JOURNALS[1] { format!("{PAPER_RATIO} times two journals") } else { String::new() };
        let empty = std::iter::repeat_n(String::new(), 4);
        table.push(
            [format!("{count} journals"), format!("{rate:.1}")].into_iter().chain(empty).chain([paper]).collect(),
        );
    }
    for ((name, took), paper) in ["4 KB reads", "4 KB writes"].into_iter().zip(&times).zip(PAPER_TAILS) {
        let us = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e6);
        let [p50, p999] = quantiles(took, [0.5, 0.999]);
        let mut row = vec![name.to_owned(), String::new(), us(mean(took)), us(p50), us(p999)];
        row.extend([format!("{:.1}", tail(took)), format!("{paper} times the mean")]);
        table.push(row);
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("batches", format!("{} of {BATCH} values of 4 KiB, {ROUNDS} times", setting.batches)),
            ("records", setting.records.to_string()),
            ("reads", setting.reads.to_string()),
            ("writes", format!("{}, each synced", setting.writes)),
            ("times", "of this machine and its directory for temporary files: they differ between runs".into()),
        ],
        models: Vec::new(),
        table,
        curves: None,
        charts: vec![chart(&times)],
        verdict: verdict(&rounds, &times),
    })
}

fn chart(times: &[Vec<Duration>; 2]) -> Chart {
    let line = |name: &str, took: &[Duration]| {
        let share = |point: u32| 1.0 - 0.5_f64.powi(point as i32);
        let relative = |share: f64| quantiles(took, [share])[0].as_secs_f64() / mean(took).as_secs_f64().max(1e-9);
        let points = (1..=10).map(|point| (f64::from(point), relative(share(point)))).collect();
        Line { name: name.into(), points, dashed: false }
    };
    Chart {
        title: "tail of operations on the store".into(),
        across: "one operation of 2^n takes longer: n".into(),
        up: "time ÷ mean".into(),
        dots: true,
        lines: vec![line("4 KB reads", &times[0]), line("4 KB writes", &times[1])],
        ..Chart::default()
    }
}

/// Compares the ratio of the journals and the tails. Rounds that do not agree which is faster compare nothing.
fn verdict(rounds: &[[f64; 2]], times: &[Vec<Duration>; 2]) -> Verdict {
    let ratios: Vec<f64> = rounds.iter().map(|[two, six]| six / two.max(1e-9)).collect();
    let (Some(least), Some(most)) = (ratios.first(), ratios.last()) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let ratio = ratios[ratios.len() / 2];
    let tails = [0, 1].map(|place| tail(&times[place]));
    let is_tail = tails.iter().zip(PAPER_TAILS).all(|(ours, paper)| {
        let factor = ours / paper;
        (1.0 / TAIL_FACTOR..=TAIL_FACTOR).contains(&factor)
    });
    let comparison = match ratio {
        _ if *least < 1.0 && *most > 1.0 => Comparison::NotComparable,
        ratio if (ratio / PAPER_RATIO - 1.0).abs() <= CLOSE && is_tail => Comparison::Reproduced,
        ratio if ratio > PAPER_RATIO && tails.iter().zip(PAPER_TAILS).all(|(ours, paper)| *ours <= paper) => {
            Comparison::Better
        }
        _ => Comparison::Worse,
    };
    let why = format!(
        "six journals write {ratio:.2} times as much as two with the same batches at the median of {} rounds, {least:.2} to {most:.2} times \
         in all of them (paper: {PAPER_RATIO} on two drives; this machine has one directory and a peer one journal), and the 99.9th \
         percentile is {:.1} times the mean for reads and {:.1} times for writes (paper: {} and {})",
        ratios.len(),
        tails[0],
        tails[1],
        PAPER_TAILS[0],
        PAPER_TAILS[1],
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn journals_and_the_store_are_timed() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 1, out: None };
        let setting =
            StripingSetting { batches: 12, records: 64, reads: 50, writes: 20, ..StripingSetting::new(&options) };
        let outcome = experiment(&setting, &options).expect("the directory can be written");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        assert!(value(0, "mib_per_s") > 0.0 && value(1, "mib_per_s") > 0.0, "{}", outcome.table);
        assert!(value(2, "p999_times_mean") >= 1.0 && value(3, "p999_times_mean") >= 1.0, "{}", outcome.table);
        assert!(!StoreDirectory::new("striping").0.exists(), "the stores are removed");
    }
}
