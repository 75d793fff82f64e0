//! What the dirty set's size and the objects in it do to a group of three (`Harmonia` figures 13a and 13b).

use std::time::Duration;

use load::Distribution;
use switch::dirty::Shape;

use super::measured::Measured;
use super::setting::Setting;
use super::{Figure, one};
use crate::picture::{Chart, Line};

/// What the files of 13a are called.
pub const NAME: &str = "harmonia-slots";
/// And those of 13b.
pub const DIRTY: &str = "harmonia-dirty";

const REPLICAS: usize = 3;
const STAGES: usize = 3;
const KEYS: [(&str, Distribution); 2] =
    [("uniform", Distribution::Uniform), ("zipf-0.9", Distribution::Zipf { exponent: 0.9 })];
/// Slots of a stage, as powers of two.
const SLOTS: std::ops::RangeInclusive<u32> = 2..=16;
/// A group that gave its switch up takes a second to do without it.
const WARM_UP: Duration = Duration::from_millis(1500);
/// So many objects are dirty all the time, of so many.
const DIRTY_OBJECTS: [u64; 9] = [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 48_000, 64_000];
const OBJECTS: [u64; 3] = [100_000, 300_000, 1_000_000];

/// 5 % writes, with so many slots in each stage.
pub fn with_slots(keys: Distribution, slots: usize, lasts: Duration) -> Measured {
    let switch = Some(Shape { stages: STAGES, slots });
    one(&Setting { switch, keys, warm_up: WARM_UP, lasts, ..Setting::of(REPLICAS, true, 0.05) })
}

/// Throughput by slots, for keys of both kinds: figure 13a.
pub fn by_slots(lasts: Duration, say: &mut dyn FnMut(String)) -> Figure {
    say("Operations a second by slots of the dirty set, three replicas, 5 % writes, 1,000,000 keys".into());
    say(format!(
        "{:<9}{:>9}{:>10}{:>10}{:>12}{:>12}{:>10}",
        "keys", "slots", "ops/s", "writes/s", "full/write", "open, mean", "at most"
    ));
    let mut csv = String::from("keys,slots,ops_per_s,writes_per_s,full_per_write,open_mean,open_max\n");
    let mut lines = Vec::new();
    for (name, keys) in KEYS {
        let mut points = Vec::new();
        for slots in SLOTS.map(|power| 1 << power) {
            let measured = with_slots(keys, slots, lasts);
            let (ops, writes, all) = (measured.ops_per_s(), measured.writes_per_s(), slots * STAGES);
            let full = measured.full as f64 / (writes * lasts.as_secs_f64()).max(1.0);
            let (open, most) = (measured.open_mean(), measured.open_max);
            say(format!("{name:<9}{all:>9}{ops:>10.0}{writes:>10.0}{full:>12.4}{open:>12.1}{most:>10}"));
            csv.push_str(&format!("{name},{all},{ops:.0},{writes:.0},{full:.5},{open:.1},{most}\n"));
            points.push((all as f64, ops));
        }
        lines.push(Line { name: format!("{name} keys"), points, dashed: false });
    }
    let direct = one(&Setting { lasts, ..Setting::of(REPLICAS, false, 0.05) }).ops_per_s();
    let ends = [*SLOTS.start(), *SLOTS.end()].map(|power| (((1 << power) * STAGES) as f64, direct));
    lines.push(Line { name: "without a switch".into(), points: ends.into(), dashed: true });
    let chart = Chart {
        title: "three replicas, 5 % writes".into(),
        across: "slots of the dirty set, in three stages".into(),
        up: "operations a second".into(),
        doubling: true,
        dots: true,
        lines,
        ..Chart::default()
    };
    Figure { name: NAME, csv, svg: chart.draw() }
}

/// Reads a second while so many of so many objects are dirty.
pub fn with_dirty(dirty: u64, objects: u64, lasts: Duration) -> Measured {
    // With more room than by default: all of them are to be in it.
    let switch = Some(Shape { stages: STAGES, slots: 1 << 18 });
    one(&Setting { switch, dirty, key_count: objects, lasts, ..Setting::of(REPLICAS, true, 0.0) })
}

/// Throughput of reads by objects that are dirty: figure 13b.
pub fn by_dirty(lasts: Duration, say: &mut dyn FnMut(String)) -> Figure {
    say("Reads a second while objects are dirty, three replicas, uniform".into());
    say(format!("{:>9}{:>9}{:>10}", "objects", "dirty", "reads/s"));
    let mut csv = String::from("objects,dirty,reads_per_s\n");
    let mut lines = Vec::new();
    for objects in OBJECTS {
        let mut points = Vec::new();
        for dirty in DIRTY_OBJECTS {
            let reads = with_dirty(dirty, objects, lasts).ops_per_s();
            say(format!("{objects:>9}{dirty:>9}{reads:>10.0}"));
            csv.push_str(&format!("{objects},{dirty},{reads:.0}\n"));
            points.push((dirty as f64, reads));
        }
        lines.push(Line { name: format!("{objects} objects"), points, dashed: false });
    }
    let chart = Chart {
        title: "three replicas, reads".into(),
        across: "objects that are dirty".into(),
        up: "reads a second".into(),
        dots: true,
        lines,
        ..Chart::default()
    };
    Figure { name: DIRTY, csv, svg: chart.draw() }
}
