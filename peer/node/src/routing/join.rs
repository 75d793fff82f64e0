//! Search of a newcomer for a group to join: it samples some groups, and asks the one that its policy chooses (Scatter §6.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use group::control::agreed::AgreedPolicies;
use group::control::state::{GroupState, Member};
use overlay::time::Time;
use overlay::{Contact, GroupId, GroupRef, PeerKey, Point, RingId};
use policy::diversity::Diversity;
use policy::joining::{Joining, Sampled as View};
use serde::{Deserialize, Serialize};

use crate::api::Class;
use crate::config::NodeConfig;
use crate::context::Context;
use crate::policies::lifetimes::LifeWatch;
use crate::policies::networks::{Network, networks, places};
use crate::replicas::LocalReplicas;
use crate::routing::probing::Probing;
use crate::routing::{Heard, Locate, RoutingTable, Wanted};
use crate::wire::Frame;

/// Number of sampled groups, at random points, so large arcs count for more (Scatter §6.1 has k = 4).
pub(crate) const SAMPLES: u8 = 4;
/// Time to wait for answers; the choice is then among those that came. A question passes several peers, which may be on other continents.
/// With 400 ms newcomers chose among little more than two groups, and the group that needed them most was rarely among those.
const SAMPLE_PATIENCE: Duration = Duration::from_secs(1);
/// The same where no answer has come yet.
const FIRST_SAMPLE_PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which a newcomer asks.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Upper limit of the time for which a newcomer waits before it asks again; a longer wait that a leader asks for is cut
/// to it.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Upper limit of a group's name for a cluster, in bytes.
const CLUSTER_MAX: usize = 256;
/// Upper limit of peers that are asked at a time, for a sample or to join. Members pass a request to join on to their leader, so that with
/// all of a group asked its leader would get a copy from each.
const ASKED_MAX: usize = 3;
/// Number of requests to a group that has noted this node's request, before other groups are asked.
const TURNS_MAX: u8 = 8;
/// Number of repeated requests to a group that has not answered: its leader may be on another continent, and has to connect first.
const AGAIN_MAX: u8 = 2;

/// Question of a newcomer for groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The ring that the newcomer belongs to, if it knows.
    pub ring: Option<RingId>,
    /// The newcomer.
    pub origin: Contact,
}

/// A group, as a newcomer needs to know it before it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// The ring.
    pub ring: RingId,
    /// The sampled point: each answer counts once.
    pub point: Point,
    /// The group.
    pub group: GroupRef,
    /// Clusters of the group's members that the answering member hears.
    pub clusters: Vec<String>,
    /// Whether the group has a place for the newcomer, which was in it before.
    pub own: bool,
    /// The probability that the group loses its majority within an hour if one more of its members dies now, in 1e-12; `None` where too few
    /// deaths were seen.
    pub risk: Option<u64>,
    /// Operations a minute that the group's primaries execute; `None` where the answering member does not know yet.
    pub load: Option<u64>,
    /// Policies and sizes of groups that the network agreed on.
    pub policies: AgreedPolicies,
    /// Operations a second that the group's living members can execute together; `None` where the answering member does not know yet.
    pub capacity: Option<u32>,
}

/// Certainty, in the unit of [`Sampled::risk`].
const CERTAIN: f64 = 1e12;

/// Search of a newcomer.
#[derive(Debug, Default)]
pub(crate) struct JoinSearch {
    sampled: Vec<Sampled>,
    /// Time of the choice, while answers come in; and the time if there are none by then.
    until: Option<(Time, Time)>,
    /// The group that was asked last, and its members to ask.
    chosen: Option<(GroupId, Vec<Contact>)>,
    /// Leader of that group that has noted the request since it was sent.
    noted: Option<PeerKey>,
    turns: u8,
    /// Time of the next step.
    pub(crate) due: Time,
    /// Search for the quickest of the groups.
    pub(crate) probing: Option<Probing>,
}

impl Sampled {
    /// Returns the information for a newcomer about the group at `point`, if it is here.
    pub(crate) fn of(
        replicas: &LocalReplicas,
        config: &NodeConfig,
        lives: &LifeWatch,
        point: Point,
    ) -> Option<Sampled> {
        let group = replicas.at(point)?;
        let (state, heard): (&GroupState, _) = (group.state(), group.hears());
        let is_well = |member: &&Member| member.node == group.me() || heard.contains(&member.node);
        let clusters: Vec<String> = state.members.iter().filter(is_well).map(|member| member.cluster.clone()).collect();
        if !Heard::of(group).is_quorum() {
            return None; // The group could not let a newcomer in.
        }
        let risk = lives.risk_after_a_death(config, group).map(|risk| (risk.in_hour * CERTAIN) as u64);
        let load = group.load().map(|load| load.into_iter().map(u64::from).sum());
        let (policies, capacity) = (state.settings.policies.clone(), group.capacity());
        let (ring, group) = (state.ring, state.reference());
        Some(Sampled { ring, point, group, clusters, own: false, risk, load, policies, capacity })
    }
}

