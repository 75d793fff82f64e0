//! Tables that follow from the known states of groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use super::mastership::Mastership;
use super::peers::{Best, Peers};
use super::reports::{Group, Peer};
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

/// Returns the wanted content of the tables, and the groups that lack an id.
pub fn plan(
    mastership: &mut Mastership,
    groups: &BTreeMap<Group, Best>,
    peers: &Peers<'_>,
    notes: &mut BTreeMap<String, String>,
) -> TablePlan {
    // Partitions that can be in the tables at all: if two groups share a partition's number, the first has it.
    let mut owners: BTreeMap<u32, (Group, SocketAddrV4)> = BTreeMap::new();
    for (group, Best { known, .. }) in groups {
        for (number, part) in &known.parts {
            let Some(primary) = peers.endpoint(&part.primary, known.lane) else { continue };
            if known.fit || mastership.has(*number) {
                owners.entry(*number).or_insert((*group, primary));
            }
        }
    }
    mastership.keep_only(&owners.keys().copied().collect());
    let mut plan =
        TablePlan { wanted: Wanted { lives: Some(mastership.life), ..Wanted::default() }, ..TablePlan::default() };
    let wanted = &mut plan.wanted;
    for (group, Best { known, .. }) in groups {
        let endpoints = known.members.iter().map(|member| (member, peers.endpoint(member, known.lane)));
        let members: Vec<(&Peer, SocketAddrV4)> =
            endpoints.filter_map(|(member, address)| Some((member, address?))).collect();
        let able = |(member, _): &&(&Peer, SocketAddrV4)| peers.keeps_up(member, *group, known);
        let able: Vec<SocketAddrV4> = members.iter().filter(able).map(|(_, address)| *address).collect();
        let named = if known.on { known.id } else { 0 };
        let (mut is_placed, mut without_room, mut not_owned, mut without_id) = (0, 0, 0, false);
        for (number, part) in &known.parts {
            let Some((_, primary)) = owners.get(number).filter(|(owner, _)| owner == group) else {
                not_owned += usize::from(owners.contains_key(number));
                continue;
            };
            let Some(placed) = mastership.place(*number, *group, part.term, named) else {
                without_room += 1;
                continue;
            };
            is_placed += 1;
            without_id |= placed.id == 0;
            let partition = Partition {
                index: placed.allocation.index,
                region: placed.allocation.region,
                term: part.term,
                switch: placed.id,
                active: placed.id > 0 && known.fit && known.calm,
                primary: mastership.port(*primary),
                replicas: able.iter().map(|address| (mastership.port(*address), 1)).collect(),
            };
            wanted.ports.insert(partition.primary, *primary);
            wanted.partitions.insert(*number, partition);
        }
        plan.without_room += without_room;
        if is_placed > 0 {
            wanted.ports.extend(members.iter().map(|(_, address)| (mastership.port(*address), *address)));
        }
        if without_id && known.fit && known.calm && !known.barred {
            plan.lacking.insert(*group);
        }
        let text = match known.fit {
            false => format!("no switch may spread its reads: {}", known.why),
            true => {
                let (parts, members, able) = (known.parts.len(), known.members.len(), able.len());
                let lost = [
                    (parts - is_placed - without_room - not_owned, "without a primary that takes packets"),
                    (without_room, "without room in the switch"),
                    (not_owned, "named like another group's"),
                ];
                let lost = lost.iter().filter(|(count, _)| *count > 0);
                let lost: String = lost.map(|(count, why)| format!(", {count} {why}")).collect();
                let id = if known.barred {
                    "turned off by hand".to_owned()
                } else if without_id {
                    "no id yet".to_owned()
                } else {
                    format!("id {named}")
                };
                let rests = if known.calm { "" } else { ", at rest" };
                format!(
                    "{id}, {is_placed} of {parts} partitions{lost}, {able} of {members} members answer reads{rests}"
                )
            }
        };
        notes.insert(format!("group {group}"), text);
    }
    mastership.keep_ports(&wanted.ports);
    plan
}
