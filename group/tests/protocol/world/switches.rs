//! Switches beside the members: real pipelines, with tables that a controller sets late or never, and packets that are lost, doubled and
//! late like all messages.

use std::collections::{BTreeMap, BTreeSet};

use group::ballot::TermBallot;
use group::control::state::Entry;
use group::harmonia::read_scheduler::SpreadRead;
use group::harmonia::switch::Switch;
use group::harmonia::{ReturnedWrite, WritePass};
use group::op::{Op, Read};
use header::{Header, NO_OBJECT, Operation};
use overlay::Key;
use overlay::rng::Rng;
use overlay::time::Time;
use switch::dirty::{Region, Shape};
use switch::pipeline::{Pipeline, Verdict};
use switch::tables::Partition;

use super::World;

/// Upper limit of partitions in a switch at a time.
const PARTITIONS: u32 = 8;

/// Properties of a switch.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub stages: usize,
    /// Slots of each partition in each stage.
    pub slots: u32,
    /// Number of different names of objects.
    pub objects: u32,
}

/// Packet in flight to a switch, or from one to a peer.
#[derive(Clone, Debug)]
pub enum Packet {
    To(usize, Header, Option<Key>),
    From(usize, Header, Option<Key>),
}

/// All switches, and the packets that pass them.
pub struct Switches {
    pub rules: Rules,
    machines: Vec<Pipeline>,
    /// Switch that packets go to.
    pub current: usize,
    /// Number of times that each switch has lost its memory, and the owner of each id: one life of one of them (hazard 55).
    lives: [u32; 2],
    owners: BTreeMap<u32, (usize, u32)>,
    /// Ballots by the number of their partition, which is given out once.
    partitions: Vec<TermBallot>,
    /// Places and ids of partitions in a switch, and the ids that partitions had before they moved or were taken out: those do not come
    /// back to them (rule S1 in `switch/tests/model`).
    places: BTreeMap<(usize, u32), (u32, u32)>,
    spent: BTreeSet<(usize, u32, u32)>,
    pub wire: Vec<Packet>,
    /// Number of reads that replicas answered, of those that they left to the primary, and of reads of dirty objects.
    pub spread: u64,
    pub left: u64,
    pub dirty: u64,
}

impl Switches {
    pub fn new(rules: Rules) -> Switches {
        let machines = (0..2).map(|_| machine(rules)).collect();
        let wire = Vec::new();
        let (lives, owners, partitions) = ([0; 2], BTreeMap::new(), Vec::new());
        let (places, spent) = Default::default();
        let (spread, left, dirty) = (0, 0, 0);
        Switches { rules, machines, current: 0, lives, owners, partitions, places, spent, wire, spread, left, dirty }
    }

    fn partition(&mut self, ballot: TermBallot) -> u32 {
        if let Some(at) = self.partitions.iter().position(|known| *known == ballot) {
            return at as u32;
        }
        self.partitions.push(ballot);
        self.partitions.len() as u32 - 1
    }

    fn ballot(&self, partition: u32) -> TermBallot {
        self.partitions[partition as usize]
    }

    fn header(&mut self, operation: Operation, ballot: TermBallot, key: Option<&Key>, tag: u64) -> Header {
        let hash = |key: &Key| 1 + (key.point().0 >> 64) as u32 % self.rules.objects;
        let object = key.map_or(NO_OBJECT, hash);
        let partition = self.partition(ballot);
        Header { operation, partition, object, switch: 0, term: ballot.term.0, sequence: 0, committed: 0, tag }
    }

    /// Restarts a switch: it loses its registers and its tables, until a controller sets those again.
    pub fn restart(&mut self, index: usize) {
        self.machines[index] = machine(self.rules);
        self.lives[index] += 1;
    }
}

fn machine(rules: Rules) -> Pipeline {
    let slots = (PARTITIONS * rules.slots).next_power_of_two() as usize;
    Pipeline::new(Shape { stages: rules.stages, slots }, PARTITIONS as usize)
}

