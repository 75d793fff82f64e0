//! Content and order of the lists, and the chosen row.

use proptest::prelude::*;

use super::super::draw::height;
use super::super::model::LINES_MAX;
use super::*;

const AREA: Rect = Rect { x: 0, y: 0, width: 80, height: 24 };

/// A chirp of the same moment and with the same id, of any user.
fn same(user: &str, text: &str) -> Shown {
    let mut shown = shown(user, 10, text, Seal::Unsigned);
    shown.line.record.id = "id".into();
    shown
}

fn texts(model: &Model) -> Vec<&str> {
    model.lines.iter().map(|shown| shown.line.record.text.as_str()).collect()
}

#[test]
fn what_is_chosen_stays_chosen_when_others_come() {
    let (mut model, mut state) = (world(), State::new(false));
    press(&mut state, &model, KeyCode::Down);
    let chosen = state.chosen_user(&model);
    model.take(News::Lines(vec![shown("dee", 0, "new", Seal::Unsigned)]));
    state.settle(&model, AREA);
    assert_eq!((state.choice().at, state.chosen_user(&model)), (2, chosen));
    press(&mut state, &model, KeyCode::Home);
    model.take(News::Lines(vec![shown("bob", 0, "newer", Seal::Unsigned)]));
    state.settle(&model, AREA);
    assert_eq!(state.choice().at, 0, "at the top it stays at the top");
    let count = model.lines.len();
    model.take(News::Lines(vec![shown("bob", 0, "newer", Seal::Unsigned)]));
    assert_eq!(model.lines.len(), count, "the same chirp is shown once");
    model.take(News::Following(vec![name("dee")]));
    assert!(model.lines.iter().all(|shown| shown.line.user == name("dee") || shown.line.user == name("ann")));
}

#[test]
fn a_chirp_is_chosen_and_not_its_number() {
    let (mut model, mut state) = (world(), State::new(false));
    model.take(News::Lines(vec![same("dee", "mine")]));
    press(&mut state, &model, KeyCode::Down);
    assert_eq!(state.chosen_user(&model), Some(name("dee")));
    // Another user takes the same id, and comes before.
    model.take(News::Lines(vec![same("bob", "not mine")]));
    state.settle(&model, AREA);
    assert_eq!((state.choice().at, state.chosen_user(&model)), (2, Some(name("dee"))));
    // Once it has gone, the chirp in its place is held as well.
    model.take(News::Following(["bob", "eve"].map(name).to_vec()));
    state.settle(&model, AREA);
    assert_eq!((state.choice().at, state.chosen_user(&model)), (2, Some(name("eve"))));
    model.take(News::Lines(vec![shown("bob", 1, "later", Seal::Unsigned)]));
    // The same where a key comes before the next picture.
    assert_eq!(press(&mut state, &model, KeyCode::Char('u')), Act::Ask(Ask::Unfollow(name("eve"))));
}

#[test]
fn somebody_is_chosen_and_not_their_number() {
    let (mut model, mut state) = (world(), State::new(false));
    press(&mut state, &model, KeyCode::Tab);
    state.settle(&model, AREA);
    model.take(News::Following(["aa", "bob", "dee", "eve"].map(name).to_vec()));
    state.settle(&model, AREA);
    assert_eq!(state.chosen_user(&model), Some(name("bob")), "whoever is seen to be chosen first");
    press(&mut state, &model, KeyCode::Down);
    model.take(News::Following(["dee", "eve"].map(name).to_vec()));
    assert_eq!(press(&mut state.clone(), &model, KeyCode::Char('u')), Act::Ask(Ask::Unfollow(name("dee"))));
    model.take(News::Following(["bob", "eve"].map(name).to_vec()));
    state.settle(&model, AREA);
    assert_eq!(state.chosen_user(&model), Some(name("eve")), "she has gone: the one in her place");
    model.take(News::Following(Vec::new()));
    state.settle(&model, AREA);
    assert_eq!(state.chosen_user(&model), None);
}

#[test]
fn the_order_is_that_of_the_chirps_whatever_comes_first() {
    let lines = [same("eve", "c"), same("bob", "b"), same("bob", "a"), shown("zoe", 9, "first", Seal::Unsigned)];
    for turn in 0..lines.len() {
        let mut model = Model::default();
        let mut turned = lines.to_vec();
        turned.rotate_left(turn);
        turned.into_iter().for_each(|shown| model.take(News::Lines(vec![shown])));
        assert_eq!(texts(&model), ["first", "a", "b", "c"]);
    }
}

/// A chirp from tomorrow stands where it was read first, however often it is read.
#[test]
fn what_says_to_be_from_tomorrow_is_there_once_and_not_on_top() {
    let tomorrow = shown("eve", 0, "tomorrow", Seal::Unsigned).line.record;
    let tomorrow = crate::Record { at_ms: NOW_MS + 86_400_000, ..tomorrow };
    let mut model = Model::default();
    for now_ms in [NOW_MS, NOW_MS + 3000] {
        let line = Line::new(name("eve"), tomorrow.clone(), now_ms);
        let next = Shown {
            line: Line::new(name("bob"), crate::Record { at_ms: NOW_MS + 1, ..tomorrow.clone() }, now_ms + 9),
            seal: None,
        };
        model.take(News::Lines(vec![Shown { line, seal: None }, next]));
    }
    let users: Vec<&str> = model.lines.iter().map(|shown| shown.line.user.as_str()).collect();
    assert_eq!(users, ["bob", "eve"]);
}

