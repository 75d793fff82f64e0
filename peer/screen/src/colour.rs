//! Styles for emphasis: with the sixteen colours that every terminal has, or with none.
//!
//! The sixteen are named, not mixed: a person's terminal decides their look, and that suits a light background as well as
//! a dark one. Without colours, important parts are bold, reversed or underlined. The program also says the same in words
//! or signs: no state is shown by a style alone.

use std::ffi::OsStr;

use ratatui::style::{Color, Modifier, Style};

/// The set of styles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// The sixteen colours of every terminal.
    Sixteen,
    /// No colours: bold, dim, underlined and reversed only.
    Plain,
}

/// Colours that tell apart things of one kind. Red is not among them: it means that there is an error.
const KINDS: [Color; 10] = [
    Color::Cyan,
    Color::Yellow,
    Color::Magenta,
    Color::Green,
    Color::Blue,
    Color::LightCyan,
    Color::LightYellow,
    Color::LightMagenta,
    Color::LightGreen,
    Color::LightBlue,
];

impl Palette {
    /// Returns the palette for this process's environment: no colours where `NO_COLOR` is set and not empty, or where
    /// `TERM` is `dumb`.
    pub fn of_environment() -> Palette {
        Palette::wanted(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref())
    }

    /// Returns the palette for these values of `NO_COLOR` and `TERM`.
    pub fn wanted(no_color: Option<&OsStr>, term: Option<&OsStr>) -> Palette {
        let refused = no_color.is_some_and(|value| !value.is_empty());
        let dumb = term.is_some_and(|term| term == "dumb");
        if refused || dumb { Palette::Plain } else { Palette::Sixteen }
    }

    /// Returns the style with a colour, or with `instead` where there are no colours.
    fn or(self, colour: Color, instead: Modifier) -> Style {
        match self {
            Palette::Sixteen => Style::new().fg(colour),
            Palette::Plain => Style::new().add_modifier(instead),
        }
    }

    /// Style of ordinary text.
    pub fn text(self) -> Style {
        Style::new()
    }

    /// Style of text that is less important than the text beside it.
    pub fn faint(self) -> Style {
        self.or(Color::DarkGray, Modifier::DIM)
    }

    /// Style of text that is more important than the text beside it.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style of the title of a part of the screen.
    pub fn title(self) -> Style {
        self.or(Color::Cyan, Modifier::empty()).add_modifier(Modifier::BOLD)
    }

    /// Style of a good state.
    pub fn good(self) -> Style {
        self.or(Color::Green, Modifier::empty())
    }

    /// Style of a state that needs attention.
    pub fn warning(self) -> Style {
        self.or(Color::Yellow, Modifier::BOLD)
    }

    /// Style of an error.
    pub fn bad(self) -> Style {
        self.or(Color::LightRed, Modifier::REVERSED).add_modifier(Modifier::BOLD)
    }

    /// Style of the name of a key to press.
    pub fn key(self) -> Style {
        self.or(Color::Cyan, Modifier::UNDERLINED)
    }

    /// Style of the chosen row or tab.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Style of a drawn figure, such as a sparkline.
    pub fn figure(self) -> Style {
        self.or(Color::Green, Modifier::empty())
    }

    /// Style of one thing of several of a kind; the same number always has the same style. Without colours all look the
    /// same: tell them apart by letters as well.
    pub fn kind(self, number: usize) -> Style {
        self.or(KINDS[number % KINDS.len()], Modifier::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        let wanted = |no_color: Option<&str>, term: Option<&str>| {
            Palette::wanted(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert_eq!(wanted(None, Some("xterm-256color")), Palette::Sixteen);
        assert_eq!(wanted(Some(""), None), Palette::Sixteen);
        assert_eq!(wanted(Some("1"), Some("xterm")), Palette::Plain);
        assert_eq!(wanted(Some("0"), None), Palette::Plain);
        assert_eq!(wanted(None, Some("dumb")), Palette::Plain);
    }

    #[test]
    fn without_colours_there_are_none() {
        let plain = Palette::Plain;
        let styles = [
            plain.text(),
            plain.faint(),
            plain.strong(),
            plain.title(),
            plain.good(),
            plain.warning(),
            plain.bad(),
            plain.key(),
            plain.chosen(),
            plain.figure(),
            plain.kind(3),
        ];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
    }
}
