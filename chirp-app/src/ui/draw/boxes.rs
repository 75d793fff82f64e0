//! The line that is being written, and boxes above the rest: questions to the person, and the keys.

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Modifier;
use screen::ratatui::widgets::{Clear, Widget as _};
use screen::safe;
use unicode_segmentation::UnicodeSegmentation as _;

use super::super::edit::LineEditor;
use super::super::model::Model;
use super::super::state::{State, Writing};
use super::{framed, put, right_of};
use crate::text::{self, GRAPHEMES_MAX};

/// Rows below boxes: the foot tells the effect of keys.
const FOOT_ROWS: u16 = 1;
/// Rows of a frame.
const FRAME_ROWS: u16 = 2;

const HELP: [(&str, &str); 11] = [
    ("c", "write a chirp"),
    ("Enter", "post it, or see who wrote the chosen one"),
    ("Esc", "not now, and back to the timeline: what was written stays"),
    ("f", "follow somebody"),
    ("u", "follow the chosen one no more"),
    ("v", "visit somebody"),
    ("Tab", "the timeline, or whom you follow"),
    ("arrows, j k", "up and down; PgUp and PgDn further"),
    ("Home, End", "the newest, the oldest"),
    ("?", "this; any key leaves it that does not scroll"),
    ("q, Ctrl-C", "leave; Ctrl-C whatever is not posted yet"),
];

/// Draws the chirp that is being written.
pub(super) fn compose(state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let line = &state.drafts.line;
    let count = text::count(line.text().trim());
    let (words, style) = match count.checked_sub(GRAPHEMES_MAX + 1) {
        None => (format!("{count}/{GRAPHEMES_MAX}"), palette.title()),
        Some(more) => (format!("{count}/{GRAPHEMES_MAX}: {} too many", more + 1), palette.bad()),
    };
    let title = if state.drafts.has_returned() { "Write; one that was not posted comes next" } else { "Write" };
    let inner = framed(title, palette, area, buffer);
    let column = area.right().saturating_sub(3 + words.len() as u16);
    buffer.set_string(column, area.bottom().saturating_sub(1), format!(" {words} "), style);
    written(line, palette, inner, buffer);
}

/// Draws a line with a cursor, in as many rows as there is room for, the last ones where there is not.
fn written(line: &LineEditor, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width).max(2);
    let mut rows: Vec<Vec<(String, bool)>> = vec![Vec::new()];
    let (mut used, mut cursor_row) = (0, 0);
    let clusters = line.text().grapheme_indices(true).chain([(line.text().len(), " ")]);
    for (at, cluster) in clusters {
        let shown = safe::line(cluster);
        let columns = safe::width(&shown);
        if used + columns > width {
            rows.push(Vec::new());
            used = 0;
        }
        used += columns;
        let here = at == line.cursor();
        if here {
            cursor_row = rows.len() - 1;
        }
        if let Some(row) = rows.last_mut() {
            row.push((shown.into_owned(), here));
        }
    }
    let room = usize::from(area.height);
    let first = (cursor_row + 1).saturating_sub(room);
    for (y, row) in rows.iter().skip(first).take(room).enumerate() {
        let mut x = area.x;
        for (shown, here) in row {
            let style = if *here { palette.text().add_modifier(Modifier::REVERSED) } else { palette.text() };
            buffer.set_string(x, area.y + y as u16, shown, style);
            x += safe::width(shown) as u16;
        }
    }
}

/// Draws a box in the middle, and returns the area in it.
fn middle(title: &str, width: u16, height: u16, palette: Palette, area: Rect, buffer: &mut Buffer) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width, height };
    // A wide character that reaches into the box would hide its edge.
    for y in place.top()..place.bottom() {
        if let Some(before) = place.x.checked_sub(1).filter(|before| *before >= area.x)
            && safe::width(buffer[(before, y)].symbol()) > 1
        {
            buffer[(before, y)].set_symbol(" ");
        }
    }
    Clear.render(place, buffer);
    framed(title, palette, place, buffer)
}

/// Draws the box that asks for a name.
pub(super) fn ask(writing: Writing, model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (title, words) = match writing {
        Writing::Follow => ("Follow", "Whom?"),
        Writing::Visit => ("Visit", "Whom?"),
        Writing::SignUp => ("Sign up", "Nobody has this name. Enter again takes it."),
        _ => ("Welcome to Chirp", "Who are you? A name of yours, or a new one."),
    };
    let inner = middle(title, 50, 6, palette, area, buffer);
    put(buffer, inner, 0, if state.is_asking { "asking …" } else { words }, palette.text());
    let below = Rect { y: inner.y + 2, height: inner.height.saturating_sub(2).min(1), ..inner };
    written(&state.name, palette, below, buffer);
    // The request waits until the trouble is over; the person should know that.
    let trouble = model.trouble.as_ref().filter(|_| state.is_asking);
    if let Some(problem) = state.problem.as_ref().or(trouble) {
        put(buffer, inner, 3, problem, palette.bad());
    }
}

/// How far the keys can be scrolled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct HelpRows {
    /// Rows that are seen at once.
    pub(in super::super) seen: usize,
    /// Rows above these, at most; 0 where all of them fit.
    pub(in super::super) most: usize,
}

/// Returns the rows of the keys in a picture of this size. Where not all fit, one row tells which are seen.
pub(in super::super) fn help_rows(area: Rect) -> HelpRows {
    let room = usize::from(area.height.saturating_sub(FOOT_ROWS + FRAME_ROWS));
    let seen = if room >= HELP.len() { HELP.len() } else { room.saturating_sub(1) };
    HelpRows { seen, most: HELP.len() - seen }
}

/// Draws the keys, above the foot.
pub(super) fn help(state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let HelpRows { seen, most } = help_rows(area);
    let above_foot = Rect { height: area.height.saturating_sub(FOOT_ROWS), ..area };
    let inner = middle("Keys", 76, HELP.len() as u16 + FRAME_ROWS, palette, above_foot, buffer);
    let first = state.help_first.min(most);
    for (row, (key, what)) in HELP.iter().skip(first).take(seen).enumerate() {
        put(buffer, inner, row as u16, &format!(" {key}"), palette.key());
        put(buffer, right_of(inner, 15), row as u16, what, palette.text());
    }
    if most > 0 {
        let words = format!(" {} to {} of {}: arrows, PgUp, PgDn", first + 1, first + seen, HELP.len());
        put(buffer, inner, seen as u16, &words, palette.faint());
    }
}
