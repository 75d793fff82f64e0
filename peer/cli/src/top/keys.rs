//! Effect of each key: a pure function on the user's choices.
//!
//! Small letters and the keys below are the dashboard's own. Capital letters are for programs that show it with keys of
//! their own (`scatter demo`).

use screen::terminal::{KeyCode, KeyEvent, KeyModifiers};

use super::rows;
use super::state::{State, Tab};
use super::view::Scroll;

/// Keys in the form of the help.
pub const HELP: [(&str, &str); 13] = [
    ("q Ctrl-C", "end"),
    ("? F1", "this help; any key leaves it that does not scroll"),
    ("1 2 3 4", "overview, groups, peers, events"),
    ("Tab Shift-Tab ← → h l", "next or previous screen"),
    ("↑ ↓ k j", "move"),
    ("PgUp PgDn", "move by a page, or scroll what Enter shows"),
    ("Home End", "to the first or the last"),
    ("Enter", "all about the marked group, peer or event; again: less"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "only rows with a text: Enter keeps it, Esc drops it"),
    ("f Space", "freeze the picture, and go on"),
    ("n", "the ring of the next lane"),
];

/// Modifiers that make a key another key, which is none of the dashboard's: Alt-K must not kill a peer.
const CHORDS: KeyModifiers = KeyModifiers::CONTROL
    .union(KeyModifiers::ALT)
    .union(KeyModifiers::SUPER)
    .union(KeyModifiers::HYPER)
    .union(KeyModifiers::META);

/// Rest of a key's effect, for the loop that runs the dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Only draw.
    Nothing,
    /// End the dashboard.
    Quit,
    /// Run a key of the caller, by its index.
    Extra(usize),
}

/// Rows of the shown screen, for keys that move.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Ids of the rows, from top to bottom.
    pub ids: &'a [String],
    /// Index of the marked row.
    pub marked: usize,
    /// Number of rows on a page.
    pub page: usize,
    /// Number of the peer's lanes.
    pub lanes: u8,
    /// Scroll range of the help, or of the text about the marked row.
    pub scroll: Scroll,
}

/// Handles a key press. `extras` are the caller's keys: letters of the dashboard never reach them.
pub fn press(state: &mut State, key: KeyEvent, rows: Rows<'_>, extras: &[char]) -> Does {
    let last = seen(state);
    let does = act(state, key, rows, extras);
    if seen(state) != last {
        state.scroll = 0;
    }
    does
}

/// Returns the identity of the scrolled text: another text is shown from its first lines.
fn seen(state: &State) -> (Tab, bool, bool, Option<String>) {
    (state.tab, state.about, state.help, state.chosen().row.clone())
}

fn act(state: &mut State, key: KeyEvent, rows: Rows<'_>, extras: &[char]) -> Does {
    if key.modifiers.intersects(CHORDS) {
        let ends = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        return if ends { Does::Quit } else { Does::Nothing };
    }
    if state.help {
        if rows.scroll.most > 0 && scroll(state, key.code, rows.scroll) {
            return Does::Nothing;
        }
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
        KeyCode::PageUp | KeyCode::PageDown if state.about && rows.scroll.most > 0 => {
            scroll(state, key.code, rows.scroll);
        }
        KeyCode::PageUp => go(state, rows, -(rows.page.max(1) as isize)),
        KeyCode::PageDown => go(state, rows, rows.page.max(1) as isize),
        KeyCode::Home => go(state, rows, isize::MIN),
        KeyCode::End => go(state, rows, isize::MAX),
        KeyCode::Enter if state.tab == Tab::Overview => {
            // Also where a filter hid it.
            let groups = state.of_mut(Tab::Groups);
            (groups.row, groups.filter) = (rows.ids.get(rows.marked).cloned(), String::new());
            (state.tab, state.about) = (Tab::Groups, true);
        }
        KeyCode::Enter => state.about ^= true,
        KeyCode::Char('s' | 'r') if state.tab == Tab::Overview => {}
        KeyCode::Char('s') => {
            let columns = rows::columns(state.tab).len();
            let choice = state.chosen_mut();
            choice.sort = (choice.sort + 1) % columns.max(1);
        }
        KeyCode::Char('r') => state.chosen_mut().reverse ^= true,
        KeyCode::Char('/') => {
            // On the overview, events are the longest list.
            state.tab = if state.tab == Tab::Overview { Tab::Events } else { state.tab };
            state.filtering = true;
        }
        KeyCode::Char('f' | ' ') => state.frozen ^= true,
        // A frozen picture has no other ring.
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
        // The filter is shown, so it must not steer the terminal either: no row holds such a character.
        KeyCode::Char(char) if !char.is_control() => state.chosen_mut().filter.push(char),
        _ => {}
    }
}

