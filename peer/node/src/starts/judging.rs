//! Judgement of starts: whether a message counts here, by the start that its sender speaks from. See [`crate::starts`].

use alloc::format;
use alloc::string::String;
use core::ops::Bound;
use core::time::Duration;

use group::config::Defect;
use overlay::time::Time;
use overlay::{Incarnation, NodeId, PeerKey};

use crate::api::Event;
use crate::context::Context;
use crate::starts::lineage::{Descent, Lineage, RUNS_MAX};
use crate::starts::{Contested, Known, STRANGERS_MAX, Start, Starts, Written};

/// Verdict on the start of a frame.
pub(crate) enum Verdict {
    Counts,
    /// The verdict depends on the start's lineage, which is not known yet. This is the known start.
    Unknown(Start),
    /// The start may be a later one, or one of an older copy: time will show whether the known one still runs.
    Early,
    /// Another start is known, in this incarnation.
    Refused {
        incarnation: Incarnation,
        known: Start,
        /// [`crate::starts::Refused::alive`].
        alive: Option<bool>,
        contested: bool,
    },
}

/// Describes two starts that a member sees of one peer.
pub(crate) fn contradiction(refused: Start, known: Start) -> String {
    format!(
        "a process claims to be start {} (run {:x}) of this peer, but start {} (run {:x}) is known: its data directory \
        is an older copy, or the identity runs twice. All messages of the former start are ignored",
        refused.counter, refused.run, known.counter, known.run
    )
}

/// Returns whether `later` follows `former`; `is_silent` tells whether `former` is silent.
fn follows(later: &Lineage, former: Start, is_silent: bool) -> bool {
    match later.descent_from(former) {
        Descent::Yes => true,
        Descent::Maybe => is_silent,
        Descent::No => false,
    }
}

/// Run that a question for a lineage is addressed to if no run is known: a frame for another run than the receiver's is answered with
/// the lineage.
const ANY_OTHER_RUN: u64 = u64::MAX;

impl Starts {
    /// Judges whether messages of this start count. A later start takes the place of the known one.
    pub(crate) fn judge(&mut self, cx: &mut Context<'_>, node: NodeId, start: Start) -> Verdict {
        let (now, patience) = (cx.now.time, cx.gone_after());
        let later = (Bound::Excluded(node), Bound::Included(NodeId { incarnation: Incarnation(u64::MAX), ..node }));
        let later = self.known.range(later).next_back();
        if let Some((later, known)) = later
            && known.heard.is_some_and(|heard| now.since(heard) <= patience)
        {
            return self.refuse(cx, *later, start);
        }
        // This is the case of almost every frame.
        if self.known.get(&node).is_some_and(|known| known.start == start) {
            return self.dispute(cx, node).unwrap_or(Verdict::Counts);
        }
        let is_here = cx.replicas.is_here(node);
        let told = self.lineages.get(&node).filter(|told| told.start == start);
        // Without it, this node could not tell the other members from which starts that one descends.
        let is_unclear = |before: &[u64]| is_here && start.counter > 1 && before.is_empty();
        let Some(known) = self.known.get(&node) else {
            if is_unclear(told.map_or(&[], |told| &told.before)) && !cx.config.defects.has(Defect::LineageIgnored) {
                return Verdict::Unknown(Start { counter: 0, run: ANY_OTHER_RUN });
            }
            return self.succeed(cx, node, start);
        };
        let before = known.start;
        if start.counter > before.counter {
            // If the node is in no group here, no message from the known start counted, unless that start was once stored.
            let takes = !is_here && known.written == Written::No || cx.config.defects.has(Defect::LineageIgnored);
            match told.map(|told| told.descent_from(before)) {
                _ if takes => return self.succeed(cx, node, start),
                Some(Descent::Yes) => return self.succeed(cx, node, start),
                Some(Descent::Maybe) => match self.note_rival(cx, node, start, Duration::MAX) {
                    Some(false) => return self.succeed(cx, node, start),
                    None => return Verdict::Early,
                    Some(true) => {}
                },
                None | Some(Descent::No) if !is_here => return Verdict::Counts,
                None => return Verdict::Unknown(before),
                Some(Descent::No) => {}
            }
        }
        self.refuse(cx, node, start)
    }

