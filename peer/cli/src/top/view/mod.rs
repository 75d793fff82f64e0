//! Picture of the dashboard: a pure function of the data, the user's choices, and the available room.

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

/// Least size in columns and rows; below it there is no room for a picture.
const LEAST: (u16, u16) = (40, 10);

/// Input of a picture.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// Data of the dashboard.
    pub model: &'a Model,
    /// The user's choices.
    pub state: &'a State,
    /// The caller's keys, and their actions.
    pub extras: &'a [(char, String)],
    /// The caller's pane.
    pub pane: Option<&'a Pane>,
    /// Result of the last of the caller's keys.
    pub word: Option<&'a str>,
}

/// Draws the picture over the whole of an empty buffer. Returns the scroll range of the help, or of the marked
/// row's details.
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

/// Draws the part between head and foot.
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

/// Returns the rows of a page on a screen of this height.
pub fn page(height: u16) -> usize {
    usize::from(height.saturating_sub(6)).max(1)
}

/// Replaces cells that could steer a terminal, in case some text was not escaped before.
fn scrub(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() && safe::line(cell.symbol()) != cell.symbol() {
            cell.set_symbol("\u{fffd}");
        }
    }
}
