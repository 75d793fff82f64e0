//! Costs of a change of groups: delays of messages, delays without service, messages and parties (RECODE §V-A, Table I).
//!
//! A ring of groups of three members, with 0.15 ms for each message and nothing else that takes time. Each change is made twice: without
//! clients, for delays and messages, and with clients, for the longest extra wait of one. A newcomer copies nothing, as there is no data.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use group::Group;
use node::{AdminRequest, Durability, Input};
use overlay::time::Time;
use overlay::{GroupId, PeerKey, Point};

use super::paper_costs::{DELAYS, MESSAGES, PAPER_COSTS, PaperCost, scatter};
use super::ring::{CALM, ONE_WAY, PATIENCE, RingSetting, groups, own, ring_of};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::scatter::closed_loop::{ClientPlace, ClosedLoop};
use crate::experiment::scatter::timed::{Change, Timed};
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::rng::Rng;
use crate::sim::{Fate, World};

/// Table I.
pub const EXPERIMENT: Experiment = Experiment {
    name: "reconfiguration-cost",
    paper: "RECODE Table I",
    about: "Message delays, delays without service, messages and parties of each change of groups",
    run: |options, _: Say<'_>| experiment(options.size.pick(4, 16, 64), options),
};

/// The changes that are measured.
const CHANGES: [Change; 5] = [Change::Split, Change::Merge, Change::Repartition, Change::Join, Change::Failure];
/// Members of a group, after the split of a larger one.
const MEMBERS: usize = 3;
/// Points of the ring that are watched.
const POINTS: u128 = 64;
/// Clients, and their number of keys.
const CLIENTS: usize = 12;
const KEYS: u64 = 1_000;

/// Frames since the last reset.
#[derive(Default)]
struct FrameCounts {
    all: u64,
    /// Groups with a frame to or from another group.
    groups: BTreeSet<GroupId>,
}

/// Costs of one change. Times in message delays.
#[derive(Clone, Debug)]
struct ChangeCost {
    decided: f64,
    /// Until all groups know the outcome, and all points are served.
    over: f64,
    unserved: f64,
    pause: f64,
    messages: f64,
    parties: f64,
}

/// A ring under way.
struct CostRing {
    world: World<Timed>,
    frames: Rc<RefCell<FrameCounts>>,
    requests: u64,
}

impl CostRing {
    /// Returns a ring for this change: groups of three, or of six that split.
    fn new(change: Change, seed: u64) -> Result<CostRing, String> {
        let (groups, members) = if change == Change::Split { (4, 2 * MEMBERS) } else { (6, MEMBERS) };
        let setting =
            RingSetting { groups, members, spare: 0, service: Duration::ZERO, durability: Durability::Memory, seed };
        let mut ring = CostRing { world: ring_of(&setting)?, frames: Rc::default(), requests: 0 };
        ring.watch_frames();
        Ok(ring)
    }

    /// Counts frames from now on; groups as they are now.
    fn watch_frames(&mut self) {
        let group_of = |host| own(&self.world, host).map(|group| group.state().id);
        let groups: Vec<Option<GroupId>> = (0..self.world.hosts()).map(group_of).collect();
        *self.frames.borrow_mut() = FrameCounts::default();
        let frames = Rc::clone(&self.frames);
        self.world.tap(move |flight| {
            let mut frames = frames.borrow_mut();
            frames.all += 1;
            if let [Some(from), Some(to)] = [groups[flight.from], groups[flight.to]]
                && from != to
            {
                frames.groups.extend([from, to]);
            }
            Fate::Goes
        });
    }

    /// Asks the first leader.
    fn request(&mut self, request: impl Fn(&Group) -> AdminRequest) -> Result<(), String> {
        let led = |host: usize| own(&self.world, host).filter(|group| group.log().leads());
        let found = (0..self.world.hosts()).find_map(|host| Some((host, led(host)?)));
        let (host, id, request) =
            found.map(|(host, group)| (host, group.state().id, request(group))).ok_or("no group has a leader")?;
        self.requests += 1;
        let number = 1_000 + self.requests;
        self.world.hand(host, Input::AdminRequest { number, group: id, request });
        Ok(())
    }

