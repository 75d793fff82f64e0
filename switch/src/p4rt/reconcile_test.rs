//! From any tables to any other ones.

use proptest::prelude::*;

use super::*;
use crate::dirty::{Region, Shape};
use crate::p4rt::ids::Ids;
use crate::p4rt::standin::Standin;
use crate::p4rt::store::Store;

const NOW: Incarnation = Incarnation(5);

/// Partitions on a few registers, each with the slots that belong to these: any two fit together unless they have the same.
fn wanted() -> impl Strategy<Value = Wanted> {
    let partition = (0u32..4, 0u32..6, 0u32..4, proptest::collection::vec((0u32..4, 0u8..=255), 0..5));
    let partitions = proptest::collection::vec(partition, 0..5).prop_map(|all| {
        let mut taken = Vec::new();
        let mut partitions = BTreeMap::new();
        for (index, number, switch, replicas) in all {
            if !taken.contains(&index) && !partitions.contains_key(&number) {
                taken.push(index);
                let region = Region { first: 8 * index, slots: 8 };
                let partition = Partition { index, region, term: 1, switch, active: true, primary: 1, replicas };
                partitions.insert(number, partition);
            }
        }
        partitions
    });
    let ports = proptest::collection::btree_map(0u32..4, 1u16..4, 0..4);
    let routes = proptest::collection::btree_map(0u8..4, 0u16..2, 0..4);
    (partitions, ports, routes, any::<bool>()).prop_map(|(partitions, ports, routes, is_now)| Wanted {
        partitions,
        ports: ports
            .into_iter()
            .map(|(replica, port)| (replica, SocketAddrV4::new([127, 0, 0, 1].into(), port)))
            .collect(),
        routes: Some(routes.into_iter().map(|(net, port)| (([net, 0, 0, 0].into(), 8), hop(port))).collect()),
        lives: Some(Incarnation(if is_now { 5 } else { 4 })),
    })
}

fn hop(port: u16) -> NextHop {
    NextHop { port, source: [1; 6], destination: [2; 6] }
}

/// Returns pairs of a partition and an id, with their places.
fn numbering(entries: &BTreeMap<Key, Value>) -> BTreeMap<(u32, u32), (u32, Region)> {
    let pair = |(key, value): (&Key, &Value)| match (key, value) {
        (Key::Partition(number), Value::Partition(setting)) if setting.switch > 0 => {
            Some(((*number, setting.switch), (setting.index, setting.region)))
        }
        _ => None,
    };
    entries.iter().filter_map(pair).collect()
}

fn present(store: &Store) -> BTreeMap<Key, Value> {
    let entries = store.read(&v1::TableEntry::default()).unwrap();
    let read = |entry: &v1::TableEntry| {
        (Key::of(entry).unwrap(), Value::of(entry.table_id, entry.action.as_ref().unwrap()).unwrap())
    };
    entries.iter().map(read).collect()
}

/// Does the updates of each batch, forwards or backwards.
fn write(store: &mut Store, standin: &Standin, batches: Vec<Vec<v1::Update>>, backwards: bool) -> Result<(), String> {
    for mut batch in batches {
        if backwards {
            batch.reverse();
        }
        for update in batch {
            let kind = update::Type::try_from(update.r#type).unwrap();
            let Some(v1::entity::Entity::TableEntry(entry)) = update.entity.and_then(|entity| entity.entity) else {
                return Err("tables alone are written".to_owned());
            };
            store.write(kind, &entry, standin).map_err(|problem| format!("{problem:?} of {kind:?} {entry:?}"))?;
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_wanted_comes_to_be(all in proptest::collection::vec((wanted(), any::<bool>()), 1..6)) {
        let standin = Standin::new(Shape { stages: 3, slots: 32 }, 4);
        let (mut store, mut ids) = (Store::default(), Ids::default());
        // Ids under which partitions were in the tables, with their places; and those that they have left.
        let (mut were, mut left) = (BTreeMap::new(), Vec::new());
        for (wanted, backwards) in all {
            let mut entries = wanted.entries(NOW);
            ids.hold(NOW, &present(&store), &mut entries);
            let batches = plan(&present(&store), &entries);
            prop_assert_eq!(write(&mut store, &standin, batches, backwards), Ok(()));
            ids.done(&entries);
            prop_assert_eq!(&present(&store), &entries);
            prop_assert_eq!(plan(&present(&store), &entries), Vec::<Vec<v1::Update>>::new());
            // No id comes back that was left, and none moves.
            let are: BTreeMap<_, _> = numbering(&entries);
            left.extend(were.iter().filter(|(pair, _)| !are.contains_key(*pair)).map(|(pair, _)| *pair));
            prop_assert!(are.keys().all(|pair| !left.contains(pair)), "{left:?} {are:?}");
            prop_assert!(are.iter().all(|(pair, place)| were.get(pair).is_none_or(|was| was == place)));
            were = are;
        }
    }

    #[test]
    fn weights_fit(replicas in proptest::collection::vec((any::<u32>(), any::<u8>()), 0..300)) {
        let weighed = weighed(&replicas);
        let all: u32 = weighed.iter().map(|(_, weight)| u32::from(*weight)).sum();
        prop_assert!(all <= WEIGHTS_MAX && weighed.iter().all(|(_, weight)| *weight > 0));
        let some = replicas.iter().filter(|(_, weight)| *weight > 0).count();
        prop_assert_eq!(weighed.len(), some.min(REPLICAS_MAX));
    }
}

#[test]
fn a_switch_id_is_for_one_life() {
    let region = Region { first: 0, slots: 8 };
    let partition = Partition { index: 0, region, term: 1, switch: 9, active: true, primary: 1, replicas: vec![] };
    let mut wanted = Wanted { partitions: [(7, partition.clone())].into(), ..Wanted::default() };
    let held = Setting { switch: 0, active: false, ..Setting::of(&partition) };
    assert_eq!(wanted.entries(NOW), [(Key::Partition(7), Value::Partition(held))].into());
    wanted.lives = Some(NOW);
    assert_eq!(wanted.entries(NOW), [(Key::Partition(7), Value::Partition(Setting::of(&partition)))].into());
    // Routes belong to another program unless the wanted content names them.
    assert!(!wanted.owns(Key::Ipv4([0; 4].into(), 0)) && wanted.owns(Key::Port(1)));
}

#[test]
fn large_changes_go_in_parts() {
    let ports = (0..200).map(|replica| (replica, SocketAddrV4::new([127, 0, 0, 1].into(), 1))).collect();
    let batches = plan(&BTreeMap::new(), &Wanted { ports, ..Wanted::default() }.entries(NOW));
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 64, 8]);
}