#[test]
fn the_newest_are_kept() {
    let mut model = Model::default();
    for from in [LINES_MAX as u64, 0, 2 * LINES_MAX as u64] {
        let all = (from..from + LINES_MAX as u64).map(|ago| shown("bob", ago, &ago.to_string(), Seal::Unsigned));
        model.take(News::Lines(all.collect()));
    }
    assert_eq!(model.lines.len(), LINES_MAX);
    assert_eq!(texts(&model).last(), Some(&(LINES_MAX - 1).to_string().as_str()));
    let mut page = page();
    page.lines = vec![shown("bob", 0, "again", Seal::Unsigned); LINES_MAX + 1];
    model.take(News::Page(Box::new(page)));
    assert_eq!(model.page.unwrap().lines.len(), LINES_MAX);
}

#[test]
fn what_could_not_be_checked_says_so_until_it_is() {
    let (mut model, state) = (world(), State::new(false));
    let mut unchecked = shown("bob", 1, "who knows", Seal::Valid);
    unchecked.seal = None;
    model.take(News::Lines(vec![unchecked.clone()]));
    assert!(read(&model, &state).contains("not checked"));
    let checked = Shown { seal: Some(Seal::Broken), ..unchecked.clone() };
    model.take(News::Lines(vec![checked.clone()]));
    model.take(News::Lines(vec![unchecked]));
    assert_eq!(model.lines[0], checked, "what is known is not forgotten");
    assert!(!read(&model, &state).contains("not checked"));
}

#[test]
fn a_seal_is_said_however_little_room_there_is() {
    let (long, state) = ("Cy_of_the_very_long_name_indeed_", State::new(false));
    for columns in 20..120 {
        for (seal, words, sign) in [
            (Some(Seal::Valid), "✓ signed", "✓"),
            (Some(Seal::Broken), "✗ bad signature", "✗"),
            (Some(Seal::Missing), "not signed", "!"),
            (None, "not checked", "?"),
        ] {
            let mut model = Model::default();
            model.take(News::Lines(vec![Shown { seal, ..shown(long, 9_999_999, "text", Seal::Valid) }]));
            let row = picture::text(&drawn(&model, &state, Palette::Plain, (columns, 24)));
            let row = row.lines().find(|row| row.contains("Cy_of")).unwrap();
            assert!(row.contains(words) || row.contains(&format!(" {sign} │")), "{row}");
        }
    }
}

#[test]
fn a_text_cannot_look_like_somebody_elses_chirp() {
    let (mut model, state) = (Model::default(), State::new(false));
    let blank = "\u{a0}".repeat(200);
    let text = format!("hello\n\nbob  now   ✓ signed\n  bob  now{blank}bob  now{blank}bob  now   ✓ signed\r\nbob");
    model.take(News::Lines(vec![shown("eve", 1, &text, Seal::Unsigned)]));
    for columns in [20, 40, 80, 200] {
        let shown = picture::text(&drawn(&model, &state, Palette::Plain, (columns, 24)));
        assert!(shown.contains("hello␊␊bob") || columns == 20, "{shown}");
        for row in shown.lines().filter(|row| row.starts_with('│') && !row.contains("eve")) {
            let begins: String = row.chars().skip(2).take(3).collect();
            assert_eq!(begins.trim(), "", "names stand there alone: {row}");
        }
    }
}

#[test]
fn a_chirp_takes_its_part_of_the_screen_and_no_more() {
    let mut model = Model::default();
    let lines: Vec<Shown> =
        ["\n".repeat(3000), "日".repeat(2000), "word ".repeat(100_000), "\u{a0}".repeat(4000), "x".repeat(5000)]
            .iter()
            .zip(1..)
            .map(|(text, ago)| shown("eve", ago, text, Seal::Unsigned))
            .collect();
    for columns in [0, 1, 2, 7, 76] {
        assert!(lines.iter().all(|shown| height(shown, columns) <= 14), "{columns}");
    }
    assert_eq!(height(&shown("eve", 0, "short", Seal::Unsigned), 76), 3);
    model.take(News::Lines(vec![lines[2].clone()]));
    let shown = read(&model, &State::new(false));
    let rows: Vec<&str> = shown.lines().filter(|row| row.contains("word")).collect();
    assert_eq!(rows.len(), 12);
    assert!(rows[11].contains("word…") || rows[11].contains("wor…"), "{}", rows[11]);
}

/// The rule of [`super::super::choice`], in the simplest way.
fn scrolled(heights: &[usize], rows: usize, first: usize, at: usize) -> usize {
    let mut first = first.min(at);
    while first < at && heights[first..=at].iter().sum::<usize>() > rows {
        first += 1;
    }
    first
}

proptest! {
    #[test]
    fn what_is_chosen_is_seen(heights in prop::collection::vec(1_usize..9, 1..40), rows in 0_usize..30, first: u8, at: u8) {
        let at = usize::from(at) % heights.len();
        let first = usize::from(first) % heights.len();
        let mut choice = super::super::choice::Choice::default();
        choice.first = first;
        choice.row(heights.len(), at);
        let looked = std::cell::Cell::new(0);
        choice.scroll(rows, |at| {
            looked.set(looked.get() + 1);
            heights[at]
        });
        prop_assert_eq!(choice.first, scrolled(&heights, rows, first, at));
        prop_assert!(looked.get() <= rows + 2, "only what is seen is looked at");
    }
}
