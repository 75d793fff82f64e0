//! Arrays as they are read and written.

use header::{Header, Operation};
use update::Type::{Delete, Insert, Modify};

use super::super::standin::Standin;
use super::*;
use crate::dirty::{Region, Shape};
use crate::tables::Partition;

fn standin() -> Standin {
    Standin::new(Shape { stages: 3, slots: 8 }, 4)
}

fn write_first(standin: &Standin) -> Header {
    let mut header = Header {
        operation: Operation::WriteFirst,
        partition: 0x0102_0304,
        object: 0x0506_0708,
        switch: 0,
        term: 1,
        sequence: 0,
        committed: 0,
        tag: 0,
    };
    standin.lock().pipeline.process(&mut header, 0);
    header
}

fn with_partition(standin: &Standin) {
    let region = Region { first: 0, slots: 8 };
    let partition =
        Partition { index: 2, region, term: 1, switch: 9, active: true, primary: 1, replicas: vec![(2, 1)] };
    standin.lock().pipeline.set(0x0102_0304, partition).unwrap();
}

fn register(register_id: u32, index: Option<i64>, bytes: Option<&[u8]>) -> v1::RegisterEntry {
    let data = |bytes: &[u8]| v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(bytes.to_vec())) };
    v1::RegisterEntry { register_id, index: index.map(|index| v1::Index { index }), data: bytes.map(data) }
}

fn read(asked: &v1::RegisterEntry, standin: &Standin) -> Result<Vec<v1::RegisterEntry>, Problem> {
    let entry = |entity: v1::Entity| match entity.entity {
        Some(Entity::RegisterEntry(entry)) => entry,
        other => panic!("{other:?}"),
    };
    Ok(read_registers(asked, standin)?.into_iter().flat_map(Cells::entities).map(entry).collect())
}

#[test]
fn what_packets_changed_is_read() {
    let standin = standin();
    with_partition(&standin);
    assert_eq!(write_first(&standin).sequence, 1);
    let state = [&[1, 2, 3, 4, 0, 0, 0, 9][..], &[0, 0, 0, 0, 0, 0, 0, 1], &[0; 8]].concat();
    let wanted = register(register::PARTITION_STATE, Some(2), Some(&state));
    assert_eq!(read(&register(register::PARTITION_STATE, Some(2), None), &standin), Ok(vec![wanted.clone()]));
    let slot = [&[1, 2, 3, 4, 0, 0, 0, 9, 5, 6, 7, 8][..], &[0, 0, 0, 0, 0, 0, 0, 1]].concat();
    let slots = read(&register(register::STAGES[0], None, None), &standin).unwrap();
    assert_eq!(slots.len(), 8);
    let taken = |entry: &&v1::RegisterEntry| entry.data != register(0, None, Some(&[0])).data;
    let [taken] = &slots.iter().filter(taken).collect::<Vec<_>>()[..] else { panic!("{slots:?}") };
    assert_eq!(taken.data, register(0, None, Some(&slot)).data);
    assert_eq!(read(&register(0, None, None), &standin).unwrap().len(), 4 + 3 * 8);
    assert!(read(&register(0, None, None), &standin).unwrap().contains(&wanted));
}

#[test]
fn what_is_written_is_what_packets_find() {
    let standin = standin();
    with_partition(&standin);
    let state = [&[1, 2, 3, 4, 0, 0, 0, 9][..], &[0, 0, 0, 0, 0, 0, 0, 41], &[0; 8]].concat();
    let entry = register(register::PARTITION_STATE, Some(2), Some(&state));
    write_register(Modify, &entry, &standin).unwrap();
    assert_eq!(read(&register(register::PARTITION_STATE, Some(2), None), &standin), Ok(vec![entry]));
    assert_eq!(write_first(&standin).sequence, 42);
    // All stages are full of another partition's objects.
    let slot = [&[1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 1][..], &[0, 0, 0, 0, 0, 0, 0, 50]].concat();
    for stage in register::STAGES {
        write_register(Modify, &register(stage, None, Some(&slot)), &standin).unwrap();
    }
    assert_eq!(write_first(&standin).sequence, 0, "it was dropped");
    let slots = read(&register(register::STAGES[2], None, None), &standin).unwrap();
    assert!(slots.iter().all(|entry| entry.data == register(0, None, Some(&slot)).data));
}

