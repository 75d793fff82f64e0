//! The figures of `Harmonia` §10, from the real group and the real pipeline in virtual time, as CSV and SVG.
//!
//! ```text
//! cargo bench -p testnet --bench harmonia [-- [--only NAME] [--out DIRECTORY]]
//! ```

use std::path::PathBuf;
use std::time::Duration;

use testnet::experiment::harmonia::{FIGURES, figures, slots};

fn main() {
    let (mut only, mut directory) = (None, std::env::temp_dir().join("harmonia"));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => only = words.next(),
            "--out" => directory = words.next().map(PathBuf::from).expect("a directory behind it"),
            // `cargo test --benches` only wants to know that it starts.
            "--test" => return drop(slots::with_dirty(10, 1000, Duration::from_millis(10))),
            // `cargo bench` adds it.
            "--bench" => {}
            _ => panic!("what is {word}?"),
        }
    }
    let is_one = |only: &String| FIGURES.iter().any(|(name, _)| name == only);
    assert!(only.as_ref().is_none_or(is_one), "there are {:?}", FIGURES.map(|(name, _)| name));
    figures(only.as_deref(), Some(&directory), &mut |line| println!("{line}")).expect("it can be written there");
    println!("written to {}", directory.display());
}
