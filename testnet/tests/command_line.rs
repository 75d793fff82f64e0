//! The `scatter-testnet` program as a script runs it: variables of the environment, and output that cannot be printed.

use std::process::{Command, Stdio};

fn testnet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scatter-testnet"));
    command.env_remove("SCATTER_BIN").args(arguments).stdin(Stdio::null());
    command
}

/// `--seconds inf` is refused once the daemon is found, before any measurement.
#[test]
fn an_empty_variable_is_unset_and_a_wrong_one_is_named() {
    let bench = |daemon: &str| {
        let output = testnet(&["bench", "--seconds", "inf"]).env("SCATTER_BIN", daemon).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let empty = bench("");
    assert!(empty.contains("--seconds") || empty.contains("beside this program"), "{empty}");
    let wrong = bench("/nowhere/at/all");
    assert!(wrong.contains("/nowhere/at/all") && wrong.contains("SCATTER_BIN"), "{wrong}");
    let there = bench(env!("CARGO_BIN_EXE_scatter-testnet"));
    assert!(there.contains("--seconds"), "{there}");
}

#[test]
fn what_cannot_be_printed_ends_with_74() {
    for arguments in [&["--help"][..], &["--version"], &["sim", "--small", "--nodes", "3"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = testnet(arguments).stdout(writer).output().unwrap();
        assert_eq!(closed.status.code(), Some(74), "{arguments:?}");
        assert!(closed.stderr.is_empty(), "whoever closed the pipe has seen enough: {closed:?}");
    }
}

/// Bad settings end the program before a daemon is started.
#[test]
fn churn_refuses_what_it_cannot_run() {
    for (arguments, named) in [
        (&["--lifetime", "0"][..], "--lifetime"),
        (&["--lifetime", "5x"], "--lifetime"),
        (&["--local", "0"], "--local"),
        (&["--keys", "0"], "--keys"),
        (&["--durability", "disk"], "--durability"),
        (&["--program", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["--minutes", "0", "--program", "/bin/true"], "--minutes"),
        (&["--rate", "nan", "--program", "/bin/true"], "--rate"),
    ] {
        let refused = testnet(&[&["churn"], arguments].concat()).output().unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(named), "{arguments:?}: {told}");
    }
    // A daemon that ends at once is reported, and nothing of the run is left.
    let work = std::env::temp_dir().join(format!("churn-test-{}", std::process::id()));
    let arguments = ["churn", "--program", "/bin/false", "--work"];
    let ended = testnet(&arguments).arg(&work).output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("peer-0 ended by itself"), "{told}");
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    std::fs::remove_dir(&work).unwrap();
}

/// The refusal of a name lists all names; `list` prints one line each.
#[test]
fn experiments_are_known_by_name() {
    let refused = testnet(&["experiment", "churn-ponzi"]).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    let list = testnet(&["experiment", "list"]).output().unwrap();
    assert_eq!(list.status.code(), Some(0));
    let list = String::from_utf8(list.stdout).unwrap();
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"fine-coarse") && names.contains(&"harmonia") && names.contains(&"all"), "{list}");
    assert!(names.iter().all(|name| told.contains(name)), "{told}");
}

/// Arguments that contradict each other are refused before any run.
#[test]
fn experiments_refuse_what_they_cannot_run() {
    for (arguments, named) in [
        (&["fine-coarse", "--quick", "--full"][..], "--full"),
        (&["fine-coarse", "--jobs", "0"], "--jobs"),
        (&["fine-coarse", "results"], "--out"),
        (&["report"], "report DIR"),
    ] {
        let refused = testnet(&[&["experiment"], arguments].concat()).output().unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(named), "{arguments:?}: {told}");
    }
    let empty = testnet(&["experiment", "report", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(empty.status.code(), Some(1));
    assert!(String::from_utf8(empty.stderr).unwrap().contains("/nowhere/at/all"));
}

/// Refusals of the laboratory say how to go on, with or without the right to build one.
#[test]
fn the_laboratory_refuses_with_advice() {
    let plan = std::env::temp_dir().join(format!("lab-test-{}.toml", std::process::id()));
    std::fs::write(&plan, "name = 'x'\nlatency = { model = 'planet' }\nhosts = [{ name = 'a', behind = 'r' }]")
        .unwrap();
    let file = plan.display().to_string();
    for (arguments, code, named) in [
        (&["up", &file][..], 1, "behind names a router"),
        (&["up", "/nowhere/at/all"], 1, "/nowhere/at/all"),
        (&["exec", "no-such-lab", "a", "--", "true"], 1, "there is no laboratory"),
        (&["exec", "no-such-lab", "a"], 2, "CMD"),
        (&["fault", "no-such-lab", "heal"], 1, "no-such-lab"),
        (&["measure", "../x"], 1, "is no name"),
        (&["measure", "x", "--samples", "0"], 2, "--samples"),
        (&["down", "no-such-lab"], 0, ""),
    ] {
        let refused = testnet(&[&["lab"], arguments].concat()).output().unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(named), "{arguments:?}: {told}");
    }
    std::fs::remove_file(&plan).unwrap();
}

/// The path is a process of its own, and a command in a host ends with the laboratory.
#[test]
fn a_laboratory_stays_until_it_is_taken_down() {
    let name = format!("t{}-stays", std::process::id());
    let text = format!(
        "name = '{name}'\nlatency = {{ model = 'constant', one_way_ms = 1 }}\n\
         hosts = [{{ name = 'a', site = 'p' }}, {{ name = 'b', site = 'q' }}]"
    );
    if let Some(why) = testnet::lab::missing(&testnet::lab::LabPlan::parse(&text).unwrap()) {
        return eprintln!("SKIPPED: {why}");
    }
    let plan = std::env::temp_dir().join(format!("{name}.toml"));
    std::fs::write(&plan, text).unwrap();
    let run = |arguments: &[&str]| {
        let output = testnet(&[&["lab"], arguments].concat()).output().unwrap();
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), told)
    };
    let up = run(&["up", &plan.display().to_string()]);
    assert!(up.0, "{}", up.1);
    let inside = run(&["exec", &name, "a", "--", "ip", "-o", "address"]);
    assert!(inside.0 && inside.1.contains("5.0.1.1/32") && !inside.1.contains("5.0.2.1"), "{}", inside.1);
    let mut long = testnet(&["lab", "exec", &name, "b", "--", "sleep", "600"]).spawn().unwrap();
    let measured = run(&["measure", &name, "--samples", "5"]);
    assert!(measured.0 && measured.1.contains("a to b") && measured.1.contains("b to a"), "{}", measured.1);
    let (is_refused, told) = run(&["fault", &name, "cut", "a", "c"]);
    assert!(!is_refused && told.contains("there are: *, @p, @q, a, b"), "{told}");
    assert_eq!(run(&["fault", &name, "cut", "@p", "*"]), (true, "ok\n".into()));
    let (_, status) = run(&["status", &name]);
    assert!(status.contains("\"links_cut\":1") && status.contains("5.0.2.1"), "{status}");
    assert_eq!(run(&["down", &name]), (true, String::new()));
    assert!(!long.wait().unwrap().success(), "the command in the host was ended");
    assert!(!run(&["status", &name]).0);
    let left = std::fs::read_dir("/run/netns").unwrap().flatten();
    assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(&name)));
    std::fs::remove_file(&plan).unwrap();
}