    /// Steps until a condition holds.
    fn wait(&mut self, what: &str, until: impl Fn(&CostRing) -> bool) -> Result<(), String> {
        let end = self.world.now() + PATIENCE;
        while !until(self) {
            if self.world.now() >= end || !self.world.step() {
                return Err(format!("{what} takes longer than {PATIENCE:?}, or fails: {:?}", self.world.failure()));
            }
        }
        Ok(())
    }

    fn begun(&self) -> Option<Time> {
        (0..self.world.hosts()).filter_map(|host| self.world.host(host)).find_map(Timed::begun)
    }

    /// Returns the times of this change that any leader saw.
    fn seen(&self, change: Change) -> Vec<Duration> {
        let hosts = (0..self.world.hosts()).filter_map(|host| self.world.host(host));
        hosts.flat_map(Timed::changes).filter(|(seen, _)| *seen == change).map(|(_, took)| *took).collect()
    }

    fn is_served(&self, point: Point) -> bool {
        groups(&self.world)
            .flat_map(Group::primaries)
            .any(|primary| primary.is_serving() && primary.range().contains(point))
    }

    /// Begins a change.
    fn begin(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Split => self.request(|group| {
                let first: Vec<PeerKey> = group.state().nodes().iter().take(MEMBERS).map(|node| node.peer).collect();
                AdminRequest::Split { at: None, first }
            }),
            Change::Merge => self.request(|_| AdminRequest::Merge),
            Change::Repartition => {
                self.request(|group| AdminRequest::Repartition { at: group.state().range.cut_at(7, 8) })
            }
            // A member that left comes back as a newcomer.
            Change::Join | Change::Failure => {
                let follows = |host: &usize| own(&self.world, *host).is_some_and(|group| !group.log().leads());
                let host = (0..self.world.hosts()).rev().find(follows).ok_or("all members lead")?;
                // Two members remain, which a leave must be forced for. No client asks the last machines.
                self.world.hand(host, Input::Leave { force: true });
                Ok(())
            }
        }
    }

    /// Makes a change, and returns its costs without the pause of clients.
    fn cost(&mut self, change: Change) -> Result<ChangeCost, String> {
        let idle = self.frames.borrow().all;
        self.world.run_for(CALM);
        let rate = (self.frames.borrow().all - idle) as f64 / CALM.as_secs_f64();
        self.begin(change)?;
        if change == Change::Join {
            // First it leaves.
            self.wait("the leave", |ring| !ring.seen(Change::Failure).is_empty())?;
            self.world.run_for(Duration::from_millis(20));
        }
        let before = self.seen(change).len();
        self.wait("the proposal", |ring| ring.begun().is_some())?;
        let begun = self.world.now();
        self.watch_frames();
        let unserved = self.watch_service(change, before)?;
        let took = self.world.now().since(begun);
        let frames = self.frames.borrow();
        // A join is two decisions, and the comparison of what the newcomer holds between them.
        let decided = self.seen(change).last().copied().ok_or("the change was not seen")?;
        let delays = |time: Duration| time.as_secs_f64() / ONE_WAY.as_secs_f64();
        Ok(ChangeCost {
            decided: delays(decided),
            over: delays(took),
            unserved: delays(unserved),
            pause: 0.0,
            messages: (frames.all as f64 - rate * took.as_secs_f64()).max(0.0),
            parties: frames.groups.len().max(1) as f64,
        })
    }

    /// Steps until the change is decided, known to all groups, and all points are served. Returns the longest time for which a point
    /// was not served.
    fn watch_service(&mut self, change: Change, before: usize) -> Result<Duration, String> {
        let points: Vec<Point> = (0..POINTS).map(|n| Point(n * (u128::MAX / POINTS) + 1)).collect();
        let mut since: Vec<Option<Time>> = vec![None; points.len()];
        let mut longest = Duration::ZERO;
        let end = self.world.now() + PATIENCE;
        loop {
            let now = self.world.now();
            for (point, since) in points.iter().zip(&mut since) {
                match (self.is_served(*point), *since) {
                    (false, None) => *since = Some(now),
                    (true, Some(stopped)) => {
                        longest = longest.max(now.since(stopped));
                        *since = None;
                    }
                    _ => {}
                }
            }
            let is_calm = groups(&self.world).all(|group| group.state().transactions.is_calm());
            if self.seen(change).len() > before && is_calm && since.iter().all(Option::is_none) {
                return Ok(longest);
            }
            if now >= end || !self.world.step() {
                return Err(format!("{}: it never ends: {:?}", change.name(), self.world.failure()));
            }
        }
    }

    /// Makes a change while clients write, and returns the longest wait of a client beyond the usual one, in message delays.
    fn pause(&mut self, change: Change, seed: u64) -> Result<f64, String> {
        let mut clients = ClosedLoop::new(CLIENTS, ClientPlace::Own, ONE_WAY, seed);
        let mut draw = |rng: &mut Rng, _: usize| rng.below(KEYS);
        clients.run(&mut self.world, Duration::from_millis(200), &mut draw)?;
        clients.take();
        self.begin(change)?;
        if change == Change::Join {
            self.wait("the leave", |ring| !ring.seen(Change::Failure).is_empty())?;
            clients.run(&mut self.world, Duration::from_millis(20), &mut draw)?;
            clients.take();
        }
        let before = self.seen(change).len();
        let end = self.world.now() + PATIENCE;
        while self.seen(change).len() == before && self.world.now() < end {
            clients.run(&mut self.world, Duration::from_millis(20), &mut draw)?;
        }
        clients.run(&mut self.world, Duration::from_millis(100), &mut draw)?;
        let mut took: Vec<Duration> = clients.take().0.iter().map(|write| write.took).collect();
        took.sort_unstable();
        let (Some(usual), Some(most)) = (took.get(took.len() / 2), took.last()) else {
            return Err("no client was answered".into());
        };
        Ok(most.saturating_sub(*usual).as_secs_f64() / ONE_WAY.as_secs_f64())
    }
}

