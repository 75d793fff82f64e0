//! A simulated ring of groups of equal size, made by requests to split.

use std::collections::BTreeSet;
use std::time::Duration;

use group::Group;
use node::{AdminRequest, Durability, Input, Node};
use overlay::GroupId;

use crate::experiment::scatter::timed::Timed;
use crate::sim::{Host, Latency, Load, Scenario, World};

/// Time of a message, one way.
pub const ONE_WAY: Duration = Duration::from_micros(150);
/// Upper limit of each wait, and time after each split.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const CALM: Duration = Duration::from_secs(4);

/// Setting of a ring.
#[derive(Clone, Debug)]
pub struct RingSetting {
    /// Number of groups.
    pub groups: usize,
    /// Members of each group.
    pub members: usize,
    /// Machines beside them without a process.
    pub spare: usize,
    /// Time that a peer takes for each input.
    pub service: Duration,
    /// Place of data at the time of its acknowledgement.
    pub durability: Durability,
    /// Seed of all chance.
    pub seed: u64,
}

/// A host that runs a node.
pub trait NodeHost: Host {
    /// Returns the node.
    fn node_of(&self) -> &Node;
}

impl NodeHost for Node {
    fn node_of(&self) -> &Node {
        self
    }
}

impl NodeHost for Timed {
    fn node_of(&self) -> &Node {
        self.node()
    }
}

/// Returns a ring of such groups, whose sizes and boundaries change on request alone.
///
/// # Errors
/// If an invariant is broken, or a step takes longer than [`PATIENCE`].
pub fn ring_of<H: NodeHost>(setting: &RingSetting) -> Result<World<H>, String> {
    let members = setting.groups * setting.members;
    let hosts = members + setting.spare;
    let mut scenario = Scenario {
        hosts,
        durability: setting.durability,
        latency: Latency::Uniform(ONE_WAY, Duration::ZERO),
        members: (1, 1_000),
        load_time: (Duration::ZERO, Duration::ZERO),
        sync_time: (Duration::ZERO, Duration::ZERO),
        service_time: setting.service,
        load: Load { clients: 0, ..Load::default() },
        sweep_every: u64::MAX,
        ..Scenario::calm(setting.seed)
    };
    scenario.policies.choose("repartition", "off").map_err(|why| why.to_string())?;
    scenario.policies.choose("size", "off").map_err(|why| why.to_string())?;
    scenario.timing.copy_patience = Duration::ZERO;
    let mut world = World::<H>::new(scenario);
    (members..hosts).for_each(|host| world.hold_back(host));
    if !world.run_until_ready(PATIENCE + Duration::from_secs(hosts as u64)) {
        return Err(format!("no group of {members}: {:?}", world.failure()));
    }
    world.run_for(CALM);
    // Halves halve again, so that ranges are as equal as groups.
    for number in 1..setting.groups as u64 {
        split_largest(&mut world, setting.members, number)?;
    }
    Ok(world)
}

/// Splits the group with the most members, in the middle of its range and of its members.
fn split_largest<H: NodeHost>(world: &mut World<H>, members: usize, number: u64) -> Result<(), String> {
    let led = |host: &usize| own(world, *host).filter(|group| group.log().leads());
    let leaders = (0..world.hosts()).filter(|host| led(host).is_some());
    let size = |host: &usize| own(world, *host).map_or(0, |group| group.state().members.len());
    let host = leaders.max_by_key(size).ok_or("no group has a leader")?;
    let state = own(world, host).map(Group::state).ok_or("the leader has no group")?;
    let half = (state.members.len() / members / 2).max(1) * members;
    let first = state.nodes().iter().take(half).map(|node| node.peer).collect();
    let (group, before) = (state.id, ids(world).len());
    world.hand(host, Input::AdminRequest { number, group, request: AdminRequest::Split { at: None, first } });
    wait(world, |world| ids(world).len() > before)?;
    world.run_for(CALM);
    Ok(())
}

/// Returns the group of the node on a machine.
pub fn own<H: NodeHost>(world: &World<H>, host: usize) -> Option<&Group> {
    world.host(host)?.node_of().group()
}

/// Returns all parts in groups of all nodes.
pub fn groups<H: NodeHost>(world: &World<H>) -> impl Iterator<Item = &Group> {
    (0..world.hosts()).filter_map(|host| world.host(host)).flat_map(|host| host.node_of().groups())
}

/// Returns the groups that have not ended.
pub fn ids<H: NodeHost>(world: &World<H>) -> BTreeSet<GroupId> {
    groups(world).map(Group::state).filter(|state| state.ended.is_none()).map(|state| state.id).collect()
}

/// Steps until a condition holds.
///
/// # Errors
/// If an invariant is broken, or it takes longer than [`PATIENCE`].
pub fn wait<H: NodeHost>(world: &mut World<H>, until: impl Fn(&World<H>) -> bool) -> Result<(), String> {
    let end = world.now() + PATIENCE;
    while !until(world) {
        if world.now() >= end || !world.step() {
            return Err(format!("it takes longer than {PATIENCE:?}, or fails: {:?}", world.failure()));
        }
    }
    Ok(())
}
