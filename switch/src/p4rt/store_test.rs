//! Entries as controllers write them, and the pipeline that follows them.

use super::super::p4info::action;
use super::super::standin::Standin;
use super::*;
use crate::dirty::{Region, Shape};
use crate::tables::Partition;
use update::Type::{Delete, Insert, Modify};

fn setting(index: u32) -> Setting {
    Setting { index, region: Region { first: 4 * index, slots: 4 }, term: 7, switch: 1, active: true, primary: 100 }
}

fn of(key: Key, value: Value) -> v1::TableEntry {
    v1::TableEntry { action: Some(value.action()), ..key.entry() }
}

fn partition(number: u32, index: u32) -> v1::TableEntry {
    of(Key::Partition(number), Value::Partition(setting(index)))
}

fn replicas(number: u32, replicas: &[(Replica, u8)]) -> v1::TableEntry {
    of(Key::Replicas(number), Value::Replicas(replicas.to_vec()))
}

fn standin() -> Standin {
    Standin::new(Shape { stages: 3, slots: 16 }, 4)
}

/// Returns a partition of the pipeline; it is removed and set again for that.
fn get(standin: &Standin, number: u32) -> Option<Partition> {
    let mut state = standin.lock();
    let partition = state.pipeline.remove(number)?;
    state.pipeline.set(number, partition.clone()).unwrap();
    Some(partition)
}

fn code(result: Result<(), Problem>) -> Code {
    result.unwrap_err().code
}

#[test]
fn two_tables_are_one_partition() {
    let (mut store, standin) = (Store::default(), standin());
    store.write(Insert, &replicas(5, &[(1, 1), (2, 3)]), &standin).unwrap();
    assert_eq!(get(&standin, 5), None, "nobody is the primary yet");
    store.write(Insert, &partition(5, 0), &standin).unwrap();
    assert_eq!(get(&standin, 5), Some(setting(0).with(vec![(1, 1), (2, 3)])));
    store.write(Modify, &replicas(5, &[(9, 9)]), &standin).unwrap();
    assert_eq!(get(&standin, 5), Some(setting(0).with(vec![(9, 9)])));
    let elsewhere = Setting { switch: 2, ..setting(1) };
    store.write(Modify, &of(Key::Partition(5), Value::Partition(elsewhere)), &standin).unwrap();
    assert_eq!(get(&standin, 5), Some(elsewhere.with(vec![(9, 9)])));
    store.write(Delete, &Key::Replicas(5).entry(), &standin).unwrap();
    assert_eq!(get(&standin, 5), Some(elsewhere.with(vec![])));
    store.write(Delete, &Key::Partition(5).entry(), &standin).unwrap();
    assert_eq!(get(&standin, 5), None);
    assert_eq!(store.read(&v1::TableEntry::default()), Ok(vec![]));
}

#[test]
fn updates_that_cannot_be() {
    let (mut store, standin) = (Store::default(), standin());
    store.write(Insert, &partition(5, 0), &standin).unwrap();
    let mut write = |kind, entry: &v1::TableEntry| code(store.write(kind, entry, &standin));
    assert_eq!(write(update::Type::Unspecified, &partition(5, 0)), Code::InvalidArgument);
    assert_eq!(write(Insert, &partition(5, 0)), Code::AlreadyExists);
    assert_eq!(write(Modify, &partition(6, 1)), Code::NotFound);
    assert_eq!(write(Delete, &partition(6, 1)), Code::NotFound);
    assert_eq!(write(Insert, &Key::Partition(6).entry()), Code::InvalidArgument);
    // A place of another partition may be free later; a place that does not exist never is.
    assert_eq!(write(Insert, &partition(6, 0)), Code::FailedPrecondition);
    let region = Region { first: 2, slots: 4 };
    let over = Value::Partition(Setting { region, ..setting(1) });
    assert_eq!(write(Insert, &of(Key::Partition(6), over)), Code::FailedPrecondition);
    assert_eq!(write(Insert, &partition(6, 4)), Code::InvalidArgument);
    // Under another id the partition may move there.
    assert_eq!(write(Modify, &partition(5, 1)), Code::FailedPrecondition);
    for change in [
        |entry: &mut v1::TableEntry| entry.is_const = true,
        |entry: &mut v1::TableEntry| entry.idle_timeout_ns = 1,
        |entry: &mut v1::TableEntry| entry.time_since_last_hit = Some(Default::default()),
        |entry: &mut v1::TableEntry| entry.meter_config = Some(Default::default()),
        |entry: &mut v1::TableEntry| entry.counter_data = Some(Default::default()),
        |entry: &mut v1::TableEntry| entry.priority = 1,
        |entry: &mut v1::TableEntry| entry.table_id = 9,
    ] {
        let mut entry = partition(6, 1);
        change(&mut entry);
        assert_eq!(write(Insert, &entry), Code::InvalidArgument, "{entry:?}");
    }
    // No change was made.
    assert_eq!(get(&standin, 6), None);
    assert_eq!(store.read(&v1::TableEntry::default()), Ok(vec![partition(5, 0)]));
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let (mut store, standin) = (Store::default(), standin());
    store.write(Insert, &partition(5, 0), &standin).unwrap();
    store.write(Insert, &partition(6, 1), &standin).unwrap();
    assert_eq!(code(store.write(Modify, &partition(6, 0), &standin)), Code::FailedPrecondition);
    assert_eq!(store.read(&Key::Partition(6).entry()), Ok(vec![partition(6, 1)]));
    assert_eq!(get(&standin, 6), Some(setting(1).with(vec![])));
}