/// Makes one change in two rings of one seed.
fn measure(change: Change, seed: u64) -> Result<ChangeCost, String> {
    let named = |why: String| format!("{} of seed {seed}: {why}", change.name());
    let cost = CostRing::new(change, seed).and_then(|mut ring| ring.cost(change)).map_err(named)?;
    let pause = CostRing::new(change, seed).and_then(|mut ring| ring.pause(change, seed)).map_err(named)?;
    Ok(ChangeCost { pause, ..cost })
}

fn median(costs: &[ChangeCost], of: fn(&ChangeCost) -> f64) -> f64 {
    let mut all: Vec<f64> = costs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

fn experiment(runs: u64, options: &ExperimentOptions) -> Result<ExperimentOutcome, String> {
    let seeds = || (0..runs).map(|run| options.seed + run);
    let all: Vec<(Change, u64)> =
        CHANGES.into_iter().flat_map(|change| seeds().map(move |seed| (change, seed))).collect();
    let costs = in_parallel(options.jobs, &all, |(change, seed)| measure(*change, *seed));
    let costs: Vec<ChangeCost> = costs.into_iter().collect::<Result<_, String>>()?;
    let rows: Vec<(Change, &[ChangeCost])> = CHANGES.into_iter().zip(costs.chunks(runs.max(1) as usize)).collect();
    let mut table = Table::new(&[
        "change",
        "runs",
        "decided_delays",
        "over_delays",
        "unserved_delays",
        "client_pause_delays",
        "messages",
        "groups",
        "paper",
    ]);
    for (change, costs) in &rows {
        let name = if *change == Change::Failure { "leave" } else { change.name() };
        let mut row = vec![name.to_owned(), costs.len().to_string()];
        let columns: [fn(&ChangeCost) -> f64; 6] = [
            |cost| cost.decided,
            |cost| cost.over,
            |cost| cost.unserved,
            |cost| cost.pause,
            |cost| cost.messages,
            |cost| cost.parties,
        ];
        row.extend(columns.iter().map(|of| format!("{:.1}", median(costs, *of))));
        row.push(text(papers(*change)));
        table.push(row);
    }
    for cost in PAPER_COSTS.iter().filter(|cost| !CHANGES.map(|change| papers(change).name).contains(&cost.name)) {
        let empty = std::iter::repeat_n(String::new(), 7);
        table.push(std::iter::once(cost.name.to_owned()).chain(empty).chain([text(cost)]).collect());
    }
    Ok(ExperimentOutcome {
        parameters: vec![
            ("ring", format!("6 groups of {MEMBERS}; for splits 4 of {}", 2 * MEMBERS)),
            ("one way", format!("{ONE_WAY:?}")),
            ("clients of the second run", format!("{CLIENTS}, with a write under way each")),
            ("symbols", format!("g = {DELAYS} delays and {MESSAGES} messages; r is routing")),
        ],
        models: vec![
            "messages take 0.15 ms one way, and nothing else takes time; heartbeats at the usual rate are subtracted"
                .into(),
        ],
        table,
        curves: None,
        charts: Vec::new(),
        verdict: verdict(&rows),
    })
}

/// Returns the paper's costs of the change that corresponds.
fn papers(change: Change) -> &'static PaperCost {
    match change {
        Change::Repartition => &PAPER_COSTS[0],
        Change::Join => &PAPER_COSTS[2],
        Change::Failure => &PAPER_COSTS[3],
        Change::Split | Change::Merge => scatter(),
    }
}

