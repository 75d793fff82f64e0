//! Start of a member: it founds a network, joins a group, or continues with its stored state.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Epoch, IntervalMap, Key, NodeId};

use crate::ballot::{Ballot, LogSlot, Term, TermBallot};
use crate::config::{Defect, GroupConfig};
use crate::control::leader::LeaderState;
use crate::control::liveness::Liveness;
use crate::control::load::Workload;
use crate::control::log::{Log, LogAcceptor};
use crate::control::purge::{PURGE, Purging};
use crate::control::recovery::Recovery;
use crate::control::recovery::doubt::Doubt;
use crate::control::room::Room;
use crate::control::seal::Seal;
use crate::control::state::{Entry, GroupState};
use crate::control::state_exchange::StateExchange;
use crate::data::Acceptor;
use crate::data::operations::Primaries;
use crate::data::own_reads::OwnReads;
use crate::data::preload::{PRELOAD, Preload};
use crate::data::table::Table;
use crate::group::Group;
use crate::lend::context;
use crate::message::Write;
use crate::number_set::NumberSet;
use crate::outbox::{CommitteeHead, Durable, Outbox, ScanToken};
use crate::record::Record;
use crate::transaction::member::Transactions;
use crate::transaction::successor::handover::Handovers;
use crate::validate::Dropped;
use crate::watched::AppliedEvents;
use overlay::rng::Rng;
use overlay::time::Now;

/// Stored data of a group.
#[derive(Clone, Debug)]
pub struct Stored {
    /// State of the group.
    pub state: GroupState,
    /// Promise in the log, with its epoch.
    pub log_promised: Option<(Epoch, Ballot)>,
    /// Accepted entries of the log.
    pub log_accepted: BTreeMap<LogSlot, (Ballot, Entry)>,
    /// Promises to primaries.
    pub promises: Option<IntervalMap<Option<TermBallot>>>,
    /// Committees: the fixed part, the received numbers and the chosen mark of each.
    pub committees: Vec<(CommitteeHead, NumberSet, Option<u64>)>,
    /// Unsettled writes by term.
    pub unsettled: BTreeMap<Term, Vec<Write>>,
    /// Whether there are no records.
    pub empty: bool,
    /// Whether a clean stop sealed the store. The store may still be an older copy.
    pub sealed: bool,
    /// Doubt: acknowledged data may be missing.
    pub doubt: Option<Doubt>,
}

impl Stored {
    /// Returns the data without promises and accepted values.
    fn forgotten(self) -> Stored {
        Stored {
            log_promised: None,
            log_accepted: BTreeMap::new(),
            promises: None,
            committees: Vec::new(),
            unsettled: BTreeMap::new(),
            sealed: true,
            ..self
        }
    }
}

impl Group {
    /// Creates the first member of the first group of a new network.
    pub fn found(config: GroupConfig, me: NodeId, state: GroupState, now: Now, seed: u64) -> Group {
        let mut group = Group::start(config, me, state, now, seed, None);
        // No other node can have granted or promised anything.
        group.recovery.begin_first_run();
        group.begin();
        group
    }

    /// Creates a newcomer from a state that names it.
    pub fn join(config: GroupConfig, me: NodeId, state: GroupState, now: Now, seed: u64) -> Group {
        Group::join_holding(config, me, state, now, seed, Vec::new())
    }

    /// Creates a newcomer with copied chosen records. Each table is of another part of the range, on one side of point zero. The records
    /// count for nothing until they were compared.
    pub fn join_holding(
        config: GroupConfig,
        me: NodeId,
        state: GroupState,
        now: Now,
        seed: u64,
        copied: Vec<Table>,
    ) -> Group {
        let born = state.born;
        let mut group = Group::start(config, me, state, now, seed, None);
        copied.into_iter().for_each(|table| group.table.add(table));
        group.preload = Preload::new(!group.table.is_whole());
        group.recovery.begin_first_run();
        // In this incarnation it may have been a primary of an earlier group here, and have executed operations that come once more.
        group.primaries = Primaries::forgotten_up_to(Epoch(born.0.saturating_sub(1)));
        group.begin();
        group
    }

