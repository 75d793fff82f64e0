//! Stories: packets with their expected treatment. They are golden files, so that the pipeline's meaning does not change. They
//! can be played on any switch that claims the same meaning (module `replay`).
//!
//! Each line is a step: a partition is set or removed, or a packet passes. The expected treatment of a packet is behind `->`.
//!
//! ```text
//! # Harmonia §6.1: a read of an object that is being written goes to the primary.
//! partition 5 index=0 first=0 slots=8 term=7 switch=1 active primary=100 replicas=101*1,102*3
//! write 5 object=1                -> to 100 switch=1 sequence=1
//! read 5 object=1                 -> to 100
//! completion 5 switch=1 sequence=1 -> on
//! read 5 object=1 chance=0        -> to 101 operation=fast-read switch=1 committed=1
//! remove 5
//! read 5 object=1                 -> drop no-partition
//! ```
//!
//! Unless its line gives another value, a packet has the term of its partition, and zero in all other fields. The verdict is
//! followed by exactly those header fields that the switch has changed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use header::{Header, Operation};

use crate::dirty::{Region, Shape};
use crate::pipeline::{Pipeline, REGISTERS, Verdict, Why};
use crate::tables::Partition;

#[cfg(all(feature = "p4runtime", feature = "soft"))]
pub mod cli;
#[cfg(feature = "p4runtime")]
pub mod replay;

/// Names of operations.
const OPERATIONS: [(&str, Operation); 6] = [
    ("read", Operation::Read),
    ("fast-read", Operation::FastRead),
    ("write", Operation::WriteFirst),
    ("write-rest", Operation::WriteRest),
    ("reply", Operation::Reply),
    ("completion", Operation::Completion),
];

/// Names of reasons.
const REASONS: [(&str, Why); 3] = [("no-partition", Why::NoPartition), ("full", Why::Full), ("stale", Why::Stale)];

/// Wrong line: it cannot be parsed, or the result differs from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Wrong {
    /// Number of the line, from 1.
    pub line: usize,
    /// Description of the difference.
    pub why: String,
}

/// Treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Decision of the pipeline.
    pub verdict: Verdict,
    /// Header of the packet after it has passed.
    pub header: Header,
}

/// Action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets a partition; replaces the partition with this number.
    Set(u32, Partition),
    /// Removes the partition with this number.
    Remove(u32),
    /// A packet passes.
    Packet {
        /// Header of the packet.
        header: Header,
        /// Number that selects one of the replicas.
        chance: u32,
        /// Expected treatment, in words.
        golden: String,
    },
}

/// Line of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the line, from 1.
    pub line: usize,
    /// Action of the step.
    pub action: Action,
}

/// Story.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Steps, in order.
    pub steps: Vec<Step>,
}

impl FromStr for Trace {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Trace, Wrong> {
        let mut terms = BTreeMap::new();
        let mut steps = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default().trim();
            if !text.is_empty() {
                let action = action(text, &mut terms).map_err(|why| Wrong { line, why })?;
                steps.push(Step { line, action });
            }
        }
        Ok(Trace { steps })
    }
}

/// Words of a line, with a value or without.
struct Words<'a> {
    words: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(text: impl Iterator<Item = &'a str>) -> Result<Words<'a>, String> {
        let mut words = BTreeMap::new();
        for word in text {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if words.insert(name, value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        Ok(Words { words })
    }

    fn take<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        match self.words.remove(name) {
            None => Ok(None),
            Some(value) => value.parse().map(Some).map_err(|_| format!("{name} is {value:?}")),
        }
    }

    fn need<T: FromStr>(&mut self, name: &str) -> Result<T, String> {
        self.take(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    fn end(self) -> Result<(), String> {
        match self.words.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("unknown name {name}")),
        }
    }
}

fn action(text: &str, terms: &mut BTreeMap<u32, u64>) -> Result<Action, String> {
    let (step, golden) = text.split_once("->").map_or((text, None), |(step, golden)| (step, Some(golden)));
    let mut words = step.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let number = words.next().and_then(|number| number.parse().ok()).ok_or("a partition's number is missing")?;
    let words = Words::of(words)?;
    if golden.is_some() != OPERATIONS.iter().any(|(name, _)| *name == verb) {
        return Err("something comes of packets, and of nothing else".to_owned());
    }
    match verb {
        "partition" => {
            let partition = partition(words)?;
            terms.insert(number, partition.term);
            Ok(Action::Set(number, partition))
        }
        "remove" => words.end().map(|()| Action::Remove(number)),
        verb => {
            let found = OPERATIONS.into_iter().find(|(name, _)| *name == verb);
            let (_, operation) = found.ok_or_else(|| format!("unknown verb {verb}"))?;
            let term = terms.get(&number).copied().unwrap_or_default();
            packet(operation, number, term, words, golden.unwrap_or_default())
        }
    }
}

fn partition(mut words: Words<'_>) -> Result<Partition, String> {
    let region = Region { first: words.need("first")?, slots: words.need("slots")? };
    let replicas: String = words.take("replicas")?.unwrap_or_default();
    let replica = |text: &str| {
        let (replica, weight) = text.split_once('*')?;
        Some((replica.parse().ok()?, weight.parse().ok()?))
    };
    let replicas = replicas.split(',').filter(|text| !text.is_empty()).map(replica).collect::<Option<_>>();
    let partition = Partition {
        index: words.need("index")?,
        region,
        term: words.need("term")?,
        switch: words.need("switch")?,
        active: words.take::<String>("active")?.is_some(),
        primary: words.need("primary")?,
        replicas: replicas.ok_or("replicas are written as 101*1,102*3")?,
    };
    words.end().map(|()| partition)
}

fn packet(
    operation: Operation,
    partition: u32,
    term: u64,
    mut words: Words<'_>,
    golden: &str,
) -> Result<Action, String> {
    let header = Header {
        operation,
        partition,
        object: words.take("object")?.unwrap_or_default(),
        switch: words.take("switch")?.unwrap_or_default(),
        term: words.take("term")?.unwrap_or(term),
        sequence: words.take("sequence")?.unwrap_or_default(),
        committed: words.take("committed")?.unwrap_or_default(),
        tag: words.take("tag")?.unwrap_or_default(),
    };
    let chance = words.take("chance")?.unwrap_or_default();
    let golden = golden.split_whitespace().collect::<Vec<_>>().join(" ");
    words.end().map(|()| Action::Packet { header, chance, golden })
}

impl Trace {
    /// Plays the story on the pipeline. Returns the treatment of each packet, in order.
    ///
    /// # Errors
    /// The first line whose result differs from the story.
    pub fn run(&self) -> Result<Vec<Outcome>, Wrong> {
        let mut pipeline = Pipeline::new(Shape::DEFAULT, REGISTERS);
        let mut outcomes = Vec::new();
        for Step { line, action } in &self.steps {
            let wrong = |why| Wrong { line: *line, why };
            match action {
                Action::Set(number, partition) => {
                    pipeline.set(*number, partition.clone()).map_err(|error| wrong(error.to_string()))?;
                }
                Action::Remove(number) => {
                    pipeline.remove(*number).ok_or_else(|| wrong("there is no such partition".to_owned()))?;
                }
                Action::Packet { header, chance, golden } => {
                    let mut passed = *header;
                    let verdict = pipeline.process(&mut passed, *chance);
                    let outcome = Outcome { verdict, header: passed };
                    let words = Comes { before: header, outcome: &outcome }.to_string();
                    if words != *golden {
                        return Err(wrong(format!("it says {golden:?}, and {words:?} comes of it")));
                    }
                    outcomes.push(outcome);
                }
            }
        }
        Ok(outcomes)
    }
}

/// Treatment of a packet, in words.
struct Comes<'a> {
    before: &'a Header,
    outcome: &'a Outcome,
}

