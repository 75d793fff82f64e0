//! Starts of processes: whoever's store went back in time, or runs twice, is found out before it counts.
//!
//! A *start* is a counter, which the store holds and each start of the process raises, and a number drawn at random. Each
//! frame carries its sender's. A node keeps the highest that it has heard of each member, and makes it durable before
//! anything counts that was said from that start. A higher one counts where it descends from the known one ([`crate::lineage`]). All
//! others are refused: that process has an older copy of the store, or the process that is known still runs. [`crate::judging`]
//! decides that, and [`crate::refused`] is what the refused process does.
//!
//! # Invariants
//! - A node sends nothing before its own counter is durable: no two starts from one store share a number that others heard.
//! - Nothing of a member counts before its start is durable here, and after that nothing of a lower one.
//! - What answers one peer names the start that it is for: a process never takes an answer to another for its own.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::config::Defect;
use group::rng::Rng;
use group::time::Time;
use overlay::{Epoch, Incarnation, KeyRange, NodeId, PeerKey};
use serde::{Deserialize, Serialize};

use crate::api::{Class, Event, Output};
use crate::config::Durability;
use crate::held::Waiting;
use crate::judging::{Verdict, contradiction};
use crate::lineage::Lineage;
use crate::node::Node;
use crate::wire::{self, Frame, Stamp};

/// Outputs that wait for the own start to be durable: so many.
const WITHHELD_MAX: usize = 1024;
/// Starts that are remembered of nodes that are in no group here.
pub(crate) const STRANGERS_MAX: usize = 1024;
/// A peer in no group with this node is forgotten after this silence: a large network has many, and each asks something now and then.
const STRANGERS_KEPT: Duration = Duration::from_secs(60);
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
pub(crate) enum Written {
    No,
    /// Once this batch is.
    Soon(u64),
    Yes,
}

/// A start that is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    pub(crate) start: Start,
    pub(crate) since: Time,
    pub(crate) heard: Time,
    is_told: bool,
}

/// What is known of one life of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) start: Start,
    /// [`Lineage::before`] of it, where that was told.
    pub(crate) before: Vec<u64>,
    pub(crate) written: Written,
    /// Another member told of it, and it was not heard here.
    pub(crate) is_hearsay: bool,
    /// When this start was last heard.
    pub(crate) heard: Option<Time>,
    pub(crate) rival: Option<Rival>,
    /// Which starts other members said that they hold, where there was a dispute.
    pub(crate) told: BTreeMap<PeerKey, (Start, Time)>,
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
    pub(crate) since: Time,
    pub(crate) asked: Time,
    /// Peers that are in no group with it refuse it.
    pub(crate) outlived: Option<Outlived>,
}

/// See [`Barred::outlived`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlived {
    /// The one that did last.
    pub(crate) peer: PeerKey,
    /// Since when any does, without a pause.
    pub(crate) since: Time,
    pub(crate) last: Time,
}

