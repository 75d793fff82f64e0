//! Decides about the content of the switch's tables, and about groups that need an id, from the reports of peers. It performs no
//! I/O.
//!
//! A driver passes in the reports of peers ([`ControllerCore::heard`]), the state of the switch
//! ([`ControllerCore::switch_changed`]) and the results of requests for ids ([`ControllerCore::answered`]), in any order. Then it
//! asks for a decision ([`ControllerCore::decide`]). The driver supplies the time.
//!
//! # Invariants
//! - Rule S1, as [`super`] has it.
//! - A controller that is not the primary decides nothing and asks no group for an id.
//! - A group is never asked for an id that is not above every id that its log is known to have named. It is never asked again for
//!   an id of an earlier request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::allocator::Allocator;
use super::id_requests::IdRequests;
use super::mastership::Mastership;
use super::notes::Notes;
use super::peers::{Best, Peers, SILENT, Seen, Source, see};
use super::plan::{TablePlan, plan};
use super::reports::{Group, Peer, PeerReport};
use super::tally::Tally;
use crate::p4rt::client::SyncState;
use crate::p4rt::ids::{SPENT_MAX, Spent};
use crate::p4rt::reconcile::Wanted;

/// Time at the start of a mastership in which peers without an answer are waited for, before anything in the tables is changed.
const GRACE: Duration = Duration::from_secs(3);
/// Time after which a group without a report is gone, if at least one of its members reports anything.
const GONE: Duration = Duration::from_secs(5);
/// Time after which a group is gone if none of its members reports.
const LOST: Duration = Duration::from_secs(600);
/// Time after which a group that did not take an id is asked again; it doubles with each attempt.
const ASK_MIN: Duration = Duration::from_secs(1);
/// Upper limit of that time. A group that took an id and does not show it is also asked again after this time.
const ASK_MAX: Duration = Duration::from_secs(30);
/// Upper limit of requests at one time.
const ASKS_MAX: usize = 8;
/// Time after a change in which peers are asked more often, because further changes are likely.
const BUSY: Duration = Duration::from_secs(2);

/// Settings that the controller needs from the start.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Name of each source of reports: the address at which a peer answers.
    pub sources: Vec<String>,
    /// Number of registers of the switch.
    pub registers: u32,
    /// Number of slots of the switch, in each stage.
    pub slots: u32,
    /// Distance of a new id from the highest one, where that is ahead of the time. It differs between controllers, so that no two
    /// of them ask for the same id one after the other. At least 1.
    pub step: u32,
    /// Upper limit of pairs of a partition and an id that are remembered.
    pub spent_max: usize,
}

impl CoreConfig {
    /// Returns the settings for the P4 program as it is.
    pub fn new(sources: Vec<String>, step: u32) -> CoreConfig {
        let slots = crate::dirty::Shape::DEFAULT.slots as u32;
        CoreConfig { sources, registers: crate::pipeline::REGISTERS as u32, slots, step, spent_max: SPENT_MAX }
    }
}

/// Result of a request for an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The id is chosen.
    Given,
    /// The id is not chosen, or that is unknown; the text describes the reason.
    Not(String),
}

/// Request to ask a group for an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Mastership of the request; it is compared when the answer comes.
    pub mastership: u64,
    /// Group to ask.
    pub group: Group,
    /// Id to ask for.
    pub id: u32,
    /// Source to ask: an index into the sources.
    pub source: usize,
}

/// Decision about the next actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// New content of the tables, with the mastership in which it holds and the mark that identifies it.
    pub wanted: Option<(u64, u64, Wanted)>,
    /// Groups to ask for ids.
    pub asks: Vec<Ask>,
    /// Messages for operators; none is repeated.
    pub news: Vec<String>,
    /// Changes are going on: peers should be asked again soon.
    pub is_busy: bool,
}

#[derive(Debug, Default)]
struct Asked {
    in_flight: bool,
    next: Duration,
    /// Time until which the id that the group took is awaited in its log.
    awaited_until: Duration,
    wait: Duration,
    tries: usize,
    problem: Option<String>,
}

/// Core of the controller, as a value.
#[derive(Debug)]
pub struct ControllerCore {
    config: CoreConfig,
    sources: Vec<Source>,
    groups: BTreeMap<Group, Best>,
    id_requests: IdRequests,
    mastership: Option<Mastership>,
    /// The tables are as wanted, or the controller reads them.
    is_linked: bool,
    switch: String,
    asked: BTreeMap<Group, Asked>,
    wanted: Option<Wanted>,
    mark: u64,
    busy_until: Duration,
    notes: Notes,
    tally: Tally,
}

