//! Delays of a laboratory: the least time of one way between two places, and the distribution of the rest.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rng::Rng;
use crate::sim::network::planet::{Planet, normal};

/// Upper limit of a delay, in milliseconds.
pub(super) const DELAY_MS_MAX: f64 = 60_000.0;

/// Round trips between the papers' three sites, in milliseconds: first to second, first to third, second to third (Scatter §7).
const PAPER_TRIPS: [[f64; 3]; 3] = [[0.3, 82.0, 79.0], [82.0, 0.3, 38.0], [79.0, 38.0, 0.3]];

/// One-way delay of each ordered pair of hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LatencyModel {
    /// The same delay for all pairs.
    Constant {
        /// Delay of one way, in milliseconds: 0 to 60,000.
        one_way_ms: f64,
    },
    /// Round trips between sites, in the plan or in a file of their own.
    Matrix {
        /// File with the table, in TOML or JSON; relative to the plan.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The table itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<SiteMatrix>,
    },
    /// The papers' sites (Scatter §7): round trips of 82 ms, 79 ms and 38 ms between three sites, and 0.3 ms inside. The plan's first
    /// site is 82 ms from its second one and 79 ms from its third one.
    ThreeSites,
    /// Delays like those on PlanetLab, by the simulator's model: each host has a place that is drawn from the plan's seed.
    Planet,
}

/// Round trips between sites, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteMatrix {
    /// Labels of the sites, in the order of rows and columns.
    pub sites: Vec<String>,
    /// Round trip within a site.
    pub within_ms: f64,
    /// A row for each site. The table is symmetric, and its diagonal is not used.
    pub round_trip_ms: Vec<Vec<f64>>,
}

impl SiteMatrix {
    /// Reads a table from a file in TOML or JSON.
    ///
    /// # Errors
    /// A file that cannot be read, or is no table; the error names it.
    pub fn read(file: &Path) -> Result<SiteMatrix, String> {
        let named = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
        match text.trim_start().starts_with('{') {
            true => serde_json::from_str(&text).map_err(|error| named(error.to_string())),
            false => toml::from_str(&text).map_err(|error| named(error.to_string())),
        }
    }

    /// Returns the round trip between two sites.
    fn round_trip(&self, from: &str, to: &str) -> Option<f64> {
        let place = |label: &str| self.sites.iter().position(|site| site == label);
        let (from, to) = (place(from)?, place(to)?);
        match from == to {
            true => Some(self.within_ms),
            false => self.round_trip_ms.get(from)?.get(to).copied(),
        }
    }

    fn validate(&self, wanted: &[&str]) -> Result<(), String> {
        let n = self.sites.len();
        if self.round_trip_ms.len() != n || self.round_trip_ms.iter().any(|row| row.len() != n) {
            return Err(format!("latency: round_trip_ms needs {n} rows of {n} numbers, for the {n} sites"));
        }
        check_delay("latency: within_ms", self.within_ms)?;
        for (row, from) in self.sites.iter().enumerate() {
            if self.sites[..row].contains(from) {
                return Err(format!("latency: site {from:?} stands twice in sites"));
            }
            for (column, to) in self.sites.iter().enumerate().filter(|(column, _)| *column != row) {
                let trip = self.round_trip_ms[row][column];
                check_delay(&format!("latency: round_trip_ms from {from:?} to {to:?}"), trip)?;
                let back = self.round_trip_ms[column][row];
                if trip != back {
                    return Err(format!(
                        "latency: a round trip is the same from both ends, and round_trip_ms has {trip} and {back} for {from:?} and {to:?}"
                    ));
                }
            }
        }
        match wanted.iter().find(|site| !self.sites.iter().any(|known| known == *site)) {
            Some(site) => Err(format!("latency: the matrix has no site {site:?}, where hosts stand")),
            None => Ok(()),
        }
    }
}

fn check_delay(field: &str, ms: f64) -> Result<(), String> {
    match (0.0..=DELAY_MS_MAX).contains(&ms) {
        true => Ok(()),
        false => Err(format!("{field} = {ms} is outside of 0 to {DELAY_MS_MAX} milliseconds")),
    }
}

