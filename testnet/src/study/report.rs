//! The figures of a study.

use std::fmt;
use std::time::Duration;

use super::load::StudyCounts;
use super::losses::losses;
use super::ownership::OwnershipCounts;
use super::spells::Spells;
use crate::churn::{Lives, quantiles};

/// The names of [`Figures::csv`]'s values. Times in seconds.
pub const HEADING: &str = "peers,lives,seconds,deaths,groups,members,groups_lost,updates,fetches,failed_updates,failed_fetches,\
                           failed_percent,inconsistent,fetch_mean,fetch_median,fetch_p99,update_median,update_p99,events,events_per_s";

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Peers at one time.
    pub peers: usize,
    /// Distribution of their lifetimes.
    pub lives: Option<Lives>,
    /// Time for which operations were counted, in seconds.
    pub seconds: f64,
    /// Time for which peers died, in seconds: counts of deaths, groups and members are of this time.
    pub churn_seconds: f64,
    /// Peers that died.
    pub deaths: u64,
    /// Peers that died while operations were counted.
    pub deaths_counted: u64,
    /// The mean number of groups.
    pub groups: f64,
    /// The mean number of members of a group.
    pub members: f64,
    /// The ages of the members of each group, in seconds, at each second in which peers died.
    pub ages: Vec<Vec<f32>>,
    /// Dead members that were not removed yet, on average.
    pub dead_members: f64,
    /// Dead members that a group still needed, also as former members, on average.
    pub dead_needed: f64,
    /// Periods in which a group's epoch was not established: a majority of its former members was needed, too.
    pub recovering: Spells,
    /// Periods in which a group had fewer living members than its network wants.
    pub small: Spells,
    /// Groups that lost their majorities.
    pub lost: usize,
    /// Time at which each of them did, and the number of members that were left.
    pub losses: Vec<String>,
    /// The outcomes that clients saw.
    pub load: StudyCounts,
    /// Points of the ring that no peer served, or several.
    pub ownership: OwnershipCounts,
    /// Operations that each machine executed while they were counted.
    pub executed: Vec<u64>,
    /// Events of the simulator.
    pub events: u64,
    /// Time that the run took on this machine.
    pub took: Duration,
}

impl Figures {
    /// Returns the figures as a line of CSV, as [`HEADING`] names them.
    pub fn csv(&self) -> String {
        let load = &self.load;
        let [fetch, fetch_p99] = quantiles(&load.fetch_times, [0.5, 0.99]);
        let [update, update_p99] = quantiles(&load.update_times, [0.5, 0.99]);
        format!(
            "{},{},{:.0},{},{:.1},{:.2},{},{},{},{},{},{:.4},{},{:.4},{:.4},{:.4},{:.4},{:.4},{},{:.0}",
            self.peers,
            self.lives.map_or("for ever".into(), |lives| lives.to_string()),
            self.seconds,
            self.deaths,
            self.groups,
            self.members,
            self.lost,
            load.updates,
            load.fetches,
            load.failed_updates,
            load.failed_fetches,
            load.failed_percent(),
            load.wrong.len(),
            mean(&load.fetch_times).as_secs_f64(),
            fetch.as_secs_f64(),
            fetch_p99.as_secs_f64(),
            update.as_secs_f64(),
            update_p99.as_secs_f64(),
            self.events,
            self.rate(),
        )
    }

    /// Returns the deaths a second while operations were counted.
    pub(crate) fn deaths_per_s(&self) -> f64 {
        self.deaths_counted as f64 / self.seconds.max(1e-9)
    }

    /// Returns the mean time for which a dead member stayed a member, in seconds; zero where none died. The mean number of dead
    /// members is the rate of deaths times this.
    pub(crate) fn removal_s(&self) -> f64 {
        self.for_each_death(self.dead_members)
    }

    /// Returns the mean time for which a group depended on a dead member, in seconds: until an epoch without it was established;
    /// zero where none died.
    pub(crate) fn repair_s(&self) -> f64 {
        self.for_each_death(self.dead_needed)
    }

    fn for_each_death(&self, mean: f64) -> f64 {
        if self.deaths == 0 { 0.0 } else { mean * self.churn_seconds / self.deaths as f64 }
    }

    /// Returns the simulator's events a second of this machine.
    pub fn rate(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Returns the mean; zero of nothing.
pub(crate) fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len().max(1)).unwrap_or(u32::MAX)
}

impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = &self.load;
        for line in load.wrong.iter().take(20) {
            writeln!(out, "wrong: {line}")?;
        }
        for line in &self.losses {
            writeln!(out, "lost: {line}")?;
        }
        let lives = self.lives.map_or("for ever".into(), |lives| lives.to_string());
        writeln!(
            out,
            "{} peers that live {lives}: {} deaths, {:.1} groups of {:.1} members, {} groups lost",
            self.peers, self.deaths, self.groups, self.members, self.lost
        )?;
        if self.deaths > 0 {
            let expected = losses(self);
            writeln!(
                out,
                "a dead member is removed after {:.2} s on average, and not needed any more after {:.2} s: {:.2} lost groups are \
                 expected then, at most {} in 95 of 100 runs",
                self.removal_s(),
                self.repair_s(),
                expected.expected,
                expected.bound
            )?;
            writeln!(out, "a group needs former members {}", self.recovering)?;
            writeln!(out, "a group has too few members {}", self.small)?;
        }
        let [fetch, fetch_p99] = quantiles(&load.fetch_times, [0.5, 0.99]);
        let [update, update_p99] = quantiles(&load.update_times, [0.5, 0.99]);
        writeln!(
            out,
            "{} updates and {} fetches in {:.0} s: {:.3} % failed ({} and {}), {} inconsistent",
            load.updates,
            load.fetches,
            self.seconds,
            load.failed_percent(),
            load.failed_updates,
            load.failed_fetches,
            load.wrong.len()
        )?;
        writeln!(
            out,
            "fetch {:.0?} on average, {fetch:.0?} at the median, {fetch_p99:.0?} for 99 %; update {update:.0?}, {update_p99:.0?}",
            mean(&load.fetch_times)
        )?;
        write!(out, "{} events in {:.0?}: {:.0} a second", self.events, self.took, self.rate())
    }
}
