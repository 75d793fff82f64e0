//! Drawing of a table: the columns that fit, and the rows around the marked one.

use screen::ratatui::layout::Rect;
use screen::ratatui::style::{Modifier, Style};
use screen::safe;

use super::Scene;
use super::brush::{Brush, Scroll, Words, above};
use crate::top::rows::{Column, Row, Tone, columns, marked, rows};
use crate::top::state::{Choice, Tab};

/// Width of a title in columns: the longest is `round trip`.
const TITLE_COLUMNS: usize = 12;

/// Keys that show the rest of the marked row's details.
pub const SCROLLS: &str = "PgUp PgDn";

/// Draws the table with a frame and, where chosen, the details of the marked row below. Returns the scroll range
/// of these details.
pub fn draw_titled(scene: Scene<'_>, tab: Tab, brush: &mut Brush<'_>, area: Rect) -> Scroll {
    let shown = rows(scene.model, tab, scene.state.of(tab));
    let told = match tab {
        Tab::Overview | Tab::Groups => true,
        Tab::Peers => scene.model.peers.is_some(),
        Tab::Events => scene.model.events.is_some(),
    };
    let title = match tab {
        Tab::Overview | Tab::Groups => format!("groups: {}", shown.len()),
        Tab::Peers => format!("peers: {}", shown.len()),
        Tab::Events => format!("events, in UTC: {}", shown.len()),
    };
    let right = if told { "" } else { "this peer is of a version that does not tell" };
    let choice = scene.state.of(tab);
    let about = shown.get(marked(&shown, choice)).filter(|_| scene.state.about && tab == scene.state.tab);
    let lines = about.map(|row| about_row(row, columns(tab), brush, area.width.saturating_sub(4)));
    let room = lines.as_ref().map_or(0, |lines| lines.len() as u16 + 2).min(area.height / 2);
    let (list, below) = above(area, area.height - room);
    let inside = brush.frame(list, &title, right);
    draw(brush, inside, columns(tab), &shown, choice);
    let Some(lines) = lines else { return Scroll::default() };
    let inside = brush.frame(below, "the marked one", "Enter: less");
    brush.scrolled(inside, &lines, scene.state.scroll, SCROLLS)
}

/// Returns all content of a row at full length: its whole id, then each column that is not empty.
fn about_row(row: &Row, all: &[Column], brush: &Brush<'_>, width: u16) -> Vec<Words> {
    let names = row.names.iter().map(|name| ("whole id", name, Tone::Text));
    let cells = all.iter().zip(&row.cells).filter(|(_, cell)| !cell.text.is_empty());
    let cells = cells
        .map(|(column, cell)| (if column.title.is_empty() { "text" } else { column.title }, &cell.text, cell.tone));
    let mut lines = Vec::new();
    for (title, text, tone) in names.chain(cells) {
        for (number, part) in safe::wrap(text, usize::from(width).saturating_sub(TITLE_COLUMNS)).into_iter().enumerate()
        {
            let title = if number == 0 { title } else { "" };
            lines.push(vec![(safe::left(title, TITLE_COLUMNS), brush.palette.faint()), (part, brush.style(tone))]);
        }
    }
    lines
}

/// Draws the table alone.
pub fn draw(brush: &mut Brush<'_>, area: Rect, all: &[Column], rows: &[Row], choice: &Choice) {
    if area.height == 0 || area.width == 0 {
        return;
    }
    let columns = fitting(all, rows, area.width);
    header(brush, area, &columns, choice);
    let room = usize::from(area.height - 1);
    let marked = marked(rows, choice);
    // The marked row stays in sight, in the middle where there is more on both sides.
    let first = marked.saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    for (line, row) in rows.iter().enumerate().skip(first).take(room) {
        let place = Rect { y: area.y + 1 + (line - first) as u16, height: 1, ..area };
        draw_row(brush, place, &columns, row, line == marked);
    }
    if rows.is_empty() && room > 0 {
        let text = if choice.filter.is_empty() { "nothing yet" } else { "nothing with this text" };
        brush.text(area.x, area.y + 1, area.width, text, brush.palette.faint());
    }
}

