//! Rules that are left out, each with a script that shows the defect: its story changes, or it does not end well.

use std::panic::{AssertUnwindSafe, catch_unwind};

use group::config::{Defect, Defects};

use super::{play, script};

/// A rule, a file, and words of the script's comment that occur in no other comment of the file.
const SHOWN: [(Defect, &str, &str); 10] = [
    (Defect::AnyGeneration, "merge", "is not what it was when it was planned"),
    (Defect::NoLocks, "merge", "g1 merges with g2 while g2 merges with g3"),
    (Defect::OneVote, "split", "all of a participant is lost before it has voted"),
    (Defect::NotInherited, "merge", "what came of a coordinator tells its outcome"),
    (Defect::Unheard, "split", "Nothing is born of the dead"),
    (Defect::VoteBeforeChosen, "split", "its vote is on its way to be chosen"),
    (Defect::OutcomeBeforeChosen, "split", "its outcome is on its way to be chosen"),
    (Defect::AnyAttempt, "split", "leftovers of the first attempt"),
    (Defect::ByArrival, "migrate", "Its neighbour keeps to the newer word"),
    (Defect::ToldOnce, "repartition", "all of who gains is gone when it has voted"),
];

#[test]
fn what_is_left_out_is_shown() {
    let mut missed = Vec::new();
    for (defect, file, words) in SHOWN {
        let meant = |script: &script::Script| script.comments.join(" ").contains(words);
        let scripts: Vec<script::Script> = script::read(file).into_iter().filter(meant).collect();
        let [script] = scripts.as_slice() else { panic!("{} scripts of {file}.txt say {words}", scripts.len()) };
        let defects = Defects::NONE.with(defect);
        let played = catch_unwind(AssertUnwindSafe(|| play::play(&script.commands(), defects, 0)));
        match played {
            Err(_) => println!("{defect:?}: it panics"),
            Ok(Err((why, _))) => println!("{defect:?}: {why}"),
            Ok(Ok(story)) if story != script.expected => {
                println!("{defect:?}:\n{}", script::difference(&script.expected, &story));
            }
            Ok(Ok(_)) => missed.push((defect, file, script.line)),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// A script with a mistake in a command fails.
#[test]
fn mistakes_in_scripts_fail() {
    let mistakes = [
        ("splti g2 at=60 first=2b; stabilize", "no such command"),
        ("split g2 at=60 first=2b second=2a; stabilize", "no second"),
        ("split g2 at=6x first=2b; stabilize", "no place"),
        ("split g2 at=60 first=2d; stabilize", "no 2d"),
        ("ring 9; stabilize", "no ring"),
        ("crash g4; stabilize", "no group g4"),
        ("crash g2.chief; stabilize", "no chief"),
        ("crash 2a; crash 2a; stabilize", "does not run"),
        ("restart 2a; stabilize", "runs"),
        ("crash g2; merge g2; stabilize", "nobody leads g2"),
        ("merge g2", "ends with stabilize"),
        ("merge g2; until g1 begins; stabilize", "never came"),
        ("merge g2; until g1 vote; stabilize", "never came"),
        ("lose votes g1>g2; stabilize", "nobody says votes"),
        ("lose vote g1>g2; stabilize", "nobody said that"),
        ("release; stabilize", "nothing is held up"),
        ("heal; stabilize", "nobody is cut off"),
        ("let vote g1>g2; stabilize", "nothing stands"),
        ("run 5; stabilize", "how many seconds"),
    ];
    for (text, words) in mistakes {
        let scripts = script::parse(&format!("# What it is for.\n{text}\n----\n")).expect("it is a script");
        match play::play(&scripts[0].commands(), Defects::NONE, 0) {
            Err((why, _)) => assert!(why.contains(words), "{text}: {why}"),
            Ok(story) => panic!("{text}: {story:?}"),
        }
    }
    for text in ["merge g2\nstabilize\n----\n", "# Why.\nstabilize\n", "# Why.\nstabilize\n# Why.\n----\n"] {
        assert!(script::parse(text).is_err(), "{text}");
    }
}
