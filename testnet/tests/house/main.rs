//! Checks of the workspace against its description: the allowed dependencies, the map of the code, and the citations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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

/// Returns the root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member lies in the workspace").to_owned()
}

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns cargo's metadata of the workspace and all its dependencies, as they are locked, on this platform.
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

/// Returns the name and the folder of each member of the workspace.
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

/// Returns the texts in back-ticks, outside of blocks of code.
fn quoted(document: &str) -> Vec<&str> {
    let mut in_block = false;
    let prose = document.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !fence && !in_block
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Returns whether a word is meant as a path of this tree.
fn is_path(word: &str) -> bool {
    let ends = [".rs", ".toml", ".md", ".lock", "/"].iter().any(|end| word.ends_with(end));
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    plain && !word.starts_with('/') && (ends || word.contains('/'))
}

/// Upper limit of the map, in bytes: a reader should finish it in one sitting.
const MAP_BYTES_MAX: u64 = 20_480;

/// Returns the names of the documents in a folder, with the folder.
fn pages_in(folder: &str) -> Vec<String> {
    let files = fs::read_dir(root().join(folder)).expect("there are documents");
    let names = files.map(|file| file.expect("it is there").file_name().into_string().expect("text"));
    names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")).collect()
}

/// Returns the paths that a document names in back-ticks.
fn named_paths(document: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
    quoted(&text).into_iter().filter(|word| is_path(word)).map(str::to_owned).collect()
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
    let paths = named_paths("ARCHITECTURE.md");
    assert!(paths.len() > 20, "a map names places, this one only {paths:?}");
    let pages = pages_in("docs/design");
    assert!(pages.len() >= 10, "{pages:?}");
    let others = ["ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned);
    for document in others.into_iter().chain(pages) {
        let paths = named_paths(&document);
        assert!(!paths.is_empty(), "{document} names no source file");
        let missing: Vec<_> = paths.iter().filter(|path| !root.join(path).exists()).collect();
        assert!(missing.is_empty(), "{document} names paths that do not exist: {missing:?}");
    }
}

#[test]
fn the_map_of_the_code_is_short() {
    let bytes = fs::metadata(root().join("ARCHITECTURE.md")).expect("there is a map").len();
    assert!(bytes <= MAP_BYTES_MAX, "ARCHITECTURE.md has {bytes} bytes: details belong to docs/design/");
}

#[test]
fn documents_link_to_what_is_there() {
    let root = root();
    let pages = [pages_in("docs"), pages_in("docs/design")].concat();
    assert!(pages.len() >= 19, "{pages:?}");
    let at_the_root =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"];
    for document in at_the_root.map(str::to_owned).into_iter().chain(pages) {
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

/// Returns all texts of the tree, with their paths: sources, documents, and test data.
fn texts() -> Vec<(PathBuf, String)> {
    let (mut folders, mut found) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_text = ["rs", "md", "txt", "toml"].iter().any(|end| path.extension().is_some_and(|is| is == *end));
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.is_file() && is_text {
                found.extend(fs::read_to_string(&path).ok().map(|text| (path, text)));
            }
        }
    }
    assert!(found.len() > 500, "{} texts", found.len());
    found
}

/// Returns the numbers that follow each use of a word: `hazards 1-3, 5` names 1, 2, 3 and 5.
fn cited_numbers(text: &str, word: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices(word) {
        let rest = text[at + word.len()..].trim_start_matches('s');
        let Some(mut rest) = rest.strip_prefix(' ') else { continue };
        let mut last: Option<(u32, bool)> = None;
        loop {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let Ok(number) = rest[..digits].parse::<u32>() else { break };
            match last {
                Some((from, true)) => all.extend(from + 1..=number),
                _ => all.push(number),
            }
            rest = &rest[digits..];
            let next = ["-", ", ", " and "].into_iter().find(|between| rest.starts_with(between));
            let Some(next) = next else { break };
            last = Some((number, next == "-"));
            rest = &rest[next.len()..];
        }
    }
    all
}

/// Returns the numbers of invariants that a text cites: 4 of `I4`.
fn cited_invariants(text: &str) -> Vec<u32> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter_map(|word| word.strip_prefix('I')?.parse().ok()).collect()
}

/// Returns the first sections that are cited of a paper: `3.3.1` of `fRSM §3.3.1`.
fn cited_sections<'a>(text: &'a str, paper: &str) -> Vec<&'a str> {
    let named = text.match_indices(paper).map(|(at, _)| &text[at + paper.len()..]);
    let cited = named.filter_map(|rest| rest.strip_prefix(" §").or_else(|| rest.strip_prefix(", §")));
    let is_part = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '.' || c == '-';
    cited.map(|rest| rest[..rest.len() - rest.trim_start_matches(is_part).len()].trim_end_matches(['.', '-'])).collect()
}

