//! What keys come to.

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
    // Who is named on the command line and has not signed up is asked as well.
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
