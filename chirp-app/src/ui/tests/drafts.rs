//! Chirps on their way, and those that do not arrive.

use super::super::learn;
use super::*;
use crate::text::Text;

fn text(text: &str) -> Text {
    text.parse().unwrap()
}

/// Writes a chirp and sends it.
fn post(state: &mut State, model: &Model, words: &str) {
    press(state, model, KeyCode::Char('c'));
    type_in(state, model, words);
    assert_eq!(press(state, model, KeyCode::Enter), Act::Ask(Ask::Post(text(words))));
}

#[test]
fn a_chirp_is_written_and_stays_until_it_is_posted() {
    let (model, mut state) = (world(), State::new(false));
    press(&mut state, &model, KeyCode::Char('c'));
    type_in(&mut state, &model, "hello q");
    press(&mut state, &model, KeyCode::Esc);
    assert_eq!((state.writing, state.drafts.line.text()), (None, "hello q"));
    press(&mut state, &model, KeyCode::Char('c'));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Post(text("hello q"))));
    press(&mut state, &model, KeyCode::Char('c'));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::None, "it is on its way");
    state.note(&News::Failed(Ask::Post(text("hello q")), busy()));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Post(text("hello q"))));
    state.note(&News::Done(Ask::Post(text("hello q")), "posted".into()));
    assert!(!state.drafts.is_unposted());
    press(&mut state, &model, KeyCode::Char('c'));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::None);
    assert!(state.problem.is_some(), "there is nothing to post");
}

#[test]
fn what_is_written_next_is_another_chirp() {
    let (mut model, mut state) = (world(), State::new(false));
    post(&mut state, &model, "one");
    assert!(read(&model, &state).contains("posting …"));
    press(&mut state, &model, KeyCode::Char('c'));
    type_in(&mut state, &model, "two");
    assert_eq!(state.drafts.line.text(), "two");
    learn(&mut model, &mut state, News::Done(Ask::Post(text("one")), "posted".into()));
    assert_eq!(state.drafts.line.text(), "two");
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Post(text("two"))));
}

#[test]
fn what_comes_back_is_written_on_after_what_was_begun_meanwhile() {
    let (mut model, mut state) = (world(), State::new(false));
    post(&mut state, &model, "one");
    press(&mut state, &model, KeyCode::Char('c'));
    type_in(&mut state, &model, "two");
    learn(&mut model, &mut state, News::Failed(Ask::Post(text("one")), busy()));
    assert_eq!(state.drafts.line.text(), "two");
    assert!(read(&model, &state).contains("one that was not posted comes next"));
    assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Post(text("two"))));
    // Both fail: both are there, one after the other.
    learn(&mut model, &mut state, News::Failed(Ask::Post(text("two")), busy()));
    assert!(read(&model, &state).contains("a chirp is not posted"));
    for words in ["two", "one"] {
        model.asked(&Ask::Post(text(words)));
        press(&mut state, &model, KeyCode::Char('c'));
        assert_eq!(press(&mut state, &model, KeyCode::Enter), Act::Ask(Ask::Post(text(words))));
        learn(&mut model, &mut state, News::Done(Ask::Post(text(words)), "posted".into()));
    }
    assert!(!state.drafts.is_unposted());
    assert!(!read(&model, &state).contains("not posted"));
}

#[test]
fn what_may_be_posted_is_not_said_to_be_lost() {
    let (mut model, mut state) = (world(), State::new(false));
    post(&mut state, &model, "one");
    learn(&mut model, &mut state, News::Failed(Ask::Post(text("one")), Error::Unknown("no answer".into())));
    assert!(read(&model, &state).contains("it may be posted: look before you post it again (no answer)"));
    assert_eq!(state.drafts.line.text(), "one");
}

#[test]
fn who_leaves_is_told_what_would_be_lost() {
    let (mut model, begun) = (world(), State::new(false));
    let quit = |state: &mut State, model: &Model| press(state, model, KeyCode::Char('q'));
    assert_eq!(quit(&mut begun.clone(), &model), Act::Quit, "nothing would be");
    let mut draft = begun.clone();
    press(&mut draft, &model, KeyCode::Char('c'));
    type_in(&mut draft, &model, "hello");
    assert_eq!(draft.clone().key(with_control('c'), &model), Act::Quit, "that key leaves at once");
    press(&mut draft, &model, KeyCode::Esc);
    let mut sent = begun.clone();
    post(&mut sent, &model, "hello");
    for mut state in [draft, sent.clone()] {
        assert_eq!(quit(&mut state, &model), Act::None);
        assert!(read(&model, &state).contains("a chirp is not posted yet; q again leaves"));
        let mut stays = state.clone();
        press(&mut stays, &model, KeyCode::Down);
        assert!(!read(&model, &stays).contains("q again leaves"));
        assert_eq!(quit(&mut stays, &model), Act::None, "it is asked anew");
        assert_eq!(quit(&mut state, &model), Act::Quit);
    }
    quit(&mut sent, &model);
    learn(&mut model, &mut sent, News::Done(Ask::Post(text("hello")), "posted".into()));
    assert!(!read(&model, &sent).contains("q again leaves"));
    assert_eq!(quit(&mut sent, &model), Act::Quit);
}
