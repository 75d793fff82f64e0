//! Figures of the overview: operations and latency over time, and limits with their use.

use peer::status::{Budget, LoadSample};
use screen::ratatui::layout::Rect;
use screen::ratatui::style::Style;
use screen::ratatui::widgets::{Sparkline, Widget as _};
use screen::safe;

use super::brush::Brush;
use crate::top::model::Model;
use crate::top::units;

/// Number of steps of a drawn value.
const STEPS: f64 = 1000.0;

/// Draws the client operations per second that this peer answered.
pub fn operations(model: &Model, brush: &mut Brush<'_>, area: Rect) {
    let values: Vec<f64> = samples(model).iter().map(|sample| sample.ops_per_s).collect();
    let now = units::rate(values.last().copied().unwrap_or(0.0));
    let long = format!("{now} now, {} at most", units::rate(most(&values, area)));
    sparkline(model, brush, area, "operations/s", &[&long, &now], &values);
}

/// Draws a percentile of the latency of these operations.
pub fn latency(model: &Model, brush: &mut Brush<'_>, area: Rect, title: &str, of: fn(&LoadSample) -> Option<f64>) {
    let values: Vec<f64> = samples(model).iter().map(|sample| of(sample).unwrap_or(0.0)).collect();
    // The last second with a measurement.
    let known = values.iter().rev().find(|value| **value > 0.0);
    let now = known.map_or("none lately".into(), |ms| units::millis(*ms));
    let long = known.map_or(String::new(), |_| format!("{now}, {} at most", units::millis(most(&values, area))));
    sparkline(model, brush, area, title, &[&long, &now], &values);
}

fn samples(model: &Model) -> &[LoadSample] {
    model.load.as_deref().unwrap_or(&[])
}

/// Returns the largest of the shown values.
fn most(values: &[f64], area: Rect) -> f64 {
    let shown = usize::from(area.width.saturating_sub(2));
    values.iter().rev().take(shown).copied().fold(0.0, f64::max)
}

/// Draws the last values, the newest at the right.
fn sparkline(model: &Model, brush: &mut Brush<'_>, area: Rect, title: &str, rights: &[&str], values: &[f64]) {
    let inside = brush.frame_with(area, title, if model.load.is_some() { rights } else { &[] });
    if inside.width == 0 || inside.height == 0 {
        return;
    }
    if model.load.is_none() {
        brush.text(inside.x, inside.y, inside.width, "this peer does not tell", brush.palette.faint());
        return;
    }
    let room = usize::from(inside.width);
    let shown = &values[values.len().saturating_sub(room)..];
    let largest = most(values, area).max(1e-9);
    let mut steps: Vec<u64> = vec![0; room - shown.len()];
    // Values above zero are always visible.
    steps.extend(shown.iter().map(|value| match value {
        value if *value > 0.0 => {
            ((value / largest * STEPS) as u64).max((STEPS / 8.0 / f64::from(inside.height)) as u64 + 1)
        }
        _ => 0,
    }));
    Sparkline::default().data(steps).max(STEPS as u64).style(brush.palette.figure()).render(inside, brush.buffer);
}

/// Name, use and limit, and format of a budget.
type OneBudget = (&'static str, Budget, fn(u64) -> String);

/// Draws the use of the peer's limits.
pub fn budgets(model: &Model, brush: &mut Brush<'_>, area: Rect) {
    let inside = brush.frame(area, "used / given", "");
    let Some(budgets) = &model.budgets else {
        brush.text(inside.x, inside.y, inside.width, "this peer does not tell", brush.palette.faint());
        return;
    };
    let bytes: fn(u64) -> String = units::bytes;
    let rows: [OneBudget; 4] = [
        ("disk", budgets.disk, bytes),
        ("memory", budgets.memory, bytes),
        ("net/s", budgets.bandwidth, bytes),
        ("conns", budgets.connections, units::count),
    ];
    for (line, (name, budget, unit)) in rows.into_iter().enumerate().take(inside.height.into()) {
        let row = Rect { y: inside.y + line as u16, height: 1, ..inside };
        one_budget(brush, row, name, budget, unit);
    }
}

fn one_budget(brush: &mut Brush<'_>, area: Rect, name: &str, budget: Budget, unit: fn(u64) -> String) {
    let part = budget.used.zip(budget.given).map(|(used, given)| used as f64 / given.max(1) as f64);
    let style = match part {
        Some(part) if part >= 0.95 => brush.palette.bad(),
        Some(part) if part >= 0.8 => brush.palette.warning(),
        _ => brush.palette.good(),
    };
    let used = budget.used.map_or("?".into(), unit);
    let given = budget.given.map_or("no max".into(), unit);
    let percent = part.map_or(String::new(), units::percent);
    let words = [
        (safe::left(name, 7), brush.palette.text()),
        (format!("{} / {}", safe::right(&used, 6), safe::left(&given, 6)), brush.palette.strong()),
        (safe::right(&percent, 5), style),
    ];
    let used_columns = brush.words(area, &words);
    let rest = Rect { x: area.x + used_columns + 1, width: area.width.saturating_sub(used_columns + 2), ..area };
    if let Some(part) = part.filter(|_| rest.width >= 6) {
        gauge(brush, rest, part, style);
    }
}

/// Draws a bar that fills a part of a row, in eighths of a column.
fn gauge(brush: &mut Brush<'_>, area: Rect, part: f64, style: Style) {
    let eighths = (part.clamp(0.0, 1.0) * f64::from(area.width) * 8.0).round() as u32;
    for column in 0..area.width {
        let filled = eighths.saturating_sub(u32::from(column) * 8).min(8);
        let symbol = char::from_u32(0x2590 - filled).filter(|_| filled > 0).map_or("·".to_owned(), String::from);
        let style = if filled > 0 { style } else { brush.palette.faint() };
        brush.text(area.x + column, area.y, 1, &symbol, style);
    }
}
