//! The figures of `Harmonia` §10, from the real group and the real pipeline in virtual time, as CSV and SVG.
//!
//! ```text
//! cargo bench -p testnet --bench harmonia [-- [--only NAME] [--out DIRECTORY]]
//! ```

use std::path::PathBuf;
use std::time::Duration;

use testnet::experiment::harmonia::{RunLength, slots};
use testnet::experiment::options::{ExperimentOptions, Scale};
use testnet::experiment::registry::{resolve, run};

fn main() {
    let (mut only, mut directory) = ("harmonia".to_owned(), std::env::temp_dir().join("harmonia"));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => only = words.next().expect("a name behind it"),
            "--out" => directory = words.next().map(PathBuf::from).expect("a directory behind it"),
            // `cargo test --benches` only checks that the program starts.
            "--test" => {
                return drop(slots::with_dirty(10, 1000, RunLength { lasts: Duration::from_millis(10), seed: 1 }));
            }
            // `cargo bench` adds it.
            "--bench" => {}
            _ => panic!("what is {word}?"),
        }
    }
    let experiments = resolve(&only);
    assert!(!experiments.is_empty(), "there is no {only}: see `scatter-testnet experiment list`");
    let options = ExperimentOptions { size: Scale::Default, seed: 1, jobs: 1, out: Some(directory.clone()) };
    for experiment in experiments {
        let results = run(experiment, &options, &|line| println!("{line}")).expect("it runs, and can be written there");
        println!("{results}\n");
    }
    println!("written to {}", directory.display());
}
