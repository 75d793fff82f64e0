//! Switches of a run: their rules, their state, and the faults of each of them.

pub(super) mod controller;
mod faults;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use header::{Header, NO_OBJECT, Operation, ReplyTo};
use overlay::GroupId;
use switch::dirty::{Region, Shape, Slot};
use switch::pipeline::{Pipeline, Verdict, Why};
use switch::tables::Partition;

use crate::rng::Rng;
use crate::sim::network::Noise;

/// Address to which nodes send packets that must pass a switch, of either switch.
pub(in crate::sim) const SWITCH: ReplyTo = ReplyTo { ip: Ipv4Addr::new(10, 0, 1, 0).to_ipv6_mapped(), port: 6477 };
/// Port at which the first machine gets packets; the other machines have the ports behind it.
const PORT: u16 = 7001;
/// Number of switches.
pub(in crate::sim) const SWITCHES: usize = 2;

/// Returns the address at which a machine gets packets.
pub(in crate::sim) fn address_of(host: usize) -> ReplyTo {
    ReplyTo { port: PORT + host as u16, ..SWITCH }
}

/// Returns the machine that gets packets for this address.
pub(in crate::sim) fn host_at(address: ReplyTo) -> Option<usize> {
    (address.ip == SWITCH.ip).then(|| address.port.checked_sub(PORT).map(usize::from))?
}

/// A rule that a switch, or the controller that sets its tables, leaves out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchDefect {
    /// A write for which the dirty set has no room is forwarded all the same (hazard 56).
    Untracked,
    /// A switch that has lost its state goes on under its id (hazard 55).
    OldId,
    /// A completion clears the whole dirty set (hazard 56).
    Cleared,
    /// A completion that comes late lowers the point (hazard 57).
    PointLowered,
}

/// Properties of switches, and the faults of packets and tables that occur all the time, until all is healed.
#[derive(Clone, Debug)]
pub struct SwitchRules {
    /// Stages of the dirty set.
    pub stages: usize,
    /// Slots of each partition in each stage: a power of two.
    pub slots: u32,
    /// Partitions that fit in at one time: a power of two.
    pub partitions: u32,
    /// Number of objects that the switch tells apart; `None`: as many as nodes do.
    pub objects: Option<u32>,
    /// Time of a packet's way to a switch, or from there: the least, and the most that is added.
    pub delay: (Duration, Duration),
    /// Upper limit of the further delay of a packet that is overtaken.
    pub late: Duration,
    /// Noise of each kind of packets, on each of its ways.
    pub noise: [Noise; 5],
    /// A fault that keeps frames back between two machines loses packets between them.
    pub shares_wires: bool,
    /// Interval at which the controller checks for tables to set.
    pub look_every: Duration,
    /// Upper limit of the delay until they are set.
    pub sets_after: Duration,
    /// Of 1,000 looks at a group, this many go to a random member, and not to the member with the newest state.
    pub stale: u32,
    /// Of 1,000 partitions, this many are set wrongly: any machine may be a replica, or the primary.
    pub wrong: u32,
    /// Rule that is left out on purpose.
    pub defect: Option<SwitchDefect>,
}

impl SwitchRules {
    /// Returns rules without faults, and with room.
    pub fn calm() -> SwitchRules {
        SwitchRules {
            stages: 2,
            slots: 64,
            partitions: 64,
            objects: None,
            delay: (Duration::from_micros(50), Duration::from_micros(100)),
            late: Duration::ZERO,
            noise: [Noise::default(); 5],
            shares_wires: true,
            look_every: Duration::from_millis(100),
            sets_after: Duration::from_millis(10),
            stale: 0,
            wrong: 0,
            defect: None,
        }
    }

