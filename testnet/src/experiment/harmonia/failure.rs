//! A switch stops, and is started again (`Harmonia` figure 15).
//!
//! There everything goes through the switch, and nothing is served without it. Here what was to pass it is lost, and the rest
//! goes on: clients ask the primary, and it does without the switch once all grants are over.

use std::time::Duration;

use super::measured::Measured;
use super::setting::{Happening, Load, Setting};
use super::{Figure, one};
use crate::picture::{Chart, Line};

/// What its files are called.
pub const NAME: &str = "harmonia-failure";

/// When it stops, is there again, and gets an id from its controller; how long all of it lasts.
const STOPS: Duration = Duration::from_secs(2);
const STARTS: Duration = Duration::from_secs(5);
const IS_SET: Duration = Duration::from_millis(5500);
const LASTS: Duration = Duration::from_secs(9);
const WINDOW: Duration = Duration::from_millis(50);

/// When what was lost is there again.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Operations a second of each kind before it stops.
    pub before: [f64; 2],
    /// Writes go on, half as many as before, so long after the stop.
    pub writes: Option<Duration>,
    /// The fewest reads a second meanwhile.
    pub reads_least: f64,
    /// All goes as well as before, nine tenths of it, so long after the id was set.
    pub all: Option<Duration>,
}

/// Three replicas, and so many readers and writers.
pub fn measure(readers: usize, writers: usize) -> Measured {
    let at = [(STOPS, Happening::SwitchStops), (STARTS, Happening::SwitchStarts), (IS_SET, Happening::NextSwitch)];
    one(&Setting {
        load: Load::Apart { readers, writers, pause: Duration::from_millis(2) },
        patience: Some(Duration::from_millis(10)),
        happenings: at.into(),
        lasts: LASTS,
        window: WINDOW,
        ..Setting::of(3, true, 0.05)
    })
}

/// Where each window begins, and its reads and writes a second.
fn timeline(measured: &Measured) -> impl Iterator<Item = (Duration, [f64; 2])> + Clone {
    let rates = |counts: &[u64; 2]| counts.map(|count| count as f64 / WINDOW.as_secs_f64());
    measured.windows.iter().enumerate().map(move |(window, counts)| (WINDOW * window as u32, rates(counts)))
}

/// What can be read from it.
pub fn times(measured: &Measured) -> Times {
    let timeline = timeline(measured);
    let before: Vec<[f64; 2]> =
        timeline.clone().filter(|(at, _)| *at < STOPS - WINDOW).map(|(_, rates)| rates).collect();
    let before = [0, 1].map(|kind| before.iter().map(|rates| rates[kind]).sum::<f64>() / before.len() as f64);
    let sum = |rates: [f64; 2]| rates[0] + rates[1];
    // The window in which it stops has some from before.
    let writes = timeline.clone().find(|(at, rates)| *at > STOPS && rates[1] >= before[1] / 2.0);
    let all = timeline.clone().find(|(at, rates)| *at >= IS_SET && sum(*rates) >= sum(before) * 0.9);
    let least = timeline.filter(|(at, _)| *at > STOPS && *at < IS_SET).map(|(_, rates)| rates[0]);
    Times {
        before,
        writes: writes.map(|(at, _)| at - STOPS),
        reads_least: least.fold(f64::MAX, f64::min),
        all: all.map(|(at, _)| at - IS_SET),
    }
}

/// Throughput over time.
pub fn figure(say: &mut dyn FnMut(String)) -> Figure {
    // Readers that want all that can be had, and writers that make a twentieth of it.
    let measured = measure(300, 150);
    let Times { before, writes, reads_least, all } = times(&measured);
    let said = |time: Option<Duration>| time.map_or("never".into(), |time| format!("{:.2} s", time.as_secs_f64()));
    say(format!("before: {:.0} reads and {:.0} writes a second", before[0], before[1]));
    say(format!("the switch stops: writes go on {} later; at least {reads_least:.0} reads a second", said(writes)));
    say(format!("it is back, and has its new id: all goes on as before {} later", said(all)));
    let timeline = timeline(&measured);
    let mut csv = String::from("seconds,reads_per_s,writes_per_s\n");
    for (at, [reads, writes]) in timeline.clone() {
        csv.push_str(&format!("{:.3},{reads:.0},{writes:.0}\n", at.as_secs_f64()));
    }
    let line = |name: &str, of: fn([f64; 2]) -> f64| Line {
        name: name.into(),
        points: timeline.clone().map(|(at, rates)| (at.as_secs_f64(), of(rates))).collect(),
        dashed: false,
    };
    let moment = |at: Duration, name: &str| (at.as_secs_f64(), name.to_owned());
    let chart = Chart {
        title: "the switch stops, and comes back".into(),
        across: "seconds".into(),
        up: "operations a second".into(),
        moments: vec![moment(STOPS, "stops"), moment(STARTS, "is back"), moment(IS_SET, "has its new id")],
        lines: vec![line("reads", |rates| rates[0]), line("writes", |rates| rates[1])],
        ..Chart::default()
    };
    Figure { name: NAME, csv, svg: chart.draw() }
}
