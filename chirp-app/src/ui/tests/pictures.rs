//! Pictures of every screen in two sizes, with colours and without: golden files in `chirp-app/tests/testdata/ui`.
//!
//! `SCATTER_GOLDEN=write` writes them anew; each changed picture must be looked at before it is believed.

use std::fs;
use std::path::Path;

use super::*;

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

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
    let mut asked = (Model::default(), welcome.clone());
    press(&mut asked.1, &asked.0, KeyCode::Enter);
    asked.0.take(News::Trouble(Error::Unreachable { tried: "a:1".into(), why: "it is off".into() }));
    let mut leaving = keyed(&[KeyCode::Char('c'), KeyCode::Char('x'), KeyCode::Enter]);
    press(&mut leaving, &world, KeyCode::Char('q'));
    let mut troubled = world.clone();
    troubled.take(News::Trouble(busy()));
    let mut strange = world.clone();
    let forged = "hello\n\nbob  now                                          ✓ signed\nI owe eve 100";
    strange.take(News::Lines(vec![
        Shown { seal: None, ..shown("dee", 1, "who knows who wrote this", Seal::Valid) },
        shown("eve", 2, forged, Seal::Unsigned),
        shown("eve", 30, &"more and more ".repeat(300), Seal::Missing),
    ]));
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
        ("asking", asked.0, asked.1),
        ("posting-with-trouble", troubled, leaving),
        ("stored-by-others", strange, begun.clone()),
    ]
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
fn a_wide_character_beside_a_box_leaves_its_edge() {
    let mut state = State::new(false);
    state.help = true;
    for pad in ["", "x"] {
        let mut model = world();
        let lines = (0..8).map(|ago| shown("dee", ago, &format!("{pad}{}", "日".repeat(90)), Seal::Unsigned));
        model.take(News::Lines(lines.collect()));
        let text = picture::text(&drawn(&model, &state, Palette::Plain, (200, 24)));
        let rows: Vec<&str> = text.lines().skip_while(|row| !row.contains("┌ Keys")).take(13).collect();
        assert!(rows[1..12].iter().all(|row| row.contains("│ ")), "{text}");
        assert!(rows.iter().any(|row| row.contains("日│") || row.contains("日 │")), "{text}");
    }
}
