//! Drawn content in forms that outlive the screen: plain text, text with colours, SVG, and a listing for tests.

mod marks;
mod svg;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell, CellWidth as _};
use ratatui::style::{Color, Modifier};

pub use svg::svg;

/// Parses a size of a picture in columns and rows, as `80x24`. Returns `None` for any other text.
///
/// # Examples
///
/// ```
/// assert_eq!(screen::picture::parse_size("80x24"), Some((80, 24)));
/// assert_eq!(screen::picture::parse_size("80"), None);
/// ```
pub fn parse_size(text: &str) -> Option<(u16, u16)> {
    let (columns, rows) = text.split_once('x')?;
    Some((columns.parse().ok()?, rows.parse().ok()?))
}

/// Returns plain text: a line for each row, without the blanks at its end. Every line ends with a line end.
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in rows(buffer) {
        let line: String = row.iter().map(|(_, cell)| cell.symbol()).collect();
        text.push_str(line.trim_end_matches(' '));
        text.push('\n');
    }
    text
}

/// Returns text with the colours and emphasis that a terminal shows. Every line begins and ends without them.
pub fn ansi(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in rows(buffer) {
        let mut current = Look::default();
        let end = row.iter().rposition(|(_, cell)| cell.symbol() != " " || Look::of(cell).shows_blanks());
        for (_, cell) in row.iter().take(end.map_or(0, |end| end + 1)) {
            let look = Look::of(cell);
            if look != current {
                let _ = write!(text, "\x1b[{}m", look.codes());
                current = look;
            }
            text.push_str(cell.symbol());
        }
        if current != Look::default() {
            text.push_str("\x1b[0m");
        }
        text.push('\n');
    }
    text
}

/// Returns a listing of the styles, for tests: a letter for each cell, `.` where there is no style, and the meaning of
/// each letter.
pub fn styles(buffer: &Buffer) -> String {
    let mut letters: BTreeMap<Look, char> = BTreeMap::new();
    let mut order = Vec::new();
    let mut alphabet = ('a'..='z').chain('A'..='Z').chain('0'..='9');
    let mut text = String::new();
    for row in rows(buffer) {
        let mut line = String::new();
        for (_, cell) in &row {
            let look = Look::of(cell);
            let letter = match look == Look::default() {
                true => '.',
                false => *letters.entry(look).or_insert_with(|| {
                    order.push(look);
                    alphabet.next().unwrap_or('?')
                }),
            };
            line.extend(std::iter::repeat_n(letter, usize::from(cell.cell_width().max(1))));
        }
        text.push_str(line.trim_end_matches('.'));
        text.push('\n');
    }
    for look in order {
        let _ = writeln!(text, "{} {}", letters[&look], look.words());
    }
    text
}

/// The look of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Look {
    /// One of the sixteen colours, by number; `None` is the terminal's own.
    fg: Option<u8>,
    bg: Option<u8>,
    modifier: u16,
}

/// Modifiers that are shown, with their codes and names.
const MODIFIERS: [(Modifier, u8, &str); 6] = [
    (Modifier::BOLD, 1, "bold"),
    (Modifier::DIM, 2, "dim"),
    (Modifier::ITALIC, 3, "italic"),
    (Modifier::UNDERLINED, 4, "underlined"),
    (Modifier::REVERSED, 7, "reversed"),
    (Modifier::CROSSED_OUT, 9, "crossed out"),
];

/// The sixteen colours in the order of their numbers.
const COLOURS: [(Color, &str); 16] = [
    (Color::Black, "black"),
    (Color::Red, "red"),
    (Color::Green, "green"),
    (Color::Yellow, "yellow"),
    (Color::Blue, "blue"),
    (Color::Magenta, "magenta"),
    (Color::Cyan, "cyan"),
    (Color::Gray, "grey"),
    (Color::DarkGray, "dark grey"),
    (Color::LightRed, "light red"),
    (Color::LightGreen, "light green"),
    (Color::LightYellow, "light yellow"),
    (Color::LightBlue, "light blue"),
    (Color::LightMagenta, "light magenta"),
    (Color::LightCyan, "light cyan"),
    (Color::White, "white"),
];

