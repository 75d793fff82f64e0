//! A golden file, and the messages where it does not fit any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::example::examples;

/// The environment variable with which the files are written anew.
const BLESS: &str = "SCATTER_BLESS";

/// A format that has a version.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The present version.
    pub version: u64,
    /// The constant with the version, and the file of the constant.
    pub constant: &'static str,
    /// The package whose tests write the file: behind `cargo test -p`.
    pub package: &'static str,
}

/// Collects encoded examples, and compares them with a file.
#[derive(Debug)]
pub struct Golden {
    path: PathBuf,
    format: Format,
    entries: BTreeMap<String, Vec<u8>>,
    fields: BTreeMap<String, Vec<String>>,
    /// The content of the file, if there is a file.
    stored: Option<Content>,
}

/// Content of a golden file.
#[derive(Debug, Default, PartialEq)]
struct Content {
    version: u64,
    entries: BTreeMap<String, Vec<u8>>,
    fields: BTreeMap<String, Vec<String>>,
}

/// A difference of a type from its file.
#[derive(Debug, PartialEq)]
enum Change {
    /// Other names, the same bytes.
    Names,
    /// The examples, or types, with these names have other bytes.
    Bytes(Vec<String>),
}

impl Golden {
    /// Reads the file `tests/golden/NAME.txt` of the package with this `CARGO_MANIFEST_DIR`.
    ///
    /// # Panics
    /// Where the file has a line that is not of its format.
    pub fn new(manifest_dir: &str, name: &str, format: Format) -> Golden {
        let path = PathBuf::from(manifest_dir).join("tests/golden").join(name).with_extension("txt");
        let stored = std::fs::read_to_string(&path).ok().map(|text| {
            Content::parse(&text).unwrap_or_else(|line| panic!("{}: {line:?} makes no sense", path.display()))
        });
        Golden { path, format, entries: BTreeMap::new(), fields: BTreeMap::new(), stored }
    }

    /// Adds an example under a name of its own.
    ///
    /// # Panics
    /// Where an example already has this name.
    pub fn add(&mut self, name: &str, bytes: &[u8]) {
        let before = self.entries.insert(name.to_owned(), bytes.to_vec());
        assert!(before.is_none(), "two examples are called {name}");
    }

    /// Adds examples of a whole type.
    ///
    /// # Panics
    /// As [`examples`] and [`Golden::add`].
    pub fn add_all<T: DeserializeOwned>(&mut self, encode: impl Fn(&T) -> Vec<u8>) {
        let found = examples::<T>();
        for (name, value) in &found.values {
            self.add(name, &encode(value));
        }
        self.fields.extend(found.fields);
    }

    /// Returns the bytes in the file under this name. Call it after [`Golden::check`]: before that they may be of any
    /// version.
    ///
    /// # Panics
    /// Where there is no such example.
    pub fn bytes(&self, name: &str) -> &[u8] {
        let stored = self.stored.as_ref().filter(|_| !is_blessed()).map_or(&self.entries, |stored| &stored.entries);
        stored.get(name).unwrap_or_else(|| panic!("there is no example called {name}"))
    }

    /// Compares the examples with the file, or writes the file.
    ///
    /// # Panics
    /// Where they differ or the file is missing; and where the file is to be written, though bytes changed and the version did not.
    pub fn check(&self) {
        let Format { version, constant, package } = self.format;
        let path = self.path.display();
        let command = format!("{BLESS}=1 cargo test -p {package} golden");
        let stored = match &self.stored {
            Some(stored) => stored,
            None if is_blessed() => return self.write(),
            None => panic!("{path} is missing: write it with `{command}`"),
        };
        let change = stored.changed(&self.content());
        if stored.version > version {
            panic!("{path} is of version {}, {constant} is {version}: versions only rise", stored.version);
        }
        match &change {
            Some(Change::Bytes(names)) if stored.version == version => panic!(
                "the bytes of {} changed, and {constant} is still {version}: programs that are out there would take them for \
                 damage. Raise it by one, then `{command}`. ({path})",
                few(names)
            ),
            None if stored.version == version => {}
            _ if is_blessed() => self.write(),
            Some(Change::Names) if stored.version == version => {
                panic!("names changed, bytes did not: write {path} anew with `{command}`")
            }
            _ => {
                panic!("{constant} is {version}, {path} of version {}: write it anew with `{command}`", stored.version)
            }
        }
    }

    fn content(&self) -> Content {
        Content { version: self.format.version, entries: self.entries.clone(), fields: self.fields.clone() }
    }

    fn write(&self) {
        let Format { constant, package, .. } = self.format;
        let text = format!(
            "# Written by `{BLESS}=1 cargo test -p {package} golden`; the version is {constant}.\n{}",
            self.content().text()
        );
        let dir = self.path.parent().expect("it lies in a directory");
        std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&self.path, text)).expect("it can be written");
    }
}

impl Content {
    /// Returns the text of the file, without the comment at its head.
    fn text(&self) -> String {
        let mut text = format!("version {}\n", self.version);
        for (name, fields) in &self.fields {
            writeln!(text, "fields {name}: {}", fields.join(" ")).expect("a string takes everything");
        }
        for (name, bytes) in &self.entries {
            writeln!(text, "{name} = {}", hex(bytes)).expect("a string takes everything");
        }
        text
    }

