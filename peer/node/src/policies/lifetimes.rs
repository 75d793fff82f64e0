//! Lifetimes of peers, as this node and members of other groups have observed them (Scatter §6.1). The risk of a group follows from them.
//!
//! A node watches the members of its own group: the time that each lives at each age, and the age at which it dies. From time to time it
//! asks a member of another group for its observations. The sum is an estimate for the whole network. Each group has one voice in it, and
//! no voice can count for much more than the others ([`policy::lifetimes::sum`]).
//!
//! None of this has a timer of its own: a node checks it at its other timers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::config::Defect;
use group::control::history::History;
use group::message::Parting;
use overlay::rng::Rng;
use overlay::time::{Now, Time};
use overlay::{Epoch, GroupId, GroupRef, NodeId, PeerKey, RingId};
use policy::history::{Told, dies_within, residual};
use policy::lifetimes::{CLASSES, DEATHS_MIN, Estimate, LifeTable, Lifetimes as Model, Seen, fit, sum};
use serde::{Deserialize, Serialize};

use crate::api::Class;
use crate::config::NodeConfig;
use crate::context::Context;
use crate::wire::Frame;

/// Time between two checks of the members.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time since the last check beyond which a check tells nothing: this node was suspended, or overloaded.
const LOOK_LATE: Duration = Duration::from_secs(5);
/// Time between two fits of the model.
const FIT_EVERY: Duration = Duration::from_secs(10);
/// Time between two questions to a group beside this node's own.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// Upper limit of groups with a kept voice.
const VOICES_MAX: usize = 64;
/// Time for which a voice counts.
const VOICE_AGE_MAX: Duration = Duration::from_secs(3600);
/// Upper limit of open questions; of more, the oldest is forgotten.
const ASKED_MAX: usize = 8;
/// Upper limit of members that are remembered as dead, for former configurations that still name them.
const DEAD_MAX: usize = 64;
/// Unit in which deaths travel: 1/64 of a death.
const DEATHS_UNIT: f64 = 64.0;

/// A member's observations of lifetimes, for a node of another group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetimes {
    /// The ring.
    pub ring: RingId,
    /// Observations for each class of ages, in order: the class, the seconds for which peers of such ages were watched, and their deaths,
    /// in 1/64.
    pub classes: Vec<(u8, u32, u32)>,
}

impl Lifetimes {
    fn new(ring: RingId, table: &LifeTable) -> Lifetimes {
        // Rounded; floats saturate where they become integers.
        let whole = |number: f64| (number + 0.5) as u32;
        let told = |(class, seen): (usize, Seen)| (class as u8, whole(seen.watched), whole(seen.deaths * DEATHS_UNIT));
        Lifetimes { ring, classes: table.classes().map(told).collect() }
    }

    /// Returns the observations; `None` if no honest node can have sent them.
    fn table(&self) -> Option<LifeTable> {
        let is_sorted = self.classes.is_sorted_by(|one, other| one.0 < other.0);
        if !is_sorted || self.classes.last().is_some_and(|last| usize::from(last.0) >= CLASSES) {
            return None;
        }
        let mut table = LifeTable::default();
        for (class, watched, deaths) in &self.classes {
            let seen = Seen { watched: f64::from(*watched), deaths: f64::from(*deaths) / DEATHS_UNIT };
            table.add(usize::from(*class), seen);
        }
        Some(table)
    }
}

/// A member of the node's own group, as of the last check.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Its age at the last check that heard it.
    age: Duration,
    is_heard: bool,
    /// Whether it announced that it stops or leaves.
    is_parting: bool,
}

/// The observations of a member of one group.
#[derive(Clone, Debug)]
struct Voice {
    group: GroupId,
    at: Time,
    table: LifeTable,
}

/// A node's own observations of lifetimes, and those of other members.
#[derive(Debug)]
pub(crate) struct LifeWatch {
    members: BTreeMap<NodeId, Watched>,
    /// Whether a majority was heard at the last check. A node that hears fewer cannot tell dead members from a fault of its own link.
    has_quorum: bool,
    looked: Time,
    /// Start of this process, on the clock that stands still while the machine sleeps.
    started: Time,
    own: LifeTable,
    voices: Vec<Voice>,
    /// The peers that were asked for a voice, each with its group.
    asked: Vec<(PeerKey, GroupId)>,
    ask_due: Time,
    estimate: Option<Estimate>,
    fit_due: Time,
    /// Members seen dead, the oldest first.
    dead: Vec<NodeId>,
    changes: Changes,
    /// Random source of its own, so that nothing else depends on the number of questions for lifetimes.
    rng: Rng,
}