    /// Creates a member from stored data, with the same incarnation. It votes once the other members have vouched that nothing is missing.
    pub fn restore(config: GroupConfig, me: NodeId, stored: Stored, now: Now, seed: u64) -> Group {
        let state = stored.state.clone();
        let mut group = Group::start(config, me, state, now, seed, Some(stored));
        group.begin();
        group
    }

    pub(crate) fn start(
        config: GroupConfig,
        me: NodeId,
        state: GroupState,
        now: Now,
        seed: u64,
        stored: Option<Stored>,
    ) -> Group {
        let quiet_until = Acceptor::quiet_after(now.time, &state.settings);
        let (durable, memory, confirm_after) = (config.durable, config.memory_bytes_max, config.timing.confirm_after);
        let stored = match stored {
            Some(stored) if config.defects.has(Defect::Amnesia) => Some(stored.forgotten()),
            stored => stored,
        };
        let whole = stored.as_ref().is_none_or(|stored| stored.empty);
        let doubt = stored.as_ref().and_then(|stored| stored.doubt);
        let doubt = doubt.filter(|_| !config.defects.has(Defect::DoubtForgotten));
        let recovery = Recovery::new(stored.is_some(), doubt, &state, config.defects, now.time);
        let (log, acceptor) = match stored {
            None => (Log::new(LogAcceptor::default()), Acceptor::new(quiet_until)),
            Some(stored) => {
                let promised = stored.log_promised.filter(|(epoch, _)| *epoch == state.epoch).map(|(_, ballot)| ballot);
                let accepted = stored.log_accepted.into_iter().filter(|(slot, _)| *slot > state.applied).collect();
                (
                    Log::new(LogAcceptor::restored(promised, accepted)),
                    Acceptor::restored(quiet_until, stored.promises, stored.committees, stored.unsettled),
                )
            }
        };
        let purging = Purging::new(now.time + config.timing.purge_every);
        let workload = Workload::new(state.range, now.time);
        let seal = Seal::new(acceptor.has_sealed(state.epoch), now.time);
        let leader = LeaderState::new(confirm_after, state.applied, now.time);
        Group {
            me,
            out: Outbox::new(me, durable),
            table: Table::new(memory, whole, !durable),
            config,
            state,
            now,
            rng: Rng::new(seed),
            log,
            liveness: Liveness::new(now.time),
            workload,
            acceptor,
            primaries: Primaries::default(),
            reads: OwnReads::default(),
            leader,
            purging,
            recovery,
            seal,
            lacks_bases: false,
            events: AppliedEvents::default(),
            room: Room::default(),
            failed: false,
            preload: Preload::new(!whole),
            dropped: Dropped::default(),
            exchange: StateExchange::default(),
            transactions: Transactions::default(),
            handovers: Handovers::default(),
        }
    }

    pub(crate) fn begin(&mut self) {
        self.out.set_epoch(self.state.epoch);
        self.out.persist(Durable::State(Box::new(self.state.clone())));
        if self.recovery.doubt().is_some() {
            self.out.persist(Durable::Doubt(self.recovery.doubt()));
        }
        self.preload.begin(&mut self.out);
        self.follow_state();
        if self.state.ended.is_some() {
            self.end(false);
        }
        self.tick();
    }

    /// Takes a page of records from the store.
    pub fn on_scanned(&mut self, token: ScanToken, records: Vec<(Key, Arc<Record>)>, done: bool) {
        if token == PURGE {
            let entry = self.purging.on_page(&mut context!(self), &mut self.table, &self.log, records, done);
            return entry.into_iter().for_each(|entry| self.propose(entry));
        }
        if token == PRELOAD {
            return self.preload.on_page(&mut self.table, &mut self.out, records, done);
        }
        self.acceptor.on_scanned(&mut context!(self), token, records, done);
    }
}
