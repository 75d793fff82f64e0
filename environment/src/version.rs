//! Identity of the program.

/// Commit that this program is built from, 12 hex digits, or `unknown`.
pub const COMMIT: &str = env!("SCATTER_BUILD_COMMIT");

/// Version and commit, as `--version` prints them behind the name of the program.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("SCATTER_BUILD_COMMIT"), ")");

/// Name, version and commit. Each stored format names the program that wrote it, so that an administrator can find
/// that program.
pub const PROGRAM: &str =
    concat!("scatter ", env!("CARGO_PKG_VERSION"), " (commit ", env!("SCATTER_BUILD_COMMIT"), ")");
