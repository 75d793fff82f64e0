//! The rows of the dashboard's tables: made of the model, filtered, sorted. What a cell means is said by a tone, not by a
//! colour.

mod events;
mod groups;
mod peers;

use std::cmp::Ordering;

use overlay::PeerName;
use screen::safe;

use super::model::Model;
use super::state::{Choice, Tab};
pub use events::tone as event_tone;
pub use groups::state as group_state;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// Columns of the screen that it takes.
    pub width: u16,
    /// Columns that it takes at most, where its texts need more.
    pub most: u16,
    /// Its texts stand at the right, as numbers do.
    pub right: bool,
    /// Where there is little room the highest go first; those with 0 stay.
    pub rank: u8,
}

/// The longest way to show a peer: its name, and its short id in brackets.
const LABEL_COLUMNS: u16 = PeerName::BYTES_MAX as u16 + 9;

/// How a cell looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary.
    #[default]
    Text,
    /// Less important.
    Faint,
    /// More important.
    Strong,
    /// All is well.
    Good,
    /// To be looked at.
    Warning,
    /// Something is wrong.
    Bad,
    /// The group of this number along the ring.
    Group(usize),
}

/// One place of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// What is shown; not safe yet.
    pub text: String,
    /// How.
    pub tone: Tone,
    /// What it is sorted by, where that is not its text. Nothing comes last.
    pub number: Option<f64>,
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The same for the same thing, whatever becomes of it.
    pub id: String,
    /// What it is found by beside its cells: names that are shown in part.
    pub names: Vec<String>,
    /// As many as there are columns.
    pub cells: Vec<Cell>,
    /// It is about the peer that is shown.
    pub mine: bool,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    fn number(text: impl Into<String>, number: f64) -> Cell {
        Cell { text: text.into(), number: Some(number), ..Cell::default() }
    }

    /// Empty where there is none.
    fn maybe(text: Option<(String, f64)>) -> Cell {
        text.map_or_else(Cell::default, |(text, number)| Cell::number(text, number))
    }

    fn tone(mut self, tone: Tone) -> Cell {
        self.tone = tone;
        self
    }
}

/// The columns of a screen's table.
pub fn columns(tab: Tab) -> &'static [Column] {
    match tab {
        Tab::Overview | Tab::Groups => &groups::COLUMNS,
        Tab::Peers => &peers::COLUMNS,
        Tab::Events => &events::COLUMNS,
    }
}

/// The column by which a screen's table is sorted at first, and whether from the largest on.
pub fn usual_order(tab: Tab) -> (usize, bool) {
    match tab {
        Tab::Overview | Tab::Groups => (0, false),
        Tab::Peers => (2, false),
        Tab::Events => (0, true),
    }
}

/// The rows of a screen's table, as they are to stand.
pub fn rows(model: &Model, tab: Tab, choice: &Choice) -> Vec<Row> {
    let mut rows = match tab {
        Tab::Overview | Tab::Groups => groups::rows(model),
        Tab::Peers => peers::rows(model),
        Tab::Events => events::rows(model),
    };
    let wanted = choice.filter.to_lowercase();
    if !wanted.is_empty() {
        // As it is shown: nobody can write what is not shown.
        let holds = |text: &str| safe::line(text).to_lowercase().contains(&wanted);
        rows.retain(|row| row.names.iter().chain(row.cells.iter().map(|cell| &cell.text)).any(|text| holds(text)));
    }
    // Stable: what is equal stays in the usual order.
    for (column, reverse) in [usual_order(tab), (choice.sort, choice.reverse)] {
        rows.sort_by(|one, other| compare(one.cells.get(column), other.cells.get(column), reverse));
    }
    rows
}

/// Which row is marked: the one that was chosen; else the first that is about the peer that is shown, or the first.
pub fn marked(rows: &[Row], choice: &Choice) -> usize {
    let chosen = rows.iter().position(|row| Some(&row.id) == choice.row.as_ref());
    chosen.or_else(|| rows.iter().position(|row| row.mine)).unwrap_or(0)
}

/// What is nothing comes last, whichever way round the others are.
fn compare(one: Option<&Cell>, other: Option<&Cell>, reverse: bool) -> Ordering {
    let (Some(one), Some(other)) = (one, other) else { return Ordering::Equal };
    let is_nothing = |cell: &Cell| cell.number.is_none() && cell.text.is_empty();
    let order = match (one.number, other.number) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.text.cmp(&other.text),
    };
    is_nothing(one).cmp(&is_nothing(other)).then(if reverse { order.reverse() } else { order })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{PeerTraffic, Told};

    fn shown(model: &Model, tab: Tab, choice: &Choice) -> Vec<String> {
        rows(model, tab, choice).into_iter().map(|row| row.id).collect()
    }

    #[test]
    fn what_is_nothing_comes_last_and_what_is_equal_in_the_usual_order() {
        let peer = |id: &str, rtt_ms| PeerTraffic { peer_id: id.into(), rtt_ms, ..PeerTraffic::default() };
        let peers = vec![peer("a", None), peer("b", Some(1.0)), peer("c", Some(9.0)), peer("d", None)];
        let mut model = Model { peers: Some(peers), ..Model::default() };
        let by = |sort, reverse| Choice { sort, reverse, ..Choice::default() };
        assert_eq!(shown(&model, Tab::Peers, &by(6, false)), ["b", "c", "a", "d"]);
        assert_eq!(shown(&model, Tab::Peers, &by(6, true)), ["c", "b", "a", "d"]);
        let told = |seq, count| Told { id: seq, seq, count, ..Told::default() };
        model.events = Some(vec![told(1, 1), told(2, 7), told(3, 1)]);
        assert_eq!(shown(&model, Tab::Events, &by(0, true)), ["3", "2", "1"]);
        for reverse in [false, true] {
            assert_eq!(shown(&model, Tab::Events, &by(2, reverse)), ["2", "3", "1"], "the newest first");
        }
    }

    #[test]
    fn only_what_a_row_tells_is_found() {
        let told = |id, text: &str| Told { id, seq: id, text: text.into(), ..Told::default() };
        let peer = PeerTraffic { peer_id: "12D3KooWananas".into(), ..PeerTraffic::default() };
        let model = Model {
            events: Some(vec![told(7, "ana leads"), told(8, "bea leads")]),
            peers: Some(vec![peer]),
            ..Model::default()
        };
        let only = |filter: &str| Choice { filter: filter.into(), ..Choice::default() };
        assert_eq!(shown(&model, Tab::Events, &only("7")), Vec::<String>::new(), "a number that nobody sees");
        assert_eq!(shown(&model, Tab::Events, &only("ANA")), ["7"]);
        assert_eq!(shown(&model, Tab::Peers, &only("12d3")).len(), 1, "of names only the end is shown");
    }
}
