//! A picture as SVG: text stays text that can be searched and copied; figures are outlines.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, CellWidth as _};
use ratatui::style::Modifier;

use super::marks::{Place, outline, short};
use super::{Look, rows};

/// Width of a column, in units of the picture.
const COLUMN: f32 = 8.4;
/// Height of a row.
const ROW: f32 = 17.0;
/// Size of letters: a fixed-width font is as wide as 0.6 of it.
const LETTERS: f32 = 14.0;
/// Distance from the upper edge of a row to the line that letters stand on.
const BASE: f32 = 12.8;
/// Margin around the content.
const MARGIN: f32 = 14.0;
/// Height of the window's bar, with its title.
const BAR: f32 = 30.0;

const BACKGROUND: &str = "#14181f";
const BAR_COLOUR: &str = "#222936";
const FOREGROUND: &str = "#d5dae3";
/// The sixteen colours, in the order of their numbers.
const COLOURS: [&str; 16] = [
    "#39414f", "#e06c75", "#7ec77b", "#d9b360", "#6ca4f0", "#c487de", "#53b9c4", "#aeb6c3", "#707a8b", "#ff7b85",
    "#98df95", "#f2cf7e", "#8fbcff", "#dba5f2", "#79d8e2", "#ffffff",
];

/// Returns the picture in a window with a title. A viewer needs no special font and no other file.
pub fn svg(buffer: &Buffer, title: &str) -> String {
    let width = f32::from(buffer.area.width) * COLUMN + 2.0 * MARGIN;
    let height = f32::from(buffer.area.height) * ROW + 2.0 * MARGIN + BAR;
    let mut out = String::new();
    head(&mut out, title, width, height);
    let mut letters = String::new();
    for (number, row) in rows(buffer).enumerate() {
        let y = BAR + MARGIN + number as f32 * ROW;
        let mut run: Option<Run> = None;
        for (column, cell) in row {
            let next = Run::of(column, usize::from(cell.cell_width().max(1)), cell.symbol(), Look::of(cell));
            run = match run {
                Some(mut run) if run.takes(&next) => {
                    run.symbols.push_str(&next.symbols);
                    run.columns += next.columns;
                    Some(run)
                }
                before => {
                    before.iter().for_each(|run| run.write(y, &mut out, &mut letters));
                    Some(next)
                }
            };
        }
        run.iter().for_each(|run| run.write(y, &mut out, &mut letters));
    }
    // Letters stand above all grounds, and their size is set once for all of them.
    let _ = writeln!(out, "<g font-size=\"{}\" xml:space=\"preserve\">\n{letters}</g>\n</svg>", short(LETTERS));
    out
}

fn head(out: &mut String, title: &str, width: f32, height: f32) {
    let (w, h) = (short(width), short(height));
    let title = escaped(title);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace\">\n\
         <title>{title}</title>\n\
         <rect width=\"{w}\" height=\"{h}\" rx=\"9\" fill=\"{BACKGROUND}\"/>\n\
         <path d=\"M0 {BAR}V9a9 9 0 0 1 9-9H{}a9 9 0 0 1 9 9V{BAR}z\" fill=\"{BAR_COLOUR}\"/>",
        short(width - 9.0),
    );
    for (number, colour) in ["#e06c75", "#d9b360", "#7ec77b"].iter().enumerate() {
        let x = 18.0 + number as f32 * 18.0;
        let _ = writeln!(out, "<circle cx=\"{}\" cy=\"{}\" r=\"5.5\" fill=\"{colour}\"/>", short(x), short(BAR / 2.0));
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" font-size=\"13\" text-anchor=\"middle\" fill=\"#aeb6c3\">{title}</text>",
        short(width / 2.0),
        short(BAR / 2.0 + 4.5),
    );
}

/// The content of a cell, as far as it decides which cells may stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blank,
    /// Letters that any fixed-width font has: their width is known.
    Letters,
    /// A symbol that may come from another font: placed by itself.
    Symbol,
    Figure,
}

/// Cells that stand side by side and look alike.
struct Run {
    column: usize,
    columns: usize,
    symbols: String,
    kind: Kind,
    look: Look,
}

