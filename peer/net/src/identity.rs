//! The identity of a peer: an ed25519 key in a file, and the two names of a peer.
//!
//! libp2p names a peer by a [`PeerId`], the multihash of its encoded public key. For an ed25519 key that is the identity hash,
//! so it holds the key itself and converts to a [`PeerKey`] and back without loss.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use libp2p::PeerId;
use libp2p::identity::Keypair;
use overlay::PeerKey;

use environment::version::PROGRAM;

/// Version of the file's format. This first one does not name it: the file holds a libp2p key and nothing else. A later one
/// begins with [`VERSIONED`] and its number, in decimal digits.
pub(crate) const IDENTITY_VERSION: u32 = 1;
/// Prefix before the version in a file that names it.
const VERSIONED: &[u8] = b"scatter identity ";

/// Prefix of the 32 bytes of an ed25519 key: identity multihash of 36 bytes, of a protobuf with key type 1 and 32 bytes of
/// data.
const PEER_ID_PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

/// Upper limit of the bytes that are read. An encoded key has 68 bytes; a longer file holds no key.
const FILE_BYTES_MAX: u64 = 4096;

/// The secret key of this peer.
#[derive(Clone)]
pub struct Identity {
    keypair: Keypair,
    peer: PeerKey,
}

/// Reason for which there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("identity file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file exists but holds no ed25519 key. It is left alone: a new key would make this another peer.
    #[error("identity file {0} is damaged; restore it, or move it away to become a new peer")]
    Damaged(PathBuf),
    /// Another version of the program wrote the file. It is left alone.
    #[error(
        "identity file {path} was written in format {found}; this program, {PROGRAM}, reads and writes format \
         {IDENTITY_VERSION}, and has changed nothing: run the program that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: String,
    },
}

impl Identity {
    /// Creates a new key that is not saved.
    pub fn random() -> Identity {
        Identity::of(Keypair::generate_ed25519()).expect("a key just made is an ed25519 key")
    }

    /// Refuses the file of another version of the program. Changes nothing; a damaged file passes here, and fails when loaded.
    ///
    /// # Errors
    /// [`IdentityError::Version`], and [`IdentityError::Io`] where the file exists and cannot be read.
    pub fn check_format(path: &Path) -> Result<(), IdentityError> {
        let mut bytes = Vec::new();
        match File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => check_version(path, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(IdentityError::Io { path: path.to_owned(), source }),
        }
    }

    /// Reads the key in this file; creates one, readable by its owner only, where there is no file.
    ///
    /// # Errors
    /// The file cannot be read or written, is damaged, or is of another version. An existing file is left as it was.
    pub fn load_or_create(path: &Path) -> Result<Identity, IdentityError> {
        let failed = |source| IdentityError::Io { path: path.to_owned(), source };
        match File::open(path) {
            Ok(file) => {
                warn_if_readable_by_others(&file, path);
                let mut bytes = Vec::new();
                file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
                check_version(path, &bytes)?;
                let keypair = Keypair::from_protobuf_encoding(&bytes);
                keypair.ok().and_then(Identity::of).ok_or_else(|| IdentityError::Damaged(path.to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Identity::random();
                identity.create(path).map_err(failed)?;
                Ok(identity)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns this peer's name on the ring.
    pub fn peer(&self) -> PeerKey {
        self.peer
    }

    /// Returns the same name as libp2p writes it.
    pub fn peer_id(&self) -> PeerId {
        peer_id_of(&self.peer)
    }

    pub(crate) fn keypair(&self) -> &Keypair {
        &self.keypair
    }

    fn of(keypair: Keypair) -> Option<Identity> {
        let peer = peer_key_of(&keypair.public().to_peer_id())?;
        Some(Identity { keypair, peer })
    }

    /// Writes the file under another name and renames it: a crash leaves no partial key, which would be
    /// [`IdentityError::Damaged`] for ever.
    fn create(&self, path: &Path) -> io::Result<()> {
        let bytes = self.keypair.to_protobuf_encoding().map_err(io::Error::other)?;
        let temporary = path.with_extension("new");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all(),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({:?})", self.peer)
    }
}

/// Refuses a file that names a version: this program writes none.
fn check_version(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    let Some(version) = bytes.strip_prefix(VERSIONED) else { return Ok(()) };
    let digits = version.iter().take(10).take_while(|byte| byte.is_ascii_digit());
    let found = digits.map(|digit| char::from(*digit)).collect();
    Err(IdentityError::Version { path: path.to_owned(), found })
}

/// Returns libp2p's name of a peer.
pub fn peer_id_of(peer: &PeerKey) -> PeerId {
    let mut bytes = [0; 38];
    bytes[..6].copy_from_slice(&PEER_ID_PREFIX);
    bytes[6..].copy_from_slice(&peer.0);
    PeerId::from_bytes(&bytes).expect("an identity multihash of 36 bytes is a peer id")
}

/// Returns the ring's name of a peer; `None` where its key is not an ed25519 key.
pub fn peer_key_of(peer_id: &PeerId) -> Option<PeerKey> {
    let bytes = peer_id.to_bytes();
    let key = bytes.strip_prefix(&PEER_ID_PREFIX)?;
    Some(PeerKey(key.try_into().ok()?))
}

#[cfg(unix)]
fn warn_if_readable_by_others(file: &File, path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        tracing::warn!(path = %path.display(), "other users may read the identity file: set its mode to 600 (chmod 600)");
    }
}

#[cfg(not(unix))]
fn warn_if_readable_by_others(_: &File, _: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        let made = Identity::load_or_create(&path).unwrap();
        let read = Identity::load_or_create(&path).unwrap();
        assert_eq!(made.peer(), read.peer());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_short_name_is_the_end_of_the_peer_id() {
        for _ in 0..20 {
            let identity = Identity::random();
            let short = identity.peer().to_string();
            assert!(identity.peer_id().to_string().ends_with(&short), "{short}");
        }
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        for bytes in [&b""[..], b"nonsense", &[8, 1, 18, 64, 1, 2]] {
            fs::write(&path, bytes).unwrap();
            assert!(matches!(Identity::load_or_create(&path), Err(IdentityError::Damaged(_))));
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        assert!(Identity::check_format(&path).is_ok(), "there is none");
        Identity::load_or_create(&path).unwrap();
        assert!(Identity::check_format(&path).is_ok());
        fs::write(&path, b"scatter identity 12\n\x08\x01").unwrap();
        for refused in [Identity::check_format(&path).unwrap_err(), Identity::load_or_create(&path).unwrap_err()] {
            let words = refused.to_string();
            assert!(words.contains("format 12") && words.contains("format 1,") && words.contains(PROGRAM), "{words}");
        }
    }

    #[test]
    fn both_names_convert_into_each_other() {
        for _ in 0..20 {
            let identity = Identity::random();
            assert_eq!(identity.peer_id(), identity.keypair().public().to_peer_id());
            assert_eq!(peer_key_of(&identity.peer_id()), Some(identity.peer()));
        }
        // A hash of a longer key (RSA) names no peer of this program.
        assert_eq!(peer_key_of(&PeerId::random()), None);
    }
}
