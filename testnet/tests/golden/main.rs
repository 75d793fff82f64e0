//! Golden scripts of transactions between groups (Scatter §4). Each script tells which machines are lost at which step, and the
//! expected story stands below it (`testnet/tests/testdata/transactions/`).
//!
//! Whole nodes play the scripts, in groups of several members with logs of their own, so that leaders can be lost. Each story
//! ends with one outcome of each transaction. Nothing is open or locked then, the ring is covered once, neighbours know each
//! other, and every key is read.

mod base;
mod defects;
mod entries;
mod every_step;
mod play;
mod script;
mod stage;
mod story;

use std::fs;

use group::config::Defects;

/// Plays all scripts of a file; with `SCATTER_GOLDEN=write`, writes their stories into the file.
fn golden(file: &str) {
    let mut scripts = script::read(file);
    let writes = std::env::var("SCATTER_GOLDEN").is_ok_and(|value| value == "write");
    let mut failures = Vec::new();
    for script in &mut scripts {
        let failure = match play::play(&script.commands(), Defects::NONE, 0) {
            Err((why, story)) => Some(format!("{why}\n{}", story.join("\n"))),
            Ok(story) if writes => {
                script.expected = story;
                None
            }
            Ok(story) if story == script.expected => None,
            Ok(story) => Some(script::difference(&script.expected, &story)),
        };
        let line = script.line;
        failures.extend(failure.map(|text| format!("{file}.txt:{line}: {}\n{text}", script.comments.join(" "))));
    }
    if writes {
        fs::write(script::path(file), script::write(&scripts)).expect("the file can be written");
    }
    assert!(
        failures.is_empty(),
        "{}\nrepeat with: cargo test -p testnet --test golden {file}\n\
         if the story is right: SCATTER_GOLDEN=write cargo test -p testnet --test golden {file}",
        failures.join("\n")
    );
}

#[test]
fn split() {
    golden("split");
}

#[test]
fn split_of_one() {
    golden("split_of_one");
}

#[test]
fn merge() {
    golden("merge");
}

#[test]
fn repartition() {
    golden("repartition");
}

#[test]
fn migrate() {
    golden("migrate");
}

#[test]
fn repair() {
    golden("repair");
}

const FILES: [&str; 6] = ["split", "split_of_one", "merge", "repartition", "migrate", "repair"];

/// More seeds show nothing more.
const CHANCES_MAX: u64 = 10;

/// Number of other seeds with which the scripts are played.
fn chances() -> u64 {
    let seeds = std::env::var("SCATTER_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    seeds.unwrap_or(1).min(CHANCES_MAX)
}

/// Each file is played by a test of its own.
#[test]
fn all_files_are_played() {
    let folder = fs::read_dir(script::path("split").parent().expect("it lies in a folder")).expect("it is there");
    let mut found: Vec<String> =
        folder.map(|file| file.expect("it is there").file_name().into_string().expect("text")).collect();
    found.sort_unstable();
    let mut named: Vec<String> = FILES.iter().map(|file| format!("{file}.txt")).collect();
    named.sort_unstable();
    assert_eq!(found, named);
}

/// Stories tell the steps of the protocol, not their speed: with other seeds they are the same.
#[test]
fn stories_do_not_depend_on_chance() {
    let mut failures = Vec::new();
    for file in FILES {
        for script in script::read(file) {
            for chance in 1..=chances() {
                let failure = match play::play(&script.commands(), Defects::NONE, chance) {
                    Err((why, story)) => format!("{why}\n{}", story.join("\n")),
                    Ok(story) if story == script.expected => continue,
                    Ok(story) => script::difference(&script.expected, &story),
                };
                failures.push(format!("{file}.txt:{}, with chance {chance}:\n{failure}", script.line));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
