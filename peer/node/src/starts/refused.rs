//! A process with a refused start: it runs from an older copy of a directory, or is one of two processes with one identity.
//!
//! As long as it does not know which of the two it is, the node is *barred*: it votes for nothing and serves nothing, and asks its fellow
//! members again. [`crate::starts`] tells which starts are refused.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::control::state::GroupState;
use overlay::time::Time;
use overlay::{Epoch, Incarnation, KeyRange, PeerKey};

use crate::admin::AdminRequests;
use crate::api::{Change, Class, Event, Output};
use crate::config::NodeConfig;
use crate::context::Context;
use crate::replicas::{BatchOwner, LocalReplica};
use crate::routing::ring_walk::RingWalks;
use crate::starts::lineage::Lineage;
use crate::starts::{Barred, Outlived, Refusal, Refused, Start, Starts};
use crate::wire::Frame;

/// Open questions of users, which a barred node answers at once.
pub(crate) struct Users<'a> {
    pub(crate) walks: &'a mut RingWalks,
    pub(crate) requests: &'a mut AdminRequests,
}

impl Users<'_> {
    fn end_all(&mut self, cx: &mut Context<'_>) {
        self.walks.end_all(cx);
        self.requests.end_all(cx);
    }
}

impl Refused {
    /// Returns whether the known start is later than this one, or belongs to a later incarnation.
    fn is_later_than(&self, incarnation: Incarnation, own: Start) -> bool {
        self.incarnation > incarnation || self.known.counter > own.counter
    }
}

impl Starts {
    /// Handles a refusal: the sender knows another start of this peer than this process. Returns the event that ends this incarnation, if
    /// it does.
    pub(crate) fn on_refused(
        &mut self,
        cx: &mut Context<'_>,
        users: &mut Users<'_>,
        from: PeerKey,
        refused: &Refused,
    ) -> Option<Event> {
        let (own, now) = (self.own(), cx.now.time);
        if refused.node != cx.me || refused.start != own || refused.known == own {
            return None;
        }
        let Refused { known, alive, contested, .. } = *refused;
        let is_later = refused.is_later_than(cx.me.incarnation, own);
        let names = contradicted(cx, own, refused);
        if !cx.replicas.fellows(cx.me, None).contains(&from) {
            if is_outlived_by(cx, &refused.groups) {
                return self.on_outlived(cx, users, from, alive, &names);
            }
            return None; // A peer in no group with this node cannot have counted a message of it.
        }
        if is_later && (self.disputed.is_none() || now.since(self.refused_at) > cx.gone_after()) {
            self.disputed = Some(now);
        }
        self.refused_at = now;
        self.outranked_by = Some(known);
        // The later start counts, unless members hold different starts: then they are weighed. This process may be the first to see that.
        let is_accepted_beside = || {
            cx.replicas.fellows(cx.me, None).iter().any(|peer| *peer != from && self.counted_at(cx, *peer).is_some())
        };
        let is_weighed = contested || !is_later || is_accepted_beside();
        if is_weighed {
            self.refusals.insert(from, Refusal { at: now, alive, contested });
        }
        if alive == Some(true) {
            self.other_runs = Some(now);
        }
        self.heed_refusal(cx, users, refused, is_weighed, &names)
    }

    /// Decides what a refusal of a member means for this process. Returns the event that ends this incarnation, if it does.
    fn heed_refusal(
        &mut self,
        cx: &mut Context<'_>,
        users: &mut Users<'_>,
        refused: &Refused,
        is_weighed: bool,
        names: &str,
    ) -> Option<Event> {
        let Refused { known, alive, .. } = *refused;
        let (now, is_later) = (cx.now.time, refused.is_later_than(cx.me.incarnation, self.own()));
        let weight = self.weigh_refusals(cx);
        // Over a later start only a majority wins: otherwise the other members and the other process could decide without this one.
        let weight = match weight {
            Weight::Won if is_later && !self.is_accepted_by_majorities(cx) => Weight::Open,
            weight => weight,
        };
        let is_outweighed = is_weighed && weight == Weight::Won;
        // A member that does not hear the other process may be cut off from it.
        let is_heard = self.other_runs.is_some_and(|at| now.since(at) <= cx.gone_after());
        // A member that knows the other start only by hearsay, from a node that is in no group with this process, never learns whether
        // that one runs.
        let is_open_for_long = || refused.incarnation == cx.me.incarnation && doubts_all(cx) && self.is_long_barred(cx);
        let is_silent = alive.map_or_else(is_open_for_long, |alive| !alive);
        let what = match (alive, is_later) {
            _ if is_silent && !is_outweighed && !is_heard => {
                let is_known = refused.incarnation == cx.me.incarnation;
                if !is_known || !(self.go_on_after_loss(cx, known) || self.start_again(cx, users, names)) {
                    return Some(went_back(names));
                }
                return None;
            }
            (Some(true), true) if !is_weighed => return Some(usurped(names)),
            (None | Some(false), true) if !is_outweighed => {
                self.bar(cx, users, true);
                format!("{}; this peer waits some seconds to see whether that start still runs", names)
            }
            _ => match weight {
                Weight::Lost => return Some(usurped(names)),
                Weight::Open => {
                    let is_doubtful = cx.replicas.living().any(Group::is_recovering);
                    self.bar(cx, users, is_doubtful);
                    format!(
                        "{}: the same identity runs twice, or this directory is an older copy. Until the members agree \
                        on one start, none is accepted: if two processes run, stop one of them",
                        names
                    )
                }
                Weight::Won => {
                    format!("{}: the same identity runs twice, and more members know this start", names)
                }
            },
        };
        self.note_start(cx, what);
        None
    }

