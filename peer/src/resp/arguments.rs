//! Arguments of one request, and numbers in Redis's notation.

use std::ops::Range;

/// Arguments of one request, the command's name first. Borrowed from the connection's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    text: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Arguments<'a> {
    /// Returns the arguments at `ranges` of `text`.
    pub fn new(text: &'a [u8], ranges: &'a [Range<usize>]) -> Arguments<'a> {
        Arguments { text, ranges }
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the argument at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|range| &self.text[range.clone()])
    }

    /// Returns the argument at `index`, where the command's arity has been checked already; empty if there are
    /// fewer.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// Returns the arguments from `index` on.
    pub fn from(&self, index: usize) -> Arguments<'a> {
        Arguments { text: self.text, ranges: self.ranges.get(index..).unwrap_or_default() }
    }

    /// Returns all arguments in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let text = self.text;
        self.ranges.iter().map(move |range| &text[range.clone()])
    }
}

impl PartialEq for Arguments<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Arguments<'_> {}

/// Parses a decimal number in its one canonical form: no `+`, no leading zeros, no `-0`, no blanks (Redis's
/// `string2ll`).
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_form() {
        for number in [0, 1, -1, 10, 1234567890, i64::MAX, i64::MIN] {
            assert_eq!(parse_integer(number.to_string().as_bytes()), Some(number));
        }
        for text in ["", "-", "+1", "01", "-0", "-01", " 1", "1 ", "1.0", "0x1", "a", "9223372036854775808"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_integer(&[b'9'; 1000]), None);
        assert_eq!(parse_integer(b"-9223372036854775809"), None);
    }
}