#[test]
fn a_table_has_an_end() {
    let (mut store, standin) = (Store::default(), standin());
    for number in 0..256 {
        store.write(Insert, &replicas(number, &[(1, 1)]), &standin).unwrap();
    }
    assert_eq!(code(store.write(Insert, &replicas(256, &[(1, 1)]), &standin)), Code::ResourceExhausted);
    store.write(Modify, &replicas(255, &[(2, 1)]), &standin).unwrap();
    store.clear(&standin);
    assert_eq!(store.read(&v1::TableEntry::default()), Ok(vec![]));
}

#[test]
fn what_is_read_fits() {
    let (mut store, standin) = (Store::default(), standin());
    let noted = v1::TableEntry { metadata: b"mine".to_vec(), controller_metadata: 3, ..partition(6, 1) };
    let port = of(Key::Port(1), Value::Port("127.0.0.1:5".parse().unwrap()));
    let route = of(Key::Ipv4([10, 0, 0, 0].into(), 8), Value::Drop);
    let all = [partition(5, 0), noted.clone(), replicas(5, &[(1, 1), (1, 1)]), port.clone(), route.clone()];
    for entry in &all {
        store.write(Insert, entry, &standin).unwrap();
    }
    assert_eq!(standin.lock().ports, [(1, "127.0.0.1:5".parse().unwrap())].into());
    let read = |asked: v1::TableEntry| store.read(&asked);
    assert_eq!(read(v1::TableEntry::default()), Ok(all.to_vec()));
    let table = |table_id| v1::TableEntry { table_id, ..v1::TableEntry::default() };
    assert_eq!(read(table(table::PORTS)), Ok(vec![port.clone()]));
    assert_eq!(read(table(table::PARTITIONS)), Ok(all[..2].to_vec()));
    assert_eq!(read(Key::Partition(5).entry()), Ok(vec![partition(5, 0)]));
    assert_eq!(read(Key::Partition(9).entry()), Ok(vec![]));
    let mine = v1::TableEntry { metadata: b"mine".to_vec(), ..table(table::PARTITIONS) };
    assert_eq!(read(mine), Ok(vec![noted.clone()]));
    assert_eq!(read(v1::TableEntry { controller_metadata: 3, ..table(table::PARTITIONS) }), Ok(vec![noted]));
    let by_action = |table_id, action_id| {
        let action = v1::table_action::Type::Action(v1::Action { action_id, params: vec![] });
        read(v1::TableEntry { action: Some(v1::TableAction { r#type: Some(action) }), ..table(table_id) })
    };
    assert_eq!(by_action(table::IPV4_LPM, action::DROP), Ok(vec![route]));
    assert_eq!(by_action(table::IPV4_LPM, action::TO_NEXT_HOP), Ok(vec![]));

    let code = |asked| read(asked).unwrap_err().code;
    assert_eq!(code(v1::TableEntry { controller_metadata: 3, ..v1::TableEntry::default() }), Code::InvalidArgument);
    assert_eq!(code(table(9)), Code::InvalidArgument);
    assert_eq!(
        code(v1::TableEntry { counter_data: Some(Default::default()), ..table(table::PORTS) }),
        Code::InvalidArgument
    );
}

#[test]
fn default_entries_are_constant() {
    let (mut store, standin) = (Store::default(), standin());
    let default = |table_id| v1::TableEntry { table_id, is_default_action: true, ..v1::TableEntry::default() };
    let [entry] = &store.read(&default(table::REPLICAS)).unwrap()[..] else { panic!("one") };
    let action = v1::table_action::Type::Action(v1::Action { action_id: action::NO_ACTION, params: vec![] });
    assert_eq!(entry.action, Some(v1::TableAction { r#type: Some(action) }));
    let mut write = |kind, entry: &v1::TableEntry| code(store.write(kind, entry, &standin));
    assert_eq!(write(Modify, &default(table::PORTS)), Code::PermissionDenied);
    assert_eq!(write(Insert, &default(table::PORTS)), Code::InvalidArgument);
    assert_eq!(write(Delete, &default(table::PORTS)), Code::InvalidArgument);
    assert_eq!(write(Modify, &default(9)), Code::InvalidArgument);
    assert_eq!(write(Modify, &v1::TableEntry { priority: 1, ..default(table::PORTS) }), Code::InvalidArgument);
}
