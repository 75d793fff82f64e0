//! Interface of a member beside messages and time: questions of its node, of policies and of checks, and notices and operations of its
//! node.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use overlay::{GroupId, KeyRange, NodeId, PeerKey, Point};

use crate::ballot::TermBallot;
use crate::control::capacity::Believed;
use crate::control::health::{Health, LivingMember};
use crate::control::history::History;
use crate::control::log::Log;
use crate::control::recovery::doubt::{Doubt, InDoubt};
use crate::control::state::{EpochConfig, GroupState};
use crate::data::table::Table;
use crate::data::{Acceptor, CatchUpStatus, Primary};
use crate::group::Group;
use crate::harmonia::ReturnedWrite;
use crate::harmonia::read_scheduler::SpreadRead;
use crate::lend::{context, facts, local};
use crate::message::{AttemptOutcome, ClientOperation, Message, Parting};
use crate::op::{Limit, ReadMode};
use crate::outbox::{Attempt, BatchToken};
use crate::transaction::plan::Rank;
use crate::transaction::successor::handover::Handover;
use crate::validate::Dropped;
use crate::watched::Watched;
use overlay::time::WallMillis;

impl Group {
    /// Returns the agreed state.
    pub fn state(&self) -> &GroupState {
        &self.state
    }

    /// Returns this node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Returns the leader, if known.
    pub fn leader(&self) -> Option<NodeId> {
        self.log.leader()
    }

    /// Returns the log, for checks.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns this node's acceptor, for checks.
    pub fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    /// Returns this node's primaries.
    pub fn primaries(&self) -> impl Iterator<Item = &Primary> {
        self.primaries.all()
    }

    /// Returns the counts of dropped messages since the start, by reason.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Returns whether all decisions of this node so far are durable. Its later decisions never are once it stores no more
    /// ([`Group::has_lost`], [`Group::halted`]).
    pub fn is_durable(&self) -> bool {
        !self.out.is_closed() && self.out.batches_waiting() == 0 && !self.out.has_changes()
    }

    /// Notes values chosen, accepted, applied and answered alone from now on, for checks; returns those noted so far. While something is on
    /// its way to the store, it returns only those of the log and of answers: a crash may lose the rest, and no node was told of it.
    pub fn watch(&mut self) -> Watched {
        let durable = self.is_durable();
        Watched {
            chosen: if durable { self.table.watch() } else { Vec::new() },
            accepted: if durable { self.out.watch() } else { Vec::new() },
            applied: self.events.take(),
            alone: self.reads.watched.replace(Vec::new()).unwrap_or_default(),
            moved: durable && self.events.has_moved(&self.state),
        }
    }

    /// Returns the chosen records in memory.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the status of catching up.
    pub fn catch_up(&self) -> Vec<CatchUpStatus> {
        self.acceptor.catch_up_status()
    }

