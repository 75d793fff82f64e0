//! Starts of processes: whoever's store went back in time, or runs twice, is found out before it counts.
//!
//! A *start* is a counter, which the store holds and each start of the process raises, and a number drawn at random. Each
//! frame carries its sender's. A node keeps the highest that it has heard of each member, and makes it durable before
//! anything counts that was said from that start. A higher one counts where it descends from the known one ([`crate::lineage`]). All
//! others are refused: that process has an older copy of the store, or the process that is known still runs ([`crate::refused`]).
//!
//! # Invariants
//! - A node sends nothing before its own counter is durable: no two starts from one store share a number that others heard.
//! - Nothing of a member counts before its start is durable here, and after that nothing of a lower one.
//! - What answers one peer names the start that it is for: a process never takes an answer to another for its own.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

use group::Group;
use group::config::Defect;
use group::message::{Message, Sender};
use group::rng::Rng;
use group::time::Time;
use overlay::{Epoch, GroupId, Incarnation, KeyRange, NodeId, PeerKey};
use serde::{Deserialize, Serialize};

use crate::api::{Class, Event, Output};
use crate::config::Durability;
use crate::lineage::{Lineage, RUNS_MAX};
use crate::node::Node;
use crate::wire::{self, Frame, Stamp};

/// Frames that wait for a start to be durable: so many.
const HELD_MAX: usize = 1024;
/// And so many bytes of them.
const HELD_BYTES_MAX: usize = 4 << 20;
/// Starts that are remembered of nodes that are in no group here.
const STRANGERS_MAX: usize = 1024;
/// Of those, so many are in the store: nodes that were in a group here.
const GONE_MAX: usize = 64;

/// For so long a contradiction is shown after it was last seen.
const NOTICED_FOR: Duration = Duration::from_secs(60);

/// One start of a peer's process, in one life of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Start {
    /// The how manieth it is from this store.
    pub counter: u64,
    /// Drawn at random; never 0.
    pub run: u64,
}

/// A start is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Whose.
    pub node: NodeId,
    /// Which.
    pub start: Start,
    /// In which life of the peer the known one is.
    pub incarnation: Incarnation,
    /// The one that is known instead.
    pub known: Start,
    /// Whether the known one has been heard since the refused one was; `None` where that is still to be seen.
    pub alive: Option<bool>,
    /// The known one is refused as well: members know different ones.
    pub contested: bool,
    /// Groups of the sender that the node is in: their ranges and epochs. A node that has gone back in time may know none of
    /// its members.
    pub groups: Vec<(KeyRange, Epoch)>,
}

/// What the sender holds for the start of a member, where it refused another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    /// Whose.
    pub node: NodeId,
    /// The one that it holds, as far as it knows the starts before it.
    pub lineage: Lineage,
}

/// Whether a start is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    No,
    /// Once this batch is.
    Soon(u64),
    Yes,
}

/// A start that is refused.
#[derive(Clone, Copy, Debug)]
struct Rival {
    start: Start,
    since: Time,
    heard: Time,
    is_told: bool,
}

/// What is known of one life of a peer.
#[derive(Clone, Debug)]
struct Known {
    start: Start,
    /// [`Lineage::before`] of it, where that was told.
    before: Vec<u64>,
    written: Written,
    /// When this start was last heard.
    heard: Option<Time>,
    rival: Option<Rival>,
    /// Which starts other members said that they hold, where there was a dispute.
    told: BTreeMap<PeerKey, (Start, Time)>,
}

/// What became of a frame's start.
enum Verdict {
    Counts,
    /// That depends on its lineage, which is not known yet: known is this start.
    Unknown(Start),
    /// Known is this, in that life; it was heard then, and the refused one first.
    Refused {
        incarnation: Incarnation,
        known: Start,
        heard: Option<Time>,
        since: Time,
        contested: bool,
    },
}

/// Somebody refuses this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) at: Time,
    pub(crate) alive: Option<bool>,
    pub(crate) contested: bool,
}

/// This node keeps still, as long as others refuse it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barred {
    /// It does not go on without a verdict: whatever it holds may be old.
    pub(crate) is_doubtful: bool,
    pub(crate) asked: Time,
}

