//! Churn of a network: peers are killed as a schedule says, and started anew or replaced (Scatter §7.2).
//!
//! A schedule is a function of the inventory, the distribution of lifetimes and a seed. It can be saved and replayed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::events::{FleetEvent, FleetEventKind};
use super::host_view::PeerState;
use super::inventory::Inventory;
use super::remote::{Feed, OPERATION_MAX};
use super::state::PeerRecord;
use super::{Fleet, FleetError, HostError, NetState, Note};
use crate::churn::{Lives, quantiles};
use crate::parallel::in_parallel;
use crate::rng::Rng;

/// Peers that are killed or started at once.
const AT_ONCE: usize = 8;
/// Interval at which the hosts are asked who serves.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of the lines about the progress.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A death in a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// Time since the beginning, in seconds.
    pub at_s: f64,
    /// Host of the peer.
    pub host: String,
    /// Its place on the host.
    pub place: u16,
}

/// Deaths of peers, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeathSchedule(pub Vec<Death>);

impl DeathSchedule {
    /// Draws the deaths within this time: at each place peers live one after the other.
    pub fn draw(inventory: &Inventory, lives: Lives, time: Duration, seed: u64) -> DeathSchedule {
        let mut deaths = Vec::new();
        for host in &inventory.hosts {
            for place in 0..host.peers {
                let mut rng = Rng::new(seed, &format!("churn {} {place}", host.name));
                let mut at = lives.draw(&mut rng);
                while at < time {
                    deaths.push(Death { at_s: at.as_secs_f64(), host: host.name.clone(), place });
                    at += lives.draw(&mut rng);
                }
            }
        }
        deaths.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        DeathSchedule(deaths)
    }

    /// Reads a schedule: a line of JSON for each death.
    ///
    /// # Errors
    /// The file cannot be read, a line is no death, or a death is of no peer of the inventory.
    pub fn read(path: &Path, inventory: &Inventory) -> Result<DeathSchedule, FleetError> {
        let refused = |why: String| FleetError::Refused(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let mut deaths: Vec<Death> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let death: Death =
                serde_json::from_str(line).map_err(|error| refused(format!("line {}: {error}", index + 1)))?;
            let is_peer = inventory.hosts.iter().any(|host| host.name == death.host && death.place < host.peers);
            if !is_peer || !(0.0..1e9).contains(&death.at_s) {
                return Err(refused(format!("line {}: there is no such peer, or no such time: {line}", index + 1)));
            }
            deaths.push(death);
        }
        deaths.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        Ok(DeathSchedule(deaths))
    }

    /// Writes the schedule.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), FleetError> {
        let write = || {
            let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
            for death in &self.0 {
                serde_json::to_writer(&mut file, death)?;
                file.write_all(b"\n")?;
            }
            file.flush()
        };
        write().map_err(|error| FleetError::Failed(format!("{}: {error}", path.display())))
    }
}

/// Who takes the place of a dead peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// A new peer, with a key of its own and an empty store.
    New,
    /// The same peer, with its store.
    Same,
}

/// Figures of a churn.
#[derive(Clone, Debug, Default)]
pub struct ChurnFigures {
    /// Peers that were killed.
    pub deaths: usize,
    /// Time that each successor took until it served, as seen once a second.
    pub joins: Vec<Duration>,
    /// Successors that did not serve before they died, or before the end.
    pub never_served: usize,
    /// Hosts that failed, each once.
    pub failed: Vec<HostError>,
}

impl ChurnFigures {
    /// Returns the median and the longest of the times that successors took until they served.
    pub fn join_times(&self) -> [Duration; 2] {
        quantiles(&self.joins, [0.5, 1.0])
    }
}

/// A churn that goes on.
struct Churning<'a> {
    fleet: &'a Fleet,
    state: NetState,
    replacement: Replacement,
    rng: Rng,
    /// Successors that do not serve yet, by name, with the time of their start.
    starting: BTreeMap<String, Instant>,
    figures: ChurnFigures,
}

/// Kills peers as the schedule says, and starts a successor for each at once, for this time.
///
/// A host that fails is reported, and its peers are left alone.
///
/// # Errors
/// The network is not up; its state cannot be written; no peer serves any more.
pub fn churn(
    fleet: &Fleet,
    schedule: &DeathSchedule,
    replacement: Replacement,
    time: Duration,
    seed: u64,
    stop: &AtomicBool,
    note: Note<'_>,
) -> Result<ChurnFigures, FleetError> {
    let (state, rng) = (fleet.state()?, Rng::new(seed, "contacts in churn"));
    let (starting, figures) = (BTreeMap::new(), ChurnFigures::default());
    let mut churning = Churning { fleet, state, replacement, rng, starting, figures };
    let begun = Instant::now();
    let (mut deaths, mut looked, mut told) = (schedule.0.iter().peekable(), begun, begun);
    while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
        let now = begun.elapsed().as_secs_f64();
        let due: Vec<&Death> = std::iter::from_fn(|| deaths.next_if(|death| death.at_s <= now)).collect();
        if !due.is_empty() {
            churning.replace(&due)?;
        }
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            let serving = churning.look()?;
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                note(&format!("{now:>6.0} s: {} deaths, {serving} peers serve", churning.figures.deaths));
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    churning.look()?;
    churning.figures.never_served += churning.starting.len();
    Ok(churning.figures)
}

