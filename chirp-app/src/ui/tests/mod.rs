//! Keys, and pictures of every screen in two sizes, with colours and without: golden files in `chirp-app/tests/testdata/ui`.
//!
//! `SCATTER_GOLDEN=write` writes them anew; what that changed must be looked at before it is believed.

use std::fs;
use std::path::Path;

use screen::colour::Palette;
use screen::picture;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::terminal::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::model::{Model, Page, Shown};
use super::state::{Act, State, View, Writing};
use super::worker::{Ask, News};
use crate::error::Error;
use crate::name::UserName;
use crate::people::Profile;
use crate::record::Record;
use crate::signature::Seal;
use crate::timeline::Line;

const NOW_MS: u64 = 1_795_600_000_000;
const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

fn name(name: &str) -> UserName {
    name.parse().unwrap()
}

fn shown(user: &str, ago_s: u64, text: &str, seal: Seal) -> Shown {
    let record =
        Record { id: format!("{user}{ago_s}"), at_ms: NOW_MS - 1000 * ago_s, text: text.into(), signature: None };
    Shown { line: Line::new(name(user), record, NOW_MS), seal: Some(seal) }
}

/// Somebody with friends of all kinds.
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

fn page() -> Page {
    let profile = Profile { name: name("bob"), since_ms: NOW_MS - 1_000_000_000, key: None };
    let lines = world().lines.into_iter().filter(|shown| shown.line.user == name("bob")).collect();
    Page { profile, count: 117, follows: 3, lines }
}

fn press(state: &mut State, model: &Model, code: KeyCode) -> Act {
    state.key(KeyEvent::new(code, KeyModifiers::NONE), model)
}

fn type_in(state: &mut State, model: &Model, text: &str) {
    for c in text.chars() {
        assert_eq!(press(state, model, KeyCode::Char(c)), Act::None);
    }
}

/// All screens.
fn screens() -> Vec<(&'static str, Model, State)> {
    let (world, begun) = (world(), State::new(false));
    let keyed = |keys: &[KeyCode]| {
        let mut state = begun.clone();
        keys.iter().for_each(|key| drop(press(&mut state, &world, *key)));
        state
    };
    let mut compose = keyed(&[KeyCode::Char('c')]);
    type_in(&mut compose, &world, "writing to \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} who is one to the eye");
    let mut too_long = keyed(&[KeyCode::Char('c')]);
    type_in(&mut too_long, &world, &"too long ".repeat(17));
    press(&mut too_long, &world, KeyCode::Enter);
    let mut failed = world.clone();
    failed.take(News::Trouble(Error::Unreachable { tried: "a:1, \u{1b}[1mb:2".into(), why: "it is off".into() }));
    let mut done = world.clone();
    done.take(News::Done(Ask::Follow(name("eve")), "you follow eve from now on".into()));
    let mut paged = world.clone();
    paged.take(News::Page(Box::new(page())));
    let mut sign_up = State::new(true);
    let nobody = Model::default();
    type_in(&mut sign_up, &nobody, "zoe");
    let welcome = sign_up.clone();
    sign_up.note(&News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    let mut empty = Model::default();
    empty.take(News::Is(name("ann")));
    empty.take(News::Connected("peer:6479".into()));
    empty.take(News::Read);
    let mut ask = keyed(&[KeyCode::Char('f')]);
    type_in(&mut ask, &world, "a b");
    press(&mut ask, &world, KeyCode::Enter);
    vec![
        ("timeline", world.clone(), keyed(&[KeyCode::Down])),
        ("timeline-end", done, keyed(&[KeyCode::End])),
        ("compose", world.clone(), compose),
        ("compose-too-long", world.clone(), too_long),
        ("following", world.clone(), keyed(&[KeyCode::Tab, KeyCode::Down])),
        ("page", paged, keyed(&[KeyCode::Enter])),
        ("page-coming", world.clone(), keyed(&[KeyCode::Enter])),
        ("follow", world.clone(), ask),
        ("help", world.clone(), keyed(&[KeyCode::Char('?')])),
        ("unreachable", failed, begun.clone()),
        ("welcome", nobody.clone(), welcome),
        ("sign-up", nobody, sign_up),
        ("empty", empty, begun.clone()),
    ]
}

fn drawn(model: &Model, state: &State, palette: Palette, (columns, rows): (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    let mut state = state.clone();
    state.settle(model, area);
    draw(model, &state, NOW_MS, palette, area, &mut buffer);
    buffer
}

#[test]
fn pictures() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/ui");
    let writes = std::env::var_os("SCATTER_GOLDEN").is_some_and(|value| value == "write");
    let mut wrong = Vec::new();
    for (title, model, state) in screens() {
        for (columns, rows) in SIZES {
            let of = |palette| drawn(&model, &state, palette, (columns, rows));
            let (sixteen, plain) = (of(Palette::Sixteen), of(Palette::Plain));
            let text = picture::text(&sixteen);
            assert_eq!(text, picture::text(&plain), "{title}: what is said does not depend on colours");
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{title}");
            let got = format!(
                "{text}\n--- sixteen colours\n{}\n--- no colours\n{}",
                picture::styles(&sixteen),
                picture::styles(&plain)
            );
            let path = directory.join(format!("{title}-{columns}x{rows}.txt"));
            if writes {
                fs::create_dir_all(&directory).unwrap();
                fs::write(&path, &got).unwrap();
            } else if fs::read_to_string(&path).unwrap_or_default() != got {
                wrong.push(format!("{}:\n{text}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} pictures have changed (SCATTER_GOLDEN=write):\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn any_size_can_be_drawn() {
    for (_, model, state) in screens() {
        for columns in [0, 1, 2, 19, 20, 21, 40, 79, 109, 110, 111] {
            for rows in [0, 1, 2, 5, 6, 7, 10, 13, 24] {
                drawn(&model, &state, Palette::Sixteen, (columns, rows));
            }
        }
    }
}

#[test]
fn a_chirp_is_written_and_stays_until_it_is_posted() {
    let (model, mut state) = (world(), State::new(false));
    press(&mut state, &model, KeyCode::Char('c'));
    type_in(&mut state, &model, "hello q");
    press(&mut state, &model, KeyCode::Esc);
    assert_eq!((state.writing, state.chirp.text()), (None, "hello q"));
    press(&mut state, &model, KeyCode::Char('c'));
    let text: crate::Text = "hello q".parse().unwrap();
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Post(text.clone())));
    press(&mut state, &model, KeyCode::Char('c'));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::None, "it is on its way");
    state.note(&News::Failed(Ask::Post(text.clone()), Error::TryAgain("busy".into())));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Post(text.clone())));
    state.note(&News::Done(Ask::Post(text), "posted".into()));
    assert_eq!(state.chirp.text(), "");
    press(&mut state, &model, KeyCode::Char('c'));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::None);
    assert!(state.problem.is_some(), "there is nothing to post");
}

