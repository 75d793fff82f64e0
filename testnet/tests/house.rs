//! The house as it is built against the house as it is described: who may know whom, and the map of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Who may know whom; what is not here may not be.
const ARROWS: [(&str, &[&str]); 14] = [
    ("overlay", &[]),
    ("policy", &["overlay"]),
    ("group", &["overlay"]),
    ("node", &["overlay", "policy", "group", "header"]),
    ("load", &[]),
    ("screen", &[]),
    ("environment", &[]),
    ("peer", &["overlay", "group", "header", "node", "load", "screen", "environment", "chirp-app"]),
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
            "load",
            "screen",
            "environment",
            "peer",
            "chirp-app",
            "header",
            "switch",
        ],
    ),
    ("fuzz", &["overlay", "group", "header", "node", "peer"]),
    ("golden", &[]),
];

/// What their tests may know beside that: groups and nodes are tried with the real pipeline between them, and bytes are compared with
/// golden files.
const TESTS: [(&str, &[&str]); 4] =
    [("group", &["header", "switch"]), ("node", &["switch", "golden"]), ("header", &["golden"]), ("peer", &["golden"])];

/// The crates that know no sockets, clocks or threads.
const CORES: [&str; 5] = ["overlay", "policy", "group", "node", "header"];

/// What no core may rest on, however indirectly. `getrandom` stands for chance that no seed repeats.
const OUTSIDE: [&str; 8] = ["tokio", "libp2p", "sled", "tonic", "mio", "rustix", "getrandom", "async-std"];

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member lies in the workspace").to_owned()
}

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// What cargo knows of the workspace and all it rests on, as it is locked, on this platform.
fn metadata() -> Value {
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

/// Name and folder of each member.
fn members(metadata: &Value) -> BTreeMap<String, PathBuf> {
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
            // Also for builds, and mostly for tests: one that needs more belongs to a crate that may have more.
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
        // What is run when code is compiled (macros and what they rest on) is not part of what is compiled.
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

/// What stands in back-ticks, outside of blocks of code.
fn quoted(document: &str) -> Vec<&str> {
    let mut in_block = false;
    let prose = document.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !fence && !in_block
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether a word is meant as a path of this tree.
fn is_path(word: &str) -> bool {
    let ends = [".rs", ".toml", ".md", ".lock", "/"].iter().any(|end| word.ends_with(end));
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    plain && !word.starts_with('/') && (ends || word.contains('/'))
}

#[test]
fn the_map_of_the_code_is_true() {
    let root = root();
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("there is a map");
    let words = quoted(&map);
    for (name, folder) in members(&metadata()) {
        let folder = folder.strip_prefix(&root).expect("members lie in the tree").display().to_string();
        let named = words.iter().any(|word| word.trim_end_matches('/') == folder);
        assert!(named, "ARCHITECTURE.md does not name `{folder}/`, where {name} is");
    }
    let paths: BTreeSet<&str> = words.into_iter().filter(|word| is_path(word)).collect();
    assert!(paths.len() > 20, "a map names places, this one only {paths:?}");
    let missing: Vec<_> = paths.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
}

#[test]
fn documents_link_to_what_is_there() {
    let root = root();
    let pages = ["clients", "developing", "experiments", "operating", "performance", "switch"]
        .map(|name| format!("docs/{name}.md"));
    for document in ["README.md".to_owned()].into_iter().chain(pages) {
        let place = root.join(&document);
        let text = fs::read_to_string(&place).unwrap_or_else(|error| panic!("{document}: {error}"));
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let path = link.split('#').next().unwrap_or_default();
            let there = place.parent().expect("a folder").join(path).exists();
            assert!(there, "{document} links to {link}, which is not there");
        }
    }
    let readme = fs::read_to_string(root.join("README.md")).expect("just read");
    assert!(readme.lines().any(|line| line == "cargo test --workspace"), "CI takes the test command from the README");
}

/// The page about the experiments equals the output of its command for the files beside it.
#[test]
fn the_page_of_experiments_is_generated() {
    let docs = root().join("docs");
    let page = fs::read_to_string(docs.join("experiments.md")).expect("there is a page");
    let generated = testnet::experiment::report::report(&docs.join("experiments")).expect("its files are sound");
    assert!(page.trim_end() == generated.trim_end(), "write it anew: {}", page.lines().nth(2).unwrap_or_default());
}

#[test]
fn a_word_is_a_path_or_not() {
    for path in ["group/", "group/src/group.rs", "README.md", ".ci/run", "peer/src/net"] {
        assert!(is_path(path), "{path}");
    }
    for word in ["scatter", "(ballot, number)", "/healthz", "GET /x", "Output::Persist", "a/b c"] {
        assert!(!is_path(word), "{word}");
    }
}