    /// Notes that the known start was heard. If as many members hold another start, it does not count.
    fn dispute(&mut self, cx: &mut Context<'_>, node: NodeId) -> Option<Verdict> {
        let (now, fresh) = (cx.now.time, is_fresh(cx));
        let known = self.known.get_mut(&node)?;
        known.heard = Some(now);
        if core::mem::take(&mut known.is_hearsay) {
            let run = known.start.run;
            cx.replicas.each(|group| group.on_new_run(node.peer, run));
        }
        let known = self.known.get_mut(&node)?;
        if !known.is_contested(&fresh) {
            return None;
        }
        let (other, _) = known.told.values().find(|(told, at)| *told != known.start && fresh(*at)).copied()?;
        // The members that heard the other start tell whether it runs.
        let rival = known.rival.filter(|rival| rival.start == other);
        let alive = rival.and_then(|rival| is_alive(cx, Some(rival.heard), rival.since));
        Some(Verdict::Refused { incarnation: node.incarnation, known: other, alive, contested: true })
    }

    /// Refuses a start that is not the known one of this incarnation. It counts if more other members hold it than the known one, and
    /// the known one is silent.
    fn refuse(&mut self, cx: &mut Context<'_>, of: NodeId, start: Start) -> Verdict {
        // Messages of an earlier run may still be under way for a while.
        let alive = self.note_rival(cx, of, start, cx.config.timing.heartbeat * 2);
        let fresh = is_fresh(cx);
        let Some(known) = self.known.get(&of) else { return Verdict::Counts };
        if alive == Some(false) && known.is_outvoted_by(start, &fresh) {
            return self.succeed(cx, of, start);
        }
        let contested = known.is_contested(fresh);
        Verdict::Refused { incarnation: of.incarnation, known: known.start, alive, contested }
    }

    /// Notes that a start other than the known one was heard. The operator is told once it has been heard for `lasting`. Returns
    /// whether the known start runs; `None` if that is still open, or for other members to say.
    fn note_rival(&mut self, cx: &mut Context<'_>, of: NodeId, start: Start, lasting: Duration) -> Option<bool> {
        let (now, patience, fresh) = (cx.now.time, cx.gone_after(), is_fresh(cx));
        let known = self.known.get_mut(&of)?;
        let is_news = known.note_rival(start, now, patience, lasting);
        let (heard, of_it) = (known.heard, known.start);
        let since = known.rival.map_or(now, |rival| rival.since);
        // A member that reports the known start refused the other one, too, and by then has said whether it hears the known one. That
        // member may also have it by hearsay.
        let may_say = known.is_hearsay && now.since(since) <= patience * 2;
        let is_for_others = may_say && known.told.values().any(|(told, at)| *told == of_it && fresh(*at));
        if is_news {
            cx.event(Event::Identity { peer: of.peer, what: contradiction(start, of_it) });
        }
        if is_for_others { None } else { is_alive(cx, heard, since) }
    }

    fn succeed(&mut self, cx: &mut Context<'_>, node: NodeId, start: Start) -> Verdict {
        self.learn_start(cx, node, start);
        Verdict::Counts
    }

    /// Notes a start that was not known.
    fn learn_start(&mut self, cx: &mut Context<'_>, node: NodeId, start: Start) {
        if self.known.len() >= 4 * STRANGERS_MAX {
            self.forget_starts(cx);
        }
        let heard = Some(cx.now.time);
        let told = self.lineages.remove(&node).filter(|told| told.start == start);
        let lineage = told.unwrap_or(Lineage { start, ..Lineage::default() });
        self.known.insert(node, Known { heard, ..Known::new(lineage, Written::No) });
        cx.replicas.each(|group| group.on_new_run(node.peer, start.run));
    }

