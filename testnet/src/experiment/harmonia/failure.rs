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

/// When it stops, is there again, and gets an id from its controller: just before clients try it, which they do ever more
/// seldom, or just after. How long all of it lasts.
const STOPS: Duration = Duration::from_secs(2);
const STARTS: Duration = Duration::from_secs(5);
pub(super) const IS_SET: [Duration; 2] = [Duration::from_millis(5500), Duration::from_secs(6)];
const LASTS: Duration = Duration::from_secs(11);
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

/// Three replicas, and so many readers and writers; the switch has its new id then.
pub fn measure(readers: usize, writers: usize, is_set: Duration) -> Measured {
    let at = [(STOPS, Happening::SwitchStops), (STARTS, Happening::SwitchStarts), (is_set, Happening::NextSwitch)];
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
pub fn times(measured: &Measured, is_set: Duration) -> Times {
    let timeline = timeline(measured);
    let before: Vec<[f64; 2]> =
        timeline.clone().filter(|(at, _)| *at < STOPS - WINDOW).map(|(_, rates)| rates).collect();
    let before = [0, 1].map(|kind| before.iter().map(|rates| rates[kind]).sum::<f64>() / before.len() as f64);
    let sum = |rates: [f64; 2]| rates[0] + rates[1];
    // The window in which it stops has some from before.
    let writes = timeline.clone().find(|(at, rates)| *at > STOPS && rates[1] >= before[1] / 2.0);
    let all = timeline.clone().find(|(at, rates)| *at >= is_set && sum(*rates) >= sum(before) * 0.9);
    let least = timeline.filter(|(at, _)| *at > STOPS && *at < is_set).map(|(_, rates)| rates[0]);
    Times {
        before,
        writes: writes.map(|(at, _)| at - STOPS),
        reads_least: least.fold(f64::MAX, f64::min),
        all: all.map(|(at, _)| at - is_set),
    }
}

/// Throughput over time.
pub fn figure(say: &mut dyn FnMut(String)) -> Figure {
    let mut csv = String::from("new_id_at_s,seconds,reads_per_s,writes_per_s\n");
    let charts = IS_SET.map(|is_set| {
        // Readers that want all that can be had, and writers that make a twentieth of it.
        let measured = measure(300, 150, is_set);
        let Times { before, writes, reads_least, all } = times(&measured, is_set);
        let said = |time: Option<Duration>| time.map_or("never".into(), |time| format!("{:.2} s", time.as_secs_f64()));
        say(format!("before: {:.0} reads and {:.0} writes a second", before[0], before[1]));
        say(format!("it stops: writes go on {} later; at least {reads_least:.0} reads a second", said(writes)));
        say(format!("a new id at {:.1} s: all goes on as before {} later", is_set.as_secs_f64(), said(all)));
        let timeline = timeline(&measured);
        for (at, [reads, writes]) in timeline.clone() {
            csv.push_str(&format!("{},{:.2},{reads:.0},{writes:.0}\n", is_set.as_secs_f64(), at.as_secs_f64()));
        }
        let line = |name: &str, of: fn([f64; 2]) -> f64| Line {
            name: name.into(),
            points: timeline.clone().map(|(at, rates)| (at.as_secs_f64(), of(rates))).collect(),
            dashed: false,
        };
        let moment = |at: Duration, name: &str| (at.as_secs_f64(), name.to_owned());
        Chart {
            title: format!("a new id after {:.1} s", (is_set - STOPS).as_secs_f64()),
            across: "seconds".into(),
            up: "operations a second".into(),
            moments: vec![moment(STOPS, "stops"), moment(STARTS, "is back"), moment(is_set, "has its new id")],
            lines: vec![line("reads", |rates| rates[0]), line("writes", |rates| rates[1])],
            ..Chart::default()
        }
    });
    Figure { name: NAME, csv, svg: crate::picture::draw(&charts) }
}
