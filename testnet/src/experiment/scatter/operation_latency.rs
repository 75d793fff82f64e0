//! Latency of operations of one group: reads under a lease, confirmed reads, writes at the primary, and writes through another member
//! (Scatter §7.1.1, Fig. 9; Harmony Fig. 4).
//!
//! One client has one operation under way. The way between the client and the member that it asks is left out, as in the papers.

use std::time::Duration;

use super::group_throughput::{COST, MESSAGE_COST};
use crate::experiment::group_testbed::{AskedMember, GroupSetting, run};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::sim::Latency;

/// Figure 9.
pub const EXPERIMENT: Experiment = Experiment {
    name: "operation-latency",
    paper: "Scatter Fig. 9, Harmony Fig. 4",
    about: "How long reads and writes of one group take, by its size at one site, and by the primary's site at three",
    run: |options, _: Say<'_>| Ok(experiment(&OperationSetting::new(options), options)),
};

/// Sizes of a group at one site.
const SIZES: [usize; 6] = [3, 5, 7, 9, 11, 13];
/// Members of a group at three sites, three at each.
const SPREAD: usize = 9;
/// Names of the sites, in the order of members.
const SITES: [&str; 3] = ["EC2-East", "EC2-West", "Emulab"];

/// The parameters of the experiment.
struct OperationSetting {
    sizes: Vec<usize>,
    lasts: Duration,
    seed: u64,
}

impl OperationSetting {
    fn new(options: &ExperimentOptions) -> OperationSetting {
        let lasts = Duration::from_secs(options.size.pick(1, 5, 60));
        OperationSetting { sizes: SIZES.into(), lasts, seed: options.seed }
    }
}

/// Mean times of one group, in milliseconds.
struct OperationPoint {
    /// Site of the primary; `None` where all members stand at one.
    site: Option<&'static str>,
    members: usize,
    leased: f64,
    confirmed: f64,
    write: f64,
    other: f64,
}

/// Measures a group of this size at one site, or the members of one of three sites as primaries.
fn measure(setting: &OperationSetting, members: usize, site: Option<usize>) -> OperationPoint {
    let mut base = GroupSetting {
        message_cost: MESSAGE_COST,
        part: site,
        lasts: setting.lasts,
        ..GroupSetting::of(members, setting.seed)
    };
    if site.is_some() {
        (base.latency, base.lasts) = (Latency::PaperSites, setting.lasts * 10);
    }
    // A leased read takes so little time that a tenth of a second has thousands of them.
    let leased = GroupSetting { leases: true, reads: 1.0, lasts: setting.lasts / 10, ..base.clone() };
    let confirmed = GroupSetting { reads: 1.0, ..base.clone() };
    let other = GroupSetting { asked: AskedMember::Other, ..base.clone() };
    let [leased, confirmed, write, other] = [&leased, &confirmed, &base, &other].map(|setting| run(setting).mean_ms());
    OperationPoint { site: site.map(|site| SITES[site]), members, leased, confirmed, write, other }
}

fn experiment(setting: &OperationSetting, options: &ExperimentOptions) -> ExperimentOutcome {
    let sizes = setting.sizes.iter().map(|size| (*size, None));
    let all: Vec<(usize, Option<usize>)> = sizes.chain((0..SITES.len()).map(|site| (SPREAD, Some(site)))).collect();
    let points = in_parallel(options.jobs, &all, |(members, site)| measure(setting, *members, *site));
    let mut table = Table::new(&[
        "primary_at",
        "members",
        "leased_read_ms",
        "confirmed_read_ms",
        "write_ms",
        "other_member_ms",
        "paper",
    ]);
    for point in &points {
        let mut row = vec![point.site.unwrap_or("one cluster").to_owned(), point.members.to_string()];
        row.extend([point.leased, point.confirmed, point.write, point.other].map(|ms| format!("{ms:.3}")));
        row.push(paper(point.site).into());
        table.push(row);
    }
    ExperimentOutcome {
        parameters: vec![
            ("one way at one site", "0.15 ms".into()),
            ("round trips between sites", "82, 79 and 38 ms".into()),
            ("operations under way", "1".into()),
            ("durability", "memory".into()),
        ],
        models: vec![COST.into()],
        table,
        curves: None,
        charts: vec![chart(&points)],
        verdict: verdict(&points),
    }
}

