//! The churn study: a simulated network whose peers die for good and are replaced by new peers, at any size (Scatter §7.2.3, Fig. 13 and 14).
//!
//! Unlike the runs of [`crate::sim::harness`] no rule spares a group: a group that loses its majority is lost, and counted.

mod groups;
mod load;
mod report;

use std::time::{Duration, Instant};

use group::time::Time;
use node::{Durability, Node, Policies};

use crate::churn::Lives;
use crate::rng::Rng;
use crate::sim::planet::Planet;
use crate::sim::{Latency, Scenario, World};
pub use load::Counts;
pub use report::{Figures, HEADING};

/// From a death until the new peer starts.
const REPLACED_AFTER: Duration = Duration::from_millis(200);
/// Between two counts of groups and members.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// First peers are started at this rate, a second.
const STARTS_PER_S: u64 = 20;

/// The parameters of one run.
#[derive(Clone, Debug)]
pub struct Study {
    /// Feeds all chance.
    pub seed: u64,
    /// Peers that live at one time.
    pub peers: usize,
    /// How long they live; `None`: for ever.
    pub lives: Option<Lives>,
    /// The network that the peers stand in.
    pub places: Places,
    /// From the start of the first peer until peers begin to die: long enough for all to start, and for groups to split until they have the
    /// right size.
    pub settle: Duration,
    /// From the first death until operations are counted.
    pub warm_up: Duration,
    /// How long they are counted.
    pub time: Duration,
    /// Updates a second. Each is followed by a fetch of the same key through another peer.
    pub rate: f64,
    /// Keys.
    pub keys: usize,
    /// A group of fewer members is too small, and one of more too large.
    pub members: (u32, u32),
    /// A member that is silent for so long is removed.
    pub exclude_after: Duration,
    /// How nodes decide.
    pub policies: Policies,
}

/// Where the peers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// In one cluster: 0.2 ms one way.
    Cluster,
    /// In the papers' three sites.
    Sites,
    /// As on PlanetLab, by a model.
    Planet,
}

impl Study {
    /// Returns the study of `peers` peers with the papers' settings, as far as they give any.
    pub fn new(seed: u64, peers: usize, lives: Option<Lives>) -> Study {
        Study {
            seed,
            peers,
            lives,
            places: Places::Planet,
            settle: Duration::from_secs(120 + peers as u64 / STARTS_PER_S),
            warm_up: Duration::from_secs(60),
            time: Duration::from_secs(600),
            rate: 50.0,
            keys: 10_000,
            members: (7, 15),
            exclude_after: Duration::from_secs(2),
            policies: Policies::default(),
        }
    }

    fn scenario(&self) -> Scenario {
        let mut scenario = Scenario { hosts: self.peers, ..Scenario::calm(self.seed) };
        scenario.durability = Durability::Memory;
        scenario.latency = match self.places {
            Places::Cluster => scenario.latency,
            Places::Sites => Latency::PaperSites,
            Places::Planet => Latency::Planet(Planet::new(self.peers, self.seed).into()),
        };
        scenario.load.clients = 0;
        scenario.members = self.members;
        scenario.timing.exclude_after = self.exclude_after;
        scenario.policies = self.policies;
        // Each step of a node is checked as it happens; a look at the whole network takes too long.
        scenario.sweep_every = u64::MAX;
        scenario.start_within = Duration::from_secs(self.peers as u64 / STARTS_PER_S);
        scenario
    }
}

/// Runs a study. `say` is told of progress, a line each simulated minute.
///
/// # Errors
/// If an invariant is broken: the property, and the observation.
pub fn run(study: &Study, say: &mut dyn FnMut(&str)) -> Result<Figures, String> {
    let mut run = Run::new(study);
    let start = Instant::now();
    let (dies_from, counts_from) = (Time(0) + study.settle, Time(0) + study.settle + study.warm_up);
    let end = counts_from + study.time;
    run.plan_deaths(dies_from);
    let (mut counted, mut said) = (Time(0) + COUNT_EVERY, Time(0));
    while run.world.now() < end {
        let next = run.next_death().min(counted).min(run.load.next()).min(end);
        run.world.run_until(next);
        if let Some(failure) = run.world.failure() {
            return Err(failure.to_string());
        }
        let now = run.world.now();
        run.bury(now);
        run.load.go_on(&mut run.world, now >= dies_from, now >= counts_from);
        if now >= counted {
            counted = now + COUNT_EVERY;
            run.groups.count(&run.world, now >= counts_from);
        }
        if now.since(said) >= Duration::from_secs(60) {
            said = now;
            let rate = run.world.events() as f64 / start.elapsed().as_secs_f64();
            say(&format!(
                "{:>6.0} s: {} deaths, {} groups of {:.1} members, {} lost, {rate:.0} events/s",
                now.since(Time(0)).as_secs_f64(),
                run.deaths,
                run.groups.now(),
                run.groups.members_now(),
                run.groups.lost(),
            ));
        }
    }
    run.load.end(&mut run.world);
    Ok(run.figures(study, start.elapsed()))
}

