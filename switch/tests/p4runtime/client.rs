//! Controllers at work on a switch.

use std::collections::BTreeMap;

use switch::dirty::Region;
use switch::p4rt::client::{SwitchClient, SwitchConfig, SyncState, Synced};
use switch::p4rt::entry::{Key, NextHop, Value};
use switch::p4rt::proto::p4::v1;
use switch::p4rt::proto::p4::v1::update::Type::{Delete, Insert, Modify};
use switch::p4rt::reconcile::{Incarnation, Wanted};
use switch::tables::Partition;
use tokio::time::timeout;

use super::common::*;

fn partition(index: u32) -> Partition {
    let region = Region { first: 8 * index, slots: 8 };
    Partition { index, region, term: 3, switch: 2, active: true, primary: 100, replicas: vec![(100, 1), (101, 2)] }
}

fn wanted(partitions: &[(u32, u32)], lives: Option<Incarnation>) -> Wanted {
    let partitions = partitions.iter().map(|(number, index)| (*number, partition(*index))).collect();
    let ports = [(100, "127.0.0.1:7100".parse().unwrap()), (101, "127.0.0.1:7101".parse().unwrap())].into();
    Wanted { partitions, ports, routes: None, lives }
}

fn start(switch: &Switch, election: u128, wanted: Wanted) -> SwitchClient {
    let endpoint = format!("http://{}", switch.address);
    SwitchClient::start(SwitchConfig { endpoint, device: DEVICE, device_config: Vec::new() }, election, wanted)
}

/// Waits for this state of the connection.
async fn until(controller: &SwitchClient, is_it: impl Fn(&SyncState) -> bool) -> SyncState {
    let mut state = controller.state();
    let found = timeout(SOON, state.wait_for(|state| is_it(state))).await;
    found.unwrap_or_else(|_| panic!("{:?}", *controller.state().borrow())).unwrap().clone()
}

/// Waits until the tables are as they are wanted, after this many checks.
async fn synced(controller: &SwitchClient, after: u64) -> Synced {
    match until(controller, |state| matches!(state, SyncState::Synced(synced) if synced.looks > after)).await {
        SyncState::Synced(synced) => synced,
        other => panic!("{other:?}"),
    }
}

/// Returns a partition of the pipeline.
fn get(switch: &Switch, number: u32) -> Option<Partition> {
    let mut state = switch.standin.lock();
    let partition = state.pipeline.remove(number)?;
    state.pipeline.set(number, partition.clone()).unwrap();
    Some(partition)
}

#[tokio::test]
async fn tables_become_what_is_wanted() {
    let switch = Switch::start().await;
    let controller = start(&switch, 1, wanted(&[(5, 0), (6, 1)], None));
    let first = synced(&controller, 0).await;
    // The former owner of the registers is unknown: nothing is numbered.
    assert_eq!(get(&switch, 5), Some(Partition { switch: 0, active: false, ..partition(0) }));
    assert_eq!((first.updates, switch.standin.lock().ports.len()), (2 + 2 + 2, 2));
    controller.set(wanted(&[(5, 0), (6, 1)], Some(first.incarnation)));
    let second = synced(&controller, first.looks).await;
    assert_eq!((second.updates - first.updates, second.incarnation), (2, first.incarnation));
    assert_eq!(get(&switch, 5), Some(partition(0)));
    // The same tables once more need no update.
    controller.set(wanted(&[(5, 0), (6, 1)], Some(first.incarnation)));
    let third = synced(&controller, second.looks).await;
    assert_eq!(third.updates, second.updates);
    // Registers change hands; a partition that continues with other registers numbers nothing before it has another id.
    let mut changed = wanted(&[(6, 0), (7, 1)], Some(first.incarnation));
    controller.set(changed.clone());
    let fourth = synced(&controller, third.looks).await;
    let held = Partition { switch: 0, active: false, ..partition(0) };
    assert_eq!((get(&switch, 5), get(&switch, 6), get(&switch, 7)), (None, Some(held), Some(partition(1))));
    changed.partitions.get_mut(&6).unwrap().switch = 3;
    controller.set(changed);
    synced(&controller, fourth.looks).await;
    assert_eq!(get(&switch, 6), Some(Partition { switch: 3, ..partition(0) }));
    drop(controller);
    switch.stop().await;
}

#[tokio::test]
async fn a_switch_that_began_anew_numbers_nothing_under_old_ids() {
    let switch = Switch::start().await;
    let address = switch.address;
    let controller = start(&switch, 1, wanted(&[(5, 0)], None));
    let first = synced(&controller, 0).await;
    controller.set(wanted(&[(5, 0)], Some(first.incarnation)));
    let second = synced(&controller, first.looks).await;
    assert_eq!(get(&switch, 5), Some(partition(0)));
    switch.stop().await;
    until(&controller, |state| matches!(state, SyncState::Failing(_))).await;
    let switch = Switch::start_at(address).await;
    let third = synced(&controller, second.looks).await;
    assert_ne!(third.incarnation, first.incarnation);
    assert_eq!(get(&switch, 5), Some(Partition { switch: 0, active: false, ..partition(0) }));
    controller.set(wanted(&[(5, 0)], Some(third.incarnation)));
    synced(&controller, third.looks).await;
    assert_eq!(get(&switch, 5), Some(partition(0)));
    drop(controller);
    switch.stop().await;
}

