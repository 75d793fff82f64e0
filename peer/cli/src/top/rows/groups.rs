//! Rows of the ring's groups, with this peer's knowledge of its own.

use peer::names::Names;
use peer::status::{GroupStatus, QuorumStatus, RiskStatus, short_group};

use super::{Cell, Column, LABEL_COLUMNS, Row, Tone};
use crate::top::model::{Arc, Model, letters};
use crate::top::units;

const fn column(title: &'static str, width: u16, right: bool, rank: u8) -> Column {
    Column { title, width, most: width, right, rank }
}

/// Columns; the first is the group's letter along the ring.
pub const COLUMNS: [Column; 11] = [
    column("ring", 4, false, 0),
    column("group", 8, false, 0),
    column("share", 6, true, 0),
    column("members", 7, true, 0),
    column("epoch", 6, true, 1),
    Column { most: LABEL_COLUMNS, ..column("leader", 7, false, 2) },
    column("keys", 6, true, 1),
    column("ops/s", 6, true, 1),
    column("holds", 6, true, 3),
    column("nines", 5, true, 2),
    column("state", 24, false, 0),
];

/// Returns the groups in the order of the ring; then those without a place on it.
pub fn rows(model: &Model) -> Vec<Row> {
    let (arcs, names) = (model.arcs(), &model.names());
    let mut rows: Vec<Row> =
        arcs.iter().enumerate().map(|(number, arc)| row(number, arc, model.group(&arc.id), names)).collect();
    let elsewhere = model.all_groups().iter().filter(|group| arcs.iter().all(|arc| arc.id != group.id));
    rows.extend(elsewhere.map(|group| {
        let lane = group.lane.map_or("-".into(), |lane| format!("L{lane}"));
        let mut cells = vec![Cell::number(lane, f64::MAX).tone(Tone::Faint), name(&group.id), Cell::default()];
        cells.push(Cell::number(group.members.len().to_string(), group.members.len() as f64));
        cells.push(Cell::number(group.epoch.to_string(), group.epoch as f64));
        cells.extend(known(group, names));
        Row { id: group.id.clone(), names: vec![group.id.clone()], cells, mine: false }
    }));
    rows
}

fn row(number: usize, arc: &Arc, group: Option<&GroupStatus>, names: &Names<'_>) -> Row {
    let mark = if arc.mine { "*" } else { "" };
    let letter = Cell::number(format!("{}{mark}", letters(number)), number as f64).tone(Tone::Group(number));
    let mut cells = vec![
        letter,
        name(&arc.id),
        Cell::number(units::percent(arc.share), arc.share),
        Cell::number(arc.members.to_string(), arc.members as f64),
        Cell::number(arc.epoch.to_string(), arc.epoch as f64),
    ];
    match group {
        Some(group) => cells.extend(known(group, names)),
        None => {
            // The primary may be one of the members that are not heard.
            let has_quorum = arc.quorum.as_ref().is_none_or(|quorum| quorum.held);
            let primary = if has_quorum { names.label(&arc.primary) } else { "NOT KNOWN".into() };
            cells.push(Cell::text(primary).tone(Tone::Faint));
            cells.extend([Cell::default(), Cell::default(), Cell::default(), Cell::default()]);
            cells.push(match &arc.quorum {
                Some(quorum) if !quorum.held => Cell::text(lost(quorum)).tone(Tone::Bad),
                _ => Cell::text("of others").tone(Tone::Faint),
            });
        }
    }
    Row { id: arc.id.clone(), names: vec![arc.id.clone()], cells, mine: arc.mine }
}

/// Formats that a group hears no majority.
fn lost(quorum: &QuorumStatus) -> String {
    match quorum.heard {
        0 => "NO ANSWER".into(),
        heard => format!("NO MAJORITY: {heard} of {}", quorum.members),
    }
}

fn name(id: &str) -> Cell {
    Cell::text(short_group(id))
}

/// Returns the cells that only a peer with a part in the group can fill.
fn known(group: &GroupStatus, names: &Names<'_>) -> [Cell; 6] {
    let parts = group.primaries.len() as u64;
    let leader = match group.leader.as_deref() {
        Some(leader) => Cell::text(names.label(leader)),
        None if group.part == "former" => Cell::text("-").tone(Tone::Faint),
        None => Cell::text("none").tone(Tone::Bad),
    };
    let (load, of) = match group.load_ops_per_s {
        Some(load) => (load, ""),
        None => (group.ops_per_s, "+"),
    };
    let holds = format!("{}/{parts}", group.complete);
    let holds = Cell::number(holds, group.complete as f64 / parts.max(1) as f64);
    [
        leader,
        Cell::number(units::count(group.keys), group.keys as f64),
        Cell::number(format!("{}{of}", units::rate(load)), load),
        holds.tone(if group.complete >= parts { Tone::Good } else { Tone::Warning }),
        nines(group.risk.as_ref()),
        state(group),
    ]
}