    /// Draws rules.
    pub(crate) fn draw(rng: &mut Rng) -> SwitchRules {
        let worst = *rng.pick(&[0, 20, 100, 250]);
        let rate = |rng: &mut Rng| if rng.per_mille(500) { rng.between(0, worst) as u32 } else { 0 };
        let noise = [(); 5].map(|()| Noise { loss: rate(rng), duplication: rate(rng), reordering: rate(rng) });
        SwitchRules {
            stages: rng.between(1, 2) as usize,
            slots: *rng.pick(&[1, 4, 4, 64, 64]),
            partitions: *rng.pick(&[4, 64, 64]),
            objects: *rng.pick(&[None, Some(2), Some(3), Some(3), Some(8)]),
            delay: *rng.pick(&[
                (Duration::from_micros(50), Duration::from_micros(100)),
                (Duration::from_micros(50), Duration::from_micros(100)),
                (Duration::from_micros(200), Duration::from_millis(3)),
                (Duration::from_millis(1), Duration::from_millis(20)),
            ]),
            late: Duration::from_millis(*rng.pick(&[5, 50, 500, 2_000])),
            noise,
            shares_wires: rng.per_mille(500),
            look_every: Duration::from_millis(*rng.pick(&[30, 100, 300])),
            sets_after: Duration::from_millis(*rng.pick(&[1, 50, 300, 1_000])),
            stale: *rng.pick(&[0, 100, 500]),
            wrong: *rng.pick(&[0, 0, 100, 300]),
            defect: None,
        }
    }

    fn pipeline(&self) -> Pipeline {
        let slots = (self.partitions * self.slots) as usize;
        Pipeline::new(Shape { stages: self.stages, slots }, self.partitions as usize)
    }
}

/// One switch.
#[derive(Debug)]
pub(in crate::sim) struct Device {
    pub pipeline: Pipeline,
    /// Number of the switch's life: rises each time the switch loses its state.
    pub life: u32,
    /// Whether packets come and go.
    pub up: bool,
    /// Whether a controller sets the tables.
    pub is_kept: bool,
    /// Partitions in the table, each with the number of looks since it was last wanted.
    table: BTreeMap<u32, (Partition, u32)>,
    /// Names of partitions with the ids under which they ever were in the table, in this life.
    given: BTreeSet<(u32, u32)>,
    /// Groups that need another id: their partitions were removed under this one.
    pub spent: BTreeSet<GroupId>,
}

/// Result of setting one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Set {
    Done,
    /// The partition is older than the one in the table.
    Old,
    /// The partition was in the table before, with this id, and was removed.
    Spent,
    NoRoom,
}

/// Number of looks after which an unwanted partition is removed.
const UNWANTED_MAX: u32 = 3;

impl Device {
    pub fn new(rules: &SwitchRules) -> Device {
        let (table, given, spent) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Device { pipeline: rules.pipeline(), life: 1, up: true, is_kept: false, table, given, spent }
    }

    /// Loses all state, as by a restart.
    pub fn restart(&mut self, rules: &SwitchRules) {
        let life = if rules.defect == Some(SwitchDefect::OldId) { self.life } else { self.life + 1 };
        *self = Device { life, up: self.up, is_kept: self.is_kept, ..Device::new(rules) };
    }

    /// Returns whether this partition is in the table.
    pub fn has(&self, name: u32) -> bool {
        self.table.contains_key(&name)
    }

    /// Counts a look without them for partitions that are not in `wanted`, and removes those unwanted for `UNWANTED_MAX` looks.
    pub fn keep(&mut self, wanted: &BTreeSet<u32>) {
        for (name, (_, unwanted)) in &mut self.table {
            *unwanted = if wanted.contains(name) { 0 } else { *unwanted + 1 };
        }
        let gone: Vec<u32> =
            self.table.iter().filter(|(_, (_, unwanted))| *unwanted >= UNWANTED_MAX).map(|(name, _)| *name).collect();
        for name in gone {
            self.table.remove(&name);
            self.pipeline.remove(name);
        }
    }