/// Returns the names of design pages that a text cites: `epochs.md` of `docs/design/epochs.md`.
fn cited_pages(text: &str) -> Vec<&str> {
    let named = text.split("docs/design/").skip(1);
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-' || c == '.';
    let names = named.map(|rest| rest[..rest.len() - rest.trim_start_matches(is_part).len()].trim_end_matches('.'));
    names.filter(|name| name.ends_with(".md")).collect()
}

/// Hazards, invariants, sections of papers and design pages that comments and documents cite exist.
#[test]
fn citations_resolve() {
    let page = |name: &str| fs::read_to_string(root().join("docs").join(name)).expect("there is a page");
    let (hazards, invariants, papers) = (page("hazards.md"), page("invariants.md"), page("papers.md"));
    let is_hazard = |number: u32| hazards.contains(&format!("\n### {number}. "));
    let is_invariant = |number: u32| invariants.contains(&format!("\n| I{number} "));
    assert!((1..=60).all(is_hazard) && (1..=16).all(is_invariant));
    let sections: Vec<(&str, BTreeSet<&str>)> = papers
        .lines()
        .filter_map(|line| line.strip_prefix("- ")?.split_once(": "))
        .map(|(paper, sections)| (paper, sections.split(", ").collect()))
        .collect();
    assert_eq!(sections.len(), 5);
    let mut cited = 0;
    for (path, text) in texts() {
        for number in [cited_numbers(&text, "hazard"), cited_numbers(&text, "Hazard")].concat() {
            assert!(is_hazard(number), "{}: there is no hazard {number}", path.display());
            cited += 1;
        }
        let is_prose = path.extension().is_some_and(|end| end == "rs" || end == "md");
        for number in cited_invariants(&text).into_iter().filter(|_| is_prose) {
            assert!(is_invariant(number), "{}: there is no invariant I{number}", path.display());
            cited += 1;
        }
        for name in cited_pages(&text) {
            assert!(root().join("docs/design").join(name).exists(), "{}: there is no page {name}", path.display());
            cited += 1;
        }
        let dangling = is_prose && text.contains(concat!("of the", " design)"));
        assert!(!dangling, "{} cites a section of a page that is not in the repository", path.display());
        for (paper, known) in &sections {
            for section in cited_sections(&text, paper) {
                let parts = || section.split('-').all(|part| known.contains(part));
                assert!(known.contains(section) || parts(), "{}: {paper} has no §{section}", path.display());
                cited += 1;
            }
        }
    }
    assert!(cited > 300, "{cited} citations");
}

/// The pages on hazards and invariants name files and tests that are there.
#[test]
fn hazards_name_tests_that_are_there() {
    let names: BTreeSet<String> = texts()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|end| end == "rs"))
        .flat_map(|(_, text)| {
            let functions = text.split("fn ").skip(1);
            functions.filter_map(|rest| Some(rest.split(['(', '<']).next()?.to_owned())).collect::<Vec<_>>()
        })
        .collect();
    for page in ["docs/hazards.md", "docs/invariants.md"] {
        let text = fs::read_to_string(root().join(page)).expect("there is a page");
        let words = quoted(&text);
        let missing: Vec<_> = words.iter().filter(|word| is_path(word) && !root().join(word).exists()).collect();
        assert!(missing.is_empty(), "{page} names files that are not there: {missing:?}");
        let is_test = |word: &&&str| {
            word.matches('_').count() >= 2
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let unknown: Vec<_> = words.iter().filter(is_test).filter(|word| !names.contains(**word)).collect();
        assert!(unknown.is_empty(), "{page} names tests that are not there: {unknown:?}");
    }
}

#[test]
fn citations_are_found() {
    let text = "as in hazards 1-3, 5 and 7 (Hazard 9; fRSM §3.3.1), Harmony §7.4-7.5. Scatter, §4.2";
    assert_eq!(cited_numbers(text, "hazard"), [1, 2, 3, 5, 7]);
    assert_eq!(cited_numbers(text, "Hazard"), [9]);
    assert_eq!(cited_invariants("I4 and (I16; RECODE P2), not I/O, II-C, or AI5"), [4, 16]);
    assert_eq!(cited_sections(text, "fRSM"), ["3.3.1"]);
    assert_eq!(cited_sections(text, "Harmony"), ["7.4-7.5"]);
    assert_eq!(cited_sections(text, "Scatter"), ["4.2"]);
    assert_eq!(
        cited_pages("see `docs/design/code-map.md`, docs/design/read.md. Not docs/design/"),
        ["code-map.md", "read.md"]
    );
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
    for path in ["group/", "group/src/group.rs", "README.md", ".ci/run", "peer/net/src"] {
        assert!(is_path(path), "{path}");
    }
    for word in ["scatter", "(ballot, number)", "/healthz", "GET /x", "Output::Persist", "a/b c"] {
        assert!(!is_path(word), "{word}");
    }
}