impl RoutingTable {
    /// Handles a newcomer's question.
    pub(crate) fn on_sample(&mut self, cx: &mut Context<'_>, lives: &LifeWatch, from: PeerKey, sample: Sample) {
        let Sample { ring, origin } = sample;
        let Some((own, point)) = cx.replicas.home().map(|group| (group.state().ring, group.state().range.start()))
        else {
            return;
        };
        let known = ring.is_none_or(|ring| ring == own);
        if !known || origin.node.peer != from || !group::validate::are_addresses(&origin.addresses) {
            cx.drop_frame();
            return;
        }
        let here = cx.replicas.home().filter(|group| group.state().last_life(from).is_some());
        if here.is_some()
            && let Some(sampled) = Sampled::of(cx.replicas, cx.config, lives, point)
        {
            return cx.tell(&origin, &Frame::Sampled(Sampled { own: true, ..sampled }.into()));
        }
        for _ in 0..SAMPLES {
            let point = Point(u128::from(cx.rng.draw()) << 64 | u128::from(cx.rng.draw()));
            self.on_locate(cx, lives, cx.me.peer, Locate::new(own, point, origin.clone(), Wanted::Sample));
        }
    }
}

impl JoinSearch {
    /// Creates a search that begins now.
    pub(crate) fn new(now: Time) -> JoinSearch {
        JoinSearch { due: now, ..JoinSearch::default() }
    }

    /// Forgets all groups and answers.
    pub(crate) fn begin_anew(&mut self) {
        *self = JoinSearch { due: self.due, ..JoinSearch::default() };
    }

    /// Takes the due steps of a node without a group.
    pub(crate) fn seek(&mut self, cx: &mut Context<'_>) {
        if !cx.replicas.is_empty() || cx.now.time < self.due {
            return;
        }
        let noted = self.noted.take();
        let turns_max = if noted.is_some() { TURNS_MAX } else { AGAIN_MAX };
        let chosen = self.chosen.take();
        if let Some((group, contacts)) = chosen.filter(|_| self.turns < turns_max) {
            self.turns += 1;
            self.ask_group(cx, &contacts, noted);
            self.chosen = Some((group, contacts));
        } else if self.probing.is_some() {
            if !self.go_on_probing(cx) {
                self.end_probing(cx);
            }
        } else if let Some((_, last)) = self.until {
            match self.sampled.is_empty() && cx.now.time < last {
                true => self.ask_another(cx, last),
                false => self.choose(cx),
            }
        } else {
            some_connected(cx).into_iter().for_each(|peer| self.ask_for_sample(cx, peer));
            self.due = cx.now.time + ASK_AGAIN;
        }
    }

    /// Asks one more peer for a sample, since none has answered.
    fn ask_another(&mut self, cx: &mut Context<'_>, last: Time) {
        self.due = last.min(cx.now.time + SAMPLE_PATIENCE);
        if let Some(peer) = some_connected(cx).pop() {
            self.ask_for_sample(cx, peer);
        }
    }

    /// Asks a peer for groups.
    pub(crate) fn ask_for_sample(&mut self, cx: &mut Context<'_>, peer: PeerKey) {
        if self.probing.is_some() || self.chosen.is_some() {
            return; // There are enough groups to choose from, or one may be about to let the node in.
        }
        let origin = cx.contact();
        let frame = Frame::Sample(Sample { ring: cx.ring, origin }.into());
        cx.post(peer, Class::Control, &frame);
        if self.until.is_none() {
            self.sampled.clear();
            self.until = Some((cx.now.time + SAMPLE_PATIENCE, cx.now.time + FIRST_SAMPLE_PATIENCE));
        }
        self.due = self.due.min(cx.now.time + SAMPLE_PATIENCE);
    }

