//! Help screen: all keys.

use screen::ratatui::layout::Rect;
use screen::safe;

use super::Scene;
use super::brush::{Brush, Scroll, Words, beside};
use crate::top::keys::HELP;

/// Keys that show the rest.
const SCROLLS: &str = "↑ ↓ PgUp PgDn";

/// Meaning of the signs on the screen.
const SIGNS: [(&str, &str); 5] = [
    ("A B C …  *", "groups, clockwise from the top; * has this peer"),
    ("4m  e8  1/3", "4 members, epoch 8; 1 of 3 heard: no majority"),
    ("●  ◆  ○  ?", "member, leader, one that still copies, silent one"),
    ("holds 3/5", "of 5 parts of the range it holds 3 completely"),
    ("812+", "answered here; the leader knows of all"),
];

/// Draws the screen between head and foot. Returns its scroll range.
pub fn draw(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) -> Scroll {
    let palette = brush.palette;
    let inside = brush.frame(area, "keys", "");
    let line = |key: &str, what: &str| -> Words {
        vec![(safe::left(key, 22), palette.key()), (format!(" {what}"), palette.text())]
    };
    let mut keys: Vec<Words> = HELP.iter().map(|(key, what)| line(key, what)).collect();
    keys.extend(scene.extras.iter().map(|(key, what)| line(&key.to_string(), what)));
    let signs: Vec<Words> = SIGNS.iter().map(|(sign, what)| line(sign, what)).collect();
    let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(1), ..inside };
    if inside.width >= 150 {
        let (left, right) = beside(inside, inside.width / 2);
        brush.lines(right, &signs);
        brush.scrolled(left, &keys, scene.state.scroll, SCROLLS)
    } else {
        keys.extend(signs);
        brush.scrolled(inside, &keys, scene.state.scroll, SCROLLS)
    }
}
