//! The wires, and the switch in the middle of them: the real pipeline, with tables that a controller sets.

use std::time::Duration;

use group::ballot::TermBallot;
use header::{Header, NO_OBJECT, Operation};
use overlay::Key;
use overlay::time::Time;
use switch::dirty::{Mark, Region, Shape};
use switch::pipeline::{Pipeline, Verdict, Why};
use switch::tables::Partition;

use super::measured::SwitchMeasured;
use super::setting::SwitchSetting;
use super::testbed::PRIMARY;
use crate::experiment::members::key_of;
use crate::rng::Rng;

/// The switch's name of the only partition.
const PARTITION: u32 = 1;

pub(super) struct Fabric {
    wire: Duration,
    jitter: Duration,
    rng: Rng,
    /// Arrival of the last message from one member to another: the next one does not arrive before it.
    streams: Vec<Vec<Time>>,
    shape: Shape,
    /// Number of objects that are made dirty directly.
    dirty: u64,
    /// `None`: the switch forwards no packets.
    pipeline: Option<Pipeline>,
    /// Last id under which the switch gave numbers: after a loss of its state, never again (hazard 55).
    id: u32,
}

/// Returns the switch's name for an object, as members and clients derive it.
pub(super) fn object(key: &Key) -> u32 {
    (key.point().0 as u32).max(NO_OBJECT + 1)
}

/// Returns a header for an object in the partition of this ballot.
pub(super) fn header(operation: Operation, ballot: TermBallot, object: u32, tag: u64) -> Header {
    Header { operation, partition: PARTITION, object, switch: 0, term: ballot.term.0, sequence: 0, committed: 0, tag }
}

impl Fabric {
    pub(super) fn new(setting: &SwitchSetting) -> Fabric {
        let shape = setting.switch.unwrap_or(Shape { stages: 1, slots: 1 });
        Fabric {
            wire: setting.wire,
            jitter: setting.jitter,
            rng: Rng::new(setting.seed, "wires"),
            streams: vec![vec![Time(0); setting.replicas]; setting.replicas],
            shape,
            dirty: setting.dirty,
            pipeline: setting.switch.map(|_| Pipeline::new(shape, 1)),
            id: 0,
        }
    }

    /// Draws the time of a packet to the switch, or from it.
    pub(super) fn half(&mut self) -> Duration {
        self.wire / 2 + self.rng.duration(Duration::ZERO, self.jitter / 2)
    }

    /// Returns the arrival of a message that is sent now. On a stream from one member to another it arrives behind earlier
    /// messages.
    pub(super) fn arrival(&mut self, stream: Option<(usize, usize)>, now: Time) -> Time {
        let at = now + self.wire + self.rng.duration(Duration::ZERO, self.jitter);
        let Some((from, to)) = stream else { return at };
        let last = &mut self.streams[from][to];
        *last = at.max(*last);
        *last
    }

    pub(super) fn stop(&mut self) {
        self.pipeline = None;
    }

    pub(super) fn start(&mut self) {
        self.pipeline = Some(Pipeline::new(self.shape, 1));
    }

    /// Passes a packet through the switch. Returns the receiving member, if there is one.
    pub(super) fn pass(&mut self, mut header: Header, measured: &mut SwitchMeasured) -> Option<(usize, Header)> {
        let Some(pipeline) = &mut self.pipeline else {
            measured.lost += 1;
            return None;
        };
        let is_write = header.operation == Operation::WriteFirst && header.object != NO_OBJECT;
        let verdict = pipeline.process(&mut header, self.rng.bits() as u32);
        if is_write {
            let register = pipeline.registers()[0];
            measured.passes(register.sequence - register.committed, verdict == Verdict::Drop(Why::Full));
        }
        match verdict {
            Verdict::To(replica) => Some((replica as usize, header)),
            Verdict::On => None,
            Verdict::Drop(_) => None,
        }
    }

    /// Sets the tables for this id, if it is a new one.
    pub(super) fn control(&mut self, wanted: Option<u32>, ballot: TermBallot, replicas: usize) {
        let (Some(pipeline), Some(id)) = (&mut self.pipeline, wanted) else { return };
        if id <= self.id {
            return;
        }
        self.id = id;
        let region = Region { first: 0, slots: self.shape.slots as u32 };
        let partition = Partition {
            index: 0,
            region,
            term: ballot.term.0,
            switch: id,
            active: true,
            primary: PRIMARY as u32,
            replicas: (0..replicas as u32).map(|replica| (replica, 1)).collect(),
        };
        pipeline.set(PARTITION, partition).expect("there is nothing else");
        let mark = Mark { partition: PARTITION, switch: id };
        // The first objects that find room.
        let mut room = |number| pipeline.dirty_mut().insert(region, mark, object(&key_of(number)), u64::MAX, 0);
        (0..).filter(|number| room(*number)).take(self.dirty as usize).for_each(drop);
    }
}