    /// Returns whether it has been barred for longer than other members take to report whether the start that they know runs.
    fn is_long_barred(&self, cx: &Context<'_>) -> bool {
        let patience = cx.gone_after() * 4;
        self.barred.is_some_and(|barred| cx.now.time.since(barred.since) >= patience)
    }

    /// Goes on although a member knows a start of which this store has no entry. Where the whole store is in doubt, the entry was lost
    /// with the end of the journal, or the store is an older copy, and the doubt covers both: the process goes on as a later start of the
    /// same incarnation. Returns `false`, and changes nothing, if the store is not wholly in doubt.
    fn go_on_after_loss(&mut self, cx: &mut Context<'_>, known: Start) -> bool {
        if !doubts_all(cx) {
            return false;
        }
        let Some(lineage) = self.lineage_after_loss(cx, known) else { return false };
        let space = cx.space();
        let living = cx.replicas.all.iter_mut().filter(|replica| replica.over.is_none());
        let doubt = |replica: &mut LocalReplica| {
            Some(space.namespace(replica.namespace).doubt(&replica.group.on_store_older()?))
        };
        let doubts = living.filter_map(doubt).collect();
        let token = persist_start(cx, &lineage, doubts);
        cx.event(Event::Note(format!(
            "the store lost the entry of start {} (run {:x}), which another member knows: this process continues as \
            start {}",
            known.counter, known.run, lineage.start.counter
        )));
        self.go_on_as(lineage, token, cx.out);
        true
    }

    /// Has the process start again in doubt. A member knows a start of which this store has no entry, and the end of the journal was lost;
    /// but the rest was compared with the knowledge of the other members. Either that start was lost with the end, and no other member
    /// knew it then, or it is the start of a copy of the directory. In both cases the process must doubt all acknowledgements of its
    /// store. It starts again with that doubt, and with a lineage that descends from either, since its messages and its memory now rest on
    /// the comparison. Returns `false`, and changes nothing, where the store was whole, or is of no use any more.
    fn start_again(&mut self, cx: &mut Context<'_>, users: &mut Users<'_>, why: &str) -> bool {
        if self.is_to_start_again() {
            return true;
        }
        let Some(known) = self.outranked_by else { return false };
        let Some(lineage) = self.lineage_after_loss(cx, known) else { return false };
        let space = cx.space();
        let doubt =
            |replica: &LocalReplica| Some(space.namespace(replica.namespace).doubt(&replica.group.doubt_as_older()?));
        let living = cx.replicas.all.iter().filter(|replica| replica.over.is_none());
        let Some(doubts) = living.map(doubt).collect::<Option<Vec<Change>>>().filter(|all| !all.is_empty()) else {
            return false;
        };
        self.bar(cx, users, true);
        let token = persist_start(cx, &lineage, doubts);
        let why = format!(
            "{why}. The end of this peer's journal was lost, so that start may be lost with it: this process restarts, \
            with its acknowledgements in doubt"
        );
        self.begin_again(token, why);
        true
    }

    /// Returns the lineage of a start that descends from the start `known` to a member, and from those of this store; `None` if no counter
    /// is left for it.
    fn lineage_after_loss(&mut self, cx: &mut Context<'_>, known: Start) -> Option<Lineage> {
        let lineage = self.lineage.next_after_loss(known, cx.rng.draw().max(1));
        (lineage.start.counter > known.counter).then_some(lineage)
    }

