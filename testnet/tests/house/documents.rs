//! Documents name and link to what exists.

use std::collections::BTreeSet;
use std::fs;

use crate::dependencies::{members, metadata};
use crate::{is_path, quoted, root};

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