#[tokio::test]
async fn a_controller_that_comes_back_writes_what_differs() {
    let (switch, mut other) = ready(1).await;
    let life = Some(Incarnation(5));
    let first = start(&switch, 2, wanted(&[(5, 0), (6, 1)], life));
    assert_eq!(synced(&first, 0).await.incarnation, Incarnation(5), "the program is ours already");
    drop(first);
    // In the meantime another controller changes the tables.
    other.say(arbitration(Some(3))).await;
    while other.told().await.0 != tonic::Code::Ok {}
    let port = Value::Port("127.0.0.1:1".parse().unwrap());
    let drop_all = Value::Drop;
    let updates = vec![
        update(Delete, entity(Key::Partition(5).entry())),
        update(Modify, entity(entry(Key::Port(100), &port))),
        update(Insert, entity(entry(Key::Port(999), &port))),
        update(Insert, entity(entry(Key::Ipv4([0; 4].into(), 0), &drop_all))),
    ];
    other.client.write(write(3, updates)).await.unwrap();
    let second = start(&switch, 4, wanted(&[(5, 0), (6, 1)], life));
    assert_eq!(synced(&second, 0).await.updates, 3);
    assert_eq!((get(&switch, 5), get(&switch, 6)), (Some(partition(0)), Some(partition(1))));
    assert_eq!(switch.standin.lock().ports, wanted(&[], life).ports);
    // Routes did not belong to this controller, until the wanted content names them.
    let route = entity(entry(Key::Ipv4([0; 4].into(), 0), &drop_all));
    let asked = vec![entity(v1::TableEntry { table_id: Key::Ipv4([0; 4].into(), 0).table(), ..Default::default() })];
    assert_eq!(read(&mut other.client, asked.clone()).await.0, [route]);
    let hop = NextHop { port: 3, source: [1; 6], destination: [2; 6] };
    let routes = BTreeMap::from([(("10.0.0.0".parse().unwrap(), 8), hop)]);
    second.set(Wanted { routes: Some(routes), ..wanted(&[(5, 0), (6, 1)], life) });
    assert_eq!(synced(&second, 1).await.updates, 5);
    let route = entity(entry(Key::Ipv4([10, 0, 0, 0].into(), 8), &Value::Forward(hop)));
    assert_eq!(read(&mut other.client, asked).await.0, [route]);
    drop(second);
    switch.stop().await;
}

#[tokio::test]
async fn of_two_controllers_one_writes() {
    let switch = Switch::start().await;
    let low = start(&switch, 1, wanted(&[(5, 0)], None));
    synced(&low, 0).await;
    let high = start(&switch, 2, wanted(&[(6, 1)], None));
    synced(&high, 0).await;
    until(&low, |state| *state == SyncState::Backup).await;
    assert!(get(&switch, 5).is_none() && get(&switch, 6).is_some());
    low.set(wanted(&[(7, 2)], None));
    // The controller needs a higher id to come back, whether or not the other one is there.
    drop(high);
    assert_eq!(until(&low, |state| *state == SyncState::Backup).await, SyncState::Backup);
    low.elect(3);
    synced(&low, 1).await;
    assert!(get(&switch, 6).is_none() && get(&switch, 7).is_some());
    drop(low);
    switch.stop().await;
}

#[tokio::test]
async fn who_only_looks_writes_nothing() {
    let switch = Switch::start().await;
    let first = start(&switch, 1, wanted(&[(5, 0)], None));
    synced(&first, 0).await;
    drop(first);
    let endpoint = format!("http://{}", switch.address);
    let second = SwitchClient::look(SwitchConfig { endpoint, device: DEVICE, device_config: Vec::new() }, 2);
    let found = synced(&second, 0).await;
    assert_eq!((found.mark, found.updates, found.present.len()), (None, 0, 4));
    let life = Some(found.incarnation);
    second.set_during(found.mastership, 7, wanted(&[(5, 0), (6, 1)], life));
    let kept = synced(&second, found.looks).await;
    assert_eq!((kept.mark, kept.mastership, get(&switch, 6)), (Some(7), found.mastership, Some(partition(1))));
    assert_eq!(*kept.present, wanted(&[(5, 0), (6, 1)], life).entries(found.incarnation));
    // Another controller was the primary for a while: the tables that were wanted before are not wanted any more.
    let third = start(&switch, 3, wanted(&[], None));
    synced(&third, 0).await;
    until(&second, |state| *state == SyncState::Backup).await;
    second.elect(4);
    let back = synced(&second, kept.looks).await;
    assert_eq!((back.mark, back.mastership, back.updates), (None, kept.mastership + 1, kept.updates));
    assert!(back.present.keys().all(|key| matches!(key, Key::Port(_))) && get(&switch, 5).is_none());
    drop((second, third));
    switch.stop().await;
}

#[tokio::test]
async fn what_cannot_be_written_is_said() {
    let switch = Switch::start().await;
    let mut impossible = wanted(&[(5, 0)], None);
    impossible.partitions.get_mut(&5).unwrap().index = 99;
    let controller = start(&switch, 1, impossible);
    let state = until(&controller, |state| matches!(state, SyncState::Failing(why) if why.contains("register"))).await;
    let SyncState::Failing(why) = state else { panic!("{state:?}") };
    assert_eq!(why, "Unknown: 1 of 1 updates failed; InvalidArgument: register 99 is taken, or is none");
    controller.set(wanted(&[(5, 0)], None));
    synced(&controller, 0).await;
    drop(controller);
    switch.stop().await;
}
