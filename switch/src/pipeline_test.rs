//! Pipeline with tiny tables against sets with room for everything.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::dirty::Region;

const PRIMARY: Replica = 100;

fn partition(index: u32, switch: u32) -> Partition {
    let region = Region { first: 4 * index, slots: 4 };
    Partition { index, region, term: 7, switch, active: true, primary: PRIMARY, replicas: vec![(1, 1), (2, 3)] }
}

fn header(operation: Operation, partition: u32, object: u32) -> Header {
    Header { operation, partition, object, switch: 0, term: 7, sequence: 0, committed: 0, tag: 0 }
}

/// Step of a random run.
#[derive(Clone, Debug)]
enum PipelineStep {
    Write(u32, u32),
    Read(u32, u32, u32),
    /// Completes a partition up to this part of the given numbers, in percent; some come late, or twice.
    Complete(u32, u64),
    /// The same for the switch before, so that it has no effect.
    Late(u32, u64),
    /// The partition has another switch from now on: this one, started anew, or another one.
    Renew(u32),
    Rest(u32, bool),
}

fn step() -> impl Strategy<Value = PipelineStep> {
    let (of, object) = (0u32..2, 0u32..6);
    prop_oneof![
        4 => (of.clone(), object.clone()).prop_map(|(of, object)| PipelineStep::Write(of, object)),
        6 => (of.clone(), object, any::<u32>()).prop_map(|(of, object, chance)| PipelineStep::Read(of, object, chance)),
        3 => (of.clone(), 0u64..=100).prop_map(|(of, percent)| PipelineStep::Complete(of, percent)),
        1 => (of.clone(), 0u64..=100).prop_map(|(of, percent)| PipelineStep::Late(of, percent)),
        1 => of.clone().prop_map(PipelineStep::Renew),
        1 => (of, any::<bool>()).prop_map(|(of, active)| PipelineStep::Rest(of, active)),
    ]
}

/// State of a partition with room for everything.
#[derive(Clone, Debug)]
struct Model {
    partition: Partition,
    given: u64,
    committed: u64,
    open: BTreeSet<(u64, u32)>,
}

impl Model {
    fn is_dirty(&self, object: u32) -> bool {
        self.open.iter().any(|(_, other)| *other == object)
    }
}

fn play(steps: Vec<PipelineStep>) -> Result<(), TestCaseError> {
    let mut pipeline = Pipeline::new(Shape { stages: 2, slots: 8 }, 2);
    let mut models: Vec<Model> = (0..2)
        .map(|index| Model { partition: partition(index, 1), given: 0, committed: 0, open: BTreeSet::new() })
        .collect();
    for model in &models {
        pipeline.set(model.partition.index, model.partition.clone()).unwrap();
    }
    for step in steps {
        match step {
            PipelineStep::Write(of, object) => write(&mut pipeline, &mut models[of as usize], of, object)?,
            PipelineStep::Complete(of, percent) => {
                let model = &mut models[of as usize];
                let sequence = model.given * percent / 100;
                let mut header = header(Operation::Completion, of, 0);
                (header.switch, header.sequence) = (model.partition.switch, sequence);
                let verdict = pipeline.process(&mut header, 0);
                prop_assert_eq!(verdict, if sequence == 0 { Verdict::Drop(Why::Stale) } else { Verdict::On });
                model.committed = model.committed.max(sequence);
                let committed = model.committed;
                model.open.retain(|(sequence, _)| *sequence > committed);
            }
            PipelineStep::Late(of, percent) => {
                let (model, mut header) = (&models[of as usize], header(Operation::Completion, of, 0));
                (header.switch, header.sequence) = (model.partition.switch - 1, model.given * percent / 100);
                prop_assert_eq!(pipeline.process(&mut header, 0), Verdict::Drop(Why::Stale));
            }
            PipelineStep::Read(of, object, chance) => read(&mut pipeline, &models[of as usize], of, (object, chance))?,
            PipelineStep::Renew(of) => {
                let model = &mut models[of as usize];
                model.partition.switch += 1;
                // Registers and slots keep their content.
                pipeline.set(of, model.partition.clone()).unwrap();
                (model.given, model.committed) = (0, 0);
                model.open.clear();
            }
            PipelineStep::Rest(of, active) => {
                models[of as usize].partition.active = active;
                pipeline.set(of, models[of as usize].partition.clone()).unwrap();
            }
        }
    }
    Ok(())
}

