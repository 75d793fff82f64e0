//! Bringing a network up: everything that can be wrong is found first, then the founder is started, then the rest in waves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::host_view::{FleetView, HOSTS_AT_ONCE, PeerState};
use super::inventory::{HostEntry, HostKind, PORTS_PER_PEER};
use super::remote::{Feed, OPERATION_MAX, Remote};
use super::state::{self, NetState, PeerRecord};
use super::{Fleet, FleetError, HostError, Note};
use crate::lab::{Lab, PathMode};
use crate::parallel::in_parallel;
use crate::rng::Rng;

/// Contacts that a newcomer is started with.
const CONTACTS: usize = 8;
/// Peers of a wave at least, and at most.
const WAVE_MIN: usize = 8;
const WAVE_MAX: usize = 32;
/// Time within which a wave must serve, or its late peers are reported.
const WAVE_TIME: Duration = Duration::from_secs(60);
/// Name of the daemon's program on the hosts, however it is called here.
const DAEMON: &str = "scatter";
/// Time within which a program must have arrived on a host.
const INSTALL_MAX: Duration = Duration::from_secs(600);
/// Interval at which the hosts are asked how far they are.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Room that a peer needs on its host at the beginning, in KiB, and room for the programs.
const ROOM_PER_PEER: u64 = 8 * 1024;
const ROOM: u64 = 64 * 1024;
/// Peers of one host that are started at once.
const STARTS_AT_ONCE: usize = 8;

/// Settings of [`Fleet::up`].
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The daemon's program on this machine.
    pub program: PathBuf,
    /// Whether hosts that fail the checks are left out, instead of refusing them all.
    pub leaves_out: bool,
    /// Seed of the contacts.
    pub seed: u64,
}

/// Result of [`Fleet::up`].
#[derive(Clone, Debug, Default)]
pub struct UpReport {
    /// Peers that serve.
    pub serving: usize,
    /// Peers that were started now.
    pub started: usize,
    /// Peers that do not serve, each with a reason.
    pub failed: Vec<String>,
}

/// Answer of a host to the survey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Survey {
    program: Option<String>,
    taken: BTreeSet<u16>,
    running: BTreeSet<String>,
}

impl Survey {
    fn of_text(text: &str) -> Survey {
        let mut survey = Survey::default();
        for (what, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            match what {
                "program" => survey.program = Some(value.to_owned()),
                "listens" => survey.taken.extend(u16::from_str_radix(value, 16)),
                "runs" => {
                    survey.running.insert(value.to_owned());
                }
                _ => {}
            }
        }
        survey
    }
}

/// Ports of a place on a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) peers: u16,
    pub(super) resp: u16,
    pub(super) http: u16,
}

impl HostEntry {
    /// Returns the ports of a place.
    pub(super) fn ports_of(&self, place: u16) -> Ports {
        let first = self.first_port() + place * PORTS_PER_PEER;
        Ports { peers: first, resp: first + 1, http: first + 2 }
    }

    /// Returns the address at which other peers reach a peer of this host.
    fn entry_address(&self, place: u16, peer_id: &str) -> String {
        let (address, port) = (multiaddr(self.reached_at()), self.ports_of(place).peers);
        format!("{address}/tcp/{port}/p2p/{peer_id}")
    }

    /// Returns the flags of a peer on this host, without the peers that it joins.
    fn flags_of(&self, place: u16, network: &str) -> Vec<String> {
        let ports = self.ports_of(place);
        // A host may be reached at an address that is not its own.
        let at = match self.kind {
            HostKind::Ssh | HostKind::Netns if self.reached_at().is_ipv6() => "/ip6/::".to_owned(),
            HostKind::Ssh | HostKind::Netns => "/ip4/0.0.0.0".to_owned(),
            HostKind::Local => multiaddr(self.reached_at()),
        };
        let mut flags = vec![
            "--network".to_owned(),
            network.to_owned(),
            "--listen".to_owned(),
            format!("{at}/tcp/{}", ports.peers),
            "--listen".to_owned(),
            format!("{at}/udp/{}/quic-v1", ports.peers),
            "--resp".to_owned(),
            format!("127.0.0.1:{}", ports.resp),
            "--http".to_owned(),
            format!("127.0.0.1:{}", ports.http),
        ];
        let site = self.labels.get("site").map(|site| ["--cluster".to_owned(), site.clone()]);
        flags.extend(site.into_iter().flatten());
        flags.extend(self.flags.iter().cloned());
        flags
    }
}

