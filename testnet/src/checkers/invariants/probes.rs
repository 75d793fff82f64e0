//! All checks of state, fed with the nodes' observations.

use std::collections::BTreeMap;

use group::op::Version;
use overlay::time::Time;
use overlay::{Key, KeyRange, NodeId};

use super::bounded::Bounded;
use super::grants::ReadGrants;
use super::leases::Leases;
use super::monotone::Monotone;
use super::observation::{Ballot, Observation};
use super::one_configuration::OneConfiguration;
use super::one_value::OneValue;
use super::ownership::Ownership;
use super::ring::Ring;
use super::routecast::Routecast;
use super::transactions::{Transactions, check_locks};
use crate::sim::Clocks;

/// A violated property, and a description of the violation.
pub type Broken = (&'static str, String);

/// Number of the last sub-ranges of a machine that are remembered as checked.
const SHOWN_MAX: usize = 16;

/// Place and time of an observation.
#[derive(Clone, Copy, Debug)]
pub struct Vantage<'a> {
    /// The machine.
    pub host: usize,
    /// True time.
    pub at: Time,
    /// The machine's clocks.
    pub clocks: &'a Clocks,
}

/// Checks of state over a whole run.
#[derive(Debug, Default)]
pub struct Probes {
    one_value: OneValue,
    one_configuration: OneConfiguration,
    ownership: Ownership,
    monotone: Monotone,
    leases: Leases,
    granted: ReadGrants,
    bounded: Bounded,
    transactions: Transactions,
    ring: Ring,
    routecast: Routecast,
    /// Node that runs on each machine, as far as observed.
    nodes: Vec<Option<NodeId>>,
    last_primary: usize,
    /// Machine that was last seen to serve each range, with its term.
    serving: Vec<(KeyRange, u64, usize)>,
    /// Ranges that each machine was seen to serve: a machine shows them with each event, and only new ones are checked.
    shown: Vec<Vec<(KeyRange, Ballot)>>,
    /// Chosen states by machine, as of the last observation of the whole state.
    replicas: Vec<BTreeMap<Key, (Version, u64)>>,
    /// Range of the group that each machine's node is a member of, as of that observation.
    holds: Vec<Option<KeyRange>>,
    sweeping: bool,
}

impl Probes {
    /// Returns checks for this number of machines.
    pub fn new(hosts: usize) -> Probes {
        Probes {
            nodes: vec![None; hosts],
            shown: vec![Vec::new(); hosts],
            replicas: vec![BTreeMap::new(); hosts],
            holds: vec![None; hosts],
            ..Probes::default()
        }
    }

    /// Checks an observation.
    ///
    /// # Errors
    /// The violated property, and a description.
    pub fn note(&mut self, seen: &Vantage<'_>, observation: Observation) -> Result<(), Broken> {
        let node = self.nodes[seen.host];
        match observation {
            Observation::Chosen { key, ballot, number, version, value_hash } => {
                self.chosen(seen.host, key, ballot, number, (version, value_hash))
            }
            Observation::Accepted { key, ballot, number, version, value_hash } => {
                self.accepted(node, &key, ballot, number, (version, value_hash))
            }
            Observation::Promised { range, ballot } => match node {
                Some(node) => self.monotone.on_promised(node, range, ballot).map_err(breaks("I12 only up")),
                None => Ok(()),
            },
            Observation::ControlPromised { group, epoch, round, node: leader } => match node {
                Some(node) => {
                    let promise = (epoch, round, leader);
                    self.monotone.on_control(group, node, promise).map_err(breaks("I12 only up"))
                }
                None => Ok(()),
            },
            Observation::ControlChosen { group, born, slot, hash } => {
                self.one_value.on_slot(group, born, slot, hash).map_err(breaks("I1 one value"))
            }
            Observation::Transaction { group, id, step } => {
                self.transactions.on_step(group, id, &step).map_err(breaks("I9 one outcome"))
            }
            Observation::Locks(locks) => check_locks(&locks).map_err(breaks("I10 one lock")),
            Observation::Place(place) => self.ring.on_place(place),
            Observation::Delivered { key, operation, answer } => {
                self.routecast.on_delivered(&key, operation, answer).map_err(breaks("PTO2 integrity"))
            }
            Observation::Config { group, epoch, members } => {
                self.one_configuration.on_config(group, epoch, &members).map_err(breaks("I2 one configuration"))
            }
            Observation::Member { node, group, epoch } => {
                self.nodes[seen.host] = Some(node);
                self.monotone.on_epoch(group, node, epoch).map_err(breaks("I12 only up"))
            }
            Observation::Holds { range } => {
                self.holds[seen.host] = Some(range);
                Ok(())
            }
            Observation::Serving { range, ballot } => self.serving(seen.host, range, ballot),
            Observation::LeaseHeld { range, ballot, until } => {
                let until = seen.clocks.true_time_of(until);
                self.leases.on_held(seen.host, seen.at, range, ballot, until).map_err(breaks("I13 leases exclude"))
            }
            Observation::Granted { ballot, switch, until } => {
                self.granted.on_granted(ballot, switch, seen.clocks.true_time_of(until));
                Ok(())
            }
            Observation::Alone { key, ballot, switch } => {
                self.granted.on_alone(seen.at, &key, ballot, switch).map_err(breaks("I13 granted reads"))
            }
            Observation::Queue { name, size, limit } => {
                self.bounded.on_size(name, size, limit).map_err(breaks("I15 bounded"))
            }
            Observation::Overtaken { gaps: 0 } | Observation::Mark(_) => Ok(()),
            Observation::Overtaken { gaps } => Err(("PTO3 partition order", format!("{gaps} gaps in what is chosen"))),
        }
    }