    /// Sets a partition, on registers and slots of its own for as long as it has this id.
    pub fn set(&mut self, name: u32, rules: &SwitchRules, partition: Partition) -> Set {
        let id = partition.switch;
        let index = match self.table.get(&name) {
            Some((old, _)) if old.switch == id => old.index,
            Some((old, _)) if old.switch > id => return Set::Old,
            _ if id > 0 && self.given.contains(&(name, id)) => return Set::Spent,
            Some((old, _)) => old.index,
            None => {
                let taken: BTreeSet<u32> = self.table.values().map(|(partition, _)| partition.index).collect();
                match (0..rules.partitions).find(|index| !taken.contains(index)) {
                    Some(index) => index,
                    None => return Set::NoRoom,
                }
            }
        };
        let region = Region { first: index * rules.slots, slots: rules.slots };
        let partition = Partition { index, region, ..partition };
        self.pipeline.set(name, partition.clone()).expect("it has registers and slots of its own");
        self.table.insert(name, (partition, 0));
        self.given.insert((name, id));
        Set::Done
    }

    /// Returns the number of slots of the dirty set whose content counts.
    pub fn dirty(&self) -> usize {
        let counts = |slot: &&Slot| {
            let Some((partition, _)) = self.table.get(&slot.mark.partition) else { return false };
            let register = self.pipeline.registers()[partition.index as usize];
            register.mark == slot.mark && slot.mark.switch == partition.switch && slot.sequence > register.committed
        };
        self.pipeline.dirty().stages().iter().flat_map(|stage| stage.iter()).filter(counts).count()
    }

    /// Processes one packet that passes.
    pub fn process(&mut self, header: &mut Header, chance: u32, defect: Option<SwitchDefect>) -> Verdict {
        let verdict = self.pipeline.process(header, chance);
        let Some((partition, _)) = self.table.get(&header.partition) else { return verdict };
        match (defect, verdict) {
            (Some(SwitchDefect::Untracked), Verdict::Drop(Why::Full)) => {
                let register = &mut self.pipeline.registers_mut()[partition.index as usize];
                register.sequence += 1;
                (header.switch, header.sequence) = (partition.switch, register.sequence);
                Verdict::To(partition.primary)
            }
            (Some(SwitchDefect::PointLowered), Verdict::On) if header.operation == Operation::Completion => {
                self.pipeline.registers_mut()[partition.index as usize].committed = header.sequence;
                verdict
            }
            (Some(SwitchDefect::Cleared), Verdict::On) if header.operation == Operation::Completion => {
                let (first, end) = partition.region.ends();
                for stage in 0..self.pipeline.dirty().stages().len() {
                    let slots = self.pipeline.dirty_mut().stage_mut(stage).expect("there is such a stage");
                    slots[first as usize..end as usize].fill(Slot::default());
                }
                verdict
            }
            _ => verdict,
        }
    }
}

/// All switches, and the controller that sets their tables.
#[derive(Debug)]
pub(in crate::sim) struct Switches {
    pub rules: SwitchRules,
    pub devices: [Device; SWITCHES],
    /// Index of the switch in use.
    pub current: usize,
    /// Index of the switch that each machine's packets go to.
    pub routes: Vec<usize>,
    /// Number of reasons for which no controller sets tables now.
    pub unattended: u32,
    /// The last id that the controller asked for, and the owner of each id: a switch and its life.
    pub last_id: u32,
    pub owners: BTreeMap<u32, (usize, u32)>,
    /// The highest sequence number that any switch gave under each pair of a partition's name and an id.
    pub numbered: BTreeMap<(u32, u32), u64>,
    /// Time of the controller's last request to each group, in behalf of each switch.
    pub asked: BTreeMap<(usize, GroupId), overlay::time::Time>,
    pub requests: u64,
    /// Chance of packets, and of the controller.
    pub rng: Rng,
    pub control: Rng,
}

