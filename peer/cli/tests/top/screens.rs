//! Every screen in every size, with and without colours, drawn by the library's own backend for tests.

use std::path::Path;

use cli::top::Pane;
use cli::top::model::Model;
use cli::top::state::{State, Tab};
use cli::top::view::{Scene, draw};
use peer::status::{Located, RangeStatus, Ring};
use screen::colour::Palette;
use screen::ratatui::Terminal;
use screen::ratatui::backend::TestBackend;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::{picture, safe};

use super::golden;
use super::model::{HOSTILE, hostile, rich};

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];
const PALETTES: [(Palette, &str); 2] = [(Palette::Sixteen, "colours"), (Palette::Plain, "plain")];

fn drawn(scene: Scene<'_>, palette: Palette, (columns, rows): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| _ = draw(scene, palette, frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn scene<'a>(model: &'a Model, state: &'a State) -> Scene<'a> {
    Scene { model, state, extras: &[], pane: None, word: None }
}

/// Checks text and styles of a scene, in all sizes and both kinds of terminals.
#[track_caller]
fn check(name: &str, scene: Scene<'_>) {
    for size in SIZES {
        for (palette, kind) in PALETTES {
            let buffer = drawn(scene, palette, size);
            let text = picture::text(&buffer);
            harmless(&text);
            let all = format!("{text}\n---- styles\n{}", picture::styles(&buffer));
            golden::check(&format!("{name}-{}x{}-{kind}.txt", size.0, size.1), &all);
        }
    }
}

#[track_caller]
fn harmless(text: &str) {
    for line in text.lines() {
        assert_eq!(safe::line(line), line);
    }
}

#[test]
fn all_screens_are_as_they_were() {
    let model = rich();
    for (tab, name) in Tab::ALL.into_iter().zip(["overview", "groups", "peers", "events"]) {
        let mut state = State::default();
        state.tab = tab;
        check(name, scene(&model, &state));
    }
    let mut state = State::default();
    state.help = true;
    check("help", scene(&model, &state));
}

/// In few rows the help and the marked row's details are scrolled to their last lines, and the foot shows the
/// keys.
#[test]
fn what_does_not_fit_is_scrolled() {
    let model = rich();
    for (tab, help, last) in [
        (Tab::Overview, true, "the leader knows of all"),
        (Tab::Groups, false, "for want of room"),
        (Tab::Peers, false, "member for"),
    ] {
        for rows in [12, 18, 20] {
            let mut state = State::default();
            (state.tab, state.help, state.about) = (tab, help, !help);
            let mut buffer = Buffer::empty(Rect::new(0, 0, 80, rows));
            let scroll = draw(scene(&model, &state), Palette::Plain, &mut buffer);
            let text = picture::text(&buffer);
            assert_eq!(scroll.most > 0, !text.contains(last), "{text}");
            assert_eq!(scroll.most > 0, text.lines().last().is_some_and(|foot| foot.contains("PgDn scroll")), "{text}");
            state.scroll = scroll.most;
            let text = picture::text(&drawn(scene(&model, &state), Palette::Plain, (80, rows)));
            assert!(text.contains(last), "{tab:?} in {rows} rows: {text}");
            // Further than to the end there is nothing.
            state.scroll += 1;
            assert_eq!(picture::text(&drawn(scene(&model, &state), Palette::Plain, (80, rows))), text);
        }
    }
}

#[test]
fn somebody_who_is_not_there() {
    let state = State::default();
    let trouble = ("192.0.2.7:6480".to_owned(), "Connection refused (os error 111)".to_owned());
    check("nobody", scene(&Model { troubles: [trouble].into(), ..Model::default() }, &state));
    assert!(picture::text(&drawn(scene(&Model::default(), &state), Palette::Plain, (80, 24))).contains("Asking."));
}

#[test]
fn chosen_sorted_filtered_and_frozen() {
    let model = rich();
    let mut state = State::default();
    state.tab = Tab::Groups;
    state.frozen = true;
    state.chosen_mut().row = model.arcs().get(4).map(|arc| arc.id.clone());
    state.chosen_mut().sort = 2;
    state.chosen_mut().reverse = true;
    check("groups-chosen", scene(&model, &state));
    state.tab = Tab::Events;
    state.filtering = true;
    state.chosen_mut().filter = "BBBB".into();
    check("events-filtered", scene(&model, &state));
    state.chosen_mut().filter = "no such text".into();
    let nothing = picture::text(&drawn(scene(&model, &state), Palette::Plain, (80, 24)));
    assert!(nothing.contains("nothing with this text"), "{nothing}");
}

#[test]
fn in_another_program_and_old() {
    let model = Model {
        age_s: Some(75),
        notice: Some("192.0.2.1:6480: no answer within 2 s; this is 192.0.2.7:6480 now".into()),
        ..rich()
    };
    let state = State::default();
    let extras = [('K', "kill a peer".to_owned()), ('S', "start one".to_owned())];
    let pane = Pane {
        title: "chirps".into(),
        lines: (0..40)
            .map(|n| format!("@ana chirp {n} {HOSTILE} a long line that has to be broken somewhere"))
            .collect(),
    };
    let embedded = Scene { extras: &extras, pane: Some(&pane), ..scene(&model, &state) };
    check("embedded", embedded);
    check("embedded-word", Scene { word: Some("peer 3 is killed"), ..embedded });
}

