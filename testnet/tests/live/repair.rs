//! A group is lost, declared lost by hand, and comes back: no daemon serves its data, and a command saves the remaining
//! records.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;
use testnet::live::{Cluster, ClusterOptions, Reply, SLACK};

const DAEMONS: usize = 6;
const KEYS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(40);

#[test]
fn a_lost_range_is_taken_over_by_hand() {
    let flags = ["--min-group", "1", "--max-group", "6", "--max-memory", "64MiB"].map(str::to_owned).to_vec();
    let options = ClusterOptions { daemons: DAEMONS, flags, ring: true, ..ClusterOptions::default() };
    let mut cluster = Cluster::start("repair", &options);
    wait(&cluster, "one group of all", |cluster| {
        group(cluster, 0)["members"].as_array().map(Vec::len) == Some(DAEMONS)
    });
    run(&cluster, 0, &["group", "split"], 0);
    wait(&cluster, "two groups", |cluster| members(cluster, &id(cluster, 0)).len() == DAEMONS / 2);
    (0..KEYS).for_each(|n| set(&cluster, 0, &key(n), "old"));

    // The ring has two groups: each lies before the other.
    let (behind, lost) = (0, (1..DAEMONS).find(|index| id(&cluster, *index) != id(&cluster, 0)).expect("two groups"));
    let (own, lost) = (id(&cluster, behind), id(&cluster, lost));
    let gone = members(&cluster, &lost);
    let told = run(&cluster, behind, &["group", "repair", "--lost", &lost], 4);
    assert!(told.contains("nothing is lost"), "{told}");
    let names: Vec<String> = gone.iter().map(|index| peer(&cluster, *index)).collect();
    gone.iter().for_each(|index| cluster.kill(*index));
    wait(&cluster, "what nobody serves is named, with its last members", |cluster| {
        let told = run(cluster, behind, &["ring"], 1);
        let line = told.lines().find(|line| line.starts_with("no answer:"));
        line.is_some_and(|line| line.contains(&lost) && names.iter().all(|name| line.contains(&name[name.len() - 6..])))
    });
    let told = run(&cluster, behind, &["group", "repair"], 2);
    assert!(told.contains(&format!("--lost {lost}")) && told.contains("50.00 %"), "{told}");
    let told = run(&cluster, behind, &["group", "repair", "--lost", &own], 4);
    assert!(told.contains("not among the groups declared lost"), "{told}");
    run(&cluster, behind, &["group", "repair", "--lost", &lost], 0);
    let told = run(&cluster, behind, &["ring"], 0);
    assert!(told.contains("1 group covers the ring exactly"), "{told}");
    wait(&cluster, "the loss is told of", |cluster| run(cluster, behind, &["groups"], 0).contains("declared at"));

    let kept: BTreeSet<usize> = (0..KEYS).filter(|n| get(&cluster, behind, &key(*n)).is_some()).collect();
    assert!((1..KEYS).contains(&kept.len()), "{} of {KEYS} keys are there", kept.len());
    let missing: Vec<usize> = (0..KEYS).filter(|n| !kept.contains(n)).collect();
    set(&cluster, behind, &key(missing[0]), "new");

    gone.iter().for_each(|index| cluster.restart(*index));
    wait(&cluster, "all are in one group", |cluster| {
        cluster
            .all()
            .into_iter()
            .all(|index| id(cluster, index) == own && aside(cluster, index).is_none() != gone.contains(&index))
    });
    for index in cluster.all() {
        cluster.wait_ready(index);
        assert_eq!(get(&cluster, index, &key(missing[0])).as_deref(), Some("new"), "{index}");
        assert_eq!(get(&cluster, index, &key(missing[1])), None, "{index}");
    }
    check_export(&cluster, gone[0], &missing);
}

/// Checks that the store that a daemon put aside has all that is left of the missing keys.
fn check_export(cluster: &Cluster, index: usize, missing: &[usize]) {
    let store = aside(cluster, index).expect("just seen").to_string_lossy().into_owned();
    let lines = run(cluster, index, &["export", &store], 0);
    let saved: BTreeSet<String> = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|told| told["value"] == "old" && told["chosen"].is_boolean())
        .filter_map(|told| told["key"].as_str().map(str::to_owned))
        .collect();
    assert!(missing.iter().all(|n| saved.contains(&key(*n))), "{lines}");
    let commands = run(cluster, index, &["export", "--output", "resp", &store], 0);
    assert!(commands.contains(&format!("\r\n{}\r\n$3\r\nold\r\n$2\r\nNX\r\n", key(missing[1]))), "{commands}");
    let told = run(cluster, index, &["export", "/nowhere"], 4);
    assert!(told.contains("no store"), "{told}");
}

fn key(n: usize) -> String {
    format!("key-{n}")
}

/// Returns the group that a daemon is a member of.
fn group(cluster: &Cluster, index: usize) -> Value {
    let said = cluster.daemons[index].ask_http("/v1/groups").unwrap_or_default();
    let groups = said["groups"].as_array().cloned().unwrap_or_default();
    groups.into_iter().find(|group| group["part"] == "member").unwrap_or_default()
}

fn id(cluster: &Cluster, index: usize) -> String {
    group(cluster, index)["id"].as_str().unwrap_or_default().to_owned()
}

/// Returns a daemon's peer id.
fn peer(cluster: &Cluster, index: usize) -> String {
    let said = cluster.daemons[index].ask_http("/v1/status").unwrap_or_default();
    said["peer_id"].as_str().unwrap_or_default().to_owned()
}

fn members(cluster: &Cluster, group: &str) -> Vec<usize> {
    cluster.all().into_iter().filter(|index| id(cluster, *index) == group).collect()
}

/// Returns the store that a daemon has put aside.
fn aside(cluster: &Cluster, index: usize) -> Option<PathBuf> {
    let entries = std::fs::read_dir(&cluster.daemons[index].directory).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with(".lost-1"))
}

fn wait(cluster: &Cluster, what: &str, until: impl Fn(&Cluster) -> bool) {
    let end = Instant::now() + PATIENCE * SLACK;
    while !until(cluster) {
        assert!(Instant::now() < end, "it never comes to this: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Returns the output of a command, on either stream.
fn run(cluster: &Cluster, index: usize, arguments: &[&str], code: i32) -> String {
    let Output { status, stdout, stderr } = cluster.daemons[index].run(arguments);
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(code), "{arguments:?}: {said}");
    said
}

fn set(cluster: &Cluster, index: usize, key: &str, value: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut connection = cluster.daemons[index].connect(PATIENCE).expect("a connection");
        match connection.call(&["SET", key, value]) {
            Ok(Reply::Simple(_)) => return,
            other => assert!(Instant::now() < end, "{other:?}"),
        }
    }
}

fn get(cluster: &Cluster, index: usize, key: &str) -> Option<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut connection = cluster.daemons[index].connect(PATIENCE).expect("a connection");
        match connection.call(&["GET", key]) {
            Ok(Reply::Bulk(value)) => return value.map(|value| String::from_utf8_lossy(&value).into_owned()),
            other => assert!(Instant::now() < end, "{other:?}"),
        }
    }
}
