//! Overview screen: a part of each other screen.

use screen::ratatui::layout::Rect;

use super::brush::{Brush, Words, above, beside};
use super::{Scene, figures, group, lists, ring, table};
use crate::top::state::Tab;

/// Least size in columns and rows for separate tables of members and peers.
const LARGE: (u16, u16) = (130, 40);

/// Draws the screen between head and foot.
pub fn draw(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) {
    if area.width >= LARGE.0 && area.height >= LARGE.1 { large(scene, brush, area) } else { small(scene, brush, area) }
}

fn small(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) {
    // At 24 rows: 10 for ring and groups, 6 for figures, 5 for events.
    let lower = (area.height / 4).max(5);
    let middle = if area.height >= 18 { 6 } else { 0 };
    let (upper, rest) = above(area, area.height.saturating_sub(lower + middle));
    let (middle, lower) = above(rest, middle);
    let (left, right) = beside(upper, upper.width / 2 + 5);
    ring::draw(scene, brush, left);
    groups(scene, brush, right);
    let third = middle.width / 3;
    let (first, rest) = beside(middle, third);
    let (second, last) = beside(rest, third - 1);
    figures::operations(scene.model, brush, first);
    figures::latency(scene.model, brush, second, "p99", |sample| sample.p99_ms);
    figures::budgets(scene.model, brush, last);
    let (left, right) = beside(lower, if scene.pane.is_some() { lower.width / 2 } else { lower.width });
    lists::events(scene.model, brush, left);
    if let Some(pane) = scene.pane {
        lists::pane(pane, brush, right);
    }
}

fn large(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) {
    let upper = area.height / 2;
    let (upper, rest) = above(area, upper);
    let (middle, lower) = above(rest, 10);
    let (left, right) = beside(upper, (upper.height * 2 + 26).min(upper.width / 2));
    ring::draw(scene, brush, left);
    let count = scene.model.own_groups().len().max(1) as u16;
    let (own, peers) = above(right, (right.height / 2).max(right.height.min(11 * count.min(2))));
    groups(scene, brush, own);
    // Details of a peer are shown on the screen of peers alone.
    let _ = table::draw_titled(scene, Tab::Peers, brush, peers);
    let quarter = middle.width / 4;
    let (first, rest) = beside(middle, quarter + 8);
    let (second, rest) = beside(rest, quarter - 2);
    let (third, last) = beside(rest, quarter - 2);
    figures::operations(scene.model, brush, first);
    figures::latency(scene.model, brush, second, "p50", |sample| sample.p50_ms);
    figures::latency(scene.model, brush, third, "p99", |sample| sample.p99_ms);
    figures::budgets(scene.model, brush, last);
    let (left, right) = beside(lower, if scene.pane.is_some() { lower.width / 2 } else { lower.width });
    lists::events(scene.model, brush, left);
    if let Some(pane) = scene.pane {
        lists::pane(pane, brush, right);
    }
}

/// Draws the groups that this peer belongs to, as much of them as fits.
fn groups(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) {
    let own = scene.model.own_groups();
    let title = if own.len() > 1 { format!("my groups: {}", own.len()) } else { "my group".into() };
    let inside = brush.frame(area, &title, "");
    let arcs = scene.model.arcs();
    let mut lines: Vec<Words> = Vec::new();
    for one in own {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.extend(lists::summary(scene.model, &arcs, one, brush, inside.width));
        // Before the members: a transaction ends soon, and must not be missed.
        lines.extend(lists::transactions(one, brush, inside.width));
        // A line each where there is room for that.
        let room = usize::from(inside.height).saturating_sub(lines.len()) > one.members.len() + 1;
        lines.extend(match room && own.len() == 1 && inside.width >= group::members_width(one) {
            true => group::members(scene.model, one, brush),
            false => lists::members(one, scene.model.me(), brush, inside.width),
        });
    }
    if own.is_empty() {
        lines.push(vec![("in no group yet".into(), brush.palette.warning())]);
    }
    brush.lines_or_more(inside, lines, ": press 2");
}
