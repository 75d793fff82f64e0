//! A picture of the model and the person's state: a function of these alone.
//!
//! Stored text of other users cannot pass for text of Chirp: it goes through [`screen::safe`], stands on rows of its
//! own that begin further right than those that Chirp writes, and takes no more than its part of the screen.

mod boxes;
mod chirps;

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Style;
use screen::ratatui::widgets::{Block, Clear, Widget as _};
use screen::safe;

use super::model::{Model, Notice};
use super::state::{State, View, Writing};
pub(super) use boxes::{HelpRows, help_rows};
pub(super) use chirps::height;

/// Least width with room for a second column.
const WIDE: u16 = 110;
const SIDE: u16 = 34;
const COMPOSE_ROWS: u16 = 6;
/// Least height of the picture with a row for a problem beside the row for the result of an action.
const TALL: u16 = 10;

/// Areas of the parts.
struct Places {
    head: Rect,
    main: Rect,
    side: Option<Rect>,
    compose: Option<Rect>,
    /// Messages: one row, or two.
    said: Rect,
    foot: Rect,
}

fn places(model: &Model, state: &State, area: Rect) -> Places {
    let row = |y: u16| Rect { y, height: 1, ..area }.intersection(area);
    let (head, foot) = (row(area.y), row(area.bottom().saturating_sub(1)));
    let both = model.trouble.is_some() && said(model, state).is_some() && area.height >= TALL;
    let said_rows = if both { 2 } else { 1 };
    let said = Rect { y: foot.y.saturating_sub(said_rows), height: said_rows, ..area }.intersection(area);
    let rows = area.height.saturating_sub(2 + said_rows);
    let written = if state.writing == Some(Writing::Chirp) { COMPOSE_ROWS.min(rows) } else { 0 };
    let body = Rect { y: area.y + 1, height: rows - written, ..area }.intersection(area);
    let compose = (written > 0).then_some(Rect { y: body.bottom(), height: written, ..area }.intersection(area));
    let (main, side) = match area.width >= WIDE && state.view != View::Following {
        true => {
            let main = Rect { width: body.width - SIDE, ..body };
            (main, Some(Rect { x: main.right(), width: SIDE, ..body }))
        }
        false => (body, None),
    };
    Places { head, main, side, compose, said, foot }
}

/// Room for the rows that can be chosen.
pub(super) struct Room {
    pub(super) rows: usize,
    /// Columns for the text of a chirp.
    pub(super) columns: usize,
}

/// Returns the room for the view in a picture of this size.
pub(super) fn room(model: &Model, state: &State, area: Rect) -> Room {
    let main = Block::bordered().inner(places(model, state, area).main);
    let above = if state.view == View::Page { chirps::PAGE_HEAD_ROWS } else { 0 };
    Room { rows: usize::from(main.height.saturating_sub(above)), columns: chirps::text_columns(main) }
}

/// Draws the whole picture.
pub(super) fn draw(model: &Model, state: &State, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    Clear.render(area, buffer);
    if area.width < 20 || area.height < 6 {
        put(buffer, area, 0, "too small", palette.text());
        return;
    }
    let places = places(model, state, area);
    head(model, state, palette, places.head, buffer);
    let title = match (state.view, &state.visited) {
        (View::Timeline, _) => "Timeline".to_owned(),
        (View::Following, _) => format!("Whom you follow: {}", model.following.len()),
        (View::Page, visited) => visited.as_ref().map_or(String::new(), ToString::to_string),
    };
    let main = framed(&title, palette, places.main, buffer);
    match state.view {
        View::Timeline => chirps::timeline(model, state, now_ms, palette, main, buffer),
        View::Following => chirps::following(model, state, palette, main, buffer),
        View::Page => chirps::page(model, state, now_ms, palette, main, buffer),
    }
    if let Some(side) = places.side {
        let inner = framed(&format!("You follow {}", model.following.len()), palette, side, buffer);
        for (row, user) in model.following.iter().take(usize::from(inner.height)).enumerate() {
            put(buffer, inner, row as u16, user.as_str(), palette.text());
        }
    }
    if let Some(compose) = places.compose {
        boxes::compose(state, palette, compose, buffer);
    }
    say(model, state, palette, places.said, buffer);
    foot(model, state, palette, places.foot, buffer);
    match state.writing {
        Some(writing) if writing != Writing::Chirp => boxes::ask(writing, model, state, palette, area, buffer),
        _ if state.help => boxes::help(state, palette, area, buffer),
        _ => {}
    }
}

