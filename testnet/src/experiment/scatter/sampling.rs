//! The number of groups that a newcomer should sample (Scatter §6.1). Members die, and newcomers join the neediest of the sampled
//! groups. The fewer groups they see, the more often groups have the wrong size later and must split, merge or trade members.

use policy::joining::{Joining, Resilience, Sampled};
use policy::size::{Resize, Sizes, Sizing, Thresholds};

use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};
use crate::rng::Rng;

/// The claim of §6.1.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sampling",
    paper: "Scatter §6.1",
    about: "Later reconfigurations by the number of groups that a newcomer samples",
    run: |options, say| experiment(&SamplingSetting::new(options), options, say),
};

/// Numbers of sampled groups.
const SAMPLES: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 16];
/// The paper's choice.
const PAPER: usize = 4;
/// Number of samples beyond which more are said not to help.
const MANY: usize = 16;
/// Share of the savings with the most samples at which the paper's choice is enough.
const ENOUGH: f64 = 0.8;

/// The parameters of the experiment.
struct SamplingSetting {
    peers: usize,
    /// Least and greatest number of members of a group.
    members: (usize, usize),
    /// Number of deaths, each followed by a join.
    deaths: u64,
}

impl SamplingSetting {
    fn new(options: &ExperimentOptions) -> SamplingSetting {
        SamplingSetting { peers: 840, members: (6, 13), deaths: options.size.pick(200_000, 1_000_000, 10_000_000) }
    }
}

/// Changes with one number of samples.
#[derive(Clone, Copy, Debug, Default)]
struct SamplingPoint {
    samples: usize,
    splits: u64,
    merges: u64,
    trades: u64,
    /// Sums over all deaths: the smallest group, and squares of sizes and their count.
    smallest: u64,
    squares: u64,
    groups: u64,
}

impl SamplingPoint {
    fn changes(&self) -> u64 {
        self.splits + self.merges + self.trades
    }
}

/// The groups of a ring, in order, by their numbers of members.
struct RingSizes {
    sizes: Vec<usize>,
    limits: (usize, usize),
}

impl RingSizes {
    fn new(setting: &SamplingSetting) -> RingSizes {
        let usual = (setting.members.0 + setting.members.1) / 2;
        let mut sizes = vec![usual; setting.peers / usual];
        let groups = sizes.len();
        (0..setting.peers % usual).for_each(|more| sizes[more % groups] += 1);
        RingSizes { sizes, limits: setting.members }
    }

    /// Removes a member that dies, each with the same probability.
    fn die(&mut self, peers: usize, rng: &mut Rng) {
        let mut drawn = rng.below(peers as u64) as usize;
        for size in &mut self.sizes {
            if drawn < *size {
                *size -= 1;
                return;
            }
            drawn -= *size;
        }
    }

    /// A newcomer joins the neediest of some groups that it samples at random places: each group owns about as much of the ring.
    fn join(&mut self, samples: usize, rng: &mut Rng) {
        let places: Vec<usize> = (0..samples).map(|_| rng.below(self.sizes.len() as u64) as usize).collect();
        let sampled: Vec<Sampled> =
            places.iter().map(|place| Sampled { members: self.sizes[*place], ..Sampled::default() }).collect();
        if let Some(chosen) = Resilience.choose(&sampled, rng.bits()) {
            self.sizes[places[chosen]] += 1;
        }
    }

    /// Lets groups of the wrong size split, merge and trade members, until all sizes are right.
    fn settle(&mut self, point: &mut SamplingPoint) {
        while let Some((place, resize)) = self.wrong() {
            let behind = (place + 1) % self.sizes.len();
            match resize {
                Resize::Split => {
                    let half = self.sizes[place] / 2;
                    self.sizes[place] -= half;
                    self.sizes.insert(place + 1, half);
                    point.splits += 1;
                }
                Resize::Merge => {
                    self.sizes[place] += self.sizes[behind];
                    self.sizes.remove(behind);
                    point.merges += 1;
                }
                Resize::Give(count) => self.trade(place, behind, count, point),
                Resize::Take(count) => self.trade(behind, place, count, point),
            }
        }
    }

    fn trade(&mut self, from: usize, to: usize, count: usize, point: &mut SamplingPoint) {
        self.sizes[from] -= count;
        self.sizes[to] += count;
        point.trades += 1;
    }

    fn wrong(&self) -> Option<(usize, Resize)> {
        let (min, max) = self.limits;
        let count = self.sizes.len();
        (0..count).find_map(|place| {
            let successor = (count > 1).then(|| self.sizes[(place + 1) % count]);
            let sizes = Sizes { own: self.sizes[place], successor, min, max, prospects: None };
            Thresholds.propose(&sizes).map(|resize| (place, resize))
        })
    }
}

