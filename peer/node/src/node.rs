//! The node itself: its groups, its sessions, and its interface to the driver.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use bytes::Bytes;
use group::config::GroupConfig;
use group::control::state::{GroupState, Settings};
use group::op::{Answer, Limit, Op, OpError, Read, ReadMode, Refusal};
use group::outbox::GroupOutput;
use group::transaction::member::BeginRefusal;
use group::transaction::plan::GroupTransaction;
use group::watched::Watched;
use group::{Doubt, Group, Stored};
use header::ReplyTo;
use overlay::rng::Rng;
use overlay::time::{Now, Time};
use overlay::{Called, GroupId, Key, KeyRange, NodeId, PeerKey, RingId};

use crate::admin::{AdminOutcome, AdminRequests};
use crate::api::{Event, Input, Output, Request, RequestId};
use crate::config::{Durability, NodeConfig, Restored, Tail};
use crate::context::{Context, Stage, context};
use crate::outbox::Outbox;
use crate::policies::capacity::CapacityWatch;
use crate::policies::divide_as_agreed;
use crate::policies::lifetimes::LifeWatch;
use crate::reconfigure::Reconfigure;
use crate::reconfigure::leaving::LeaveRefusal;
use crate::replicas::births::generations_for;
use crate::replicas::keyspace::Walk;
use crate::replicas::storage::{self, Life, NAMESPACES, Space, StorageError};
use crate::replicas::successors::Successors;
use crate::replicas::{LocalReplica, LocalReplicas, Scan};
use crate::routing::Routing;
use crate::routing::ring_walk::RingWalk;
use crate::sessions::harmonia::{ForSessions, HarmoniaState};
use crate::sessions::requester::Requester;
use crate::sessions::{SessionContext, Sessions};
use crate::starts::refused::Users;
use crate::starts::{Persisted, Starts};
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
    sessions: Sessions,
    pub(crate) stage: Stage,
    pub(crate) out: Outbox,
    /// Peers that sent a frame of another version since they connected.
    pub(crate) foreign: BTreeSet<PeerKey>,
    pub(crate) addresses: Vec<String>,
    /// Limit of the store's room, where the room is low.
    pub(crate) full: Option<Limit>,
    probe_due: Time,
    /// Time to wait for the answer to the node's own probe: longer after each failure.
    probe_patience: Duration,
    /// Key of the probe, in the range of the node's own group: other groups may or may not serve.
    probe_key: Option<Key>,
    wake_at: Time,
    /// Time at which the node last ran its timers.
    ticked: Time,
    pub(crate) frames_dropped: u64,
    pub(crate) answered: u64,
}

