//! Networks on this machine.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Lab;

#[test]
fn a_network_lives_through_all_commands() {
    let lab = Lab::new();
    lab.write_local("sync", 5);
    assert!(lab.run("up", &["--dry-run"]).contains("5 peers in all"));
    assert_eq!(lab.processes(), [0; 0], "a dry run starts nothing");
    assert!(lab.run("up", &[]).contains("5 peers serve, 5 of them started now"));
    assert!(lab.run("up", &[]).contains("5 peers serve, 0 of them started now"), "the command may be repeated");
    let seen = lab.run("load", &["--minutes", "0.05", "--history", &lab.directory.join("h").display().to_string()]);
    assert!(seen.contains("linearizable, and no acknowledged write is missing"), "{seen}");
    assert!(lab.run("fault", &["pause", "here-1"]).contains("1 peers: here-1"));
    assert!(lab.run("fault", &["resume", "here"]).contains("5 peers:"));
    assert!(lab.run("fault", &["kill", "here-2"]).contains("here-2"));
    let seen = lab.run("status", &[]);
    assert!(seen.contains("4 serve, 0 start, 1 ended") && seen.contains("covers the ring exactly"), "{seen}");
    assert!(lab.run("up", &[]).contains("5 peers serve, 1 of them started now"), "a dead peer is started again");
    assert!(lab.run("logs", &["here-0"]).contains("INFO"));
    assert!(lab.run("run", &["--", "echo", "$((6 * 7))"]).contains("here: 42"));
    assert!(lab.run("down", &[]).contains("5 peers ended"));
    assert!(lab.run("down", &[]).contains("0 peers ended"), "the command may be repeated");
    assert!(lab.run("up", &[]).contains("5 peers serve, 5 of them started now"), "it goes on from its stores");
    let out = lab.directory.join("out").display().to_string();
    assert!(lab.run("collect", &[&out]).contains("the files of 1 hosts"));
    assert!(Path::new(&out).join("here/peers/here-4/log").exists());
    let made = Command::new(env!("CARGO_BIN_EXE_scatter-testnet")).args(["net", "report", &out]).output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let page = std::fs::read_to_string(Path::new(&out).join("report.html")).expect("it was written");
    assert!(page.matches("<svg").count() == 6, "all plots are in the page");
    assert!(lab.run("down", &["--wipe"]).contains("nothing is left"));
    assert_eq!(lab.processes(), [0; 0]);
    let left = std::fs::read_dir(lab.directory.join("state")).expect("it is there").count();
    assert_eq!(left, 0, "the state is wiped, too");
}

#[test]
fn a_schedule_is_saved_and_replayed() {
    let lab = Lab::new();
    lab.write_local("memory", 4);
    // The program may have any name here.
    let link = lab.directory.join("scatter-of-today");
    std::os::unix::fs::symlink(testnet::live::program(), &link).expect("a link can be made");
    lab.run("up", &["--program", &link.display().to_string()]);
    let file = lab.directory.join("schedule").display().to_string();
    let all = ["--lifetime", "10s", "--minutes", "0.1", "--seed", "3"];
    let planned = lab.run("churn", &[&all[..], &["--save", &file, "--dry-run"]].concat());
    let deaths: usize = planned.split(' ').next().and_then(|word| word.parse().ok()).expect("a number of deaths");
    assert!((1..20).contains(&deaths), "{planned}");
    let seen = lab.run("churn", &["--minutes", "0.1", "--replay", &file]);
    assert!(seen.contains(&format!("{deaths} deaths in")), "{seen}");
    assert!(lab.run("status", &[]).contains(".2 "), "successors have names of their own");
    lab.run("down", &[]);
    let seen = lab.run("up", &[]);
    assert!(seen.contains("a new network begins") && seen.contains("4 peers serve, 4 of them"), "{seen}");
}

#[test]
fn what_is_wrong_is_said_before_anything_is_started() {
    let lab = Lab::new();
    let first = lab.write_local("memory", 3);
    let taken = TcpListener::bind(("127.0.0.1", first + 4)).expect("it is free");
    let why = lab.refused("up", &[]);
    assert!(why.contains(&format!("another program listens at port {}", first + 4)), "{why}");
    drop(taken);
    let why = lab.refused("up", &["--program", "/nowhere/scatter"]);
    assert!(why.contains("/nowhere/scatter"), "{why}");
    let text = lab.directory.join("text");
    std::fs::write(&text, "no program").expect("a file can be written");
    let why = lab.refused("up", &["--program", &text.display().to_string()]);
    assert!(why.contains("does not run on this host"), "{why}");
    assert!(lab.refused("load", &[]).contains("is not up"));
    assert_eq!(lab.processes(), [0; 0]);
    lab.write("");
    assert!(lab.refused("up", &[]).contains("there are no hosts"));
}

#[test]
fn nothing_is_left_of_a_start_that_was_interrupted() {
    for after in [20, 150, 400, 900, 2_000] {
        let lab = Lab::new();
        lab.write_local("memory", 6);
        let mut up = lab.net("up", &[]).spawn().expect("the program can be started");
        std::thread::sleep(Duration::from_millis(after));
        up.kill().expect("it is a child");
        up.wait().expect("it was killed");
        // The host's part may need a moment to begin, or to end.
        std::thread::sleep(Duration::from_millis(300));
        lab.run("down", &["--wipe"]);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(lab.processes(), [0; 0], "interrupted after {after} ms");
    }
}