fn paper(site: Option<&str>) -> &'static str {
    match site {
        None => "leased flat; confirmed slightly below write; other member clearly above",
        Some("EC2-East") => "much higher",
        Some(_) => "EC2-West and Emulab alike",
    }
}

fn chart(points: &[OperationPoint]) -> Chart {
    let line = |name: &str, of: fn(&OperationPoint) -> f64| Line {
        name: name.into(),
        points: points
            .iter()
            .filter(|point| point.site.is_none())
            .map(|point| (point.members as f64, of(point)))
            .collect(),
        dashed: false,
    };
    Chart {
        title: "one cluster".into(),
        across: "members".into(),
        up: "milliseconds".into(),
        dots: true,
        lines: vec![
            line("write through another member", |point| point.other),
            line("write at the primary", |point| point.write),
            line("confirmed read", |point| point.confirmed),
            line("leased read", |point| point.leased),
        ],
        ..Chart::default()
    }
}

/// Compares the order of the four operations, and of the three sites, with the paper's.
fn verdict(points: &[OperationPoint]) -> Verdict {
    let near: Vec<&OperationPoint> = points.iter().filter(|point| point.site.is_none()).collect();
    let far = |site: &str| points.iter().find(|point| point.site == Some(site)).map_or(0.0, |point| point.write);
    let (Some(small), Some(large)) = (near.first(), near.last()) else {
        return Verdict::new(Comparison::NotComparable, "nothing was measured".into());
    };
    let is_flat = (large.leased - small.leased).abs() < 0.1 * small.leased;
    let is_below = near.iter().all(|point| point.confirmed <= point.write);
    let is_slower = near.iter().all(|point| point.other > 1.3 * point.write);
    let [east, west, emulab] = SITES.map(far);
    let is_placed = east > 1.5 * west.max(emulab) && (west - emulab).abs() < 0.2 * west;
    let is_slightly = near.iter().any(|point| point.confirmed < 0.99 * point.write);
    let is_same = is_flat && is_below && is_slower && is_placed;
    let comparison = if is_same { Comparison::Reproduced } else { Comparison::Worse };
    let why_read = match is_slightly {
        true => "",
        false => ", as nothing is stored here and both cost the same messages",
    };
    let why = format!(
        "from {} to {} members a leased read goes from {:.2} to {:.2} ms; a confirmed read takes {:.2} and a write {:.2} ms at the most \
         members (paper: slightly less than a write{why_read}), and {:.2} ms through another member (paper: clearly more); with primaries \
         at EC2-East, EC2-West and Emulab a write takes {east:.0}, {west:.0} and {emulab:.0} ms (paper: East much higher, the others alike)",
        small.members, large.members, small.leased, large.leased, large.confirmed, large.write, large.other,
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn operations_have_their_order() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let setting = OperationSetting { sizes: vec![3, 5], lasts: Duration::from_millis(50), seed: 1 };
        let outcome = experiment(&setting, &options);
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        for row in 0..5 {
            assert!(value(row, "leased_read_ms") < 0.2, "{}", outcome.table);
            assert!(value(row, "confirmed_read_ms") <= value(row, "write_ms"), "{}", outcome.table);
            assert!(value(row, "write_ms") < value(row, "other_member_ms"), "{}", outcome.table);
        }
        assert!((value(2, "write_ms") - 79.0).abs() < 2.0 && (value(3, "write_ms") - 38.0).abs() < 2.0);
    }
}
