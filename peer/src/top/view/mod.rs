//! The dashboard as a picture: a pure function of what is known, what was chosen, and the room there is.

mod brush;
mod edges;
mod figures;
mod group;
mod help;
mod lists;
mod overview;
mod ring;
mod table;

use screen::colour::Palette;
use screen::ratatui::buffer::Buffer;
use screen::ratatui::layout::Rect;
use screen::safe;

use super::Pane;
use super::model::Model;
use super::state::{State, Tab};
use brush::Brush;
pub use brush::Scroll;
pub use edges::lanes;

/// Below this there is no room for anything.
const LEAST: (u16, u16) = (40, 10);

/// All that is drawn.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// What is known.
    pub model: &'a Model,
    /// What was chosen.
    pub state: &'a State,
    /// The caller's keys, and what they do.
    pub extras: &'a [(char, String)],
    /// The caller's pane.
    pub pane: Option<&'a Pane>,
    /// What the last of the caller's keys led to.
    pub word: Option<&'a str>,
}

/// Draws it all over a buffer that is empty. How far the help, or what is about the marked row, can be scrolled.
pub fn draw(scene: Scene<'_>, palette: Palette, buffer: &mut Buffer) -> Scroll {
    let area = buffer.area;
    let mut brush = Brush::new(buffer, palette);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("too small: {}x{} at least", LEAST.0, LEAST.1);
        brush.text(area.x, area.y, area.width, &text, palette.warning());
        return Scroll::default();
    }
    let row = |y: u16| Rect { y, height: 1, ..area };
    let inside = Rect { y: area.y + 2, height: area.height - 3, ..area };
    edges::head(scene, &mut brush, row(area.y));
    edges::tabs(scene, &mut brush, row(area.y + 1));
    let scroll = middle(scene, &mut brush, inside);
    edges::foot(scene, scroll, &mut brush, row(area.bottom() - 1));
    scrub(buffer);
    scroll
}

/// Draws what is between head and foot.
fn middle(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) -> Scroll {
    if scene.state.help {
        return help::draw(scene, brush, area);
    }
    match scene.state.tab {
        _ if scene.model.status.is_none() => edges::nobody(scene.model, brush, area),
        Tab::Overview => overview::draw(scene, brush, area),
        Tab::Groups => return group::draw(scene, brush, area),
        tab @ (Tab::Peers | Tab::Events) => return table::draw_titled(scene, tab, brush, area),
    }
    Scroll::default()
}

/// How far a page is on a screen of this height.
pub fn page(height: u16) -> usize {
    usize::from(height.saturating_sub(6)).max(1)
}

/// Whatever was forgotten before: nothing stays in a cell that steers a terminal.
fn scrub(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() && safe::line(cell.symbol()) != cell.symbol() {
            cell.set_symbol("\u{fffd}");
        }
    }
}
