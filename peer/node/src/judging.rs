//! Judgement: whether what a peer says from one of its starts counts here. See [`crate::starts`].

use alloc::format;
use alloc::string::String;
use core::ops::Bound;
use core::time::Duration;

use group::config::Defect;
use group::time::Time;
use overlay::{Incarnation, NodeId, PeerKey};

use crate::api::Event;
use crate::lineage::{Descent, Lineage, RUNS_MAX};
use crate::node::Node;
use crate::starts::{Contested, Known, STRANGERS_MAX, Start, Written};

/// What became of a frame's start.
pub(crate) enum Verdict {
    Counts,
    /// That depends on its lineage, which is not known yet: known is this start.
    Unknown(Start),
    /// It may be a later start, or one of an older copy: whether the known one still runs will show.
    Early,
    /// Known is this, in that life.
    Refused {
        incarnation: Incarnation,
        known: Start,
        /// [`crate::starts::Refused::alive`].
        alive: Option<bool>,
        contested: bool,
    },
}

/// What a member sees of two starts.
pub(crate) fn contradiction(refused: Start, known: Start) -> String {
    format!(
        "a process says that it is start {} (run {:x}) of this peer, and start {} (run {:x}) is known: its data directory \
         is an older copy, or the identity runs twice. Nothing of the former counts",
        refused.counter, refused.run, known.counter, known.run
    )
}

/// Whether `later` comes after `former`, which is silent or not.
fn follows(later: &Lineage, former: Start, is_silent: bool) -> bool {
    match later.descent_from(former) {
        Descent::Yes => true,
        Descent::Maybe => is_silent,
        Descent::No => false,
    }
}

/// To which run what asks for a lineage is addressed, where none is known: whatever is for another run is answered with it.
const ANY_OTHER_RUN: u64 = u64::MAX;

impl Node {
    /// Whether what is said from this start counts. A later one takes the place of what was known.
    pub(crate) fn judge(&mut self, node: NodeId, start: Start) -> Verdict {
        let (now, patience) = (self.now.time, self.gone_after());
        let later = (Bound::Excluded(node), Bound::Included(NodeId { incarnation: Incarnation(u64::MAX), ..node }));
        let later = self.starts.known.range(later).next_back();
        if let Some((later, known)) = later
            && known.heard.is_some_and(|heard| now.since(heard) <= patience)
        {
            return self.refuse(*later, start);
        }
        // As almost always, and this is asked for each frame.
        if self.starts.known.get(&node).is_some_and(|known| known.start == start) {
            return self.dispute(node).unwrap_or(Verdict::Counts);
        }
        let is_here = self.is_here(node);
        let told = self.starts.lineages.get(&node).filter(|told| told.start == start);
        // A member could not tell others from which starts it descends.
        let is_unclear = |before: &[u64]| is_here && start.counter > 1 && before.is_empty();
        let Some(known) = self.starts.known.get(&node) else {
            if is_unclear(told.map_or(&[], |told| &told.before)) && !self.config.defects.has(Defect::LineageIgnored) {
                return Verdict::Unknown(Start { counter: 0, run: ANY_OTHER_RUN });
            }
            return self.succeed(node, start);
        };
        let before = known.start;
        if start.counter > before.counter {
            // Where it is in no group here, nothing that counts was said from the known start, unless that was written down once.
            let takes = !is_here && known.written == Written::No || self.config.defects.has(Defect::LineageIgnored);
            match told.map(|told| told.descent_from(before)) {
                _ if takes => return self.succeed(node, start),
                Some(Descent::Yes) => return self.succeed(node, start),
                Some(Descent::Maybe) => match self.note_rival(node, start, Duration::MAX) {
                    Some(false) => return self.succeed(node, start),
                    None => return Verdict::Early,
                    Some(true) => {}
                },
                None | Some(Descent::No) if !is_here => return Verdict::Counts,
                None => return Verdict::Unknown(before),
                Some(Descent::No) => {}
            }
        }
        self.refuse(node, start)
    }

    /// The known start is heard. Where as many others hold another one, it does not count.
    fn dispute(&mut self, node: NodeId) -> Option<Verdict> {
        let (now, fresh) = (self.now.time, self.is_fresh());
        let known = self.starts.known.get_mut(&node)?;
        known.heard = Some(now);
        if core::mem::take(&mut known.is_hearsay) {
            let run = known.start.run;
            self.each_group(|group| group.on_new_run(node.peer, run));
        }
        let known = self.starts.known.get_mut(&node)?;
        if !known.is_contested(&fresh) {
            return None;
        }
        let (other, _) = known.told.values().find(|(told, at)| *told != known.start && fresh(*at)).copied()?;
        // Whether that one runs says who has heard it.
        let rival = known.rival.filter(|rival| rival.start == other);
        let alive = rival.and_then(|rival| self.is_alive(Some(rival.heard), rival.since));
        Some(Verdict::Refused { incarnation: node.incarnation, known: other, alive, contested: true })
    }

    /// A start that is not the known one of this life. Where more others hold it than the known one, which is silent, it counts.
    fn refuse(&mut self, of: NodeId, start: Start) -> Verdict {
        // What an earlier run said may still be under way for a while.
        let alive = self.note_rival(of, start, self.config.timing.heartbeat * 2);
        let fresh = self.is_fresh();
        let Some(known) = self.starts.known.get(&of) else { return Verdict::Counts };
        if alive == Some(false) && known.is_outvoted_by(start, &fresh) {
            return self.succeed(of, start);
        }
        let contested = known.is_contested(fresh);
        Verdict::Refused { incarnation: of.incarnation, known: known.start, alive, contested }
    }

