//! The node itself: its groups, its sessions, and its interface to the driver.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::control::state::GroupState;
use group::op::{Limit, OpError, Refusal};
use group::transaction::member::BeginRefusal;
use group::transaction::plan::GroupTransaction;
use group::watched::Watched;
use overlay::rng::Rng;
use overlay::time::{Now, Time};
use overlay::{Called, NodeId, PeerKey, RingId};

use crate::admin::{AdminOutcome, AdminRequests};
use crate::api::{Event, Input, Output};
use crate::config::{NodeConfig, Restored};
use crate::context::{Context, Stage, context};
use crate::outbox::Outbox;
use crate::policies::capacity::CapacityWatch;
use crate::policies::lifetimes::LifeWatch;
use crate::readiness::Readiness;
use crate::reconfigure::Reconfigure;
use crate::reconfigure::leaving::LeaveRefusal;
use crate::replicas::storage::Space;
use crate::replicas::successors::Successors;
use crate::replicas::{LocalReplica, LocalReplicas};
use crate::routing::Routing;
use crate::routing::ring_walk::RingWalk;
use crate::sessions::Sessions;
use crate::sessions::harmonia::HarmoniaState;
use crate::starts::Starts;
use crate::starts::refused::Users;
use crate::status::{GroupStatus, NodeStatus};

/// One peer, as a value without I/O.
pub struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) me: NodeId,
    pub(crate) ring: Option<RingId>,
    pub(crate) now: Now,
    pub(crate) rng: Rng,
    pub(crate) replicas: LocalReplicas,
    pub(crate) successors: Successors,
    pub(crate) routing: Routing,
    pub(crate) requests: AdminRequests,
    pub(crate) reconfigure: Reconfigure,
    pub(crate) lives: LifeWatch,
    pub(crate) capacities: CapacityWatch,
    pub(crate) harmonia: HarmoniaState,
    pub(crate) starts: Starts,
    pub(crate) sessions: Sessions,
    pub(crate) stage: Stage,
    pub(crate) out: Outbox,
    /// Peers that sent a frame of another version since they connected.
    pub(crate) foreign: BTreeSet<PeerKey>,
    pub(crate) addresses: Vec<String>,
    /// Limit of the store's room, where the room is low.
    pub(crate) full: Option<Limit>,
    pub(crate) readiness: Readiness,
    wake_at: Time,
    /// Time at which the node last ran its timers.
    ticked: Time,
    pub(crate) frames_dropped: u64,
    pub(crate) answered: u64,
}

/// Time after which a stopping node looks again whether it may end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
impl Node {
    /// Creates a node at its start. `seed` feeds its only source of random numbers.
    pub fn new(config: NodeConfig, seed: u64, now: Now, restored: Restored) -> Node {
        let (starts, harmonia) = (Starts::new(seed), HarmoniaState::new(config.secret));
        let mut node = Node {
            me: NodeId { peer: config.me, incarnation: config.incarnation },
            ring: config.ring,
            config,
            now,
            out: Outbox::new(starts.own()),
            starts,
            sessions: Sessions::new(Rng::new(!seed).draw()),
            rng: Rng::new(seed),
            replicas: LocalReplicas::default(),
            successors: Successors::new(now.time),
            routing: Routing::new(now.time),
            requests: AdminRequests::default(),
            reconfigure: Reconfigure::default(),
            lives: LifeWatch::new(now, seed.rotate_left(17)),
            capacities: CapacityWatch::default(),
            harmonia,
            stage: Stage::default(),
            foreign: BTreeSet::new(),
            addresses: Vec::new(),
            readiness: Readiness::new(now.time),
            full: None,
            wake_at: Time(0),
            ticked: now.time,
            frames_dropped: 0,
            answered: 0,
        };
        node.begin(&restored);
        node.tick();
        node
    }