/// Writes one row of an area, cut to its width.
fn put(buffer: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height {
        buffer.set_string(area.x, area.y + row, safe::cut(text, usize::from(area.width)), style);
    }
}

/// Returns the part of an area right of so many columns.
fn right_of(area: Rect, columns: usize) -> Rect {
    let columns = u16::try_from(columns).unwrap_or(u16::MAX).min(area.width);
    Rect { x: area.x + columns, width: area.width - columns, ..area }
}

/// Draws a frame with a title, and returns the area in it.
fn framed(title: &str, palette: Palette, area: Rect, buffer: &mut Buffer) -> Rect {
    let title = safe::cut(title, usize::from(area.width.saturating_sub(4)));
    let block =
        Block::bordered().border_style(palette.faint()).title(format!(" {title} ")).title_style(palette.title());
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}

fn head(model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let user = model.user.as_ref().map_or(String::new(), |user| format!("  {user}"));
    let title = format!(" Chirp{user}");
    put(buffer, area, 0, &title, palette.strong());
    let behind = right_of(area, safe::width(&title));
    if state.drafts.is_sending() {
        put(buffer, behind, 0, "  posting …", palette.faint());
    } else if state.drafts.is_unposted() && state.writing != Some(Writing::Chirp) {
        put(buffer, behind, 0, "  a chirp is not posted", palette.warning());
    }
    let (words, style) = match &model.peer {
        Some(peer) => (format!(" ● {peer} "), palette.good()),
        None => (" ○ not connected ".to_owned(), palette.bad()),
    };
    let words = safe::cut(&words, usize::from(area.width.saturating_sub(20)));
    let width = safe::width(&words) as u16;
    buffer.set_string(area.right().saturating_sub(width), area.y, words, style);
}

/// Returns the message about the person's action, and whether it is bad.
fn said<'a>(model: &'a Model, state: &'a State) -> Option<(&'a str, bool)> {
    match (&state.problem, &model.notice) {
        _ if state.is_leaving => Some(("a chirp is not posted yet; q again leaves", true)),
        (Some(problem), _) => Some((problem, true)),
        (None, Some(Notice { text, is_bad })) => Some((text, *is_bad)),
        (None, None) => None,
    }
}

/// Draws the message above a lasting problem. With room for one of them, a failed action comes first, and a successful
/// one last.
fn say(model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let trouble = model.trouble.as_deref().map(|trouble| (trouble, true));
    let rows = match (said(model, state), trouble) {
        (said, trouble) if area.height > 1 => [said, trouble],
        (Some((_, false)), Some(trouble)) => [Some(trouble), None],
        (said, trouble) => [said.or(trouble), None],
    };
    for (row, (text, is_bad)) in rows.into_iter().flatten().enumerate() {
        let style = if is_bad { palette.bad() } else { palette.good() };
        put(buffer, area, row as u16, &format!(" {text}"), style);
    }
}

fn foot(model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let keys: &[(&str, &str)] = match (state.writing, state.view) {
        (Some(Writing::Chirp), _) => &[("Enter", "post"), ("Esc", "not now")],
        (Some(Writing::Name | Writing::SignUp), _) if state.is_asking => &[("Esc", "leave")],
        (Some(Writing::Name | Writing::SignUp), _) => &[("Enter", "go on"), ("Esc", "leave")],
        (Some(_), _) => &[("Enter", "go on"), ("Esc", "not now")],
        (None, _) if state.help && state.help_rows.most > 0 => {
            &[("arrows PgUp PgDn", "scroll"), ("any other key", "goes back")]
        }
        (None, _) if state.help => &[("any key", "goes back")],
        (None, _) if model.user.is_none() => &[("?", "help"), ("q", "leave")],
        (None, View::Page) => &[("Esc", "back"), ("c", "write"), ("u", "unfollow"), ("?", "help"), ("q", "leave")],
        (None, View::Following) => {
            &[("Tab", "timeline"), ("Enter", "see"), ("f", "follow"), ("u", "unfollow"), ("?", "help"), ("q", "leave")]
        }
        (None, View::Timeline) => &[
            ("c", "write"),
            ("f", "follow"),
            ("u", "unfollow"),
            ("Enter", "see"),
            ("Tab", "whom you follow"),
            ("?", "help"),
            ("q", "leave"),
        ],
    };
    let mut x = area.x + 1;
    for (key, what) in keys {
        if usize::from(x) + key.len() + what.len() + 1 > usize::from(area.right()) {
            return;
        }
        buffer.set_string(x, area.y, key, palette.key());
        x += key.len() as u16 + 1;
        buffer.set_string(x, area.y, what, palette.text());
        x += what.len() as u16 + 2;
    }
}