impl Switches {
    pub fn new(rules: SwitchRules, hosts: usize, seed: u64) -> Switches {
        let mut devices = [(); SWITCHES].map(|()| Device::new(&rules));
        devices[0].is_kept = true;
        Switches {
            rules,
            devices,
            current: 0,
            routes: vec![0; hosts],
            unattended: 0,
            last_id: 0,
            owners: BTreeMap::new(),
            numbered: BTreeMap::new(),
            asked: BTreeMap::new(),
            requests: 0,
            rng: Rng::new(seed, "switch"),
            control: Rng::new(seed, "controller"),
        }
    }

    /// Returns the delays after which a packet of this kind arrives on one of its ways: none if it is lost, two if it is doubled.
    pub fn way(&mut self, operation: Operation) -> Vec<Duration> {
        let noise = self.rules.noise[kind_of(operation)];
        if self.rng.per_mille(noise.loss) {
            return Vec::new();
        }
        let (least, more) = self.rules.delay;
        let mut delays = vec![self.rng.duration(least, least + more)];
        if self.rng.per_mille(noise.reordering) {
            delays[0] += self.rng.duration(Duration::ZERO, self.rules.late);
        }
        if self.rng.per_mille(noise.duplication) {
            delays.push(self.rng.duration(least, least + more + self.rules.late));
        }
        delays
    }

    /// Notes the number of a write; an error tells that the number was given before.
    pub(crate) fn note_number(&mut self, header: &Header) -> Result<(), String> {
        let highest = self.numbered.entry((header.partition, header.switch)).or_default();
        if header.sequence <= *highest {
            return Err(format!("{header:?}, and the highest was {highest}"));
        }
        *highest = header.sequence;
        Ok(())
    }

    /// Returns the object that a switch sees.
    pub(crate) fn object(&self, object: u32) -> u32 {
        match self.rules.objects {
            Some(objects) if object != NO_OBJECT => 1 + object % objects,
            _ => object,
        }
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.rules.noise = [Noise::default(); 5];
        (self.rules.stale, self.rules.wrong) = (0, 0);
        for (index, device) in self.devices.iter_mut().enumerate() {
            (device.up, device.is_kept) = (true, index == self.current);
        }
        self.routes.fill(self.current);
    }
}

fn kind_of(operation: Operation) -> usize {
    match operation {
        Operation::WriteFirst | Operation::WriteRest => 0,
        Operation::Completion => 1,
        Operation::Read => 2,
        Operation::FastRead => 3,
        Operation::Reply => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(switch: u32, primary: u32) -> Partition {
        let region = Region { first: 0, slots: 1 };
        Partition { index: 0, region, term: 1, switch, active: true, primary, replicas: vec![(primary, 1)] }
    }

    #[test]
    fn no_partition_comes_back_under_its_id() {
        let rules = SwitchRules { partitions: 2, ..SwitchRules::calm() };
        let mut device = Device::new(&rules);
        assert_eq!(device.set(1, &rules, partition(0, 0)), Set::Done);
        assert_eq!(device.set(1, &rules, partition(5, 0)), Set::Done);
        assert_eq!(device.set(1, &rules, partition(5, 2)), Set::Done, "it has another primary, and its registers");
        assert_eq!(device.set(1, &rules, partition(0, 0)), Set::Old);
        assert_eq!(device.set(2, &rules, partition(5, 0)), Set::Done);
        assert_eq!(device.set(3, &rules, partition(5, 0)), Set::NoRoom);
        for _ in 0..UNWANTED_MAX {
            device.keep(&BTreeSet::from([2]));
        }
        assert!(!device.has(1) && device.has(2));
        assert_eq!(device.set(1, &rules, partition(5, 0)), Set::Spent);
        assert_eq!(device.set(1, &rules, partition(6, 0)), Set::Done);
        device.restart(&rules);
        assert_eq!((device.life, device.has(2)), (2, false));
    }
}
