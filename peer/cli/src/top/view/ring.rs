//! Drawing of the ring: its groups as arcs from the top on, clockwise, and a legend of the arcs.

use std::f64::consts::TAU;

use peer::status::short_group;
use screen::ratatui::layout::Rect;
use screen::ratatui::style::{Modifier, Style};
use screen::safe;

use super::Scene;
use super::brush::{Brush, Words, beside};
use crate::top::model::{Arc, Model, letters};
use crate::top::units;

/// Width of one line of the legend, in columns.
const LEGEND: u16 = 26;
/// Lower limit of rows for a circle; in fewer rows there is only a bar.
const CIRCLE_ROWS: u16 = 5;
/// Age in seconds from which a ring is marked as old: it is asked for each three, and may take five.
const STALE_S: u64 = 10;
/// Dots of a cell of braille.
const DOTS: (u16, u16) = (2, 4);

/// Draws the ring with a frame and a legend.
pub fn draw(scene: Scene<'_>, brush: &mut Brush<'_>, area: Rect) {
    let arcs = scene.model.arcs();
    let inside = brush.frame(area, &title(scene.model, arcs.len()), &right(scene));
    let marked = marked(&arcs, scene);
    if inside.height < CIRCLE_ROWS || inside.width < LEGEND {
        bar(brush, inside, &arcs);
        return legend(
            brush,
            Rect { y: inside.y + 1, height: inside.height.saturating_sub(1), ..inside },
            &arcs,
            marked,
        );
    }
    // Round, because cells are about twice as high as wide.
    let columns = (inside.height * 2).min(inside.width.saturating_sub(LEGEND + 1)).max(10);
    let (circle_area, rest) = beside(inside, columns);
    circle(brush, circle_area, &arcs, marked);
    legend(brush, Rect { x: rest.x + 1, width: rest.width.saturating_sub(1), ..rest }, &arcs, marked);
}

fn title(model: &Model, count: usize) -> String {
    match &model.ring {
        Some(_) => format!("ring of {count}"),
        None => "ring".into(),
    }
}

fn right(scene: Scene<'_>) -> String {
    let lane = scene.model.own_groups().iter().any(|group| group.lane.is_some());
    let lane = if lane { format!("lane {} ", scene.state.lane) } else { String::new() };
    format!("{lane}{}", doubt(scene.model)).trim_end().to_owned()
}

/// Returns the reason for which the shown ring may be wrong.
pub fn doubt(model: &Model) -> String {
    match (&model.ring, model.ring_age_s) {
        (None, _) => "own groups only".into(),
        (Some(_), Some(age)) if age >= STALE_S => format!("{} OLD", units::span(age)),
        (Some(ring), _) if !ring.whole => "PARTS ARE SILENT".into(),
        (Some(ring), _) if !ring.is_well() => {
            let all = ring.without_majority().count() == ring.groups.len();
            if all { "NO MAJORITY".into() } else { "NO MAJORITY IN PARTS".into() }
        }
        (Some(_), _) => String::new(),
    }
}

fn marked(arcs: &[Arc], scene: Scene<'_>) -> Option<usize> {
    let row = scene.state.chosen().row.as_ref();
    arcs.iter().position(|arc| Some(&arc.id) == row)
}

/// Returns the last arc that begins before this place. Before the first arc, that is the last one of the ring.
fn before(arcs: &[Arc], place: f64) -> Option<usize> {
    let behind = arcs.partition_point(|arc| arc.start <= place);
    behind.checked_sub(1).or(arcs.len().checked_sub(1))
}

/// Returns the group that owns this place.
fn owner(arcs: &[Arc], place: f64) -> Option<usize> {
    before(arcs, place).filter(|number| (place - arcs[*number].start).rem_euclid(1.0) < arcs[*number].share)
}

