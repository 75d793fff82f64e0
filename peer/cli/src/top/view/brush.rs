//! Drawing operations of all parts of the picture. Every text goes through [`safe`] here.

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Style;
use screen::ratatui::widgets::{Block, BorderType, Widget as _};
use screen::safe;

use crate::top::rows::Tone;

/// Buffer, and the styles for drawing in it.
pub struct Brush<'a> {
    /// Buffer of the picture.
    pub buffer: &'a mut Buffer,
    /// Styles of the picture.
    pub palette: Palette,
}

/// Scroll range of lines that do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scroll {
    /// Upper limit of lines above the visible ones; 0 where all of them fit.
    pub most: usize,
    /// Lines that are visible at once.
    pub page: usize,
}

/// Texts with their styles, one after the other.
pub type Words = Vec<(String, Style)>;

impl<'a> Brush<'a> {
    /// Returns a brush for this buffer.
    pub fn new(buffer: &'a mut Buffer, palette: Palette) -> Brush<'a> {
        Brush { buffer, palette }
    }

    /// Draws a text in at most `width` columns. Returns the columns it took.
    pub fn text(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if width == 0 || x < area.x || x >= area.right() || y < area.y || y >= area.bottom() {
            return 0;
        }
        let width = width.min(area.right() - x);
        let (end, _) = self.buffer.set_stringn(x, y, safe::cut(text, width.into()), width.into(), style);
        end - x
    }

    /// Draws a text at the right end of a row.
    pub fn text_right(&mut self, area: Rect, text: &str, style: Style) {
        let text = safe::cut(text, area.width.into());
        let x = area.right().saturating_sub(safe::width(&text) as u16);
        self.text(x, area.y, area.width, &text, style);
    }

    /// Draws several texts in the first row of an area, which need not have one. Returns the columns they took.
    pub fn words(&mut self, area: Rect, words: &[(String, Style)]) -> u16 {
        if area.height == 0 {
            return 0;
        }
        let mut x = area.x;
        for (text, style) in words {
            x += self.text(x, area.y, area.right().saturating_sub(x), text, *style);
        }
        x - area.x
    }

    /// Draws several rows; where not all fit, the last one says so.
    pub fn lines_or_more(&mut self, area: Rect, mut lines: Vec<Words>, where_more: &str) {
        let room = usize::from(area.height);
        if lines.len() > room && room > 0 {
            let more = format!("… {} more lines{where_more}", lines.len() + 1 - room);
            lines.truncate(room - 1);
            lines.push(vec![(more, self.palette.faint())]);
        }
        self.lines(area, &lines);
    }

    /// Draws several rows from this line on. Where not all fit, the last row tells which are visible, and the keys that
    /// show the rest.
    pub fn scrolled(&mut self, area: Rect, lines: &[Words], from: usize, keys: &str) -> Scroll {
        let (room, count) = (usize::from(area.height), lines.len());
        if count <= room || room == 0 {
            self.lines(area, lines);
            return Scroll { most: 0, page: room };
        }
        let seen = room - 1;
        let most = count - seen;
        let from = from.min(most);
        self.lines(Rect { height: area.height - 1, ..area }, &lines[from..from + seen]);
        let said = format!("lines {} to {} of {count}: {keys}", from + 1, from + seen);
        let last = Rect { y: area.bottom() - 1, height: 1, ..area };
        self.words(last, &[(said, self.palette.faint())]);
        Scroll { most, page: seen }
    }

    /// Draws several rows, as many as fit.
    pub fn lines(&mut self, area: Rect, lines: &[Words]) {
        for (line, words) in lines.iter().take(area.height.into()).enumerate() {
            self.words(Rect { y: area.y + line as u16, height: 1, ..area }, words);
        }
    }

    /// Draws a frame with a title and an optional text at its right. Returns the inside.
    pub fn frame(&mut self, area: Rect, title: &str, right: &str) -> Rect {
        self.frame_with(area, title, &[right])
    }

    /// Draws a frame with a title and, at its right, the first of several texts for which there is room. Returns the
    /// inside.
    pub fn frame_with(&mut self, area: Rect, title: &str, rights: &[&str]) -> Rect {
        let area = area.intersection(self.buffer.area);
        if area.width < 2 || area.height < 2 {
            return Rect { width: 0, height: 0, ..area };
        }
        let block = Block::bordered().border_type(BorderType::Rounded).border_style(self.palette.faint());
        let inside = block.inner(area);
        block.render(area, self.buffer);
        let row = Rect { x: area.x + 2, width: area.width.saturating_sub(4), height: 1, ..area };
        let used = self.words(row, &[(format!(" {title} "), self.palette.title())]);
        let rest = Rect { x: row.x + used, width: row.width.saturating_sub(used + 1), ..row };
        let fits = |right: &&&str| usize::from(rest.width) > safe::width(&safe::line(right)) + 2;
        if let Some(right) = rights.iter().filter(|right| !right.is_empty()).find(fits) {
            self.text_right(Rect { x: rest.x + 1, ..rest }, &format!(" {right} "), self.palette.text());
        }
        inside
    }

    /// Returns the style of a tone.
    pub fn style(&self, tone: Tone) -> Style {
        match tone {
            Tone::Text => self.palette.text(),
            Tone::Faint => self.palette.faint(),
            Tone::Strong => self.palette.strong(),
            Tone::Good => self.palette.good(),
            Tone::Warning => self.palette.warning(),
            Tone::Bad => self.palette.bad(),
            Tone::Group(number) => self.palette.kind(number).patch(self.palette.strong()),
        }
    }
}

/// Returns the upper `height` rows of an area, and the rest.
pub fn above(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    (Rect { height, ..area }, Rect { y: area.y + height, height: area.height - height, ..area })
}

/// Returns the left `width` columns of an area, and the rest.
pub fn beside(area: Rect, width: u16) -> (Rect, Rect) {
    let width = width.min(area.width);
    (Rect { width, ..area }, Rect { x: area.x + width, width: area.width - width, ..area })
}
