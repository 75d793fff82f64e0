//! A picture of what is known and what the person is about: a function of these alone.

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::{Modifier, Style};
use screen::ratatui::widgets::{Block, Clear, Widget as _};
use screen::safe;
use unicode_segmentation::UnicodeSegmentation as _;

use super::edit::Line;
use super::model::{Model, Page, Shown};
use super::state::{State, View, Writing};
use crate::age::{age, day};
use crate::signature::Seal;
use crate::text::{self, GRAPHEMES_MAX};

/// From here on there is room for a second column.
const WIDE: u16 = 110;
const SIDE: u16 = 34;
const COMPOSE_ROWS: u16 = 6;

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
    ("?", "this"),
    ("q, Ctrl-C", "leave"),
];

/// Where things are.
struct Places {
    head: Rect,
    main: Rect,
    side: Option<Rect>,
    compose: Option<Rect>,
    notice: Rect,
    foot: Rect,
}

fn places(state: &State, area: Rect) -> Places {
    let row = |y: u16| Rect { y, height: 1, ..area }.intersection(area);
    let (head, foot) = (row(area.y), row(area.bottom().saturating_sub(1)));
    let notice = row(area.bottom().saturating_sub(2));
    let rows = area.height.saturating_sub(3);
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
    Places { head, main, side, compose, notice, foot }
}

/// Rows that belong to what is in the main place.
fn inside(area: Rect) -> Rect {
    Block::bordered().inner(area)
}

/// How many rows each item of the view takes, and how many rows there are.
pub(super) fn heights(model: &Model, state: &State, area: Rect) -> (Vec<usize>, usize) {
    let main = inside(places(state, area).main);
    let width = text_width(main);
    let of = |lines: &[Shown]| lines.iter().map(|shown| 2 + wrapped(shown, width).len()).collect();
    match state.view {
        View::Timeline => (of(&model.lines), usize::from(main.height)),
        View::Following => (vec![1; model.following.len()], usize::from(main.height)),
        View::Page => {
            let lines = model.page.as_ref().map_or(&[][..], |page| &page.lines);
            (of(lines), usize::from(main.height.saturating_sub(PAGE_HEAD_ROWS)))
        }
    }
}

const PAGE_HEAD_ROWS: u16 = 4;

fn text_width(main: Rect) -> usize {
    usize::from(main.width.saturating_sub(4))
}

fn wrapped(shown: &Shown, width: usize) -> Vec<String> {
    safe::wrap(&shown.line.record.text, width.max(1))
}

/// Draws all of it.
pub(super) fn draw(model: &Model, state: &State, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    Clear.render(area, buffer);
    if area.width < 20 || area.height < 6 {
        put(buffer, area, 0, "too small", palette.text());
        return;
    }
    let places = places(state, area);
    head(model, palette, places.head, buffer);
    let page = model.page.as_ref().filter(|_| state.view == View::Page);
    let title = match (state.view, page) {
        (View::Timeline, _) => "Timeline".to_owned(),
        (View::Following, _) => format!("Whom you follow: {}", model.following.len()),
        (View::Page, Some(page)) => page.profile.name.to_string(),
        (View::Page, None) => "…".to_owned(),
    };
    let main = framed(&title, palette, places.main, buffer);
    match state.view {
        View::Timeline => timeline(model, state, now_ms, palette, main, buffer),
        View::Following => following(model, state, palette, main, buffer),
        View::Page => {
            if let Some(page) = page {
                about(page, palette, main, buffer);
                let below =
                    Rect { y: main.y + PAGE_HEAD_ROWS, height: main.height.saturating_sub(PAGE_HEAD_ROWS), ..main };
                items(&page.lines, state, now_ms, palette, below, buffer);
            }
        }
    }
    if let Some(side) = places.side {
        let inner = framed(&format!("You follow {}", model.following.len()), palette, side, buffer);
        for (row, user) in model.following.iter().take(usize::from(inner.height)).enumerate() {
            put(buffer, inner, row as u16, user.as_str(), palette.text());
        }
    }
    if let Some(compose) = places.compose {
        let count = text::count(state.chirp.text().trim());
        let (words, style) = match count.checked_sub(GRAPHEMES_MAX + 1) {
            None => (format!("{count}/{GRAPHEMES_MAX}"), palette.title()),
            Some(more) => (format!("{count}/{GRAPHEMES_MAX}: {} too many", more + 1), palette.bad()),
        };
        let inner = framed("Write", palette, compose, buffer);
        let column = compose.right().saturating_sub(3 + words.len() as u16);
        buffer.set_string(column, compose.bottom().saturating_sub(1), format!(" {words} "), style);
        written(&state.chirp, palette, inner, buffer);
    }
    notice(model, state, palette, places.notice, buffer);
    foot(model, state, palette, places.foot, buffer);
    match state.writing {
        Some(writing) if writing != Writing::Chirp => ask(writing, state, palette, area, buffer),
        _ if state.help => help(palette, area, buffer),
        _ => {}
    }
}