#[test]
fn what_is_chosen_stays_chosen_when_others_come() {
    let (mut model, mut state) = (world(), State::new(false));
    let area = Rect::new(0, 0, 80, 24);
    press(&mut state, &model, KeyCode::Down);
    let chosen = state.chosen_user(&model);
    model.take(News::Lines(vec![shown("dee", 0, "new", Seal::Unsigned)]));
    state.settle(&model, area);
    assert_eq!((state.chosen[0], state.chosen_user(&model)), (2, chosen));
    press(&mut state, &model, KeyCode::Home);
    model.take(News::Lines(vec![shown("bob", 0, "newer", Seal::Unsigned)]));
    state.settle(&model, area);
    assert_eq!(state.chosen[0], 0, "at the top it stays at the top");
    let count = model.lines.len();
    model.take(News::Lines(vec![shown("bob", 0, "newer", Seal::Unsigned)]));
    assert_eq!(model.lines.len(), count, "the same chirp is shown once");
    model.take(News::Following(vec![name("dee")]));
    assert!(model.lines.iter().all(|shown| shown.line.user == name("dee") || shown.line.user == name("ann")));
}

#[test]
fn a_newcomer_is_asked_for_a_name() {
    let (model, mut state) = (Model::default(), State::new(true));
    type_in(&mut state, &model, "zoe");
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Be(name("zoe"))));
    state.note(&News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::SignUp(name("zoe"))));
    type_in(&mut state, &model, "y");
    assert_eq!(state.writing, Some(Writing::Name), "another name is asked for anew");
    state.note(&News::Is(name("zoe")));
    assert_eq!((state.writing, state.view), (None, View::Timeline));
    // Who is named on the command line and has not signed up is asked as well.
    let mut state = State::new(false);
    state.note(&News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::SignUp(name("zoe"))));
    state.note(&News::Failed(Ask::Be(name("zoe")), Error::TryAgain("busy".into())));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Be(name("zoe"))));
    let mut state = State::new(true);
    assert_eq!(press(&mut state, &model, KeyCode::Esc), Act::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(State::new(true).key(control_c, &model), Act::Quit);
}