/// Shown column: its index and its data with the actual width.
type ShownColumn = (usize, Column);

/// Returns a column as wide as its texts need, within its bounds.
fn widened(number: usize, column: Column, rows: &[Row]) -> Column {
    if column.most == column.width {
        return column;
    }
    let needed = rows.iter().filter_map(|row| row.cells.get(number)).map(|cell| safe::width(&cell.text)).max();
    let needed = needed.and_then(|width| u16::try_from(width).ok()).unwrap_or(0);
    Column { width: needed.clamp(column.width, column.most), ..column }
}

/// Returns as many columns as fit; the last one takes the remaining width.
fn fitting(all: &[Column], rows: &[Row], width: u16) -> Vec<ShownColumn> {
    let mut columns: Vec<ShownColumn> =
        all.iter().enumerate().map(|(number, column)| (number, widened(number, *column, rows))).collect();
    let taken =
        |columns: &[ShownColumn]| columns.iter().map(|(_, column)| column.width + 1).sum::<u16>().saturating_sub(1);
    while taken(&columns) > width {
        let least = columns.iter().map(|(_, column)| column.rank).max().unwrap_or(0);
        match columns.iter().rposition(|(_, column)| column.rank == least && least > 0) {
            Some(at) => drop(columns.remove(at)),
            None => break,
        }
    }
    let rest = width.saturating_sub(taken(&columns));
    if let Some((_, last)) = columns.last_mut().filter(|(_, column)| !column.right) {
        last.width += rest;
    }
    columns
}

fn header(brush: &mut Brush<'_>, area: Rect, columns: &[ShownColumn], choice: &Choice) {
    let mut x = area.x;
    for (number, column) in columns {
        let room = column.width.min(area.right().saturating_sub(x));
        let sorted = *number == choice.sort;
        let style = if sorted { brush.palette.strong() } else { brush.palette.faint() };
        let title =
            if column.right { safe::right(column.title, room.into()) } else { safe::left(column.title, room.into()) };
        brush.text(
            x,
            area.y,
            room,
            &title,
            style.add_modifier(if sorted { Modifier::UNDERLINED } else { Modifier::empty() }),
        );
        x = (x + column.width + 1).min(area.right());
    }
}

fn draw_row(brush: &mut Brush<'_>, area: Rect, columns: &[ShownColumn], row: &Row, marked: bool) {
    let mut x = area.x;
    for (number, column) in columns {
        let room = column.width.min(area.right().saturating_sub(x));
        if let Some(cell) = row.cells.get(*number) {
            let text =
                if column.right { safe::right(&cell.text, room.into()) } else { safe::cut(&cell.text, room.into()) };
            brush.text(x, area.y, room, &text, brush.style(cell.tone));
        }
        x = (x + column.width + 1).min(area.right());
    }
    if marked {
        brush.buffer.set_style(area.intersection(brush.buffer.area), Style::new().add_modifier(Modifier::REVERSED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rows::Cell;

    #[test]
    fn the_least_important_columns_go_first() {
        let all = columns(Tab::Peers);
        let titles = |width| fitting(all, &[], width).into_iter().map(|(_, column)| column.title).collect::<Vec<_>>();
        assert_eq!(titles(200).len(), all.len());
        assert_eq!(titles(78), ["peer", "cluster", "role", "ring", "parts", "via", "round trip", "sent", "received"]);
        assert_eq!(titles(36), ["peer", "role", "via", "round trip"]);
        assert_eq!(titles(1), ["peer", "role", "via", "round trip"]);
        let cell = Cell { text: "a-name-of-some-length (MMjh9m)".into(), ..Cell::default() };
        let named = Row { cells: vec![cell], ..Row::default() };
        let shown = fitting(all, &[named], 78);
        assert_eq!(shown[0].1.width, 30, "a name is shown whole, and others make room");
        assert_eq!(shown.last().map(|(_, column)| column.title), Some("round trip"));
    }
}
