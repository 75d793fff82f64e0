//! Stores that are moved out of the way, without removal: a damaged store, or one that its peer has left behind.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, RealDisk};
use crate::error::{Doing, StoreError};
use crate::table::sled_table::dir_bytes;

/// Reason for which a store is set aside. One store of each kind is kept, so that they do not fill the disk, apart from lost
/// ones. All of them count as used of [`disk_bytes_max`](crate::StoreConfig::disk_bytes_max).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The store is damaged. The next [`open_dir`](crate::Engine::open_dir) makes a new, empty store: the peer must then
    /// come back as a new incarnation.
    Damaged,
    /// Its peer has left for good. Other members hold its data, or should: after a forced leave an administrator may need
    /// it.
    Left,
    /// Its peer's range was declared lost. The store may be all that is left of acknowledged writes. It is never served and
    /// never removed automatically; `scatter export` reads it.
    Lost,
}

impl Aside {
    const ALL: [Aside; 3] = [Aside::Damaged, Aside::Left, Aside::Lost];

    fn name(self) -> &'static str {
        match self {
            Aside::Damaged => "damaged",
            Aside::Left => "left",
            Aside::Lost => "lost",
        }
    }

    fn kept(self) -> usize {
        if self == Aside::Lost { usize::MAX } else { 1 }
    }
}

/// Renames the store's directory `dir` to `<dir>.<why>-<n>` and returns its new path.
///
/// # Errors
/// Another process has the store open, or the system refuses.
pub fn set_aside(dir: impl AsRef<Path>, why: Aside) -> Result<PathBuf, StoreError> {
    rename(dir.as_ref(), why.name(), why.kept())
}

/// Returns the bytes of all stores that were set aside of `dir`.
pub(crate) fn bytes_aside(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for why in Aside::ALL {
        for number in numbers(dir, why.name())? {
            bytes += dir_bytes(&named(dir, why.name(), number)?)?;
        }
    }
    Ok(bytes)
}

fn rename(dir: &Path, why: &str, kept: usize) -> Result<PathBuf, StoreError> {
    let moving = || format!("moving {} aside", dir.display());
    let disk = RealDisk::new(dir).doing(moving)?;
    // Held until the name is changed: no process may open it meanwhile.
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

/// Returns the numbers of such stores beside `dir`, in order.
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

/// Returns the current directory for an empty path: the directory of a path without one.
fn or_here(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
}
