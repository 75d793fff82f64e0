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
use overlay::{Epoch, KeyRange, PeerKey};

use crate::api::{Change, Class, Event, Output};
use crate::context::context;
use crate::node::Node;
use crate::replicas::LocalReplica;
use crate::starts::lineage::Lineage;
use crate::starts::{Barred, Outlived, Refusal, Refused, Start};
use crate::wire::Frame;

impl Node {
    /// Handles a refusal: the sender knows another start of this peer than this process.
    pub(crate) fn on_refused(&mut self, from: PeerKey, refused: &Refused) {
        let (own, now) = (self.starts.own(), self.now.time);
        if refused.node != self.me || refused.start != own || refused.known == own {
            return;
        }
        let Refused { known, alive, contested, .. } = *refused;
        let is_later = refused.incarnation > self.me.incarnation || known.counter > own.counter;
        let life =
            if refused.incarnation > self.me.incarnation { "a later incarnation of the peer, at its " } else { "" };
        let names = |known: Start| {
            format!(
                "this process is start {} (run {:x}) of the peer, and another member knows {life}start {} (run {:x})",
                own.counter, own.run, known.counter, known.run
            )
        };
        if !self.fellows(None).contains(&from) {
            if self.is_outlived_by(&refused.groups) {
                self.on_outlived(from, alive, &names(known));
            }
            return; // A peer in no group with this node cannot have counted a message of it.
        }
        if is_later && (self.starts.disputed.is_none() || now.since(self.starts.refused_at) > self.gone_after()) {
            self.starts.disputed = Some(now);
        }
        self.starts.refused_at = now;
        self.starts.outranked_by = Some(known);
        // The later start counts, unless members hold different starts: then they are weighed. This process may be the first to see that.
        let is_accepted_beside =
            || self.fellows(None).iter().any(|peer| *peer != from && self.counted_at(*peer).is_some());
        let is_weighed = contested || !is_later || is_accepted_beside();
        if is_weighed {
            self.starts.refusals.insert(from, Refusal { at: now, alive, contested });
        }
        if alive == Some(true) {
            self.starts.other_runs = Some(now);
        }
        let weight = self.weigh_refusals();
        // Over a later start only a majority wins: otherwise the other members and the other process could decide without this one.
        let weight = match weight {
            Weight::Won if is_later && !self.is_accepted_by_majorities() => Weight::Open,
            weight => weight,
        };
        let is_outweighed = is_weighed && weight == Weight::Won;
        // A member that does not hear the other process may be cut off from it.
        let is_heard = self.starts.other_runs.is_some_and(|at| now.since(at) <= self.gone_after());
        // A member that knows the other start only by hearsay, from a node that is in no group with this process, never learns whether
        // that one runs.
        let is_open_for_long =
            || refused.incarnation == self.me.incarnation && self.doubts_all() && self.is_long_barred();
        let is_silent = alive.map_or_else(is_open_for_long, |alive| !alive);
        let what = match (alive, is_later) {
            _ if is_silent && !is_outweighed && !is_heard => {
                let is_known = refused.incarnation == self.me.incarnation;
                if !is_known || !(self.go_on_after_loss(known) || self.start_again(&names(known))) {
                    self.went_back(&names(known));
                }
                return;
            }
            (Some(true), true) if !is_weighed => return self.usurped(&names(known)),
            (None | Some(false), true) if !is_outweighed => {
                self.bar(true);
                format!("{}; this peer waits some seconds to see whether that start still runs", names(known))
            }
            _ => match weight {
                Weight::Lost => return self.usurped(&names(known)),
                Weight::Open => {
                    let is_doubtful = self.replicas.living().any(Group::is_recovering);
                    self.bar(is_doubtful);
                    format!(
                        "{}: the same identity runs twice, or this directory is an older copy. Until the members agree \
                        on one start, none is accepted: if two processes run, stop one of them",
                        names(known)
                    )
                }
                Weight::Won => {
                    format!("{}: the same identity runs twice, and more members know this start", names(known))
                }
            },
        };
        self.note_start(what);
    }

    /// Ends this incarnation because its directory is an older copy; the store is kept aside.
    fn went_back(&mut self, names: &str) {
        self.end_life(Event::Damaged(format!("{names}: this data directory is an older copy")));
    }

    /// Returns whether this process takes part in nothing yet because its journal has a torn end: all acknowledgements of the store are in
    /// doubt, however much of it is lost. A process that was compared with the other members once is no such process: since then they may
    /// have taken over a later start, that of a copy of its directory ([`Node::start_again`]).
    fn doubts_all(&self) -> bool {
        let doubts = |group: &Group| group.is_recovering() && group.doubt().is_some_and(|doubt| !doubt.accepted);
        !self.replicas.is_empty() && self.replicas.living().all(doubts)
    }

    /// Returns whether it has been barred for longer than other members take to report whether the start that they know runs.
    fn is_long_barred(&self) -> bool {
        let patience = self.gone_after() * 4;
        self.starts.barred.is_some_and(|barred| self.now.time.since(barred.since) >= patience)
    }

