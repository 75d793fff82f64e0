//! Simulated controller: sets the tables of switches. It works as `scatter-switch` does, by the members' reports of their groups,
//! but late, by the report of any member, and sometimes wrong. The protocol relies on the controller for one thing alone: an id
//! belongs to one life of one switch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use node::{AdminRequest, GroupStatus, Input};
use overlay::{GroupId, NodeId};
use switch::dirty::Region;
use switch::tables::Partition;

use crate::checkers::Broken;
use crate::rng::Rng;
use crate::sim::host::Host;
use crate::sim::machine::ProcessState;
use crate::sim::queue::Event;
use crate::sim::switch::{Set, Switches};
use crate::sim::world::World;

/// Time before a group is asked again for an id that it has not taken.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Partitions of one group, as they must be set.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Plan {
    group: GroupId,
    partitions: Vec<(u32, Partition)>,
}

/// A member's report of its group, with its machine.
struct Told {
    host: usize,
    status: GroupStatus,
}

impl<H: Host> World<H> {
    /// Looks at the groups, for each switch that is kept.
    pub(in crate::sim) fn on_look(&mut self) {
        let every = self.switches().rules.look_every;
        self.queue_in(every, Event::Look);
        if self.switches().unattended > 0 {
            return;
        }
        for at in 0..self.switches().devices.len() {
            if self.switches().devices[at].is_kept {
                self.look_for(at);
            }
        }
    }

    fn look_for(&mut self, at: usize) {
        let mut groups: BTreeMap<GroupId, Vec<Told>> = BTreeMap::new();
        for told in self.told() {
            groups.entry(told.status.id).or_default().push(told);
        }
        let hosts = self.hosts_by_node();
        let switches = self.switches.as_mut().expect("there are switches");
        let life = switches.devices[at].life;
        let (mut plans, mut asks) = (Vec::new(), Vec::new());
        for (group, told) in groups {
            let newest = (0..told.len()).max_by_key(|index| (told[*index].status.epoch, told[*index].status.applied));
            let is_stale = switches.control.per_mille(switches.rules.stale);
            let drawn = switches.control.below(told.len() as u64) as usize;
            let Told { host, status } = &told[if is_stale { drawn } else { newest.expect("somebody told") }];
            plans.push(switches.plan(at, life, status, &hosts));
            if switches.wants_id(at, life, status) && switches.may_ask(at, group, self.now) {
                let id = switches.id_for(at, life, status.switch.named.id);
                switches.devices[at].spent.remove(&group);
                asks.push((*host, group, id));
            }
        }
        let after = switches.control.duration(Duration::ZERO, switches.rules.sets_after);
        self.queue_in(after, Event::SetTables { at, life, plans });
        for (host, group, id) in asks {
            let numbers = [at as u64, host as u64, u64::from(id)];
            self.trace.note(self.now, &numbers, &[], || format!("switch {at} is to have the id {id} of {group:?}"));
            let switches = self.switches();
            switches.requests += 1;
            let number = switches.requests;
            self.deliver(host, Input::AdminRequest { number, group, request: AdminRequest::Switch { id } });
        }
    }

    /// Returns the report of each running process about its group.
    fn told(&self) -> Vec<Told> {
        let running = (0..self.machines.len()).filter(|host| self.machines[*host].state == ProcessState::Running);
        let told = running.filter_map(|host| Some(Told { host, status: self.machines[host].host.as_ref()?.group()? }));
        told.collect()
    }

    fn hosts_by_node(&self) -> BTreeMap<NodeId, u32> {
        let nodes = (0..self.machines.len()).map(|host| (self.host(host).and_then(H::node), host as u32));
        nodes.filter_map(|(node, host)| Some((node?, host))).collect()
    }

    /// Sets the planned tables.
    pub(in crate::sim) fn on_set_tables(&mut self, at: usize, life: u32, plans: &[Plan]) {
        let Switches { devices, rules, .. } = self.switches.as_deref_mut().expect("there are switches");
        let device = &mut devices[at];
        if device.life != life || !device.is_kept || !device.up {
            return;
        }
        let names = |plan: &Plan| plan.partitions.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        device.keep(&plans.iter().flat_map(names).collect::<BTreeSet<u32>>());
        for Plan { group, partitions } in plans {
            for (name, partition) in partitions {
                match device.set(*name, rules, partition.clone()) {
                    Set::Done | Set::Old => {}
                    Set::Spent => drop(device.spent.insert(*group)),
                    Set::NoRoom => self.marks.hit("switch: no room for a partition"),
                }
            }
        }
    }