    /// Parses the text of a file; the error is the first line that is not of its format.
    fn parse(text: &str) -> Result<Content, String> {
        let mut content = Content::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
            let wrong = || line.to_owned();
            if let Some(version) = line.strip_prefix("version ") {
                content.version = version.parse().map_err(|_| wrong())?;
            } else if let Some(fields) = line.strip_prefix("fields ") {
                let (name, fields) =
                    fields.rsplit_once(": ").or(fields.strip_suffix(':').map(|name| (name, ""))).ok_or_else(wrong)?;
                let fields = fields.split_whitespace().map(str::to_owned).collect();
                content.fields.insert(name.to_owned(), fields);
            } else {
                let (name, digits) = line.rsplit_once(" = ").ok_or_else(wrong)?;
                content.entries.insert(name.to_owned(), bytes(digits).ok_or_else(wrong)?);
            }
        }
        Ok(content)
    }

    /// Returns the difference of another content, apart from the version.
    fn changed(&self, new: &Content) -> Option<Change> {
        let mut others = BTreeSet::new();
        for (name, bytes) in &self.entries {
            if new.entries.get(name).is_some_and(|now| now != bytes) {
                others.insert(name.clone());
            }
        }
        // Where two fields of one type change places, bytes that are made from the type stay the same.
        for (name, fields) in &self.fields {
            let sorted = |fields: &[String]| fields.iter().cloned().collect::<BTreeSet<_>>();
            if new.fields.get(name).is_some_and(|now| now != fields && sorted(now) == sorted(fields)) {
                others.insert(format!("{name} (its fields are in another order)"));
            }
        }
        let of = |from: &Content, to: &Content| {
            let only = from.entries.iter().filter(|(name, _)| !to.entries.contains_key(*name));
            let mut only: Vec<_> = only.map(|(name, bytes)| (bytes.clone(), name.clone())).collect();
            only.sort();
            only
        };
        let (gone, come) = (of(self, new), of(new, self));
        // The same bytes under another name: a rename.
        if !gone.iter().map(|(bytes, _)| bytes).eq(come.iter().map(|(bytes, _)| bytes)) {
            others.extend(gone.into_iter().chain(come).map(|(_, name)| name));
        }
        if !others.is_empty() {
            return Some(Change::Bytes(others.into_iter().collect()));
        }
        (self.entries != new.entries || self.fields != new.fields).then_some(Change::Names)
    }
}

/// Lists the first of these names, and the number of the rest.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

/// Returns whether files are to be written anew, where that is allowed.
fn is_blessed() -> bool {
    std::env::var_os(BLESS).is_some_and(|value| value == "1")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(entries: &[(&str, &[u8])], fields: &[(&str, &[&str])]) -> Content {
        Content {
            version: 3,
            entries: entries.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect(),
            fields: fields
                .iter()
                .map(|(name, fields)| ((*name).to_owned(), fields.iter().map(|field| (*field).to_owned()).collect()))
                .collect(),
        }
    }

    #[test]
    fn a_file_reads_back_as_written() {
        let whole = content(&[("E::A", &[1, 255]), ("E::B x", &[])], &[("S", &["a", "b"]), ("Empty", &[])]);
        assert_eq!(Content::parse(&whole.text()), Ok(whole));
        for line in ["version x", "a", "a = 1", "a = zz", "fields a"] {
            assert_eq!(Content::parse(line), Err(line.to_owned()));
        }
    }

    #[test]
    fn what_changes_bytes_is_told_from_what_changes_names() {
        let fields: &[(&str, &[&str])] = &[("S", &["a", "b"])];
        let old = content(&[("E::A", &[0]), ("E::B", &[1])], fields);
        let changed = |entries: &[(&str, &[u8])], fields: &[(&str, &[&str])]| old.changed(&content(entries, fields));
        assert_eq!(changed(&[("E::A", &[0]), ("E::B", &[1])], fields), None);
        assert_eq!(changed(&[("E::A", &[0]), ("E::C", &[1])], fields), Some(Change::Names));
        assert_eq!(changed(&[("E::A", &[0]), ("E::B", &[1])], &[("S", &["a", "c"])]), Some(Change::Names));
        let bytes = |entries, fields| matches!(changed(entries, fields), Some(Change::Bytes(_)));
        assert!(bytes(&[("E::A", &[0]), ("E::B", &[2])], fields), "another encoding");
        assert!(bytes(&[("E::A", &[1]), ("E::B", &[0])], fields), "variants in another order");
        assert!(bytes(&[("E::A", &[0])], fields), "one is gone");
        assert!(bytes(&[("E::A", &[0]), ("E::B", &[1]), ("E::C", &[2])], fields), "one is new");
        assert!(bytes(&[("E::A", &[0]), ("E::B", &[1])], &[("S", &["b", "a"])]), "fields in another order");
    }

    fn golden(dir: &std::path::Path, version: u64, bytes: &[u8]) -> Golden {
        let format = Format { version, constant: "X_VERSION in x.rs", package: "x" };
        let mut golden = Golden::new(dir.to_str().expect("text"), "x", format);
        golden.add("x", bytes);
        golden
    }

    /// Returns the message of a check that does not pass.
    fn words(golden: Golden) -> Option<String> {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| golden.check()));
        ended.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
    }

    #[test]
    fn a_change_says_what_to_raise_and_how_to_go_on() {
        let dir = std::env::temp_dir().join(format!("scatter-golden-{}", std::process::id()));
        assert!(words(golden(&dir, 3, &[1])).unwrap().contains("is missing"));
        golden(&dir, 3, &[1]).write();
        assert_eq!(words(golden(&dir, 3, &[1])), None);
        let said = words(golden(&dir, 3, &[2])).unwrap();
        assert!(
            said.contains("X_VERSION in x.rs is still 3") && said.contains("SCATTER_BLESS=1 cargo test -p x golden")
        );
        let said = words(golden(&dir, 4, &[2])).unwrap();
        assert!(said.contains("write it anew"), "{said}");
        assert!(words(golden(&dir, 2, &[1])).unwrap().contains("versions only rise"));
        let _ = std::fs::remove_dir_all(&dir);
    }
}
