//! Pictures as SVG: their common parts, and lines over two axes.

use std::fmt::Write as _;

/// Colours: the first ones are the easiest to distinguish.
pub const COLOURS: [&str; 6] = ["#1b6ca8", "#4aa3df", "#9fd0f0", "#d9822b", "#8a5fb0", "#7a7a7a"];

/// Colours for lines, which are thinner than bars, and cross.
const LINES: [&str; 8] = ["#1b6ca8", "#d9822b", "#3f8f4f", "#8a5fb0", "#c0392b", "#4aa3df", "#7a7a7a", "#b8860b"];

/// Returns a picture of this size, with `body` in it.
pub fn document(width: f64, height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
        font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points of the line.
    pub points: Vec<(f64, f64)>,
    /// Whether the line is there for comparison.
    pub dashed: bool,
}

/// Lines over two axes. Both begin at 0. With `doubling`, the lower axis begins at its first point, with a step for each doubling.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Label of the lower axis.
    pub across: String,
    /// Label of the left axis.
    pub up: String,
    /// Whether the lower axis is for numbers that double.
    pub doubling: bool,
    /// Whether there is a mark at each point.
    pub dots: bool,
    /// Moments with names.
    pub moments: Vec<(f64, String)>,
    /// All lines, the first one on top.
    pub lines: Vec<Line>,
}

/// Size of one chart, and places of its axes.
const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 600.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 330.0;
/// Height of a line in the legend, which is under the axis.
const LEGEND_LINE: f64 = 18.0;
const LEGEND_COLUMNS: usize = 2;
/// Number of charts side by side.
const COLUMNS: usize = 2;
/// Rows of the names of moments, so that names do not overlap.
const MOMENT_ROWS: usize = 3;

/// An axis: its ends, and the distance of its ticks.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// Returns an axis from 0, with about `ticks` ticks, at round numbers.
    fn round(most: f64, ticks: f64) -> Axis {
        let rough = most.max(1e-9) / ticks;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|it| it * power).find(|it| *it >= rough);
        let step = step.unwrap_or(rough);
        Axis { low: 0.0, high: (most / step).ceil() * step, step }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.high - self.low) / self.step + 1e-6) as usize;
        (0..=count).map(|tick| self.low + self.step * tick as f64)
    }
}