/// Time that the group's changes of members take, until a majority of the new members holds all data.
#[derive(Debug, Default)]
struct Changes {
    epoch: Option<(GroupId, Epoch)>,
    since: Option<Time>,
    /// A running mean.
    took: Option<Duration>,
}

impl Changes {
    fn note(&mut self, epoch: (GroupId, Epoch), is_established: bool, now: Time) {
        if self.epoch != Some(epoch) {
            let is_first = self.epoch.replace(epoch).is_none();
            if !is_first {
                self.since.get_or_insert(now);
            }
        }
        if is_established && let Some(since) = self.since.take() {
            let took = now.since(since);
            self.took = Some(self.took.map_or(took, |mean| (mean * 7 + took) / 8));
        }
    }
}

impl LifeWatch {
    pub(crate) fn new(now: Now, seed: u64) -> LifeWatch {
        let Now { time: now, awake: started, .. } = now;
        LifeWatch {
            members: BTreeMap::new(),
            has_quorum: false,
            looked: now,
            started,
            own: LifeTable::default(),
            voices: Vec::new(),
            asked: Vec::new(),
            ask_due: now + ASK_EVERY,
            estimate: None,
            fit_due: now,
            dead: Vec::new(),
            changes: Changes::default(),
            rng: Rng::new(seed),
        }
    }

    /// Returns the model that fits the observations of the whole network best; `None` before enough deaths were seen.
    pub(crate) fn model(&self) -> Option<Model> {
        self.estimate.map(|estimate| estimate.lifetimes)
    }

    /// Returns the number of observed deaths, which counts fractions of deaths.
    pub(crate) fn deaths(&self) -> f64 {
        self.own.deaths() + self.voices.iter().map(|voice| voice.table.deaths()).sum::<f64>()
    }

    /// Returns the recent time that changes of members take, until a majority of the new members holds all data.
    pub(crate) fn reconfiguration(&self) -> Option<Duration> {
        self.changes.took
    }

    pub(crate) fn is_seen_dead(&self, node: NodeId) -> bool {
        self.dead.contains(&node)
    }

    /// Takes this model until the next fit, independent of the observations.
    #[cfg(test)]
    pub(crate) fn assume(&mut self, lifetimes: Model) {
        self.estimate = Some(Estimate { lifetimes, deaths: DEATHS_MIN });
        self.fit_due = Time::NEVER;
    }

    /// Checks the members of the node's own group.
    fn look(&mut self, group: &Group, now: Time) {
        let passed = now.since(self.looked);
        self.looked = now;
        let (hears, me) = (group.hears(), group.me());
        let mut before = core::mem::take(&mut self.members);
        for member in group.state().members.iter().filter(|member| member.node != me) {
            let (node, age) = (member.node, group.age_of(member.node));
            let is_heard = hears.contains(&node);
            let known = before.remove(&node);
            if let Some(known) = known.filter(|known| is_heard && known.is_heard && passed < LOOK_LATE) {
                self.own.live(known.age, known.age + passed);
            }
            let age = if is_heard { age } else { known.map_or(age, |known| known.age) };
            self.members
                .insert(node, Watched { age, is_heard, is_parting: group.last_parting(node) != Parting::Stays });
        }
        // The remaining nodes are members no more. A node that is heard has gone to another group.
        for (node, known) in before {
            let lives_on = group.state().members.iter().any(|member| member.node.peer == node.peer);
            if (!known.is_heard || lives_on) && !known.is_parting && self.has_quorum && passed < LOOK_LATE {
                self.own.die(known.age);
                self.dead.push(node);
            }
        }
        let excess = self.dead.len().saturating_sub(DEAD_MAX);
        self.dead.drain(..excess);
        let heard = 1 + self.members.values().filter(|member| member.is_heard).count();
        self.has_quorum = heard >= group.state().quorum();
    }