/// See the module.
pub(crate) struct Starts {
    /// This node's start, with the starts before it.
    pub(crate) lineage: Lineage,
    /// What peers told of starts that are not known.
    pub(crate) lineages: BTreeMap<NodeId, Lineage>,
    /// Its start is durable with this batch; `None` where it is, or nothing is.
    durable_with: Option<u64>,
    /// What is to be sent once it is.
    withheld: Vec<Output>,
    /// The process starts again once this batch is durable, for this reason.
    starts_again: Option<(u64, String)>,
    pub(crate) known: BTreeMap<NodeId, Known>,
    /// The first batch that is under way with some of these.
    writing: Option<u64>,
    /// From which run each peer was last heard, by this very process.
    runs: BTreeMap<PeerKey, u64>,
    pub(crate) waiting: Waiting,
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
    /// Since when members refuse this process because they know a later start; in the past where none does any more.
    pub(crate) disputed: Option<Time>,
    /// Which start that member knew.
    pub(crate) outranked_by: Option<Start>,
    /// When a member last said that the other process runs.
    pub(crate) other_runs: Option<Time>,
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
            durable_with: None,
            withheld: Vec::new(),
            starts_again: None,
            known: BTreeMap::new(),
            writing: None,
            runs: BTreeMap::new(),
            waiting: Waiting::default(),
            told: BTreeMap::new(),
            asked: BTreeMap::new(),
            refusals: BTreeMap::new(),
            accepted: BTreeMap::new(),
            barred: None,
            refused_at: Time(0),
            disputed: None,
            outranked_by: None,
            other_runs: None,
            noted: None,
            note: None,
            refused: 0,
            swept: Time(0),
        }
    }

    /// This is what the store holds of others.
    pub(crate) fn restore(&mut self, known: Vec<(NodeId, Lineage)>) {
        let known = known.into_iter().map(|(node, lineage)| (node, Known::new(lineage, Written::Yes)));
        self.known = known.collect();
    }

    /// It goes on with the life in the store, whose last start was this.
    pub(crate) fn resume(&mut self, last: Lineage) {
        self.lineage = last.next(self.own().run);
        self.durable_with = Some(0);
    }

    /// It goes on as another start, which is durable with this batch.
    pub(crate) fn go_on_as(&mut self, lineage: Lineage, token: u64) {
        self.lineage = lineage;
        self.durable_with = Some(token);
        self.refusals.clear();
        self.accepted.clear();
        (self.barred, self.note) = (None, None);
    }

    /// The process starts again, for this reason, once this batch is durable.
    pub(crate) fn start_again(&mut self, token: u64, why: String) {
        self.starts_again = Some((token, why));
    }

    pub(crate) fn is_to_start_again(&self) -> bool {
        self.starts_again.is_some()
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

impl Known {
    pub(crate) fn new(lineage: Lineage, written: Written) -> Known {
        let Lineage { start, before } = lineage;
        Known { start, before, written, is_hearsay: false, heard: None, rival: None, told: BTreeMap::new() }
    }

    pub(crate) fn lineage(&self) -> Lineage {
        Lineage { start: self.start, before: self.before.clone() }
    }

    /// Do as many members hold a start of another lineage as hold this one?
    pub(crate) fn is_contested(&self, fresh: impl Fn(Time) -> bool) -> bool {
        let others = self.told.values().filter(|(start, at)| *start != self.start && fresh(*at)).count();
        others > self.voices_for(self.start, fresh)
    }

    /// Do more members hold this start than the known one?
    pub(crate) fn is_outvoted_by(&self, start: Start, fresh: impl Fn(Time) -> bool) -> bool {
        self.voices_for(start, &fresh) > self.voices_for(self.start, fresh) + 1
    }

    /// How many other members hold this start.
    fn voices_for(&self, start: Start, fresh: impl Fn(Time) -> bool) -> usize {
        self.told.values().filter(|(told, at)| *told == start && fresh(*at)).count()
    }

    /// Another start than this one was heard, which does not count. True once it has been heard for so long.
    pub(crate) fn note_rival(&mut self, start: Start, now: Time, patience: Duration, lasting: Duration) -> bool {
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
        if self.starts.durable_with.is_none() {
            self.outputs.push_back(output);
        } else if self.starts.withheld.len() < WITHHELD_MAX {
            self.starts.withheld.push(output);
        }
    }

    /// All batches up to this one are durable, and with one of them, after a start, the counter.
    pub(crate) fn on_starts_persisted(&mut self, token: u64) {
        if self.starts.durable_with.is_some_and(|with| with <= token) {
            self.starts.durable_with = None;
            self.outputs.extend(core::mem::take(&mut self.starts.withheld));
        }
        if self.starts.starts_again.as_ref().is_some_and(|(with, _)| *with <= token)
            && let Some((_, why)) = self.starts.starts_again.take()
        {
            return self.end_life(Event::StartAgain(why));
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
        self.admit_held(|_| true);
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
        if let Verdict::Early = verdict {
            return None;
        }
        if let Verdict::Refused { incarnation, known, alive, contested } = verdict {
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

    /// Whether this node is in a group here.
    pub(crate) fn is_here(&self, node: NodeId) -> bool {
        self.hosts.living().any(|group| group.state().is_in_audience(node))
    }

    /// Tells a peer from which starts this one descends.
    pub(crate) fn tell_lineage(&mut self, to: PeerKey) {
        let frame = Frame::Lineage(self.starts.lineage.before.clone());
        self.post_for(to, 0, Class::Control, &frame);
    }

    /// Is this node in a group here, and its start still to be written? It is from then on.
    pub(crate) fn is_unwritten(&mut self, node: NodeId) -> bool {
        let Some(known) = self.starts.known.get(&node) else { return false };
        match known.written {
            Written::Yes => false,
            Written::Soon(_) => true,
            Written::No if self.config.durability == Durability::Memory => false,
            Written::No if !self.is_here(node) => false,
            Written::No => {
                let changes = alloc::vec![self.space().start_of(node, &known.lineage())];
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
    pub(crate) fn forget_starts(&mut self) {
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
        let is_silent = |heard: &Option<Time>| heard.is_none_or(|at| self.now.time.since(at) > STRANGERS_KEPT);
        let silent = strangers.iter().filter(|(heard, _)| is_silent(heard)).count();
        let excess = strangers.len().saturating_sub(STRANGERS_MAX).max(silent);
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
#[path = "starts_test/mod.rs"]
mod tests;