/// One row of an area, cut to its width.
fn put(buffer: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height {
        buffer.set_string(area.x, area.y + row, safe::cut(text, usize::from(area.width)), style);
    }
}

/// A frame with a title: what is in it.
fn framed(title: &str, palette: Palette, area: Rect, buffer: &mut Buffer) -> Rect {
    let title = safe::cut(title, usize::from(area.width.saturating_sub(4)));
    let block =
        Block::bordered().border_style(palette.faint()).title(format!(" {title} ")).title_style(palette.title());
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}

fn head(model: &Model, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let user = model.user.as_ref().map_or(String::new(), |user| format!("  {user}"));
    put(buffer, area, 0, &format!(" Chirp{user}"), palette.strong());
    let (words, style) = match &model.peer {
        Some(peer) => (format!("● {peer} "), palette.good()),
        None => ("○ not connected ".to_owned(), palette.bad()),
    };
    let room = area.width.saturating_sub(20);
    let words = safe::cut(&words, usize::from(room));
    let width = safe::width(&words) as u16;
    buffer.set_string(area.right().saturating_sub(width), area.y, words, style);
}

fn timeline(model: &Model, state: &State, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if !model.lines.is_empty() {
        return items(&model.lines, state, now_ms, palette, area, buffer);
    }
    let words = match (&model.user, model.has_read) {
        (None, _) => "",
        (Some(_), false) => "reading …",
        (Some(_), true) => "Nothing yet. Write something (c), or follow somebody (f).",
    };
    put(buffer, area, 0, words, palette.faint());
}

fn items(lines: &[Shown], state: &State, now_ms: u64, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (first, chosen) = (state.first[state.view as usize], state.chosen[state.view as usize]);
    let mut row = 0;
    for (at, shown) in lines.iter().enumerate().skip(first) {
        if row >= area.height {
            return;
        }
        let top = row;
        let name = shown.line.user.as_str();
        put(buffer, area, row, &format!("  {name}"), palette.strong());
        let behind = Rect { x: area.x + 2 + name.len() as u16, ..area }.intersection(area);
        put(buffer, behind, row, &format!("  {}", age(shown.line.record.at_ms, now_ms)), palette.faint());
        if let Some((words, style)) = seal(shown.seal, palette) {
            let width = safe::width(words) as u16;
            if area.width > width + 45 {
                buffer.set_string(area.right() - width - 1, area.y + row, words, style);
            }
        }
        row += 1;
        for line in wrapped(shown, text_width(area)) {
            put(buffer, area, row, &format!("  {line}"), palette.text());
            row += 1;
        }
        if at == chosen {
            for marked in top..row.min(area.height) {
                buffer.set_string(area.x, area.y + marked, "▌", palette.key());
            }
        }
        row += 1;
    }
}

