//! An id that was left does not come back.

use super::*;
use crate::dirty::Region;

const LIFE: Incarnation = Incarnation(5);

fn setting(index: u32, switch: u32) -> Setting {
    Setting { index, region: Region { first: 8 * index, slots: 8 }, term: 1, switch, active: true, primary: 1 }
}

fn tables(partitions: &[(u32, Setting)]) -> BTreeMap<Key, Value> {
    partitions.iter().map(|(number, setting)| (Key::Partition(*number), Value::Partition(*setting))).collect()
}

/// Returns the content to write, for these tables that were found and these that are wanted.
fn held(ids: &mut Ids, present: &[(u32, Setting)], wanted: &[(u32, Setting)]) -> Vec<(u32, Setting)> {
    let mut entries = tables(wanted);
    ids.hold(LIFE, &tables(present), &mut entries);
    ids.done(&entries);
    let setting = |(key, value): (&Key, &Value)| match (key, value) {
        (Key::Partition(number), Value::Partition(setting)) => (*number, *setting),
        other => panic!("{other:?}"),
    };
    entries.iter().map(setting).collect()
}

fn rests(setting: Setting) -> Setting {
    Setting { switch: 0, active: false, ..setting }
}

#[test]
fn a_partition_does_not_move_under_its_id() {
    let elsewhere = |setting: Setting| Setting { region: Region { first: 32, slots: 8 }, ..setting };
    for moved in [Setting { index: 3, ..setting(0, 9) }, elsewhere(setting(0, 9))] {
        let mut ids = Ids::default();
        let there = [(7, rests(moved))];
        assert_eq!(held(&mut ids, &[(7, setting(0, 9))], &[(7, moved)]), there);
        // The partition does not get the id later either, when it is there already: the id was left.
        assert_eq!(held(&mut ids, &there, &[(7, moved)]), there);
        let anew = [(7, Setting { switch: 10, ..moved })];
        assert_eq!(held(&mut ids, &there, &anew), anew);
    }
}

#[test]
fn what_stays_where_it_is_keeps_its_id() {
    let mut ids = Ids::default();
    let changed = Setting { active: false, primary: 2, term: 3, ..setting(0, 9) };
    assert_eq!(held(&mut ids, &[(7, setting(0, 9))], &[(7, changed)]), [(7, changed)]);
}

#[test]
fn an_id_that_was_left_does_not_come_back() {
    let (is, rest) = ([(7, setting(0, 9))], [(7, rests(setting(0, 9)))]);
    for left in [&rest[..], &[], &[(7, setting(0, 10))]] {
        let mut ids = Ids::default();
        assert_eq!(held(&mut ids, &is, left), left);
        assert_eq!(held(&mut ids, left, &is), rest, "{left:?}");
    }
    // The same holds if another writer has done that.
    let mut ids = Ids::default();
    assert_eq!(held(&mut ids, &[], &is), is);
    assert_eq!(held(&mut ids, &rest, &is), rest);
}

#[test]
fn in_another_life_nothing_is_over() {
    let mut ids = Ids::default();
    held(&mut ids, &[(7, setting(0, 9))], &[]);
    let mut entries = tables(&[(7, setting(0, 9))]);
    ids.hold(Incarnation(6), &BTreeMap::new(), &mut entries);
    assert_eq!(entries, tables(&[(7, setting(0, 9))]));
}

#[test]
fn what_was_not_written_is_not_over() {
    let mut ids = Ids::default();
    let mut entries = tables(&[(7, setting(0, 9))]);
    ids.hold(LIFE, &BTreeMap::new(), &mut entries);
    // That write failed; it is tried again.
    ids.hold(LIFE, &BTreeMap::new(), &mut entries);
    assert_eq!(entries, tables(&[(7, setting(0, 9))]));
}

#[test]
fn there_is_an_end_to_what_is_remembered() {
    let mut spent = Spent::new(3);
    for (partition, id) in [(1, 7), (2, 7), (1, 9), (1, 8), (3, 9), (3, 0)] {
        spent.add(partition, id);
    }
    assert_eq!((spent.floor(), spent.pairs.len()), (7, 3));
    let over = |id| (1..=4).filter(|partition| spent.has(*partition, id)).collect::<Vec<_>>();
    assert_eq!((over(7), over(8), over(9), over(10)), (vec![1, 2, 3, 4], vec![1], vec![1, 3], vec![]));
}