    /// Another start than the known one was heard. People are told once it has been heard for `lasting`. Returns whether the known
    /// one runs; `None` where that is still to be seen, or for others to say.
    fn note_rival(&mut self, of: NodeId, start: Start, lasting: Duration) -> Option<bool> {
        let (now, patience, fresh) = (self.now.time, self.gone_after(), self.is_fresh());
        let known = self.starts.known.get_mut(&of)?;
        let is_news = known.note_rival(start, now, patience, lasting);
        let (heard, of_it) = (known.heard, known.start);
        let since = known.rival.map_or(now, |rival| rival.since);
        // Whoever tells of it refused the other one, too, and has said by then if it hears the known one. It may be hearsay there, too.
        let may_say = known.is_hearsay && now.since(since) <= patience * 2;
        let is_for_others = may_say && known.told.values().any(|(told, at)| *told == of_it && fresh(*at));
        if is_news {
            self.event(Event::Identity { peer: of.peer, what: contradiction(start, of_it) });
        }
        if is_for_others { None } else { self.is_alive(heard, since) }
    }

    /// What was said then by another member still stands.
    fn is_fresh(&self) -> impl Fn(Time) -> bool + use<> {
        let (now, patience) = (self.now.time, self.gone_after());
        move |at| now.since(at) <= patience * 2
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

    fn succeed(&mut self, node: NodeId, start: Start) -> Verdict {
        self.learn_start(node, start);
        Verdict::Counts
    }

    /// A start that was not known.
    fn learn_start(&mut self, node: NodeId, start: Start) {
        if self.starts.known.len() >= 4 * STRANGERS_MAX {
            self.forget_starts();
        }
        let heard = Some(self.now.time);
        let told = self.starts.lineages.remove(&node).filter(|told| told.start == start);
        let lineage = told.unwrap_or(Lineage { start, ..Lineage::default() });
        self.starts.known.insert(node, Known { heard, ..Known::new(lineage, Written::No) });
        self.each_group(|group| group.on_new_run(node.peer, start.run));
    }

    /// A node told from which starts its start descends. What it said and waits for that is judged again.
    pub(crate) fn on_lineage(&mut self, node: NodeId, lineage: Lineage) {
        if lineage.before.len() > RUNS_MAX {
            self.frames_dropped += 1;
            return;
        }
        if self.starts.known.get(&node).is_some_and(|known| known.start == lineage.start) {
            return self.complete_lineage(node, lineage);
        }
        if self.starts.lineages.len() >= STRANGERS_MAX {
            self.starts.lineages.clear();
        }
        self.starts.lineages.insert(node, lineage);
        self.admit_held(|from| from == node.peer);
    }

    /// The starts before a known one become known, where they were not. Whoever holds one of these has not heard of the known one
    /// yet, and disputes nothing.
    fn complete_lineage(&mut self, node: NodeId, lineage: Lineage) {
        let Some(known) = self.starts.known.get_mut(&node) else { return };
        if !known.before.is_empty() || lineage.before.is_empty() {
            return;
        }
        known.told.retain(|_, (told, _)| lineage.descent_from(*told) != Descent::Yes);
        known.before.clone_from(&lineage.before);
        if known.written != Written::No {
            let entry = self.space().start_of(node, &lineage);
            self.persist_own(alloc::vec![entry]);
        }
    }

    /// A member holds this start of another.
    pub(crate) fn on_contested(&mut self, from: PeerKey, contested: Contested) {
        let Contested { node, lineage } = contested;
        if !self.fellows(Some(node)).contains(&from) || lineage.before.len() > RUNS_MAX {
            self.frames_dropped += 1;
            return;
        }
        if lineage.before.is_empty() && lineage.start.counter > 1 {
            return; // The other one does not know where it comes from, so it shows nothing.
        }
        let (now, start, patience) = (self.now.time, lineage.start, self.gone_after());
        let hearsay = |lineage| Known { is_hearsay: true, ..Known::new(lineage, Written::No) };
        let known = self.starts.known.entry(node).or_insert_with(|| hearsay(lineage.clone()));
        if follows(&known.lineage(), start, true) {
            known.told.remove(&from);
            return; // It has not heard of the known one yet.
        }
        let is_silent = known.heard.is_none_or(|heard| now.since(heard) > patience);
        if follows(&lineage, known.start, is_silent) {
            *known = hearsay(lineage);
            known.told.insert(from, (start, now));
            // It was not heard from that start: nothing was said that this node could vouch for.
            self.is_unwritten(node);
            return;
        }
        let is_news = start != known.start && known.told.is_empty();
        known.told.insert(from, (start, now));
        let held = known.start;
        if held == start {
            self.complete_lineage(node, lineage);
        }
        if is_news {
            let what = format!(
                "start {} (run {:x}) is known here, and start {} (run {:x}) to another member: the identity runs twice, or an older \
                 copy of its data directory was started. As long as no more members know one of them than the other, neither counts",
                held.counter, held.run, start.counter, start.run
            );
            self.event(Event::Identity { peer: node.peer, what });
        }
    }
}
