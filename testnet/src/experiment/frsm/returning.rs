//! A group of three that one member leaves for a while, and the clients that fill its keys.

use std::time::Duration;

use bytes::Bytes;
use group::op::{Condition, Expiry, Op};
use node::{Durability, Node};
use overlay::Key;
use overlay::time::Time;

use crate::sim::{Latency, Load, Scenario, World};

/// Machines, all members of one group.
pub const HOSTS: usize = 3;
/// Upper limit of each wait.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Writes under way while keys are filled.
const FILLING: usize = 64;

/// Setting of the group.
#[derive(Clone, Copy, Debug)]
pub struct ReturnSetting {
    /// Size of a value, in bytes.
    pub value_bytes: usize,
    /// Upper limit of a member's copies from other members, in bytes a second.
    pub transfer_bytes_per_s: u64,
    /// Time that a peer takes for each input.
    pub service: Duration,
    /// Writes of a sub-range are answered in order.
    pub coarse: bool,
    /// Seed of all chance.
    pub seed: u64,
}

/// Returns a group of three that serves, without keys. A silent member stays a member.
///
/// # Errors
/// If an invariant is broken, or the group does not form.
pub fn group_of_three(setting: &ReturnSetting) -> Result<World<Node>, String> {
    let mut scenario = Scenario {
        hosts: HOSTS,
        durability: Durability::Sync,
        coarse: setting.coarse,
        latency: Latency::Uniform(Duration::from_micros(150), Duration::ZERO),
        members: (1, 1_000),
        memory_bytes_max: 4 << 30,
        transfer_bytes_per_s: setting.transfer_bytes_per_s,
        service_time: setting.service,
        load: Load { clients: 0, ..Load::default() },
        sweep_every: u64::MAX,
        ..Scenario::calm(setting.seed)
    };
    scenario.timing.exclude_after = PATIENCE * 10;
    let mut world = World::new(scenario);
    match world.run_until_ready(PATIENCE) {
        true => {
            world.run_for(Duration::from_secs(5));
            Ok(world)
        }
        false => Err(format!("no group of {HOSTS}: {:?}", world.failure())),
    }
}

/// Returns the key of this number.
pub fn key(number: u64) -> Option<Key> {
    Key::new(format!("key-{number}").as_bytes()).ok()
}

/// Writes the keys with these numbers through a machine that is ready, and waits for all answers.
///
/// # Errors
/// If an invariant is broken, or an answer takes too long.
pub fn fill(
    world: &mut World<Node>,
    setting: &ReturnSetting,
    numbers: &mut dyn Iterator<Item = u64>,
) -> Result<(), String> {
    let value = Bytes::from(vec![b'v'; setting.value_bytes]);
    let mut open: Vec<usize> = Vec::new();
    let end = world.now() + PATIENCE;
    loop {
        open.retain(|index| world.outcome(*index).is_none());
        while open.len() < FILLING
            && let Some(number) = numbers.next()
        {
            let host = (0..HOSTS).find(|host| world.is_ready(*host)).ok_or("no peer is ready")?;
            let op = Op::Set { value: value.clone(), condition: Condition::Always, expiry: Expiry::Clear, get: false };
            open.extend(key(number).map(|key| world.ask_key(host, key, op)));
        }
        if open.is_empty() {
            return Ok(());
        }
        if world.now() >= end || world.failure().is_some() {
            return Err(format!("{} writes are not answered: {:?}", open.len(), world.failure()));
        }
        world.run_for(Duration::from_millis(1));
    }
}

/// Goes on until a condition holds, at steps of `step`. Returns the time from `since` until then.
///
/// # Errors
/// If an invariant is broken, or it takes too long.
pub fn until(
    world: &mut World<Node>,
    since: Time,
    step: Duration,
    holds: impl Fn(&World<Node>) -> bool,
) -> Result<Duration, String> {
    let end = world.now() + PATIENCE;
    while !holds(world) {
        if world.now() >= end || world.failure().is_some() {
            return Err(format!("it takes longer than {PATIENCE:?}: {:?}", world.failure()));
        }
        world.run_for(step);
    }
    Ok(world.now().since(since))
}