/// Returns the distance of a place from the nearest start of an arc.
fn from_boundary(arcs: &[Arc], place: f64) -> f64 {
    let Some(number) = before(arcs, place) else { return 1.0 };
    let next = &arcs[(number + 1) % arcs.len()];
    (place - arcs[number].start).rem_euclid(1.0).min((next.start - place).rem_euclid(1.0))
}

/// Dots of one cell, and their group.
#[derive(Clone, Copy, Default)]
struct Dots {
    bits: u32,
    owner: Option<usize>,
}

fn circle(brush: &mut Brush<'_>, area: Rect, arcs: &[Arc], marked: Option<usize>) {
    let (wide, high) = (f64::from(area.width * DOTS.0), f64::from(area.height * DOTS.1));
    let radius = wide.min(high) / 2.0 - 0.5;
    for row in 0..area.height {
        for column in 0..area.width {
            let dots = dots(arcs, (column, row), (wide / 2.0, high / 2.0), radius);
            let Some(symbol) = char::from_u32(0x2800 + dots.bits).filter(|_| dots.bits > 0) else { continue };
            let style = match dots.owner {
                Some(owner) => colour(brush, owner, arcs.get(owner)),
                None => brush.palette.faint(),
            };
            let style =
                if dots.owner.is_some() && dots.owner == marked { style.add_modifier(Modifier::BOLD) } else { style };
            if let Some(cell) = brush.buffer.cell_mut((area.x + column, area.y + row)) {
                cell.set_char(symbol).set_style(style);
            }
        }
    }
    names(brush, area, arcs, radius, marked);
    if radius >= 14.0 {
        let share: f64 = arcs.iter().filter(|arc| arc.mine).map(|arc| arc.share).sum();
        let text = format!("{} mine", units::percent(share));
        let x = area.x + area.width.saturating_sub(text.len() as u16) / 2;
        brush.text(x, area.y + area.height / 2, area.width, &text, brush.palette.faint());
    }
}

/// Returns the dots of a cell that belong to the ring: more of them where an arc belongs to this peer.
fn dots(arcs: &[Arc], (column, row): (u16, u16), centre: (f64, f64), radius: f64) -> Dots {
    let mut dots = Dots::default();
    for (bit, (right, down)) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)].into_iter().enumerate()
    {
        let x = f64::from(column * DOTS.0 + right) + 0.5 - centre.0;
        let y = f64::from(row * DOTS.1 + down) + 0.5 - centre.1;
        let distance = x.hypot(y);
        let place = (x.atan2(-y) / TAU).rem_euclid(1.0);
        let owner = owner(arcs, place);
        let thick = match owner {
            Some(owner) if arcs[owner].mine => (radius * 0.3).clamp(3.0, 9.0),
            Some(_) => (radius * 0.13).clamp(1.5, 3.5),
            None => 1.0,
        };
        let gap = arcs.len() > 1 && from_boundary(arcs, place) * TAU * distance < 1.0;
        if distance <= radius && distance > radius - thick && !gap {
            dots.bits |= 1 << bit;
            dots.owner = dots.owner.or(owner);
        }
    }
    dots
}

/// Draws each arc's letters, inside of the ring, where the arc is long enough for them.
fn names(brush: &mut Brush<'_>, area: Rect, arcs: &[Arc], radius: f64, marked: Option<usize>) {
    for (number, arc) in arcs.iter().enumerate() {
        let inner = if radius < 20.0 { radius * 0.45 } else { (radius * 0.58).max(radius - 16.0) };
        if arc.share * TAU * inner < 4.0 {
            continue;
        }
        let angle = (arc.start + arc.share / 2.0) * TAU;
        let x = f64::from(area.width) / 2.0 + angle.sin() * inner / f64::from(DOTS.0);
        let y = f64::from(area.height) / 2.0 - angle.cos() * inner / f64::from(DOTS.1);
        let name = name(number, arc);
        let x = (x - name.len() as f64 / 2.0).round().max(0.0) as u16;
        let style = look(brush, number, arc, marked);
        brush.text(area.x + x, area.y + y as u16, area.width - x.min(area.width), &name, style);
    }
}