impl Look {
    fn of(cell: &Cell) -> Look {
        // Only the sixteen colours are drawn here.
        let number = |colour: Color| COLOURS.iter().position(|(known, _)| *known == colour).map(|at| at as u8);
        Look { fg: number(cell.fg), bg: number(cell.bg), modifier: cell.modifier.bits() }
    }

    fn has(self, modifier: Modifier) -> bool {
        self.modifier & modifier.bits() != 0
    }

    /// Returns whether a blank of this look differs from an empty cell.
    fn shows_blanks(self) -> bool {
        self.bg.is_some() || self.has(Modifier::REVERSED | Modifier::UNDERLINED)
    }

    fn codes(self) -> String {
        let mut codes = vec![0];
        codes.extend(MODIFIERS.iter().filter(|(modifier, ..)| self.has(*modifier)).map(|(_, code, _)| *code));
        let colour = |number: u8, base: u8| if number < 8 { base + number } else { base + 60 + number - 8 };
        codes.extend(self.fg.map(|number| colour(number, 30)));
        codes.extend(self.bg.map(|number| colour(number, 40)));
        codes.iter().map(u8::to_string).collect::<Vec<_>>().join(";")
    }

    fn words(self) -> String {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.fg.map(|number| COLOURS[usize::from(number)].1.to_owned()));
        words.extend(self.bg.map(|number| format!("on {}", COLOURS[usize::from(number)].1)));
        words.extend(MODIFIERS.iter().filter(|(m, ..)| self.has(*m)).map(|(.., name)| (*name).to_owned()));
        words.join(", ")
    }
}

/// Returns the cells of each row with their columns, without the cells that lie behind a wide one.
fn rows(buffer: &Buffer) -> impl Iterator<Item = Vec<(usize, &Cell)>> {
    let width = usize::from(buffer.area.width).max(1);
    buffer.content().chunks(width).map(|cells| {
        let mut row = Vec::with_capacity(cells.len());
        let mut column = 0;
        while let Some(cell) = cells.get(column) {
            row.push((column, cell));
            column += usize::from(cell.cell_width().max(1));
        }
        row
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    /// Returns a frame, words, a wide character, a sparkline, dots, and characters that must be escaped.
    pub fn sample() -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 16, 4));
        buffer.set_string(0, 0, "╭ top ─────────╮", Style::new().fg(Color::Cyan));
        buffer.set_string(0, 1, "│ 日本 a<b & \"c\"", Style::new());
        buffer.set_string(2, 1, "日", Style::new().fg(Color::LightRed).add_modifier(Modifier::BOLD));
        buffer.set_string(1, 2, "▁▄█ ⣿⠁ ●", Style::new().fg(Color::Green));
        buffer.set_string(12, 2, "sel ", Style::new().add_modifier(Modifier::REVERSED));
        buffer
    }

    #[test]
    fn as_text() {
        assert_eq!(text(&sample()), "╭ top ─────────╮\n│ 日本 a<b & \"c\"\n ▁▄█ ⣿⠁ ●   sel\n\n");
    }

    #[test]
    fn as_text_with_colours() {
        let out = ansi(&sample());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "\x1b[0;36m╭ top ─────────╮\x1b[0m");
        assert_eq!(lines[1], "│ \x1b[0;1;91m日\x1b[0m本 a<b & \"c\"");
        assert_eq!(lines[2], " \x1b[0;32m▁▄█ ⣿⠁ ●\x1b[0m   \x1b[0;7msel \x1b[0m");
        assert_eq!(lines[3], "");
    }

    #[test]
    fn as_a_listing_of_styles() {
        let wanted = "aaaaaaaaaaaaaaaa\n..bb\n.cccccccc...dddd\n\n\
                      a cyan\nb light red, bold\nc green\nd reversed\n";
        assert_eq!(styles(&sample()), wanted);
    }

    #[test]
    fn of_nothing() {
        let nothing = Buffer::empty(Rect::new(0, 0, 0, 0));
        assert_eq!((text(&nothing), ansi(&nothing)), (String::new(), String::new()));
        assert!(svg(&nothing, "none").ends_with("</svg>\n"));
    }
}