fn measure(setting: &SamplingSetting, samples: usize, seed: u64) -> SamplingPoint {
    let mut rng = Rng::new(seed, "sampling");
    let (mut ring, mut point) = (RingSizes::new(setting), SamplingPoint { samples, ..SamplingPoint::default() });
    for _ in 0..setting.deaths {
        ring.die(setting.peers, &mut rng);
        ring.settle(&mut point);
        ring.join(samples, &mut rng);
        ring.settle(&mut point);
        point.smallest += ring.sizes.iter().min().copied().unwrap_or(0) as u64;
        point.squares += ring.sizes.iter().map(|size| (size * size) as u64).sum::<u64>();
        point.groups += ring.sizes.len() as u64;
    }
    point
}

fn experiment(setting: &SamplingSetting, options: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
    let points = in_parallel(options.jobs, &SAMPLES, |samples| measure(setting, *samples, options.seed));
    let mut table = Table::new(&[
        "sampled",
        "reconfigurations_per_1000_joins",
        "splits",
        "merges",
        "trades",
        "members_mean",
        "members_sd",
        "smallest_mean",
        "paper",
    ]);
    points.iter().for_each(|point| table.push(cells(point, setting)));
    Ok(ExperimentOutcome {
        parameters: vec![
            ("peers", setting.peers.to_string()),
            ("members of a group", format!("{} to {}", setting.members.0, setting.members.1)),
            ("deaths", setting.deaths.to_string()),
        ],
        models: vec![
            "all of this is one, as the paper's: sizes of groups on a ring, without a network, decided by the peers' own policies".into(),
        ],
        table,
        curves: None,
        charts: vec![chart(&points, setting)],
        verdict: verdict(&points, setting),
    })
}

fn per_1000(count: u64, setting: &SamplingSetting) -> f64 {
    count as f64 * 1_000.0 / setting.deaths as f64
}

fn cells(point: &SamplingPoint, setting: &SamplingSetting) -> Vec<String> {
    let mean = setting.peers as f64 * setting.deaths as f64 / point.groups.max(1) as f64;
    let variance = point.squares as f64 / point.groups.max(1) as f64 - mean * mean;
    let mut cells = vec![point.samples.to_string(), format!("{:.2}", per_1000(point.changes(), setting))];
    cells.extend([point.splits, point.merges, point.trades].map(|count| count.to_string()));
    let smallest = point.smallest as f64 / setting.deaths as f64;
    cells.extend([mean, variance.max(0.0).sqrt(), smallest].map(|number| format!("{number:.2}")));
    cells.push(if point.samples == PAPER { "enough".into() } else { String::new() });
    cells
}

fn chart(points: &[SamplingPoint], setting: &SamplingSetting) -> Chart {
    let of = |point: &SamplingPoint| (point.samples as f64, per_1000(point.changes(), setting));
    Chart {
        title: "reconfigurations by sampled groups".into(),
        across: "groups that a newcomer samples".into(),
        up: "reconfigurations for 1,000 joins".into(),
        dots: true,
        lines: vec![Line {
            name: "resilience, thresholds".into(),
            points: points.iter().map(of).collect(),
            dashed: false,
        }],
        ..Chart::default()
    }
}

fn verdict(points: &[SamplingPoint], setting: &SamplingSetting) -> Verdict {
    let of = |samples: usize| {
        points.iter().find(|point| point.samples == samples).map_or(0.0, |point| per_1000(point.changes(), setting))
    };
    let (one, four, many) = (of(1), of(PAPER), of(MANY));
    let comparison = if one - four >= ENOUGH * (one - many) { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!(
        "newcomers that sample one group cause {one:.1} reconfigurations for 1,000 joins, four {four:.1} and {MANY} {many:.1} (paper: four \
         are enough)"
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    /// More samples cause fewer changes, and no peer is lost in them.
    #[test]
    fn samples_save_reconfigurations() {
        let setting = SamplingSetting {
            deaths: 20_000,
            ..SamplingSetting::new(&ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 1, out: None })
        };
        let [one, four, many] = [1, 4, 16].map(|samples| measure(&setting, samples, 1));
        assert!(one.changes() > 2 * four.changes() && four.changes() >= many.changes(), "{one:?}\n{four:?}\n{many:?}");
        let mut ring = RingSizes::new(&setting);
        let mut rng = Rng::new(2, "test");
        for _ in 0..1_000 {
            ring.die(840, &mut rng);
            ring.settle(&mut SamplingPoint::default());
            ring.join(2, &mut rng);
            ring.settle(&mut SamplingPoint::default());
            assert_eq!(ring.sizes.iter().sum::<usize>(), 840);
            assert!(ring.sizes.iter().all(|size| (6..=13).contains(size)), "{:?}", ring.sizes);
        }
    }
}
