//! What all parts of the picture are drawn with. Every text goes through [`safe`] here.

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Style;
use screen::ratatui::widgets::{Block, BorderType, Widget as _};
use screen::safe;

use crate::top::rows::Tone;

/// A buffer and the styles it is drawn in.
pub struct Brush<'a> {
    /// Where it is drawn.
    pub buffer: &'a mut Buffer,
    /// Which styles there are.
    pub palette: Palette,
}

/// How far lines that do not fit can be scrolled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scroll {
    /// Lines above what is seen, at most; 0 where all of them fit.
    pub most: usize,
    /// Lines that are seen at once.
    pub page: usize,
}

/// Texts with their styles, one after the other.
pub type Words = Vec<(String, Style)>;

impl<'a> Brush<'a> {
    /// For this buffer.
    pub fn new(buffer: &'a mut Buffer, palette: Palette) -> Brush<'a> {
        Brush { buffer, palette }
    }

    /// A text in so many columns; how many it took.
    pub fn text(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if width == 0 || x < area.x || x >= area.right() || y < area.y || y >= area.bottom() {
            return 0;
        }
        let width = width.min(area.right() - x);
        let (end, _) = self.buffer.set_stringn(x, y, safe::cut(text, width.into()), width.into(), style);
        end - x
    }

    /// A text at the right end of a row.
    pub fn text_right(&mut self, area: Rect, text: &str, style: Style) {
        let text = safe::cut(text, area.width.into());
        let x = area.right().saturating_sub(safe::width(&text) as u16);
        self.text(x, area.y, area.width, &text, style);
    }

    /// Several texts in the first row of an area, which need not have one; how many columns they took.
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

    /// Several rows; where not all fit the last one says so.
    pub fn lines_or_more(&mut self, area: Rect, mut lines: Vec<Words>, where_more: &str) {
        let room = usize::from(area.height);
        if lines.len() > room && room > 0 {
            let more = format!("… {} more lines{where_more}", lines.len() + 1 - room);
            lines.truncate(room - 1);
            lines.push(vec![(more, self.palette.faint())]);
        }
        self.lines(area, &lines);
    }

    /// Several rows from this line on; where not all fit the last row says which are seen, and the keys that show others.
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

    /// Several rows, as many as fit.
    pub fn lines(&mut self, area: Rect, lines: &[Words]) {
        for (line, words) in lines.iter().take(area.height.into()).enumerate() {
            self.words(Rect { y: area.y + line as u16, height: 1, ..area }, words);
        }
    }

    /// A frame with a title and perhaps something at its right; what is inside.
    pub fn frame(&mut self, area: Rect, title: &str, right: &str) -> Rect {
        self.frame_with(area, title, &[right])
    }

    /// The same with the first of several texts at its right for which there is room.
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

    /// How a tone looks.
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

/// The upper so many rows of an area, and the rest.
pub fn above(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    (Rect { height, ..area }, Rect { y: area.y + height, height: area.height - height, ..area })
}

/// The left so many columns of an area, and the rest.
pub fn beside(area: Rect, width: u16) -> (Rect, Rect) {
    let width = width.min(area.width);
    (Rect { width, ..area }, Rect { x: area.x + width, width: area.width - width, ..area })
}