    /// Handles an answer.
    pub(crate) fn on_sampled(&mut self, cx: &mut Context<'_>, sampled: Sampled) {
        let wrong = cx.ring.is_some_and(|ring| ring != sampled.ring)
            || !group::validate::is_reference(&sampled.group)
            || sampled.clusters.len() > sampled.group.members.len()
            || sampled.clusters.iter().any(|cluster| cluster.len() > CLUSTER_MAX)
            || !sampled.policies.is_sound();
        if wrong {
            cx.drop_frame();
            return;
        }
        let known = |known: &Sampled| known.point == sampled.point && known.ring == sampled.ring;
        if self.until.is_none() || self.sampled.iter().any(known) {
            return;
        }
        let own = sampled.own;
        self.sampled.push(sampled);
        let is_late = self.until.is_some_and(|(until, _)| cx.now.time >= until);
        if own || is_late || self.sampled.len() >= usize::from(SAMPLES) {
            self.choose(cx);
        }
    }

    /// Chooses among the sampled groups, or first measures the values that the choice depends on.
    fn choose(&mut self, cx: &mut Context<'_>) {
        let mut sampled = core::mem::take(&mut self.sampled);
        // A large group may have been sampled more than once: it is one choice. The node's own former group comes first.
        sampled.sort_by_key(|group| !group.own);
        for index in (0..sampled.len()).rev() {
            if sampled[..index].iter().any(|before| before.group.id == sampled[index].group.id) {
                sampled.remove(index);
            }
        }
        self.begin_anew();
        let own = sampled.iter().position(|group| group.own);
        let undecided = joining(cx, &sampled).undecided(&views(cx, &sampled, |_| None));
        if own.is_none() && !undecided.is_empty() {
            let number = cx.rng.draw();
            self.probing = Some(Probing::new(sampled, undecided, number, cx.now.time));
            self.go_on_probing(cx);
        } else {
            let chance = cx.rng.draw();
            let chosen = own.or_else(|| {
                let views = views(cx, &sampled, |_| None);
                joining(cx, &sampled).choose(&views, chance)
            });
            self.ask_chosen(cx, sampled, chosen);
        }
    }

    /// Chooses with the results of the probes.
    pub(crate) fn end_probing(&mut self, cx: &mut Context<'_>) {
        let Some(probing) = self.probing.take() else { return };
        let views = views(cx, &probing.sampled, |index| probing.agreement(index));
        let chance = cx.rng.draw();
        let chosen = joining(cx, &probing.sampled).choose(&views, chance);
        self.ask_chosen(cx, probing.sampled, chosen);
    }

    fn ask_chosen(&mut self, cx: &mut Context<'_>, sampled: Vec<Sampled>, chosen: Option<usize>) {
        self.due = cx.now.time + ASK_AGAIN;
        match chosen.and_then(|index| sampled.into_iter().nth(index)) {
            Some(Sampled { group, .. }) => {
                self.ask_group(cx, &group.members, None);
                self.chosen = Some((group.id, group.members));
            }
            // No answer to choose from came: any group may let the node in.
            None => some_connected(cx).into_iter().for_each(|peer| ask_to_join(cx, peer)),
        }
    }

    /// Asks some members of a group to let this node in: its known leader first, then connected members.
    fn ask_group(&mut self, cx: &mut Context<'_>, members: &[Contact], leader: Option<PeerKey>) {
        self.due = cx.now.time + ASK_AGAIN;
        let me = cx.me.peer;
        let mut asked: Vec<&Contact> = members.iter().filter(|contact| contact.node.peer != me).collect();
        cx.rng.shuffle(&mut asked);
        asked.sort_by_key(|contact| {
            let peer = contact.node.peer;
            (Some(peer) != leader, !cx.is_connected_to(peer))
        });
        for contact in asked.into_iter().take(ASKED_MAX) {
            cx.reach(contact);
            ask_to_join(cx, contact.node.peer);
        }
    }

    /// Handles a leader's report that its group noted this node's request to join. Returns whether this is news: from the group that was
    /// asked, for the first time since.
    fn on_noted(&mut self, group: GroupId, leader: PeerKey) -> bool {
        let is_asked = self.chosen.as_ref().is_none_or(|(chosen, _)| *chosen == group);
        is_asked && self.noted.replace(leader).is_none()
    }

    /// Handles a group's answer that it noted this node's request to join, or has no room to note it. Each question is
    /// answered once.
    pub(crate) fn on_wait(&mut self, cx: &Context<'_>, group: GroupId, leader: PeerKey, millis: u64) {
        if self.on_noted(group, leader) {
            self.due = self.due.max(cx.now.time + Duration::from_millis(millis).min(WAIT_MAX));
        }
    }
}

