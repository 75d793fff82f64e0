//! Moving a store out of the way, without throwing it away: a damaged one, or one that its peer has left behind.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, RealDisk};
use super::error::{Doing, StoreError};

/// So many damaged stores are kept; the oldest goes first. A disk that fails again and again must not fill with them.
const DAMAGED_KEPT: usize = 3;
/// Of stores that were left behind only the last is kept: all that it is good for is to undo a mistake.
const LEFT_KEPT: usize = 1;

/// Renames the store's directory `dir` to `<dir>.damaged-<n>` and says where it is now. The next
/// [`open_dir`](super::Engine::open_dir) makes a new, empty store: a peer must come back as a new incarnation then.
/// Three of them are kept.
pub fn move_aside(dir: impl AsRef<Path>) -> Result<PathBuf, StoreError> {
    rename(dir.as_ref(), "damaged", DAMAGED_KEPT)
}

/// Renames the store's directory `dir` to `<dir>.left-<n>`, after its peer has left for good, and says where it is now.
/// It is never opened again; others hold what is in it, or should: who left by force may want to fall back on it.
/// The last one is kept.
pub fn leave_behind(dir: impl AsRef<Path>) -> Result<PathBuf, StoreError> {
    rename(dir.as_ref(), "left", LEFT_KEPT)
}

/// Renames the store's directory `dir` to `<dir>.lost-<n>`, after what its peer owned was declared lost, and says where it is
/// now. It may be all that is left of what was acknowledged: it is never served and never removed by itself;
/// `scatter export` reads it.
pub fn quarantine(dir: impl AsRef<Path>) -> Result<PathBuf, StoreError> {
    rename(dir.as_ref(), "lost", usize::MAX)
}

fn rename(dir: &Path, why: &str, kept: usize) -> Result<PathBuf, StoreError> {
    let moving = || format!("moving {} aside", dir.display());
    let disk = RealDisk::new(dir).doing(moving)?;
    // Held until the name is changed: nobody may open it meanwhile.
    let _lock = disk.lock().doing(moving)?.ok_or(StoreError::InUse)?;
    let mut others = numbers(dir, why).doing(moving)?;
    let to = named(dir, why, others.last().map_or(1, |last| last + 1)).doing(moving)?;
    fs::rename(dir, &to).doing(moving)?;
    if let Some(parent) = to.parent() {
        File::open(or_here(parent)).and_then(|parent| parent.sync_all()).doing(moving)?;
    }
    while others.len() >= kept {
        let oldest = named(dir, why, others.remove(0)).doing(moving)?;
        tracing::warn!("{} is removed: only the {kept} newest such stores are kept", oldest.display());
        fs::remove_dir_all(&oldest).doing(moving)?;
    }
    Ok(to)
}

/// The numbers of such stores beside `dir`, in order.
fn numbers(dir: &Path, why: &str) -> io::Result<Vec<u32>> {
    let prefix = format!("{}.{why}-", dir.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(or_here(dir.parent().unwrap_or(Path::new(""))))? {
        let name = entry?.file_name();
        numbers.extend(name.to_string_lossy().strip_prefix(&prefix).and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn named(dir: &Path, why: &str, number: u32) -> io::Result<PathBuf> {
    let mut name = dir.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".{why}-{number}"));
    Ok(dir.with_file_name(name))
}

/// The directory that a path without one stands in.
fn or_here(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
}