fn multiaddr(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("/ip4/{address}"),
        IpAddr::V6(address) => format!("/ip6/{address}"),
    }
}

/// A network on its way up.
struct Rise<'a> {
    fleet: &'a Fleet,
    state: NetState,
    /// Hosts that take part.
    hosts: Vec<&'a Remote>,
    rng: Rng,
    report: UpReport,
    /// Number of serving peers that was noted last.
    shown: usize,
    stop: &'a AtomicBool,
    note: Note<'a>,
}

impl Fleet {
    /// Brings the network up: starts all peers that do not run, and waits until all serve.
    ///
    /// # Errors
    /// A host that cannot run its peers, before anything is started; a founder that does not serve.
    pub fn up(&self, options: &UpOptions, stop: &AtomicBool, note: Note<'_>) -> Result<UpReport, FleetError> {
        let mut state = self.state_to_begin()?;
        self.build_lab(note)?;
        let (surveys, hosts) = self.survey_all(options, note)?;
        if state.founded && self.inventory.is_in_memory() && surveys.values().all(|survey| survey.running.is_empty()) {
            note("no peer runs, and with --durability memory nothing is kept: a new network begins");
            self.forget_all(&state, &hosts)?;
            state = self.new_state();
        }
        self.check_ports(&state, &surveys)?;
        self.install_all(options, &surveys, &hosts, note)?;
        let rng = Rng::new(options.seed, "contacts");
        let report = UpReport::default();
        Rise { fleet: self, state, hosts, rng, report, shown: usize::MAX, stop, note }.run()
    }

    /// Returns the state of the network before this, or that of a new one.
    fn state_to_begin(&self) -> Result<NetState, FleetError> {
        for other in state::others(&self.inventory.name)? {
            if let Some((address, port)) = self.inventory.shared_port(&other.inventory) {
                return Err(FleetError::Refused(format!(
                    "the network {} is up and uses port {port} at {address}, too: give one of them other `ports`, or take {} down",
                    other.inventory.name, other.inventory.name
                )));
            }
        }
        if let Some(known) = self.directory.load()? {
            if known.founded && known.inventory != self.inventory {
                self.check_unchanged(&known)?;
            }
            return Ok(NetState { inventory: self.inventory.clone(), ..known });
        }
        Ok(self.new_state())
    }

    /// Returns the state of a network that is to be founded.
    fn new_state(&self) -> NetState {
        let network = format!("{}-{:08x}", self.inventory.name, random_suffix());
        NetState { network, inventory: self.inventory.clone(), founded: false, peers: BTreeMap::new() }
    }

    /// Removes what is left of all peers, none of which runs.
    fn forget_all(&self, state: &NetState, hosts: &[&Remote]) -> Result<(), FleetError> {
        let forget = |remote: &&Remote| {
            let peers = state.peers.values().filter(|it| it.host == remote.name()).map(PeerRecord::name);
            remote.call("forget", &peers.collect::<Vec<_>>(), Feed::Nothing, OPERATION_MAX)
        };
        for result in in_parallel(HOSTS_AT_ONCE, hosts, forget) {
            result?;
        }
        Ok(())
    }

    /// Checks that what the inventory says of hosts with peers is as it was when they were started.
    fn check_unchanged(&self, known: &NetState) -> Result<(), FleetError> {
        for before in &known.inventory.hosts {
            let now = self.inventory.hosts.iter().find(|now| now.name == before.name);
            let same = now.is_some_and(|now| HostEntry { peers: before.peers, ..now.clone() } == *before);
            let shrunk = now.is_some_and(|now| now.peers < before.peers);
            if !same || shrunk {
                return Err(FleetError::Refused(format!(
                    "the host {} was brought up with other settings: only further hosts and further peers can be added; \
                     `net down` with the former inventory first",
                    before.name
                )));
            }
        }
        Ok(())
    }