    /// Returns whether it is still finding out whether its store lost anything.
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_asking()
    }

    /// Returns the number of tombstones that it dropped since its start.
    pub fn purged(&self) -> u64 {
        self.purging.dropped
    }

    /// Returns the number of peers that wait to be admitted; only the leader knows it.
    pub fn waiting_to_join(&self) -> usize {
        self.leader.membership.joiners()
    }

    /// Returns the other nodes that are alive, as far as this node can tell.
    pub fn hears(&self) -> Vec<NodeId> {
        self.liveness.hears(facts!(self))
    }

    /// Returns whether a majority of the members, this one included, sent heartbeats to the group within the failure detection interval.
    ///
    /// Stricter than [`Group::hears_majority`]: a former member may still answer messages to the group.
    pub fn has_heartbeats_of_majority(&self) -> bool {
        self.liveness.has_heartbeats_of_majority(facts!(self))
    }

    /// Returns the group time.
    pub fn group_time(&self) -> WallMillis {
        self.liveness.group_time(self.now.time)
    }

    /// Returns the ballot of the primary that executes operations on this point now.
    pub fn primary_of(&self, point: Point) -> Option<TermBallot> {
        let part = self.state.assignment(point)?;
        Some(TermBallot { epoch: self.state.epoch, term: part.term, node: part.node })
    }

    /// Returns whether a member that stops has nothing left to wait for: every sub-range of its own that another member can take over is
    /// handed over, and every batch is durable.
    pub fn is_idle(&self) -> bool {
        let is_primary = self.state.division.iter().any(|part| part.node == self.me);
        !(is_primary && self.liveness.has_successor(facts!(self))) && self.out.batches_waiting() == 0
    }

    /// Returns whether it hears a majority, and all other heard members stop as well.
    pub fn stops_together(&self) -> bool {
        self.liveness.stops_together(facts!(self))
    }

    /// Returns whether this node and the nodes that it hears are a majority of the members.
    pub fn hears_majority(&self) -> bool {
        self.liveness.hears_majority(facts!(self))
    }

    /// Returns the members that leave, and whether they insist.
    pub fn leaving(&self) -> Vec<(NodeId, bool)> {
        self.liveness.leaving(facts!(self))
    }

    /// Returns the departure that a member last announced, in any epoch; [`Parting::Stays`] before its first heartbeat.
    pub fn last_parting(&self, node: NodeId) -> Parting {
        self.liveness.last_parting(node)
    }

    /// Returns for how long a member has lived as one, in group time, without the times in which this node did not hear it. An age survives
    /// a restart of the member's process, and a removal after which the peer returns soon.
    pub fn age_of(&self, node: NodeId) -> Duration {
        self.liveness.age_of(facts!(self), node)
    }

    /// Returns how long a member that could lead waits for a majority; `None` where unknown.
    pub fn agreement_of(&self, node: NodeId) -> Option<Duration> {
        self.liveness.agreement_of(facts!(self), node)
    }

    /// Returns the round trip between each two members, in the order of the members: `[a][b]` is the one between `a` and `b`, zero for a
    /// member and itself, `None` where unknown. Round trips of this node are averages. Those of other members are single measurements, as
    /// old as a heartbeat; drifting clocks falsify them by at most their drift in the time between two heartbeats.
    pub fn round_trips(&self) -> Vec<Vec<Option<Duration>>> {
        self.liveness.round_trips(facts!(self))
    }

    /// Returns the history in a member's last heartbeat; `None` where the member has no history, or was not heard yet.
    pub fn told_history(&self, node: NodeId) -> Option<History> {
        self.liveness.told_history(self.me, node)
    }

    /// Returns the operations a second that a member reported it can execute; `None` where its last heartbeat has no such report.
    pub fn told_capacity(&self, node: NodeId) -> Option<u32> {
        self.workload.capacities.told(self.me, &self.liveness, node)
    }

    /// Returns the highest rate, in operations a second on the average of ten seconds, at which this member saw a member execute as a
    /// primary: writes that it was sent, and confirmations of reads, each of which may stand for several.
    pub fn seen_capacity(&self, node: NodeId) -> u32 {
        self.workload.capacities.most_seen(node)
    }

    /// Returns a member's capacity for this node's decisions; `None` where too little is known.
    pub fn believed_capacity(&self, node: NodeId) -> Option<Believed> {
        self.workload.capacities.believed(node)
    }

    /// Returns the operations a second that the living members can execute together; `None` where the capacity of one of them is not known.
    pub fn capacity(&self) -> Option<u32> {
        self.workload.capacities.of(&self.living())
    }

    /// Returns the operations of other primaries in which this member has taken part since its start: writes that it was sent, and reads
    /// that it confirmed.
    pub fn operations_assisted(&self) -> u64 {
        self.workload.capacities.assisted()
    }

    /// Returns the operations a minute in each of [`CELLS`] equal pieces of the range, of all primaries together; `None` where one of them
    /// has not reported yet.
    ///
    /// [`CELLS`]: crate::control::load::CELLS
    pub fn load(&self) -> Option<Vec<u32>> {
        self.workload.load(facts!(self), &self.liveness)
    }

    /// Returns the number of operations that have come to this node as a primary.
    pub fn operations_taken(&self) -> u64 {
        self.workload.operations_taken()
    }

    /// Returns the operations a minute that come to this node as a primary; `None` where it does not know yet.
    pub fn own_load(&self) -> Option<u64> {
        self.workload.own_load(facts!(self))
    }

    /// Returns the approximate bytes of the records in each of [`CELLS`] equal pieces of the range. Records that only the store has do not
    /// count: the recently used ones in memory stand for them.
    ///
    /// [`CELLS`]: crate::control::load::CELLS
    pub fn bytes_by_cell(&self) -> Vec<u64> {
        self.table.bytes_by_cell(self.state.range)
    }

    /// Returns the run of this peer that began last, as far as this group was told.
    pub fn newest_run(&self, peer: PeerKey) -> Option<u64> {
        self.recovery.acknowledgements.newest_run(peer)
    }

    /// Returns the doubt of this member, if any.
    pub fn doubt(&self) -> Option<Doubt> {
        self.recovery.doubt()
    }

    /// Returns the members in doubt, and the members that the group waits for because of them.
    pub fn in_doubt(&self) -> InDoubt {
        self.recovery.in_doubt(facts!(self), &self.liveness)
    }

    /// Returns the members of one configuration in doubt about its epoch, and those of its members that the group waits for because of
    /// them.
    pub fn in_doubt_of(&self, config: &EpochConfig) -> InDoubt {
        self.recovery.in_doubt_of(facts!(self), &self.liveness, config)
    }

    /// Returns the doubt with which this process must start again, where other members know a start of it that its store does not. The
    /// process was in doubt before in this run, and was compared with the other members' knowledge of that time. But the unknown start may
    /// be that of a copy of its store, which they have learned of since. So from now on the store may lack any acknowledgement of any
    /// epoch, until all members have answered again. `None` where the store was whole when this process started, or where tombstones were
    /// purged since the comparison: a copy may have reported in its place that it holds them, and no other member does any more.
    pub fn doubt_as_older(&self) -> Option<Doubt> {
        if self.failed { None } else { self.recovery.doubt_as_older(facts!(self)) }
    }

    /// Returns whether this incarnation is over because data is lost that it held or that other nodes count on. The store has nothing that
    /// happened since, so a later start finds the same.
    pub fn has_lost(&self) -> bool {
        self.failed && self.out.is_closed() && self.out.halted().is_none()
    }

    /// Returns the handovers of this node's primaries, since the division named these.
    pub fn handovers(&self) -> &[Handover] {
        self.handovers.all()
    }

    /// Returns the members that live: those that were not silent for [`Timing::exclude_after`], or with an announced absence that is not
    /// over.
    ///
    /// [`Timing::exclude_after`]: crate::config::Timing::exclude_after
    pub fn living(&self) -> Vec<LivingMember> {
        self.leader.membership.living(facts!(self), &self.liveness)
    }

    /// Returns the number of living members and of learners that are about to become members: those that are heard and hold all that was
    /// chosen before the current terms. A learner of a peer that has a living member here replaces that member, and does not count.
    pub fn strength(&self) -> usize {
        self.leader.strength(facts!(self), &self.liveness)
    }

    /// Returns whether the next step of the group's own log removes dead members. A transaction with a neighbour should wait for that.
    pub fn is_about_to_remove(&self) -> bool {
        self.leader.membership.is_about_to_remove(facts!(self), &self.liveness)
    }

    /// Returns the health of the successor group as its leader recently reported it, with that group's range. `None` where its leader
    /// reported nothing recently, or where this node does not lead.
    pub fn successor_health(&self) -> Option<(KeyRange, &Health)> {
        self.log.leads().then_some(())?;
        self.transactions.health_of(self.state.transactions.successor()?, self.now.time)
    }

    /// Returns the configurations without whose majorities no operation is answered in some sub-range: the group's own, and former ones
    /// that recovery asks there, unless this member or one that it hears has reported that it stores everything that they did.
    pub fn needed_configs(&self) -> Vec<EpochConfig> {
        self.leader.needed_configs(facts!(self), &self.liveness)
    }

    /// Returns whether the group before this one has reported its state since it was asked.
    pub fn hears_predecessor(&self) -> bool {
        self.transactions.hears_predecessor(&self.state)
    }

    /// Returns whether both neighbours know this group's present state; `None`: only the leader can tell.
    pub fn is_known_to_neighbours(&self) -> Option<bool> {
        self.transactions.is_known_to_neighbours(&self.state, &self.log)
    }

    /// Returns the rank of a transaction that begins now, in group time.
    pub fn rank(&self, tried: u32) -> Rank {
        Rank::new(tried, self.group_time())
    }

    /// Returns the reason why this member serves the group no more, where a peer contradicted a chosen value.
    pub fn halted(&self) -> Option<&str> {
        self.out.halted()
    }
}

