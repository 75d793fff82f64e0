//! Starts of processes: a store that went back in time, or that two processes run from, is detected before its messages count.
//!
//! A *start* is a counter, which the store holds and each start of the process raises, and a number drawn at random. Each frame
//! carries its sender's start. A node keeps the highest start that it has heard of each member, and makes it durable before any
//! message from that start counts. A higher one counts if it descends from the known one ([`crate::starts::lineage`]). All other starts are
//! refused: that process has an older copy of the store, or the known process still runs. [`crate::starts::judging`] decides that, and
//! [`crate::starts::refused`] is the part of the refused process.
//!
//! # Invariants
//! - A node sends nothing before its own counter is durable ([`crate::outbox`]).
//! - No message of a member counts before its start is durable here; after that, none of a lower start counts.
//! - An answer to a peer names the start that it is for: a process never takes an answer to another process for its own.

pub(crate) mod held;
pub(crate) mod judging;
pub(crate) mod lineage;
pub(crate) mod refused;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use group::config::Defect;
use overlay::rng::Rng;
use overlay::time::Time;
use overlay::{Epoch, Incarnation, KeyRange, NodeId, PeerKey};
use serde::{Deserialize, Serialize};

use crate::api::{Class, Event, Output};
use crate::config::Durability;
use crate::context::Context;
use crate::outbox::Outbox;
use crate::replicas::BatchOwner;
use crate::starts::held::Waiting;
use crate::starts::judging::{Verdict, contradiction};
use crate::starts::lineage::Lineage;
use crate::starts::refused::Users;
use crate::wire::{Frame, Stamp};

/// Upper limit of remembered starts of nodes that are in no group here.
pub(crate) const STRANGERS_MAX: usize = 1024;
/// Silence after which a peer in no group with this node is forgotten: a large network has many such peers, and each asks a question
/// now and then.
const STRANGERS_KEPT: Duration = Duration::from_secs(60);
/// Upper limit of stored starts of nodes that were in a group here and are no longer.
const GONE_MAX: usize = 64;

/// Time for which a contradiction is shown after it was last seen.
const NOTICED_FOR: Duration = Duration::from_secs(60);

/// One start of a peer's process, in one incarnation of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Start {
    /// Number of starts from this store, including this one.
    pub counter: u64,
    /// Number drawn at random; never 0.
    pub run: u64,
}

/// Work that becomes due once batches are durable.
#[derive(Debug)]
pub(crate) enum Persisted {
    Nothing,
    /// The process starts again, for this reason.
    StartsAgain(String),
    /// The held frames are judged again.
    JudgeHeld,
}

/// First look at the start of a frame's sender.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The frame counts.
    Counts(Frame),
    /// The frame, or this one in its place, is to be judged by its start.
    Judge(Frame),
    /// The held frames of the sender are to be judged first, then this one.
    AfterHeld(Frame),
    /// The frame never counts.
    Never,
    /// This event ends the incarnation.
    Ends(Event),
}

/// Refusal of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The node that is refused.
    pub node: NodeId,
    /// The refused start.
    pub start: Start,
    /// Incarnation of the peer that the known start belongs to.
    pub incarnation: Incarnation,
    /// The known start, which counts instead.
    pub known: Start,
    /// Whether the known start has been heard since the refused one was; `None` where that is still open.
    pub alive: Option<bool>,
    /// Whether the known start is refused as well: members know different starts.
    pub contested: bool,
    /// Ranges and epochs of the sender's groups that the node is in. A node that has gone back in time may know none of their
    /// members.
    pub groups: Vec<(KeyRange, Epoch)>,
}

/// Start of a member that the sender holds, where it refused another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    /// The member.
    pub node: NodeId,
    /// The start that the sender holds, with the starts before it as far as it knows them.
    pub lineage: Lineage,
}

/// Whether a start is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    No,
    /// It is once this batch is durable.
    Soon(u64),
    Yes,
}