    /// Asks all hosts what they are. All errors come together.
    fn survey_all(
        &self,
        options: &UpOptions,
        note: Note<'_>,
    ) -> Result<(BTreeMap<String, Survey>, Vec<&Remote>), FleetError> {
        let ask = |remote: &Remote| {
            let need = ROOM + ROOM_PER_PEER * u64::from(remote.entry.peers);
            remote.call("survey", &[need.to_string()], Feed::Nothing, OPERATION_MAX).map(|text| Survey::of_text(&text))
        };
        let (mut surveys, mut hosts, mut failed) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (remote, answer) in self.remotes.iter().zip(in_parallel(HOSTS_AT_ONCE, &self.remotes, ask)) {
            match answer {
                Ok(survey) => {
                    surveys.insert(remote.name().to_owned(), survey);
                    hosts.push(remote);
                }
                Err(error) => failed.push(error),
            }
        }
        if !failed.is_empty() && (!options.leaves_out || hosts.is_empty()) {
            let list: Vec<String> = failed.iter().map(HostError::to_string).collect();
            return Err(FleetError::Refused(format!(
                "nothing was started:\n{}\n(--leave-out goes on without these hosts)",
                list.join("\n")
            )));
        }
        failed.iter().for_each(|error| note(&format!("left out: {error}")));
        Ok((surveys, hosts))
    }

    /// Checks that no other program listens at the peers' ports.
    fn check_ports(&self, state: &NetState, surveys: &BTreeMap<String, Survey>) -> Result<(), FleetError> {
        for (host, survey) in surveys {
            let Some(remote) = self.remote(host) else { continue };
            let held = |place: u16| {
                state
                    .peers
                    .values()
                    .any(|it| it.host == *host && it.place == place && survey.running.contains(&it.name()))
            };
            for place in (0..remote.entry.peers).filter(|place| !held(*place)) {
                let ports = remote.entry.ports_of(place);
                if let Some(port) =
                    [ports.peers, ports.resp, ports.http].iter().find(|port| survey.taken.contains(port))
                {
                    let why = format!("another program listens at port {port}: give the host other `ports`");
                    return Err(FleetError::Refused(format!("nothing was started: {}", remote.error(why))));
                }
            }
        }
        Ok(())
    }

    /// Copies the daemon's program to the hosts that do not have it.
    fn install_all(
        &self,
        options: &UpOptions,
        surveys: &BTreeMap<String, Survey>,
        hosts: &[&Remote],
        note: Note<'_>,
    ) -> Result<(), FleetError> {
        let sum = checksum(&options.program)?;
        let stale = |remote: &&&Remote| {
            surveys.get(remote.name()).is_none_or(|survey| survey.program.as_deref() != Some(sum.as_str()))
        };
        let stale: Vec<&Remote> = hosts.iter().filter(stale).copied().collect();
        let runs = |remote: &&&Remote| surveys.get(remote.name()).is_some_and(|survey| !survey.running.is_empty());
        if let Some(old) = stale.iter().find(runs) {
            let why =
                "its peers run another program than this one: `net down` first, or name their program with --program";
            return Err(FleetError::Refused(format!("nothing was started: {}", old.error(why))));
        }
        let install = |remote: &&Remote| remote.install(DAEMON, &options.program, &sum);
        if !stale.is_empty() {
            note(&format!("copying the program to {} hosts", stale.len()));
        }
        let failed: Vec<String> = in_parallel(HOSTS_AT_ONCE, &stale, install)
            .into_iter()
            .filter_map(|result| result.err().map(|error| error.to_string()))
            .collect();
        match failed.is_empty() {
            true => Ok(()),
            false => Err(FleetError::Refused(format!("nothing was started:\n{}", failed.join("\n")))),
        }
    }
}

impl Fleet {
    /// Builds the laboratory that the inventory names, unless it is there.
    fn build_lab(&self, note: Note<'_>) -> Result<(), FleetError> {
        let Some(plan) = self.lab_plan()? else { return Ok(()) };
        if let Ok(lab) = Lab::open(&plan.name) {
            // A path that has ended carries nothing.
            return lab.tell("stats").map(drop).map_err(FleetError::Refused);
        }
        note(&format!("building the laboratory {}", plan.name));
        let program = std::env::current_exe().map_err(|error| FleetError::Failed(error.to_string()))?;
        Lab::build(plan, &PathMode::Process(program)).map(drop).map_err(FleetError::Failed)
    }
}