/// Notices of the node.
impl Group {
    /// Sets the addresses of this node; the leader is told until the agreed state has them.
    pub fn set_addresses(&mut self, addresses: Vec<alloc::string::String>) {
        self.leader.set_addresses(addresses);
        self.liveness.hurry_heartbeat(self.now.time);
    }

    /// Sets this peer's own history, for its heartbeats; `None` where it has none. More than [`FAILURES_MAX`] failures count as that
    /// number.
    ///
    /// [`FAILURES_MAX`]: crate::control::history::FAILURES_MAX
    pub fn set_history(&mut self, history: Option<History>) {
        self.liveness.set_history(history);
    }

    /// Sets how many operations a second this node can execute, for its heartbeats; `None` where unknown. More than [`CAPACITY_MAX`] counts
    /// as that, and 0 as 1.
    ///
    /// [`CAPACITY_MAX`]: crate::control::capacity::CAPACITY_MAX
    pub fn set_capacity(&mut self, ops_per_s: Option<u32>) {
        self.workload.capacities.set_own(ops_per_s);
    }

    /// Sets the members' capacities for decisions. Replaces earlier ones; empty where too little is known.
    pub fn expect_capacities(&mut self, believed: BTreeMap<NodeId, Believed>) {
        self.workload.capacities.expect(believed);
    }

