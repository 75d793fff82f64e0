//! What each key does: a pure function on what was chosen.
//!
//! Small letters and the keys below are the dashboard's own. Capital letters are for programs that show it with keys of
//! theirs (`scatter demo`).

use screen::terminal::{KeyCode, KeyEvent, KeyModifiers};

use super::rows;
use super::state::{State, Tab};

/// The keys, as help shows them.
pub const HELP: [(&str, &str); 13] = [
    ("q Ctrl-C", "end"),
    ("? F1", "this help; any key leaves it"),
    ("1 2 3 4", "overview, groups, peers, events"),
    ("Tab Shift-Tab ← → h l", "next or previous screen"),
    ("↑ ↓ k j", "move"),
    ("PgUp PgDn", "move by a page"),
    ("Home End", "to the first or the last"),
    ("Enter", "all about the marked group, peer or event; again: less"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "only rows with a text: Enter keeps it, Esc drops it"),
    ("f Space", "freeze the picture, and go on"),
    ("n", "the ring of the next lane"),
];

/// With one of these held a key is another key, and none of the dashboard's: nobody kills a peer by Alt-K.
const CHORDS: KeyModifiers = KeyModifiers::CONTROL
    .union(KeyModifiers::ALT)
    .union(KeyModifiers::SUPER)
    .union(KeyModifiers::HYPER)
    .union(KeyModifiers::META);

/// What is left to do for whoever runs the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Draw.
    Nothing,
    /// End.
    Quit,
    /// A key of the caller's, by its place.
    Extra(usize),
}

/// What the rows of the shown screen are, for keys that move.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Their ids, from top to bottom.
    pub ids: &'a [String],
    /// Which of them is marked.
    pub marked: usize,
    /// How many fit on a page.
    pub page: usize,
    /// How many lanes the peer has.
    pub lanes: u8,
}

/// A key was pressed. `extras` are the caller's keys: letters that the dashboard has itself never get there.
pub fn press(state: &mut State, key: KeyEvent, rows: Rows<'_>, extras: &[char]) -> Does {
    if key.modifiers.intersects(CHORDS) {
        let ends = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        return if ends { Does::Quit } else { Does::Nothing };
    }
    if state.help {
        state.help = false;
        return if key.code == KeyCode::Char('q') { Does::Quit } else { Does::Nothing };
    }
    if state.filtering {
        write_filter(state, key.code);
        return Does::Nothing;
    }
    match key.code {
        KeyCode::Char('q') => return Does::Quit,
        KeyCode::Char('?') | KeyCode::F(1) => state.help = true,
        KeyCode::Char(digit @ '1'..='4') => state.tab = Tab::ALL[digit as usize - '1' as usize],
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => state.tab = state.tab.step(1),
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => state.tab = state.tab.step(-1),
        KeyCode::Up | KeyCode::Char('k') => go(state, rows, -1),
        KeyCode::Down | KeyCode::Char('j') => go(state, rows, 1),
        KeyCode::PageUp => go(state, rows, -(rows.page.max(1) as isize)),
        KeyCode::PageDown => go(state, rows, rows.page.max(1) as isize),
        KeyCode::Home => go(state, rows, isize::MIN),
        KeyCode::End => go(state, rows, isize::MAX),
        KeyCode::Enter if state.tab == Tab::Overview => {
            // Also where a filter hid it.
            let groups = state.of_mut(Tab::Groups);
            (groups.row, groups.filter) = (rows.ids.get(rows.marked).cloned(), String::new());
            state.tab = Tab::Groups;
        }
        KeyCode::Enter if matches!(state.tab, Tab::Peers | Tab::Events) => state.about ^= true,
        KeyCode::Char('s' | 'r') if state.tab == Tab::Overview => {}
        KeyCode::Char('s') => {
            let columns = rows::columns(state.tab).len();
            let choice = state.chosen_mut();
            choice.sort = (choice.sort + 1) % columns.max(1);
        }
        KeyCode::Char('r') => state.chosen_mut().reverse ^= true,
        KeyCode::Char('/') => {
            // On the overview the events are what there is most of.
            state.tab = if state.tab == Tab::Overview { Tab::Events } else { state.tab };
            state.filtering = true;
        }
        KeyCode::Char('f' | ' ') => state.frozen ^= true,
        // What stands still has no other ring.
        KeyCode::Char('n') if rows.lanes > 1 && !state.frozen => state.lane = (state.lane + 1) % rows.lanes,
        KeyCode::Esc => state.chosen_mut().filter.clear(),
        KeyCode::Char(char) => {
            return extras.iter().position(|extra| *extra == char).map_or(Does::Nothing, Does::Extra);
        }
        _ => {}
    }
    Does::Nothing
}

fn write_filter(state: &mut State, key: KeyCode) {
    match key {
        KeyCode::Enter => state.filtering = false,
        KeyCode::Esc => {
            state.filtering = false;
            state.chosen_mut().filter.clear();
        }
        KeyCode::Backspace => drop(state.chosen_mut().filter.pop()),
        // What is searched for is shown, so it may not steer the terminal either: no row holds such a character.
        KeyCode::Char(char) if !char.is_control() => state.chosen_mut().filter.push(char),
        _ => {}
    }
}

