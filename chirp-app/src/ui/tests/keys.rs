//! Results of keys, one by one, many at once, and pasted.

use std::collections::VecDeque;
use std::time::Duration;

use screen::terminal::{End, Happening};

use super::super::{AT_ONCE_MAX, act, learn};
use super::*;

#[test]
fn a_newcomer_is_asked_for_a_name() {
    let (model, mut state) = (Model::default(), State::new(true));
    type_in(&mut state, &model, "zoe");
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Be(name("zoe"))));
    state.note(&News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::SignUp(name("zoe"))));
    state.note(&News::Is(name("zoe")));
    assert_eq!((state.writing, state.view), (None, View::Timeline));
    // A user that is named on the command line and has not signed up is asked as well.
    let mut state = State::new(false);
    state.note(&News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    type_in(&mut state, &model, "y");
    assert_eq!(state.writing, Some(Writing::Name), "another name is asked for anew");
    state.note(&News::Failed(Ask::Be(name("zoe")), busy()));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Be(name("zoe"))));
    let mut state = State::new(true);
    assert_eq!(press(&mut state, &model, KeyCode::Esc), Act::Quit);
    assert_eq!(State::new(true).key(with_control('c'), &model), Act::Quit);
}

#[test]
fn a_name_is_asked_for_once() {
    let (mut model, mut state) = (Model::default(), State::new(true));
    type_in(&mut state, &model, "zoe");
    press(&mut state, &model, KeyCode::Enter);
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::None);
    // No peer has been found yet: the question waits, and the person sees the reason.
    let why = || Error::Unreachable { tried: "a:1".into(), why: "it is off".into() };
    learn(&mut model, &mut state, News::Trouble(why()));
    type_in(&mut state, &model, "x");
    state.paste("y");
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::None, "it is still asked");
    let shown = read(&model, &state);
    assert!(shown.contains("asking …") && shown.matches("cannot reach a peer at a:1").count() == 2, "{shown}");
    assert_eq!(state.clone().key(with_control('c'), &model), Act::Quit);
    assert_eq!(press(&mut state.clone(), &model, KeyCode::Esc), Act::Quit);

    learn(&mut model, &mut state, News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::SignUp(name("zoe"))));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::None, "the second would find the name taken");
    learn(&mut model, &mut state, News::Failed(Ask::SignUp(name("zoe")), Error::Taken(name("zoe"))));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Be(name("zoe"))));
    learn(&mut model, &mut state, News::Is(name("zoe")));
    assert_eq!((state.writing, state.is_asking), (None, false));
}

#[test]
fn a_help_that_does_not_fit_is_scrolled() {
    let (model, mut state) = (world(), State::new(false));
    let said = |state: &State, rows| picture::text(&drawn(&model, state, Palette::Plain, (80, rows)));
    let small = Rect::new(0, 0, 80, 10);
    press(&mut state, &model, KeyCode::Char('?'));
    state.settle(&model, small);
    let first = said(&state, 10);
    assert!(first.contains("write a chirp") && !first.contains("Ctrl-C whatever"), "{first}");
    assert!(first.contains("1 to 6 of 11") && first.contains("any other key goes back"), "{first}");
    press(&mut state, &model, KeyCode::PageDown);
    let last = said(&state, 10);
    assert!(state.help && last.contains("Ctrl-C whatever") && last.contains("6 to 11 of 11"), "{last}");
    press(&mut state, &model, KeyCode::Char('x'));
    assert!(!state.help);
    // Where the whole help fits any key goes back.
    press(&mut state, &model, KeyCode::Char('?'));
    state.settle(&model, Rect::new(0, 0, 80, 24));
    assert!(said(&state, 24).contains("any key goes back"));
    press(&mut state, &model, KeyCode::Down);
    assert!(!state.help);
}

#[test]
fn with_control_or_alt_a_key_is_another_one() {
    let model = world();
    for modifiers in [KeyModifiers::CONTROL, KeyModifiers::ALT, KeyModifiers::SUPER, KeyModifiers::META] {
        for c in "uqcnfvpkjgG?l".chars() {
            let mut state = State::new(false);
            let act = state.key(KeyEvent::new(KeyCode::Char(c), modifiers), &model);
            let is_end = c == 'c' && modifiers == KeyModifiers::CONTROL;
            assert_eq!(act, if is_end { Act::Quit } else { Act::None }, "{modifiers:?} {c}");
            assert_eq!((state.writing, state.view, state.help), (None, View::Timeline, false), "{modifiers:?} {c}");
        }
    }
    let mut state = State::new(false);
    let unfollow = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::SHIFT);
    assert_eq!(state.key(unfollow, &model), Act::Ask(Ask::Unfollow(name("bob"))));
    let alt = KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT);
    press(&mut state, &model, KeyCode::Char('c'));
    type_in(&mut state, &model, "hello");
    assert_eq!((state.key(alt, &model), state.drafts.line.text()), (Act::None, "hello"));
}