impl Run {
    fn of(column: usize, columns: usize, symbol: &str, look: Look) -> Run {
        let probe = Place { x: 0.0, y: 0.0, width: COLUMN, height: ROW };
        let kind = match symbol {
            _ if look.has(Modifier::HIDDEN) || symbol.trim().is_empty() => Kind::Blank,
            _ if outline(symbol, probe).is_some() => Kind::Figure,
            _ if symbol.is_ascii() => Kind::Letters,
            _ => Kind::Symbol,
        };
        Run { column, columns, symbols: symbol.to_owned(), kind, look }
    }

    fn takes(&self, next: &Run) -> bool {
        self.look == next.look && self.kind == next.kind && self.kind != Kind::Symbol
    }

    fn write(&self, y: f32, grounds: &mut String, letters: &mut String) {
        let x = MARGIN + self.column as f32 * COLUMN;
        let (mut ink, mut ground) = (colour(self.look.fg, FOREGROUND), colour(self.look.bg, BACKGROUND));
        if self.look.has(Modifier::REVERSED) {
            (ink, ground) = (ground, ink);
        }
        let wide = self.columns as f32 * COLUMN;
        if ground != BACKGROUND {
            // A little wider than its cells, so there are no seams between neighbours.
            let _ = writeln!(
                grounds,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{ground}\"/>",
                short(x),
                short(y),
                short(wide + 0.3),
                short(ROW + 0.3)
            );
        }
        let faint = if self.look.has(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
        match self.kind {
            Kind::Blank => {}
            Kind::Figure => {
                let place = |at: usize| Place { x: x + at as f32 * COLUMN, y, width: COLUMN, height: ROW };
                let figures = self.symbols.chars().enumerate();
                let paths: String =
                    figures.filter_map(|(at, c)| outline(c.encode_utf8(&mut [0; 4]), place(at))).collect();
                if !paths.is_empty() {
                    let _ = writeln!(letters, "<path d=\"{paths}\" fill=\"{ink}\"{faint}/>");
                }
            }
            Kind::Letters | Kind::Symbol => {
                let _ = writeln!(
                    letters,
                    "<text x=\"{}\" y=\"{}\"{} fill=\"{ink}\"{faint}{}>{}</text>",
                    short(x),
                    short(y + BASE),
                    // The width of letters is known, so with any font they end where they should.
                    if self.kind == Kind::Letters {
                        format!(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", short(wide))
                    } else {
                        String::new()
                    },
                    emphasis(self.look),
                    escaped(&self.symbols)
                );
            }
        }
    }
}

fn emphasis(look: Look) -> String {
    let mut text = String::new();
    if look.has(Modifier::BOLD) {
        text += " font-weight=\"bold\"";
    }
    if look.has(Modifier::ITALIC) {
        text += " font-style=\"italic\"";
    }
    if look.has(Modifier::UNDERLINED) {
        text += " text-decoration=\"underline\"";
    }
    text
}

fn colour(number: Option<u8>, otherwise: &'static str) -> &'static str {
    number.map_or(otherwise, |number| COLOURS[usize::from(number) % COLOURS.len()])
}

/// Escapes a text for XML. Characters that XML cannot hold at all are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => {}
            char if char.is_control() => {}
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    /// `SCATTER_GOLDEN=write` writes the result into the file.
    #[test]
    fn a_small_picture_is_as_it_was() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/picture/sample.svg");
        let drawn = svg(&sample(), "a <small> picture");
        if std::env::var("SCATTER_GOLDEN").as_deref() == Ok("write") {
            std::fs::write(path, &drawn).unwrap();
        }
        assert_eq!(drawn, std::fs::read_to_string(path).unwrap());
    }

    #[test]
    fn it_is_well_formed() {
        let drawn = svg(&sample(), "a & b \u{1b}");
        assert!(drawn.contains("a &amp; b </title>") && drawn.contains("a&lt;b"), "{drawn}");
        assert!(!drawn.contains('\x1b'));
        assert_eq!(drawn.matches("<text").count(), drawn.matches("</text>").count());
        // A wide character stands at its column, and the next one two columns further.
        assert!(
            drawn.contains(">日</text>") && drawn.contains("x=\"30.8\"") && drawn.contains("x=\"47.6\""),
            "{drawn}"
        );
    }
}