/// Returns a number on an axis: thousands as k, millions as M.
fn label(number: f64) -> String {
    let (number, unit) = match number.abs() {
        size if size >= 1e6 => (number / 1e6, "M"),
        size if size >= 1e3 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let text = format!("{number:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns a power of two on an axis: 1,024 as k.
fn doubled(power: f64) -> String {
    match power as u32 {
        power @ 10.. => format!("{}k", 1_u64 << (power - 10).min(63)),
        power => (1_u64 << power).to_string(),
    }
}

impl Chart {
    fn scaled(&self, x: f64) -> f64 {
        if self.doubling { x.max(1.0).log2() } else { x }
    }

    fn across(&self) -> Axis {
        let all = self.lines.iter().flat_map(|line| &line.points).map(|(x, _)| self.scaled(*x));
        let (low, high) = all.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
        match self.doubling {
            true => Axis { low: low.floor(), high: high.ceil(), step: 1.0 },
            false => Axis { high, ..Axis::round(high, 10.0) },
        }
    }

    fn height(&self) -> f64 {
        HEIGHT + LEGEND_LINE * self.lines.len().div_ceil(LEGEND_COLUMNS) as f64
    }

    /// Returns the content of the chart as SVG, with its corner at this place.
    fn body(&self, left: f64, top: f64) -> String {
        let (across, most) = (self.across(), self.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y));
        let up = Axis::round(most.fold(0.0, f64::max), 6.0);
        let x_at = |x: f64| LEFT + (RIGHT - LEFT) * (x - across.low) / (across.high - across.low).max(1e-9);
        let y_at = |y: f64| BOTTOM - (BOTTOM - TOP) * y / up.high.max(1e-9);
        let mut body = format!("<g transform=\"translate({left} {top})\">\n");
        let middle = (LEFT + RIGHT) / 2.0;
        let _ = writeln!(
            body,
            r#"<text x="{middle}" y="20" text-anchor="middle" font-weight="bold">{}</text>"#,
            self.title
        );
        for y in up.ticks() {
            let at = y_at(y);
            let _ = writeln!(body, r##"<path d="M{LEFT} {at:.1}H{RIGHT}" stroke="#e4e4e4"/>"##);
            let (x, at) = (LEFT - 8.0, at + 4.0);
            let _ = writeln!(body, r#"<text x="{x}" y="{at:.1}" text-anchor="end">{}</text>"#, label(y));
        }
        for tick in across.ticks() {
            let (at, below, under) = (x_at(tick), BOTTOM + 5.0, BOTTOM + 19.0);
            let text = if self.doubling { doubled(tick) } else { label(tick) };
            let _ = writeln!(body, r##"<path d="M{at:.1} {BOTTOM}V{below}" stroke="#444"/>"##);
            let _ = writeln!(body, r#"<text x="{at:.1}" y="{under}" text-anchor="middle">{text}</text>"#);
        }
        let _ = writeln!(body, r##"<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#444"/>"##);
        let (under, centre) = (BOTTOM + 38.0, (TOP + BOTTOM) / 2.0);
        let _ = writeln!(body, r#"<text x="{middle}" y="{under}" text-anchor="middle">{}</text>"#, self.across);
        let turned = format!(r#"transform="rotate(-90 16 {centre})""#);
        let _ = writeln!(body, r#"<text x="16" y="{centre}" text-anchor="middle" {turned}>{}</text>"#, self.up);
        for (row, (moment, name)) in self.moments.iter().enumerate() {
            let (at, row) = (x_at(self.scaled(*moment)), TOP - 2.0 - 12.0 * (row % MOMENT_ROWS) as f64);
            let _ = writeln!(
                body,
                r##"<path d="M{at:.1} {row}V{BOTTOM}" stroke="#999" stroke-dasharray="3 3"/><text x="{:.1}" y="{row}" text-anchor="end" font-size="11">{name}</text>"##,
                at - 4.0
            );
        }
        for (number, line) in self.lines.iter().enumerate().rev() {
            let points = line.points.iter().map(|(x, y)| (x_at(self.scaled(*x)), y_at(*y)));
            let colour = LINES[number % LINES.len()];
            let dashes = if line.dashed { r#" stroke-dasharray="6 4""# } else { "" };
            let path: String = points.clone().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
            let _ = writeln!(
                body,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>"#,
                path.trim_end()
            );
            for (x, y) in points.filter(|_| self.dots) {
                let _ = writeln!(body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#);
            }
            let (column, row) = (number % LEGEND_COLUMNS, number / LEGEND_COLUMNS);
            let x = LEFT + (RIGHT - LEFT) / LEGEND_COLUMNS as f64 * column as f64;
            let y = HEIGHT + LEGEND_LINE * row as f64 + 4.0;
            let (end, text, base) = (x + 24.0, x + 30.0, y + 4.0);
            let _ = writeln!(
                body,
                r#"<path d="M{x} {y}H{end}" stroke="{colour}" stroke-width="2.5"{dashes}/><text x="{text}" y="{base}">{}</text>"#,
                line.name
            );
        }
        body.push_str("</g>\n");
        body
    }

    /// Draws the chart as SVG.
    pub fn draw(&self) -> String {
        draw(std::slice::from_ref(self))
    }
}

/// Draws charts in rows, as SVG.
pub fn draw(charts: &[Chart]) -> String {
    let columns = charts.len().min(COLUMNS);
    let height = charts.iter().map(Chart::height).fold(0.0, f64::max);
    let places = (0..charts.len()).map(|place| (WIDTH * (place % COLUMNS) as f64, height * (place / COLUMNS) as f64));
    let body: String = charts.iter().zip(places).map(|(chart, (left, top))| chart.body(left, top)).collect();
    document(WIDTH * columns as f64, height * charts.len().div_ceil(COLUMNS) as f64, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let ticks = |most| Axis::round(most, 6.0).ticks().map(label).collect::<Vec<_>>().join(" ");
        assert_eq!(ticks(997_000.0), "0 200k 400k 600k 800k 1M");
        assert_eq!(ticks(1.22), "0 0.25 0.5 0.75 1 1.25");
        assert_eq!(ticks(0.0), "0", "nothing to show, and nothing goes wrong");
    }

    #[test]
    fn all_that_is_named_is_in_the_picture() {
        let line = |name: &str| Line { name: name.into(), points: vec![(4.0, 1.0), (16.0, 2.0)], dashed: false };
        let chart = Chart { doubling: true, lines: vec![line("one"), line("two")], ..Chart::default() };
        let svg = chart.draw();
        assert!(["one", "two", ">4<", ">8<", ">16<"].iter().all(|text| svg.contains(text)), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
