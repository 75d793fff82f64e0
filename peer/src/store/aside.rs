//! Moving a damaged store out of the way, without throwing it away.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, RealDisk};
use super::error::{Doing, StoreError};

/// So many damaged stores are kept; the oldest goes first. A disk that fails again and again must not fill with them.
const DAMAGED_KEPT: usize = 3;

/// Renames the store's directory `dir` to `<dir>.damaged-<n>` and says where it is now. The next
/// [`open_dir`](super::Engine::open_dir) makes a new, empty store: a peer must come back as a new incarnation then.
/// Three of them are kept.
pub fn move_aside(dir: impl AsRef<Path>) -> Result<PathBuf, StoreError> {
    let dir = dir.as_ref();
    let moving = || format!("moving {} aside", dir.display());
    let disk = RealDisk::new(dir).doing(moving)?;
    // Held until the name is changed: nobody may open it meanwhile.
    let _lock = disk.lock().doing(moving)?.ok_or(StoreError::InUse)?;
    let mut damaged = damaged(dir).doing(moving)?;
    let to = named(dir, damaged.last().map_or(1, |last| last + 1)).doing(moving)?;
    fs::rename(dir, &to).doing(moving)?;
    if let Some(parent) = to.parent() {
        File::open(or_here(parent)).and_then(|parent| parent.sync_all()).doing(moving)?;
    }
    while damaged.len() >= DAMAGED_KEPT {
        let oldest = named(dir, damaged.remove(0)).doing(moving)?;
        tracing::warn!("{} is removed: {DAMAGED_KEPT} newer ones are kept", oldest.display());
        fs::remove_dir_all(&oldest).doing(moving)?;
    }
    Ok(to)
}

/// The numbers of the damaged stores beside `dir`, in order.
fn damaged(dir: &Path) -> io::Result<Vec<u32>> {
    let prefix = format!("{}.damaged-", dir.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(or_here(dir.parent().unwrap_or(Path::new(""))))? {
        let name = entry?.file_name();
        numbers.extend(name.to_string_lossy().strip_prefix(&prefix).and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn named(dir: &Path, number: u32) -> io::Result<PathBuf> {
    let mut name = dir.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".damaged-{number}"));
    Ok(dir.with_file_name(name))
}

/// The directory that a path without one stands in.
fn or_here(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
}