/// A study under way.
struct Run {
    world: World<Node>,
    lives: Option<Lives>,
    rng: Rng,
    /// When each machine's peer dies.
    ends: Vec<Time>,
    deaths: u64,
    groups: groups::Groups,
    load: load::Load,
}

impl Run {
    fn new(study: &Study) -> Run {
        Run {
            world: World::new(study.scenario()),
            lives: study.lives,
            rng: Rng::new(study.seed, "lives"),
            ends: vec![Time::NEVER; study.peers],
            deaths: 0,
            groups: groups::Groups::default(),
            load: load::Load::new(study),
        }
    }

    /// Draws the first lives, all from the same moment on.
    fn plan_deaths(&mut self, from: Time) {
        if let Some(lives) = self.lives {
            self.ends.iter_mut().for_each(|end| *end = from + lives.draw(&mut self.rng));
        }
    }

    fn next_death(&self) -> Time {
        self.ends.iter().copied().min().unwrap_or(Time::NEVER)
    }

    /// Replaces the peers whose lives are over.
    fn bury(&mut self, now: Time) {
        let Some(lives) = self.lives else { return };
        for host in 0..self.ends.len() {
            if self.ends[host] <= now {
                self.world.replace(host, REPLACED_AFTER);
                self.deaths += 1;
                self.ends[host] = now + REPLACED_AFTER + lives.draw(&mut self.rng);
            }
        }
    }

    fn figures(&self, study: &Study, took: Duration) -> Figures {
        Figures {
            peers: study.peers,
            lives: study.lives,
            seconds: study.time.as_secs_f64(),
            deaths: self.deaths,
            groups: self.groups.mean_groups(),
            members: self.groups.mean_members(),
            lost: self.groups.lost(),
            load: self.load.counts().clone(),
            events: self.world.events(),
            took,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forty peers that live for three minutes: nothing is lost, and nothing wrong is read.
    #[test]
    fn a_small_network_survives_churn() {
        let lives = Some(Lives::Exponential(Duration::from_secs(180)));
        let study = Study {
            places: Places::Cluster,
            warm_up: Duration::from_secs(10),
            time: Duration::from_secs(60),
            rate: 20.0,
            keys: 200,
            ..Study::new(1, 40, lives)
        };
        let figures = run(&study, &mut |_| {}).expect("no invariant is broken");
        assert!(figures.deaths > 5 && figures.lost == 0, "{figures}");
        assert!(figures.load.wrong.is_empty() && figures.load.fetches > 800, "{figures}");
        assert!(figures.load.failed_percent() < 1.0, "{figures}");
    }

    /// Sixty peers far apart, one of which dies every other second: a newcomer is on the way in all the time, and groups keep their size.
    #[test]
    fn groups_keep_their_size_under_churn() {
        let study = Study {
            warm_up: Duration::from_secs(60),
            time: Duration::from_secs(20),
            rate: 5.0,
            ..Study::new(1, 60, Some(Lives::Exponential(Duration::from_secs(120))))
        };
        let figures = run(&study, &mut |_| {}).expect("no invariant is broken");
        assert!(figures.members < 16.0 && figures.groups >= 4.0 && figures.lost == 0, "{figures}");
    }

    /// Peers that live for five seconds: groups are lost, and the study sees it.
    #[test]
    fn lost_groups_are_counted() {
        let study = Study {
            places: Places::Cluster,
            settle: Duration::from_secs(15),
            warm_up: Duration::from_secs(5),
            time: Duration::from_secs(40),
            rate: 5.0,
            ..Study::new(1, 20, Some(Lives::Exponential(Duration::from_secs(5))))
        };
        let figures = run(&study, &mut |_| {}).expect("no invariant is broken");
        assert!(figures.lost > 0 && figures.load.failed_percent() > 10.0, "{figures}");
        assert!(figures.load.wrong.is_empty(), "what is lost is not answered: {figures}");
    }
}