    /// Goes on although a member knows a start of which this store has no entry. Where the whole store is in doubt, the entry was lost
    /// with the end of the journal, or the store is an older copy, and the doubt covers both: the process goes on as a later start of the
    /// same incarnation. Returns `false`, and changes nothing, if the store is not wholly in doubt.
    fn go_on_after_loss(&mut self, known: Start) -> bool {
        if !self.doubts_all() {
            return false;
        }
        let Some(lineage) = self.lineage_after_loss(known) else { return false };
        let space = self.space();
        let living = self.replicas.all.iter_mut().filter(|replica| replica.over.is_none());
        let doubt = |replica: &mut LocalReplica| {
            Some(space.namespace(replica.namespace).doubt(&replica.group.on_store_older()?))
        };
        let doubts = living.filter_map(doubt).collect();
        let token = self.persist_start(&lineage, doubts);
        self.out.event(Event::Note(format!(
            "the store lost the entry of start {} (run {:x}), which another member knows: this process continues as \
            start {}",
            known.counter, known.run, lineage.start.counter
        )));
        self.starts.go_on_as(lineage, token, &mut self.out);
        true
    }

    /// Has the process start again in doubt. A member knows a start of which this store has no entry, and the end of the journal was lost;
    /// but the rest was compared with the knowledge of the other members. Either that start was lost with the end, and no other member
    /// knew it then, or it is the start of a copy of the directory. In both cases the process must doubt all acknowledgements of its
    /// store. It starts again with that doubt, and with a lineage that descends from either, since its messages and its memory now rest on
    /// the comparison. Returns `false`, and changes nothing, where the store was whole, or is of no use any more.
    fn start_again(&mut self, why: &str) -> bool {
        if self.starts.is_to_start_again() {
            return true;
        }
        let Some(known) = self.starts.outranked_by else { return false };
        let Some(lineage) = self.lineage_after_loss(known) else { return false };
        let space = self.space();
        let doubt =
            |replica: &LocalReplica| Some(space.namespace(replica.namespace).doubt(&replica.group.doubt_as_older()?));
        let living = self.replicas.all.iter().filter(|replica| replica.over.is_none());
        let Some(doubts) = living.map(doubt).collect::<Option<Vec<Change>>>().filter(|all| !all.is_empty()) else {
            return false;
        };
        self.bar(true);
        let token = self.persist_start(&lineage, doubts);
        let why = format!(
            "{why}. The end of this peer's journal was lost, so that start may be lost with it: this process restarts, \
            with its acknowledgements in doubt"
        );
        self.starts.start_again(token, why);
        true
    }

    /// Returns the lineage of a start that descends from the start `known` to a member, and from those of this store; `None` if no counter
    /// is left for it.
    fn lineage_after_loss(&mut self, known: Start) -> Option<Lineage> {
        let lineage = self.starts.lineage.next_after_loss(known, self.rng.draw().max(1));
        (lineage.start.counter > known.counter).then_some(lineage)
    }

    /// Stores a start together with the doubts that it begins with: as that start the process must not be taken for one whose store lost
    /// its end alone. Returns the name of the batch.
    fn persist_start(&mut self, lineage: &Lineage, doubts: Vec<Change>) -> u64 {
        let mut changes = alloc::vec![self.space().lineage(lineage)];
        changes.extend(doubts);
        let token = self.replicas.name_batch(0, 0);
        self.out.push(Output::Persist { token, changes });
        token
    }

    /// Handles the report of a peer that is in no group with this node that the node has gone back in time. As long as any such peer
    /// reports it, the node serves nothing. The report of one stranger ends no incarnation at once, for it may be wrong for a moment.
    fn on_outlived(&mut self, from: PeerKey, alive: Option<bool>, names: &str) {
        let (now, patience) = (self.now.time, self.gone_after());
        self.bar(true);
        let Some(barred) = &mut self.starts.barred else { return };
        // A report of long ago does not tell for how long the reports have come.
        let before = barred.outlived.filter(|outlived| now.since(outlived.last) <= patience * 2);
        let since = before.map_or(now, |outlived| outlived.since);
        barred.outlived = Some(Outlived { peer: from, since, last: now });
        match alive {
            Some(runs) if now.since(since) > patience * 3 => {
                if runs {
                    self.usurped(names)
                } else {
                    self.went_back(names)
                }
            }
            _ => self.note_start(format!(
                "{names}, and is in a later group in this place: this directory is probably an older copy, from when \
                 the peer was alone. No data is served from it. If the copy is the right one, stop the other peer, and \
                 restart this one"
            )),
        }
    }

    /// Returns whether this node is alone in a group, and one of `groups`, which the refusing node shares with it, is in the same place
    /// and not older: then this store is from before that node came. A larger group has members of its own that are heeded.
    fn is_outlived_by(&self, groups: &[(KeyRange, Epoch)]) -> bool {
        let outlives = |state: &GroupState| {
            groups.iter().any(|(range, epoch)| *epoch >= state.epoch && range.overlaps(state.range))
        };
        self.replicas.living().map(Group::state).any(|state| state.audience().len() <= 1 && outlives(state))
    }

