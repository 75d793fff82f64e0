//! Switches in the world: their packets, and a simulated controller, which sets the tables of switches. It works as `scatter-switch` does, by the members' reports of their groups,
//! but late, by the report of any member, and sometimes wrong. The protocol relies on the controller for one thing alone: an id
//! belongs to one life of one switch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use header::{Operation, Packet};
use node::{AdminRequest, GroupStatus, Input};
use overlay::{GroupId, NodeId};
use switch::dirty::Region;
use switch::pipeline::{Verdict, Why};
use switch::tables::Partition;

use crate::checkers::Broken;
use crate::rng::Rng;
use crate::sim::host::Host;
use crate::sim::machine::ProcessState;
use crate::sim::queue::Event;
use crate::sim::switch::{SWITCH, Set, Switches, host_at};
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
    pub(in crate::sim) fn switches(&mut self) -> &mut Switches {
        self.switches.as_mut().expect("there are switches")
    }

    /// Sends a machine's packet to its switch.
    pub(in crate::sim) fn send_packet(&mut self, from: usize, to: header::ReplyTo, bytes: Bytes) {
        let operation = Packet::decode(&bytes).ok().map(|packet| packet.header.operation);
        let (Some(switches), Some(operation)) = (&mut self.switches, operation.filter(|_| to == SWITCH)) else {
            return self.fail("packets go to a switch", format!("{from} sends {bytes:?} to {to:?}"));
        };
        let at = switches.routes[from];
        let delays = switches.way(operation);
        if delays.is_empty() {
            self.marks.hit("switch: a packet was lost");
        }
        for delay in delays {
            self.queue_in(delay, Event::AtSwitch { at, from, bytes: bytes.clone() });
        }
    }

    /// Passes a packet through a switch.
    pub(in crate::sim) fn on_packet(&mut self, at: usize, from: usize, bytes: Bytes) {
        let packet = Packet::decode(&bytes).expect("it was one when it was sent");
        let switches = self.switches.as_mut().expect("it was sent to one");
        let device = &switches.devices[at];
        if !device.up {
            return;
        }
        let mut header = packet.header;
        header.object = switches.object(header.object);
        let (chance, defect) = (switches.rng.bits() as u32, switches.rules.defect);
        let verdict = switches.devices[at].process(&mut header, chance, defect);
        let numbers = [at as u64, from as u64, header.operation as u64, header.sequence, header.committed];
        self.trace.note(self.now, &numbers, &bytes, || format!("switch {at} has {header:?} of {from}: {verdict:?}"));
        let to = match verdict {
            Verdict::To(replica) => Some(replica as usize),
            Verdict::On if header.operation == Operation::Reply => host_at(packet.reply_to),
            Verdict::On => return,
            Verdict::Drop(why) => {
                return self.marks.hit(match why {
                    Why::Full => "switch: a write was dropped for want of a slot",
                    Why::NoPartition => "switch: a packet was of no partition",
                    Why::Stale => "switch: a completion was stale",
                });
            }
        };
        let switches = self.switches.as_mut().expect("just used");
        if header.operation == Operation::WriteFirst
            && header.switch > 0
            && let Err(detail) = switches.note_number(&header)
        {
            return self.fail("a number is given once", detail);
        }
        let Some(to) = to.filter(|to| *to < self.scenario.hosts) else { return };
        let switches = self.switches.as_mut().expect("just used");
        let is_cut = switches.rules.shares_wires && from != to && self.network.is_blocked(from, to);
        let delays = if is_cut { Vec::new() } else { switches.way(header.operation) };
        let mut bytes = bytes.to_vec();
        header.stamp(&mut bytes);
        let bytes = Bytes::from(bytes);
        for delay in delays {
            self.queue_in(delay, Event::Packet { to, bytes: bytes.clone() });
        }
    }

    /// Delivers a packet to a machine, for the process that runs there.
    pub(in crate::sim) fn on_packet_here(&mut self, to: usize, bytes: Bytes) {
        self.trace.note(self.now, &[to as u64], &bytes, || format!("{to} gets a packet of {} bytes", bytes.len()));
        self.deliver(to, Input::Packet { from: SWITCH, bytes });
    }

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
