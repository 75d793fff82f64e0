//! Effect of the dirty set's size, and of dirty objects, on a group of three (`Harmonia` figures 13a and 13b).

use std::time::Duration;

use load::Distribution;
use switch::dirty::Shape;

use super::measured::SwitchMeasured;
use super::setting::SwitchSetting;
use super::{MODEL, RunLength, one, parameters};
use crate::experiment::options::{ExperimentOptions, Say};
use crate::experiment::registry::Experiment;
use crate::experiment::table::{Comparison, ExperimentOutcome, Table, Verdict};
use crate::parallel::in_parallel;
use crate::picture::{Chart, Line};

/// Figure 13a.
pub(crate) const BY_SLOTS: Experiment = Experiment {
    name: "harmonia-slots",
    paper: "Harmonia Fig. 13a",
    about: "Operations a second by slots of the dirty set: three replicas, 5 % writes, a million keys",
    run: by_slots,
};
/// Figure 13b.
pub(crate) const BY_DIRTY: Experiment = Experiment {
    name: "harmonia-dirty",
    paper: "Harmonia Fig. 13b",
    about: "Reads a second while objects are dirty: three replicas, uniform keys",
    run: by_dirty,
};

const REPLICAS: usize = 3;
const STAGES: usize = 3;
const KEYS: [(&str, Distribution); 2] =
    [("uniform", Distribution::Uniform), ("zipf-0.9", Distribution::Zipf { exponent: 0.9 })];
/// Slots of a stage, as powers of two.
const SLOTS: std::ops::RangeInclusive<u32> = 2..=16;
/// A group that gave up its switch takes a second until it works without it.
const WARM_UP: Duration = Duration::from_millis(1500);
/// Numbers of objects that are dirty all the time, and of all objects.
const DIRTY_OBJECTS: [u64; 9] = [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 48_000, 64_000];
const OBJECTS: [u64; 3] = [100_000, 300_000, 1_000_000];

/// Slots of a stage in our switch by default.
const OURS: usize = 384;
/// Slots that the paper needs.
const PAPER_SLOTS: usize = 2_000;
/// Share of the throughput with the largest set at which a set counts as large enough.
const ENOUGH: f64 = 0.99;

/// Measures 5 % writes, with `slots` slots in each stage.
pub(crate) fn with_slots(keys: Distribution, slots: usize, run: RunLength) -> SwitchMeasured {
    let switch = Some(Shape { stages: STAGES, slots });
    one(&SwitchSetting { switch, keys, warm_up: WARM_UP, ..run.of(REPLICAS, true, 0.05) })
}

/// One point of figure 13a.
struct SlotsPoint {
    keys: &'static str,
    slots: usize,
    measured: SwitchMeasured,
}

impl SlotsPoint {
    fn cells(&self, lasts: Duration) -> Vec<String> {
        let (ops, writes) = (self.measured.ops_per_s(), self.measured.writes_per_s());
        let full = self.measured.full as f64 / (writes * lasts.as_secs_f64()).max(1.0);
        let paper = if self.slots == OURS { "enough at about 2000 slots" } else { "" };
        vec![
            self.keys.into(),
            self.slots.to_string(),
            format!("{ops:.0}"),
            format!("{writes:.0}"),
            format!("{full:.5}"),
            format!("{:.1}", self.measured.open_mean()),
            self.measured.open_max.to_string(),
            paper.into(),
        ]
    }
}

/// Measures throughput by slots, for keys of both kinds: figure 13a.
fn by_slots(options: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
    let run = RunLength::new(options, Duration::from_secs(2));
    let settings: Vec<_> = KEYS.into_iter().flat_map(|keys| SLOTS.map(move |power| (keys, 1_usize << power))).collect();
    let points = in_parallel(options.jobs, &settings, |((name, keys), slots)| SlotsPoint {
        keys: name,
        slots: slots * STAGES,
        measured: with_slots(*keys, *slots, run),
    });
    let direct = one(&run.of(REPLICAS, false, 0.05)).ops_per_s();
    let mut table =
        Table::new(&["keys", "slots", "ops_per_s", "writes_per_s", "full_per_write", "open_mean", "open_max", "paper"]);
    points.iter().for_each(|point| table.push(point.cells(run.lasts)));
    Ok(ExperimentOutcome {
        parameters: parameters(run.lasts),
        models: vec![MODEL.into()],
        table,
        curves: None,
        charts: vec![chart_of_slots(&points, direct)],
        verdict: verdict_of_slots(&points),
    })
}