impl ControllerCore {
    /// Returns a core without knowledge.
    pub fn new(config: CoreConfig) -> ControllerCore {
        let sources = config.sources.iter().map(|_| Source::default()).collect();
        ControllerCore {
            config,
            sources,
            groups: BTreeMap::new(),
            id_requests: IdRequests::default(),
            mastership: None,
            is_linked: false,
            switch: "no connection yet".to_owned(),
            asked: BTreeMap::new(),
            wanted: None,
            mark: 0,
            busy_until: Duration::ZERO,
            notes: Notes::default(),
            tally: Tally::default(),
        }
    }

    /// Takes a source's report, or the reason for which there is none that counts.
    pub fn heard(&mut self, source: usize, said: Result<PeerReport, String>, now: Duration) {
        let report = match said {
            Ok(report) => report,
            Err(why) => {
                self.tally.reports_failed += 1;
                self.sources[source].state = Some(why);
                return;
            }
        };
        let heard = &mut self.sources[source];
        self.tally.reports_refused += heard.hear(report, now) as u64;
        for (group, known) in heard.report.iter().flat_map(|(report, _)| &report.groups) {
            if see(&mut self.groups, *group, known, now) == Seen::Changed {
                self.busy_until = now + BUSY;
            }
        }
    }

    /// Takes the state of the switch. `unix` is the wall-clock time, in seconds since 1970.
    pub fn switch_changed(&mut self, state: &SyncState, now: Duration, unix: u32) {
        self.is_linked = false;
        let synced = match state {
            SyncState::Failing(why) => {
                self.switch = format!("does not answer as expected: {why}");
                return;
            }
            SyncState::Backup => {
                "another controller is the primary one".clone_into(&mut self.switch);
                self.end_mastership();
                return;
            }
            SyncState::Synced(synced) => synced,
        };
        self.is_linked = true;
        self.tally.synced_unix_s = u64::from(unix);
        self.switch = format!("in life {:016x}", synced.incarnation.0);
        let goes_on = |mastership: &&mut Mastership| {
            (mastership.number, mastership.life) == (synced.mastership, synced.incarnation)
        };
        match self.mastership.as_mut().filter(goes_on) {
            Some(mastership) if synced.mark == Some(self.mark) => mastership.compare(&synced.present),
            Some(_) => {}
            None => {
                self.end_mastership();
                let allocator = Allocator::new(self.config.registers, self.config.slots);
                self.mastership =
                    Some(Mastership::adopt(synced, (now, unix), allocator, Spent::new(self.config.spent_max)));
                self.busy_until = now + BUSY;
            }
        }
    }

    fn end_mastership(&mut self) {
        (self.mastership, self.wanted) = (None, None);
        self.asked.clear();
        self.mark += 1;
    }

    /// Takes the result of a request for an id.
    pub fn answered(&mut self, ask: &Ask, answer: Answer, now: Duration) {
        let Some(mastership) = self.mastership.as_mut().filter(|mastership| mastership.number == ask.mastership) else {
            return;
        };
        let Some(asked) = self.asked.get_mut(&ask.group).filter(|asked| asked.in_flight) else { return };
        asked.in_flight = false;
        self.busy_until = now + BUSY;
        match answer {
            Answer::Given => {
                self.tally.ids_named += 1;
                mastership.give(ask.group, ask.id);
                self.id_requests.given(ask.group, ask.id, now);
                *asked = Asked { next: now + ASK_MIN, awaited_until: now + ASK_MAX, ..Asked::default() };
            }
            Answer::Not(why) => {
                self.tally.asks_refused += 1;
                asked.problem = Some(why);
                asked.wait = (2 * asked.wait).clamp(ASK_MIN, ASK_MAX);
                asked.next = now + asked.wait;
            }
        }
    }