/// Marks the row that lies so far from the marked one.
fn go(state: &mut State, rows: Rows<'_>, by: isize) {
    let Some(last) = rows.ids.len().checked_sub(1) else { return };
    let to = rows.marked.saturating_add_signed(by).min(last);
    state.chosen_mut().row = rows.ids.get(to).cloned();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn after(keys: &[KeyCode]) -> (State, Does) {
        let ids = ["a", "b", "c", "d"].map(str::to_owned);
        let mut state = State::default();
        let mut does = Does::Nothing;
        for code in keys {
            let marked = ids.iter().position(|id| Some(id) == state.chosen().row.as_ref()).unwrap_or(0);
            does = press(&mut state, key(*code), Rows { ids: &ids, marked, page: 2, lanes: 2 }, &['K', 'q']);
        }
        (state, does)
    }

    #[test]
    fn enter_shows_all_about_a_peer_or_an_event() {
        use KeyCode::{Char, Enter};
        for tab in ['3', '4'] {
            assert!(after(&[Char(tab), Enter]).0.about);
            assert!(!after(&[Char(tab), Enter, Enter]).0.about);
        }
        assert!(!after(&[Char('2'), Enter]).0.about, "there it always is");
    }

    #[test]
    fn screens_go_round() {
        use KeyCode::{BackTab, Char, Left, Right, Tab as Next};
        for (keys, tab) in [
            (&[][..], Tab::Overview),
            (&[Char('3')], Tab::Peers),
            (&[Next, Right, Char('l'), Next], Tab::Overview),
            (&[BackTab], Tab::Events),
            (&[Left, Char('h')], Tab::Peers),
        ] {
            assert_eq!(after(keys).0.tab, tab, "{keys:?}");
        }
    }

    #[test]
    fn rows_are_moved_along() {
        use KeyCode::{Char, Down, End, Home, PageDown, PageUp, Up};
        for (keys, row) in [
            (&[Up][..], "a"),
            (&[Down], "b"),
            (&[Char('j'), Char('j'), Char('k')], "b"),
            (&[PageDown], "c"),
            (&[End], "d"),
            (&[End, PageUp], "b"),
            (&[End, Down, Home], "a"),
        ] {
            assert_eq!(after(keys).0.chosen().row.as_deref(), Some(row), "{keys:?}");
        }
        let mut state = State::default();
        press(&mut state, key(End), Rows { ids: &[], marked: 0, page: 0, lanes: 1 }, &[]);
        assert_eq!(state, State::default());
    }

    #[test]
    fn a_filter_is_written() {
        use KeyCode::{Backspace, Char, Enter, Esc};
        let (state, does) = after(&[Char('/'), Char('q'), Char('?'), Char('x'), Backspace, Enter, Char('K')]);
        assert_eq!(
            (state.chosen().filter.as_str(), state.filtering, state.help, does),
            ("q?", false, false, Does::Extra(0))
        );
        assert_eq!(state.tab, Tab::Events);
        for keys in [&[Char('/'), Char('x'), Esc][..], &[Char('/'), Char('x'), Enter, Esc]] {
            assert_eq!(after(keys).0.chosen().filter, "", "{keys:?}");
        }
    }

    #[test]
    fn the_rest() {
        use KeyCode::{Char, Enter, F};
        assert_eq!(after(&[Char('q')]).1, Does::Quit, "the dashboard's own keys go first");
        assert_eq!(after(&[Char('Z')]).1, Does::Nothing);
        assert!(after(&[Char('?')]).0.help && after(&[F(1)]).0.help && !after(&[F(1), Char('x')]).0.help);
        assert!(after(&[Char(' ')]).0.frozen && !after(&[Char('f'), Char(' ')]).0.frozen);
        assert_eq!(after(&[Char('n')]).0.lane, 1);
        assert_eq!(after(&[Char('n'), Char('n')]).0.lane, 0);
        assert_eq!(after(&[Char('f'), Char('n')]).0.lane, 0, "another ring cannot be shown");
        assert!(after(&[Char('2'), Char('r')]).0.chosen().reverse && !after(&[Char('r')]).0.chosen().reverse);
        assert_eq!(after(&[Char('3'), Char('s')]).0.chosen().sort, rows::usual_order(Tab::Peers).0 + 1);
        let (state, _) = after(&[KeyCode::Down, Enter]);
        assert_eq!((state.tab, state.chosen().row.as_deref()), (Tab::Groups, Some("b")));
        let (state, _) = after(&[Char('2'), Char('/'), Char('x'), Enter, Char('1'), KeyCode::Down, Enter]);
        assert_eq!((state.chosen().row.as_deref(), state.chosen().filter.as_str()), (Some("b"), ""), "it is seen");
        let mut state = State::default();
        let rows = Rows { ids: &[], marked: 0, page: 1, lanes: 1 };
        assert_eq!(press(&mut state, KeyEvent::new(Char('c'), KeyModifiers::CONTROL), rows, &[]), Does::Quit);
        for modifiers in [KeyModifiers::CONTROL, KeyModifiers::ALT, KeyModifiers::SUPER | KeyModifiers::SHIFT] {
            for key in [Char('x'), Char('q'), Char('f'), KeyCode::Tab] {
                assert_eq!(press(&mut state, KeyEvent::new(key, modifiers), rows, &['x']), Does::Nothing);
            }
        }
        assert_eq!(state, State::default(), "another key than the one alone");
        assert_eq!(press(&mut state, KeyEvent::new(Char('K'), KeyModifiers::SHIFT), rows, &['K']), Does::Extra(0));
    }
}