fn text(cost: &PaperCost) -> String {
    let name = cost.name.trim_end_matches(" (paper)");
    let routing = if cost.delays.0.contains('r') { "2r + " } else { "" };
    format!(
        "{name}: {routing}{} delays, {} unavailable, {routing}{} messages, {}",
        (cost.delays.1)(DELAYS),
        (cost.unavailable.1)(DELAYS),
        (cost.messages.1)(MESSAGES),
        cost.parties
    )
}

/// Compares splits and merges with the paper's formula for Scatter, and the repartition with RECODE's handover without routing.
fn verdict(rows: &[(Change, &[ChangeCost])]) -> Verdict {
    let of = |change: Change, of: fn(&ChangeCost) -> f64| {
        rows.iter().find(|(seen, _)| *seen == change).map_or(0.0, |(_, costs)| median(costs, of))
    };
    let groups = [Change::Split, Change::Merge];
    let decided = groups.map(|change| of(change, |cost| cost.decided));
    let paused = groups.map(|change| of(change, |cost| cost.pause));
    let unserved = groups.map(|change| of(change, |cost| cost.unserved)).into_iter().fold(0.0, f64::max);
    let messages = groups.map(|change| of(change, |cost| cost.messages));
    let (delays, unavailable) = ((scatter().delays.1)(DELAYS) as f64, (scatter().unavailable.1)(DELAYS) as f64);
    let is_fast = decided.iter().all(|value| *value <= delays) && paused.iter().all(|value| *value <= unavailable);
    let comparison = if is_fast { Comparison::Better } else { Comparison::Worse };
    let why = format!(
        "a split and a merge are decided after {:.0} and {:.0} message delays (Scatter by the paper's formula: {delays}), clients wait {:.0} \
         and {:.0} longer at most (formula: {unavailable} unavailable; no place is unserved for more than {:.0} here, and a client that asked a group that is no more \
         asks again), and they cost {:.0} and {:.0} messages (formula: {}, which counts one \
         agreement for each step and no message that tells a member or a neighbour of the outcome); a repartition stops clients for {:.0} \
         delays (RECODE's handover: {})",
        decided[0],
        decided[1],
        paused[0],
        paused[1],
        unserved,
        messages[0],
        messages[1],
        (scatter().messages.1)(MESSAGES),
        of(Change::Repartition, |cost| cost.pause),
        (PAPER_COSTS[0].unavailable.1)(DELAYS),
    );
    Verdict::new(comparison, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Scale;

    #[test]
    fn each_change_has_its_costs() {
        let options = ExperimentOptions { size: Scale::Quick, seed: 1, jobs: 2, out: None };
        let outcome = experiment(1, &options).expect("no invariant is broken");
        let value = |row, column| outcome.table.value(row, column).and_then(|value| value.parse::<f64>().ok()).unwrap();
        assert_eq!(outcome.table.rows.len(), CHANGES.len() + 1, "FTAR has no counterpart: {}", outcome.table);
        for row in 0..CHANGES.len() {
            assert!((1.0..60.0).contains(&value(row, "decided_delays")), "{}", outcome.table);
            assert!(value(row, "messages") >= 6.0 && value(row, "groups") >= 1.0, "{}", outcome.table);
        }
        assert!(value(1, "decided_delays") >= 8.0, "a merge has several phases: {}", outcome.table);
    }
}