    fn fit(&mut self, home: GroupId, now: Time) {
        self.fit_due = now + FIT_EVERY;
        self.voices.retain(|voice| now.since(voice.at) < VOICE_AGE_MAX);
        // A new member learns of earlier deaths in the group from another member.
        let is_young = self.own.deaths() < DEATHS_MIN;
        let voices = self.voices.iter().filter(|voice| is_young || voice.group != home);
        let tables = core::iter::once(&self.own).chain(voices.map(|voice| &voice.table));
        self.estimate = fit(&sum(tables));
    }

    fn hear(&mut self, group: GroupId, table: LifeTable, now: Time) {
        self.voices.retain(|voice| voice.group != group);
        if self.voices.len() >= VOICES_MAX {
            self.voices.remove(0);
        }
        self.voices.push(Voice { group, at: now, table });
    }
}

impl LifeWatch {
    /// Notes the time that changes of members take.
    pub(crate) fn time_changes(&mut self, cx: &mut Context<'_>) {
        if let Some(group) = cx.replicas.home() {
            let state = group.state();
            self.changes.note((state.id, state.epoch), state.recovery.is_empty(), cx.now.time);
        }
    }

    /// Checks the members of the node's own group if that is due, and asks other nodes for their observations.
    pub(crate) fn watch(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.time;
        let Some(group) = cx.replicas.home().filter(|_| now.since(self.looked) >= LOOK_EVERY) else { return };
        let id = group.state().id;
        self.look(group, now);
        let history = self.history(cx.config, cx.now);
        cx.replicas.each(|group| group.set_history(history));
        if now >= self.fit_due {
            self.fit(id, now);
        }
        self.tell_outlook(cx);
        if now >= self.ask_due {
            self.ask_due = now + ASK_EVERY / 2 + self.rng.duration_below(ASK_EVERY);
            self.ask_beside(cx);
        }
    }

    /// Returns the sessions that this peer remembers, the present one included; `None` where this is the first.
    pub(crate) fn history(&self, config: &NodeConfig, now: Now) -> Option<History> {
        let present = u32::try_from(now.awake.since(self.started).as_secs()).unwrap_or(u32::MAX);
        let with_present = |before: History| History { lived_s: before.lived_s.saturating_add(present), ..before };
        config.history.map(with_present)
    }

    /// Returns the probability, from 0 to 1, that a member of one of this node's groups dies within `window`.
    pub(crate) fn dies_within(
        &self,
        config: &NodeConfig,
        group: &Group,
        node: NodeId,
        all: &Model,
        window: Duration,
    ) -> f64 {
        let (age, told, defects) = (group.age_of(node), told(group, node), &config.defects);
        match told {
            _ if defects.has(Defect::UnknownTrusted) => all.dies_within(age, window),
            Some(Told { failures, lived }) if defects.has(Defect::HistoryBelieved) => {
                Model::Exponential { mean: lived / failures.max(1) }.dies_within(age, window)
            }
            told => dies_within(all, age, window, told),
        }
    }

    /// Tells the node's own group the expected residual lives of its members.
    fn tell_outlook(&mut self, cx: &mut Context<'_>) {
        let model = self.model();
        if let Some(group) = cx.replicas.home_mut() {
            let of = |node: NodeId| Some((node, residual(&model?, group.age_of(node), told(group, node))));
            let residuals = group.state().nodes().into_iter().filter_map(of).collect();
            group.expect_lives(residuals);
        }
    }

    /// Asks a group beside this node's own. If this node has seen few deaths, it may ask another member of its own group instead.
    fn ask_beside(&mut self, cx: &mut Context<'_>) {
        let Some(group) = cx.replicas.home() else { return };
        let links = &group.state().transactions;
        let mut known: Vec<GroupRef> = links.neighbours().cloned().collect();
        if self.own.deaths() < DEATHS_MIN {
            known.push(group.state().reference());
        }
        let chosen = self.rng.below(known.len().max(1) as u64) as usize;
        if let Some(chosen) = known.get(chosen) {
            self.ask(cx, chosen);
        }
    }

    /// Asks one of a group's members for its observations: a connected one if there is one.
    pub(crate) fn ask(&mut self, cx: &mut Context<'_>, group: &GroupRef) {
        let Some(ring) = cx.ring else { return };
        let connected = cx.other_members(group, true);
        let among = if connected.is_empty() { cx.other_members(group, false) } else { connected };
        let chosen = self.rng.below(among.len().max(1) as u64) as usize;
        let Some(member) = among.get(chosen).copied() else { return };
        if self.asked.len() >= ASKED_MAX {
            self.asked.remove(0);
        }
        self.asked.push((member.node.peer, group.id));
        cx.tell(member, &Frame::AskLifetimes { ring });
    }

