//! Moving a damaged store out of the way, without throwing it away.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, RealDisk};
use super::error::{Doing, StoreError};

/// Renames the store's directory `dir` to `<dir>.damaged-<n>` and says where it is now. The next
/// [`open_dir`](super::Engine::open_dir) makes a new, empty store: a peer must come back as a new incarnation then.
pub fn move_aside(dir: impl AsRef<Path>) -> Result<PathBuf, StoreError> {
    let dir = dir.as_ref();
    let moving = || format!("moving {} aside", dir.display());
    let disk = RealDisk::new(dir).doing(moving)?;
    // Held until the name is changed: nobody may open it meanwhile.
    let _lock = disk.lock().doing(moving)?.ok_or(StoreError::InUse)?;
    let to = free_name(dir).doing(moving)?;
    fs::rename(dir, &to).doing(moving)?;
    if let Some(parent) = to.parent() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent).and_then(|parent| parent.sync_all()).doing(moving)?;
    }
    Ok(to)
}

fn free_name(dir: &Path) -> io::Result<PathBuf> {
    let name = dir.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    for n in 1..10_000 {
        let mut name = name.to_os_string();
        name.push(format!(".damaged-{n}"));
        let to = dir.with_file_name(name);
        if !to.try_exists()? {
            return Ok(to);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many damaged stores lie here already"))
}