    /// Notes that this peer has begun a run that was not known to have begun. No message of that run has come to this node, except those
    /// that the present run of this node will see. Call it before any message of the peer's run is handed in, and only once for each run of
    /// the peer, regardless of what was known of that run before this node began. An answer of an earlier run is asked for again. `run` is
    /// the number that the run drew; never 0.
    pub fn on_new_run(&mut self, peer: PeerKey, run: u64) {
        self.recovery.on_new_run(peer, run);
        self.leader.forget_progress(peer);
    }

    /// Notes that the store lacks more than its torn end, as other members know: it may be older by any number of epochs. Their answers so
    /// far were compared with a store that only lacks its end, so they are asked again. Returns the new doubt, which is to be durable
    /// before this member sends anything under a later start.
    pub fn on_store_older(&mut self) -> Option<Doubt> {
        self.recovery.on_store_older(&mut context!(self))
    }

    /// Notes that a peer's last connection closed.
    pub fn on_broken(&mut self, peer: PeerKey) {
        self.liveness.on_broken(peer, self.now.time);
    }

    /// Sets the limit of its records in memory, in bytes.
    pub fn set_memory(&mut self, bytes_max: usize) {
        self.table.set_bytes_max(bytes_max);
    }

    /// Notes that the store has little room left, for this reason, or enough again (`None`). While it has little, this member accepts
    /// writes of other primaries and refuses clients' writes that need room, and a member with room becomes primary instead.
    pub fn set_full(&mut self, limit: Option<Limit>) {
        self.room.store_full = limit;
        self.tick();
    }