impl fmt::Display for Comes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comes { before, outcome: Outcome { verdict, header } } = self;
        match verdict {
            Verdict::To(replica) => write!(f, "to {replica}")?,
            Verdict::On => write!(f, "on")?,
            Verdict::Drop(why) => {
                let name = REASONS.iter().find(|(_, reason)| reason == why).map_or("", |(name, _)| name);
                // The header of a dropped packet has no meaning.
                return write!(f, "drop {name}");
            }
        }
        if header.operation != before.operation {
            let name = OPERATIONS.iter().find(|(_, other)| *other == header.operation).map_or("", |(name, _)| name);
            write!(f, " operation={name}")?;
        }
        for (name, before, after) in [
            ("switch", u64::from(before.switch), u64::from(header.switch)),
            ("sequence", before.sequence, header.sequence),
            ("committed", before.committed, header.committed),
        ] {
            if before != after {
                write!(f, " {name}={after}")?;
            }
        }
        let fixed = |header: &Header| (header.partition, header.object, header.term, header.tag);
        if fixed(before) != fixed(header) {
            write!(f, " and what no switch changes")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, String) {
        let Wrong { line, why } = text.parse::<Trace>().and_then(|trace| trace.run()).unwrap_err();
        (line, why)
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let partition = "partition 5 index=0 first=0 slots=8 term=7 switch=1 primary=100";
        for (text, line, why) in [
            ("look 5", 1, "unknown verb look"),
            ("\n# all is well\nread", 3, "a partition's number is missing"),
            ("read 5", 1, "something comes of packets, and of nothing else"),
            ("remove 5 -> on", 1, "something comes of packets, and of nothing else"),
            ("read 5 object=x -> on", 1, "object is \"x\""),
            ("read 5 object=1 object=2 -> on", 1, "object is given twice"),
            ("read 5 subject=1 -> on", 1, "unknown name subject"),
            ("partition 5 first=0", 1, "slots is missing"),
            (&format!("{partition} replicas=1"), 1, "replicas are written as 101*1,102*3"),
            ("remove 5", 1, "there is no such partition"),
            (&format!("{partition}\n{partition} primary=1"), 2, "primary is given twice"),
            ("read 5 -> to 1", 1, "it says \"to 1\", and \"drop no-partition\" comes of it"),
            (&partition.replace("slots=8", "slots=7"), 1, "slots 0 to 7 are taken, or are none"),
        ] {
            assert_eq!(wrong(text), (line, why.to_owned()));
        }
    }

    #[test]
    fn what_comes_of_packets_is_held_against_what_is_said() {
        let text = "partition 5 index=0 first=0 slots=8 term=7 switch=1 active primary=100 replicas=101*1,102*3
            write 5 object=1   -> to 100 switch=1   sequence=1
            completion 5 switch=1 sequence=1 -> on
            fast-read 5 object=1 chance=3 committed=9 -> to 102 switch=1 committed=1";
        let trace: Trace = text.parse().unwrap();
        let outcomes = trace.run().unwrap();
        assert_eq!((outcomes.len(), outcomes[2].header.committed), (3, 1));
        assert_eq!(wrong(&text.replace("committed=1", "committed=2")).0, 4);
    }
}