fn name(number: usize, arc: &Arc) -> String {
    format!("{}{}", letters(number), if arc.mine { "*" } else { "" })
}

/// Returns a group's own colour, or the error colour where the group has no majority.
fn colour(brush: &Brush<'_>, number: usize, arc: Option<&Arc>) -> Style {
    if arc.is_some_and(Arc::is_lost) { brush.palette.bad() } else { brush.palette.kind(number) }
}

fn look(brush: &Brush<'_>, number: usize, arc: &Arc, marked: Option<usize>) -> Style {
    let style = colour(brush, number, Some(arc)).add_modifier(Modifier::BOLD);
    if marked == Some(number) { style.add_modifier(Modifier::REVERSED) } else { style }
}

/// Draws the ring cut open: each group's letter as often as its share is.
fn bar(brush: &mut Brush<'_>, area: Rect, arcs: &[Arc]) {
    if area.height == 0 {
        return;
    }
    for column in 0..area.width {
        let place = (f64::from(column) + 0.5) / f64::from(area.width);
        let (letter, style) = match owner(arcs, place) {
            Some(owner) => (letters(owner), colour(brush, owner, arcs.get(owner))),
            None => ("·".into(), brush.palette.faint()),
        };
        let first = letter.chars().next().map_or(String::new(), String::from);
        brush.text(area.x + column, area.y, 1, &first, style);
    }
}

/// Draws the legend of the arcs. Where not all fit: the marked one and this peer's first, then the largest.
fn legend(brush: &mut Brush<'_>, area: Rect, arcs: &[Arc], marked: Option<usize>) {
    let mut order: Vec<usize> = (0..arcs.len()).collect();
    let rows = usize::from(area.height);
    let columns = usize::from((area.width + 1) / (LEGEND + 1)).max(1);
    let room = rows * columns;
    if arcs.len() > room {
        let weight = |number: &usize| (Some(*number) == marked, arcs[*number].mine, arcs[*number].share);
        order.sort_by(|one, other| weight(other).partial_cmp(&weight(one)).unwrap_or(std::cmp::Ordering::Equal));
        order.truncate(room.saturating_sub(1));
        order.sort_unstable();
    }
    // Two letters where there are many groups.
    let (first, last) = if arcs.len() > 26 { (4, 5) } else { (3, 6) };
    for (place, number) in order.iter().enumerate() {
        let x = area.x + (place / rows.max(1)) as u16 * (LEGEND + 1);
        let y = area.y + (place % rows.max(1)) as u16;
        let arc = &arcs[*number];
        let palette = brush.palette;
        let epoch = if arc.epoch < 10_000 { arc.epoch.to_string() } else { units::count(arc.epoch) };
        let members = match arc.quorum.as_ref().filter(|quorum| !quorum.held) {
            Some(quorum) => (safe::right(&format!("{}/{}", quorum.heard, arc.members), 4), palette.bad()),
            None => (safe::right(&format!("{}m", arc.members), 4), palette.text()),
        };
        let words: Words = vec![
            (safe::left(&name(*number, arc), first), look(brush, *number, arc, None)),
            (
                safe::left(short_group(&arc.id), 8),
                if marked == Some(*number) { palette.chosen() } else { palette.text() },
            ),
            (safe::right(&units::percent(arc.share), 5), palette.strong()),
            members,
            (safe::right(&format!("e{epoch}"), last), palette.faint()),
        ];
        let row = Rect { x, y, width: LEGEND.min(area.right().saturating_sub(x)), height: 1 };
        brush.words(row, &words);
    }
    if arcs.len() > order.len() && area.height > 0 {
        let more = format!("and {} more", arcs.len() - order.len());
        brush.text(area.x, area.bottom() - 1, area.width, &more, brush.palette.faint());
    }
}
