//! Life of a node: its entry into a ring, from its store, as the founder of a network, or as a newcomer; and its end.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use group::control::state::{GroupState, Settings};
use group::{Doubt, Group, Stored};
use overlay::{GroupId, KeyRange, NodeId, RingId};

use crate::api::{Event, Output};
use crate::config::{Durability, Restored, Tail};
use crate::context::context;
use crate::node::Node;
use crate::replicas::births::generations_for;
use crate::replicas::storage::{Life, NAMESPACES, StorageError};
use crate::sessions::Sessions;
use crate::sessions::requester::Requester;

/// Upper limit of the time for which a stopping node waits for other members to take its sub-ranges, where there are members
/// that can.
const HAND_OVER_MAX: Duration = Duration::from_secs(4);
/// Time for which a node stays that stops together with all other members, which may still need its votes for entries that they
/// accepted.
pub(crate) const SETTLE: Duration = Duration::from_millis(300);

impl Node {
    /// Begins with the stored state; without one, a founder founds its network.
    pub(crate) fn begin(&mut self, restored: &Restored) {
        let is_stored = self.config.durability == Durability::Sync && restored.tail != Tail::Empty;
        if is_stored && let Err(error) = self.restore(restored) {
            self.stage.over = true;
            self.out.event(Event::Damaged(format!("{error}: the store is damaged")));
        }
        if self.replicas.is_empty() && self.config.found && self.ring.is_none() && !self.stage.over {
            self.found();
        }
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
            let group = Group::restore(self.config.group_config(), self.me, stored, self.now, seed);
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
        let config = self.config.group_config();
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

    /// Begins to leave for good, unless the node stops.
    pub(crate) fn leave(&mut self, force: bool) {
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

    /// Ends a stopping node once it has nothing left to wait for.
    pub(crate) fn tick_stopping(&mut self) {
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

    /// Ends this incarnation because of damage. Damage is *unknown*, never *empty*.
    pub(crate) fn damaged(&mut self, what: &str) {
        self.replicas.each(Group::on_store_failed);
        self.end_life(Event::Damaged(what.to_string()));
    }

    /// Returns the event of an incarnation whose group went on without it.
    pub(crate) fn reincarnates(&self, why: &str) -> Event {
        Event::Reincarnate { why: why.to_string(), former: self.me.incarnation }
    }

    /// Ends this incarnation, with this event.
    pub(crate) fn end_life(&mut self, why: Event) {
        self.stage.over = true;
        self.stage.ready = false;
        self.requests.end_all(&mut context!(self));
        self.with_sessions(Sessions::stop);
        self.out.event(why);
    }
}