/// Returns the safety of the group in nines; empty where it is unknown.
fn nines(risk: Option<&RiskStatus>) -> Cell {
    match risk {
        Some(risk) => {
            let cell = Cell::number(format!("{:.1}", risk.nines), risk.nines);
            cell.tone(if risk.is_low { Tone::Warning } else { Tone::Good })
        }
        None => Cell::default(),
    }
}

/// Returns the group's worst condition.
pub fn state(group: &GroupStatus) -> Cell {
    let silent = group.members.iter().filter(|member| member.role == "suspect").count();
    let voters = group.members.iter().filter(|member| member.role != "learner").count();
    let open = group.transactions.iter().filter(|open| open.step != "is committed").map(|open| &open.operation).next();
    let (text, tone) = match () {
        () if group.part == "former" => ("former: others need it".to_owned(), Tone::Faint),
        () if silent * 2 >= voters && silent > 0 => (format!("NO MAJORITY: {silent} silent"), Tone::Bad),
        () if group.leader.is_none() => ("no leader".into(), Tone::Bad),
        () if silent > 0 => (format!("{silent} silent"), Tone::Warning),
        () if open.is_some() => (format!("{} open", open.map_or("", String::as_str)), Tone::Warning),
        () if !group.transfers.is_empty() => (format!("copies {} parts", group.transfers.len()), Tone::Warning),
        () if !group.established => ("no majority has all yet".into(), Tone::Warning),
        () if group.part == "learner" => ("learner".into(), Tone::Warning),
        () if !group.losses.is_empty() => ("something was lost".into(), Tone::Warning),
        () if group.risk.as_ref().is_some_and(|risk| risk.is_low) => ("needs more members".into(), Tone::Warning),
        () => ("well".into(), Tone::Good),
    };
    Cell::text(text).tone(tone)
}

#[cfg(test)]
mod tests {
    use peer::status::{Located, RangeStatus, Ring, SilentRange, TransactionStatus};

    use super::*;

    #[test]
    fn a_group_of_others_without_a_majority_is_bad() {
        let range = |start: &str, end: &str| RangeStatus { start: start.repeat(32), end: end.repeat(32) };
        let quorum = QuorumStatus { held: false, heard: 1, needed: 2, members: 3, former_epoch: None };
        let members: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let located = Located {
            group: "g".into(),
            range: range("0", "4"),
            members: members.clone(),
            quorum: Some(quorum),
            unheard: members[1..].to_vec(),
            ..Located::default()
        };
        let silent = SilentRange {
            range: range("4", "8"),
            group: Some("h".into()),
            members: vec!["d".into()],
            ..SilentRange::default()
        };
        let well = Located { group: "i".into(), range: range("8", "0"), ..Located::default() };
        let ring = Ring { groups: vec![located, well], silent: vec![silent], ..Ring::default() };
        assert_eq!((ring.is_well(), ring.without_majority().count()), (false, 1));
        let model = Model { ring: Some(ring), ..Model::default() };
        let states: Vec<(String, Tone)> = rows(&model)
            .into_iter()
            .filter_map(|row| row.cells.last().map(|cell| (cell.text.clone(), cell.tone)))
            .collect();
        let wanted = [("NO MAJORITY: 1 of 3", Tone::Bad), ("NO ANSWER", Tone::Bad), ("of others", Tone::Faint)];
        assert_eq!(states, wanted.map(|(text, tone)| (text.to_owned(), tone)));
        let leaders: Vec<String> = rows(&model).into_iter().map(|row| row.cells[5].text.clone()).collect();
        assert_eq!(leaders[0], "NOT KNOWN", "the primary is not the one that is heard");
        let silent: Vec<String> = super::super::peers::rows(&model).into_iter().map(|row| row.id).collect();
        assert_eq!(silent, ["b", "c", "d"], "those that nobody hears are named");
    }

    #[test]
    fn the_transaction_that_is_open_is_named() {
        let of = |operation: &str, step: &str| TransactionStatus {
            operation: operation.into(),
            step: step.into(),
            ..TransactionStatus::default()
        };
        let transactions = vec![of("merge", "is committed"), of("split", "waits for votes")];
        let group = GroupStatus { transactions, leader: Some("a".into()), ..GroupStatus::default() };
        assert_eq!(state(&group).text, "split open");
    }
}
