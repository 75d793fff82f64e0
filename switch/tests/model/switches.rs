//! Switch: the real pipeline, or the paper's Algorithm 1 with sets, for defects that the real one cannot have.

use std::collections::BTreeMap;

use header::{Header, Operation};
use switch::dirty::{Region, Shape};
use switch::pipeline::{Pipeline, Verdict, Why};
use switch::tables::Partition;

use crate::rules::{Defect, Kind, Rules};

/// Owner of numbers: one switch in one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub term: u8,
    pub switch: u8,
}

/// Decision about a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Goes to any replica, stamped with this point.
    Fast(u8),
    /// Goes to the primary.
    Primary,
}

/// Switch that a controller has told of one term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    handle: Handle,
    inside: Inside,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Inside {
    Real(Box<Pipeline>),
    Dull(Dull),
}

/// `Harmonia` Algorithm 1 and §6.2, word by word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Dull {
    sequence: u8,
    committed: u8,
    dirty: BTreeMap<u32, u8>,
}

/// Returns the member that is primary in a term. The other members are replicas.
pub fn primary_of(term: u8) -> usize {
    usize::from(term) - 1
}

impl Switch {
    /// Returns a switch with empty registers, under this id, for the first term.
    pub fn new(rules: &Rules, handle: Handle) -> Switch {
        let inside = match rules.kind {
            Kind::Real(stages, slots) => {
                Inside::Real(Box::new(Pipeline::new(Shape { stages, slots: slots as usize }, 1)))
            }
            Kind::Dull(_) => Inside::Dull(Dull::default()),
        };
        let mut switch = Switch { handle, inside };
        switch.set(rules, handle.term);
        switch
    }

    /// Returns the handle of the numbers that the switch gives.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Takes the controller's notice of a term. Registers and slots stay as they are, and are the next term's.
    pub fn set(&mut self, rules: &Rules, term: u8) {
        let before = self.handle;
        self.handle.term = term;
        match &mut self.inside {
            Inside::Real(pipeline) => {
                let Kind::Real(_, slots) = rules.kind else { unreachable!("it is a real one") };
                pipeline.remove(before.term.into());
                let primary = primary_of(term);
                let partition = Partition {
                    index: 0,
                    region: Region { first: 0, slots },
                    term: term.into(),
                    switch: self.handle.switch.into(),
                    active: true,
                    primary: primary as u32,
                    replicas: (0..3).filter(|member| *member != primary).map(|member| (member as u32, 1)).collect(),
                };
                pipeline.set(term.into(), partition).expect("there is nothing else in it");
            }
            Inside::Dull(dull) if before.term != term => *dull = Dull::default(),
            Inside::Dull(_) => {}
        }
    }

    fn header(&self, operation: Operation, object: u32) -> Header {
        let term = self.handle.term.into();
        let partition = self.handle.term.into();
        Header { operation, partition, object, switch: 0, term, sequence: 0, committed: 0, tag: 0 }
    }

    /// Passes a write; returns its number if it is forwarded.
    pub fn write(&mut self, rules: &Rules, object: u32) -> Option<u8> {
        let mut header = self.header(Operation::WriteFirst, object);
        match &mut self.inside {
            Inside::Real(pipeline) => match pipeline.process(&mut header, 0) {
                Verdict::To(_) => {
                    assert_eq!(header.switch, u32::from(self.handle.switch));
                    Some(header.sequence as u8)
                }
                Verdict::Drop(Why::Full) => None,
                verdict => panic!("{verdict:?}"),
            },
            Inside::Dull(dull) => {
                let Kind::Dull(room) = rules.kind else { unreachable!("it is a dull one") };
                let has_room = dull.dirty.len() < room || dull.dirty.contains_key(&object);
                if !has_room && !rules.lacks(Defect::Untracked) {
                    return None;
                }
                dull.sequence += 1;
                if has_room {
                    dull.dirty.insert(object, dull.sequence);
                }
                Some(dull.sequence)
            }
        }
    }

    /// Passes a completion: everything up to this number of this handle is complete. The number was that of this object.
    pub fn complete(&mut self, rules: &Rules, of: Handle, number: u8, object: u32) {
        let mut header = self.header(Operation::Completion, object);
        (header.partition, header.term) = (of.term.into(), of.term.into());
        (header.switch, header.sequence) = (of.switch.into(), number.into());
        match &mut self.inside {
            Inside::Real(pipeline) => {
                let _ = pipeline.process(&mut header, 0);
            }
            Inside::Dull(dull) => {
                if of != self.handle || number > dull.sequence {
                    return;
                }
                if rules.lacks(Defect::LowerClears) {
                    dull.dirty.remove(&object);
                }
                dull.dirty.retain(|_, dirty| *dirty > number);
                let lowers = rules.lacks(Defect::PointLowered);
                dull.committed = if lowers { number } else { dull.committed.max(number) };
            }
        }
    }

    /// Passes a read.
    pub fn read(&mut self, rules: &Rules, object: u32) -> Way {
        let mut header = self.header(Operation::Read, object);
        match &mut self.inside {
            Inside::Real(pipeline) => {
                let verdict = pipeline.process(&mut header, 0);
                assert!(matches!(verdict, Verdict::To(_)), "{verdict:?}");
                let is_fast = header.operation == Operation::FastRead;
                if is_fast { Way::Fast(header.committed as u8) } else { Way::Primary }
            }
            Inside::Dull(dull) => {
                let may = dull.committed > 0 || rules.lacks(Defect::NoneComplete);
                if may && !dull.dirty.contains_key(&object) { Way::Fast(dull.committed) } else { Way::Primary }
            }
        }
    }
}
