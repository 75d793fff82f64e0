//! A user with followed users of all kinds, and the pictures and keys of that user.

mod drafts;
mod keys;
mod lists;
mod pictures;
mod said;

use screen::colour::Palette;
use screen::picture;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::terminal::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::model::{Model, Shown, ShownPage};
use super::state::{Act, State, View, Writing};
use super::worker::{Ask, News};
use crate::error::Error;
use crate::name::UserName;
use crate::people::Profile;
use crate::record::Record;
use crate::signature::Seal;
use crate::timeline::Line;

const NOW_MS: u64 = 1_795_600_000_000;

fn name(name: &str) -> UserName {
    name.parse().unwrap()
}

fn shown(user: &str, ago_s: u64, text: &str, seal: Seal) -> Shown {
    let record =
        Record { id: format!("{user}{ago_s}"), at_ms: NOW_MS - 1000 * ago_s, text: text.into(), signature: None };
    Shown { line: Line::new(name(user), record, NOW_MS), seal: Some(seal) }
}

/// A user with followed users of all kinds.
fn world() -> Model {
    let mut model = Model::default();
    model.take(News::Is(name("ann")));
    model.take(News::Connected("127.0.0.1:6479".into()));
    model.take(News::Following(["bob", "Cy_of_the_very_long_name_indeed_", "dee", "eve"].map(name).to_vec()));
    let long = "A chirp may be as long as this one, which goes on for more than one line of a terminal, and is broken where \
                there is a blank. No more.";
    model.take(News::Lines(vec![
        shown("bob", 3, "peers come and go, this stays", Seal::Valid),
        shown("eve", 65, "\u{1b}[2J\u{1b}[31mgone?\u{7} \u{202e}backwards", Seal::Broken),
        shown("Cy_of_the_very_long_name_indeed_", 240, long, Seal::Unsigned),
        shown("dee", 4000, "日本語 \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} e\u{301}", Seal::Missing),
        shown("ann", 90_000, "hello, world", Seal::Unsigned),
        shown("bob", 1_000_000, "the first", Seal::Valid),
    ]));
    model.take(News::Read);
    model
}

fn page() -> ShownPage {
    let profile = Profile { name: name("bob"), since_ms: NOW_MS - 1_000_000_000, key: None };
    let lines = world().lines.into_iter().filter(|shown| shown.line.user == name("bob")).collect();
    ShownPage { profile, count: 117, follows: 3, lines }
}

fn press(state: &mut State, model: &Model, code: KeyCode) -> Act {
    state.key(KeyEvent::new(code, KeyModifiers::NONE), model)
}

fn type_in(state: &mut State, model: &Model, text: &str) {
    for c in text.chars() {
        assert_eq!(press(state, model, KeyCode::Char(c)), Act::None);
    }
}

fn with_control(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
}

fn busy() -> Error {
    Error::TryAgain("busy".into())
}

fn drawn(model: &Model, state: &State, palette: Palette, (columns, rows): (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    let mut state = state.clone();
    state.settle(model, area);
    draw(model, &state, NOW_MS, palette, area, &mut buffer);
    buffer
}

/// Returns the text on a screen of 80x24.
fn read(model: &Model, state: &State) -> String {
    picture::text(&drawn(model, state, Palette::Plain, (80, 24)))
}
