//! The data directory as a whole: its format, the process that holds it, and its protection from other users.
//!
//! The lock is on the directory, not on the store in it. A peer whose network lives in memory has no store, and two such
//! peers under one identity harm the whole network.

pub(super) mod key_hash;
pub(super) mod peer_state;
pub(super) mod remembered;
pub(super) mod sealed;
pub(super) mod sessions;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use net::Identity;
use store::Engine;

use self::peer_state::PeerState;
use self::sessions::Sessions;
use super::launch::store_dir;

/// Name of the locked file, which holds the process id of the lock's holder.
const LOCK: &str = "lock";
/// Upper limit of a process id, in digits.
const PID_BYTES_MAX: u64 = 20;
/// The peer's files, for their owner alone. Other files in the same directory are not touched.
const OURS: [&str; 7] =
    ["identity", "identity.new", "peer.json", "peer.json.new", "sessions.json", "sessions.json.new", LOCK];
/// Prefix of stores: this name, and names that continue with a dot.
const STORE: &str = "store";

/// Lock of this process on a data directory until dropped. A process that replaces itself by another program releases it.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the directory, which has to exist.
    ///
    /// # Errors
    /// A text for the operator of this process, with the id of the process that holds the directory.
    pub fn take(dir: &Path) -> Result<DirectoryLock, String> {
        let path = dir.join(LOCK);
        let failed = |error: io::Error| format!("cannot lock the data directory {}: {error}", dir.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Only for the message to a second process: on a full disk the lock holds without it.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(DirectoryLock { _file: file })
    }
}

/// Returns the message for a directory that another process holds.
fn in_use(dir: &Path, file: &mut File) -> String {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(PID_BYTES_MAX).read_to_string(&mut text));
    let holder = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
    let holder = holder.map_or("another process".into(), |pid| format!("the process with id {pid}"));
    format!(
        "the data directory {} is in use by {holder}: stop that process first, or choose another directory with \
        --data-dir",
        dir.display()
    )
}

/// Refuses a data directory that another version of the program wrote. Changes nothing in any case.
///
/// # Errors
/// A text for the operator of this process: both versions, and the remedy.
pub fn check_formats(dir: &Path) -> Result<(), String> {
    PeerState::check_format(dir)?;
    Sessions::check_format(dir)?;
    Identity::check_format(&dir.join("identity")).map_err(|error| error.to_string())?;
    Engine::check_format(store_dir(dir)).map_err(|error| format!("{}: {error}", store_dir(dir).display()))
}

/// Makes all later files and directories of this process readable by their owner only: the store holds every client's
/// data, and the identity is a secret.
pub fn keep_to_owner() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Removes other users' permissions from a peer's files: older programs left them to the umask.
///
/// # Errors
/// A text for the operator of this process, where a permission cannot be changed.
pub(crate) fn tighten(dir: &Path) -> Result<(), String> {
    if tighten_one(dir)? {
        tracing::info!("other users could read {}: its mode now allows only the owner", dir.display());
    }
    let failed = |error: io::Error| format!("cannot read the data directory {}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if OURS.contains(&&*name) {
            tighten_one(&entry.path())?;
        } else if name.strip_prefix(STORE).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            // A user that cannot enter the directory cannot reach the files in it.
            tighten_one(&entry.path())?;
        }
    }
    Ok(())
}

/// Returns whether there was a permission to remove.
fn tighten_one(path: &Path) -> Result<bool, String> {
    let failed = |error: io::Error| {
        format!(
            "other users can read {}, and its mode cannot be changed: {error}. Give the data directory to the user \
             that runs this peer, with mode 0700 and files 0600",
            path.display()
        )
    };
    // Not the target of a link: the link is the administrator's own arrangement.
    let found = fs::symlink_metadata(path).map_err(failed)?;
    let mode = found.permissions().mode();
    if found.is_symlink() || mode & 0o077 == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700)).map_err(failed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_one_and_the_other_is_told_to_whom() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(dir.path()).unwrap();
        let refused = DirectoryLock::take(dir.path()).unwrap_err();
        assert!(refused.contains(&format!("process with id {}", std::process::id())), "{refused}");
        assert!(refused.contains("--data-dir"), "{refused}");
        drop(lock);
        DirectoryLock::take(dir.path()).unwrap();
    }

    #[test]
    fn what_others_could_read_they_cannot_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        let set = |name: &str, mode| {
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for name in ["identity", "peer.json", "notes"] {
            fs::write(dir.path().join(name), "x").unwrap();
            set(name, 0o644);
        }
        for name in ["store", "store.lost-1"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            set(name, 0o755);
        }
        set("", 0o755);
        tighten(dir.path()).unwrap();
        assert_eq!(
            ["", "identity", "peer.json", "store", "store.lost-1"].map(mode),
            [0o700, 0o600, 0o600, 0o700, 0o700]
        );
        assert_eq!(mode("notes"), 0o644, "it is not a peer's");
    }
}
