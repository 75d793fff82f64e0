//! Names that are taken, and laboratories that end in every way: nothing is left of them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{lab, name, plan};
use crate::lab::build::{file_of, run};
use crate::lab::state::{LabState, StateEntry, directory};
use crate::lab::{Lab, LabPlan, PathMode, missing};

const TWO: &str = "latency = { model = 'constant', one_way_ms = 1 }
hosts = [{ name = 'a' }, { name = 'b', nat = 'double' }]";

/// Returns everything on this machine that has the name of a laboratory.
fn left(name: &str) -> Vec<PathBuf> {
    let prefix = format!("scatter-{name}-");
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_its = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&prefix));
    let mut all: Vec<PathBuf> = entries.filter(is_its).collect();
    all.extend(Some(directory(name)).filter(|directory| directory.exists()));
    all
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let Some(first) = lab(plan("taken", TWO)) else { return };
    let name = name("taken");
    let refused = Lab::build(plan("taken", TWO), &PathMode::Thread).expect_err("the name is taken");
    assert!(refused.contains(&name) && refused.contains("lab down"), "{refused}");
    first.tell("stats").expect("the first one goes on");
    assert_eq!(left(&name).len(), 5, "two hosts, two routers and the state");
    assert!(Lab::names().contains(&name));
    drop(first);
    assert!(left(&name).is_empty(), "{:?}", left(&name));
    Lab::destroy(&name).expect("there is none, which is no error");
    assert!(Lab::open(&name).expect_err("it is gone").contains("there is no laboratory"));
}

#[test]
fn a_namespace_of_another_maker_is_refused_and_stays() {
    let plan = plan("foreign", TWO);
    if let Some(why) = missing(&plan) {
        return eprintln!("SKIPPED: {why}");
    }
    let (lab, foreign) = (plan.name.clone(), format!("scatter-{}-b", plan.name));
    run(Command::new("ip").args(["netns", "add", &foreign]), "").expect("a namespace");
    let refused = Lab::build(plan, &PathMode::Thread).map(drop);
    let rest = left(&lab);
    run(Command::new("ip").args(["netns", "del", &foreign]), "").expect("no namespace");
    assert!(refused.expect_err("taken").contains(&format!("ip netns del {foreign}")));
    assert_eq!(rest, [file_of(&foreign)]);
}

#[test]
fn a_half_made_laboratory_is_removed() {
    let plan = plan("half", TWO);
    if let Some(why) = missing(&plan) {
        return eprintln!("SKIPPED: {why}");
    }
    let name = plan.name.clone();
    let mut state = LabState::begin(&plan).expect("a state");
    let [made, planned] = ["a", "b"].map(|host| format!("scatter-{name}-{host}"));
    state.enter(&StateEntry::Namespace(made.clone())).expect("an entry");
    run(Command::new("ip").args(["netns", "add", &made]), "").expect("a namespace");
    state.enter(&StateEntry::Namespace(planned)).expect("an entry");
    assert!(Lab::destroy(&name).expect_err("its builder lives").contains("being built"));
    drop(state);
    assert!(Lab::open(&name).expect_err("not ready").contains("not built to the end"));
    Lab::destroy(&name).expect("nothing is left");
    assert!(left(&name).is_empty(), "{:?}", left(&name));
}

/// Name of the variable that has the plan of [`builds_until_it_is_killed`].
const PLAN: &str = "SCATTER_LAB_TEST_PLAN";

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "another test starts it"]
fn builds_until_it_is_killed() {
    let Ok(text) = std::env::var(PLAN) else { return };
    let lab = Lab::build(LabPlan::parse(&text).expect("a plan"), &PathMode::Thread).expect("a laboratory");
    std::thread::sleep(Duration::from_secs(600));
    drop(lab);
}

#[test]
fn nothing_is_left_of_a_builder_that_is_killed() {
    let plan = plan("killed", TWO);
    if let Some(why) = missing(&plan) {
        return eprintln!("SKIPPED: {why}");
    }
    let text = serde_json::to_string(&plan).expect("JSON");
    let this = std::env::current_exe().expect("this program");
    for millis in [0, 10, 20, 30, 45, 60, 80, 100, 150, 200, 400] {
        let mut child = Command::new(&this)
            .args(["--exact", "lab::tests::ends::builds_until_it_is_killed", "--ignored"])
            .env(PLAN, &text)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a builder");
        let begun = Instant::now();
        while !directory(&plan.name).exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "a builder begins");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().expect("a kill");
        child.wait().expect("an end");
        let made = left(&plan.name).len();
        // A program that the builder had started may still make its namespace.
        std::thread::sleep(Duration::from_millis(50));
        Lab::destroy(&plan.name).expect("all of it can be removed");
        println!("after {millis} ms: {made} things were made");
        assert!(left(&plan.name).is_empty(), "after {millis} ms: {:?}", left(&plan.name));
    }
}
