//! Fine against coarse: one state machine for each key, or one for each sub-range (fRSM §4.3, figures 8 to 10).
//!
//! The paper's load: 43 % reads, values of 512 bytes, keys by Zipf's law (0.99) or uniform; one of a hundred operations is
//! slow. Its setting: three machines, twelve shards, one to twelve cores. What differs: there a coarse shard commits a
//! batch before it begins the next, here its writes are under way together and only keep their order.

use std::fmt;
use std::time::Duration;

use load::Distribution;

use super::cores::{Measured, Setting, run};

/// Cores of a machine, as in figure 10.
const CORES: [usize; 5] = [1, 2, 4, 6, 12];
/// What the paper reports for twelve cores, skewed and uniform: times the throughput of coarse.
const PAPER: [f64; 2] = [5.6, 2.3];

/// One line: the same load on fine and coarse.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Zipf or uniform.
    pub skewed: bool,
    /// Cores of each machine.
    pub cores: usize,
    /// Operations under way.
    pub clients: usize,
    /// Each key by itself.
    pub fine: Measured,
    /// In order.
    pub coarse: Measured,
}

/// All lines, in the order in which they were run.
#[derive(Clone, Debug, Default)]
pub struct FineCoarse {
    /// See there.
    pub lines: Vec<Line>,
}

/// One line.
pub fn line(skewed: bool, cores: usize, clients: usize, lasts: Duration) -> Line {
    let keys = if skewed { Distribution::Zipf { exponent: 0.99 } } else { Distribution::Uniform };
    let measure = |coarse| {
        run(Setting {
            coarse,
            cores,
            keys,
            key_count: 100_000,
            clients,
            value_bytes: 512,
            reads: 0.43,
            slow: 0.01,
            lasts,
        })
    };
    Line { skewed, cores, clients, fine: measure(false), coarse: measure(true) }
}

/// Runs all of it: the most that can be done with each number of cores, and with twelve also what fewer clients see.
/// `say` is told each line.
pub fn fine_coarse(mut say: impl FnMut(&Line)) -> FineCoarse {
    let lasts = Duration::from_millis(250);
    let mut lines = Vec::new();
    for skewed in [true, false] {
        let loads = CORES.map(|cores| (cores, 128 * cores)).into_iter().chain([(12, 24), (12, 96), (12, 384)]);
        for (cores, clients) in loads {
            let line = line(skewed, cores, clients, lasts);
            say(&line);
            lines.push(line);
        }
    }
    FineCoarse { lines }
}

impl Line {
    /// Times the throughput of coarse.
    pub fn ratio(&self) -> f64 {
        self.fine.ops_per_s / self.coarse.ops_per_s
    }
}

impl FineCoarse {
    /// A heading and a line each.
    pub fn csv(&self) -> String {
        let heading =
            "keys,cores,clients,fine_ops_per_s,coarse_ops_per_s,fine_p50_s,coarse_p50_s,fine_p99_s,coarse_p99_s,ratio";
        let mut csv = format!("{heading}\n");
        for line in &self.lines {
            let keys = if line.skewed { "zipf" } else { "uniform" };
            let seconds =
                [line.fine.p50, line.coarse.p50, line.fine.p99, line.coarse.p99].map(|time| time.as_secs_f64());
            csv.push_str(&format!("{keys},{},{},", line.cores, line.clients));
            csv.push_str(&format!("{},{},", line.fine.ops_per_s, line.coarse.ops_per_s));
            csv.push_str(&seconds.map(|seconds| format!("{seconds},")).concat());
            csv.push_str(&format!("{:.3}\n", line.ratio()));
        }
        csv
    }
}

/// What stands above the lines.
pub const HEADING: &str =
    "keys     cores  clients   fine ops/s  coarse ops/s   fine p50/p99 ms   coarse p50/p99 ms   ratio  paper";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = if self.skewed { "zipf" } else { "uniform" };
        write!(f, "{keys:<8}{:>6}{:>9}", self.cores, self.clients)?;
        write!(f, "{:>13.0}{:>14.0}", self.fine.ops_per_s, self.coarse.ops_per_s)?;
        for of in [self.fine, self.coarse] {
            write!(f, "{:>12.2} /{:>6.2}", of.p50.as_secs_f64() * 1e3, of.p99.as_secs_f64() * 1e3)?;
        }
        write!(f, "{:>8.2}", self.ratio())?;
        if self.cores == 12 && self.clients == 128 * 12 {
            write!(f, "{:>7.1}", PAPER[usize::from(!self.skewed)])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow operation holds up those behind it in its sub-range, and the fullest sub-range has no more than a core.
    #[test]
    fn fine_does_more_with_twelve_cores() {
        let [skewed, uniform] = [true, false].map(|skewed| line(skewed, 12, 384, Duration::from_millis(60)));
        assert!(skewed.ratio() > uniform.ratio() && uniform.ratio() > 1.0, "{skewed}\n{uniform}");
        assert!(skewed.fine.p99 < skewed.coarse.p99, "{skewed}");
    }
}