/// A refused start of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    pub(crate) start: Start,
    pub(crate) since: Time,
    pub(crate) heard: Time,
    is_told: bool,
}

/// Knowledge about one incarnation of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) start: Start,
    /// [`Lineage::before`] of the start, if it was reported.
    pub(crate) before: Vec<u64>,
    pub(crate) written: Written,
    /// Whether the start is known from another member's report alone, and was not heard here.
    pub(crate) is_hearsay: bool,
    /// Time at which this start was last heard.
    pub(crate) heard: Option<Time>,
    pub(crate) rival: Option<Rival>,
    /// Starts that other members reported to hold, in a dispute.
    pub(crate) told: BTreeMap<PeerKey, (Start, Time)>,
}

/// Refusal of this node by another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) at: Time,
    pub(crate) alive: Option<bool>,
    pub(crate) contested: bool,
}

/// State of a node that is barred: it takes part in nothing as long as other nodes refuse it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barred {
    /// Whether the node does not go on without a verdict, since its data may be old.
    pub(crate) is_doubtful: bool,
    pub(crate) since: Time,
    pub(crate) asked: Time,
    /// Refusals by peers that are in no group with this node.
    pub(crate) outlived: Option<Outlived>,
}

/// See [`Barred::outlived`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlived {
    /// Peer that refused last.
    pub(crate) peer: PeerKey,
    /// Time since which such peers have refused without a pause.
    pub(crate) since: Time,
    pub(crate) last: Time,
}

/// Starts that a node knows, and the state of its own; see the module.
pub(crate) struct Starts {
    /// This node's start, with the starts before it.
    pub(crate) lineage: Lineage,
    /// Starts that peers reported and that are not known yet.
    pub(crate) lineages: BTreeMap<NodeId, Lineage>,
    /// Batch after which the process starts again, and the reason.
    starts_again: Option<(u64, String)>,
    pub(crate) known: BTreeMap<NodeId, Known>,
    /// First batch under way that stores some of `known`.
    writing: Option<u64>,
    pub(crate) waiting: Waiting,
    /// Time at which each peer was last told that its own start, or the start that it addresses, does not count.
    told: BTreeMap<PeerKey, Time>,
    /// Time at which each peer was last asked for its lineage.
    asked: BTreeMap<PeerKey, Time>,
    /// Peers that refuse this node, where its counter is not lower than that of the start they know.
    pub(crate) refusals: BTreeMap<PeerKey, Refusal>,
    /// Time at which each peer last addressed this very process.
    pub(crate) accepted: BTreeMap<PeerKey, Time>,
    pub(crate) barred: Option<Barred>,
    /// Time at which this node was last refused.
    pub(crate) refused_at: Time,
    /// Time since which members refuse this process because they know a later start; in the past if none does any more.
    pub(crate) disputed: Option<Time>,
    /// The start that such a member knew last.
    pub(crate) outranked_by: Option<Start>,
    /// Time at which a member last reported that the other process runs.
    pub(crate) other_runs: Option<Time>,
    pub(crate) noted: Option<(String, Time)>,
    /// Notice for the operator.
    pub(crate) note: Option<String>,
    refused: u64,
    swept: Time,
}