/// Returns up to [`ASKED_MAX`] random peers among those that are connected.
fn some_connected(cx: &mut Context<'_>) -> Vec<PeerKey> {
    let mut connected: Vec<PeerKey> = cx.out.connected.iter().copied().collect();
    cx.rng.shuffle(&mut connected);
    connected.truncate(ASKED_MAX);
    connected
}

/// Returns the policy of the network for this decision, as the greatest policies of the sampled groups name it.
fn joining(cx: &Context<'_>, sampled: &[Sampled]) -> &'static dyn Joining {
    let agreed = sampled.iter().map(|group| &group.policies).max();
    agreed.map_or(cx.config.policies, |agreed| cx.config.policies.with(agreed)).join.1
}

fn views(cx: &Context<'_>, sampled: &[Sampled], agreement: impl Fn(usize) -> Option<Duration>) -> Vec<View> {
    let view = |(index, group): (usize, &Sampled)| {
        let (close, near) = alike(cx, group);
        let members = group.clusters.len();
        let risk = group.risk.map(|risk| (risk as f64 / CERTAIN).min(1.0));
        let load = group.load.map(|load| load as f64 / members.max(1) as f64);
        let capacity = group.capacity.map(|capacity| f64::from(capacity) / members.max(1) as f64);
        let diversity = diversity_of(cx, group);
        View { members, close, near, risk, load, capacity, agreement: agreement(index), diversity }
    };
    sampled.iter().enumerate().map(view).collect()
}

/// Returns the number of a group's members near this node: at its site, and with its provider. The site is the cluster if this node
/// names one; otherwise global addresses tell both.
fn alike(cx: &Context<'_>, group: &Sampled) -> (usize, usize) {
    let cluster = &cx.config.cluster;
    if !cluster.is_empty() {
        let close = group.clusters.iter().filter(|other| *other == cluster).count();
        return (close, close);
    }
    let own = networks(cx.addresses);
    let theirs = group.group.members.iter().map(|contact| networks(&contact.addresses));
    let count = |(close, near): (usize, usize), theirs: Vec<Network>| {
        let is_close = theirs.iter().any(|network| own.contains(network));
        let is_near = theirs.iter().any(|network| own.iter().any(|own| own.is_near(network)));
        (close + usize::from(is_close), near + usize::from(is_near))
    };
    theirs.fold((0, 0), count)
}

/// Returns the clusters that a group spans, as told by this node's own name for its cluster, or else by global addresses.
fn diversity_of(cx: &Context<'_>, group: &Sampled) -> Diversity {
    let split_at = (group.policies.members_max as usize).saturating_add(1);
    let (cluster, contacts) = (&cx.config.cluster, &group.group.members);
    if !cluster.is_empty() {
        let clusters: Vec<&str> = group.clusters.iter().map(String::as_str).collect();
        return Diversity::of(&clusters, cluster, split_at);
    }
    let addresses = contacts.iter().map(|contact| contact.addresses.as_slice()).chain([cx.addresses]);
    let places = places(&addresses.map(|addresses| ("", addresses)).collect::<Vec<_>>());
    let names: Vec<&str> = places.iter().map(String::as_str).collect();
    names.split_last().map_or_else(Diversity::default, |(own, theirs)| Diversity::of(theirs, own, split_at))
}

/// Asks a peer to let this node into its group.
fn ask_to_join(cx: &mut Context<'_>, peer: PeerKey) {
    let join = Frame::Join { ring: cx.ring, member: cx.member() };
    cx.say_to(peer, &join);
}

#[cfg(test)]
mod tests {
    use overlay::time::Now;

    use super::*;
    use crate::api::{Input, Output};
    use crate::context::context;
    use crate::node::Node;
    use crate::tests::small_net::{Net, key};
    use crate::wire;

    /// Two groups have the same size: the newcomer hears a majority of one of them only.
    #[test]
    fn of_equals_the_one_that_answers_is_joined() {
        for far in [[0, 1], [3, 4]] {
            let settle = |config| NodeConfig { members_min: 1, members_max: 6, ..config };
            let mut net = Net::with(6, settle);
            net.split(3);
            net.deaf = far.map(|member| (member, 6)).to_vec();
            net.add(settle);
            net.run_until(|net| net.nodes[6].group().is_some());
            let near = if far[0] == 0 { 3 } else { 0 };
            let state = |index: usize| net.nodes[index].group().expect("it is in one").state().id;
            assert_eq!(state(6), state(near));
        }
    }

    /// Returns the groups of the first and of the seventh node.
    fn samples(net: &Net) -> [Sampled; 2] {
        [0, 6].map(|index| {
            let node = &net.nodes[index];
            let start = node.group().expect("it is in one").state().range.start();
            Sampled::of(&node.replicas, &node.config, &node.lives, start).expect("it is here")
        })
    }

    /// Seven nodes in a group of three, with two of cluster `a`, and a group of four without any. A newcomer of cluster `a` joins the small
    /// group by `resilience`, and the diverse group by `multi-cluster`.
    #[test]
    fn the_group_that_lacks_the_cluster_is_joined() {
        let cluster = |index: usize| ["a", "a", "b", "b", "c", "d", "e", "a"][index];
        for (policy, joined) in [("resilience", 0), ("multi-cluster", 6)] {
            let settle = |mut config: NodeConfig| {
                config.policies.choose("join", policy).expect("a policy of that name");
                let cluster = (0..8).find(|index| key(*index) == config.me).map_or("", cluster).into();
                NodeConfig { members_min: 1, members_max: 8, cluster, ..config }
            };
            let mut net = Net::with(7, settle);
            net.split(3);
            let sampled = samples(&net);
            net.add(settle);
            let newcomer = &mut net.nodes[7];
            let until = newcomer.now.time + SAMPLE_PATIENCE;
            newcomer.routing.join.until = Some((until, until));
            sampled.into_iter().for_each(|group| newcomer.on_admitted(key(0), Frame::Sampled(group.into())));
            newcomer.routing.join.choose(&mut context!(newcomer));
            net.run_until(|net| net.nodes[7].group().is_some());
            let group = |index: usize| net.nodes[index].group().expect("it is in one").state().id;
            assert_eq!(group(7), group(joined), "{policy}");
        }
    }

    /// A newcomer connects to each peer that it asks, and each new connection could tell it of other groups. It waits for the group that it
    /// chose, asks it again twice, and only then asks for others.
    #[test]
    fn a_newcomer_asks_one_group_at_a_time() {
        let settle = |config| NodeConfig { members_min: 1, members_max: 8, ..config };
        let mut net = Net::with(7, settle);
        net.split(3);
        let sampled = samples(&net);
        let (small, now) = (sampled[0].group.members.clone(), net.now);
        net.add(settle);
        let newcomer = &mut net.nodes[7];
        let said = |newcomer: &mut Node| {
            let (mut asked, mut samples) = (Vec::new(), 0);
            while let Some(output) = newcomer.poll_output() {
                let Output::Send { to, frame, .. } = output else { continue };
                match wire::decode(&frame, None) {
                    Ok((_, Frame::Join { .. })) => asked.push(to),
                    Ok((_, Frame::Sample(_))) => samples += 1,
                    _ => {}
                }
            }
            assert!(asked.iter().all(|peer| small.iter().any(|contact| contact.node.peer == *peer)), "{asked:?}");
            (asked.len(), samples)
        };
        sampled.iter().for_each(|group| newcomer.on_admitted(key(0), Frame::Sampled(group.clone().into())));
        newcomer.routing.join.choose(&mut context!(newcomer));
        assert_eq!(said(newcomer).0, ASKED_MAX);
        let mut all = Vec::new();
        for turn in 1..=6 {
            (0..7).for_each(|index| newcomer.handle(now, Input::PeerUp(key(index))));
            sampled.iter().for_each(|group| newcomer.on_admitted(key(0), Frame::Sampled(group.clone().into())));
            let time = now.time + ASK_AGAIN * turn;
            newcomer.handle(Now { time, awake: time, ..now }, Input::Tick);
            let (joins, samples) = said(newcomer);
            all.push((joins, samples > 0));
        }
        assert_eq!(all[..3], [(ASKED_MAX, false), (ASKED_MAX, false), (0, true)], "{all:?}");
    }

    /// Members pass a question on to their leader: a newcomer does not ask all nine.
    #[test]
    fn three_members_are_asked() {
        let settle = |config| NodeConfig { members_min: 1, members_max: 12, ..config };
        let mut net = Net::with(9, settle);
        net.joins = 0;
        net.add(settle);
        net.run_until(|net| net.joins > 0);
        assert_eq!(net.joins, ASKED_MAX);
        net.run_until(|net| net.nodes[9].group().is_some());
        assert!(net.joins <= 2 * ASKED_MAX, "{}", net.joins);
    }
}
