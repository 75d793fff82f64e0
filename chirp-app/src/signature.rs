//! Proof of the author of a chirp: keys of users, and signatures (Ed25519).
//!
//! The demo trusts names. A user that signs up with a key has the key's public half in the profile, which is set once;
//! readers check signatures against it. The result for a reader is a [`Seal`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use crate::name::UserName;
use crate::patience::random;

/// Signed bytes and key files begin with their purpose, so that no other bytes that are signed with the same key can be
/// taken for a post.
const CONTEXT: &str = "chirp post 1";
const FILE_PREFIX: &str = "chirp-key-1 ";
/// Upper limit of a key file, in bytes; a longer file is another one.
const FILE_BYTES_MAX: u64 = 200;

/// A user's key, which signs posts.
pub struct UserKey(SigningKey);

/// The reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Its file cannot be read or written.
    #[error("the key {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        why: io::Error,
    },
    /// The file exists, and holds other data.
    #[error("{} is not a key file of Chirp", .0.display())]
    Foreign(PathBuf),
    /// The user has signed up without a key, or with another one.
    #[error("{0} signed up {1}: chirps signed with this key would count as forged")]
    NotTheUsers(UserName, &'static str),
}

/// The public half of a user's key, as in the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// A reader's knowledge of the author of a chirp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// It is not signed, and the user has no key: every client that knows the name may have written it.
    Unsigned,
    /// It is not signed, though the user has a key.
    Missing,
    /// It is signed with the user's key.
    Valid,
    /// It is signed, but not with the user's key, or not this text.
    Broken,
}

impl UserKey {
    /// Reads the key in this file.
    ///
    /// # Errors
    /// [`KeyError::File`] where the file cannot be read; [`KeyError::Foreign`] where it holds no key.
    pub fn open(path: &Path) -> Result<UserKey, KeyError> {
        let problem = |why| KeyError::File { path: path.to_owned(), why };
        // Of any file, even a device, no more is read than a key has.
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(problem)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(problem)?;
        let text = std::str::from_utf8(&bytes).ok().filter(|text| text.len() as u64 <= FILE_BYTES_MAX);
        let seed =
            text.and_then(|text| text.trim_end().strip_prefix(FILE_PREFIX)).and_then(|seed| BASE64.decode(seed).ok());
        let seed: Option<[u8; 32]> = seed.and_then(|seed| seed.try_into().ok());
        seed.map(|seed| UserKey(SigningKey::from_bytes(&seed))).ok_or_else(|| KeyError::Foreign(path.to_owned()))
    }

    /// Reads the key in this file, or makes a new one where there is none. A new key is written to the file, readable
    /// for its owner alone. Returns the key, and whether it is new.
    ///
    /// # Errors
    /// As [`UserKey::open`], and [`KeyError::File`] where the file cannot be written.
    pub fn open_or_make(path: &Path) -> Result<(UserKey, bool), KeyError> {
        match UserKey::open(path) {
            Err(KeyError::File { why, .. }) if why.kind() == io::ErrorKind::NotFound => {}
            opened => return Ok((opened?, false)),
        }
        match UserKey::create(path) {
            Ok(key) => Ok((key, true)),
            // Another process was first.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok((UserKey::open(path)?, false)),
            Err(why) => Err(KeyError::File { path: path.to_owned(), why }),
        }
    }

    /// Writes a new key to a file that appears only when all of it is on the disk: a key that a profile names and no
    /// file has would be lost for ever.
    fn create(path: &Path) -> io::Result<UserKey> {
        let seed = random::<32>();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let unfinished = path.with_file_name(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        let written = writeln!(file, "{FILE_PREFIX}{}", BASE64.encode(seed)).and_then(|()| file.sync_all());
        // A link replaces no file.
        let named = written.and_then(|()| fs::hard_link(&unfinished, path));
        fs::remove_file(&unfinished)?;
        named?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(UserKey(SigningKey::from_bytes(&seed)))
    }

    /// Returns the public half, with which readers check signatures.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs a post.
    pub(crate) fn sign(&self, post: &Signed<'_>) -> String {
        BASE64.encode(self.0.sign(&post.bytes()).to_bytes())
    }
}

impl PublicKey {
    /// Returns the key as it is in a profile.
    pub fn to_text(&self) -> String {
        BASE64.encode(self.0.as_bytes())
    }

