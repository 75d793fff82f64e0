//! Who wrote a chirp, as far as that can be proved: keys of users and what they sign (Ed25519).
//!
//! The demo trusts names. A user who signs up with a key has the key's public half in the profile, which is set once;
//! readers hold what is signed against that. What a reader is told is a [`Seal`].

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use crate::name::UserName;
use crate::patience::random;

/// Both begin with what they are for, so that nothing else that is signed with the same key can be taken for it.
const CONTEXT: &str = "chirp post 1";
const FILE_PREFIX: &str = "chirp-key-1 ";
/// No key file is longer; what is longer is another file.
const FILE_BYTES_MAX: u64 = 200;

/// A user's key, with which posts are signed.
pub struct UserKey(SigningKey);

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Its file cannot be read or written.
    #[error("the key {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// The file is there, and holds something else.
    #[error("{} is no key of Chirp's", .0.display())]
    Foreign(PathBuf),
    /// The user has signed up without a key, or with another one.
    #[error("{0} signed up {1}: what is signed with this one would be taken for a forgery")]
    NotTheUsers(UserName, &'static str),
}

/// The public half of a user's key, as in the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// What a reader knows of who wrote a chirp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// It is not signed, and the user has no key: whoever knows the name may have written it.
    Unsigned,
    /// It is not signed, though the user has a key.
    Missing,
    /// Signed with the user's key.
    Valid,
    /// Signed, but not with the user's key, or not this text.
    Broken,
}

impl UserKey {
    /// The key in this file; where there is none and `make` is set, a new one is made and written there, readable for its
    /// owner alone.
    pub fn open(path: &Path, make: bool) -> Result<UserKey, KeyError> {
        let problem = |why| KeyError::File { path: path.to_owned(), why };
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
                return UserKey::create(path).map_err(problem);
            }
            Err(error) => return Err(problem(error)),
            Ok(file) if file.len() > FILE_BYTES_MAX => return Err(KeyError::Foreign(path.to_owned())),
            Ok(_) => {}
        }
        let text = fs::read_to_string(path).map_err(problem)?;
        let seed = text.trim_end().strip_prefix(FILE_PREFIX).and_then(|seed| BASE64.decode(seed).ok());
        let seed: Option<[u8; 32]> = seed.and_then(|seed| seed.try_into().ok());
        seed.map(|seed| UserKey(SigningKey::from_bytes(&seed))).ok_or_else(|| KeyError::Foreign(path.to_owned()))
    }

    fn create(path: &Path) -> io::Result<UserKey> {
        let seed = random::<32>();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{FILE_PREFIX}{}", BASE64.encode(seed))?;
        file.sync_all()?;
        Ok(UserKey(SigningKey::from_bytes(&seed)))
    }

    /// What others need to check signatures.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs a post.
    pub(crate) fn sign(&self, post: &Signed<'_>) -> String {
        BASE64.encode(self.0.sign(&post.bytes()).to_bytes())
    }
}

impl PublicKey {
    /// As it is in a profile.
    pub fn to_text(&self) -> String {
        BASE64.encode(self.0.as_bytes())
    }

    /// `None` where that is no key.
    pub fn from_text(text: &str) -> Option<PublicKey> {
        let bytes: [u8; 32] = BASE64.decode(text).ok()?.try_into().ok()?;
        VerifyingKey::from_bytes(&bytes).ok().map(PublicKey)
    }

    fn has_signed(&self, post: &Signed<'_>, signature: &str) -> bool {
        let bytes = BASE64.decode(signature).ok().and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        bytes.is_some_and(|bytes| self.0.verify_strict(&post.bytes(), &Signature::from_bytes(&bytes)).is_ok())
    }
}

/// What is signed of a post: all that readers are shown.
pub(crate) struct Signed<'a> {
    pub user: &'a UserName,
    pub id: &'a str,
    pub at_ms: u64,
    pub text: &'a str,
}

impl Signed<'_> {
    fn bytes(&self) -> Vec<u8> {
        // Nothing before the text can have a line end in it.
        format!("{CONTEXT}\n{}\n{}\n{}\n{}", self.user.folded(), self.at_ms, self.id, self.text).into_bytes()
    }

    /// What a reader knows of it, who knows the user's key, where there is one.
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
    /// For a person, in a few words; nothing where there is nothing to be said.
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
        assert!(matches!(UserKey::open(&path, false), Err(KeyError::File { .. })));
        let made = UserKey::open(&path, true).unwrap().public();
        assert_eq!(UserKey::open(&path, true).unwrap().public(), made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for foreign in ["", "chirp-key-1 AAAA", &"x".repeat(300)] {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(UserKey::open(&path, true), Err(KeyError::Foreign(_))));
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