/// Sends the first packet of a write through the pipeline and the model.
fn write(pipeline: &mut Pipeline, model: &mut Model, of: u32, object: u32) -> Result<(), TestCaseError> {
    let mut header = header(Operation::WriteFirst, of, object);
    match pipeline.process(&mut header, 0) {
        Verdict::Drop(Why::Full) => {
            prop_assert!(model.open.len() >= 2 && object != NO_OBJECT, "two stages are full");
        }
        verdict => {
            prop_assert_eq!(verdict, Verdict::To(PRIMARY));
            prop_assert!(header.sequence > model.given, "numbers only go up");
            prop_assert_eq!(header.switch, model.partition.switch);
            model.given = header.sequence;
            if object != NO_OBJECT {
                model.open.insert((header.sequence, object));
            }
        }
    }
    Ok(())
}

/// Sends a read through the pipeline, and compares its treatment with the model.
fn read(pipeline: &mut Pipeline, model: &Model, of: u32, (object, chance): (u32, u32)) -> Result<(), TestCaseError> {
    let mut header = header(Operation::Read, of, object);
    // Any claim of a client.
    header.committed = u64::from(chance);
    let verdict = pipeline.process(&mut header, chance);
    let may = model.partition.active && model.committed > 0 && !model.is_dirty(object);
    if may {
        let wanted = (Verdict::To(if chance % 4 == 0 { 1 } else { 2 }), Operation::FastRead);
        prop_assert_eq!((verdict, header.operation), wanted, "clean, and so the set drains");
        prop_assert_eq!((header.switch, header.committed), (model.partition.switch, model.committed));
    } else {
        prop_assert_eq!((verdict, header.operation), (Verdict::To(PRIMARY), Operation::Read));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_read_goes_to_one_replica_where_nothing_is_open(steps in proptest::collection::vec(step(), 1..80)) {
        play(steps)?;
    }
}

#[test]
fn packets_of_no_partition_are_dropped() {
    let mut pipeline = Pipeline::new(Shape { stages: 1, slots: 8 }, 1);
    pipeline.set(5, partition(0, 1)).unwrap();
    let mut of_another_term = Header { term: 8, ..header(Operation::Read, 5, 1) };
    assert_eq!(pipeline.process(&mut of_another_term, 0), Verdict::Drop(Why::NoPartition));
    assert_eq!(pipeline.process(&mut header(Operation::Read, 6, 1), 0), Verdict::Drop(Why::NoPartition));
    assert_eq!(pipeline.process(&mut header(Operation::Reply, 6, 1), 0), Verdict::On);
    let mut fast = Header { committed: 99, switch: 1, ..header(Operation::FastRead, 5, 1) };
    assert_eq!(pipeline.process(&mut fast, 0), Verdict::To(PRIMARY));
    assert_eq!(fast.operation, Operation::Read, "who claims that a read is fast is not believed");
    // A number that was not given is not complete.
    let mut early = Header { switch: 1, sequence: 1, ..header(Operation::Completion, 5, 1) };
    assert_eq!(pipeline.process(&mut early, 0), Verdict::Drop(Why::Stale));
    assert!(pipeline.remove(5).is_some());
    assert_eq!(pipeline.process(&mut header(Operation::Read, 5, 1), 0), Verdict::Drop(Why::NoPartition));
}

#[test]
fn without_a_switch_id_nothing_is_numbered() {
    let mut pipeline = Pipeline::new(Shape { stages: 1, slots: 8 }, 1);
    pipeline.set(5, partition(0, 0)).unwrap();
    let mut write = header(Operation::WriteFirst, 5, 1);
    assert_eq!((pipeline.process(&mut write, 0), write.sequence), (Verdict::To(PRIMARY), 0));
    let forged = |operation| Header { switch: 3, sequence: 9, ..header(operation, 5, 1) };
    for (switch, operation) in
        [(0, Operation::WriteFirst), (0, Operation::WriteRest), (4, Operation::WriteRest), (4, Operation::WriteFirst)]
    {
        pipeline.set(5, partition(0, switch)).unwrap();
        let mut write = forged(operation);
        assert_eq!(pipeline.process(&mut write, 0), Verdict::To(PRIMARY));
        let is_numbered = switch > 0 && operation == Operation::WriteFirst;
        let wanted = if is_numbered { (switch, 1) } else { (0, 0) };
        assert_eq!((write.switch, write.sequence), wanted, "whatever its sender put there");
    }
    pipeline.set(5, partition(0, 0)).unwrap();
    assert_eq!(pipeline.process(&mut header(Operation::Read, 5, 1), 0), Verdict::To(PRIMARY));
}

#[test]
fn partitions_take_nothing_of_each_other() {
    let mut pipeline = Pipeline::new(Shape { stages: 1, slots: 8 }, 2);
    pipeline.set(1, partition(0, 1)).unwrap();
    let with = |index, first, slots| Partition { index, region: Region { first, slots }, ..partition(0, 1) };
    for (wrong, why) in [
        (with(0, 4, 4), PartitionError::Index(0)),
        (with(2, 4, 4), PartitionError::Index(2)),
        (with(1, 2, 4), PartitionError::Region(Region { first: 2, slots: 4 })),
        (with(1, 0, 8), PartitionError::Region(Region { first: 0, slots: 8 })),
        (with(1, 4, 3), PartitionError::Region(Region { first: 4, slots: 3 })),
        (with(1, 4, 8), PartitionError::Region(Region { first: 4, slots: 8 })),
        (with(1, u32::MAX, 4), PartitionError::Region(Region { first: u32::MAX, slots: 4 })),
    ] {
        assert_eq!(pipeline.set(2, wrong), Err(why));
    }
    pipeline.set(1, partition(0, 2)).unwrap();
    pipeline.set(2, with(1, 4, 4)).unwrap();
    assert_eq!(pipeline.set(1, with(1, 0, 4)), Err(PartitionError::Index(1)));
    pipeline.set(1, with(0, 0, 4)).unwrap();
}

/// A dirty object stays dirty: a partition gets other registers or slots only together with another switch id.
#[test]
fn a_partition_moves_only_under_a_new_id() {
    let mut pipeline = Pipeline::new(Shape { stages: 1, slots: 8 }, 2);
    pipeline.set(1, partition(0, 1)).unwrap();
    for (object, number) in [(1, 1), (2, 2)] {
        let mut write = header(Operation::WriteFirst, 1, object);
        assert_eq!((pipeline.process(&mut write, 0), write.sequence), (Verdict::To(PRIMARY), number));
    }
    let mut first_is_complete = Header { switch: 1, sequence: 1, ..header(Operation::Completion, 1, 1) };
    assert_eq!(pipeline.process(&mut first_is_complete, 0), Verdict::On);
    let of_other_slots = |switch| Partition { region: Region { first: 4, slots: 4 }, ..partition(0, switch) };
    let with_other_registers = Partition { index: 1, ..partition(0, 1) };
    assert_eq!(pipeline.set(1, of_other_slots(1)), Err(PartitionError::Moves(1)));
    assert_eq!(pipeline.set(1, with_other_registers), Err(PartitionError::Moves(1)));
    assert_eq!(pipeline.process(&mut header(Operation::Read, 1, 2), 0), Verdict::To(PRIMARY), "it is still written");
    pipeline.set(1, of_other_slots(2)).unwrap();
    assert_eq!(pipeline.process(&mut header(Operation::Read, 1, 2), 0), Verdict::To(PRIMARY), "nothing is complete");
}