    /// Notes whether the store has much left to write behind its journal. Clients' writes would wait for it in the end: copied records make
    /// way for them.
    pub fn on_store_behind(&mut self, behind: bool) {
        self.acceptor.set_store_behind(behind);
    }

    /// Admits no newcomer for this time; newcomers that ask wait. A transaction begins only while the group has no learners: if peers die
    /// and are replaced all the time, a group that should split might never begin to.
    pub fn hold_joiners(&mut self, time: Duration) {
        self.leader.membership.hold_joiners(self.now.time + time);
    }

    /// Sets the expected remaining lives of members for the division policy: their median residual lives, for example. The policy only
    /// compares them. Replaces earlier values; empty where nothing is known.
    pub fn expect_lives(&mut self, residuals: BTreeMap<NodeId, Duration>) {
        self.leader.expect_lives(residuals);
    }

    /// Begins to leave for good; [`crate::outbox::GroupOutput::Left`] reports that this node is not needed any more. `force`: even where fewer than three
    /// members remain.
    pub fn leave(&mut self, force: bool) {
        self.part(Parting::Leaves { force });
    }

    /// Begins to hand everything over: this node is about to stop, and expects to be back within `away`.
    pub fn stop_soon(&mut self, away: Duration) {
        self.part(Parting::Stops { away_ms: away.as_millis() as u64 });
    }

    /// Notes that the store has everything up to this token.
    pub fn on_persisted(&mut self, token: BatchToken) {
        if !self.failed {
            self.out.persisted(token);
        }
    }

    /// Notes that the store failed: this incarnation votes no more (hazard 4).
    pub fn on_store_failed(&mut self) {
        self.failed = true;
        self.primaries.end_all(&mut context!(self));
    }

    /// Sends a message to another node of the group.
    pub fn say(&mut self, to: NodeId, message: Message) {
        self.out.send(&[to], message);
    }

    /// Announces a departure.
    pub(crate) fn part(&mut self, parting: Parting) {
        self.liveness.announce(parting, self.now.time);
        self.tick();
    }
}

/// Operations of clients, reads and writes that a switch sends, and handovers.
impl Group {
    /// Has another node execute this. Its outcome is a [`crate::outbox::GroupOutput::Outcome`], unless it is lost.
    pub fn ask(&mut self, primary: NodeId, operation: ClientOperation) {
        self.out.ask(primary, operation);
    }

    /// Executes an operation of this node's clients, or of another node's. It leads to one [`AttemptOutcome`], or counts as lost.
    pub fn operate(&mut self, origin: NodeId, operation: ClientOperation) {
        let attempt = Attempt { origin, attempt: operation.attempt };
        if self.halted().is_some() {
            return self.out.outcome(attempt, AttemptOutcome::NotPrimary);
        }
        let (ctx, local) = (&mut context!(self), &mut local!(self));
        if operation.mode == ReadMode::Relaxed && operation.ballot.is_none() {
            return self.reads.read_relaxed(ctx, local, attempt, operation);
        }
        self.primaries.execute(ctx, local, &self.recovery, &mut self.workload.meter, attempt, operation);
    }

    /// Answers a read from this member's own chosen records, where it may: [`crate::outbox::GroupOutput::Read`], at once or when the record is loaded.
    /// `None` leaves the answer to the primary.
    pub fn read_spread(&mut self, read: SpreadRead) {
        let serves = self.serves();
        self.reads.read_spread(&mut context!(self), &mut local!(self), serves, read);
    }

    /// Takes a write that came back from the switch.
    pub fn on_passed(&mut self, ballot: TermBallot, passed: &ReturnedWrite) {
        if let Some(primary) = self.primaries.get_mut(ballot) {
            primary.on_passed(&mut context!(self), &mut local!(self), passed);
        }
    }

    /// Takes a handover of a primary of a group that this one may be born of.
    pub fn on_handover(&mut self, group: GroupId, handover: &Handover) {
        let (ctx, local) = (&mut context!(self), &mut local!(self));
        self.handovers.on_handover(ctx, local, &mut self.primaries, group, handover);
    }
}
