//! Finds the commit that a program is built from, for the build scripts of all programs.
//!
//! `SCATTER_COMMIT` in the environment wins, for packages that are built from an archive. Otherwise the script reads git's
//! files itself, without git. So the build needs no other program, and where there is no repository the commit is
//! `unknown`.

use std::fs;
use std::path::{Path, PathBuf};

/// Number of shown digits of a commit.
const DIGITS: usize = 12;

/// Sets `SCATTER_BUILD_COMMIT` for the compiler.
pub fn tell() {
    println!("cargo:rerun-if-env-changed=SCATTER_COMMIT");
    let given = std::env::var("SCATTER_COMMIT").ok().filter(|commit| is_commit(commit));
    let commit = given.or_else(|| Repository::find()?.commit()).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=SCATTER_BUILD_COMMIT={}", &commit[..commit.len().min(DIGITS)]);
}

/// Returns whether a text is a commit, of at least seven hex digits: no other text may get into the output of the
/// program.
fn is_commit(text: &str) -> bool {
    text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The directories in which git keeps its state of this source tree.
struct Repository {
    /// The directory of this work tree.
    own: PathBuf,
    /// The directory of all work trees of the repository.
    common: PathBuf,
}

impl Repository {
    /// Returns the repository with the workspace's root: a repository further up is about another project.
    fn find() -> Option<Repository> {
        let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).parent()?.to_owned();
        let dot_git = root.join(".git");
        let own = match fs::read_to_string(&dot_git) {
            Ok(text) => root.join(text.strip_prefix("gitdir:")?.trim()),
            Err(_) => dot_git,
        };
        let common = fs::read_to_string(own.join("commondir"));
        let common = common.map_or_else(|_| own.clone(), |text| own.join(text.trim()));
        Some(Repository { own, common })
    }

    /// Returns the commit that is checked out. This script runs again when that commit changes, and for no other reason.
    fn commit(&self) -> Option<String> {
        let head = read(&self.own.join("HEAD"))?;
        // A commit on a packed branch creates a file for the branch, but each commit adds a line here.
        watch(&self.own.join("logs/HEAD"));
        let Some(name) = head.strip_prefix("ref:").map(str::trim) else {
            return Some(head).filter(|head| is_commit(head));
        };
        read(&self.common.join(name)).or_else(|| self.packed(name)).filter(|commit| is_commit(commit))
    }

    /// Returns the commit of a branch that git has packed away with other branches.
    fn packed(&self, name: &str) -> Option<String> {
        let packed = read(&self.common.join("packed-refs"))?;
        let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(_, of)| *of == name).map(|(commit, _)| commit.to_owned())
    }
}

/// Reads and watches a file of git.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    watch(path);
    Some(text.trim().to_owned())
}

/// Has this script run again when the file changes. A missing file is not watched: cargo would run the script every time.
fn watch(path: &Path) {
    if path.is_file() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}
