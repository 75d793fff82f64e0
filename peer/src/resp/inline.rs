//! Inline commands, as users type them into `telnet`.

use std::ops::Range;

/// Error: a quote was left open, or a byte other than a blank follows a closing one directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unbalanced;

/// Splits a line into arguments as Redis does: blanks separate; `"…"` knows `\n \r \t \b \a \xhh`; `'…'` knows `\'`.
///
/// The unquoted arguments are put one behind the other into `text`, and the range of each into `arguments`.
///
/// # Errors
///
/// [`Unbalanced`] quotes.
pub fn split(line: &[u8], text: &mut Vec<u8>, arguments: &mut Vec<Range<usize>>) -> Result<(), Unbalanced> {
    text.clear();
    arguments.clear();
    // The line ends at a zero byte: it is a C string to Redis.
    let line = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut rest = line;
    loop {
        while let [first, behind @ ..] = rest
            && is_blank(*first)
        {
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = text.len();
        rest = argument(rest, text)?;
        arguments.push(start..text.len());
    }
}

/// Reads one argument from the front of `rest`, and returns the bytes behind it.
fn argument<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        match rest {
            [] => return Ok(rest),
            [byte, ..] if is_blank(*byte) => return Ok(rest),
            [b'"', behind @ ..] => return closed(double_quoted(behind, text)?),
            [b'\'', behind @ ..] => return closed(single_quoted(behind, text)?),
            [byte, behind @ ..] => {
                text.push(*byte);
                rest = behind;
            }
        }
    }
}

/// Checks that only a blank follows a closing quote.
fn closed(rest: &[u8]) -> Result<&[u8], Unbalanced> {
    match rest {
        [] => Ok(rest),
        [byte, ..] if is_blank(*byte) => Ok(rest),
        _ => Err(Unbalanced),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        match rest {
            [] => return Err(Unbalanced),
            [b'"', behind @ ..] => return Ok(behind),
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                text.push(hex(*high) << 4 | hex(*low));
                rest = behind;
            }
            [b'\\', escaped, behind @ ..] => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = behind;
            }
            [byte, behind @ ..] => {
                text.push(*byte);
                rest = behind;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        match rest {
            [] => return Err(Unbalanced),
            [b'\'', behind @ ..] => return Ok(behind),
            [b'\\', b'\'', behind @ ..] => {
                text.push(b'\'');
                rest = behind;
            }
            [byte, behind @ ..] => {
                text.push(*byte);
                rest = behind;
            }
        }
    }
}

/// Returns whether C's `isspace` takes the byte for a blank.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut text, mut arguments) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut arguments)?;
        Ok(arguments.into_iter().map(|range| text[range].to_vec()).collect())
    }

    #[test]
    fn splits_as_redis_does() {
        assert_eq!(words(b"").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(words(b" \t ").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(words(b"set a b").unwrap(), [b"set", &b"a"[..], b"b"]);
        assert_eq!(words(br#"a "" ''"#).unwrap(), [&b"a"[..], b"", b""]);
        assert_eq!(words(br#""a b" 'c d' e"f""#).unwrap(), [&b"a b"[..], b"c d", b"ef"]);
        assert_eq!(words(br#""\x00\xfF\n\q" '\'' '\n'"#).unwrap(), [&b"\x00\xff\nq"[..], b"'", b"\\n"]);
    }

    #[test]
    fn refuses_open_quotes() {
        for line in [&br#""a"#[..], b"'a", br#""a"b"#, b"'a'b", br#""\"#, br#"x ""#] {
            assert_eq!(words(line), Err(Unbalanced), "{}", line.escape_ascii());
        }
    }
}
