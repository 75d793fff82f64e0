//! Checks of the workspace against its description: the allowed dependencies, the map of the code, the citations, and limits on the
//! size of the code.

mod citations;
mod dependencies;
mod documents;
mod limits;
mod names;

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member lies in the workspace").to_owned()
}

/// Returns all texts of the tree, with their paths: sources, documents, and test data.
pub fn texts() -> Vec<(PathBuf, String)> {
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

/// Returns the texts in back-ticks, outside of blocks of code.
pub fn quoted(document: &str) -> Vec<&str> {
    let mut in_block = false;
    let prose = document.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !fence && !in_block
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Returns whether a word is meant as a path of this tree.
pub fn is_path(word: &str) -> bool {
    let ends = [".rs", ".toml", ".md", ".lock", "/"].iter().any(|end| word.ends_with(end));
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    plain && !word.starts_with('/') && (ends || word.contains('/'))
}

/// Returns the Rust sources of the tree, with their paths from its root.
pub fn sources() -> Vec<(String, String)> {
    let root = root();
    let path = |path: &Path| path.strip_prefix(&root).expect("it lies in the tree").display().to_string();
    let all = texts().into_iter().map(|(file, text)| (path(&file), text));
    all.filter(|(path, _)| path.ends_with(".rs")).collect()
}

/// Returns the folder of the crate that a source belongs to, and its path in that folder.
pub fn crate_of(path: &str) -> (&str, &str) {
    let folders = path.match_indices('/').rev().map(|(at, _)| (&path[..at], &path[at + 1..]));
    let mut crates = folders.filter(|(folder, _)| root().join(folder).join("Cargo.toml").exists());
    crates.next().expect("every source belongs to a crate")
}

/// Returns the name that a line defines with one of these words, behind any visibility: `Node` of `pub struct Node {`.
pub fn defined<'a>(line: &'a str, words: &[&str]) -> Option<&'a str> {
    let mut line = line.trim_start();
    if let Some(rest) = line.strip_prefix("pub") {
        let rest = if rest.starts_with('(') { rest.split_once(')')?.1 } else { rest };
        line = rest.strip_prefix(' ')?;
    }
    let (_, rest) = words.iter().find_map(|word| Some((word, line.strip_prefix(word)?.strip_prefix(' ')?)))?;
    let name = &rest[..rest.len() - rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len()];
    (!name.is_empty()).then_some(name)
}

#[test]
fn definitions_are_found() {
    let types = ["struct", "enum"];
    assert_eq!(defined("    pub(super) struct Node<H> {", &types), Some("Node"));
    assert_eq!(defined("enum Fate {", &types), Some("Fate"));
    assert_eq!(defined("pub fn struct_of() {", &types), None);
    assert_eq!(crate_of("peer/node/src/node.rs"), ("peer/node", "src/node.rs"));
}
