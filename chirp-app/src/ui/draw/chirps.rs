//! Lists: the timeline, the page of a user, and the users that the user follows.

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Style;
use screen::safe;

use super::super::model::{Model, Shown, ShownPage};
use super::super::state::State;
use super::{put, right_of};
use crate::age::{age, day};
use crate::signature::Seal;
use crate::text::BYTES_MAX;

/// Rows above the chirps of a page.
pub(super) const PAGE_HEAD_ROWS: u16 = 4;
/// Column of authors' names. No text of an author ever stands there: no author can write a row that looks like the head
/// of another one's chirp.
const NAME_INDENT: usize = 2;
const TEXT_INDENT: usize = 4;
/// Upper limit of rows of one text. Where a row has 40 columns or more, every text that a person writes fits.
const TEXT_ROWS_MAX: usize = 12;

/// Returns the columns for the text of a chirp in this area.
pub(super) fn text_columns(area: Rect) -> usize {
    usize::from(area.width).saturating_sub(TEXT_INDENT + 2)
}

/// Returns the rows that a chirp takes: its author, its text, and an empty one.
pub(in super::super) fn height(shown: &Shown, columns: usize) -> usize {
    2 + wrapped(&shown.line.record.text, columns).len()
}

/// Wraps a text in rows. All of it is one paragraph: a line end in it is a character that is shown.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    // Longer texts cannot be posted, but stored.
    let known = &text[..text.floor_char_boundary(BYTES_MAX)];
    let mut rows = safe::wrap(&safe::line(known), columns);
    if rows.len() > TEXT_ROWS_MAX || known.len() < text.len() {
        rows.truncate(TEXT_ROWS_MAX);
        if let Some(last) = rows.last_mut() {
            *last = safe::cut(&format!("{last}…"), columns);
        }
    }
    rows
}

/// Draws the posts of the users that the user follows.
pub(super) fn timeline(model: &Model, state: &State, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let words = match (&model.user, model.has_read) {
        _ if !model.lines.is_empty() => return items(&model.lines, state, now_ms, palette, area, buffer),
        (None, _) => "",
        (Some(_), false) => "reading …",
        (Some(_), true) => "Nothing yet. Write something (c), or follow somebody (f).",
    };
    put(buffer, area, 0, words, palette.faint());
}

/// Draws the page that is looked at, or why it is not there.
pub(super) fn page(model: &Model, state: &State, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let Some(page) = state.visited_page(model) else {
        let words = if state.is_page_missing { "  this page cannot be shown" } else { "  reading …" };
        return put(buffer, area, 0, words, palette.faint());
    };
    about(page, palette, area, buffer);
    let above = PAGE_HEAD_ROWS.min(area.height);
    let below = Rect { y: area.y + above, height: area.height - above, ..area };
    items(&page.lines, state, now_ms, palette, below, buffer);
}

fn about(page: &ShownPage, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let ShownPage { profile, count, follows, .. } = page;
    let since = day(profile.since_ms / 1000);
    put(buffer, area, 0, &format!("  here since {since}"), palette.text());
    put(buffer, area, 1, &format!("  {count} chirps, follows {follows}"), palette.text());
    let signs = match &profile.key {
        Some(key) => format!("  signs, with the key {}", key.to_text()),
        None => "  does not sign: anybody may have written this".to_owned(),
    };
    put(buffer, area, 2, &signs, palette.faint());
}

fn items(lines: &[Shown], state: &State, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let choice = state.choice();
    let mut row = 0;
    for (at, shown) in lines.iter().enumerate().skip(choice.first) {
        if row >= area.height {
            return;
        }
        let top = row;
        author(shown, now_ms, palette, Rect { y: area.y + row, height: 1, ..area }, buffer);
        row += 1;
        for line in wrapped(&shown.line.record.text, text_columns(area)) {
            put(buffer, right_of(area, TEXT_INDENT), row, &line, palette.text());
            row += 1;
        }
        if at == choice.at {
            for marked in top..row.min(area.height) {
                buffer.set_string(area.x, area.y + marked, "▌", palette.key());
            }
        }
        row += 1;
    }
}

/// Draws the row above a text: author, time, and the result of the signature's check. The result is a sign where there
/// is no room for words, but it is always there.
fn author(shown: &Shown, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (name, age) = (shown.line.user.as_str(), age(shown.line.record.at_ms, now_ms));
    let mut free = right_of(area, NAME_INDENT);
    if let Some((words, sign, style)) = seal(shown.seal, palette) {
        // One column is left free behind it, and two before it.
        let room = usize::from(free.width).saturating_sub(name.len() + 2 + age.len() + 2 + 1);
        let said = if safe::width(words) <= room { words } else { sign };
        let columns = safe::width(said) as u16;
        let x = area.right().saturating_sub(columns + 1);
        buffer.set_string(x, area.y, said, style);
        free.width = x.saturating_sub(free.x).saturating_sub(1);
    }
    put(buffer, free, 0, name, palette.strong());
    put(buffer, right_of(free, name.len()), 0, &format!("  {age}"), palette.faint());
}

/// Returns the result in words, as a sign, and the style of both; `None` for a post without signature and key.
fn seal(seal: Option<Seal>, palette: Palette) -> Option<(&'static str, &'static str, Style)> {
    match seal {
        Some(Seal::Unsigned) => None,
        Some(Seal::Valid) => Some(("✓ signed", "✓", palette.good())),
        Some(Seal::Missing) => Some(("not signed", "!", palette.warning())),
        Some(Seal::Broken) => Some(("✗ bad signature", "✗", palette.bad())),
        None => Some(("not checked", "?", palette.faint())),
    }
}

/// Draws the users that the user follows.
pub(super) fn following(model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if model.following.is_empty() {
        put(buffer, area, 0, "Nobody yet: f follows somebody.", palette.faint());
    }
    let choice = state.choice();
    let seen = model.following.iter().enumerate().skip(choice.first).take(usize::from(area.height));
    for (row, (at, user)) in seen.enumerate() {
        let (mark, style) = if at == choice.at { ("▌", palette.strong()) } else { (" ", palette.text()) };
        put(buffer, area, row as u16, &format!("{mark} {user}"), style);
    }
}
