//! How long writes take with the switch and without it.
//!
//! The paper's clients write through the switch, which lies on their way: that costs nothing. Here the primary passes each write
//! to the switch and back before it proposes it: once more the way of a message, half of it there and half of it back.

use std::time::Duration;

use super::setting::{Load, Setting};
use super::{Figure, one};
use crate::picture::{Chart, Line};

/// What its files are called.
pub const NAME: &str = "harmonia-latency";

const LOADS: [f64; 5] = [10e3, 30e3, 50e3, 70e3, 90e3];
/// In memory, and with disks as quick as good ones are.
const SYNCS: [(&str, Duration); 2] = [("in memory", Duration::ZERO), ("on disks", Duration::from_micros(100))];

/// Half of the writes, and 99 of 100, take so long or less.
pub fn write_waits(per_s: f64, sync: Duration, has_switch: bool, lasts: Duration) -> [Duration; 2] {
    let measured = one(&Setting { load: Load::Open { per_s }, sync, lasts, ..Setting::of(3, has_switch, 0.05) });
    [0.5, 0.99].map(|share| measured.write_wait(share))
}

/// By load, at three replicas.
pub fn figure(lasts: Duration, say: &mut dyn FnMut(String)) -> Figure {
    say("What writes take by load, three replicas, 5 % writes, 50 µs of wire each way (µs)".into());
    say(format!(
        "{:<10}{:>8}{:>12}{:>8}{:>8}{:>14}{:>8}{:>8}",
        "store", "ops/s", "direct p50", "switch", "ratio", "direct p99", "switch", "ratio"
    ));
    let mut csv = String::from("store,ops_per_s,direct_p50_s,switch_p50_s,direct_p99_s,switch_p99_s\n");
    let mut charts = Vec::new();
    for (store, sync) in SYNCS {
        let mut rows = Vec::new();
        for load in LOADS {
            let [direct, switch] = [false, true].map(|has_switch| write_waits(load, sync, has_switch, lasts));
            let us = |wait: Duration| wait.as_secs_f64() * 1e6;
            let ratio = |share: usize| us(switch[share]) / us(direct[share]);
            say(format!(
                "{store:<10}{load:>8.0}{:>12.0}{:>8.0}{:>8.2}{:>14.0}{:>8.0}{:>8.2}",
                us(direct[0]),
                us(switch[0]),
                ratio(0),
                us(direct[1]),
                us(switch[1]),
                ratio(1)
            ));
            let waits = [direct[0], switch[0], direct[1], switch[1]].map(|wait| format!("{:.6}", wait.as_secs_f64()));
            csv.push_str(&format!("{store},{load:.0},{}\n", waits.join(",")));
            rows.push((load, direct, switch));
        }
        let line = |name: &str, share: usize, has_switch: bool| {
            let of =
                |direct: &[Duration; 2], switch: &[Duration; 2]| if has_switch { switch[share] } else { direct[share] };
            let points = rows.iter().map(|(load, direct, switch)| (*load, of(direct, switch).as_secs_f64() * 1e6));
            Line { name: name.into(), points: points.collect(), dashed: share > 0 }
        };
        charts.push(Chart {
            title: format!("writes, {store}"),
            across: "operations a second, 5 % of them writes".into(),
            up: "microseconds".into(),
            dots: true,
            lines: vec![
                line("passed through the switch, p50", 0, true),
                line("without a switch, p50", 0, false),
                line("passed through the switch, p99", 1, true),
                line("without a switch, p99", 1, false),
            ],
            ..Chart::default()
        });
    }
    Figure { name: NAME, csv, svg: crate::picture::draw(&charts) }
}
