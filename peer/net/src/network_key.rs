//! The key of a closed network, and the proof by which peers show each other that they hold it.
//!
//! Each hello and each answer carries a MAC over the network's name, the direction and both peers' identities. The
//! connection (Noise or TLS) has proven those identities already, so a MAC that was made for one pair is useless for any
//! other pair. A pre-shared key under Noise would keep strangers out a step earlier, but encrypts all bytes twice and does
//! not exist for QUIC.
//!
//! A stranger that connects gets a MAC and can test guesses against it: use 32 random bytes, or a long passphrase.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use overlay::PeerKey;

const FILE_BYTES_MAX: u64 = 4096;
/// Length in bytes below which a passphrase can be guessed; a shorter one is accepted, with a warning.
const PASSPHRASE_BYTES_SAFE: usize = 20;

/// The shared secret of a closed network.
#[derive(Clone)]
pub struct NetworkKey([u8; 32]);

/// Reason for which there is no key.
#[derive(Debug, thiserror::Error)]
pub enum NetworkKeyError {
    /// The file cannot be read.
    #[error("network key file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is empty: it would make a network that looks closed and is not.
    #[error("network key file {0} is empty")]
    Empty(PathBuf),
}

/// The half of the greeting that a proof belongs to. Without it an answer could be reflected as a hello.
#[derive(Clone, Copy)]
pub(crate) enum Half {
    Hello,
    Answer,
}

impl NetworkKey {
    /// Reads a key: 64 hex digits are 32 bytes, any other text is a passphrase. Surrounding white space does not count.
    ///
    /// # Errors
    /// The file cannot be read, or is empty.
    pub fn load(path: &Path) -> Result<NetworkKey, NetworkKeyError> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|source| NetworkKeyError::Io { path: path.to_owned(), source })?;
        let text = bytes.trim_ascii();
        if text.is_empty() {
            return Err(NetworkKeyError::Empty(path.to_owned()));
        }
        if let Some(key) = from_hex(text) {
            return Ok(NetworkKey(key));
        }
        if text.len() < PASSPHRASE_BYTES_SAFE {
            tracing::warn!(path = %path.display(), "a network passphrase this short can be guessed: use 64 random hex digits");
        }
        Ok(NetworkKey::from_passphrase(text))
    }

    /// Derives the key of a passphrase.
    pub fn from_passphrase(passphrase: &[u8]) -> NetworkKey {
        NetworkKey(blake3::derive_key("scatter 2026 network key from passphrase", passphrase))
    }

    /// Returns the key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> NetworkKey {
        NetworkKey(bytes)
    }

    /// Returns the proof that `from` shows to `to`.
    pub(crate) fn proof(&self, half: Half, network: &str, from: &PeerKey, to: &PeerKey) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(match half {
            Half::Hello => b"scatter hello 1",
            Half::Answer => b"scatter answer1",
        });
        hasher.update(&from.0).update(&to.0).update(network.as_bytes());
        hasher.finalize()
    }
}

impl fmt::Debug for NetworkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NetworkKey(…)")
    }
}

fn from_hex(text: &[u8]) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(text.chunks_exact(2)) {
        let high = char::from(digits[0]).to_digit(16)?;
        let low = char::from(digits[1]).to_digit(16)?;
        *byte = (high * 16 + low) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_a_key_and_other_text_a_passphrase() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, format!("  {}\n", "0aF1".repeat(16))).unwrap();
        assert_eq!(NetworkKey::load(&path).unwrap().0[..2], [0x0a, 0xf1]);
        std::fs::write(&path, "open sesame, and be quick about it\n").unwrap();
        let key = NetworkKey::from_passphrase(b"open sesame, and be quick about it");
        assert_eq!(NetworkKey::load(&path).unwrap().0, key.0);
        std::fs::write(&path, " \n").unwrap();
        assert!(matches!(NetworkKey::load(&path), Err(NetworkKeyError::Empty(_))));
    }

    #[test]
    fn a_proof_serves_one_pair_one_way_in_one_network() {
        let key = NetworkKey::from_bytes([7; 32]);
        let (a, b) = (PeerKey([1; 32]), PeerKey([2; 32]));
        let proof = key.proof(Half::Hello, "net", &a, &b);
        assert_eq!(proof, key.proof(Half::Hello, "net", &a, &b));
        assert_ne!(proof, key.proof(Half::Hello, "net", &b, &a));
        assert_ne!(proof, key.proof(Half::Answer, "net", &a, &b));
        assert_ne!(proof, key.proof(Half::Hello, "ten", &a, &b));
        assert_ne!(proof, NetworkKey::from_bytes([8; 32]).proof(Half::Hello, "net", &a, &b));
    }
}