/// See the module.
pub(crate) struct Starts {
    /// This node's start, with the starts before it.
    pub(crate) lineage: Lineage,
    /// What peers told of starts that are not known.
    lineages: BTreeMap<NodeId, Lineage>,
    /// It is in the store, or nothing is.
    is_durable: bool,
    /// What is to be sent once it is.
    withheld: Vec<Output>,
    known: BTreeMap<NodeId, Known>,
    /// The first batch that is under way with some of these.
    writing: Option<u64>,
    /// From which run each peer was last heard, by this very process.
    runs: BTreeMap<PeerKey, u64>,
    held: VecDeque<(PeerKey, Stamp, Frame, usize)>,
    held_bytes: usize,
    /// When a peer was last told that its start, or that of its addressee, is not the right one.
    told: BTreeMap<PeerKey, Time>,
    /// When a peer was last asked for its lineage.
    asked: BTreeMap<PeerKey, Time>,
    /// Who refuses this node, where its counter is not lower than the known one.
    pub(crate) refusals: BTreeMap<PeerKey, Refusal>,
    /// Who said something to this very process.
    pub(crate) accepted: BTreeMap<PeerKey, Time>,
    pub(crate) barred: Option<Barred>,
    /// When it was last refused.
    pub(crate) refused_at: Time,
    pub(crate) noted: Option<(String, Time)>,
    /// What a person should know.
    pub(crate) note: Option<String>,
    refused: u64,
    swept: Time,
}

impl Starts {
    /// Of a process that begins now.
    pub(crate) fn new(seed: u64) -> Starts {
        let run = Rng::new(seed.rotate_left(32) ^ 0x5374_6172_7473).draw().max(1);
        Starts {
            lineage: Lineage::default().next(run),
            lineages: BTreeMap::new(),
            is_durable: true,
            withheld: Vec::new(),
            known: BTreeMap::new(),
            writing: None,
            runs: BTreeMap::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            told: BTreeMap::new(),
            asked: BTreeMap::new(),
            refusals: BTreeMap::new(),
            accepted: BTreeMap::new(),
            barred: None,
            refused_at: Time(0),
            noted: None,
            note: None,
            refused: 0,
            swept: Time(0),
        }
    }

    /// This is what the store holds of others.
    pub(crate) fn restore(&mut self, known: Vec<(NodeId, Start)>) {
        let known = known.into_iter().map(|(node, start)| (node, Known::new(start, Written::Yes)));
        self.known = known.collect();
    }

    /// It goes on with the life in the store, whose last start was this.
    pub(crate) fn resume(&mut self, last: Lineage) {
        self.lineage = last.next(self.own().run);
        self.is_durable = false;
    }

    /// This process's.
    pub(crate) fn own(&self) -> Start {
        self.lineage.start
    }

    /// How many frames were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whose processes contradict each other, and how, as seen of late by this peer, `me`.
    pub(crate) fn notices(&self, me: PeerKey, now: Time) -> Vec<(PeerKey, String)> {
        let own = self.note.iter().map(|note| (me, note.clone()));
        let seen = |(node, known): (&NodeId, &Known)| {
            let rival = known.rival.filter(|rival| rival.is_told && now.since(rival.heard) <= NOTICED_FOR)?;
            Some((node.peer, contradiction(rival.start, known.start)))
        };
        own.chain(self.known.iter().filter_map(seen)).collect()
    }

    /// Does this node keep still?
    pub(crate) fn is_barred(&self) -> bool {
        self.barred.is_some()
    }
}

/// What a member sees of two starts.
fn contradiction(refused: Start, known: Start) -> String {
    format!(
        "a process says that it is start {} (run {:x}) of this peer, and start {} (run {:x}) is known: its data directory \
         is an older copy, or the identity runs twice. Nothing of the former counts",
        refused.counter, refused.run, known.counter, known.run
    )
}

impl Known {
    fn new(start: Start, written: Written) -> Known {
        Known { start, before: Vec::new(), written, heard: None, rival: None, told: BTreeMap::new() }
    }

    fn lineage(&self) -> Lineage {
        Lineage { start: self.start, before: self.before.clone() }
    }

    /// Do as many members hold a start of another lineage as hold this one?
    fn is_contested(&self, fresh: impl Fn(Time) -> bool) -> bool {
        let said = self.told.values().filter(|(_, at)| fresh(*at));
        let (mut same, mut other) = (1, 0);
        for (start, _) in said {
            *(if *start == self.start { &mut same } else { &mut other }) += 1;
        }
        other >= same
    }