impl World {
    fn switches(&mut self) -> &mut Switches {
        self.switches.as_mut().expect("there are switches")
    }

    /// Passes a packet of a primary through the switch.
    pub fn pass_switch(&mut self, pass: WritePass) {
        if self.switches.is_none() {
            return;
        }
        let switches = self.switches();
        let header = switches.header(Operation::WriteFirst, pass.ballot, pass.key.as_ref(), pass.tag);
        let header = Header { committed: pass.sent.0, ..header }; // No switch looks at that in a write.
        switches.wire.push(Packet::To(switches.current, header, pass.key));
    }

    /// Sends a completion of a primary to the switch.
    pub fn complete(&mut self, ballot: TermBallot, switch: u32, number: u64) {
        let switches = self.switches();
        let header = switches.header(Operation::Completion, ballot, None, 0);
        let header = Header { switch, sequence: number, ..header };
        switches.wire.push(Packet::To(switches.current, header, None));
    }

    /// Sends a client's read by a switch, most often by the one in use.
    pub fn attempt_spread(&mut self, number: u64, rng: &mut Rng) {
        let Some(call) = self.clients.calls.get(&number).cloned() else { return };
        let Some(index) = self.index(call.origin) else { return };
        let Some(group) = &self.peers[index].group else { return };
        let key = self.clients.key(call.key).clone();
        let Some(ballot) = group.primary_of(key.point()) else { return };
        let tag = self.clients.attempt_spread(number);
        let switches = self.switches();
        let header = switches.header(Operation::Read, ballot, Some(&key), tag);
        let to = if rng.below(8) == 0 { 1 - switches.current } else { switches.current };
        switches.wire.push(Packet::To(to, header, Some(key)));
    }

    /// Takes a member's answer to a read, or the lack of one.
    pub fn on_read(&mut self, tag: u64, answer: Option<group::op::Answer>) {
        let outcome = match answer {
            Some(answer) => {
                self.switches().spread += 1;
                group::message::AttemptOutcome::Unchanged(answer)
            }
            None => {
                self.switches().left += 1;
                group::message::AttemptOutcome::NotPrimary
            }
        };
        if let Err(why) = self.clients.on_spread(tag, outcome) {
            self.wrong.get_or_insert(why);
        }
    }

    /// Delivers a packet.
    pub fn deliver_switched(&mut self, packet: Packet, chance: u32) {
        match packet {
            Packet::To(at, mut header, key) => {
                let is_read = header.operation == Operation::Read;
                let switches = self.switches();
                let verdict = switches.machines[at].process(&mut header, chance);
                if is_read && header.operation == Operation::Read && matches!(verdict, Verdict::To(_)) {
                    switches.dirty += 1;
                }
                if let Verdict::To(replica) = verdict {
                    switches.wire.push(Packet::From(replica as usize, header, key));
                }
            }
            Packet::From(index, header, key) => {
                if self.peers[index].down {
                    return;
                }
                let ballot = self.switches().ballot(header.partition);
                let Header { operation, switch, sequence, committed, tag, .. } = header;
                match (operation, key) {
                    (Operation::FastRead, Some(key)) => {
                        let op = Op::Read(Read::Value);
                        let read = SpreadRead { tag, ballot, switch, point: committed, key, op };
                        self.act(index, |group| group.read_spread(read));
                    }
                    (Operation::WriteFirst, _) => {
                        let passed = ReturnedWrite { switch, number: sequence, tag, sent: Time(committed) };
                        self.act(index, |group| group.on_passed(ballot, &passed))
                    }
                    // The client asks again, in the ordinary way.
                    _ => self.on_read(tag, None),
                }
            }
        }
    }

