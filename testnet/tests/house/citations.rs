//! Hazards, invariants, sections of papers and tests that are cited exist.

use std::collections::BTreeSet;
use std::fs;

use crate::{is_path, quoted, root, texts};

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
