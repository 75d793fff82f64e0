//! Each type of a crate has a name of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::{crate_of, defined, sources};

/// Words that define a type.
const WORDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

/// By crate: names that several types still share. A name leaves this list with the type that gets another one.
const SHARED: [(&str, &[&str]); 1] = [("switch", &["Link"])];

/// Returns the names that each crate gives to more than one type, with the places.
fn shared() -> BTreeMap<(String, String), Vec<String>> {
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let (of, file) = crate_of(&path);
        for (number, line) in text.lines().enumerate().filter(|_| file.starts_with("src/")) {
            // A type within an `impl` belongs to its trait.
            let is_associated = line.starts_with(' ') && line.trim_start().starts_with("type ");
            let name = defined(line, &WORDS).filter(|name| name.starts_with(char::is_uppercase) && !is_associated);
            let Some(name) = name else { continue };
            places.entry((of.to_owned(), name.to_owned())).or_default().push(format!("{path}:{}", number + 1));
        }
    }
    assert!(places.len() > 900, "{} types", places.len());
    places.retain(|_, places| places.len() > 1);
    places
}

#[test]
fn no_type_name_is_shared() {
    let shared = shared();
    let listed = SHARED.iter().flat_map(|(of, names)| names.iter().map(|name| (of.to_string(), name.to_string())));
    let listed: BTreeSet<(String, String)> = listed.collect();
    let new: Vec<_> = shared.iter().filter(|(name, _)| !listed.contains(*name)).collect();
    assert!(new.is_empty(), "two types of a crate have one name; name the less central one after its owner: {new:?}");
    let stale: Vec<_> = listed.iter().filter(|name| !shared.contains_key(*name)).collect();
    assert!(stale.is_empty(), "no two types have these names any more; take them from the list: {stale:?}");
}
