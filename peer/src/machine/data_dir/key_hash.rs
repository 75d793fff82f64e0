//! The remembered hash of a network's key: it detects a different key, and does not reveal the key.

use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};

use super::super::launch::draw;

/// Length of a hash in bytes.
const HASH_BYTES: usize = 32;
/// Upper limits of the cost that a file may ask for: it must not cost a start its memory.
const MEMORY_KIB_MAX: u32 = 256 << 10;
const PASSES_MAX: u32 = 64;

/// Cost of a hash's computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over that memory.
    pub passes: u32,
}

impl Cost {
    /// The recommendation of OWASP for Argon2id: some 20 ms, once at a start.
    pub const USUAL: Cost = Cost { memory_kib: 19 << 10, passes: 2 };
}

/// A salted slow hash (Argon2id, RFC 9106) of a network's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyHash {
    memory_kib: u32,
    passes: u32,
    salt: String,
    hash: String,
}

impl KeyHash {
    /// Hashes this key, with a new salt.
    ///
    /// # Errors
    /// The error of the library, where it refuses the cost.
    pub fn new(key: &[u8], cost: Cost) -> Result<KeyHash, String> {
        // A salt has to be new each time, but not secret.
        let salt = format!("{:016x}{:016x}", draw(), draw());
        let hash = derive(key, salt.as_bytes(), cost)?;
        Ok(KeyHash { memory_kib: cost.memory_kib, passes: cost.passes, salt, hash })
    }

    /// Returns whether the hash is that of this key.
    ///
    /// # Errors
    /// The file holds no hash that this program would have written.
    pub(crate) fn is_of(&self, key: &[u8]) -> Result<bool, String> {
        let cost = Cost { memory_kib: self.memory_kib, passes: self.passes };
        if cost.memory_kib > MEMORY_KIB_MAX || cost.passes > PASSES_MAX {
            return Err("the remembered hash of the network's key has parameters above the limits".into());
        }
        Ok(derive(key, self.salt.as_bytes(), cost)? == self.hash)
    }
}

fn derive(key: &[u8], salt: &[u8], cost: Cost) -> Result<String, String> {
    let params = Params::new(cost.memory_kib, cost.passes, 1, Some(HASH_BYTES));
    let mut hash = [0; HASH_BYTES];
    params
        .and_then(|params| {
            Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into(key, salt, &mut hash)
        })
        .map_err(|error| format!("the network's key cannot be hashed: {error}"))?;
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
pub(in super::super) const CHEAP: Cost = Cost { memory_kib: 8, passes: 1 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_keys_apart_and_does_not_hold_one() {
        let (one, again) = (KeyHash::new(b"open sesame", CHEAP).unwrap(), KeyHash::new(b"open sesame", CHEAP).unwrap());
        assert_ne!(one, again, "each has a salt of its own");
        assert_eq!((one.is_of(b"open sesame"), one.is_of(b"open sesam")), (Ok(true), Ok(false)));
        assert!(!format!("{one:?}").contains("sesame"));
        assert!(KeyHash { memory_kib: u32::MAX, ..one }.is_of(b"x").is_err());
    }

    /// RFC 9106's function at a fixed point, from another implementation: no change of the library locks any peer out.
    #[test]
    fn hashes_stay_the_same() {
        let hash = derive(b"password", b"somesaltsomesalt", CHEAP).unwrap();
        assert_eq!(hash, "05b6ca8f8038b683887ad4916533858b49cb52040126c134f4c6e9d8711b8c09");
    }
}
