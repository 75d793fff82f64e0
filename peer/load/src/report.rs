//! The outcomes of a load.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

/// Upper limit of waiting times. They are kept to three digits, from a microsecond on; longer ones count as this one.
const LONGEST: Duration = Duration::from_secs(1000);

/// The outcomes of the requests of one kind.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Number of requests that were answered as executed.
    pub done: u64,
    /// Number of requests that were refused or got no answer, by the reason.
    pub refused: BTreeMap<String, u64>,
    /// Waiting times of executed requests, in nanoseconds.
    waiting: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        let waiting = Histogram::new_with_bounds(1000, LONGEST.as_nanos() as u64, 3).expect("the bounds are in order");
        Tally { done: 0, refused: BTreeMap::new(), waiting }
    }
}

impl Tally {
    pub(crate) fn note(&mut self, waited: Duration, refusal: Option<String>) {
        match refusal {
            None => {
                self.done += 1;
                self.waiting.saturating_record(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
            }
            Some(why) => *self.refused.entry(why).or_default() += 1,
        }
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.done += other.done;
        for (why, count) in &other.refused {
            *self.refused.entry(why.clone()).or_default() += count;
        }
        self.waiting.add(&other.waiting).expect("the same bounds");
    }

    /// Returns the number of requests that were refused or got no answer, for any reason.
    pub fn refused(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Returns the time within which this share of executed requests, from 0 to 1, was answered.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.waiting.value_at_quantile(share))
    }

    /// Returns the mean of the waiting times.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.waiting.mean() as u64)
    }

    /// Returns the longest waiting time.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.waiting.max())
    }
}

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Tally", 8)?;
        fields.serialize_field("done", &self.done)?;
        fields.serialize_field("refused", &self.refused)?;
        for (name, time) in [
            ("mean_s", self.mean()),
            ("p50_s", self.quantile(0.5)),
            ("p90_s", self.quantile(0.9)),
            ("p99_s", self.quantile(0.99)),
            ("p999_s", self.quantile(0.999)),
            ("max_s", self.longest()),
        ] {
            fields.serialize_field(name, &time.as_secs_f64())?;
        }
        fields.end()
    }
}

/// The outcomes of a load.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Writes.
    pub writes: Tally,
    /// Reads.
    pub reads: Tally,
    /// The counted time.
    pub elapsed: Duration,
}

impl Report {
    /// Returns the executed requests a second, of all kinds.
    pub fn rate(&self) -> f64 {
        (self.writes.done + self.reads.done) as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the number of executed requests, of all kinds.
    pub fn done(&self) -> u64 {
        self.writes.done + self.reads.done
    }

    pub(crate) fn add(&mut self, other: &Report) {
        self.writes.add(&other.writes);
        self.reads.add(&other.reads);
        self.elapsed = self.elapsed.max(other.elapsed);
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Report", 4)?;
        fields.serialize_field("elapsed_s", &self.elapsed.as_secs_f64())?;
        fields.serialize_field("ops_per_s", &self.rate())?;
        fields.serialize_field("writes", &self.writes)?;
        fields.serialize_field("reads", &self.reads)?;
        fields.end()
    }
}

/// Writes a table: a line for writes and one for reads, where there were any, and the refusals.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [("writes", &self.writes), ("reads", &self.reads)];
        write!(f, "{:<7}{:>10}{:>10}{:>10}{:>10}{:>10}", "", "ops/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms")?;
        for (name, tally) in kinds.iter().filter(|(_, tally)| tally.done + tally.refused() > 0) {
            write!(f, "\n{name:<7}{:>10.0}", tally.done as f64 / self.elapsed.as_secs_f64())?;
            for time in [tally.quantile(0.5), tally.quantile(0.99), tally.quantile(0.999), tally.longest()] {
                write!(f, "{:>10.3}", time.as_secs_f64() * 1e3)?;
            }
        }
        for (name, tally) in kinds {
            for (why, count) in &tally.refused {
                write!(f, "\n{count} {name} refused: {why}")?;
            }
        }
        Ok(())
    }
}
