//! The allowed dependencies between crates, and those of the cores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::root;

/// The allowed dependencies between crates; no other one may exist.
const ARROWS: [(&str, &[&str]); 17] = [
    ("overlay", &[]),
    ("policy", &["overlay"]),
    ("group", &["overlay"]),
    ("node", &["overlay", "policy", "group", "header"]),
    ("load", &[]),
    ("screen", &[]),
    ("environment", &[]),
    ("net", &["overlay", "node", "environment"]),
    ("store", &["overlay", "node", "environment"]),
    ("peer", &["overlay", "group", "header", "node", "net", "store", "load", "environment"]),
    ("cli", &["overlay", "group", "node", "store", "peer", "load", "screen", "environment", "chirp-app"]),
    ("chirp-app", &["screen", "environment"]),
    ("header", &[]),
    ("switch", &["header", "environment"]),
    (
        "testnet",
        &[
            "overlay",
            "policy",
            "group",
            "node",
            "net",
            "store",
            "load",
            "screen",
            "environment",
            "peer",
            "cli",
            "chirp-app",
            "header",
            "switch",
        ],
    ),
    ("fuzz", &["overlay", "group", "header", "node", "net", "store", "peer"]),
    ("golden", &[]),
];

/// Further allowed dependencies of tests: groups and nodes are tested with the real pipeline between them, and bytes are
/// compared with golden files.
const TESTS: [(&str, &[&str]); 6] = [
    ("group", &["header", "switch"]),
    ("node", &["switch", "golden"]),
    ("header", &["golden"]),
    ("net", &["group", "load", "golden"]),
    ("store", &["golden"]),
    ("peer", &["golden"]),
];

/// The crates without sockets, clocks and threads.
const CORES: [&str; 5] = ["overlay", "policy", "group", "node", "header"];

/// Crates on which no core may depend, however indirectly. `getrandom` stands for randomness that no seed repeats.
const OUTSIDE: [&str; 8] = ["tokio", "libp2p", "sled", "tonic", "mio", "rustix", "getrandom", "async-std"];

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns cargo's metadata of the workspace and all its dependencies, as they are locked, on this platform.
pub fn metadata() -> Value {
    let version = String::from_utf8(cargo(&["-vV"])).expect("cargo writes text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo knows where it runs");
    let json = cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform", host]);
    serde_json::from_slice(&json).expect("cargo writes JSON")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// Returns the name and the folder of each member of the workspace.
pub fn members(metadata: &Value) -> BTreeMap<String, PathBuf> {
    let ids: BTreeSet<&str> = list(metadata, "workspace_members").iter().filter_map(Value::as_str).collect();
    let packages = list(metadata, "packages").iter().filter(|package| ids.contains(text(package, "id")));
    let folder = |package| Path::new(text(package, "manifest_path")).parent().expect("a folder").to_owned();
    packages.map(|package| (text(package, "name").to_owned(), folder(package))).collect()
}

#[test]
fn crates_know_only_whom_they_may() {
    let metadata = metadata();
    let members = members(&metadata);
    let named: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(members.keys().map(String::as_str).collect::<BTreeSet<_>>(), named, "every member has its arrows here");
    for package in list(&metadata, "packages").iter().filter(|package| members.contains_key(text(package, "name"))) {
        let name = text(package, "name");
        let (_, allowed) = ARROWS.iter().find(|(from, _)| *from == name).expect("just compared");
        for dependency in list(package, "dependencies") {
            // Also for builds, and mostly for tests: a test that needs more belongs to a crate that may have more.
            let on = text(dependency, "name");
            let tests = TESTS.iter().filter(|(from, _)| *from == name && dependency["kind"] == "dev");
            let is_tests = tests.flat_map(|(_, more)| *more).any(|more| *more == on);
            assert!(
                !members.contains_key(on) || allowed.contains(&on) || is_tests,
                "{name} may not depend on {on}; if it should, say so in ARCHITECTURE.md and here"
            );
        }
    }
}

#[test]
fn nothing_a_core_rests_on_touches_the_outside() {
    let metadata = metadata();
    let names: BTreeMap<&str, &str> =
        list(&metadata, "packages").iter().map(|package| (text(package, "id"), text(package, "name"))).collect();
    let edges: BTreeMap<&str, Vec<&str>> = list(&metadata["resolve"], "nodes")
        .iter()
        .map(|node| {
            let normal = |dependency: &&Value| list(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null());
            let on = list(node, "deps").iter().filter(normal).map(|dependency| text(dependency, "pkg"));
            (text(node, "id"), on.collect())
        })
        .collect();
    for core in CORES {
        let (start, _) = names
            .iter()
            .find(|(id, name)| {
                **name == core && list(&metadata, "workspace_members").iter().any(|member| member == **id)
            })
            .expect("a core is a member");
        // Code that runs during compilation (macros and their dependencies) is no part of the compiled program.
        let is_macro = |id: &str| {
            let package = list(&metadata, "packages").iter().find(|package| text(package, "id") == id);
            package
                .is_some_and(|package| list(package, "targets").iter().any(|target| target["kind"][0] == "proc-macro"))
        };
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![*start]);
        while let Some(id) = waiting.pop() {
            if is_macro(id) || !seen.insert(id) {
                continue;
            }
            assert!(!OUTSIDE.contains(&names[id]), "{core} rests on {}", names[id]);
            waiting.extend(edges[id].iter().copied());
        }
        assert!(seen.len() > 1, "{core} rests on something");
    }
}

#[test]
fn cores_have_no_std() {
    let members = members(&metadata());
    for core in CORES {
        let file = members[core].join("src/lib.rs");
        let source = fs::read_to_string(&file).expect("a core has a lib.rs");
        assert!(source.lines().any(|line| line == "#![no_std]"), "{} is not no_std", file.display());
        assert!(!source.contains("extern crate std"), "{} takes std back", file.display());
    }
}