    /// Handles the report of a peer that is in no group with this node that the node has gone back in time. As long as any such peer
    /// reports it, the node serves nothing. The report of one stranger ends no incarnation at once, for it may be wrong for a moment.
    fn on_outlived(
        &mut self,
        cx: &mut Context<'_>,
        users: &mut Users<'_>,
        from: PeerKey,
        alive: Option<bool>,
        names: &str,
    ) -> Option<Event> {
        let (now, patience) = (cx.now.time, cx.gone_after());
        self.bar(cx, users, true);
        let barred = self.barred.as_mut()?;
        // A report of long ago does not tell for how long the reports have come.
        let before = barred.outlived.filter(|outlived| now.since(outlived.last) <= patience * 2);
        let since = before.map_or(now, |outlived| outlived.since);
        barred.outlived = Some(Outlived { peer: from, since, last: now });
        match alive {
            Some(runs) if now.since(since) > patience * 3 => {
                return Some(if runs { usurped(names) } else { went_back(names) });
            }
            _ => self.note_start(cx, format!(
                "{names}, and is in a later group in this place: this directory is probably an older copy, from when \
                 the peer was alone. No data is served from it. If the copy is the right one, stop the other peer, and \
                 restart this one"
            )),
        }
        None
    }

    /// Returns a member's refusal of this process, if it is not too old to count.
    fn refusal_of(&self, cx: &Context<'_>, peer: PeerKey) -> Option<&Refusal> {
        let refusal = self.refusals.get(&peer)?;
        (cx.now.time.since(refusal.at) <= cx.gone_after()).then_some(refusal)
    }

    /// Returns the time at which a member last counted this process, if that was recent and the member has not refused it since.
    fn counted_at(&self, cx: &Context<'_>, peer: PeerKey) -> Option<Time> {
        let at = *self.accepted.get(&peer).filter(|_| self.refusal_of(cx, peer).is_none())?;
        (cx.now.time.since(at) <= cx.gone_after()).then_some(at)
    }

    /// Returns whether, in each group here, more than half of the other members have counted this process since it was refused for a later
    /// start. An acceptance from before does not concern the later start.
    fn is_accepted_by_majorities(&self, cx: &Context<'_>) -> bool {
        let disputed = self.disputed.unwrap_or(cx.now.time);
        cx.replicas.living().all(|group| {
            let nodes = group.state().nodes();
            let others = || nodes.iter().map(|node| node.peer).filter(|peer| *peer != cx.me.peer);
            let accepting = others().filter(|peer| self.counted_at(cx, *peer).is_some_and(|at| at > disputed));
            2 * accepting.count() > others().count()
        })
    }

    /// Weighs the recent refusals, where the start that other members know has the same counter.
    fn weigh_refusals(&self, cx: &Context<'_>) -> Weight {
        let fellows = cx.replicas.fellows(cx.me, None);
        let refusals: Vec<&Refusal> = fellows.iter().filter_map(|peer| self.refusal_of(cx, *peer)).collect();
        let accepting = fellows.iter().filter(|peer| self.counted_at(cx, **peer).is_some()).count();
        let is_recovering = cx.replicas.living().any(Group::is_recovering);
        if refusals.iter().any(|refusal| refusal.alive.is_none()) && is_recovering {
            Weight::Open
        } else if accepting > refusals.len() && !is_recovering {
            Weight::Won
        } else if accepting < refusals.len()
            && refusals.iter().any(|refusal| refusal.alive == Some(true))
            && refusals.iter().all(|refusal| refusal.alive.is_some() && !refusal.contested)
        {
            Weight::Lost
        } else {
            Weight::Open
        }
    }

    fn bar(&mut self, cx: &mut Context<'_>, users: &mut Users<'_>, is_doubtful: bool) {
        if !self.is_barred() {
            users.end_all(cx);
        }
        let barred =
            self.barred.get_or_insert(Barred { is_doubtful, since: cx.now.time, asked: cx.now.time, outlived: None });
        barred.is_doubtful |= is_doubtful;
        if cx.stage.ready {
            cx.stage.ready = false;
            cx.event(Event::NotReady);
        }
    }

    /// Reports the reason, from time to time.
    fn note_start(&mut self, cx: &mut Context<'_>, what: String) {
        const AGAIN: Duration = Duration::from_secs(60);
        let now = cx.now.time;
        self.note = Some(what.clone());
        if self.noted.as_ref().is_some_and(|(said, at)| *said == what && now.since(*at) < AGAIN) {
            return;
        }
        self.noted = Some((what.clone(), now));
        let peer = cx.me.peer;
        cx.event(Event::Identity { peer, what });
    }

    /// Returns the time at which a barred node is due next.
    pub(crate) fn due(&self, now: Time, config: &NodeConfig) -> Time {
        match self.barred {
            Some(_) => now + config.timing.heartbeat / 2,
            None => Time::NEVER,
        }
    }

