//! Rings for scripts to begin with, as their stores hold them: a number of groups with a number of members each.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use group::Group;
use group::config::Defects;
use group::op::{Answer, Condition, Expiry, Op, OpError, Read, ReadMode};
use node::{AdminOutcome, AdminRequest, ConnectionId, Input, Request, RequestId};
use overlay::{GroupId, Key, Point};
use testnet::sim::Contents;

use super::stage::{Happening, Stage, key};

const KEYS: usize = 24;

/// Returns the keys that exist from the start; the value of each is its name.
pub fn keys() -> impl Iterator<Item = Key> {
    (0..KEYS).map(|n| Key::new(format!("key-{n}").as_bytes()).expect("short"))
}

/// Returns the start of a group's range: each group but the last has a quarter, the last one the rest. Of two groups, each has
/// a half.
fn start_of(place: usize, groups: usize) -> Point {
    if groups == 2 { Point((place as u128) << 127) } else { Point((place as u128) << 126) }
}

/// Returns the stored content of each machine of such a ring. Each ring is made once, because that takes a while.
pub fn stores(groups: usize, per_group: usize) -> Vec<Contents> {
    static MADE: Mutex<BTreeMap<(usize, usize), Vec<Contents>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().expect("nothing goes wrong with rings without faults");
    made.entry((groups, per_group)).or_insert_with(|| make(groups, per_group)).clone()
}

fn make(groups: usize, per_group: usize) -> Vec<Contents> {
    let count = groups * per_group;
    let mut stage = Stage::new(vec![Contents::default(); count], Defects::NONE, 0);
    run_until(&mut stage, "all are in one group", |stage| {
        (0..count).all(|index| is_calm(stage, index, |group| group.state().members.len() == count))
    });
    for key in keys() {
        let value = Bytes::copy_from_slice(key.name());
        let op = Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false };
        assert_eq!(ask(&mut stage, 0, key, op), Some(Ok(Answer::Done)));
    }
    for place in 1..groups {
        let first = ((place - 1) * per_group..place * per_group).map(key).collect();
        let rest = (groups - place) * per_group;
        let request = AdminRequest::Split { at: Some(start_of(place, groups)), first };
        let group = stage.node(count - 1).and_then(|node| node.group()).expect("it is in one").state().id;
        let outcome = request_for(&mut stage, count - 1, group, request);
        assert!(matches!(outcome, Some(AdminOutcome::Done(_))), "{outcome:?}");
        run_until(&mut stage, "it is split", |stage| {
            let size = |index: usize| if index < place * per_group { per_group } else { rest };
            (0..count).all(|index| is_calm(stage, index, |group| group.state().members.len() == size(index)))
        });
    }
    stage.machines.into_iter().map(|machine| machine.store).collect()
}

/// Returns whether no group of this machine has work under way, as far as the machine knows.
pub fn is_calm(stage: &Stage, index: usize, also: impl Fn(&Group) -> bool) -> bool {
    let calm = |group: &Group| {
        let (state, transactions) = (group.state(), &group.state().transactions);
        state.is_settled()
            && state.learners.is_empty()
            && state.ended.is_none()
            && transactions.is_calm()
            && transactions.decided().is_empty()
            && !group.log().is_busy()
            && (!group.log().leads() || group.is_known_to_neighbours() == Some(true))
            && also(group)
    };
    let node = stage.node(index);
    node.is_some_and(|node| node.is_settled() && node.groups().count() == 1 && node.groups().all(calm))
}

/// Runs the stage until the condition holds, and for a second more.
pub fn run_until(stage: &mut Stage, what: &str, is_so: impl Fn(&Stage) -> bool) {
    let end = stage.after(Duration::from_secs(120));
    while !is_so(stage) {
        assert!(stage.step(end), "it does not come to that: {what}");
    }
    let end = stage.after(Duration::from_secs(1));
    while stage.step(end) {}
    stage.seen.clear();
}

/// Returns the answer to a client that asks this machine; `None` where the answer takes too long.
fn ask(stage: &mut Stage, index: usize, key: Key, op: Op) -> Option<Result<Answer, OpError>> {
    stage.replies.clear();
    let id = RequestId(stage.now);
    let (connection, patience) = (ConnectionId(stage.now), Duration::from_secs(3));
    let mode = ReadMode::Linearizable;
    stage.handle(index, Input::Routecast(Request { id, connection, key, op, mode, patience, once: None }));
    let end = stage.after(Duration::from_secs(4));
    while stage.replies.is_empty() && stage.step(end) {}
    // No two requests of one instant have the same name.
    let end = stage.now + 1;
    while stage.step(end) {}
    stage.replies.pop()
}

/// Returns the value of a key, read through this machine, with several attempts.
pub fn read(stage: &mut Stage, index: usize, key: &Key) -> Option<Bytes> {
    for _ in 0..5 {
        if let Some(Ok(Answer::Value(value))) = ask(stage, index, key.clone(), Op::Read(Read::Value)) {
            return value;
        }
    }
    None
}

fn request_for(stage: &mut Stage, index: usize, group: GroupId, request: AdminRequest) -> Option<AdminOutcome> {
    stage.handle(index, Input::AdminRequest { number: stage.now, group, request });
    let end = stage.after(Duration::from_secs(20));
    loop {
        let outcome = stage.seen.drain(..).find_map(|happening| match happening {
            Happening::AdminOutcome(_, outcome) => Some(outcome),
            _ => None,
        });
        if outcome.is_some() || !stage.step(end) {
            return outcome;
        }
    }
}