    /// Handles a node's report of the starts that its start descends from. Returns whether its frames that wait for the lineage are to be
    /// judged again.
    pub(crate) fn on_lineage(&mut self, cx: &mut Context<'_>, node: NodeId, lineage: Lineage) -> bool {
        if lineage.before.len() > RUNS_MAX {
            cx.drop_frame();
            return false;
        }
        if self.known.get(&node).is_some_and(|known| known.start == lineage.start) {
            self.complete_lineage(cx, node, lineage);
            return false;
        }
        if self.lineages.len() >= STRANGERS_MAX {
            self.lineages.clear();
        }
        self.lineages.insert(node, lineage);
        true
    }

    /// Notes the starts before a known one, if they were unknown. A member that holds one of these has not heard of the known one yet,
    /// and disputes nothing.
    fn complete_lineage(&mut self, cx: &mut Context<'_>, node: NodeId, lineage: Lineage) {
        let Some(known) = self.known.get_mut(&node) else { return };
        if !known.before.is_empty() || lineage.before.is_empty() {
            return;
        }
        known.told.retain(|_, (told, _)| lineage.descent_from(*told) != Descent::Yes);
        known.before.clone_from(&lineage.before);
        if known.written != Written::No {
            let entry = cx.space().start_of(node, &lineage);
            cx.persist_own(alloc::vec![entry]);
        }
    }

    /// Handles a member's report that it holds this start of another node.
    pub(crate) fn on_contested(&mut self, cx: &mut Context<'_>, from: PeerKey, contested: Contested) {
        let Contested { node, lineage } = contested;
        if !cx.replicas.fellows(cx.me, Some(node)).contains(&from) || lineage.before.len() > RUNS_MAX {
            cx.drop_frame();
            return;
        }
        if lineage.before.is_empty() && lineage.start.counter > 1 {
            return; // The sender does not know the lineage of that start, so the report proves nothing.
        }
        let (now, start, patience) = (cx.now.time, lineage.start, cx.gone_after());
        let hearsay = |lineage| Known { is_hearsay: true, ..Known::new(lineage, Written::No) };
        let known = self.known.entry(node).or_insert_with(|| hearsay(lineage.clone()));
        if follows(&known.lineage(), start, true) {
            known.told.remove(&from);
            return; // The sender has not heard of the known start yet.
        }
        let is_silent = known.heard.is_none_or(|heard| now.since(heard) > patience);
        if follows(&lineage, known.start, is_silent) {
            *known = hearsay(lineage);
            known.told.insert(from, (start, now));
            // The node was not heard from that start: there is no message that this node could vouch for.
            self.is_unwritten(cx, node);
            return;
        }
        let is_news = start != known.start && known.told.is_empty();
        known.told.insert(from, (start, now));
        let held = known.start;
        if held == start {
            self.complete_lineage(cx, node, lineage);
        }
        if is_news {
            let what = format!(
                "start {} (run {:x}) is known here, and start {} (run {:x}) to another member: the identity runs \
                 twice, or an older copy of its data directory was started. Until more members know one of them than \
                 the other, neither start is accepted",
                held.counter, held.run, start.counter, start.run
            );
            cx.event(Event::Identity { peer: node.peer, what });
        }
    }
}

/// Returns the test whether a report of another member still stands.
fn is_fresh(cx: &Context<'_>) -> impl Fn(Time) -> bool + use<> {
    let (now, patience) = (cx.now.time, cx.gone_after());
    move |at| now.since(at) <= patience * 2
}

/// Returns whether a start that was last heard at `heard` is alive, where its rival was first heard at `since`. Messages that were
/// under way for a while prove nothing.
fn is_alive(cx: &Context<'_>, heard: Option<Time>, since: Time) -> Option<bool> {
    let (now, late) = (cx.now.time, since + cx.config.timing.heartbeat * 2);
    let last = heard.unwrap_or(since).max(since);
    match heard {
        _ if now.since(last) > cx.gone_after() => Some(false),
        Some(heard) if heard >= late => Some(true),
        _ => None,
    }
}