    /// Lends the context of this node to a part of it.
    pub(crate) fn cx(&mut self) -> Context<'_> {
        context!(self)
    }

    /// Returns the stamp of this node's frames.
    #[cfg(test)]
    pub(crate) fn stamp(&self) -> crate::wire::Stamp {
        crate::wire::Stamp { incarnation: self.me.incarnation, start: self.out.start(), to: 0 }
    }

    pub(crate) fn space(&self) -> Space {
        Space(self.config.lane)
    }

    /// Returns a peer in the form that people see: with its name, if it has one and is in a group of this node.
    pub(crate) fn called(&self, peer: PeerKey) -> Called<'_, PeerKey> {
        let states = self.replicas.living().map(|group| group.state());
        let mut members = states.flat_map(|state| state.members.iter().chain(&state.learners));
        let known = members.find(|member| member.node.peer == peer);
        Called { name: known.and_then(|member| member.name.as_ref()), id: peer }
    }

    /// Returns this node's id, in this incarnation.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// Returns whether this node leads its group.
    fn leads(&self) -> bool {
        self.replicas.home().is_some_and(|group| group.log().leads())
    }

    /// Returns whether any peer is connected.
    pub fn is_connected(&self) -> bool {
        !self.out.connected.is_empty()
    }

    /// Returns the group that this node is a member of, for checks.
    pub fn group(&self) -> Option<&Group> {
        self.replicas.home()
    }

    /// Returns all groups that this node has a part in, without those that are over, for checks.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.replicas.living()
    }

    /// Returns the last states of groups whose end this node knows, for checks.
    pub fn last_states(&self) -> impl Iterator<Item = &GroupState> {
        self.successors.kept.iter()
    }

    /// Returns whether this node holds this stored record now, and the record is not left over.
    pub fn holds(&self, record_key: &[u8]) -> bool {
        let key = self.space().key_of(record_key);
        key.is_some_and(|(generation, key)| {
            self.replicas.keyspace.of(key.point()) == generation && self.replicas.at(key.point()).is_some()
        })
    }

    /// Returns whether the node has no leftovers of groups that it has no part in any more, and waits for no birth.
    pub fn is_settled(&self) -> bool {
        self.replicas.keyspace.leftover().is_none() && !self.successors.awaits_birth(&self.replicas)
    }

    /// Calls [`Group::watch`] for each of its groups, for checks. The last argument of `see` is whether the group lives.
    pub fn watch_groups(&mut self, mut see: impl FnMut(&Group, Watched, bool)) {
        for replica in &mut self.replicas.all {
            let watched = replica.group.watch();
            see(&replica.group, watched, replica.over.is_none());
        }
    }

    /// Calls [`Group::stop_epoch`] for each group, for tests.
    pub fn stop_epoch(&mut self) {
        self.replicas.each(Group::stop_epoch);
    }

    /// Takes one input; `now` never goes backwards. Outputs queue for [`Node::poll_output`]. Hand in all waiting inputs before
    /// polling: then one drained batch becomes one frame a peer and one sync.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.set_now(now);
        if self.stage.over {
            return self.turn_away(input);
        }
        match input {
            Input::AdminRequest { .. } | Input::RingWalk { .. } if self.starts.is_barred() => self.turn_away(input),
            Input::Frame { from, frame } => self.on_frame(from, &frame),
            Input::PeerUp(peer) => {
                self.out.connected.insert(peer);
                self.starts.tell_lineage(&mut context!(self), peer);
                if self.replicas.is_empty() {
                    self.routing.join.ask_for_sample(&mut context!(self), peer);
                    self.routing.join.send_no_op(&mut context!(self), peer);
                }
            }
            Input::PeerDown(peer) => {
                self.out.connected.remove(&peer);
                self.foreign.remove(&peer);
                self.replicas.each(|group| group.on_broken(peer));
            }
            Input::Routecast(request) => self.routecast(request),
            Input::Packet { from, bytes } => self.on_packet(from, &bytes),
            Input::Persisted(token) => self.on_persisted(token),
            Input::StoreFailed(why) => {
                self.replicas.each(Group::on_store_failed);
                self.stage.ready = false;
                self.out.event(Event::Fatal(why));
            }
            Input::DiskLow(limit) => {
                self.reconfigure.preparation.copies.disk_low = limit.is_some();
                self.full = limit;
                self.replicas.each(|group| group.set_full(limit));
            }
            Input::StoreBehind(behind) => {
                self.reconfigure.preparation.copies.store_behind = behind;
                self.replicas.each(|group| group.on_store_behind(behind));
            }
            Input::Busy { window, busy } => self.capacities.on_busy(self.work(), window, busy),
            Input::Loaded { record_key, record } => self.on_loaded(&record_key, record.as_deref()),
            Input::Scanned { token, records, done } => self.on_scanned(token, records, done),
            Input::Tick => {}
            Input::Addresses(addresses) => {
                let addresses = group::validate::acceptable(addresses);
                self.addresses.clone_from(&addresses);
                self.replicas.each(|group| group.set_addresses(addresses.clone()));
            }
            Input::Stop => {
                self.stage.stopping.get_or_insert(now.time);
                let away = self.config.away;
                // A node that leaves hands over in its own way, and need not be waited for.
                if self.reconfigure.leave.mode.is_none() {
                    self.replicas.each(|group| group.stop_soon(away));
                }
            }
            Input::AdminRequest { number, group, request } => {
                if self.requests.on_admin_request(&mut context!(self), number, group, request) {
                    self.follow_admin_requests();
                }
            }
            Input::RingWalk { number, from, count } => {
                let walk = (number, from, count);
                self.routing.walks.begin(&mut context!(self), &mut self.routing.table, walk);
            }
            Input::Leave { force } => self.leave(force),
        }
        if self.now.time >= self.wake_at {
            self.tick();
        }
    }

    /// Answers a question that the node does not serve now.
    fn turn_away(&mut self, input: Input) {
        match input {
            Input::Routecast(request) => self.reply(request.id, Err(OpError::TryAgain(Refusal::NotInGroup))),
            Input::AdminRequest { number, .. } => {
                self.out.push(Output::AdminOutcome { number, outcome: AdminOutcome::NotHere });
            }
            Input::RingWalk { number, .. } => {
                self.out.push(Output::RingWalked { number, walk: RingWalk::default() });
            }
            _ => {}
        }
    }

    /// Returns the number of operations that came to this node as a primary, in groups of which it has a replica now, and of reads that it
    /// answered alone.
    pub fn operations_taken(&self) -> u64 {
        self.groups().map(Group::operations_taken).sum::<u64>() + self.harmonia.counts.alone
    }

    fn set_now(&mut self, now: Now) {
        self.now = now;
        self.replicas.all.iter_mut().for_each(|replica| replica.group.set_now(now));
    }

    /// Returns the work of the node, in operations that it executed as a primary.
    ///
    /// An operation of another primary in which it takes part counts as half of one, and so does an operation of its own clients: each
    /// comes with about as many messages as half of an operation of its own. Without these, a member with a small part of the range would
    /// seem weak, and its part would shrink further.
    fn work(&self) -> f64 {
        let assisted: u64 = self.groups().map(Group::operations_assisted).sum();
        self.operations_taken() as f64 + (assisted + self.answered) as f64 / 2.0
    }

    /// Returns the next output, or `None` if there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.out.queue.pop_front() {
                return Some(output);
            }
            if self.starts.is_barred() {
                break;
            }
            let wanted = |replica: &mut LocalReplica| Some((replica.serial, replica.group.poll_output()?));
            if let Some((serial, output)) = self.replicas.all.iter_mut().find_map(wanted) {
                self.carry(serial, output);
            } else if !self.attend() && !self.routing.table.flush(&mut context!(self)) {
                break;
            }
        }
        // An announced time is never put off: this runs after every batch, and some timeouts count from now.
        let told = if self.wake_at > self.ticked { self.wake_at } else { Time::NEVER };
        let wake_at = self.next_timeout().min(told);
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            return Some(Output::WakeAt(wake_at));
        }
        None
    }

    /// Returns the node's status, for people.
    pub fn status(&self) -> NodeStatus {
        NodeStatus {
            node: self.me,
            ready: self.stage.ready,
            group: self.replicas.home().map(|group| self.group_status(group)),
            groups: self.replicas.living().map(|group| self.group_status(group)).collect(),
            operations: self.sessions.len(),
            frames_dropped: self.frames_dropped,
            switch: self.config.switch,
            spread: self.harmonia.counts,
            packets_dropped: self.harmonia.dropped,
            answered: self.answered,
            leaving: self.reconfigure.leave.status(&self.replicas, self.me),
            start: self.starts.own(),
            identity: self.starts.notices(self.me.peer, self.now.time),
            starts_refused: self.starts.refused(),
        }
    }

    fn group_status(&self, group: &Group) -> GroupStatus {
        GroupStatus::of(group, self.lives.status(), self.lives.risk_of(&self.config, group))
    }

    /// Returns the reason against leaving now, as far as this node knows; `None` if there is none, or if it leaves
    /// already.
    pub fn refuses_leave(&self, force: bool) -> Option<LeaveRefusal> {
        self.reconfigure.leave.refusal(&self.stage, &self.replicas, self.ring, force)
    }

    /// Begins a transaction of its own group, at once or once it is prepared.
    ///
    /// # Errors
    /// The transaction cannot begin now, or not at all; no transaction has begun.
    pub fn begin_transaction(&mut self, operation: GroupTransaction) -> Result<(), BeginRefusal> {
        self.reconfigure.preparation.begin_own(&mut context!(self), operation)
    }

    fn tick(&mut self) {
        self.ticked = self.now.time;
        if self.stage.over {
            return;
        }
        let users = &mut Users { walks: &mut self.routing.walks, requests: &mut self.requests };
        if let Some(why) = self.starts.tick_barred(&mut context!(self), users) {
            self.end_life(why);
        }
        self.starts.sweep(&mut context!(self));
        self.with_sessions(Sessions::tick);
        if self.stage.over || self.starts.is_barred() {
            return self.tick_stopping();
        }
        self.replicas.each(Group::tick);
        self.harmonia.forget(self.now.time);
        self.tend_groups();
        self.routing.successors.search(&mut context!(self), &mut self.routing.table);
        self.routing.join.seek(&mut context!(self));
        self.routing.walks.go_on(&mut context!(self), &mut self.routing.table);
        self.routing.table.questions.forget(self.now.time);
        self.routing.table.look_around(&mut context!(self));
        self.reconfigure.preparation.go_on_copying(&mut context!(self));
        self.reconfigure.preparation.go_on_preparing(&mut context!(self));
        self.follow_admin_requests();
        self.lives.watch(&mut context!(self));
        self.capacities.watch(&mut context!(self));
        self.reconfigure.watch(&mut context!(self), &self.lives);
        if let Some(request) = self.readiness.next_probe(&mut context!(self)) {
            self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
        }
        self.reconfigure.leave.tell(&mut context!(self));
        self.tick_stopping();
    }

    /// Follows the progress of the requested transactions.
    pub(crate) fn follow_admin_requests(&mut self) {
        let preparation = &mut self.reconfigure.preparation;
        self.requests.follow(&mut context!(self), &mut self.routing.table, preparation, &self.lives);
    }

    /// Runs the timers that concern several groups.
    fn tend_groups(&mut self) {
        self.successors.forget_pending(&self.replicas);
        if self.successors.is_due(&self.replicas, self.now.time) {
            self.successors.ask_for_finals(&mut context!(self), &mut self.routing.table);
            self.follow_pending();
            // There may have been no room for a new group.
            self.successors.birth_wanted = true;
        }
        self.successors.release_early(&mut context!(self));
        if self.replicas.all.len() > 1 || self.reconfigure.preparation.copies.bytes() > 0 {
            self.reconfigure.preparation.copies.share_memory(&mut context!(self));
        }
        self.sweep();
    }

    fn next_timeout(&mut self) -> Time {
        if self.stage.over {
            return Time::NEVER;
        }
        let mut next = self.sessions.next_timeout().min(self.starts.due(self.now.time, &self.config));
        if self.starts.is_barred() {
            return next.max(self.now.time + Duration::from_millis(1));
        }
        for group in self.replicas.living_mut() {
            next = next.min(group.next_timeout());
        }
        next = match (self.replicas.is_empty(), self.stage.ready) {
            (true, _) => next.min(self.routing.join.due),
            (false, false) => next.min(self.readiness.due()),
            (false, true) => next,
        };
        next = next.min(self.successors.due(&self.replicas));
        next = next
            .min(self.routing.walks.due())
            .min(self.requests.due(self.now.time))
            .min(self.replicas.sweep_due(self.now.time))
            .min(self.routing.table.looks_due(&self.replicas));
        next = next
            .min(self.reconfigure.preparation.copies_due(&context!(self)))
            .min(self.reconfigure.preparation.preparing_due(&context!(self)));
        if self.leads() {
            next = next.min(self.reconfigure.watch_due());
        }
        if self.stage.stopping.is_some() {
            next = next.min(self.now.time + LOOK_AGAIN);
        }
        // A timeout is never in the past, and not so soon that it leaves no time for other work.
        next.max(self.now.time + Duration::from_millis(1))
    }
}

#[cfg(test)]
#[path = "node_test.rs"]
mod tests;