    /// Returns a flaw unless reads are spread again and the dirty set is empty: both must hold once all is at rest.
    pub(in crate::sim) fn switch_flaw(&self) -> Option<Broken> {
        let switches = self.switches.as_ref()?;
        let (at, device) = (switches.current, &switches.devices[switches.current]);
        for Told { host, status } in self.told() {
            let (id, named) = (status.id, status.switch.named);
            if status.switch.fits.is_err() || status.members.len() < 2 {
                continue;
            }
            if !named.is_on() || switches.owners.get(&named.id) != Some(&(at, device.life)) {
                return Some(("reads are spread again", format!("{id:?} names {named:?}, and not switch {at}")));
            }
            let me = self.host(host).and_then(H::node);
            let mut own = status.switch.parts.iter().filter(|(_, _, node)| Some(*node) == me).peekable();
            let is_due = own.peek().is_some() && own.all(|(name, ..)| device.has(*name));
            if is_due && status.switch.granted != Some(named.id) {
                return Some((
                    "reads are spread again",
                    format!("{host} does not grant in {id:?}: {:?}", status.switch),
                ));
            }
        }
        match device.dirty() {
            0 => None,
            dirty => Some(("the dirty set drains", format!("{dirty} places of switch {at} are taken"))),
        }
    }
}

impl Switches {
    fn is_own(&self, at: usize, life: u32, id: u32) -> bool {
        self.owners.get(&id) == Some(&(at, life))
    }

    /// Returns whether the group must be asked for another id.
    fn wants_id(&self, at: usize, life: u32, status: &GroupStatus) -> bool {
        let named = status.switch.named;
        let is_spent = self.devices[at].spent.contains(&status.id);
        status.switch.fits.is_ok() && (!named.is_on() || !self.is_own(at, life, named.id) || is_spent)
    }

    fn may_ask(&mut self, at: usize, group: GroupId, now: overlay::time::Time) -> bool {
        let asked = self.asked.entry((at, group)).or_default();
        let may = now.since(*asked) >= ASK_AGAIN;
        if may {
            *asked = now;
        }
        may
    }

    /// Returns an id for this life of that switch, above all ids that this group had, and above all that were given.
    fn id_for(&mut self, at: usize, life: u32, known: u32) -> u32 {
        self.last_id = self.last_id.max(known) + 1;
        self.owners.insert(self.last_id, (at, life));
        self.last_id
    }

    fn plan(&mut self, at: usize, life: u32, status: &GroupStatus, hosts: &BTreeMap<NodeId, u32>) -> Plan {
        let named = status.switch.named;
        let is_own = named.is_on() && self.is_own(at, life, named.id);
        let members = status.members.iter().filter(|member| member.votes);
        let replicas: Vec<(u32, u8)> =
            members.filter_map(|member| hosts.get(&member.node)).map(|host| (*host, 1)).collect();
        let mut partitions = Vec::new();
        for (name, term, node) in &status.switch.parts {
            let Some(primary) = hosts.get(node) else { continue };
            let mut partition = Partition {
                index: 0,
                region: Region { first: 0, slots: 1 },
                term: *term,
                switch: if is_own { named.id } else { 0 },
                active: is_own,
                primary: *primary,
                replicas: replicas.clone(),
            };
            if self.control.per_mille(self.rules.wrong) {
                mistake(&mut partition, self.routes.len() as u64, &mut self.control);
            }
            partitions.push((*name, partition));
        }
        Plan { group: status.id, partitions }
    }
}

fn mistake(partition: &mut Partition, hosts: u64, rng: &mut Rng) {
    match rng.below(8) {
        0 => partition.primary = rng.below(hosts) as u32,
        1 => partition.active = false,
        _ => partition.replicas = (0..hosts as u32).filter(|_| rng.per_mille(500)).map(|host| (host, 1)).collect(),
    }
}
