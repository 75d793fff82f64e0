//! Editor of one line of text.

use unicode_segmentation::UnicodeSegmentation as _;

use screen::terminal::{KeyCode, KeyEvent, KeyModifiers};

/// Upper limit of the line, in bytes: more than can be posted, so that the person sees by how much a text is too long.
const BYTES_MAX: usize = 16 << 10;

/// The text, and the place of the cursor in it, which is always between two grapheme clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineEditor {
    text: String,
    cursor: usize,
}

impl LineEditor {
    /// Makes a line with this text, and the cursor behind it.
    pub(crate) fn of(text: &str) -> LineEditor {
        LineEditor { text: text.to_owned(), cursor: text.len() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the place of the cursor, in bytes.
    pub(crate) fn cursor(&self) -> usize {
        self.cursor
    }

    pub(crate) fn clear(&mut self) {
        *self = LineEditor::default();
    }

    /// Returns all places where the cursor may stand, in order.
    fn places(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.text.grapheme_indices(true).map(|(at, _)| at).chain([self.text.len()])
    }

    fn before(&self) -> usize {
        self.places().rev().find(|place| *place < self.cursor).unwrap_or(0)
    }

    fn behind(&self) -> usize {
        self.places().find(|place| *place > self.cursor).unwrap_or(self.cursor)
    }

    /// Puts the cursor at the next place: the characters around it may have become one cluster.
    fn put_cursor(&mut self, at: usize) {
        let place = self.places().find(|place| *place >= at);
        self.cursor = place.unwrap_or(self.text.len());
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.put_cursor(from);
    }

    fn word_before(&self) -> usize {
        let text = self.text[..self.cursor].trim_end();
        text.rfind(char::is_whitespace).map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8))
    }

    /// Takes a key; returns whether it was one for writing.
    pub(crate) fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.text.len(),
            KeyCode::Char('u') if control => self.remove(0, self.cursor),
            KeyCode::Char('k') if control => self.text.truncate(self.cursor),
            KeyCode::Char('w') if control => self.remove(self.word_before(), self.cursor),
            KeyCode::Char(c) if !control && !key.modifiers.contains(KeyModifiers::ALT) => self.insert(c),
            KeyCode::Backspace => self.remove(self.before(), self.cursor),
            KeyCode::Delete => self.remove(self.cursor, self.behind()),
            KeyCode::Left => self.cursor = self.before(),
            KeyCode::Right => self.cursor = self.behind(),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            _ => return false,
        }
        true
    }

    /// Adds pasted text to this one line: ends of lines and tabs become blanks; other controls, and text beyond the
    /// limit, are left out.
    pub(crate) fn paste(&mut self, text: &str) {
        let room = BYTES_MAX.saturating_sub(self.text.len());
        let mut pasted = String::new();
        for c in text.replace("\r\n", "\n").chars() {
            let c = match c {
                '\t'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
                c if c.is_control() => continue,
                c => c,
            };
            if pasted.len() + c.len_utf8() > room {
                break;
            }
            pasted.push(c);
        }
        self.text.insert_str(self.cursor, &pasted);
        self.put_cursor(self.cursor + pasted.len());
    }

    fn insert(&mut self, c: char) {
        if c.is_control() || self.text.len() + c.len_utf8() > BYTES_MAX {
            return;
        }
        self.text.insert(self.cursor, c);
        self.put_cursor(self.cursor + c.len_utf8());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn press(line: &mut LineEditor, code: KeyCode) {
        line.key(KeyEvent::new(code, KeyModifiers::NONE));
    }

    fn control(line: &mut LineEditor, c: char) {
        line.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
    }

    fn written(text: &str) -> LineEditor {
        let mut line = LineEditor::default();
        text.chars().for_each(|c| press(&mut line, KeyCode::Char(c)));
        line
    }

    #[test]
    fn what_is_one_to_the_eye_goes_as_one() {
        let mut line = written("a\u{1f468}\u{200d}\u{1f469}e\u{301}");
        press(&mut line, KeyCode::Backspace);
        assert_eq!(line.text(), "a\u{1f468}\u{200d}\u{1f469}");
        press(&mut line, KeyCode::Left);
        assert_eq!(line.cursor(), 1);
        press(&mut line, KeyCode::Delete);
        assert_eq!(line.text(), "a");
    }

    #[test]
    fn words_and_ends() {
        let mut line = written("one two  three ");
        control(&mut line, 'w');
        assert_eq!(line.text(), "one two  ");
        control(&mut line, 'a');
        press(&mut line, KeyCode::Char('x'));
        control(&mut line, 'k');
        assert_eq!((line.text(), line.cursor()), ("x", 1));
        control(&mut line, 'u');
        assert_eq!(line, LineEditor::default());
    }

    #[test]
    fn what_is_pasted_is_one_line() {
        let mut line = written("ab");
        press(&mut line, KeyCode::Left);
        line.paste("one\r\ntwo\n\tthree\u{1b}[31m\u{9b}\u{2028}\0four\r");
        assert_eq!(line.text(), "aone two  three[31m four b");
        press(&mut line, KeyCode::Backspace);
        assert_eq!(line.text(), "aone two  three[31m fourb", "the cursor is behind it");
        line.paste(&"\u{1f468}".repeat(BYTES_MAX));
        assert!(line.text().len() <= BYTES_MAX && line.text().len() > BYTES_MAX - 4);
    }

    proptest! {
        #[test]
        fn the_cursor_is_never_within_a_cluster(
            keys in proptest::collection::vec(
                prop_oneof![
                    3 => any::<char>().prop_map(KeyCode::Char),
                    3 => proptest::sample::select(vec!['e', '\u{301}', '\u{200d}', '\u{1f468}', ' ']).prop_map(KeyCode::Char),
                    1 => Just(KeyCode::Backspace), 1 => Just(KeyCode::Delete), 1 => Just(KeyCode::Left),
                    1 => Just(KeyCode::Right), 1 => Just(KeyCode::Home),
                ],
                0..60,
            ),
        ) {
            let mut line = LineEditor::default();
            for key in keys {
                press(&mut line, key);
                let is_between = line.text().grapheme_indices(true).any(|(at, _)| at == line.cursor());
                prop_assert!(is_between || line.cursor() == line.text().len(), "{line:?}");
            }
            prop_assert!(!line.text().chars().any(char::is_control));
        }
    }
}