impl Starts {
    /// Creates the starts of a process that begins now.
    pub(crate) fn new(seed: u64) -> Starts {
        let run = Rng::new(seed.rotate_left(32) ^ 0x5374_6172_7473).draw().max(1);
        Starts {
            lineage: Lineage::default().next(run),
            lineages: BTreeMap::new(),
            starts_again: None,
            known: BTreeMap::new(),
            writing: None,
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

    /// Takes the stored starts of other nodes.
    pub(crate) fn restore(&mut self, known: Vec<(NodeId, Lineage)>) {
        let known = known.into_iter().map(|(node, lineage)| (node, Known::new(lineage, Written::Yes)));
        self.known = known.collect();
    }

    /// Goes on with the stored incarnation, whose last start was `last`.
    pub(crate) fn resume(&mut self, last: Lineage, out: &mut Outbox) {
        self.lineage = last.next(self.own().run);
        out.speak_as(self.own(), 0);
    }

    /// Goes on as another start, which is durable with this batch.
    pub(crate) fn go_on_as(&mut self, lineage: Lineage, token: u64, out: &mut Outbox) {
        self.lineage = lineage;
        out.speak_as(self.own(), token);
        self.refusals.clear();
        self.accepted.clear();
        (self.barred, self.note) = (None, None);
    }

    /// Has the process start again, for this reason, once this batch is durable.
    pub(crate) fn begin_again(&mut self, token: u64, why: String) {
        self.starts_again = Some((token, why));
    }

    pub(crate) fn is_to_start_again(&self) -> bool {
        self.starts_again.is_some()
    }

    /// Returns the start of this process.
    pub(crate) fn own(&self) -> Start {
        self.lineage.start
    }

    /// Returns the number of refused frames.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the peers whose processes contradict each other, with a description, as this peer, `me`, saw them recently.
    pub(crate) fn notices(&self, me: PeerKey, now: Time) -> Vec<(PeerKey, String)> {
        let own = self.note.iter().map(|note| (me, note.clone()));
        let seen = |(node, known): (&NodeId, &Known)| {
            let rival = known.rival.filter(|rival| rival.is_told && now.since(rival.heard) <= NOTICED_FOR)?;
            Some((node.peer, contradiction(rival.start, known.start)))
        };
        own.chain(self.known.iter().filter_map(seen)).collect()
    }

    /// Returns whether this node is barred.
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

    /// Returns whether as many members hold a start of another lineage as hold this one, this node included.
    pub(crate) fn is_contested(&self, fresh: impl Fn(Time) -> bool) -> bool {
        let others = self.told.values().filter(|(start, at)| *start != self.start && fresh(*at)).count();
        others > self.voices_for(self.start, fresh)
    }

    /// Returns whether more members hold this start than the known one.
    pub(crate) fn is_outvoted_by(&self, start: Start, fresh: impl Fn(Time) -> bool) -> bool {
        self.voices_for(start, &fresh) > self.voices_for(self.start, fresh) + 1
    }

    /// Returns the number of other members that hold this start.
    fn voices_for(&self, start: Start, fresh: impl Fn(Time) -> bool) -> usize {
        self.told.values().filter(|(told, at)| *told == start && fresh(*at)).count()
    }

    /// Notes that a start was heard that does not count. Returns true, once, when it has been heard for `lasting`.
    pub(crate) fn note_rival(&mut self, start: Start, now: Time, patience: Duration, lasting: Duration) -> bool {
        match &mut self.rival {
            Some(rival) if rival.start == start && now.since(rival.heard) <= patience * 2 => rival.heard = now,
            rival => *rival = Some(Rival { start, since: now, heard: now, is_told: false }),
        }
        let rival = self.rival.as_mut().filter(|rival| rival.heard.since(rival.since) >= lasting);
        rival.is_some_and(|rival| !core::mem::replace(&mut rival.is_told, true))
    }
}

impl Starts {
    /// Handles the report that all batches up to this one are durable. After a start, one of them holds the counter.
    /// Returns what it makes due.
    pub(crate) fn on_persisted(&mut self, cx: &mut Context<'_>, token: u64) -> Persisted {
        cx.out.on_persisted(token);
        if self.starts_again.as_ref().is_some_and(|(with, _)| *with <= token)
            && let Some((_, why)) = self.starts_again.take()
        {
            return Persisted::StartsAgain(why);
        }
        if self.writing.is_none_or(|first| first > token) {
            return Persisted::Nothing;
        }
        self.writing = None;
        for known in self.known.values_mut() {
            match known.written {
                Written::Soon(last) if last <= token => known.written = Written::Yes,
                Written::Soon(later) => self.writing = Some(self.writing.unwrap_or(later).min(later)),
                Written::No | Written::Yes => {}
            }
        }
        Persisted::JudgeHeld
    }

    /// Handles the start of a frame's sender.
    pub(crate) fn admit(
        &mut self,
        cx: &mut Context<'_>,
        users: &mut Users<'_>,
        from: PeerKey,
        stamp: Stamp,
        frame: Frame,
    ) -> Admission {
        if cx.config.defects.has(Defect::StartsIgnored) {
            return Admission::Counts(frame);
        }
        let own = self.own().run;
        if stamp.to != 0 && stamp.to != own {
            // The frame is for another process of this peer, in most cases for an earlier one.
            if self.may_tell_start(cx, from) {
                self.tell_lineage(cx, from);
            }
            return Admission::Never;
        }
        if from == cx.me.peer {
            // The frame is of another process of this peer: a node that hears both decides which of them counts.
            return if stamp.start == self.own() { Admission::Counts(frame) } else { Admission::Never };
        }
        match frame {
            Frame::Refused(refused) => {
                self.on_refused(cx, users, from, &refused).map_or(Admission::Never, Admission::Ends)
            }
            Frame::Lineage(before) => {
                let node = NodeId { peer: from, incarnation: stamp.incarnation };
                match self.on_lineage(cx, node, Lineage { start: stamp.start, before }) {
                    true => Admission::AfterHeld(Frame::Started),
                    false => Admission::Judge(Frame::Started),
                }
            }
            frame => Admission::Judge(frame),
        }
    }

    /// Judges a frame by the start of its sender. Returns the frame if the start counts; else the frame waits, or its sender is told the
    /// reason.
    pub(crate) fn admit_judged(
        &mut self,
        cx: &mut Context<'_>,
        from: PeerKey,
        stamp: Stamp,
        frame: Frame,
        bytes: usize,
    ) -> Option<Frame> {
        let (own, node) = (self.own().run, NodeId { peer: from, incarnation: stamp.incarnation });
        let verdict = self.judge(cx, node, stamp.start);
        if let Verdict::Unknown(known) = verdict {
            self.hold(cx, from, stamp, frame, bytes);
            let (now, pause) = (cx.now.time, pause(cx));
            if may_tell(&mut self.asked, from, now, pause) {
                // A frame for an earlier start is answered with the lineage.
                cx.post_for(from, known.run, Class::Control, &Frame::Started);
            }
            return None;
        }
        if let Verdict::Early = verdict {
            return None;
        }
        if let Verdict::Refused { incarnation, known, alive, contested } = verdict {
            self.refused += 1;
            if self.may_tell_start(cx, from) {
                let groups = cx.replicas.groups_with(node);
                let refused = Refused { node, start: stamp.start, incarnation, known, alive, contested, groups };
                cx.post_for(from, stamp.start.run, Class::Control, &Frame::Refused(Box::new(refused)));
                self.tell_fellows(cx, node);
            }
            return None;
        }
        cx.out.runs.insert(from, stamp.start.run);
        if stamp.to == own {
            self.accepted.insert(from, cx.now.time);
            self.refusals.remove(&from);
        }
        if self.is_unwritten(cx, node) {
            self.hold(cx, from, stamp, frame, bytes);
            return None;
        }
        Some(frame)
    }

    /// Tells a peer the starts from which this one descends.
    pub(crate) fn tell_lineage(&mut self, cx: &mut Context<'_>, to: PeerKey) {
        let frame = Frame::Lineage(self.lineage.before.clone());
        cx.post_for(to, 0, Class::Control, &frame);
    }

    /// Returns whether this node is in a group here and its start is not stored yet. If so, storing it begins.
    pub(crate) fn is_unwritten(&mut self, cx: &mut Context<'_>, node: NodeId) -> bool {
        let Some(known) = self.known.get(&node) else { return false };
        match known.written {
            Written::Yes => false,
            Written::Soon(_) => true,
            Written::No if cx.config.durability == Durability::Memory => false,
            Written::No if !cx.replicas.is_here(node) => false,
            Written::No => {
                let changes = alloc::vec![cx.space().start_of(node, &known.lineage())];
                let token = cx.replicas.name_batch(BatchOwner::Node(0));
                cx.out.push(Output::Persist { token, changes });
                self.writing.get_or_insert(token);
                if let Some(known) = self.known.get_mut(&node) {
                    known.written = Written::Soon(token);
                }
                true
            }
        }
    }

    /// Returns whether a peer may be told again: not for each of its frames.
    fn may_tell_start(&mut self, cx: &mut Context<'_>, peer: PeerKey) -> bool {
        let (now, pause) = (cx.now.time, pause(cx));
        may_tell(&mut self.told, peer, now, pause)
    }

    /// Tells the other members the start that this node holds of a node of which it refused another start.
    fn tell_fellows(&mut self, cx: &mut Context<'_>, node: NodeId) {
        let Some(lineage) = self.known.get(&node).map(Known::lineage) else { return };
        let fellows: Vec<PeerKey> = cx.replicas.fellows(cx.me, Some(node)).into_iter().collect();
        cx.post_all(&fellows, Class::Control, &Frame::Contested(Box::new(Contested { node, lineage })));
    }

    /// Forgets from time to time nodes that are gone.
    pub(crate) fn sweep(&mut self, cx: &mut Context<'_>) {
        if cx.now.time.since(self.swept) >= cx.gone_after() {
            self.swept = cx.now.time;
            self.forget_starts(cx);
        }
    }

    /// Forgets nodes that are gone, within bounds: the longest silent first.
    pub(crate) fn forget_starts(&mut self, cx: &mut Context<'_>) {
        let here: BTreeSet<NodeId> = cx.replicas.living().flat_map(|group| group.state().audience()).collect();
        let mut written = Vec::new();
        let mut strangers = Vec::new();
        for (node, known) in self.known.iter().filter(|(node, _)| !here.contains(node)) {
            match known.written {
                Written::Yes => written.push((known.heard, *node)),
                Written::No => strangers.push((known.heard, *node)),
                Written::Soon(_) => {}
            }
        }
        written.sort_unstable();
        strangers.sort_unstable();
        let old = written.iter().take(written.len().saturating_sub(GONE_MAX));
        let changes: Vec<_> = old.clone().map(|(_, node)| cx.space().forget_start(*node)).collect();
        let old: Vec<NodeId> = old.map(|(_, node)| *node).collect();
        if !changes.is_empty() {
            cx.persist_own(changes);
        }
        let is_silent = |heard: &Option<Time>| heard.is_none_or(|at| cx.now.time.since(at) > STRANGERS_KEPT);
        let silent = strangers.iter().filter(|(heard, _)| is_silent(heard)).count();
        let excess = strangers.len().saturating_sub(STRANGERS_MAX).max(silent);
        for node in old.into_iter().chain(strangers.into_iter().take(excess).map(|(_, node)| node)) {
            self.known.remove(&node);
        }
        let known = &self.known;
        let is_known = |peer: &PeerKey| {
            let first = NodeId { peer: *peer, incarnation: Incarnation(0) };
            known.range(first..).next().is_some_and(|(node, _)| node.peer == *peer)
        };
        cx.out.runs.retain(|peer, _| is_known(peer));
        self.accepted.retain(|peer, _| is_known(peer));
    }
}

/// Returns the shortest time between two such frames to a peer.
fn pause(cx: &Context<'_>) -> Duration {
    cx.config.timing.heartbeat * 2 / 5
}

/// Returns whether a peer may be told again now; if so, notes that it is.
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