    /// Answers a question for this node's observations.
    pub(crate) fn on_ask_lifetimes(&mut self, cx: &mut Context<'_>, from: PeerKey, ring: RingId) {
        if cx.ring != Some(ring) {
            cx.drop_frame();
        } else {
            let told = Lifetimes::new(ring, &self.own);
            cx.post(from, Class::Control, &Frame::Lifetimes(told.into()));
        }
    }

    /// Handles the answer, if the peer was asked.
    pub(crate) fn on_lifetimes(&mut self, cx: &mut Context<'_>, from: PeerKey, told: &Lifetimes) {
        let asked = self.asked.iter().position(|(peer, _)| *peer == from);
        let table = told.table().filter(|_| cx.ring == Some(told.ring));
        match (asked, table) {
            (Some(asked), Some(table)) => {
                let (_, group) = self.asked.remove(asked);
                self.hear(group, table, cx.now.time);
            }
            (None, Some(_)) => {} // Its question was forgotten.
            (_, None) => cx.drop_frame(),
        }
    }
}

/// Returns the session history that a member of a group reports; `None` if it has none.
pub(crate) fn told(group: &Group, node: NodeId) -> Option<Told> {
    let History { failures, lived_s } = group.told_history(node)?;
    Some(Told { failures, lived: Duration::from_secs(lived_s.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use crate::tests::small_net::Net;

    #[test]
    fn what_is_told_is_what_was_seen() {
        let mut table = LifeTable::default();
        table.live(Duration::ZERO, Duration::from_secs(500));
        table.die(Duration::from_secs(500));
        let told = Lifetimes::new(RingId(1), &table);
        let heard = told.table().expect("sound");
        assert_eq!(heard.deaths(), 1.0);
        assert!((heard.watched() - 500.0).abs() < 10.0, "{}", heard.watched());
        for classes in [alloc::vec![(50, 1, 1)], alloc::vec![(2, 1, 1), (2, 1, 1)], alloc::vec![(3, 1, 1), (2, 1, 1)]] {
            assert_eq!(Lifetimes { ring: RingId(1), classes }.table(), None);
        }
        let most = Lifetimes { ring: RingId(1), classes: (0..50).map(|class| (class, u32::MAX, u32::MAX)).collect() };
        assert!(most.table().is_some_and(|table| fit(&table).is_some()));
    }

    /// The remaining members observe the deaths of members, at the age at which these were last heard. They count no death of a member
    /// that leaves.
    #[test]
    fn deaths_are_seen_and_leaves_are_not() {
        let mut net = Net::with(5, |config| NodeConfig { members_min: 1, members_max: 100, ..config });
        net.run_for(Duration::from_secs(20));
        let deaths = |net: &Net, index: usize| net.nodes[index].lives.own.deaths();
        let members = |net: &Net| net.nodes[0].group().map_or(0, |group| group.state().members.len());
        assert!((0..5).all(|index| deaths(&net, index) == 0.0 && net.nodes[index].lives.own.watched() > 50.0));
        net.cut[4] = true;
        net.run_until(|net| members(net) == 4);
        net.run_for(Duration::from_secs(2));
        assert!(
            (0..4).all(|index| deaths(&net, index) == 1.0),
            "{:?}",
            (0..4).map(|index| deaths(&net, index)).collect::<Vec<_>>()
        );
        let (class, _) = net.nodes[0].lives.own.classes().find(|(_, seen)| seen.deaths > 0.0).expect("one died");
        assert!((8..=11).contains(&class), "after some 20 s: class {class}");
        // The isolated member hears no majority, and takes no other member for dead.
        assert_eq!(deaths(&net, 4), 0.0);
        assert!(net.nodes[0].lives.is_seen_dead(net.nodes[4].me));
        net.leave(3, true);
        net.run_until(|net| members(net) == 3);
        net.run_for(Duration::from_secs(2));
        assert!((0..3).all(|index| deaths(&net, index) == 1.0));
        assert!(net.nodes[0].lives.reconfiguration().is_some());
    }
}