/// Returns the SHA-256 of a file, in hexadecimal digits.
pub(super) fn checksum(path: &Path) -> Result<String, FleetError> {
    let refused = |why: &str| FleetError::Refused(format!("{}: {why}", path.display()));
    let output =
        Command::new("sha256sum").arg("--").arg(path).output().map_err(|_| refused("there is no program sha256sum"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().next() {
        Some(sum) if output.status.success() => Ok(sum.trim_start_matches('\\').to_owned()),
        _ => Err(refused(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Returns a number that differs from run to run.
fn random_suffix() -> u32 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish() as u32
}

impl Rise<'_> {
    fn run(mut self) -> Result<UpReport, FleetError> {
        let mut missing = self.records();
        if !self.state.founded {
            let first = missing.remove(0);
            self.found(&first)?;
        }
        let mut view = self.fleet.look();
        missing.retain(|record| view.peers.get(&record.name()).is_none_or(|peer| peer.state == PeerState::Ended));
        while !missing.is_empty() && !self.stop.load(Ordering::Relaxed) {
            let serving = view.count(PeerState::Serves);
            let wave: Vec<PeerRecord> = missing.drain(..missing.len().min(serving.clamp(WAVE_MIN, WAVE_MAX))).collect();
            self.start_wave(&wave, &view)?;
            view = self.wait(&wave)?;
        }
        let all = self.records();
        view = self.wait(&all)?;
        self.report.serving = view.count(PeerState::Serves);
        self.report.failed.extend(self.stragglers(&all, &view));
        Ok(self.report)
    }

    /// Returns the peers that should run on the hosts that take part: the last one of each place, or its first.
    fn records(&self) -> Vec<PeerRecord> {
        let mut records = Vec::new();
        for remote in &self.hosts {
            for place in 0..remote.entry.peers {
                let host = remote.name().to_owned();
                let known = self.state.peers.values().filter(|it| it.host == host && it.place == place);
                let last = known.max_by_key(|it| it.generation).cloned();
                records.push(last.unwrap_or(PeerRecord { host, place, generation: 1, peer_id: None }));
            }
        }
        records
    }

    /// Starts the first peer, which founds the network, and waits until it serves.
    fn found(&mut self, first: &PeerRecord) -> Result<(), FleetError> {
        self.note(first)?;
        self.start(first, vec!["--new".to_owned()])?;
        self.report.started += 1;
        let view = self.wait(std::slice::from_ref(first))?;
        if view.peers.get(&first.name()).is_none_or(|peer| peer.state != PeerState::Serves) {
            let log = self.fleet.log(&first.name(), 5).unwrap_or_default();
            return Err(FleetError::Failed(format!(
                "the first peer, {}, does not serve; the end of its log:\n{log}",
                first.name()
            )));
        }
        self.state.founded = true;
        self.fleet.directory.store(&self.state)
    }

    /// Notes a peer in the state before it is started.
    fn note(&mut self, record: &PeerRecord) -> Result<(), FleetError> {
        self.state.peers.insert(record.name(), record.clone());
        self.fleet.directory.store(&self.state)
    }

    fn start(&self, record: &PeerRecord, more: Vec<String>) -> Result<(), HostError> {
        let Some(remote) = self.hosts.iter().find(|remote| remote.name() == record.host) else { return Ok(()) };
        remote.start(record, &self.state, more)
    }

    /// Starts peers that join through peers that serve.
    fn start_wave(&mut self, wave: &[PeerRecord], view: &FleetView) -> Result<(), FleetError> {
        let mut starts = Vec::new();
        for record in wave {
            self.state.peers.insert(record.name(), record.clone());
            starts.push((record, self.state.contacts(view, &mut self.rng)));
        }
        self.fleet.directory.store(&self.state)?;
        let at_once = STARTS_AT_ONCE * self.hosts.len().min(HOSTS_AT_ONCE);
        let results = in_parallel(at_once, &starts, |(record, joins)| self.start(record, joins.clone()));
        for (record, result) in wave.iter().zip(results) {
            match result {
                Ok(()) => self.report.started += 1,
                Err(error) => self.report.failed.push(format!("{}: {error}", record.name())),
            }
        }
        Ok(())
    }

    /// Waits until these peers serve or have ended, for [`WAVE_TIME`] at most, and notes their ids.
    fn wait(&mut self, wave: &[PeerRecord]) -> Result<FleetView, FleetError> {
        let until = Instant::now() + WAVE_TIME;
        loop {
            let view = self.fleet.look();
            let waits = |record: &&PeerRecord| {
                view.peers.get(&record.name()).is_some_and(|peer| peer.state == PeerState::Starts)
            };
            let serving = view.count(PeerState::Serves);
            if serving != self.shown {
                let (all, ended) = (self.state.inventory.peers(), view.count(PeerState::Ended));
                (self.note)(&format!(
                    "{serving} of {all} peers serve{}",
                    if ended > 0 { format!(", {ended} ended") } else { String::new() }
                ));
                self.shown = serving;
            }
            if wave.iter().filter(waits).count() == 0 || Instant::now() > until || self.stop.load(Ordering::Relaxed) {
                self.state.learn_ids(&view);
                self.fleet.directory.store(&self.state)?;
                return Ok(view);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns the peers that do not serve, each with the end of its log.
    fn stragglers(&self, all: &[PeerRecord], view: &FleetView) -> Vec<String> {
        let serves =
            |record: &&PeerRecord| view.peers.get(&record.name()).is_some_and(|it| it.state == PeerState::Serves);
        let story = |record: &PeerRecord| {
            let log = self.fleet.log(&record.name(), 2).unwrap_or_else(|error| error.to_string());
            format!("{} does not serve: {}", record.name(), log.trim().replace('\n', " | "))
        };
        all.iter().filter(|record| !serves(record)).take(8).map(story).collect()
    }
}

impl NetState {
    /// Notes the ids of the peers that serve.
    pub(super) fn learn_ids(&mut self, view: &FleetView) {
        for (name, record) in &mut self.peers {
            if let Some(id) = view.peers.get(name).and_then(|peer| peer.peer_id.clone()) {
                record.peer_id = Some(id);
            }
        }
    }

    /// Draws the peers through which a newcomer joins, as flags: some that serve, or some that once did where none serves.
    pub(super) fn contacts(&self, view: &FleetView, rng: &mut Rng) -> Vec<String> {
        let entry = |record: &PeerRecord| {
            let host = self.inventory.hosts.iter().find(|host| host.name == record.host)?;
            Some(host.entry_address(record.place, record.peer_id.as_ref()?))
        };
        let serves =
            |record: &&PeerRecord| view.peers.get(&record.name()).is_some_and(|it| it.state == PeerState::Serves);
        let mut entries: Vec<String> = self.peers.values().filter(serves).filter_map(entry).collect();
        if entries.is_empty() {
            entries = self.peers.values().filter_map(entry).collect();
        }
        let mut flags = Vec::new();
        for _ in 0..CONTACTS.min(entries.len()) {
            let place = rng.below(entries.len() as u64) as usize;
            flags.extend(["--join".to_owned(), entries.swap_remove(place)]);
        }
        flags
    }
}

impl Remote {
    /// Copies a program with this checksum to the host, under this name there.
    ///
    /// # Errors
    /// It did not arrive, or does not run there; the program of that name before it stays then.
    pub(super) fn install(&self, name: &str, program: &Path, sum: &str) -> Result<(), HostError> {
        self.call("install", &[name.to_owned(), sum.to_owned()], Feed::File(program), INSTALL_MAX).map(drop)
    }

    /// Starts a peer of this host.
    ///
    /// # Errors
    /// The host cannot be reached, or cannot start it.
    pub(super) fn start(&self, record: &PeerRecord, state: &NetState, more: Vec<String>) -> Result<(), HostError> {
        let mut arguments = vec![record.name()];
        arguments.extend(self.entry.flags_of(record.place, &state.network));
        arguments.extend(state.inventory.flags.iter().cloned());
        arguments.extend(more);
        self.call("start", &arguments, Feed::Nothing, OPERATION_MAX).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_is_read() {
        let survey = Survey::of_text("program 00ff\nlistens 5208\nlistens x\nruns a-0\nruns a-1.2\n");
        assert_eq!(survey.program.as_deref(), Some("00ff"));
        assert_eq!(survey.taken, BTreeSet::from([21_000]));
        assert_eq!(survey.running, BTreeSet::from(["a-0".to_owned(), "a-1.2".to_owned()]));
    }
}