    /// Sets a switch's tables as a controller would, by some member's knowledge, as long as that member runs.
    pub fn set_tables(&mut self, at: usize, member: usize) {
        let Some(group) = &self.peers[member].group else { return };
        let state = group.state().clone();
        let ballots: Vec<TermBallot> = state.parts().map(|(_, ballot)| ballot).collect();
        let replicas: Vec<(u32, u8)> = (0..self.peers.len())
            .filter(|index| state.is_member(self.peers[*index].node))
            .map(|it| (it as u32, 1))
            .collect();
        let primaries: BTreeMap<_, u32> = (0..self.peers.len()).map(|it| (self.peers[it].node, it as u32)).collect();
        let switches = self.switches();
        let numbers: Vec<u32> = (0..switches.partitions.len() as u32).collect();
        for number in numbers {
            switches.machines[at].remove(number);
        }
        let mut before = core::mem::take(&mut switches.places);
        for (index, ballot) in (0..PARTITIONS).zip(ballots) {
            let Some(primary) = primaries.get(&ballot.node) else { continue };
            let number = switches.partition(ballot);
            let slots = switches.rules.slots;
            let owner = (at, switches.lives[at]);
            let id = state.switch.id;
            let was = before.get(&(at, number)).copied();
            if let Some((_, old)) = was.filter(|was| *was != (index, id)) {
                switches.spent.insert((at, number, old));
            }
            let is_spent = switches.spent.contains(&(at, number, id));
            let is_own = *switches.owners.entry(id).or_insert(owner) == owner && !is_spent;
            before.remove(&(at, number));
            switches.places.insert((at, number), (index, id));
            let partition = Partition {
                index,
                region: Region { first: index * slots, slots },
                term: ballot.term.0,
                switch: if is_own { id } else { 0 },
                active: is_own,
                primary: *primary,
                replicas: replicas.clone(),
            };
            switches.machines[at].set(number, partition).expect("there is room");
        }
        for ((machine, number), (index, id)) in before {
            if machine == at {
                switches.spent.insert((at, number, id));
            } else {
                switches.places.insert((machine, number), (index, id));
            }
        }
    }

    /// Returns whether the id that the group uses is or could be of the switch that packets go to, and its parts may have it there.
    pub fn is_fit(&self, id: u32) -> bool {
        let Some(switches) = &self.switches else { return false };
        let at = switches.current;
        let parts: BTreeSet<TermBallot> = self.latest().parts().map(|(_, ballot)| ballot).collect();
        let is_part = |number: u32| parts.contains(&switches.ballot(number));
        if switches.spent.iter().any(|(of, number, spent)| (*of, *spent) == (at, id) && is_part(*number)) {
            return false;
        }
        switches.owners.get(&id).is_none_or(|owner| *owner == (at, switches.lives[at]))
    }

    /// Lets the leader propose another switch, or none.
    pub fn change_switch(&mut self, leader: usize, on: bool) {
        let id = self.group(leader).state().switch.id;
        let switch = if on { Switch::on(id + 1) } else { Switch::off(id) };
        if switch.id > 0 {
            self.act(leader, |group| group.propose(Entry::Switch(switch)));
        }
    }

    /// Returns whether the primary of each part lets members answer reads.
    pub fn is_spread(&self) -> bool {
        let state = self.latest();
        state.parts().all(|(_, ballot)| {
            let primaries =
                self.peers.iter().filter_map(|peer| peer.group.as_ref()).flat_map(|group| group.primaries());
            primaries.into_iter().any(|primary| primary.ballot() == ballot && primary.switch() == Some(state.switch.id))
        })
    }

    /// Returns whether primaries may do so, by the group's state.
    pub fn may_spread(&self) -> bool {
        self.latest().may_offload() && self.latest().nodes().len() > 1
    }

    /// Returns the number of dirty objects in the switch in use, where all is at rest.
    pub fn dirty_objects(&mut self) -> usize {
        let switches = self.switches();
        let machine = &switches.machines[switches.current];
        let partitions = 0..switches.partitions.len() as u32;
        partitions.map(|number| (1..=switches.rules.objects).filter(|it| machine.is_dirty(number, *it)).count()).sum()
    }
}
