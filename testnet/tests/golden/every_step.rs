//! Each operation, with the loss of each group and of each leader at each of its steps (Scatter §4.3). The properties at the
//! end of every story must hold. The files contain the stories that are worth reading.

use group::config::{Defect, Defects};

use super::play;

/// Plays all losses with some rules left out. Returns their number, and a description of each failure.
fn losses(ring: &str, asked: &str, defects: Defects) -> (usize, Vec<String>) {
    let steps = play::steps(ring, asked).expect("it can be asked for");
    let (mut played, mut failures) = (0, Vec::new());
    for (mark, groups) in steps {
        for group in groups {
            for who in [format!("{group}.leader"), group] {
                let (ring, until, crash) = (format!("ring {ring}"), format!("until {mark}"), format!("crash {who}"));
                let commands = [&ring, asked, &until, &crash, "run 5s", "stabilize"].map(str::to_owned);
                played += 1;
                if let Err((why, story)) = play::play(&commands, defects, 0) {
                    failures.push(format!("{}\n{why}\n{}", commands.join("; "), story.join("\n")));
                }
            }
        }
    }
    (played, failures)
}

/// Asserts that all losses end well, and that there are at least `least` of them.
fn every_loss(ring: &str, asked: &str, least: usize) {
    let (played, failures) = losses(ring, asked, Defects::NONE);
    println!("{asked} in a ring of {ring}: {played} losses");
    assert!(failures.is_empty(), "{} of {played}:\n{}", failures.len(), failures.join("\n\n"));
    assert!(played >= least, "only {played}");
}

/// These stories have no texts that could differ; failures show all the same.
#[test]
fn what_is_left_out_shows_without_a_text() {
    for defect in [Defect::VoteBeforeChosen, Defect::TrustOwnCopy] {
        let (played, failures) = losses("2", "merge g1", Defects::NONE.with(defect));
        println!("{defect:?}: {} of {played}", failures.len());
        assert!(!failures.is_empty(), "{defect:?}");
    }
}

#[test]
fn of_a_split() {
    every_loss("3", "split g2 at=60 first=2b,2c", 100);
}

#[test]
fn of_a_split_of_all_there_is() {
    every_loss("1 of 5", "split g1 at=60 first=1b,1c", 20);
}

#[test]
fn of_a_merge() {
    every_loss("4", "merge g2", 100);
}

#[test]
fn of_a_merge_of_all_there_is() {
    every_loss("2", "merge g1", 50);
}

#[test]
fn of_a_boundary_that_moves_down() {
    every_loss("4", "repartition g2 at=60", 100);
}

#[test]
fn of_a_boundary_that_moves_up() {
    every_loss("3", "repartition g2 at=90", 100);
}

#[test]
fn of_members_that_are_traded() {
    every_loss("4", "migrate g2 to=2b from=3b", 100);
}
