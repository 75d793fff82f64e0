//! Text from outside, made such that a terminal only shows it.
//!
//! A name or a message that a stranger chose may hold escape sequences, line ends, marks that turn the direction of
//! writing, or heaps of marks on one letter. The result of these functions is one line of known width. Each of its
//! characters is shown, or joins a shown one.
//!
//! A control of ASCII is replaced by its picture (escape by `␛`, line feed by `␊`, delete by `␡`), so that a reader sees
//! it. Any other character that must not be shown is replaced by `�`.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Replaces characters without a picture of their own.
const REPLACEMENT: char = '\u{fffd}';
/// Marks the end of a cut text.
const ELLIPSIS: &str = "…";
/// Upper limit of characters in one cluster: no script needs as many marks on a letter, and the longest emoji are shorter.
const CLUSTER_CHARS_MAX: usize = 16;
/// The first character of a region's flag; the tags behind it spell the region.
const BLACK_FLAG: char = '\u{1f3f4}';

/// Returns the text as one line that a terminal only shows.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut in_flag = false;
    for char in text.chars() {
        let tag = is_tag(char);
        in_flag = char == BLACK_FLAG || in_flag && tag;
        shown.push(if tag && in_flag { char } else { shown_as(char) });
    }
    if shown.is_ascii() {
        return Cow::Owned(shown);
    }
    Cow::Owned(shown.graphemes(true).map(cluster).collect())
}

/// Returns JSON on one line that means the same and that a terminal only shows: characters that steer are escaped. Only
/// texts in it can hold such characters, so that is always possible.
pub fn json(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut units = [0; 2];
    for char in raw.chars() {
        let alone = char.encode_utf8(&mut [0; 4]).to_owned();
        // A character that is only unsafe by itself, such as an accent, is escaped as well, which does no harm.
        if char.is_ascii_graphic() || char == ' ' || line(&alone) == alone {
            text.push(char);
        } else {
            char.encode_utf16(&mut units).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

/// Returns the number of columns that a terminal takes for a text that went through [`line()`].
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.graphemes(true).map(cluster_width).sum() }
}

/// Returns the text as [`line()`] does, cut to at most `columns` columns; the last of these is `…` where the text was cut.
pub fn cut(text: &str, columns: usize) -> String {
    let text = line(text);
    if width(&text) <= columns {
        return text.into_owned();
    }
    let mut shown = String::new();
    let mut room = columns.saturating_sub(1);
    for cluster in text.graphemes(true) {
        match room.checked_sub(cluster_width(cluster)) {
            Some(rest) => room = rest,
            None => break,
        }
        shown.push_str(cluster);
    }
    if columns > 0 {
        shown.push_str(ELLIPSIS);
    }
    shown
}

/// Returns the text as [`cut`] does, with blanks behind it up to exactly `columns` columns.
pub fn left(text: &str, columns: usize) -> String {
    let mut shown = cut(text, columns);
    let blanks = columns.saturating_sub(width(&shown));
    shown.extend(std::iter::repeat_n(' ', blanks));
    shown
}

/// Returns the text as [`cut`] does, with blanks before it up to exactly `columns` columns.
pub fn right(text: &str, columns: usize) -> String {
    let shown = cut(text, columns);
    let blanks = columns.saturating_sub(width(&shown));
    format!("{:blanks$}{shown}", "")
}

/// Returns lines of at most `columns` columns, broken at blanks where there are any. Line ends of the text are kept as
/// such; all else is as in [`line()`]. With no columns there are no lines.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    if columns == 0 {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let paragraph = line(paragraph.strip_suffix('\r').unwrap_or(paragraph));
        let mut current = String::new();
        let mut used = 0;
        for word in paragraph.split_word_bounds() {
            let wide = width(word);
            if used + wide <= columns {
                current.push_str(word);
                used += wide;
                continue;
            }
            if used > 0 {
                lines.push(std::mem::take(&mut current).trim_end().to_owned());
                used = 0;
            }
            if word.trim().is_empty() {
                continue;
            }
            // A word that is longer than a line is broken anywhere; a cluster wider than a line cannot be shown at all.
            for cluster in word.graphemes(true).filter(|cluster| cluster_width(cluster) <= columns) {
                let wide = cluster_width(cluster);
                if used + wide > columns {
                    lines.push(std::mem::take(&mut current));
                    used = 0;
                }
                current.push_str(cluster);
                used += wide;
            }
        }
        lines.push(current.trim_end().to_owned());
    }
    lines
}

/// Counts the columns of a cluster as the drawing library does: that count places the next cluster.
fn cluster_width(cluster: &str) -> usize {
    // Halfwidth sound marks take a column of their own in terminals.
    cluster.width() + cluster.chars().filter(|char| matches!(char, '\u{ff9e}' | '\u{ff9f}')).count()
}

/// Cuts a cluster that is too long. A cluster without width would join the text before it, and is replaced.
fn cluster(cluster: &str) -> Cow<'_, str> {
    if cluster_width(cluster) == 0 {
        return Cow::Owned(REPLACEMENT.to_string());
    }
    match cluster.char_indices().nth(CLUSTER_CHARS_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}{REPLACEMENT}", &cluster[..end])),
        None => Cow::Borrowed(cluster),
    }
}

