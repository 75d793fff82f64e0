//! The figures of `Harmonia` §10, from the real group and the real pipeline, in virtual time.
//!
//! - [`hall`]: some machines, a switch and clients; [`setting`] what a hall is like, [`measured`] what came of a run.
//! - [`replicas`]: figure 9; [`slots`]: figures 13a and 13b; [`failure`]: figure 15; [`latency`]: what a pass costs a write.
//!
//! One seed, one figure: two runs do not differ. No figure has a read that is too old.

mod clients;
mod fabric;
pub mod failure;
pub mod hall;
pub mod latency;
pub mod measured;
pub mod replicas;
pub mod setting;
pub mod slots;

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::time::Duration;

use measured::Measured;
use setting::Setting;

/// A figure, as numbers and as a picture.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What its files are called.
    pub name: &'static str,
    /// A heading and rows.
    pub csv: String,
    /// The picture.
    pub svg: String,
}

impl Figure {
    /// Writes NAME.csv and NAME.svg there.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join(self.name).with_extension("csv"), &self.csv)?;
        std::fs::write(directory.join(self.name).with_extension("svg"), &self.svg)
    }
}

/// One run, whose answers go together.
///
/// # Panics
/// Where they do not.
fn one(setting: &Setting) -> Measured {
    let measured = hall::run(setting);
    assert_eq!(measured.stale, 0, "reads that are too old: {setting:?}");
    measured
}

/// Measures a figure, and tells each line of that.
type Measure = fn(&mut dyn FnMut(String)) -> Figure;

/// What each is called, and how it is made.
pub const FIGURES: [(&str, Measure); 5] = [
    (replicas::NAME, |say| replicas::figure(Duration::from_millis(200), say)),
    (slots::NAME, |say| slots::by_slots(Duration::from_secs(2), say)),
    (slots::DIRTY, |say| slots::by_dirty(Duration::from_millis(200), say)),
    (failure::NAME, failure::figure),
    (latency::NAME, |say| latency::figure(Duration::from_secs(2), say)),
];

/// Measures all figures, or the one of this name, and writes them where they are wanted; `say` is told each line.
///
/// # Errors
/// Where they cannot be written; then there is no other figure.
pub fn figures(only: Option<&str>, directory: Option<&Path>, say: &mut dyn FnMut(String)) -> io::Result<()> {
    for (name, measure) in FIGURES.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        say(format!("{name}:"));
        let figure = measure(say);
        say(String::new());
        directory.map_or(Ok(()), |directory| figure.write(directory))?;
    }
    Ok(())
}