    /// Another start than this one was heard, which does not count. True once it has been heard for so long.
    fn note_rival(&mut self, start: Start, now: Time, patience: Duration, lasting: Duration) -> bool {
        match &mut self.rival {
            Some(rival) if rival.start == start && now.since(rival.heard) <= patience * 2 => rival.heard = now,
            rival => *rival = Some(Rival { start, since: now, heard: now, is_told: false }),
        }
        let rival = self.rival.as_mut().filter(|rival| rival.heard.since(rival.since) >= lasting);
        rival.is_some_and(|rival| !core::mem::replace(&mut rival.is_told, true))
    }
}

impl Node {
    /// Silence for so long, and a process is taken to be gone.
    pub(crate) fn gone_after(&self) -> Duration {
        self.config.timing.heartbeat * 10
    }

    /// What this node's frames begin with.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { incarnation: self.me.incarnation, start: self.starts.own(), to: 0 }
    }

    /// Says something to one peer, for the process of it that was last heard.
    pub(crate) fn post(&mut self, to: PeerKey, class: Class, frame: &Frame) {
        let run = self.starts.runs.get(&to).copied().unwrap_or(0);
        self.post_for(to, run, class, frame);
    }

    fn post_for(&mut self, to: PeerKey, run: u64, class: Class, frame: &Frame) {
        let stamp = Stamp { to: run, ..self.stamp() };
        let frame = wire::encode(&stamp, frame, self.config.lane);
        self.put_out(Output::Send { to, class, frame });
    }

    /// Says the same to several, whichever process of theirs hears it: none of these is an answer.
    pub(crate) fn post_all(&mut self, to: &[PeerKey], class: Class, frame: &Frame) {
        let [one] = to else {
            let frame = wire::encode(&self.stamp(), frame, self.config.lane);
            return to.iter().for_each(|to| self.put_out(Output::Send { to: *to, class, frame: frame.clone() }));
        };
        self.post(*one, class, frame);
    }

    fn put_out(&mut self, output: Output) {
        if self.starts.is_durable {
            self.outputs.push_back(output);
        } else if self.starts.withheld.len() < HELD_MAX {
            self.starts.withheld.push(output);
        }
    }

    /// A batch is durable, and with it, after a start, the counter.
    pub(crate) fn on_starts_persisted(&mut self, token: u64) {
        if !self.starts.is_durable {
            self.starts.is_durable = true;
            self.outputs.extend(core::mem::take(&mut self.starts.withheld));
        }
        if self.starts.writing.is_none_or(|first| first > token) {
            return;
        }
        self.starts.writing = None;
        for known in self.starts.known.values_mut() {
            match known.written {
                Written::Soon(last) if last <= token => known.written = Written::Yes,
                Written::Soon(later) => self.starts.writing = Some(self.starts.writing.unwrap_or(later).min(later)),
                Written::No | Written::Yes => {}
            }
        }
        self.admit_held();
    }

    /// Judges all frames that wait once more.
    fn admit_held(&mut self) {
        self.starts.held_bytes = 0;
        for (from, stamp, frame, bytes) in core::mem::take(&mut self.starts.held) {
            if let Some(frame) = self.admit(from, stamp, frame, bytes) {
                self.on_admitted(from, frame);
            }
        }
    }

    /// A frame came, from this start. It is given back if it counts; else it waits, or its sender is told why not.
    pub(crate) fn admit(&mut self, from: PeerKey, stamp: Stamp, frame: Frame, bytes: usize) -> Option<Frame> {
        if self.config.defects.has(Defect::StartsIgnored) {
            return Some(frame);
        }
        let own = self.starts.own().run;
        if stamp.to != 0 && stamp.to != own {
            // For another process of this peer: one that was here before, as a rule.
            if self.may_tell_start(from) {
                self.tell_lineage(from);
            }
            return None;
        }
        if from == self.me.peer {
            // Another process of this peer: whoever hears both says which of them counts.
            return (stamp.start == self.starts.own()).then_some(frame);
        }
        let frame = match frame {
            Frame::Refused(refused) => {
                self.on_refused(from, &refused);
                return None;
            }
            frame => frame,
        };
        let node = NodeId { peer: from, incarnation: stamp.incarnation };
        let frame = match frame {
            Frame::Lineage(before) => {
                self.on_lineage(node, Lineage { start: stamp.start, before });
                Frame::Started
            }
            frame => frame,
        };
        let verdict = self.judge(node, stamp.start);
        if let Verdict::Unknown(known) = verdict {
            self.hold(from, stamp, frame, bytes);
            let (now, pause) = (self.now.time, self.pause());
            if may_tell(&mut self.starts.asked, from, now, pause) {
                // What is for an earlier start is answered with the lineage.
                self.post_for(from, known.run, Class::Control, &Frame::Started);
            }
            return None;
        }
        if let Verdict::Refused { incarnation, known, heard, since, contested } = verdict {
            let alive = self.is_alive(heard, since);
            self.starts.refused += 1;
            if self.may_tell_start(from) {
                let groups = self.groups_with(node);
                let refused = Refused { node, start: stamp.start, incarnation, known, alive, contested, groups };
                self.post_for(from, stamp.start.run, Class::Control, &Frame::Refused(Box::new(refused)));
                self.tell_fellows(node);
            }
            return None;
        }
        self.starts.runs.insert(from, stamp.start.run);
        if stamp.to == own {
            self.starts.accepted.insert(from, self.now.time);
            self.starts.refusals.remove(&from);
        }
        if self.is_unwritten(node) {
            self.hold(from, stamp, frame, bytes);
            return None;
        }
        Some(frame)
    }

    /// Whether what is said from this start counts. A higher one takes the place of what was known.
    fn judge(&mut self, node: NodeId, start: Start) -> Verdict {
        let (now, patience) = (self.now.time, self.gone_after());
        let fresh = |at: Time| now.since(at) <= patience * 2;
        // What an earlier run said may still be under way for a while.
        let lasting = self.config.timing.heartbeat * 2;
        let later = (Bound::Excluded(node), Bound::Included(NodeId { incarnation: Incarnation(u64::MAX), ..node }));
        let later = self.starts.known.range_mut(later).next_back();
        if let Some((later, known)) = later
            && let Some(heard) = known.heard.filter(|heard| now.since(*heard) <= patience)
        {
            let is_news = known.note_rival(start, now, patience, lasting);
            let since = known.rival.map_or(now, |rival| rival.since);
            let (incarnation, known) = (later.incarnation, known.start);
            if is_news {
                self.event(Event::Identity { peer: node.peer, what: contradiction(start, known) });
            }
            return Verdict::Refused { incarnation, known, heard: Some(heard), since, contested: false };
        }
        let Some(known) = self.starts.known.get_mut(&node) else {
            self.learn_start(node, start);
            return Verdict::Counts;
        };
        if start.counter > known.start.counter {
            let before = known.start;
            let told = self.starts.lineages.get(&node).filter(|told| told.start == start);
            let counts = told.map(|told| told.descends_from(before));
            if counts == Some(true) || !self.is_here(node) || self.config.defects.has(Defect::LineageIgnored) {
                self.learn_start(node, start);
                return Verdict::Counts;
            }
            if counts.is_none() {
                return Verdict::Unknown(before);
            }
        }
        let Some(known) = self.starts.known.get_mut(&node) else { return Verdict::Counts };
        let contested = known.is_contested(fresh);
        if start == known.start {
            known.heard = Some(now);
            if !contested {
                return Verdict::Counts;
            }
            // Others hold another one.
            let other = known.told.values().find(|(told, at)| *told != start && fresh(*at));
            let (other, at) = other.copied().unwrap_or((start, now));
            let rival = known.rival.filter(|rival| rival.start == other);
            let (heard, since) = (rival.map(|rival| rival.heard), rival.map_or(at, |rival| rival.since));
            return Verdict::Refused { incarnation: node.incarnation, known: other, heard, since, contested };
        }
        let is_news = known.note_rival(start, now, patience, lasting);
        let since = known.rival.map_or(now, |rival| rival.since);
        let (heard, known) = (known.heard, known.start);
        if is_news {
            self.event(Event::Identity { peer: node.peer, what: contradiction(start, known) });
        }
        Verdict::Refused { incarnation: node.incarnation, known, heard, since, contested }
    }

    /// Whether what was heard then is alive, where the other one first was heard at `since`: what was under way for a while
    /// says nothing.
    fn is_alive(&self, heard: Option<Time>, since: Time) -> Option<bool> {
        let (now, late) = (self.now.time, since + self.config.timing.heartbeat * 2);
        let last = heard.unwrap_or(since).max(since);
        match heard {
            _ if now.since(last) > self.gone_after() => Some(false),
            Some(heard) if heard >= late => Some(true),
            _ => None,
        }
    }

    /// A start that was not known.
    fn learn_start(&mut self, node: NodeId, start: Start) {
        if self.starts.known.len() >= 4 * STRANGERS_MAX {
            self.forget_starts();
        }
        let heard = Some(self.now.time);
        let told = self.starts.lineages.remove(&node).filter(|told| told.start == start);
        let before = told.map(|told| told.before).unwrap_or_default();
        self.starts.known.insert(node, Known { heard, before, ..Known::new(start, Written::No) });
        self.each_group(|group| group.on_new_run(node.peer));
    }

    /// Whether this node is in a group here.
    fn is_here(&self, node: NodeId) -> bool {
        self.hosts.living().any(|group| group.state().is_in_audience(node))
    }

    /// Tells a peer from which starts this one descends.
    pub(crate) fn tell_lineage(&mut self, to: PeerKey) {
        let frame = Frame::Lineage(self.starts.lineage.before.clone());
        self.post_for(to, 0, Class::Control, &frame);
    }

    /// A node told from which starts its start descends. What waits for that is judged again.
    fn on_lineage(&mut self, node: NodeId, lineage: Lineage) {
        if lineage.before.len() > RUNS_MAX {
            self.frames_dropped += 1;
            return;
        }
        match self.starts.known.get_mut(&node) {
            Some(known) if known.start == lineage.start => {
                known.before = lineage.before;
                return;
            }
            _ if self.starts.lineages.len() >= STRANGERS_MAX => self.starts.lineages.clear(),
            _ => {}
        }
        self.starts.lineages.insert(node, lineage);
        self.admit_held();
    }

    /// Is this node in a group here, and its start still to be written? It is from then on.
    fn is_unwritten(&mut self, node: NodeId) -> bool {
        let Some(known) = self.starts.known.get(&node) else { return false };
        match known.written {
            Written::Yes => false,
            Written::Soon(_) => true,
            Written::No if self.config.durability == Durability::Memory => false,
            Written::No if !self.is_here(node) => false,
            Written::No => {
                let changes = alloc::vec![self.space().start_of(node, known.start)];
                let token = self.hosts.name_batch(0, 0);
                self.outputs.push_back(Output::Persist { token, changes });
                self.starts.writing.get_or_insert(token);
                if let Some(known) = self.starts.known.get_mut(&node) {
                    known.written = Written::Soon(token);
                }
                true
            }
        }
    }

    fn hold(&mut self, from: PeerKey, stamp: Stamp, frame: Frame, bytes: usize) {
        if self.starts.held.len() >= HELD_MAX || self.starts.held_bytes + bytes > HELD_BYTES_MAX {
            self.frames_dropped += 1;
            return;
        }
        self.starts.held_bytes += bytes;
        self.starts.held.push_back((from, stamp, frame, bytes));
    }

    /// A message that came before its group was here, from a node whose start no group asked for: it waits where that is
    /// not durable yet, else it is given back.
    pub(crate) fn hold_early(&mut self, group: GroupId, sender: Sender, message: Message) -> Option<Message> {
        if matches!(message, Message::Client(_)) || !self.is_unwritten(sender.node) {
            return Some(message);
        }
        let ring = self.ring?;
        let start = self.starts.known.get(&sender.node)?.start;
        let stamp = Stamp { incarnation: sender.node.incarnation, start, to: 0 };
        self.hold(sender.node.peer, stamp, Frame::Group { ring, group, sender, message }, 0);
        None
    }

    /// Who repeats itself is not told as often.
    fn may_tell_start(&mut self, peer: PeerKey) -> bool {
        let (now, pause) = (self.now.time, self.pause());
        may_tell(&mut self.starts.told, peer, now, pause)
    }

    /// Between two frames of that kind.
    fn pause(&self) -> Duration {
        self.config.timing.heartbeat * 2 / 5
    }

    /// Peers that are in a group with this node, or with that one and this.
    pub(crate) fn fellows(&self, with: Option<NodeId>) -> BTreeSet<PeerKey> {
        let groups = self.hosts.living().map(Group::state);
        let groups = groups.filter(|state| with.is_none_or(|node| state.is_in_audience(node)));
        let mut peers: BTreeSet<PeerKey> =
            groups.flat_map(|state| state.audience()).map(|node: NodeId| node.peer).collect();
        peers.remove(&self.me.peer);
        if let Some(node) = with {
            peers.remove(&node.peer);
        }
        peers
    }

    /// Ranges and epochs of the groups here that a node is in.
    fn groups_with(&self, node: NodeId) -> Vec<(KeyRange, Epoch)> {
        let states = self.hosts.living().map(Group::state);
        states.filter(|state| state.is_in_audience(node)).map(|state| (state.range, state.epoch)).collect()
    }

    /// Other members learn which start this node holds of one that it refused another of.
    fn tell_fellows(&mut self, node: NodeId) {
        let Some(lineage) = self.starts.known.get(&node).map(Known::lineage) else { return };
        let fellows: Vec<PeerKey> = self.fellows(Some(node)).into_iter().collect();
        self.post_all(&fellows, Class::Control, &Frame::Contested(Box::new(Contested { node, lineage })));
    }

    /// A member holds this start of another.
    pub(crate) fn on_contested(&mut self, from: PeerKey, contested: Contested) {
        let Contested { node, lineage } = contested;
        if !self.fellows(Some(node)).contains(&from) || lineage.before.len() > RUNS_MAX {
            self.frames_dropped += 1;
            return;
        }
        let (now, start) = (self.now.time, lineage.start);
        let known = self.starts.known.entry(node).or_insert_with(|| Known::new(start, Written::No));
        // Whoever has restarted knows a start without those before it: then counters decide.
        let follows = |later: &Lineage, former: Start| {
            later.descends_from(former) || later.before.is_empty() && later.start.counter > former.counter
        };
        if follows(&known.lineage(), start) {
            return; // It has not heard of the known one yet.
        }
        if follows(&lineage, known.start) {
            *known = Known { before: lineage.before, ..Known::new(start, Written::No) };
            known.told.insert(from, (start, now));
            // It was not heard from that start: nothing was said that this node could vouch for.
            self.is_unwritten(node);
            return;
        }
        let is_news = start != known.start && known.told.is_empty();
        known.told.insert(from, (start, now));
        if is_news {
            let what = format!(
                "start {} (run {:x}) is known here, and start {} (run {:x}) to another member: the identity runs twice, or an older \
                 copy of its data directory was started. As long as no more members know one of them than the other, neither counts",
                known.start.counter, known.start.run, start.counter, start.run
            );
            self.event(Event::Identity { peer: node.peer, what });
        }
    }

    /// What is due with starts.
    pub(crate) fn tick_starts(&mut self) {
        let (now, patience) = (self.now.time, self.gone_after());
        let last = self.starts.refusals.values().map(|refusal| refusal.at).max();
        if self.starts.barred.is_none() && last.is_none_or(|last| now.since(last) > patience * 2) {
            self.starts.note = None;
            self.starts.refusals.clear();
        }
        self.tick_barred();
        if now.since(self.starts.swept) >= patience {
            self.starts.swept = now;
            self.forget_starts();
        }
    }

    /// Forgets who is gone, within bounds: the longest silent first.
    fn forget_starts(&mut self) {
        let here: BTreeSet<NodeId> = self.hosts.living().flat_map(|group| group.state().audience()).collect();
        let mut written = Vec::new();
        let mut strangers = Vec::new();
        for (node, known) in self.starts.known.iter().filter(|(node, _)| !here.contains(node)) {
            match known.written {
                Written::Yes => written.push((known.heard, *node)),
                Written::No => strangers.push((known.heard, *node)),
                Written::Soon(_) => {}
            }
        }
        written.sort_unstable();
        strangers.sort_unstable();
        let old = written.iter().take(written.len().saturating_sub(GONE_MAX));
        let changes: Vec<_> = old.clone().map(|(_, node)| self.space().forget_start(*node)).collect();
        let old: Vec<NodeId> = old.map(|(_, node)| *node).collect();
        if !changes.is_empty() {
            self.persist_own(changes);
        }
        let excess = strangers.len().saturating_sub(STRANGERS_MAX);
        for node in old.into_iter().chain(strangers.into_iter().take(excess).map(|(_, node)| node)) {
            self.starts.known.remove(&node);
        }
        let known = &self.starts.known;
        let is_known = |peer: &PeerKey| {
            let first = NodeId { peer: *peer, incarnation: Incarnation(0) };
            known.range(first..).next().is_some_and(|(node, _)| node.peer == *peer)
        };
        self.starts.runs.retain(|peer, _| is_known(peer));
        self.starts.accepted.retain(|peer, _| is_known(peer));
    }
}

/// Whether a peer may be told again now, and notes that it is.
fn may_tell(told: &mut BTreeMap<PeerKey, Time>, peer: PeerKey, now: Time, pause: Duration) -> bool {
    if told.get(&peer).is_some_and(|at| now.since(*at) < pause) {
        return false;
    }
    if told.len() >= STRANGERS_MAX {
        told.clear();
    }
    told.insert(peer, now);
    true
}

#[cfg(test)]
#[path = "starts_test.rs"]
mod tests;
