//! Messages to the person: results of actions, and lasting problems meanwhile.

use super::*;

fn off() -> News {
    News::Trouble(Error::Unreachable { tried: "a:1".into(), why: "it is off".into() })
}

fn done() -> News {
    News::Done(Ask::Follow(name("eve")), "you follow eve from now on".into())
}

fn failed() -> News {
    News::Failed(Ask::Follow(name("zoe")), Error::NoUser(name("zoe")))
}

#[test]
fn trouble_hides_nothing_and_takes_nothing_with_it() {
    let (mut model, state) = (world(), State::new(false));
    for (news, words) in [(done(), "you follow eve from now on"), (failed(), "there is no user zoe")] {
        model.asked(&Ask::Follow(name("eve")));
        model.take(news);
        // The problem is repeated with each look.
        model.take(off());
        model.take(off());
        let shown = read(&model, &state);
        assert!(shown.contains(words) && shown.contains("cannot reach a peer at a:1"), "{shown}");
        assert!(shown.contains("○ not connected"), "{shown}");
        model.take(News::Connected("b:2".into()));
        model.take(News::Recovered);
        let shown = read(&model, &state);
        assert!(shown.contains(words) && !shown.contains("cannot reach"), "{shown}");
        assert!(shown.contains("● b:2"), "{shown}");
    }
}

#[test]
fn with_one_row_what_went_wrong_comes_first() {
    let (mut model, state) = (world(), State::new(false));
    let read = |model: &Model| picture::text(&drawn(model, &state, Palette::Plain, (80, 8)));
    model.take(off());
    assert!(read(&model).contains("cannot reach"));
    model.take(done());
    assert!(read(&model).contains("cannot reach"), "that it went well is seen in the list");
    model.take(failed());
    assert!(read(&model).contains("no user zoe"));
}

#[test]
fn what_went_wrong_stays_until_something_else_is_done() {
    let mut model = world();
    model.take(failed());
    model.take(done());
    assert!(model.notice.as_ref().is_some_and(|notice| notice.is_bad), "two were on their way");
    model.asked(&Ask::Page(name("eve")));
    assert!(model.notice.is_some(), "who looks does nothing");
    model.asked(&Ask::Follow(name("eve")));
    assert_eq!(model.notice, None, "what came of the last thing is old");
    model.take(done());
    assert!(model.notice.as_ref().is_some_and(|notice| !notice.is_bad));
}

#[test]
fn that_a_name_is_free_is_not_a_failure() {
    let mut model = Model::default();
    model.take(News::Failed(Ask::Be(name("zoe")), Error::NoUser(name("zoe"))));
    assert_eq!(model.notice, None, "it is said where the name is asked for");
    model.take(failed());
    model.take(News::Is(name("zoe")));
    assert_eq!(model.notice, None);
}