/// An older peer has none of the newer endpoints.
#[test]
fn a_peer_that_tells_little() {
    let full = rich();
    let model =
        Model { endpoint: full.endpoint, ready: Some(false), status: full.status, age_s: Some(0), ..Model::default() };
    check("little", scene(&model, &State::default()));
}

/// Many groups, and parts of the ring whose owners do not answer.
#[test]
fn a_large_ring() {
    let mut model = rich();
    let point = |number: u128| format!("{:032x}", number << 120);
    let located = |number: u128| Located {
        group: format!("{:032x}", number * 0x0123_4567_89ab_cdef_0123_4567),
        range: RangeStatus { start: point(number), end: point(number + if number % 16 == 3 { 1 } else { 2 }) },
        epoch: number as u64,
        members: vec!["12D3KooWSomebody".into(); 5],
        ..Located::default()
    };
    model.ring = Some(Ring { groups: (0..126).map(|number| located(number * 2 % 256)).collect(), ..Ring::default() });
    check("large-ring", scene(&model, &State::default()));
}

#[test]
fn nothing_that_is_sent_steers_the_terminal_or_breaks_the_picture() {
    let model = hostile();
    for tab in Tab::ALL {
        let mut state = State::default();
        state.tab = tab;
        state.chosen_mut().filter = if tab == Tab::Peers { "x".into() } else { String::new() };
        for size in SIZES {
            let buffer = drawn(scene(&model, &state), Palette::Sixteen, size);
            harmless(&picture::text(&buffer));
            for cell in buffer.content() {
                assert_eq!(safe::line(cell.symbol()), cell.symbol(), "{:?}", cell.symbol());
            }
            // Each row is as wide as the screen: nothing was moved.
            for line in picture::text(&buffer).lines() {
                assert!(safe::width(line) <= size.0.into(), "{line}");
            }
        }
    }
}

#[test]
fn no_size_is_too_small_or_too_odd() {
    let (rich, hostile) = (rich(), hostile());
    let pane = Pane { title: "p".into(), lines: vec!["日本語".into(); 9] };
    let widths = [1, 2, 5, 39, 40, 41, 60, 79, 81, 100, 129, 130, 149, 150, 151, 300];
    for model in [&rich, &hostile, &Model::default()] {
        for (help, tab) in [(false, 0), (false, 1), (false, 2), (false, 3), (true, 0)] {
            let mut state = State::default();
            state.tab = Tab::ALL[tab];
            state.help = help;
            for columns in widths {
                for rows in [1, 2, 9, 10, 11, 17, 18, 23, 25, 39, 40, 100] {
                    let scene = Scene { pane: Some(&pane), ..scene(model, &state) };
                    harmless(&picture::text(&drawn(scene, Palette::Sixteen, (columns, rows))));
                }
            }
        }
    }
}

/// The ring is asked for apart from the rest, so it may be old while the rest is not.
#[test]
fn a_ring_that_is_old_is_said_to_be() {
    let (mut model, mut state) = (rich(), State::default());
    for (age, told) in [(9, false), (95, true)] {
        model.ring_age_s = Some(age);
        for tab in [Tab::Overview, Tab::Groups] {
            state.tab = tab;
            let text = picture::text(&drawn(scene(&model, &state), Palette::Plain, (200, 60)));
            assert_eq!(text.contains("1m35s OLD"), told, "{text}");
        }
    }
}

/// More groups than rows can be counted.
#[test]
fn a_ring_without_end_is_drawn() {
    let mut model = rich();
    let located = |number: u32| Located { group: format!("{number:032x}"), ..Located::default() };
    model.ring = Some(Ring { whole: true, groups: (0..65_533).map(located).collect(), ..Ring::default() });
    let mut state = State::default();
    state.tab = Tab::Groups;
    assert!(picture::text(&drawn(scene(&model, &state), Palette::Plain, (80, 24))).contains("groups: 6553"));
}

/// As SVG, like the pictures in the README.
#[test]
fn a_picture_for_documents() {
    let mut model = rich();
    let status = model.status.as_mut().unwrap();
    for (member, cluster) in status.groups[0].members.iter_mut().zip(["attic", "cellar", "shed", "office", "garage"]) {
        member.cluster = cluster.into();
    }
    model.events.as_mut().unwrap().pop();
    let svg = picture::svg(&cli::top::picture(&model, Palette::Sixteen, (110, 34)), "scatter top");
    assert!(svg.starts_with("<svg ") && svg.contains(">serves<") && !svg.chars().any(|c| c.is_control() && c != '\n'));
    golden::check_at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/top/document.svg"), &svg);
}