/// Upper limit of keys that are tried to find one in the range of this node's own group.
const PROBE_KEYS_MAX: u16 = 1 << 14;
/// Upper limit of the wait for an answer to the node's own probe: as long as a client waits, since the node may be far from the
/// primary.
const PROBE_PATIENCE_MAX: Duration = Duration::from_secs(3);
/// Interval at which a node outside asks to join, and a member probes whether it can serve.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Upper limit of the time for which a stopping node waits for other members to take its sub-ranges, where there are members
/// that can.
const HAND_OVER_MAX: Duration = Duration::from_secs(4);
/// Time for which a node stays that stops together with all other members, which may still need its votes for entries that they
/// accepted.
const SETTLE: Duration = Duration::from_millis(300);
/// Multiple of the silence that led to a removal, after which the removal is confirmed.
const CONFIRM_FACTOR: u32 = 10;

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
            probe_due: now.time,
            probe_patience: ASK_AGAIN,
            probe_key: None,
            full: None,
            wake_at: Time(0),
            ticked: now.time,
            frames_dropped: 0,
            answered: 0,
        };
        node.begin(&restored);
        node
    }

    fn begin(&mut self, restored: &Restored) {
        let is_stored = self.config.durability == Durability::Sync && restored.tail != Tail::Empty;
        if is_stored && let Err(error) = self.restore(restored) {
            self.stage.over = true;
            self.out.event(Event::Damaged(format!("{error}: the store is damaged")));
        }
        if self.replicas.is_empty() && self.config.found && self.ring.is_none() && !self.stage.over {
            self.found();
        }
        self.tick();
    }

    /// Restores the stored state, if there is any.
    fn restore(&mut self, restored: &Restored) -> Result<(), StorageError> {
        let Some((life, keyspace)) = self.space().restore_life(&restored.meta)? else { return Ok(()) };
        self.starts.restore(self.space().restore_starts(&restored.meta)?);
        let mut stored = Vec::new();
        for namespace in 0..NAMESPACES {
            let found = self.space().namespace(namespace).restore(&restored.meta, restored.tail == Tail::Sealed)?;
            let doubt = (restored.tail == Tail::Doubtful).then(Doubt::new);
            stored.extend(found.map(|found| (namespace, Stored { doubt: found.doubt.or(doubt), ..found })));
        }
        if stored.is_empty() {
            // The node had let go of all groups, and this is a new incarnation. Records that are left over stay in their place.
            self.replicas.keyspace = keyspace;
            return Ok(());
        }
        self.replicas.keyspace = keyspace;
        if self.config.former == Some(life.incarnation) {
            self.outlive(life, stored.into_iter().map(|(namespace, stored)| (namespace, stored.state)).collect());
            return Ok(());
        }
        (self.me.incarnation, self.replicas.voted) = (life.incarnation, life.voted);
        self.starts.resume(self.space().restore_lineage(&restored.meta)?, &mut self.out);
        self.successors.kept = self.space().restore_finals(&restored.meta)?;
        for (namespace, stored) in stored {
            let seed = self.rng.draw();
            let group = Group::restore(self.group_config(), self.me, stored, self.now, seed);
            self.replicas.add_at(namespace, group);
        }
        self.replicas.restore_over(self.space().restore_over(&restored.meta)?);
        self.settle_ranges(&[]);
        self.successors.birth_wanted = true;
        self.in_ring(life.ring);
        Ok(())
    }

    /// Takes over from a stored incarnation that is over. Its chosen records are kept as a copy; none of its promises, accepted
    /// entries and received messages count for this incarnation.
    fn outlive(&mut self, life: Life, mut stored: Vec<(u8, GroupState)>) {
        let mut changes: Vec<_> =
            stored.iter().map(|(namespace, _)| self.space().namespace(*namespace).clear()).collect();
        let former = NodeId { incarnation: life.incarnation, ..self.me };
        // Of two groups that overlap, the later one owns the common part.
        stored.sort_by_key(|(_, state)| Reverse(state.epoch));
        let (mut taken, mut kept): (Vec<KeyRange>, Vec<_>) = (Vec::new(), Vec::new());
        for (_, state) in stored {
            let ranges = state.range.without(taken.iter().copied());
            taken.push(state.range);
            // A learner may have missed a purge while it copied. Another ring has other records.
            if state.is_member(former) && Some(state.ring) == self.config.ring {
                kept.push((state, ranges));
            }
        }
        self.reconfigure.preparation.keep_former(&mut context!(self), &kept);
        changes.extend([
            self.space().keyspace(&self.replicas.keyspace),
            self.space().over(&[]),
            self.space().finals(&[]),
        ]);
        self.cx().persist_own(changes);
    }

    /// Founds a new network, with this node as its first member.
    fn found(&mut self) {
        let ring = RingId(u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw()));
        let id = GroupId(u128::from(self.rng.draw()) << 64 | u128::from(self.rng.draw()));
        let timing = &self.config.timing;
        let settings = Settings {
            coarse: self.config.coarse,
            leases: self.config.leases,
            lease_ms: timing.lease.as_millis() as u64,
            drift_per_mille: timing.drift_per_mille,
            value_bytes_max: self.config.value_bytes_max as u32,
            policies: self.config.policies.agreed_on(self.config.members_min, self.config.members_max),
            horizon_ms: timing.horizon.as_millis() as u64,
        };
        let state = GroupState::founded(ring, id, self.cx().member(), settings);
        self.enter(state, true);
    }

    /// Enters the node's first group, as a newcomer or as the founder.
    pub(crate) fn enter(&mut self, state: GroupState, founds: bool) {
        let Some((keyspace, claimed)) =
            generations_for(&self.config, &self.replicas, &self.reconfigure.preparation.copies, &state, &[])
        else {
            return self.damaged("this peer has no room for another group");
        };
        let copied = self.reconfigure.preparation.copies.take(&mut self.replicas, claimed);
        if !copied.is_empty() {
            self.out.event(Event::Note("continues from the data that it held before: only changes are copied".into()));
        }
        let (ring, seed) = (state.ring, self.rng.draw());
        let config = self.group_config();
        let mut group = match founds {
            true => Group::found(config, self.me, state, self.now, seed),
            false => Group::join_holding(config, self.me, state, self.now, seed, copied),
        };
        group.set_full(self.full);
        group.set_history(self.lives.history(&self.config, self.now));
        self.replicas.keyspace = keyspace;
        self.reconfigure.preparation.end_copies(&mut context!(self));
        if self.replicas.add(group).is_none() {
            return self.damaged("this peer has no room for another group");
        }
        self.in_ring(ring);
        self.routing.join.begin_anew();
    }

    pub(crate) fn life(&self, ring: RingId) -> Life {
        Life { ring, incarnation: self.me.incarnation, voted: self.replicas.voted }
    }

    fn in_ring(&mut self, ring: RingId) {
        self.ring = Some(ring);
        if self.config.durability == Durability::Sync {
            // This comes before the group's own first batch: until that one, the node promises nothing.
            let (space, life) = (self.space(), self.life(ring));
            let lineage = space.lineage(&self.starts.lineage);
            let changes = alloc::vec![space.life(&life), space.keyspace(&self.replicas.keyspace), lineage];
            self.out.push(Output::Persist { token: 0, changes });
        }
        self.reconfigure.preparation.copies.share_memory(&mut context!(self));
        if self.config.durability == Durability::Memory || self.config.ring == Some(ring) {
            self.stage.entered = true;
            self.out.event(Event::InRing(ring));
        }
    }

    /// Handles the report that batches are durable. After the first batch, a crash finds this node in its group again. Before
    /// it, a founder that died would found another network, so it must not have told any peer of this one (hazard 41).
    fn on_persisted(&mut self, token: u64) {
        if token > 0 && !self.stage.entered {
            self.stage.entered = true;
            if let Some(ring) = self.ring {
                self.out.event(Event::InRing(ring));
            }
        }
        match self.starts.on_persisted(&mut context!(self), token) {
            Persisted::StartsAgain(why) => self.end_life(Event::StartAgain(why)),
            Persisted::JudgeHeld => self.admit_held(|_| true),
            Persisted::Nothing => {}
        }
        if let Some(own) = self.replicas.on_persisted(token) {
            self.reconfigure.preparation.on_copy_persisted(&mut context!(self), own);
            self.sweep();
        }
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

    pub(crate) fn group_config(&self) -> GroupConfig {
        let timing = group::config::Timing {
            heartbeat: self.config.timing.heartbeat,
            missed_max: self.config.timing.missed_max,
            broken_grace: self.config.timing.heartbeat / 2,
            exclude_after: self.config.timing.exclude_after,
            confirm_after: self.config.timing.exclude_after * CONFIRM_FACTOR,
            purge_every: self.config.timing.purge_every,
            ..group::config::Timing::default()
        };
        GroupConfig {
            name: self.config.name.clone(),
            timing,
            durable: self.config.durability == Durability::Sync,
            memory_bytes_max: self.config.memory_bytes_max,
            window_bytes_max: (self.config.memory_bytes_max / 8).clamp(1 << 20, 64 << 20),
            in_flight_max: 4096,
            waiting_max: 1 << 16,
            transfer_bytes_per_s: self.config.transfer_bytes_per_s,
            message_bytes_max: self.config.message_bytes_max,
            divide: divide_as_agreed,
            fatal_contradictions: self.config.fatal_contradictions,
            defects: self.config.defects,
        }
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
            return;
        }
        match input {
            Input::AdminRequest { number, .. } if self.starts.is_barred() => {
                self.out.push(Output::AdminOutcome { number, outcome: AdminOutcome::NotHere });
            }
            Input::RingWalk { number, .. } if self.starts.is_barred() => {
                self.out.push(Output::RingWalked { number, walk: RingWalk::default() });
            }
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
                if self.reconfigure.leave.force.is_none() {
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

    /// Carries out an output of a group.
    pub(crate) fn carry(&mut self, serial: u64, output: GroupOutput) {
        let Some(replica) = self.replicas.all.iter().find(|replica| replica.serial == serial) else { return };
        let (state, namespace) = (replica.group.state(), replica.namespace);
        match output {
            GroupOutput::Send(to, message, epoch) => {
                let id = state.id;
                self.cx().send_as(id, &to, message, epoch);
            }
            GroupOutput::Persist(token, durable) => {
                let namespace = self.space().namespace(namespace);
                let mut changes = Vec::with_capacity(durable.len());
                for change in durable {
                    namespace.changes(&self.replicas.keyspace, change, &mut changes);
                }
                if self.replicas.keyspace_due.take_if(|of| *of == serial).is_some() {
                    changes.extend(self.replicas.places(self.space()));
                }
                let token = self.replicas.name_batch(serial, token);
                self.out.push(Output::Persist { token, changes });
            }
            GroupOutput::Load { key, urgent } => {
                let record_key = self.space().record_key(self.replicas.keyspace.of(key.point()), &key);
                self.out.push(Output::Load { record_key, urgent });
            }
            GroupOutput::Scan(token, from, bytes_max) => {
                let walk = Walk::new(self.replicas.keyspace.parts(state.range), from, bytes_max);
                self.scan(Scan { serial, token, walk });
            }
            GroupOutput::Outcome(attempt, outcome) => {
                self.with_sessions(|sessions, ctx| sessions.on_outcome(ctx, attempt, outcome));
            }
            GroupOutput::Pass(pass) => {
                let id = state.id;
                self.harmonia.pass(&mut context!(self), serial, id, pass);
            }
            GroupOutput::Complete { ballot, switch, number } => {
                let id = state.id;
                self.harmonia.complete(&mut context!(self), id, ballot, switch, number);
            }
            GroupOutput::Read(name, answer) => {
                if let Some(request) = self.harmonia.on_spread(&mut context!(self), name, answer) {
                    self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
                }
            }
            GroupOutput::Changed => self.on_changed(serial),
            GroupOutput::Left => self.successors.departed.push((serial, None)),
            GroupOutput::Over(why) => self.successors.departed.push((serial, Some(self.reincarnates(why)))),
            GroupOutput::Lost(why) => self.successors.departed.push((serial, Some(Event::Damaged(why.into())))),
            GroupOutput::Halted(why) => {
                let id = state.id;
                self.out.event(Event::Alarm(format!("stops serving {}: {why}", id.called())));
                if self.stage.ready && self.replicas.home().is_some_and(|home| home.state().id == id) {
                    self.stage.ready = false;
                    self.out.event(Event::NotReady);
                }
            }
            GroupOutput::Envelope(envelope) => self.send_envelope(*envelope),
            GroupOutput::Ended => {
                self.successors.birth_wanted = true;
                self.follow_admin_requests();
            }
            GroupOutput::Note(text) => self.out.event(Event::Note(format!("{}: {text}", state.id.called()))),
        }
    }

    /// Goes on to drop records that no group here owns any more.
    fn sweep(&mut self) {
        if let Some(page) = self.replicas.go_on_sweeping(self.now.time, self.stage.over) {
            self.scan(page);
        }
    }

    /// Reads the store for a group, or for the node itself.
    pub(crate) fn scan(&mut self, scan: Scan) {
        match scan.walk.next(self.space()) {
            Some(from) => {
                let bytes_max = scan.walk.bytes_max;
                let token = self.replicas.name_scan(scan);
                self.out.push(Output::Scan { token, from, bytes_max });
            }
            None => self.scanned(scan, Vec::new(), true),
        }
    }

    fn scanned(&mut self, scan: Scan, records: Vec<(Key, Bytes)>, done: bool) {
        if scan.serial == 0 {
            let changes = self.replicas.drop_leftovers(self.now.time, self.space(), records, done);
            if !changes.is_empty() {
                self.cx().persist_own(changes);
            }
            return;
        }
        let mut decoded = Vec::with_capacity(records.len());
        for (key, value) in records {
            match storage::decode_record(&value) {
                Ok(record) => decoded.push((key, record)),
                Err(error) => return self.damaged(&error.to_string()),
            }
        }
        if let Some(replica) = self.replicas.all.iter_mut().find(|replica| replica.serial == scan.serial) {
            replica.group.on_scanned(scan.token, decoded, done);
        }
    }

    pub(crate) fn with_sessions(&mut self, act: impl FnOnce(&mut Sessions, &mut SessionContext<'_>)) {
        let mut own_replies = Vec::new();
        let mut ctx = SessionContext {
            now: self.now,
            replicas: &mut self.replicas,
            routing: &mut self.routing.table,
            outputs: &mut self.out.queue,
            own_replies: &mut own_replies,
            answered: &mut self.answered,
            harmonia: &mut self.harmonia,
            switch: self.config.switch,
            me: self.me,
        };
        act(&mut self.sessions, &mut ctx);
        for (requester, result) in own_replies {
            match requester {
                Requester::Probe => self.on_probe_answered(result.is_ok()),
                Requester::ScheduledRead(name) => {
                    self.harmonia.answer_question(&mut context!(self), name, result.as_ref().ok())
                }
                Requester::Client(_) => unreachable!("clients are answered through the outputs"),
            }
        }
    }

    /// Handles the answer to the node's own probe, which shows whether the node can serve.
    fn on_probe_answered(&mut self, served: bool) {
        self.probe_patience = if served { ASK_AGAIN } else { (self.probe_patience * 2).min(PROBE_PATIENCE_MAX) };
        if served && !self.stage.ready {
            self.stage.ready = true;
            self.out.event(Event::Ready);
        }
    }

    fn routecast(&mut self, request: Request) {
        if self.starts.is_barred() {
            return self.reply(request.id, Err(OpError::TryAgain(Refusal::NotInGroup)));
        }
        if self.stage.stopping.is_some() && self.replicas.living().all(Group::is_idle) {
            let error = OpError::TryAgain(Refusal::Stopping);
            self.reply(request.id, Err(error));
            return;
        }
        self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
    }

    /// Handles a packet that came through a switch.
    fn on_packet(&mut self, from: ReplyTo, bytes: &[u8]) {
        match self.harmonia.on_packet(&mut context!(self), from, bytes) {
            Some(ForSessions::Submit(request)) => self.with_sessions(|sessions, ctx| sessions.submit(ctx, request)),
            Some(ForSessions::Answer(header, outcome)) => {
                self.with_sessions(|sessions, ctx| sessions.on_spread(ctx, &header, outcome));
            }
            None => {}
        }
    }

    fn on_loaded(&mut self, record_key: &[u8], record: Option<&[u8]>) {
        let Some((generation, key)) = self.space().key_of(record_key) else { return };
        if self.replicas.keyspace.of(key.point()) != generation {
            return; // A group that is over asked for it.
        }
        match record.map(storage::decode_record).transpose() {
            Ok(record) => {
                match self.replicas.at_mut(key.point()) {
                    Some(group) => group.on_loaded(&key, record),
                    // The groups that succeed an ended group count on its loads.
                    None => self.replicas.over_at(key.point()).for_each(|group| group.on_loaded(&key, record.clone())),
                }
            }
            Err(error) => self.damaged(&error.to_string()),
        }
    }

    fn on_scanned(&mut self, token: u64, records: Vec<(Bytes, Bytes)>, done: bool) {
        let Some(mut scan) = self.replicas.take_scan(token) else { return };
        match scan.walk.page(self.space(), records, done) {
            Some((records, done)) => self.scanned(scan, records, done),
            None => self.scan(scan),
        }
    }

    /// Ends this incarnation because of damage. Damage is *unknown*, never *empty*.
    pub(crate) fn damaged(&mut self, what: &str) {
        self.replicas.each(Group::on_store_failed);
        self.end_life(Event::Damaged(what.to_string()));
    }

    /// Returns the event of an incarnation whose group went on without it.
    pub(crate) fn reincarnates(&self, why: &str) -> Event {
        Event::Reincarnate { why: why.to_string(), former: self.me.incarnation }
    }

    /// Returns the reason against leaving now, as far as this node knows; `None` if there is none, or if it leaves
    /// already.
    pub fn refuses_leave(&self, force: bool) -> Option<LeaveRefusal> {
        self.reconfigure.leave.refusal(&self.stage, &self.replicas, self.ring, force)
    }

    /// Begins to leave for good, unless the node stops.
    fn leave(&mut self, force: bool) {
        if self.stage.stopping.is_some() {
            return;
        }
        if self.reconfigure.leave.begin(&mut context!(self), force) {
            self.left();
        }
        self.reconfigure.leave.tell(&mut context!(self));
    }

    /// Ends the leave: the node is not needed any more.
    pub(crate) fn left(&mut self) {
        if self.stage.over {
            return;
        }
        self.reconfigure.leave.note_left();
        self.end_life(Event::Left);
    }

    /// Begins a transaction of its own group, at once or once it is prepared.
    ///
    /// # Errors
    /// The transaction cannot begin now, or not at all; no transaction has begun.
    pub fn begin_transaction(&mut self, operation: GroupTransaction) -> Result<(), BeginRefusal> {
        self.reconfigure.preparation.begin_own(&mut context!(self), operation)
    }

    /// Ends this incarnation, with this event.
    pub(crate) fn end_life(&mut self, why: Event) {
        self.stage.over = true;
        self.stage.ready = false;
        self.requests.end_all(&mut context!(self));
        self.with_sessions(Sessions::stop);
        self.out.event(why);
    }

    /// Handles a change of a group's state: other peers may have to be reached, and operations may have to go elsewhere.
    fn on_changed(&mut self, serial: u64) {
        let Some(replica) = self.replicas.all.iter().find(|replica| replica.serial == serial) else { return };
        let group = &replica.group;
        let all = group.state().members.iter().chain(&group.state().learners);
        for member in all.filter(|member| member.node.peer != self.me.peer && !member.addresses.is_empty()) {
            let (peer, addresses) = (member.node.peer, member.addresses.clone());
            self.out.push(Output::Dial { peer, addresses });
        }
        if self.routing.table.learn_neighbours(&mut context!(self), serial) {
            self.routing.table.look_soon(&mut context!(self));
        }
        self.lives.time_changes(&mut context!(self));
        self.follow_admin_requests();
        self.with_sessions(Sessions::on_division);
        self.routing.table.answer_anew(&mut context!(self));
        self.reconfigure.leave.tell(&mut context!(self));
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
        if !self.replicas.is_empty() && !self.stage.ready && self.now.time >= self.probe_due {
            self.probe_due = self.now.time + self.probe_patience;
            self.probe();
        }
        self.reconfigure.leave.tell(&mut context!(self));
        self.tick_stopping();
    }

    /// Ends a stopping node once it has nothing left to wait for.
    fn tick_stopping(&mut self) {
        if let Some(since) = self.stage.stopping {
            // No client waits for the node's own probe.
            let idle = self.replicas.living().all(Group::is_idle) && self.sessions.is_empty_but(Requester::Probe);
            let stays = if self.replicas.living().any(Group::stops_together) { SETTLE } else { Duration::ZERO };
            let waited = self.now.time.since(since);
            if idle && waited >= stays || waited >= HAND_OVER_MAX {
                self.stage.over = true;
                self.requests.end_all(&mut context!(self));
                self.with_sessions(Sessions::stop);
                self.out.event(Event::Stopped);
            }
        }
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

    /// Submits a read to itself, as a client might.
    fn probe(&mut self) {
        let Some(range) = self.replicas.home().map(|group| group.state().range) else { return };
        let key = match self.probe_key.take() {
            Some(key) if range.contains(key.point()) => key,
            _ => probe_key(range),
        };
        self.probe_key = Some(key.clone());
        let request = Request {
            id: Requester::Probe.id(),
            connection: Requester::Probe.connection(),
            key,
            op: Op::Read(Read::Exists),
            mode: ReadMode::Linearizable,
            patience: self.probe_patience,
            once: None,
        };
        self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
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
            (false, false) => next.min(self.probe_due),
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
            next = next.min(self.now.time + ASK_AGAIN / 10);
        }
        // A timeout is never in the past, and not so soon that it leaves no time for other work.
        next.max(self.now.time + Duration::from_millis(1))
    }

    fn reply(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        self.answered += 1;
        self.out.push(Output::Reply { id, result });
    }
}

/// Returns a key in this range; the empty one where none is found.
fn probe_key(range: KeyRange) -> Key {
    let empty = Key::new(b"").expect("a key may be empty");
    let numbered = (0..PROBE_KEYS_MAX).filter_map(|number| Key::new(&number.to_be_bytes()).ok());
    let found = core::iter::once(empty.clone()).chain(numbered).find(|key| range.contains(key.point()));
    found.unwrap_or(empty)
}

#[cfg(test)]
#[path = "node_test.rs"]
mod tests;
