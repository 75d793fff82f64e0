//! The results as a picture: operations a second under each load, a bar for each store.

use std::fmt::Write as _;

use super::{BenchResults, WORKLOADS};
use crate::picture::{COLOURS, document};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 150.0;
const BAR: f64 = 20.0;

/// Draws the results as SVG. Each load has a scale of its own.
pub fn draw(results: &BenchResults) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for (number, workload) in WORKLOADS.iter().enumerate() {
        let rows = results.under(number);
        if rows.is_empty() {
            continue;
        }
        y += 25.0;
        let _ = writeln!(body, r#"<text x="10" y="{y}" font-weight="bold">{}</text>"#, workload.name);
        y += 8.0;
        let most = rows.iter().map(|(_, figures)| figures.ops_per_s).fold(1.0, f64::max);
        for (kind, figures) in rows {
            let width = (WIDTH - LEFT - 260.0) * figures.ops_per_s / most;
            let colour = COLOURS[kind as usize % COLOURS.len()];
            let middle = y + BAR * 0.72;
            let _ = writeln!(body, r#"<text x="{}" y="{middle}" text-anchor="end">{}</text>"#, LEFT - 8.0, kind.name());
            let height = BAR - 4.0;
            let _ = writeln!(
                body,
                r#"<rect x="{LEFT}" y="{}" width="{width:.1}" height="{height}" fill="{colour}"/>"#,
                y + 2.0
            );
            let _ = writeln!(
                body,
                r#"<text x="{:.1}" y="{middle}">{:.0}/s, p50 {:.2} ms, {:.0} µs CPU</text>"#,
                LEFT + width + 6.0,
                figures.ops_per_s,
                figures.p50_s * 1e3,
                figures.cpu_s_per_op * 1e6
            );
            y += BAR;
        }
    }
    document(WIDTH, y + 15.0, &body)
}
