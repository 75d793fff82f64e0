//! Tables that follow from the known states of groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use super::mastership::Mastership;
use super::peers::{Best, Peers};
use super::reports::{Group, Known, Peer};
use crate::p4rt::reconcile::Wanted;
use crate::tables::Partition;

/// Wanted tables, and facts found on the way.
#[derive(Debug, Default)]
pub struct TablePlan {
    /// Wanted content of the tables.
    pub wanted: Wanted,
    /// Groups that lack an id.
    pub lacking: BTreeSet<Group>,
    /// Partitions without room in the switch.
    pub without_room: usize,
}

/// Group and primary of each partition that can be in the tables.
type Owners = BTreeMap<u32, (Group, SocketAddrV4)>;

/// Returns the wanted content of the tables, and the groups that lack an id.
pub fn plan(
    mastership: &mut Mastership,
    groups: &BTreeMap<Group, Best>,
    peers: &Peers<'_>,
    notes: &mut BTreeMap<String, String>,
) -> TablePlan {
    let owners = owners(mastership, groups, peers);
    mastership.keep_only(&owners.keys().copied().collect());
    let wanted = Wanted { lives: Some(mastership.life), ..Wanted::default() };
    let mut plan = TablePlan { wanted, ..TablePlan::default() };
    for (group, Best { known, .. }) in groups {
        let members = Members::of(*group, known, peers);
        let placement = place(mastership, &mut plan.wanted, (*group, known), &members, &owners);
        plan.without_room += placement.without_room;
        if placement.placed > 0 {
            plan.wanted.ports.extend(members.all.iter().map(|address| (mastership.port(*address), *address)));
        }
        if placement.without_id && known.fit && known.calm && !known.barred {
            plan.lacking.insert(*group);
        }
        notes.insert(format!("group {group}"), note(known, &members, &placement));
    }
    mastership.keep_ports(&plan.wanted.ports);
    plan
}

/// Returns the partitions that can be in the tables at all. If two groups share a partition's number, the first has it.
fn owners(mastership: &Mastership, groups: &BTreeMap<Group, Best>, peers: &Peers<'_>) -> Owners {
    let mut owners = Owners::new();
    for (group, Best { known, .. }) in groups {
        for (number, part) in &known.parts {
            let Some(primary) = peers.endpoint(&part.primary, known.lane) else { continue };
            if known.fit || mastership.has(*number) {
                owners.entry(*number).or_insert((*group, primary));
            }
        }
    }
    owners
}

/// Addresses of a group's members, without members that take no packets.
struct Members {
    all: Vec<SocketAddrV4>,
    /// Members that may answer reads.
    able: Vec<SocketAddrV4>,
}

impl Members {
    fn of(group: Group, known: &Known, peers: &Peers<'_>) -> Members {
        let endpoints = known.members.iter().map(|member| (member, peers.endpoint(member, known.lane)));
        let members: Vec<(&Peer, SocketAddrV4)> =
            endpoints.filter_map(|(member, address)| Some((member, address?))).collect();
        let able = |(member, _): &&(&Peer, SocketAddrV4)| peers.keeps_up(member, group, known);
        Members {
            able: members.iter().filter(able).map(|(_, address)| *address).collect(),
            all: members.into_iter().map(|(_, address)| address).collect(),
        }
    }
}

/// Counts of a group's partitions.
#[derive(Debug, Default)]
struct Placement {
    placed: usize,
    without_room: usize,
    /// Partitions whose numbers another group has.
    not_owned: usize,
    /// A placed partition has no id.
    without_id: bool,
}

/// Places a group's partitions in the wanted tables.
fn place(
    mastership: &mut Mastership,
    wanted: &mut Wanted,
    (group, known): (Group, &Known),
    members: &Members,
    owners: &Owners,
) -> Placement {
    let mut placement = Placement::default();
    for (number, part) in &known.parts {
        let Some((_, primary)) = owners.get(number).filter(|(owner, _)| *owner == group) else {
            placement.not_owned += usize::from(owners.contains_key(number));
            continue;
        };
        let Some(placed) = mastership.place(*number, group, part.term, named(known)) else {
            placement.without_room += 1;
            continue;
        };
        placement.placed += 1;
        placement.without_id |= placed.id == 0;
        let partition = Partition {
            index: placed.allocation.index,
            region: placed.allocation.region,
            term: part.term,
            switch: placed.id,
            active: placed.id > 0 && known.fit && known.calm,
            primary: mastership.port(*primary),
            replicas: members.able.iter().map(|address| (mastership.port(*address), 1)).collect(),
        };
        wanted.ports.insert(partition.primary, *primary);
        wanted.partitions.insert(*number, partition);
    }
    placement
}

/// Returns the id that a group's log names for use; 0 for none.
fn named(known: &Known) -> u32 {
    if known.on { known.id } else { 0 }
}

/// Describes a group's part in the tables, for operators.
fn note(known: &Known, members: &Members, placement: &Placement) -> String {
    if !known.fit {
        return format!("the group cannot use a switch: {}", known.why);
    }
    let Placement { placed, without_room, not_owned, without_id } = placement;
    let parts = known.parts.len();
    let lost = [
        (parts - placed - without_room - not_owned, "without a primary that takes packets"),
        (*without_room, "without room in the switch"),
        (*not_owned, "named like another group's"),
    ];
    let lost = lost.iter().filter(|(count, _)| *count > 0);
    let lost: String = lost.map(|(count, why)| format!(", {count} {why}")).collect();
    let id = if known.barred {
        "turned off by hand".to_owned()
    } else if *without_id {
        "no id yet".to_owned()
    } else {
        format!("id {}", named(known))
    };
    let rests = if known.calm { "" } else { ", at rest" };
    let (all, able) = (known.members.len(), members.able.len());
    format!("{id}, {placed} of {parts} partitions{lost}, {able} of {all} members answer reads{rests}")
}
