//! What a group does by the number of its replicas (`Harmonia` figure 9).
//!
//! Beside the figure itself there is what would be
//!
//! - if the wire always took the same time, so that no read overtakes what its member is told and has to wait for it;
//! - if what comes back from the switch took the primary time, beyond what a write costs;
//! - and if each vote and each word of how far numbers are executed did, too, one by one.

use std::time::Duration;

use super::measured::{Done, Measured};
use super::setting::{Costs, Setting};
use super::{Figure, one};
use crate::picture::{Chart, Line};

/// What its files are called.
pub const NAME: &str = "harmonia-replicas";

/// As many as the paper has, but for two, which are no group that may lose one.
const REPLICAS: std::ops::RangeInclusive<usize> = 3..=10;
const WRITES: [f64; 4] = [0.0, 0.05, 0.1, 0.2];
/// What a packet or a message costs where it is said to.
const PACKET: Duration = Duration::from_micros(2);

/// The same load on a group of so many, in several ways.
#[derive(Clone, Debug)]
pub struct Row {
    /// Members.
    pub replicas: usize,
    /// The share of writes.
    pub writes: f64,
    /// Operations a second of a lone member.
    pub alone: f64,
    /// All asked of the primary.
    pub direct: f64,
    /// With the switch.
    pub spread: Measured,
    /// Where the wire always takes the same time.
    pub steady: f64,
    /// Where passes cost.
    pub passes: f64,
    /// Where votes and points do, too.
    pub messages: f64,
}

/// One row, each run for so long.
pub fn row(replicas: usize, writes: f64, lasts: Duration) -> Row {
    let setting = |replicas, has_switch| Setting { lasts, ..Setting::of(replicas, has_switch, writes) };
    let with = |costs| one(&Setting { costs, ..setting(replicas, true) }).ops_per_s();
    Row {
        replicas,
        writes,
        alone: one(&setting(1, false)).ops_per_s(),
        direct: one(&setting(replicas, false)).ops_per_s(),
        spread: one(&setting(replicas, true)),
        steady: one(&Setting { jitter: Duration::ZERO, ..setting(replicas, true) }).ops_per_s(),
        passes: with(Costs { pass: PACKET, ..Costs::PAPER }),
        messages: with(Costs { pass: PACKET, message: PACKET, ..Costs::PAPER }),
    }
}

impl Row {
    /// The shares of the reads that were left to the primary, since a member had not heard in time what is executed, and that
    /// went to it because the object was dirty.
    fn shares(&self) -> [f64; 2] {
        let reads = self.spread.count(Done::Read) + self.spread.count(Done::DirtyRead);
        [self.spread.left, self.spread.count(Done::DirtyRead)].map(|count| count as f64 / reads.max(1) as f64)
    }

    /// How busy the primary is, and the others are.
    fn busy(&self) -> [f64; 2] {
        let others = 1..self.replicas;
        [self.spread.busy(0), others.map(|machine| self.spread.busy(machine)).sum::<f64>() / (self.replicas - 1) as f64]
    }

    /// How often a write passed the switch.
    fn passed(&self) -> f64 {
        let work = &self.spread.machines[0];
        work.count(Done::Pass) as f64 / work.count(Done::Write).max(1) as f64
    }
}

/// All of it. `say` is told each row.
pub fn figure(lasts: Duration, say: &mut dyn FnMut(String)) -> Figure {
    say("Operations a second (thousands) by replicas; in brackets times what one replica reads".into());
    say(format!(
        "{:>6}{:>10}{:>8}{:>9}{:>16}{:>9}{:>9}{:>10}{:>8}{:>8}{:>15}{:>8}",
        "writes",
        "replicas",
        "alone",
        "direct",
        "spread",
        "steady",
        "passes",
        "messages",
        "left %",
        "dirty %",
        "busy: primary",
        "others"
    ));
    let mut csv = String::from(
        "writes,replicas,alone_ops_per_s,direct_ops_per_s,spread_ops_per_s,steady_ops_per_s,passes_ops_per_s,\
         messages_ops_per_s,times_one_read,left_share,dirty_share,primary_busy,others_busy,passed_per_write\n",
    );
    let reads = one(&Setting { lasts, ..Setting::of(1, false, 0.0) }).ops_per_s();
    let mut charts = Vec::new();
    for writes in WRITES {
        let rows: Vec<Row> = REPLICAS.map(|replicas| row(replicas, writes, lasts)).collect();
        for row in &rows {
            let (spread, [left, dirty], [primary, others]) = (row.spread.ops_per_s(), row.shares(), row.busy());
            let k = |number: f64| format!("{:.0}", number / 1e3);
            say(format!(
                "{:>6}{:>10}{:>8}{:>9}{:>16}{:>9}{:>9}{:>10}{:>8.2}{:>8.3}{primary:>15.2}{others:>8.2}",
                writes,
                row.replicas,
                k(row.alone),
                k(row.direct),
                format!("{} ({:.2})", k(spread), spread / reads),
                k(row.steady),
                k(row.passes),
                k(row.messages),
                left * 100.0,
                dirty * 100.0
            ));
            let ops = [row.alone, row.direct, spread, row.steady, row.passes, row.messages];
            let shares = [spread / reads, left, dirty, primary, others, row.passed()];
            csv.push_str(&format!("{writes},{},", row.replicas));
            csv.push_str(&ops.map(|ops| format!("{ops:.0},")).concat());
            csv.push_str(&format!("{}\n", shares.map(|share| format!("{share:.4}")).join(",")));
        }
        let line = |name: &str, dashed, of: fn(&Row) -> f64| {
            let begin = (1.0, rows[0].alone);
            let points = std::iter::once(begin).chain(rows.iter().map(|row| (row.replicas as f64, of(row)))).collect();
            Line { name: name.into(), points, dashed }
        };
        charts.push(Chart {
            title: format!("{} % writes", writes * 100.0),
            across: "replicas".into(),
            up: "operations a second".into(),
            dots: true,
            lines: vec![
                line("reads spread by the switch", false, |row| row.spread.ops_per_s()),
                line("all asked of the primary", false, |row| row.direct),
                line("spread, a wire without jitter", true, |row| row.steady),
                line("spread, passes cost 2 µs", true, |row| row.passes),
                line("spread, all messages cost 2 µs", true, |row| row.messages),
            ],
            ..Chart::default()
        });
    }
    Figure { name: NAME, csv, svg: crate::picture::draw(&charts) }
}