impl Churning<'_> {
    /// Kills peers and starts their successors.
    fn replace(&mut self, due: &[&Death]) -> Result<(), FleetError> {
        let view = self.fleet.look();
        let mut changes = Vec::new();
        for death in due.iter().filter(|death| !self.figures.failed.iter().any(|failed| failed.host == death.host)) {
            let places = self.state.peers.values().filter(|it| it.host == death.host && it.place == death.place);
            let Some(old) = places.max_by_key(|it| it.generation).cloned() else { continue };
            let new = match self.replacement {
                Replacement::New => PeerRecord { generation: old.generation + 1, peer_id: None, ..old.clone() },
                Replacement::Same => old.clone(),
            };
            self.figures.never_served += usize::from(self.starting.remove(&old.name()).is_some());
            if self.replacement == Replacement::New {
                self.state.peers.remove(&old.name());
            }
            changes.push((old, new));
        }
        // The state names the successors before they are started, and their contacts are peers that go on living.
        let starts: Vec<_> =
            changes.iter().map(|(old, new)| (old, new, self.state.contacts(&view, &mut self.rng))).collect();
        for (_, new, _) in &starts {
            self.state.peers.insert(new.name(), (*new).clone());
        }
        self.fleet.directory.store(&self.state)?;
        let results = in_parallel(AT_ONCE, &starts, |(old, new, joins)| self.replace_one(old, new, joins.clone()));
        let mut events = Vec::new();
        for ((old, new, _), result) in starts.iter().zip(results) {
            match result {
                Ok(()) => {
                    events.push(FleetEvent::now(FleetEventKind::Death, old.name()));
                    self.figures.deaths += 1;
                    self.starting.insert(new.name(), Instant::now());
                }
                Err(error) => self.figures.failed.push(error),
            }
        }
        self.fleet.note_events(&events)
    }

    fn replace_one(&self, old: &PeerRecord, new: &PeerRecord, joins: Vec<String>) -> Result<(), HostError> {
        let Some(remote) = self.fleet.remote(&old.host) else { return Ok(()) };
        remote.call("kill", &[old.name()], Feed::Nothing, OPERATION_MAX)?;
        if self.replacement == Replacement::New {
            remote.call("forget", &[old.name()], Feed::Nothing, OPERATION_MAX)?;
        }
        remote.start(new, &self.state, joins)
    }

    /// Notes the successors that serve by now. Returns the number of peers that serve.
    fn look(&mut self) -> Result<usize, FleetError> {
        let view = self.fleet.look();
        let serves = |name: &str| view.peers.get(name).is_some_and(|peer| peer.state == PeerState::Serves);
        let joins = &mut self.figures.joins;
        self.starting.retain(|name, since| {
            let is_done = serves(name);
            if is_done {
                joins.push(since.elapsed());
            }
            !is_done
        });
        self.state.learn_ids(&view);
        self.fleet.directory.store(&self.state)?;
        match view.count(PeerState::Serves) {
            0 if view.silent.is_empty() => {
                Err(FleetError::Failed("no peer serves any more: the network is lost".into()))
            }
            serving => Ok(serving),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_drawn_saved_and_read() {
        let inventory = Inventory::local("x", 10);
        let lives = Lives::Exponential(Duration::from_secs(100));
        let draw = |seed| DeathSchedule::draw(&inventory, lives, Duration::from_secs(1_000), seed);
        let schedule = draw(7);
        assert_eq!(schedule, draw(7));
        assert_ne!(schedule, draw(8));
        assert!((70..130).contains(&schedule.0.len()), "{} deaths of 10 peers in ten lives", schedule.0.len());
        let file = std::env::temp_dir().join(format!("scatter-schedule-{}", std::process::id()));
        schedule.write(&file).expect("a file can be written");
        let read = DeathSchedule::read(&file, &inventory);
        let other = DeathSchedule::read(&file, &Inventory::local("x", 1));
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(read, Ok(schedule));
        assert!(other.is_err(), "it has peers that the inventory has not");
    }
}