#[test]
fn cells_that_are_none() {
    let standin = standin();
    let code = |kind, entry: v1::RegisterEntry| write_register(kind, &entry, &standin).unwrap_err().code;
    let state = register::PARTITION_STATE;
    assert_eq!(code(Insert, register(state, Some(0), Some(&[1]))), Code::InvalidArgument);
    assert_eq!(code(Delete, register(state, Some(0), Some(&[1]))), Code::InvalidArgument);
    assert_eq!(code(Modify, register(7, Some(0), Some(&[1]))), Code::InvalidArgument);
    assert_eq!(code(Modify, register(state, Some(-1), Some(&[1]))), Code::InvalidArgument);
    assert_eq!(code(Modify, register(state, Some(4), Some(&[1]))), Code::OutOfRange);
    assert_eq!(code(Modify, register(state, Some(0), None)), Code::InvalidArgument);
    assert_eq!(code(Modify, register(state, Some(0), Some(&[]))), Code::OutOfRange);
    assert_eq!(code(Modify, register(state, Some(0), Some(&[1; 25]))), Code::OutOfRange);
    assert_eq!(code(Modify, register(register::STAGES[0], Some(0), Some(&[1; 21]))), Code::OutOfRange);
    assert_eq!(read(&register(7, None, None), &standin).unwrap_err().code, Code::InvalidArgument);
    assert_eq!(read(&register(state, Some(4), None), &standin).unwrap_err().code, Code::OutOfRange);
}

#[test]
fn counters_are_read_and_set() {
    let standin = standin();
    let counter = |counter_id, index: Option<i64>, packets: Option<i64>| v1::CounterEntry {
        counter_id,
        index: index.map(|index| v1::Index { index }),
        data: packets.map(|packet_count| v1::CounterData { byte_count: 0, packet_count }),
    };
    let full = Counted::Full as i64;
    write_counter(Modify, &counter(VERDICTS, Some(full), Some(5)), &standin).unwrap();
    let entity = |entry| v1::Entity { entity: Some(Entity::CounterEntry(entry)) };
    let wanted = entity(counter(VERDICTS, Some(full), Some(5)));
    assert_eq!(read_counters(&counter(VERDICTS, Some(full), None), &standin), Ok(vec![wanted.clone()]));
    for id in [0, VERDICTS] {
        let all = read_counters(&counter(id, None, None), &standin).unwrap();
        assert!(all.len() == Counted::ALL.len() && all.contains(&wanted));
    }
    write_counter(Modify, &counter(VERDICTS, Some(full), None), &standin).unwrap();
    assert_eq!(standin.lock().counters[Counted::Full as usize], 5);
    write_counter(Modify, &counter(VERDICTS, None, Some(0)), &standin).unwrap();
    assert_eq!(standin.lock().counters, [0; 11]);

    let code = |kind, entry: v1::CounterEntry| write_counter(kind, &entry, &standin).unwrap_err().code;
    assert_eq!(code(Insert, counter(VERDICTS, Some(0), Some(1))), Code::InvalidArgument);
    assert_eq!(code(Modify, counter(0, Some(0), Some(1))), Code::InvalidArgument);
    assert_eq!(code(Modify, counter(VERDICTS, Some(0), Some(-1))), Code::InvalidArgument);
    assert_eq!(code(Modify, counter(VERDICTS, Some(-1), Some(1))), Code::InvalidArgument);
    assert_eq!(code(Modify, counter(VERDICTS, Some(11), Some(1))), Code::OutOfRange);
}
