//! The text of a chirp.

use unicode_segmentation::UnicodeSegmentation as _;

/// Upper limit of a text, counted as a person counts: in grapheme clusters.
pub const GRAPHEMES_MAX: usize = 140;
/// Upper limit of a text, in bytes of UTF-8. One grapheme cluster may have any number of bytes, and a chirp has to fit
/// into a block with the other fields beside its text.
pub const BYTES_MAX: usize = 4000;

/// The text of a chirp: one line of 1 to 140 grapheme clusters, without blanks around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(String);

/// The reason why a text is no chirp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text has no visible character.
    #[error("the text is empty")]
    Empty,
    /// The text has this many characters.
    #[error("it has {0} characters; a chirp has at most {GRAPHEMES_MAX}")]
    TooLong(usize),
    /// The text has this many bytes, though not too many characters.
    #[error("it takes {0} bytes; a chirp takes at most {BYTES_MAX}")]
    TooManyBytes(usize),
    /// The text has this control character.
    #[error("a chirp is one line of text: there is a control character in it (U+{:04X})", *.0 as u32)]
    Control(char),
}

/// Returns the number of characters that a person sees in a text.
pub fn count(text: &str) -> usize {
    // A carriage return and a line feed are one.
    if text.is_ascii() && !text.contains('\r') { text.len() } else { text.graphemes(true).count() }
}

impl Text {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Text {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Text, TextError> {
        let text = text.trim();
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(TextError::Control(control));
        }
        // Marks and joiners alone are not visible.
        if !text.chars().any(|c| c.is_alphanumeric() || !(c.is_whitespace() || is_unseen(c))) {
            return Err(TextError::Empty);
        }
        let count = count(text);
        if count > GRAPHEMES_MAX {
            return Err(TextError::TooLong(count));
        }
        if text.len() > BYTES_MAX {
            return Err(TextError::TooManyBytes(text.len()));
        }
        Ok(Text(text.to_owned()))
    }
}

/// Returns whether a character takes no room by itself: joiners, marks of direction, variation selectors.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_those_that_a_person_sees() {
        // A family of four is one, and so are a letter with its accents and a flag.
        let family = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{200d}\u{1f466}";
        for one in [family, "e\u{301}", "\u{1f1e8}\u{1f1ed}", "x"] {
            assert_eq!(count(one), 1);
            assert!(one.repeat(GRAPHEMES_MAX).parse::<Text>().is_ok(), "{one}");
            let error = one.repeat(GRAPHEMES_MAX + 1).parse::<Text>();
            assert_eq!(error, Err(TextError::TooLong(GRAPHEMES_MAX + 1)));
        }
    }

    #[test]
    fn what_cannot_be_posted() {
        for empty in ["", " ", "\u{200b}", "\u{2060} \u{200d}", "\n"] {
            assert_eq!(empty.parse::<Text>(), Err(TextError::Empty), "{empty:?}");
        }
        assert_eq!("a\nb".parse::<Text>(), Err(TextError::Control('\n')));
        assert_eq!("\u{1b}[2J".parse::<Text>(), Err(TextError::Control('\u{1b}')));
        let heavy = format!("e{}", "\u{301}".repeat(BYTES_MAX));
        assert!(matches!(heavy.parse::<Text>(), Err(TextError::TooManyBytes(_))));
        assert_eq!(" trimmed\n".parse::<Text>().unwrap().as_str(), "trimmed");
    }
}