impl LatencyModel {
    /// Checks that the model has a delay for all pairs of these sites.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(super) fn validate(&self, sites: &[&str]) -> Result<(), String> {
        match self {
            LatencyModel::Constant { one_way_ms } => check_delay("latency: one_way_ms", *one_way_ms),
            LatencyModel::Matrix { file: None, table: Some(table) } => table.validate(sites),
            LatencyModel::Matrix { file: Some(file), table: None } => {
                Err(format!("latency: the file {file:?} was not read; read the plan from a file, or give the table"))
            }
            LatencyModel::Matrix { .. } => Err("latency: a matrix is either file = \"…\" or table = {…}".into()),
            LatencyModel::ThreeSites if sites.len() > PAPER_TRIPS.len() => {
                Err(format!("latency: the model has three sites, and the plan {}", sites.len()))
            }
            LatencyModel::ThreeSites | LatencyModel::Planet => Ok(()),
        }
    }

    /// Returns the one-way delays between places with these sites, a row for each sender.
    pub(super) fn one_way(&self, places: &[&str], sites: &[&str], seed: u64) -> Vec<Vec<Duration>> {
        let planet = match self {
            LatencyModel::Planet => Some(Planet::new(places.len(), seed)),
            _ => None,
        };
        let index = |label: &str| sites.iter().position(|site| *site == label).unwrap_or_default();
        let delay = |from: usize, to: usize| match (self, &planet) {
            (LatencyModel::Constant { one_way_ms }, _) => milliseconds(*one_way_ms),
            (LatencyModel::Matrix { table, .. }, _) => {
                let trip = table.as_ref().and_then(|table| table.round_trip(places[from], places[to]));
                milliseconds(trip.unwrap_or_default() / 2.0)
            }
            (LatencyModel::Planet, Some(planet)) => planet.one_way(from, to),
            _ => milliseconds(PAPER_TRIPS[index(places[from])][index(places[to])] / 2.0),
        };
        (0..places.len()).map(|from| (0..places.len()).map(|to| delay(from, to)).collect()).collect()
    }
}

/// Returns a duration of milliseconds; zero for a number that is none.
pub(super) fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

/// Delay that is drawn for each packet and added to the delay of its link. It is never negative: a link is never faster than planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Jitter {
    /// Distribution of the delay.
    pub kind: JitterKind,
    /// Scale of the distribution, in milliseconds: 0 to 60,000.
    pub ms: f64,
    /// Whether a packet may overtake an earlier one of the same link. By default none does: the packet behind waits.
    pub reorder: bool,
}

/// Distribution of a delay on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JitterKind {
    /// No delay on top.
    #[default]
    None,
    /// Uniform between 0 and the scale.
    Uniform,
    /// The magnitude of a normal distribution with the scale as deviation.
    Normal,
    /// Exponential with the scale as mean.
    Exponential,
}

impl Jitter {
    pub(super) fn validate(&self) -> Result<(), String> {
        check_delay("jitter: ms", self.ms)?;
        match self.kind {
            JitterKind::None if self.ms > 0.0 => {
                Err("jitter: ms is given without a kind: choose uniform, normal or exponential".into())
            }
            _ => Ok(()),
        }
    }

    /// Draws the delay of one packet.
    pub(super) fn draw(&self, rng: &mut Rng) -> Duration {
        let factor = match self.kind {
            JitterKind::None => return Duration::ZERO,
            JitterKind::Uniform => rng.fraction(),
            JitterKind::Normal => normal(rng).abs(),
            JitterKind::Exponential => -rng.positive_fraction().ln(),
        };
        milliseconds((self.ms * factor).min(DELAY_MS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_symmetric_and_complete() {
        let table = |rows: &str| {
            let text = format!("sites = ['a', 'b']\nwithin_ms = 0.5\nround_trip_ms = {rows}");
            toml::from_str::<SiteMatrix>(&text).expect("a table")
        };
        let good = table("[[0, 30], [30, 0]]");
        assert_eq!(good.validate(&["b", "a"]), Ok(()));
        assert!(good.validate(&["c"]).expect_err("no such site").contains("\"c\""));
        assert!(table("[[0, 30], [31, 0]]").validate(&[]).expect_err("not symmetric").contains("both ends"));
        assert!(table("[[0, 30]]").validate(&[]).expect_err("a row is missing").contains("2 rows"));
        let model = LatencyModel::Matrix { file: None, table: Some(good) };
        let delays = model.one_way(&["a", "b", "b"], &["a", "b"], 0);
        assert_eq!(delays[0][2], Duration::from_millis(15));
        assert_eq!(delays[1][2], Duration::from_micros(250));
    }

    #[test]
    fn the_papers_sites_have_the_papers_round_trips() {
        let sites = ["p", "q", "r"];
        let delays = LatencyModel::ThreeSites.one_way(&sites, &sites, 0);
        let trip = |from: usize, to: usize| 2 * delays[from][to].as_micros();
        assert_eq!([trip(0, 1), trip(0, 2), trip(1, 2), trip(0, 0)], [82_000, 79_000, 38_000, 300]);
        assert_eq!(delays[2][0], delays[0][2]);
    }

    #[test]
    fn a_seed_repeats_its_places_and_draws() {
        let places = ["x"; 4];
        let delays = |seed| LatencyModel::Planet.one_way(&places, &["x"], seed);
        assert_eq!(delays(3), delays(3));
        assert_ne!(delays(3), delays(4));
        for kind in [JitterKind::Uniform, JitterKind::Normal, JitterKind::Exponential] {
            let jitter = Jitter { kind, ms: 4.0, reorder: false };
            let draw = || {
                let mut rng = Rng::new(1, "jitter");
                (0..1_000).map(|_| jitter.draw(&mut rng).as_secs_f64() * 1e3).collect::<Vec<_>>()
            };
            assert_eq!(draw(), draw());
            let mean = draw().iter().sum::<f64>() / 1e3;
            assert!((1.5..4.6).contains(&mean), "{kind:?}: {mean} ms");
        }
    }
}
