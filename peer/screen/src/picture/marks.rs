//! Outlines of characters that are figures rather than letters (frames, blocks, patterns of dots). So a picture does not
//! depend on a font that has them, or has them in the right width.

use std::fmt::Write as _;

/// The position and the size of a cell of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its left edge.
    pub x: f32,
    /// Its upper edge.
    pub y: f32,
    /// Its width.
    pub width: f32,
    /// Its height.
    pub height: f32,
}

/// Half the thickness of a light line of a frame.
const LIGHT: f32 = 0.6;
/// Half the thickness of a heavy line of a frame.
const HEAVY: f32 = 1.3;

/// Returns the outline of a figure, to be filled, in the form of SVG's paths; `None` where the symbol is no figure.
pub(crate) fn outline(symbol: &str, place: Place) -> Option<String> {
    let mut chars = symbol.chars();
    let (char, None) = (chars.next()?, chars.next()) else { return None };
    match char {
        '▁'..='█' => Some(block(char as u32 - '▁' as u32 + 1, place)),
        '▏' | '▎' | '▍' | '▌' | '▋' | '▊' | '▉' => {
            let eighths = 8 - (char as u32 - '█' as u32);
            Some(rectangle(place.x, place.y, place.width * eighths as f32 / 8.0, place.height))
        }
        '▀' => Some(rectangle(place.x, place.y, place.width, place.height / 2.0)),
        '■' => Some(centred(place, 0.8)),
        '\u{2800}'..='\u{28ff}' => Some(dots(char as u32 - 0x2800, place)),
        _ => frame(char).map(|arms| lines(arms, place)),
    }
}

/// Returns the outline of so many eighths of a cell, from below.
fn block(eighths: u32, place: Place) -> String {
    let height = place.height * eighths as f32 / 8.0;
    rectangle(place.x, place.y + place.height - height, place.width, height)
}

/// Returns a square in the middle of a cell, with this part of the cell's width.
fn centred(place: Place, part: f32) -> String {
    let side = place.width * part;
    rectangle(place.x + (place.width - side) / 2.0, place.y + (place.height - side) / 2.0, side, side)
}

/// Returns up to eight dots, in the order of the bits in Unicode.
fn dots(bits: u32, place: Place) -> String {
    const PLACES: [(u8, u8); 8] = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
    let (wide, high) = (place.width / 2.0, place.height / 4.0);
    let side = wide.min(high) * 0.75;
    let mut path = String::new();
    for (bit, (column, row)) in PLACES.iter().enumerate() {
        if bits & (1 << bit) != 0 {
            let x = place.x + (f32::from(*column) + 0.5) * wide - side / 2.0;
            let y = place.y + (f32::from(*row) + 0.5) * high - side / 2.0;
            path += &rectangle(x, y, side, side);
        }
    }
    path
}

/// Returns the kind of line from the middle of a cell to the left, up, right and down: 0 none, 1 light, 2 heavy.
fn frame(char: char) -> Option<[u8; 4]> {
    Some(match char {
        '─' | '╌' | '┄' => [1, 0, 1, 0],
        '│' | '╎' | '┆' => [0, 1, 0, 1],
        '┌' | '╭' => [0, 0, 1, 1],
        '┐' | '╮' => [1, 0, 0, 1],
        '└' | '╰' => [0, 1, 1, 0],
        '┘' | '╯' => [1, 1, 0, 0],
        '├' => [0, 1, 1, 1],
        '┤' => [1, 1, 0, 1],
        '┬' => [1, 0, 1, 1],
        '┴' => [1, 1, 1, 0],
        '┼' => [1, 1, 1, 1],
        '━' => [2, 0, 2, 0],
        '┃' => [0, 2, 0, 2],
        '╸' => [2, 0, 0, 0],
        '╺' => [0, 0, 2, 0],
        _ => return None,
    })
}

fn lines([left, up, right, down]: [u8; 4], place: Place) -> String {
    let half = |weight: u8| if weight == 2 { HEAVY } else { LIGHT };
    let (x, y) = (place.x + place.width / 2.0, place.y + place.height / 2.0);
    let mut path = String::new();
    if left > 0 {
        path += &rectangle(place.x, y - half(left), place.width / 2.0 + half(left), 2.0 * half(left));
    }
    if right > 0 {
        path += &rectangle(x - half(right), y - half(right), place.width / 2.0 + half(right), 2.0 * half(right));
    }
    if up > 0 {
        path += &rectangle(x - half(up), place.y, 2.0 * half(up), place.height / 2.0 + half(up));
    }
    if down > 0 {
        path += &rectangle(x - half(down), y - half(down), 2.0 * half(down), place.height / 2.0 + half(down));
    }
    path
}

fn rectangle(x: f32, y: f32, width: f32, height: f32) -> String {
    let mut path = String::new();
    // Writing to a string does not fail.
    let _ = write!(path, "M{} {}h{}v{}h-{}z", short(x), short(y), short(width), short(height), short(width));
    path
}

/// Formats a number with as many digits as a picture needs.
pub fn short(number: f32) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { x: 0.0, y: 0.0, width: 8.0, height: 16.0 };

    #[test]
    fn figures_have_outlines_and_letters_have_none() {
        assert_eq!(outline("█", PLACE).unwrap(), "M0 0h8v16h-8z");
        assert_eq!(outline("▁", PLACE).unwrap(), "M0 14h8v2h-8z");
        assert_eq!(outline("▌", PLACE).unwrap(), "M0 0h4v16h-4z");
        assert_eq!(outline("▏", PLACE).unwrap(), "M0 0h1v16h-1z");
        assert_eq!(outline("\u{2800}", PLACE).unwrap(), "");
        assert_eq!(outline("⣿", PLACE).unwrap().matches('M').count(), 8);
        assert_eq!(outline("┼", PLACE).unwrap().matches('M').count(), 4);
        for letter in ["a", " ", "日", "●", "──", ""] {
            assert_eq!(outline(letter, PLACE), None);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (short(1.0), short(0.5), short(10.126), short(100.0)),
            ("1".into(), "0.5".into(), "10.13".into(), "100".into())
        );
    }
}