    /// Returns a member's refusal of this process, if it is not too old to count.
    fn refusal_of(&self, peer: PeerKey) -> Option<&Refusal> {
        let refusal = self.starts.refusals.get(&peer)?;
        (self.now.time.since(refusal.at) <= self.gone_after()).then_some(refusal)
    }

    /// Returns the time at which a member last counted this process, if that was recent and the member has not refused it since.
    fn counted_at(&self, peer: PeerKey) -> Option<Time> {
        let at = *self.starts.accepted.get(&peer).filter(|_| self.refusal_of(peer).is_none())?;
        (self.now.time.since(at) <= self.gone_after()).then_some(at)
    }

    /// Returns whether, in each group here, more than half of the other members have counted this process since it was refused for a later
    /// start. An acceptance from before does not concern the later start.
    fn is_accepted_by_majorities(&self) -> bool {
        let disputed = self.starts.disputed.unwrap_or(self.now.time);
        self.replicas.living().all(|group| {
            let nodes = group.state().nodes();
            let others = || nodes.iter().map(|node| node.peer).filter(|peer| *peer != self.me.peer);
            let accepting = others().filter(|peer| self.counted_at(*peer).is_some_and(|at| at > disputed));
            2 * accepting.count() > others().count()
        })
    }

    /// Weighs the recent refusals, where the start that other members know has the same counter.
    fn weigh_refusals(&self) -> Weight {
        let fellows = self.fellows(None);
        let refusals: Vec<&Refusal> = fellows.iter().filter_map(|peer| self.refusal_of(*peer)).collect();
        let accepting = fellows.iter().filter(|peer| self.counted_at(**peer).is_some()).count();
        let is_recovering = self.replicas.living().any(Group::is_recovering);
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

    /// Ends this incarnation: another process with this identity counts.
    fn usurped(&mut self, what: &str) {
        self.end_life(Event::Twin(format!(
            "{what}, which runs: the other process with this identity counts, and this one ends. Do not copy data \
             directories: give this process an identity of its own (remove its files `identity` and `peer.json` and \
             its folder `store`, then --join), or stop the other process"
        )));
    }

    fn bar(&mut self, is_doubtful: bool) {
        if !self.starts.is_barred() {
            self.end_questions();
        }
        let barred = self.starts.barred.get_or_insert(Barred {
            is_doubtful,
            since: self.now.time,
            asked: self.now.time,
            outlived: None,
        });
        barred.is_doubtful |= is_doubtful;
        if self.stage.ready {
            self.stage.ready = false;
            self.out.event(Event::NotReady);
        }
    }

    /// Ends the ring walks and requests of users, with an answer.
    fn end_questions(&mut self) {
        self.routing.walks.end_all(&mut context!(self));
        self.requests.end_all(&mut context!(self));
    }

    /// Reports the reason, from time to time.
    fn note_start(&mut self, what: String) {
        const AGAIN: Duration = Duration::from_secs(60);
        let now = self.now.time;
        self.starts.note = Some(what.clone());
        if self.starts.noted.as_ref().is_some_and(|(said, at)| *said == what && now.since(*at) < AGAIN) {
            return;
        }
        self.starts.noted = Some((what.clone(), now));
        let peer = self.me.peer;
        self.out.event(Event::Identity { peer, what });
    }

    /// Returns the time at which a barred node is due next.
    pub(crate) fn starts_due(&self) -> Time {
        match self.starts.barred {
            Some(_) => self.now.time + self.config.timing.heartbeat / 2,
            None => Time::NEVER,
        }
    }

    pub(crate) fn tick_barred(&mut self) {
        let (now, patience) = (self.now.time, self.gone_after());
        let Some(barred) = self.starts.barred else { return };
        let is_left_alone = now.since(self.starts.refused_at) > patience * 3;
        if barred.outlived.is_none() && is_left_alone {
            if barred.is_doubtful && !self.doubts_all() {
                let why = "a member knew another start of this peer, and has stopped answering: this data directory \
                    may be an older copy";
                if !self.start_again(why) {
                    self.end_life(Event::Damaged(why.into()));
                }
                return;
            }
            if barred.is_doubtful {
                self.replicas.each(|group| _ = group.on_store_older());
            }
            self.starts.barred = None;
            return;
        }
        if !barred.is_doubtful && self.weigh_refusals() == Weight::Won {
            self.starts.barred = None;
            return;
        }
        if now.since(barred.asked) >= self.config.timing.heartbeat {
            self.starts.barred = Some(Barred { asked: now, ..barred });
            let mut asked = self.fellows(None);
            asked.extend(barred.outlived.map(|outlived| outlived.peer));
            let asked: Vec<PeerKey> = asked.into_iter().collect();
            self.cx().post_all(&asked, Class::Control, &Frame::Started);
        }
    }
}

/// Result of [`Node::weigh_refusals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// More members know this process.
    Won,
    /// All members that answer know the other process, which runs.
    Lost,
    /// Neither holds, or neither holds yet.
    Open,
}