/// Returns whether a character spells the name of a region behind a flag; it is invisible anywhere else.
fn is_tag(char: char) -> bool {
    matches!(char, '\u{e0020}'..='\u{e007f}')
}

fn shown_as(char: char) -> char {
    match char {
        '\0'..='\x1f' => char::from_u32(0x2400 + char as u32).unwrap_or(REPLACEMENT),
        '\x7f' => '\u{2421}',
        _ if is_hidden(char) => REPLACEMENT,
        _ => char,
    }
}

/// Returns whether a character steers a terminal or a reader's eye instead of being shown. Joiners and variation selectors
/// are not among these: emoji and many scripts need them.
fn is_hidden(char: char) -> bool {
    matches!(char,
        '\u{80}'..='\u{9f}'                 // The other controls.
        | '\u{ad}' | '\u{34f}'              // Soft hyphen, grapheme joiner.
        | '\u{61c}' | '\u{200e}'..='\u{200f}' // Marks of direction.
        | '\u{115f}'..='\u{1160}' | '\u{3164}' | '\u{ffa0}' // Letters that are blank.
        | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'                        // Space without width.
        | '\u{2028}'..='\u{202e}'           // Ends of lines and paragraphs, embeddings, overrides.
        | '\u{2060}'..='\u{206f}'           // Invisible operators, isolates.
        | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["", "abc", "äöü", "日本語", "👩‍👩‍👧 family", "❤️", "क्षि", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "e\u{301}"]
        {
            assert_eq!(line(text), text);
        }
        assert!(matches!(line("abc"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_steers_is_shown_instead() {
        for (text, shown) in [
            ("\x1b[2Jx", "␛[2Jx"),
            ("a\r\nb\tc", "a␍␊b␉c"),
            ("\x7f\0", "␡␀"),
            ("\u{9b}2J", "�2J"),
            ("a\u{202e}b\u{2066}c\u{2028}", "a�b�c�"),
            ("\u{200b}x\u{feff}", "�x�"),
            ("a\u{e0041}", "a�"),
            ("\u{301}x", "�x"),
        ] {
            assert_eq!(line(text), shown, "{text:?}");
        }
        let heap = format!("a{}", "\u{301}".repeat(1000));
        assert!(line(&heap).chars().count() <= CLUSTER_CHARS_MAX + 1);
    }

    #[test]
    fn cut_to_columns() {
        for (text, columns, shown) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("日本語", 1, "…"),
            ("abc", 0, ""),
            ("👩‍👩‍👧👩‍👩‍👧", 3, "👩‍👩‍👧…"),
        ] {
            assert_eq!(cut(text, columns), shown, "{text} {columns}");
        }
        assert_eq!((left("日本", 5), right("日本", 5)), ("日本 ".into(), " 日本".into()));
    }

    #[test]
    fn lines_are_broken_at_blanks() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("a\nb\r\n", 5), ["a", "b", ""]);
        assert_eq!(wrap("日本語", 3), ["日", "本", "語"]);
        assert_eq!(wrap("x", 0), Vec::<String>::new());
    }

    /// Letters of many kinds, and all kinds of harmful characters.
    fn texts() -> impl Strategy<Value = String> {
        let harmful = prop::sample::select(vec![
            "\x1b",
            "\x07",
            "\n",
            "\u{9b}",
            "\u{202e}",
            "\u{2067}",
            "\u{2029}",
            "\u{301}",
            "\u{200d}",
            "\u{fe0f}",
            "👩",
            "日",
            "🇩",
            "\u{e0067}",
            "🏴",
            "\u{1160}",
            "가",
            "ﾞ",
            "a",
        ]);
        let piece = prop_oneof![harmful.prop_map(str::to_owned), any::<char>().prop_map(String::from)];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nothing_that_steers_comes_out(text in texts()) {
            let shown = line(&text);
            let hidden = |char: char| char.is_control() || is_hidden(char) && !is_tag(char);
            prop_assert!(!shown.chars().any(hidden), "{shown:?}");
            prop_assert_eq!(line(&shown), shown.as_ref());
        }

        #[test]
        fn columns_hold(text in texts(), columns in 0_usize..20) {
            prop_assert!(width(&cut(&text, columns)) <= columns);
            prop_assert_eq!(width(&left(&text, columns)), columns);
            prop_assert_eq!(width(&right(&text, columns)), columns);
            for line in wrap(&text, columns) {
                prop_assert!(width(&line) <= columns, "{line:?}");
                prop_assert!(!line.chars().any(char::is_control));
            }
        }

        /// A drawn text takes the columns that were counted.
        #[test]
        fn drawn_as_counted(text in texts()) {
            use ratatui::buffer::Buffer;
            use ratatui::layout::Rect;
            let shown = line(&text);
            let mut buffer = Buffer::empty(Rect::new(0, 0, 400, 1));
            let (end, _) = buffer.set_stringn(0, 0, &shown, 400, ratatui::style::Style::new());
            prop_assert_eq!(usize::from(end), width(&shown), "{:?}", shown);
        }
    }
}