/// Scrolls, if this is a key for that. Returns whether it is one.
fn scroll(state: &mut State, key: KeyCode, Scroll { most, page }: Scroll) -> bool {
    let by = match key {
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::PageUp => -(page.max(1) as isize),
        KeyCode::PageDown => page.max(1) as isize,
        KeyCode::Home => isize::MIN,
        KeyCode::End => isize::MAX,
        _ => return false,
    };
    state.scroll = state.scroll.saturating_add_signed(by).min(most);
    true
}

/// Marks the row at this distance from the marked one.
fn go(state: &mut State, rows: Rows<'_>, by: isize) {
    let Some(last) = rows.ids.len().checked_sub(1) else { return };
    let to = rows.marked.saturating_add_signed(by).min(last);
    state.chosen_mut().row = rows.ids.get(to).cloned();
}

#[cfg(test)]
mod tests {
    use super::*;

    const FITS: Scroll = Scroll { most: 0, page: 9 };
    const SCROLL: Scroll = Scroll { most: 5, page: 3 };

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn after(keys: &[KeyCode]) -> (State, Does) {
        let ids = ["a", "b", "c", "d"].map(str::to_owned);
        let mut state = State::default();
        let mut does = Does::Nothing;
        for code in keys {
            let marked = ids.iter().position(|id| Some(id) == state.chosen().row.as_ref()).unwrap_or(0);
            let rows = Rows { ids: &ids, marked, page: 2, lanes: 2, scroll: SCROLL };
            does = press(&mut state, key(*code), rows, &['K', 'q']);
        }
        (state, does)
    }

    #[test]
    fn enter_shows_all_about_a_group_a_peer_or_an_event() {
        use KeyCode::{Char, Enter};
        for tab in ['2', '3', '4'] {
            assert!(after(&[Char(tab), Enter]).0.about);
            assert!(!after(&[Char(tab), Enter, Enter]).0.about);
        }
        assert!(after(&[Enter]).0.about && !after(&[Enter, Enter]).0.about, "from the overview, too");
    }

    #[test]
    fn what_does_not_fit_is_scrolled() {
        use KeyCode::{Char, Down, End, Enter, Home, PageDown, PageUp, Up};
        for (keys, scroll) in [
            (&[Char('?'), Down, Char('j'), Up][..], 1),
            (&[Char('?'), PageDown, PageDown], 5),
            (&[Char('?'), End, PageUp, Char('k')], 1),
            (&[Char('?'), End, Home], 0),
            (&[Char('3'), Enter, PageDown], 3),
            (&[Char('3'), Enter, PageDown, PageDown, PageUp], 2),
            (&[Char('3'), Enter, PageDown, Char('f')], 3),
            // Another text is shown from its first lines.
            (&[Char('3'), Enter, PageDown, Down], 0),
            (&[Char('3'), Enter, PageDown, Char('4')], 0),
            (&[Char('3'), Enter, PageDown, Char('?')], 0),
            (&[Char('3'), PageDown], 0),
        ] {
            assert_eq!(after(keys).0.scroll, scroll, "{keys:?}");
        }
        assert!(after(&[Char('?'), Down]).0.help && !after(&[Char('?'), Down, Char('x')]).0.help);
        let mut state = State::default();
        state.help = true;
        press(&mut state, key(Down), Rows { ids: &[], marked: 0, page: 1, lanes: 1, scroll: FITS }, &[]);
        assert!(!state.help, "all of it is seen: any key goes back");
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
        press(&mut state, key(End), Rows { ids: &[], marked: 0, page: 0, lanes: 1, scroll: FITS }, &[]);
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
        let rows = Rows { ids: &[], marked: 0, page: 1, lanes: 1, scroll: FITS };
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