fn seal(seal: Option<Seal>, palette: Palette) -> Option<(&'static str, Style)> {
    match seal? {
        Seal::Unsigned => None,
        Seal::Valid => Some(("✓ signed", palette.good())),
        Seal::Missing => Some(("not signed", palette.warning())),
        Seal::Broken => Some(("✗ bad signature", palette.bad())),
    }
}

fn following(model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if model.following.is_empty() {
        put(buffer, area, 0, "Nobody yet: f follows somebody.", palette.faint());
    }
    let (first, chosen) = (state.first[View::Following as usize], state.chosen[View::Following as usize]);
    for (row, (at, user)) in model.following.iter().enumerate().skip(first).take(usize::from(area.height)).enumerate() {
        let (mark, style) = if at == chosen { ("▌", palette.strong()) } else { (" ", palette.text()) };
        put(buffer, area, row as u16, &format!("{mark} {user}"), style);
    }
}

fn about(page: &Page, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let Page { profile, count, follows, .. } = page;
    let since = day(profile.since_ms / 1000);
    put(buffer, area, 0, &format!("  here since {since}"), palette.text());
    put(buffer, area, 1, &format!("  {count} chirps, follows {follows}"), palette.text());
    let signs = match &profile.key {
        Some(key) => format!("  signs, with the key {}", key.to_text()),
        None => "  does not sign: anybody may have written this".to_owned(),
    };
    put(buffer, area, 2, &signs, palette.faint());
}

/// What is being written, with a cursor, as many rows as there is room for, the last ones where there is not.
fn written(line: &Line, palette: Palette, area: Rect, buffer: &mut Buffer) {
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

fn notice(model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (text, style) = match (&state.problem, &model.notice) {
        (Some(problem), _) => (problem, palette.bad()),
        (None, Some(notice)) if notice.is_bad => (&notice.text, palette.bad()),
        (None, Some(notice)) => (&notice.text, palette.good()),
        (None, None) => return,
    };
    put(buffer, area, 0, &format!(" {text}"), style);
}

fn foot(model: &Model, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let keys: &[(&str, &str)] = match (state.writing, state.view) {
        (Some(Writing::Chirp), _) => &[("Enter", "post"), ("Esc", "not now")],
        (Some(Writing::Name | Writing::SignUp), _) => &[("Enter", "go on"), ("Esc", "leave")],
        (Some(_), _) => &[("Enter", "go on"), ("Esc", "not now")],
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

/// A box in the middle: what is in it.
fn middle(title: &str, width: u16, height: u16, palette: Palette, area: Rect, buffer: &mut Buffer) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width, height };
    Clear.render(place, buffer);
    framed(title, palette, place, buffer)
}

fn ask(writing: Writing, state: &State, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (title, words) = match writing {
        Writing::Follow => ("Follow", "Whom?"),
        Writing::Visit => ("Visit", "Whom?"),
        Writing::SignUp => ("Sign up", "Nobody has this name. Enter again takes it."),
        _ => ("Welcome to Chirp", "Who are you? A name of yours, or a new one."),
    };
    let inner = middle(title, 50, 6, palette, area, buffer);
    put(buffer, inner, 0, words, palette.text());
    let below = Rect { y: inner.y + 2, height: inner.height.saturating_sub(2).min(1), ..inner };
    written(&state.name, palette, below, buffer);
    if let Some(problem) = &state.problem {
        put(buffer, inner, 3, problem, palette.bad());
    }
}

fn help(palette: Palette, area: Rect, buffer: &mut Buffer) {
    let inner = middle("Keys", 76, HELP.len() as u16 + 2, palette, area, buffer);
    for (row, (key, what)) in HELP.iter().enumerate() {
        put(buffer, inner, row as u16, &format!(" {key}"), palette.key());
        let right = Rect { x: inner.x + 15, width: inner.width.saturating_sub(15), ..inner }.intersection(inner);
        put(buffer, right, row as u16, what, palette.text());
    }
}
