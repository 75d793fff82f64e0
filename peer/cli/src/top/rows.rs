//! Rows of the dashboard's tables: made from the model, filtered, sorted. A tone, not a colour, marks the meaning of a
//! cell.

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

/// Column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Title above the column.
    pub title: &'static str,
    /// Width in columns of the screen.
    pub width: u16,
    /// Upper limit of the width, where its texts need more.
    pub most: u16,
    /// Whether texts are aligned to the right, as numbers are.
    pub right: bool,
    /// Rank: where there is little room the highest go first; columns with 0 stay.
    pub rank: u8,
}

/// Longest label of a peer: its name, and its short id in brackets.
const LABEL_COLUMNS: u16 = PeerName::BYTES_MAX as u16 + 9;

/// Look of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary.
    #[default]
    Text,
    /// Less important.
    Faint,
    /// More important.
    Strong,
    /// Healthy state.
    Good,
    /// Needs attention.
    Warning,
    /// Broken state.
    Bad,
    /// Colour of the group with this number along the ring.
    Group(usize),
}

/// Cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Text of the cell; not escaped yet.
    pub text: String,
    /// Tone of the cell.
    pub tone: Tone,
    /// Sort key, where that is not the text. Empty cells come last.
    pub number: Option<f64>,
}

/// Row of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Id that stays the same for the same object through all its changes.
    pub id: String,
    /// Names that a search finds beside the cells: those that are shown in part.
    pub names: Vec<String>,
    /// Cells, as many as there are columns.
    pub cells: Vec<Cell>,
    /// Whether the row is about the peer that is shown.
    pub mine: bool,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    fn number(text: impl Into<String>, number: f64) -> Cell {
        Cell { text: text.into(), number: Some(number), ..Cell::default() }
    }

    /// Returns an empty cell where there is no text.
    fn maybe(text: Option<(String, f64)>) -> Cell {
        text.map_or_else(Cell::default, |(text, number)| Cell::number(text, number))
    }

    fn tone(mut self, tone: Tone) -> Cell {
        self.tone = tone;
        self
    }
}

/// Returns the columns of a screen's table.
pub fn columns(tab: Tab) -> &'static [Column] {
    match tab {
        Tab::Overview | Tab::Groups => &groups::COLUMNS,
        Tab::Peers => &peers::COLUMNS,
        Tab::Events => &events::COLUMNS,
    }
}

/// Returns the default sort column of a screen's table, and whether the largest come first.
pub fn usual_order(tab: Tab) -> (usize, bool) {
    match tab {
        Tab::Overview | Tab::Groups => (0, false),
        Tab::Peers => (2, false),
        Tab::Events => (0, true),
    }
}

/// Returns the rows of a screen's table, in display order.
pub fn rows(model: &Model, tab: Tab, choice: &Choice) -> Vec<Row> {
    let mut rows = match tab {
        Tab::Overview | Tab::Groups => groups::rows(model),
        Tab::Peers => peers::rows(model),
        Tab::Events => events::rows(model),
    };
    let wanted = choice.filter.to_lowercase();
    if !wanted.is_empty() {
        // Compared as shown: users cannot type characters that are not shown.
        let holds = |text: &str| safe::line(text).to_lowercase().contains(&wanted);
        rows.retain(|row| row.names.iter().chain(row.cells.iter().map(|cell| &cell.text)).any(|text| holds(text)));
    }
    // Stable: equal rows stay in the default order.
    for (column, reverse) in [usual_order(tab), (choice.sort, choice.reverse)] {
        rows.sort_by(|one, other| compare(one.cells.get(column), other.cells.get(column), reverse));
    }
    rows
}

/// Returns the marked row: the chosen one; else the first about the peer that is shown, or the first.
pub fn marked(rows: &[Row], choice: &Choice) -> usize {
    let chosen = rows.iter().position(|row| Some(&row.id) == choice.row.as_ref());
    chosen.or_else(|| rows.iter().position(|row| row.mine)).unwrap_or(0)
}

/// Compares two cells; empty ones come last in either direction.
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
    use peer::status::{PeerTraffic, Told};

    use super::*;

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