fn chart_of_slots(points: &[SlotsPoint], direct: f64) -> Chart {
    let line = |name: &str| {
        let of_kind = points.iter().filter(|point| point.keys == name);
        let points = of_kind.map(|point| (point.slots as f64, point.measured.ops_per_s())).collect();
        Line { name: format!("{name} keys"), points, dashed: false }
    };
    let ends = [*SLOTS.start(), *SLOTS.end()].map(|power| (((1 << power) * STAGES) as f64, direct));
    let without = Line { name: "without a switch".into(), points: ends.into(), dashed: true };
    Chart {
        title: "three replicas, 5 % writes".into(),
        across: "slots of the dirty set, in three stages".into(),
        up: "operations a second".into(),
        doubling: true,
        dots: true,
        lines: KEYS.iter().map(|(name, _)| line(name)).chain([without]).collect(),
        ..Chart::default()
    }
}

fn verdict_of_slots(points: &[SlotsPoint]) -> Verdict {
    let enough = KEYS.iter().filter_map(|(name, _)| {
        let of_kind = || points.iter().filter(|point| point.keys == *name);
        let most = of_kind().map(|point| point.measured.ops_per_s()).fold(0.0, f64::max);
        of_kind().find(|point| point.measured.ops_per_s() >= most * ENOUGH).map(|point| point.slots)
    });
    let slots = enough.max().unwrap_or(usize::MAX);
    let comparison = if slots <= PAPER_SLOTS { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!("{slots} slots are enough at a ninth of the paper's throughput (paper: about {PAPER_SLOTS})");
    Verdict::new(comparison, why)
}

/// Measures reads while `dirty` of `objects` objects are dirty.
pub fn with_dirty(dirty: u64, objects: u64, run: RunLength) -> SwitchMeasured {
    // With more room than by default: all dirty objects must be in the set.
    let switch = Some(Shape { stages: STAGES, slots: 1 << 18 });
    one(&SwitchSetting { switch, dirty, key_count: objects, ..run.of(REPLICAS, true, 0.0) })
}

/// One point of figure 13b.
struct Dirty {
    objects: u64,
    dirty: u64,
    reads_per_s: f64,
}

/// Measures throughput of reads by objects that are dirty: figure 13b.
fn by_dirty(options: &ExperimentOptions, _: Say<'_>) -> Result<ExperimentOutcome, String> {
    let run = RunLength::new(options, Duration::from_millis(200));
    let settings: Vec<(u64, u64)> =
        OBJECTS.into_iter().flat_map(|objects| DIRTY_OBJECTS.map(move |dirty| (objects, dirty))).collect();
    let points = in_parallel(options.jobs, &settings, |(objects, dirty)| Dirty {
        objects: *objects,
        dirty: *dirty,
        reads_per_s: with_dirty(*dirty, *objects, run).ops_per_s(),
    });
    let mut table = Table::new(&["objects", "dirty", "reads_per_s", "paper"]);
    for Dirty { objects, dirty, reads_per_s } in &points {
        table.push(vec![objects.to_string(), dirty.to_string(), format!("{reads_per_s:.0}"), String::new()]);
    }
    Ok(ExperimentOutcome {
        parameters: parameters(run.lasts),
        models: vec![MODEL.into()],
        table,
        curves: None,
        charts: vec![chart_of_dirty(&points)],
        verdict: verdict_of_dirty(&points),
    })
}

fn chart_of_dirty(points: &[Dirty]) -> Chart {
    let lines = OBJECTS.map(|objects| {
        let of_kind = points.iter().filter(|point| point.objects == objects);
        let points = of_kind.map(|point| (point.dirty as f64, point.reads_per_s)).collect();
        Line { name: format!("{objects} objects"), points, dashed: false }
    });
    Chart {
        title: "three replicas, reads".into(),
        across: "objects that are dirty".into(),
        up: "reads a second".into(),
        dots: true,
        lines: lines.into(),
        ..Chart::default()
    }
}

fn verdict_of_dirty(points: &[Dirty]) -> Verdict {
    let most = DIRTY_OBJECTS[DIRTY_OBJECTS.len() - 1];
    let left = |objects: u64| {
        let point = points.iter().find(|point| point.objects == objects && point.dirty == most);
        point.map_or(0.0, |point| point.reads_per_s)
    };
    let [few, _, many] = OBJECTS.map(left);
    let comparison = if few < many { Comparison::Reproduced } else { Comparison::Worse };
    let why = format!(
        "with {most} dirty objects {few:.0} reads a second remain of {} objects and {many:.0} of {} (the paper's curve falls \
         likewise and has no numbers)",
        OBJECTS[0], OBJECTS[2]
    );
    Verdict::new(comparison, why)
}