    /// Runs the timers of refusals. Returns the event that ends this incarnation, if it does.
    pub(crate) fn tick_barred(&mut self, cx: &mut Context<'_>, users: &mut Users<'_>) -> Option<Event> {
        let (now, patience) = (cx.now.time, cx.gone_after());
        let last = self.refusals.values().map(|refusal| refusal.at).max();
        if self.barred.is_none() && last.is_none_or(|last| now.since(last) > patience * 2) {
            self.note = None;
            self.refusals.clear();
        }
        let barred = self.barred?;
        let is_left_alone = now.since(self.refused_at) > patience * 3;
        if barred.outlived.is_none() && is_left_alone {
            if barred.is_doubtful && !doubts_all(cx) {
                let why = "a member knew another start of this peer, and has stopped answering: this data directory \
                    may be an older copy";
                let goes_on = self.start_again(cx, users, why);
                return (!goes_on).then(|| Event::Damaged(why.into()));
            }
            if barred.is_doubtful {
                cx.replicas.each(|group| _ = group.on_store_older());
            }
            self.barred = None;
            return None;
        }
        if !barred.is_doubtful && self.weigh_refusals(cx) == Weight::Won {
            self.barred = None;
            return None;
        }
        if now.since(barred.asked) >= cx.config.timing.heartbeat {
            self.barred = Some(Barred { asked: now, ..barred });
            let mut asked = cx.replicas.fellows(cx.me, None);
            asked.extend(barred.outlived.map(|outlived| outlived.peer));
            let asked: Vec<PeerKey> = asked.into_iter().collect();
            cx.post_all(&asked, Class::Control, &Frame::Started);
        }
        None
    }
}

/// Returns whether this process takes part in nothing yet because its journal has a torn end: all acknowledgements of the store are in
/// doubt, however much of it is lost. A process that was compared with the other members once is no such process: since then they may
/// have taken over a later start, that of a copy of its directory ([`Starts::start_again`]).
fn doubts_all(cx: &Context<'_>) -> bool {
    let doubts = |group: &Group| group.is_recovering() && group.doubt().is_some_and(|doubt| !doubt.accepted);
    !cx.replicas.is_empty() && cx.replicas.living().all(doubts)
}

/// Returns whether this node is alone in a group, and one of `groups`, which the refusing node shares with it, is in the same place
/// and not older: then this store is from before that node came. A larger group has members of its own that are heeded.
fn is_outlived_by(cx: &Context<'_>, groups: &[(KeyRange, Epoch)]) -> bool {
    let outlives =
        |state: &GroupState| groups.iter().any(|(range, epoch)| *epoch >= state.epoch && range.overlaps(state.range));
    cx.replicas.living().map(Group::state).any(|state| state.audience().len() <= 1 && outlives(state))
}

/// Stores a start together with the doubts that it begins with: as that start the process must not be taken for one whose store lost
/// its end alone. Returns the name of the batch.
fn persist_start(cx: &mut Context<'_>, lineage: &Lineage, doubts: Vec<Change>) -> u64 {
    let mut changes = alloc::vec![cx.space().lineage(lineage)];
    changes.extend(doubts);
    let token = cx.replicas.name_batch(BatchOwner::Node(0));
    cx.out.push(Output::Persist { token, changes });
    token
}

/// Describes the contradiction between this process and the start that a member knows.
fn contradicted(cx: &Context<'_>, own: Start, refused: &Refused) -> String {
    let known = refused.known;
    let life = if refused.incarnation > cx.me.incarnation { "a later incarnation of the peer, at its " } else { "" };
    format!(
        "this process is start {} (run {:x}) of the peer, and another member knows {life}start {} (run {:x})",
        own.counter, own.run, known.counter, known.run
    )
}

/// Returns the end of an incarnation whose directory is an older copy; the store is kept aside.
fn went_back(names: &str) -> Event {
    Event::Damaged(format!("{names}: this data directory is an older copy"))
}

/// Returns the end of an incarnation because another process with this identity counts.
fn usurped(what: &str) -> Event {
    Event::Twin(format!(
        "{what}, which runs: the other process with this identity counts, and this one ends. Do not copy data \
         directories: give this process an identity of its own (remove its files `identity` and `peer.json` and \
         its folder `store`, then --join), or stop the other process"
    ))
}

/// Result of [`Starts::weigh_refusals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// More members know this process.
    Won,
    /// All members that answer know the other process, which runs.
    Lost,
    /// Neither holds, or neither holds yet.
    Open,
}