#[test]
fn who_is_visited_is_acted_on() {
    let (mut model, mut state) = (world(), State::new(false));
    let page_of = |user: &str| {
        let profile = Profile { name: name(user), since_ms: NOW_MS, key: None };
        News::Page(Box::new(ShownPage { profile, count: 1, follows: 1, lines: Vec::new() }))
    };
    let unfollow = |state: &State, model: &Model| press(&mut state.clone(), model, KeyCode::Char('u'));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Page(name("bob"))));
    learn(&mut model, &mut state, page_of("bob"));
    press(&mut state, &model, KeyCode::Char('v'));
    type_in(&mut state, &model, "DEE");
    press(&mut state, &model, KeyCode::Enter);
    // The page of the user before is no longer looked at.
    let shown = read(&model, &state);
    assert!(shown.contains("┌ DEE ─") && shown.contains("reading …") && !shown.contains("here since"), "{shown}");
    assert_eq!(unfollow(&state, &model), Act::Ask(Ask::Unfollow(name("dee"))));
    learn(&mut model, &mut state, page_of("dee"));
    assert!(read(&model, &state).contains("┌ dee ─"), "as she writes it");
    // A page that was asked for before comes late.
    learn(&mut model, &mut state, page_of("bob"));
    assert!(read(&model, &state).contains("here since"));
    assert_eq!(unfollow(&state, &model), Act::Ask(Ask::Unfollow(name("dee"))));
    press(&mut state, &model, KeyCode::Char('v'));
    type_in(&mut state, &model, "nobody");
    press(&mut state, &model, KeyCode::Enter);
    learn(&mut model, &mut state, News::Failed(Ask::Page(name("nobody")), Error::NoUser(name("nobody"))));
    let shown = read(&model, &state);
    assert!(shown.contains("┌ nobody ─") && shown.contains("cannot be shown"), "{shown}");
}

#[test]
fn what_is_pasted_is_text_or_nothing() {
    let (model, mut state) = (world(), State::new(false));
    let before = format!("{state:?}");
    state.paste("u\nq\nc");
    assert_eq!(format!("{state:?}"), before, "nothing is being written");
    press(&mut state, &model, KeyCode::Char('c'));
    state.paste("one\ntwo\tq\r\n");
    assert_eq!((state.writing, state.drafts.line.text()), (Some(Writing::Chirp), "one two q "));
    press(&mut state, &model, KeyCode::Esc);
    press(&mut state, &model, KeyCode::Char('f'));
    state.paste("eve\n");
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Follow(name("eve"))));
    let mut state = State::new(false);
    state.note(&News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    state.paste("y");
    assert_eq!((state.writing, state.name.text()), (Some(Writing::Name), "zoey"));
}

#[test]
fn many_keys_cost_one_picture() {
    let (mut model, mut state) = (world(), State::new(false));
    let key = |code| Happening::Key(KeyEvent::new(code, KeyModifiers::NONE));
    let mut happenings: VecDeque<Happening> = [
        key(KeyCode::Char('c')),
        key(KeyCode::Char('h')),
        Happening::Paste("i\n".into()),
        key(KeyCode::Enter),
        key(KeyCode::Down),
        Happening::Tick,
        key(KeyCode::Char('u')),
        Happening::End(End::Signal(15)),
    ]
    .into();
    let mut asks = Vec::new();
    let mut waits = Vec::new();
    let mut next = |wait: Duration| {
        waits.push(wait);
        Ok(happenings.pop_front().unwrap())
    };
    assert_eq!(act(&mut model, &mut state, &mut next, |ask| asks.push(ask)).unwrap(), None);
    assert_eq!(asks, [Ask::Post("hi".parse().unwrap())], "and after that something new is drawn");
    assert_eq!(act(&mut model, &mut state, &mut next, |_| {}).unwrap(), Some(143));
    assert!(waits.iter().enumerate().all(|(at, wait)| wait.is_zero() != [0, 6].contains(&at)), "{waits:?}");

    let mut count = 0;
    let endless = |_| {
        count += 1;
        Ok(Happening::Key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE)))
    };
    assert_eq!(act(&mut model, &mut state, endless, |_| {}).unwrap(), None);
    assert_eq!(count, AT_ONCE_MAX);
}