    /// Parses a key of a profile; `None` where the text is no key.
    pub fn from_text(text: &str) -> Option<PublicKey> {
        let bytes: [u8; 32] = BASE64.decode(text).ok()?.try_into().ok()?;
        VerifyingKey::from_bytes(&bytes).ok().map(PublicKey)
    }

    fn has_signed(&self, post: &Signed<'_>, signature: &str) -> bool {
        let bytes = BASE64.decode(signature).ok().and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        bytes.is_some_and(|bytes| self.0.verify_strict(&post.bytes(), &Signature::from_bytes(&bytes)).is_ok())
    }
}

/// The signed fields of a post: all fields that readers are shown.
pub(crate) struct Signed<'a> {
    pub user: &'a UserName,
    pub id: &'a str,
    pub at_ms: u64,
    pub text: &'a str,
}

impl Signed<'_> {
    fn bytes(&self) -> Vec<u8> {
        // No field before the text can have a line end in it.
        format!("{CONTEXT}\n{}\n{}\n{}\n{}", self.user.folded(), self.at_ms, self.id, self.text).into_bytes()
    }

    /// Returns the result for a reader with the user's key, where there is one.
    pub fn seal(&self, signature: Option<&str>, key: Option<&PublicKey>) -> Seal {
        match (signature, key) {
            (None, None) => Seal::Unsigned,
            (None, Some(_)) => Seal::Missing,
            (Some(signature), Some(key)) if key.has_signed(self, signature) => Seal::Valid,
            (Some(_), _) => Seal::Broken,
        }
    }
}

impl Seal {
    /// Returns a few words for a person; none for a post without signature and key.
    pub fn words(self) -> &'static str {
        match self {
            Seal::Unsigned => "",
            Seal::Missing => "not signed",
            Seal::Valid => "signed",
            Seal::Broken => "bad signature",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> UserKey {
        UserKey(SigningKey::from_bytes(&[seed; 32]))
    }

    #[test]
    fn a_signature_is_of_all_that_is_shown() {
        let (ann, bob): (UserName, UserName) = ("Ann".parse().unwrap(), "bob".parse().unwrap());
        let post = Signed { user: &ann, id: "1", at_ms: 7, text: "hello" };
        let signature = key(1).sign(&post);
        let seal = |post: &Signed<'_>| post.seal(Some(&signature), Some(&key(1).public()));
        assert_eq!(seal(&post), Seal::Valid);
        for other in [
            Signed { user: &bob, ..post },
            Signed { id: "2", ..post },
            Signed { at_ms: 8, ..post },
            Signed { text: "hullo", ..post },
        ] {
            assert_eq!(seal(&other), Seal::Broken);
        }
        assert_eq!(post.seal(Some(&signature), Some(&key(2).public())), Seal::Broken);
        assert_eq!(post.seal(Some(&signature), None), Seal::Broken);
        assert_eq!(post.seal(Some("nonsense"), Some(&key(1).public())), Seal::Broken);
        assert_eq!(post.seal(None, Some(&key(1).public())), Seal::Missing);
        assert_eq!(post.seal(None, None), Seal::Unsigned);
        let public = key(1).public();
        assert_eq!(PublicKey::from_text(&public.to_text()), Some(public));
        assert_eq!(PublicKey::from_text("x"), None);
    }

    #[test]
    fn keys_are_kept_in_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = std::env::temp_dir().join(format!("chirp-key-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("key");
        assert!(matches!(UserKey::open(&path), Err(KeyError::File { .. })));
        let (made, is_new) = UserKey::open_or_make(&path).unwrap();
        assert!(is_new);
        assert_eq!(UserKey::open(&path).unwrap().public(), made.public());
        let (again, is_new) = UserKey::open_or_make(&path).unwrap();
        assert_eq!((again.public(), is_new), (made.public(), false));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing half-written is left");
        for foreign in ["", "chirp-key-1 AAAA", &"x".repeat(300)] {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(UserKey::open_or_make(&path), Err(KeyError::Foreign(_))));
        }
        assert!(matches!(UserKey::open(Path::new("/dev/zero")), Err(KeyError::Foreign(_))));
        assert!(matches!(UserKey::open_or_make(&directory), Err(KeyError::File { .. })));
        fs::remove_dir_all(&directory).unwrap();
    }
}
