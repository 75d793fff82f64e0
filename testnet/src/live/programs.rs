//! The programs under test: named by the environment, or built beside this test.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::tool;

/// Returns the daemon's binary: `SCATTER_BIN`, or one that is built beside this test.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| named("SCATTER_BIN").unwrap_or_else(|| build("cli", "scatter", false)))
}

/// Returns the daemon's binary with full optimization, if it has to be built.
pub fn fast_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| named("SCATTER_BIN").unwrap_or_else(|| build("cli", "scatter", true)))
}

/// Returns the `chirp` program, built beside this test.
pub fn chirp_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("chirp-app", "chirp", false))
}

/// Returns a program that the environment names.
pub(super) fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

pub(super) fn build(package: &str, binary: &str, release: bool) -> PathBuf {
    // A test lies in `target/PROFILE/deps`.
    let me = std::env::current_exe().expect("this program has a path");
    let profile = me.ancestors().nth(2).expect("tests stand in a profile's directory");
    let target = profile.parent().expect("a profile's directory stands in the target directory");
    let release = release || profile.ends_with("release");
    let mut cargo = tool::cargo();
    cargo.args(["build", "--quiet", "--target-dir"]).arg(target);
    match release {
        true => cargo.args(["--release", "-p", package, "--bin", binary]),
        // Built as all tests together are built, so that nothing is built twice: an example has the features of tests. With a
        // selection of programs, cargo would build crates that only build scripts use with other settings.
        false => cargo.args(["--workspace", "--bins", "--example", "zoo_redis_rs"]),
    };
    let built = cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).status();
    assert!(built.is_ok_and(|status| status.success()), "{binary} can be built");
    let place = if release { target.join("release") } else { profile.to_owned() };
    place.join(binary)
}