    /// Returns the actions that are due now. `unix` is as in [`ControllerCore::switch_changed`].
    pub fn decide(&mut self, now: Duration, unix: u32) -> Decision {
        self.forget(now);
        let mut decision = Decision::default();
        let mut notes = BTreeMap::from([("the switch".to_owned(), self.switch.clone())]);
        for (name, source) in self.config.sources.iter().zip(&self.sources) {
            notes.extend(source.state.as_ref().map(|state| (format!("peer {name}"), state.clone())));
        }
        let is_awaited = |mastership: &Mastership| {
            now < mastership.since + GRACE && self.sources.iter().any(|source| source.report.is_none())
        };
        for (group, best) in &self.groups {
            self.id_requests.see(*group, &best.known, now, self.config.step);
        }
        if let Some(mastership) =
            self.mastership.as_mut().filter(|mastership| self.wanted.is_some() || !is_awaited(mastership))
        {
            let all = Peers { sources: &self.sources, now };
            let TablePlan { wanted, lacking, without_room } = plan(mastership, &self.groups, &all, &mut notes);
            self.tally.without_room = without_room as u64;
            let number = mastership.number;
            if self.wanted.as_ref() != Some(&wanted) {
                self.mark += 1;
                self.wanted = Some(wanted.clone());
                self.busy_until = now + BUSY;
                decision.wanted = Some((number, self.mark, wanted));
            }
            if self.is_linked {
                decision.asks = self.asks(&lacking, now, unix);
            }
        }
        for (group, asked) in &self.asked {
            if let Some(why) = &asked.problem {
                notes.insert(format!("an id for group {group}"), why.clone());
            }
        }
        for group in self.groups.keys() {
            if let Some(rest) = self.id_requests.rests(*group, now) {
                let text =
                    format!("another controller names ids for it: this controller names none for {} s", rest.as_secs());
                notes.insert(format!("an id for group {group}"), text);
            }
        }
        self.tally.asks += decision.asks.len() as u64;
        decision.news = self.notes.news(notes);
        decision.is_busy = now < self.busy_until;
        decision
    }

    /// Returns the current figures.
    pub fn tally(&self, now: Duration) -> Tally {
        let partitions = || self.wanted.iter().flat_map(|wanted| wanted.partitions.values());
        let lately = |source: &&Source| source.report.as_ref().is_some_and(|(_, at)| now < *at + SILENT);
        Tally {
            peers: self.sources.len() as u64,
            answering: self.sources.iter().filter(lately).count() as u64,
            groups: self.groups.len() as u64,
            contested: self.groups.keys().filter(|group| self.id_requests.rests(**group, now).is_some()).count() as u64,
            placed: partitions().count() as u64,
            named: partitions().filter(|partition| partition.switch > 0).count() as u64,
            without_room: if self.wanted.is_some() { self.tally.without_room } else { 0 },
            connected: self.is_linked,
            primary: self.mastership.is_some(),
            ..self.tally.clone()
        }
    }

    /// Forgets groups that no longer exist.
    fn forget(&mut self, now: Duration) {
        let lately = |said: &(PeerReport, Duration)| now < said.1 + SILENT;
        let heard: BTreeSet<&Peer> = self
            .sources
            .iter()
            .filter_map(|source| source.report.as_ref().filter(|said| lately(said)))
            .map(|said| &said.0.peer)
            .collect();
        self.groups.retain(|_, Best { known, listed }| {
            let is_heard = known.members.iter().any(|member| heard.contains(member));
            now < *listed + if is_heard { GONE } else { LOST }
        });
        self.asked.retain(|group, _| self.groups.contains_key(group));
        self.id_requests.retain(|group| self.groups.contains_key(group));
    }

    /// Returns the requests for ids that are due, for groups that lack one.
    fn asks(&mut self, lacking: &BTreeSet<Group>, now: Duration, unix: u32) -> Vec<Ask> {
        // A group that lacks no id any more is not asked, and its former problem is over.
        for (_, asked) in self.asked.iter_mut().filter(|(group, _)| !lacking.contains(group)) {
            asked.problem = None;
        }
        self.asked.retain(|group, asked| asked.in_flight || lacking.contains(group) || now < asked.next);
        let Some(mastership) = &self.mastership else { return Vec::new() };
        let mut asks = Vec::new();
        let mut room = ASKS_MAX.saturating_sub(self.asked.values().filter(|asked| asked.in_flight).count());
        for group in lacking {
            let asked = self.asked.entry(*group).or_default();
            let named = self.groups.get(group).map_or(0, |best| best.known.id);
            let is_awaited = mastership.given(*group) > named;
            let not_before = if is_awaited { asked.next.max(asked.awaited_until) } else { asked.next };
            if room == 0 || asked.in_flight || now < not_before || self.id_requests.rests(*group, now).is_some() {
                continue;
            }
            let able: Vec<usize> =
                (0..self.sources.len()).filter(|source| self.sources[*source].speaks_of(*group)).collect();
            if able.is_empty() {
                continue;
            }
            // Ids that another controller asked for before this mastership are not above the time at which the mastership began.
            let floor = named.max(mastership.unix).max(mastership.floor());
            let Some(id) = self.id_requests.next(*group, floor, unix, self.config.step) else {
                asked.problem = Some("all higher ids are used up".to_owned());
                continue;
            };
            (asked.in_flight, room) = (true, room - 1);
            let source = able[asked.tries % able.len()];
            asked.tries += 1;
            asks.push(Ask { mastership: mastership.number, group: *group, id, source });
        }
        asks
    }
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;
