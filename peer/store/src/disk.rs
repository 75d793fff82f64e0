//! The few file operations that the journal and the manifest need, as traits, so that a test can replace the disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One directory of files, without subdirectories.
///
/// Guarantees over a power cut: a file's bytes are durable after [`DiskFile::sync`], a file's *name* after
/// [`Disk::sync_dir`]; any part of later changes may be missing.
pub trait Disk: Send + Sync {
    /// Creates a new, empty file; an old one of that name is gone.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file, to read and write.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Returns the beginning of a file, at most `bytes_max` bytes of it; `None` where there is no such file. Changes
    /// nothing, and works in a directory that may not be written.
    fn head(&self, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>>;
    /// Renames a file; an old one of the new name is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all creations, renames and removals so far durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Returns the existing files, with their lengths, in order of their names.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Returns the room on the volume.
    fn space(&self) -> io::Result<Space>;
    /// Returns the bytes of older stores of the same peer, which are kept beside this one.
    fn bytes_aside(&self) -> io::Result<u64> {
        Ok(0)
    }
    /// Takes the directory for this process until the guard is dropped; `None` where another process holds it.
    fn lock(&self) -> io::Result<Option<DiskLock>>;
}

/// One open file.
pub trait DiskFile: Send {
    /// Writes all of `bytes` at `at`; beyond the end the file grows.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all writes so far durable, together with the length.
    fn sync(&mut self) -> io::Result<()>;
    /// Reads the whole file; refuses one longer than `bytes_max`.
    fn read_all(&mut self, bytes_max: u64) -> io::Result<Vec<u8>>;
}

/// Lock of one process on a directory; released when dropped.
pub struct DiskLock {
    _held: Box<dyn Send + Sync>,
}

impl DiskLock {
    /// Creates a lock that lasts as long as `held`.
    pub fn new(held: impl Send + Sync + 'static) -> DiskLock {
        DiskLock { _held: Box::new(held) }
    }
}

/// Room on a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this process may still write.
    pub free: u64,
    /// Size of the volume.
    pub total: u64,
}

/// The name of the lock file.
pub(crate) const LOCK: &str = "lock";

/// A directory of the real file system.
pub struct RealDisk {
    dir: PathBuf,
}

impl RealDisk {
    /// Opens the directory `dir`, created with its parents where it is missing.
    ///
    /// # Errors
    /// The directory cannot be created or synced.
    pub fn new(dir: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let dir = dir.into();
        if !dir.is_dir() {
            fs::create_dir_all(&dir)?;
            if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(RealDisk { dir })
    }

    /// Refers to the directory `dir`, which is not created.
    pub(crate) fn existing(dir: impl Into<PathBuf>) -> RealDisk {
        RealDisk { dir: dir.into() }
    }

    /// Returns the directory's path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.dir.join(name);
        Ok(Box::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(self.dir.join(name))?))
    }

    fn head(&self, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        head(&self.dir.join(name), bytes_max)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            // A name that is not text is not the store's.
            if let (true, Ok(name)) = (meta.is_file(), entry.file_name().into_string()) {
                files.push((name, meta.len()));
            }
        }
        files.sort();
        Ok(files)
    }

    fn space(&self) -> io::Result<Space> {
        let volume = rustix::fs::statvfs(&self.dir)?;
        let unit = volume.f_frsize;
        Ok(Space { free: volume.f_bavail.saturating_mul(unit), total: volume.f_blocks.saturating_mul(unit) })
    }

    fn bytes_aside(&self) -> io::Result<u64> {
        crate::aside::bytes_aside(&self.dir)
    }

    fn lock(&self) -> io::Result<Option<DiskLock>> {
        let path = self.dir.join(LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(DiskLock::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskFile for File {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn read_all(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let bytes = self.metadata()?.len();
        if bytes > bytes_max {
            let error = format!("{bytes} bytes long, at most {bytes_max} expected");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        self.read_exact_at(&mut content, 0)?;
        Ok(content)
    }
}

/// Returns the beginning of the file at `path`; `None` where there is none.
fn head(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(bytes_max as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Writes `bytes` bytes at the start of `file`, piece by piece; `fill` makes the content of one piece.
pub(crate) fn fill(file: &mut dyn DiskFile, bytes: u64, mut fill: impl FnMut(&mut [u8])) -> io::Result<()> {
    const PIECE: u64 = 1 << 20;
    let mut piece = vec![0; PIECE.min(bytes) as usize];
    let mut at = 0;
    while at < bytes {
        let now = PIECE.min(bytes - at) as usize;
        fill(&mut piece[..now]);
        file.write_at(at, &piece[..now])?;
        at += now as u64;
    }
    Ok(())
}
