//! Rows of the peers that this one knows: members of its groups, and other connected peers.

use std::collections::{BTreeMap, BTreeSet};

use peer::names::Names;
use peer::status::{GroupStatus, MemberStatus, PeerTraffic, Ring};

use super::{Cell, Column, LABEL_COLUMNS, Row, Tone};
use crate::top::model::{Arc, Model, letters};
use crate::top::units;

const fn column(title: &'static str, width: u16, right: bool, rank: u8) -> Column {
    Column { title, width, most: width, right, rank }
}

pub const COLUMNS: [Column; 11] = [
    Column { most: LABEL_COLUMNS + 1, ..column("peer", 7, false, 0) },
    column("cluster", 12, false, 1),
    column("role", 8, false, 0),
    column("ring", 4, false, 2),
    column("parts", 5, true, 3),
    column("via", 5, false, 0),
    column("round trip", 10, true, 0),
    column("sent", 6, true, 2),
    column("received", 8, true, 2),
    column("dropped", 7, true, 3),
    column("member for", 10, true, 4),
];

pub fn rows(model: &Model) -> Vec<Row> {
    // Looked up here once: a peer may be connected with thousands.
    let (mut members, mut traffic) = (BTreeMap::new(), BTreeMap::new());
    for group in model.own_groups() {
        for member in &group.members {
            members.entry(member.peer_id.as_str()).or_insert((group, member));
        }
    }
    for peer in model.peers.iter().flatten() {
        traffic.entry(peer.peer_id.as_str()).or_insert(peer);
    }
    let arcs = model.arcs();
    // Members of other groups that their own groups do not hear.
    let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, peers) in model.ring.iter().flat_map(unheard) {
        if let Some(number) = arcs.iter().position(|arc| arc.id == id) {
            lost.extend(peers.iter().map(|peer| (peer.as_str(), number)));
        }
    }
    lost.retain(|peer, _| !members.contains_key(peer));
    let all: BTreeSet<&str> = members.keys().chain(traffic.keys()).chain(lost.keys()).copied().collect();
    let known = |peer| (members.get(peer).copied(), traffic.get(peer).copied(), lost.get(peer).copied());
    let names = model.names();
    all.into_iter().map(|peer| row(model, &names, &arcs, peer, known(peer))).collect()
}

/// Returns the groups with members that do not answer.
fn unheard(ring: &Ring) -> impl Iterator<Item = (&str, &[String])> {
    let located = ring.groups.iter().map(|located| (located.group.as_str(), located.unheard.as_slice()));
    let silent = ring.silent.iter().map(|silent| (silent.group.as_deref().unwrap_or(""), silent.members.as_slice()));
    located.chain(silent)
}

/// Knowledge of a peer: the first group that it is in, the traffic with it, and the place along the ring of another group
/// whose members do not hear it.
type PeerFacts<'a> = (Option<(&'a GroupStatus, &'a MemberStatus)>, Option<&'a PeerTraffic>, Option<usize>);

fn row(model: &Model, names: &Names<'_>, arcs: &[Arc], peer: &str, (member, traffic, lost): PeerFacts<'_>) -> Row {
    let me = peer == model.me();
    let mark = if me { "*" } else { "" };
    let name = Cell::text(format!("{}{mark}", names.label(peer)));
    let name = if me { name.tone(Tone::Strong) } else { name };
    let mut cells = vec![name];
    match member {
        Some((group, member)) => cells.extend(of_member(arcs, group, member)),
        None => {
            let role = match lost {
                Some(_) => Cell::number("silent", 3.0).tone(Tone::Bad),
                None => Cell::number("other", 4.0).tone(Tone::Faint),
            };
            let letter = lost.map_or_else(Cell::default, |number| {
                Cell::number(letters(number), number as f64).tone(Tone::Group(number))
            });
            cells.extend([Cell::default(), role, letter, Cell::default()]);
        }
    }
    cells.extend(of_traffic(me, traffic));
    cells.push(Cell::maybe(member.map(|(_, member)| (units::span(member.lifetime_s), member.lifetime_s as f64))));
    Row { id: peer.to_owned(), names: vec![peer.to_owned()], cells, mine: false }
}

fn of_member(arcs: &[Arc], group: &GroupStatus, member: &MemberStatus) -> [Cell; 4] {
    let (order, tone) = match member.role.as_str() {
        "leader" => (0.0, Tone::Strong),
        "member" => (1.0, Tone::Text),
        "learner" => (2.0, Tone::Warning),
        "suspect" => (3.0, Tone::Bad),
        _ => (5.0, Tone::Text),
    };
    let role = if member.role == "suspect" { "silent" } else { &member.role };
    let number = arcs.iter().position(|arc| arc.id == group.id);
    let letter = number
        .map_or_else(Cell::default, |number| Cell::number(letters(number), number as f64).tone(Tone::Group(number)));
    let parts = group.primaries.iter().filter(|primary| primary.peer_id == member.peer_id).count();
    [
        Cell::text(member.cluster.clone()),
        Cell::number(role, order).tone(tone),
        letter,
        Cell::number(parts.to_string(), parts as f64),
    ]
}

fn of_traffic(me: bool, traffic: Option<&PeerTraffic>) -> [Cell; 5] {
    let via = match traffic {
        _ if me => Cell::text("here").tone(Tone::Faint),
        Some(peer) if peer.up => Cell::text(peer.via.clone().unwrap_or_else(|| "up".into())).tone(Tone::Good),
        Some(_) => Cell::text("down").tone(Tone::Bad),
        None => Cell::default(),
    };
    let rtt = traffic.and_then(|peer| peer.rtt_ms).map(|ms| (units::millis(ms), ms));
    let bytes =
        |of: fn(&PeerTraffic) -> u64| Cell::maybe(traffic.map(|peer| (units::bytes(of(peer)), of(peer) as f64)));
    let dropped = traffic.map(|peer| (units::count(peer.dropped_frames), peer.dropped_frames as f64));
    let some = traffic.is_some_and(|peer| peer.dropped_frames > 0);
    let dropped = Cell::maybe(dropped).tone(if some { Tone::Warning } else { Tone::Text });
    [via, Cell::maybe(rtt), bytes(|peer| peer.sent_bytes), bytes(|peer| peer.received_bytes), dropped]
}