    /// Returns whether this machine's process was seen to serve this range, and notes that it was. The oldest note is dropped
    /// first.
    fn is_shown(&mut self, host: usize, range: KeyRange, ballot: Ballot) -> bool {
        let shown = &mut self.shown[host];
        if shown.contains(&(range, ballot)) {
            return true;
        }
        if shown.len() == SHOWN_MAX {
            shown.remove(0);
        }
        shown.push((range, ballot));
        false
    }

    fn chosen(
        &mut self,
        host: usize,
        key: Key,
        ballot: Ballot,
        number: u64,
        state: (Version, u64),
    ) -> Result<(), Broken> {
        self.one_value.on_chosen(&key, state.0, state.1).map_err(breaks("I1 one value"))?;
        // The write may be settled after a younger one of the same key was accepted: no order is demanded here.
        self.one_value.on_accepted(&key, ballot, number, state).map_err(breaks("I1 one value"))?;
        self.routecast.on_chosen(&key, state.0, (ballot.term, number)).map_err(breaks("PTO5 total order"))?;
        if self.sweeping {
            self.replicas[host].insert(key, state);
        }
        Ok(())
    }

    fn serving(&mut self, host: usize, range: KeyRange, ballot: Ballot) -> Result<(), Broken> {
        self.last_primary = host;
        if self.is_shown(host, range, ballot) {
            return Ok(());
        }
        let now = (range, ballot.term, host);
        if !self.serving.contains(&now) {
            self.serving.retain(|(part, term, _)| *term > ballot.term || !range.contains_range(*part));
            self.serving.push(now);
            self.granted.on_serving(range, ballot.term);
        }
        self.ownership.on_serving(range, ballot).map_err(breaks("I3 one owner"))?;
        self.routecast.on_serving(range, ballot).map_err(breaks("PTO4 last partition"))
    }

    fn accepted(
        &mut self,
        node: Option<NodeId>,
        key: &Key,
        ballot: Ballot,
        number: u64,
        state: (Version, u64),
    ) -> Result<(), Broken> {
        self.one_value.on_accepted(key, ballot, number, state).map_err(breaks("I1 one value"))?;
        if let Some(node) = node {
            self.monotone.on_accepted(node, key, ballot).map_err(breaks("I12 only up"))?;
        }
        Ok(())
    }

    /// Forgets a machine's process that is gone.
    pub fn forget(&mut self, host: usize) {
        self.nodes[host] = None;
        self.shown[host].clear();
        self.leases.forget(host);
        self.replicas[host].clear();
    }

    /// Forgets the promises and acceptances of this node: its store lost the data that was synced last, or the node has died for
    /// good.
    pub fn forget_node(&mut self, node: NodeId) {
        self.monotone.forget(node);
    }

    /// Begins a sweep: the whole state is about to be shown.
    pub fn begin_sweep(&mut self) {
        self.sweeping = true;
        for replica in &mut self.replicas {
            replica.clear();
        }
        self.holds.fill(None);
    }

    /// Ends a sweep: the whole state was shown.
    pub fn end_sweep(&mut self) -> Result<(), Broken> {
        self.sweeping = false;
        Ok(())
    }

    /// Returns the machine that was last seen to serve.
    pub fn last_primary(&self) -> usize {
        self.last_primary
    }

    /// Returns the machine that was last seen to serve this key.
    pub fn primary_of(&self, key: &Key) -> Option<usize> {
        let here = self.serving.iter().filter(|(range, ..)| range.contains(key.point()));
        here.max_by_key(|(_, term, _)| *term).map(|(.., host)| *host)
    }

    /// Returns the first difference between the chosen states of machines whose nodes are of one group, as of the last sweep.
    pub fn difference(&self) -> Option<String> {
        let hosts = 0..self.replicas.len();
        let held = |host: usize, key: &Key| self.holds[host].is_none_or(|range| range.contains(key.point()));
        for one in hosts.clone() {
            let range = self.holds[one].unwrap_or(KeyRange::FULL);
            let first = hosts.clone().find(|other| self.holds[*other].unwrap_or(KeyRange::FULL) == range);
            let Some(first) = first.filter(|first| *first != one) else { continue };
            let (mine, theirs) = (&self.replicas[one], &self.replicas[first]);
            for key in theirs.keys().chain(mine.keys()).filter(|key| held(one, key)) {
                if mine.get(key) != theirs.get(key) {
                    let (a, b) = (theirs.get(key), mine.get(key));
                    return Some(format!("{key:?} is {a:?} on {first} and {b:?} on {one}"));
                }
            }
        }
        None
    }

    /// Returns the number of transactions between groups that were seen to be committed.
    pub fn committed(&self) -> usize {
        self.transactions.committed()
    }

    /// Returns the greatest size that was seen of each limited quantity.
    pub fn most(&self) -> &[(&'static str, usize)] {
        &self.bounded.most
    }
}

/// Returns a function that names the property that a description is about.
fn breaks(property: &'static str) -> impl FnOnce(String) -> Broken {
    move |detail| (property, detail)
}

#[cfg(test)]
#[path = "probes_test.rs"]
mod tests;
