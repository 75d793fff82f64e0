//! Switches of a run: what they are like, what they remember, and how each of them goes wrong.

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

/// Where nodes send what is to pass a switch, whichever is there.
pub(super) const SWITCH: ReplyTo = ReplyTo { ip: Ipv4Addr::new(10, 0, 1, 0).to_ipv6_mapped(), port: 6477 };
/// Where the first machine gets packets; the others have the ports behind it.
const PORT: u16 = 7001;
/// There are so many switches.
pub(super) const SWITCHES: usize = 2;

/// Where a machine gets packets.
pub(super) fn address_of(host: usize) -> ReplyTo {
    ReplyTo { port: PORT + host as u16, ..SWITCH }
}

/// Which machine gets what goes there.
pub(super) fn host_at(address: ReplyTo) -> Option<usize> {
    (address.ip == SWITCH.ip).then(|| address.port.checked_sub(PORT).map(usize::from))?
}

/// A rule that a switch, or who sets its tables, leaves out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchDefect {
    /// A write that has no room in the dirty set goes on all the same (hazard 56).
    Untracked,
    /// A switch that has forgotten everything goes on under its id (hazard 55).
    OldId,
    /// A completion takes everything out of the dirty set (hazard 56).
    Cleared,
    /// A completion that comes late lowers the point (hazard 57).
    PointLowered,
}

/// What switches are like, and what goes wrong with packets and tables all the time, until all is healed.
#[derive(Clone, Debug)]
pub struct SwitchRules {
    /// Stages of the dirty set.
    pub stages: usize,
    /// Slots of each partition in each stage: a power of two.
    pub slots: u32,
    /// Partitions that fit in at a time: a power of two.
    pub partitions: u32,
    /// So many objects are told apart; `None`: as many as nodes do.
    pub objects: Option<u32>,
    /// How long a packet travels to a switch, or from there, at least, and how much longer at most.
    pub delay: (Duration, Duration),
    /// So much longer at most what is overtaken.
    pub late: Duration,
    /// Of each kind of packets, on each of its ways.
    pub noise: [Noise; 5],
    /// What keeps frames back between two machines loses packets between them.
    pub shares_wires: bool,
    /// How often somebody looks what there is to be set.
    pub look_every: Duration,
    /// It is set so much later at most.
    pub sets_after: Duration,
    /// In 1,000 looks at a group so many are at some member, and not at that which knows most.
    pub stale: u32,
    /// In 1,000 partitions so many are set wrongly: anybody may be a replica, or the primary.
    pub wrong: u32,
    /// What is left out on purpose.
    pub defect: Option<SwitchDefect>,
}

impl SwitchRules {
    /// All goes well, and there is room.
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

    /// Draws some.
    pub fn draw(rng: &mut Rng) -> SwitchRules {
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
pub(super) struct Device {
    pub pipeline: Pipeline,
    /// How often it has forgotten everything.
    pub life: u32,
    /// Packets come and go.
    pub up: bool,
    /// Somebody sets its tables.
    pub is_kept: bool,
    /// What is in its table, and how many looks ago it was last wanted.
    table: BTreeMap<u32, (Partition, u32)>,
    /// Names of partitions with ids that were ever in there, in this life.
    given: BTreeSet<(u32, u32)>,
    /// Groups that need another id, for their partitions were taken out under this one.
    pub spent: BTreeSet<GroupId>,
}

/// What becomes of setting one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Done,
    /// It is older than what is there.
    Old,
    /// It was there before, with this id, and was taken out.
    Spent,
    NoRoom,
}

/// What has not been wanted for so many looks is taken out.
const UNWANTED_MAX: u32 = 3;

impl Device {
    pub fn new(rules: &SwitchRules) -> Device {
        let (table, given, spent) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Device { pipeline: rules.pipeline(), life: 1, up: true, is_kept: false, table, given, spent }
    }

    /// Forgets everything.
    pub fn restart(&mut self, rules: &SwitchRules) {
        let life = if rules.defect == Some(SwitchDefect::OldId) { self.life } else { self.life + 1 };
        *self = Device { life, up: self.up, is_kept: self.is_kept, ..Device::new(rules) };
    }

    /// Is this partition in the table?
    pub fn has(&self, name: u32) -> bool {
        self.table.contains_key(&name)
    }

    /// What is not in the list was not wanted this time.
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

    /// Places in the dirty set where something counts.
    pub fn dirty(&self) -> usize {
        let counts = |slot: &&Slot| {
            let Some((partition, _)) = self.table.get(&slot.mark.partition) else { return false };
            let register = self.pipeline.registers()[partition.index as usize];
            register.mark == slot.mark && slot.mark.switch == partition.switch && slot.sequence > register.committed
        };
        self.pipeline.dirty().stages().iter().flat_map(|stage| stage.iter()).filter(counts).count()
    }

    /// One packet passes.
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

/// All switches, and who sets their tables.
#[derive(Debug)]
pub(super) struct Switches {
    pub rules: SwitchRules,
    pub devices: [Device; SWITCHES],
    /// Which one is in use.
    pub current: usize,
    /// Which one each machine's packets go to.
    pub routes: Vec<usize>,
    /// Nobody sets tables, for so many reasons.
    pub unattended: u32,
    /// The last id that somebody asked for, and whose each is: of one life of one switch.
    pub last_id: u32,
    pub owners: BTreeMap<u32, (usize, u32)>,
    /// The highest number that was given under each name of a partition and id, by whichever switch.
    pub numbered: BTreeMap<(u32, u32), u64>,
    /// When somebody last asked a group for something, in behalf of each switch.
    pub asked: BTreeMap<(usize, GroupId), group::time::Time>,
    pub wishes: u64,
    /// Chance of packets, and of who sets tables.
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
            wishes: 0,
            rng: Rng::new(seed, "switch"),
            control: Rng::new(seed, "controller"),
        }
    }

    /// How a packet of this kind fares on one of its ways: so much later it arrives each time.
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

    /// A write was numbered; an error says when that number was given before.
    pub fn note_number(&mut self, header: &Header) -> Result<(), String> {
        let highest = self.numbered.entry((header.partition, header.switch)).or_default();
        if header.sequence <= *highest {
            return Err(format!("{header:?}, and the highest was {highest}"));
        }
        *highest = header.sequence;
        Ok(())
    }

    /// The object that a switch sees.
    pub fn object(&self, object: u32) -> u32 {
        match self.rules.objects {
            Some(objects) if object != NO_OBJECT => 1 + object % objects,
            _ => object,
        }
    }

    /// Nothing goes wrong any more.
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
