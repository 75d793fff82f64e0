//! Limits on the size of folders, of types and of functions. The lists of exceptions may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{crate_of, defined, sources};

/// Upper limit of the source files in one folder; files of tests are not counted.
const FILES_MAX: usize = 20;

/// Upper limit of the files that implement one type; implementations of traits are not counted.
const IMPLS_MAX: usize = 6;

/// Upper limit of the lines of one function.
const LINES_MAX: usize = 100;
/// Functions that are still longer, with their limits.
const LONG_FUNCTIONS: [(&str, &str, usize); 1] =
    [("peer/node/src/replicas/storage.rs", "lanes_and_namespaces_lie_apart", 109)];

/// Compares counts with a limit and with the limits of exceptions, each of which must still be one.
fn check<K: Ord + std::fmt::Debug>(counts: &BTreeMap<K, usize>, max: usize, exceptions: &BTreeMap<K, usize>) {
    let too_many: Vec<_> =
        counts.iter().filter(|(key, count)| **count > *exceptions.get(*key).unwrap_or(&max)).collect();
    assert!(too_many.is_empty(), "more than {max}, or than the exception allows: {too_many:?}");
    let is_stale = |key: &&K| counts.get(*key).is_none_or(|count| *count <= max);
    let stale: Vec<_> = exceptions.keys().filter(is_stale).collect();
    assert!(stale.is_empty(), "no exceptions any more; take them from the list: {stale:?}");
}

/// Returns whether a source has nothing but tests.
fn is_test(path: &str) -> bool {
    path.ends_with("_test.rs") || path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests")
}

#[test]
fn folders_are_small() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (path, _) in sources().into_iter().filter(|(path, _)| !is_test(path)) {
        let folder = Path::new(&path).parent().expect("a file lies in a folder").display().to_string();
        *counts.entry(folder).or_default() += 1;
    }
    check(&counts, FILES_MAX, &BTreeMap::new());
}

/// Returns the type that a line implements, unless the implementation is of a trait: `World` of `impl<H: Host> World<H> {`.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => {
            let mut depth = 1;
            let end = generics.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            })?;
            &generics[end + 1..]
        }
        None => rest,
    };
    let rest = rest.strip_prefix(' ').filter(|rest| !rest.contains(" for "))?;
    Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
}

#[test]
fn types_are_implemented_in_few_files() {
    let mut files: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let (of, file) = crate_of(&path);
        for name in text.lines().filter(|_| file.starts_with("src/")).filter_map(implemented) {
            files.entry((of.to_owned(), name.to_owned())).or_default().insert(path.clone());
        }
    }
    assert!(files.len() > 400, "{} types", files.len());
    let counts = files.into_iter().map(|(name, files)| (name, files.len())).collect();
    check(&counts, IMPLS_MAX, &BTreeMap::new());
}

/// Returns the functions of a source with their numbers of lines, from the line with the name to the closing brace.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let line = ["const ", "async ", "unsafe ", "extern \"C\" "]
            .iter()
            .fold((*line).to_owned(), |l, word| l.replace(word, ""));
        if defined(&line, &["fn"]).is_none() {
            continue;
        }
        let name = lines[at].split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next()).unwrap_or_default();
        let indent = &line[..line.len() - line.trim_start().len()];
        let is_end = |end: &&str| end.strip_prefix(indent) == Some("}");
        // A function of one line, or one without a body, has no line with its closing brace.
        let body =
            lines[at..].iter().position(|line| line.ends_with('{') || line.ends_with('}') || line.ends_with(';'));
        let has_body = body.is_some_and(|body| lines[at + body].ends_with('{'));
        if let Some(length) = lines[at..].iter().position(is_end).filter(|_| has_body) {
            found.push((name, length + 1));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (path, text) in sources() {
        for (name, lines) in functions(&text) {
            let count = counts.entry((path.clone(), name.to_owned())).or_default();
            *count = lines.max(*count);
        }
    }
    assert!(counts.len() > 5_000, "{} functions", counts.len());
    let exceptions = LONG_FUNCTIONS.map(|(path, name, most)| ((path.to_owned(), name.to_owned()), most));
    check(&counts, LINES_MAX, &exceptions.into());
}

#[test]
fn implementations_and_functions_are_found() {
    assert_eq!(implemented("impl<H: Host> World<H> {"), Some("World"));
    assert_eq!(implemented("impl<F: Fn() -> u32> Drop for World<F> {"), None);
    assert_eq!(implemented("impl Group {"), Some("Group"));
    let text = "fn one() {}\n\nimpl X {\n    pub const fn two(\n        self,\n    ) {\n        x();\n    }\n    fn three(self);\n}\n";
    assert_eq!(functions(text), [("two", 5)]);
}
