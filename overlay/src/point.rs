//! Points of the ring, and the keys that users name.

use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

/// Upper limit of the length of a key that a user names, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// Place of a key or a peer on the ring: the first 16 bytes of a BLAKE3 hash, big-endian, so 32 base-16 digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point(pub u128);

impl Point {
    /// Returns the point of a name.
    pub fn of(name: &[u8]) -> Point {
        let hash = blake3::hash(name);
        let mut first = [0; 16];
        first.copy_from_slice(&hash.as_bytes()[..16]);
        Point(u128::from_be_bytes(first))
    }

    /// Returns the clockwise distance from `self` to `other`; 0 if they are the same point.
    pub fn distance_to(self, other: Point) -> u128 {
        other.0.wrapping_sub(self.0)
    }

    /// Returns the point before this one, in ring order.
    pub fn before(self) -> Point {
        Point(self.0.wrapping_sub(1))
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Upper limit of the encoded names that lie in the key itself, in bytes: a key has room for as many anyway.
const SHORT_MAX: usize = 30;

/// Upper limit of the tag of a companion key, in bytes.
pub const TAG_BYTES_MAX: usize = 256;
/// First byte of an encoded key that is not just the user's name.
const ESCAPE: u8 = 0xff;
/// Second byte of an encoded companion key. A user's name that begins with [`ESCAPE`] has that byte twice.
const COMPANION: u8 = 1;

/// A key that a user names, of 0 to [`KEY_BYTES_MAX`] bytes, with its point computed once; or a companion of such a key
/// ([`Key::companion`]). A companion lies at the same point, and no user can name it.
///
/// Ordered by point, then by encoded name: the order of scans.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    point: Point,
    name: Name,
}

/// The bytes of an encoded key. They are copied, compared and dropped many times for each operation, so usual names need no
/// other place in memory.
#[derive(Clone)]
enum Name {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Arc<[u8]>),
}

impl Name {
    fn new(name: &[u8]) -> Name {
        if name.len() > SHORT_MAX {
            return Name::Long(name.into());
        }
        let mut bytes = [0; SHORT_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Name::Short { len: name.len() as u8, bytes }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Name::Short { len, bytes } => &bytes[..usize::from(*len)],
            Name::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> core::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

/// Refusal of a name that is longer than [`KEY_BYTES_MAX`], or of bytes that encode no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The refused length, in bytes.
    pub length: usize,
}

impl Key {
    /// Returns the key of this name.
    ///
    /// # Errors
    /// The name is longer than [`KEY_BYTES_MAX`].
    pub fn new(name: &[u8]) -> Result<Key, KeyError> {
        if name.len() > KEY_BYTES_MAX {
            return Err(KeyError { length: name.len() });
        }
        let point = Point::of(name);
        if name.first() != Some(&ESCAPE) {
            return Ok(Key { point, name: Name::new(name) });
        }
        Ok(Key { point, name: Name::new(&[&[ESCAPE], name].concat()) })
    }

    /// Decodes a key from the bytes that [`Key::encoded`] returned.
    ///
    /// # Errors
    /// The bytes encode no key.
    pub fn decode(encoded: &[u8]) -> Result<Key, KeyError> {
        let error = KeyError { length: encoded.len() };
        match encoded {
            [ESCAPE, ESCAPE, ..] => Key::new(&encoded[1..]),
            [ESCAPE, COMPANION, rest @ ..] => {
                let (owner, tag) = parts(rest).ok_or(error)?;
                let is_sound = owner.len() <= KEY_BYTES_MAX && (1..=TAG_BYTES_MAX).contains(&tag.len());
                if is_sound { Ok(Key { point: Point::of(owner), name: Name::new(encoded) }) } else { Err(error) }
            }
            [ESCAPE, ..] => Err(error),
            name => Key::new(name),
        }
    }

    /// Returns the companion key with this tag, at the same point: for records that a node keeps about the key. `tag` has 1 to
    /// [`TAG_BYTES_MAX`] bytes, and the key itself is no companion.
    pub fn companion(&self, tag: &[u8]) -> Key {
        debug_assert!(self.owner().is_none() && (1..=TAG_BYTES_MAX).contains(&tag.len()));
        let owner = self.name();
        let length = (owner.len() as u16).to_be_bytes();
        Key { point: self.point, name: Name::new(&[&[ESCAPE, COMPANION], &length[..], owner, tag].concat()) }
    }

    /// Returns whether this is a companion key.
    pub fn is_companion(&self) -> bool {
        matches!(self.encoded(), [ESCAPE, COMPANION, ..])
    }

    /// Returns the user's key that this companion belongs to; `None` for a user's key.
    pub fn owner(&self) -> Option<Key> {
        if !self.is_companion() {
            return None;
        }
        let owner = self.name();
        let escape: &[u8] = if owner.first() == Some(&ESCAPE) { &[ESCAPE] } else { &[] };
        Some(Key { point: self.point, name: Name::new(&[escape, owner].concat()) })
    }

    /// Returns the lower bound of the keys at a point: it sorts before or equal to every key at this point, and after every key
    /// before that point. For bounds only: the point is not that of the bound's name.
    pub fn first_at(point: Point) -> Key {
        Key { point, name: Name::new(&[]) }
    }

    /// Returns the key's lane of `lanes`, at least one: from the lowest 64 bits of the point, which say least of its place.
    pub fn lane(&self, lanes: usize) -> usize {
        (self.point.0 as u64 % lanes as u64) as usize
    }

    /// Returns the key's place on the ring.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Returns the name that the user gave; for a companion key the name of its owner.
    pub fn name(&self) -> &[u8] {
        match self.encoded() {
            [ESCAPE, COMPANION, rest @ ..] => parts(rest).map_or(&[], |(owner, _)| owner),
            [ESCAPE, name @ ..] => name,
            name => name,
        }
    }

    /// Returns the bytes that encode the key in messages and in the store. They are the user's name, except for companion keys
    /// and for names that begin with byte 0xff.
    pub fn encoded(&self) -> &[u8] {
        self.name.bytes()
    }
}

/// Splits the bytes behind the first two of a companion key into owner and tag.
fn parts(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = rest.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

impl core::hash::Hash for Key {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        // The point is a hash already, and equal names have equal points.
        state.write_u64(self.point.0 as u64);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = if self.is_companion() { "beside " } else { "" };
        write!(f, "{beside}\"{}\"", self.name().escape_ascii())
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.encoded())
    }
}

impl<'de> Deserialize<'de> for Key {
    /// Computes the point anew, so no peer can claim a wrong one.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a key of at most {KEY_BYTES_MAX} bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, encoded: &[u8]) -> Result<Key, E> {
                Key::decode(encoded).map_err(|e| E::invalid_length(e.length, &self))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_lie_beside_their_owners_and_no_user_can_name_them() {
        for name in [&b""[..], b"k", b"\xff", b"\xff\x01\x00\x01k", &[0xff; KEY_BYTES_MAX], &[7; KEY_BYTES_MAX]] {
            let owner = Key::new(name).unwrap();
            assert_eq!((owner.name(), owner.owner(), owner.point()), (name, None, Point::of(name)));
            assert_eq!(Key::decode(owner.encoded()), Ok(owner.clone()));
            for tag in [&b"a"[..], &[0xff; TAG_BYTES_MAX]] {
                let beside = owner.companion(tag);
                assert_eq!((beside.point(), beside.name(), beside.owner()), (owner.point(), name, Some(owner.clone())));
                assert_eq!(Key::decode(beside.encoded()), Ok(beside.clone()));
                assert_ne!(Key::new(beside.encoded()).as_ref(), Ok(&beside), "as a user's name");
                let sent = postcard::to_allocvec(&beside).unwrap();
                assert_eq!(postcard::from_bytes(&sent), Ok(beside));
            }
        }
    }

    #[test]
    fn what_encodes_no_key_is_refused() {
        let no_tag = [&b"\xff\x01\x00\x01"[..], b"k"].concat();
        let long_tag = [&b"\xff\x01\x00\x01k"[..], &[1; TAG_BYTES_MAX + 1]].concat();
        let long_owner = [&b"\xff\x01\x04\x01"[..], &[1; KEY_BYTES_MAX + 2]].concat();
        for bytes in [&b"\xff"[..], b"\xff\x00", b"\xff\x01", b"\xff\x01\x00\x09k", &no_tag, &long_tag, &long_owner] {
            assert_eq!(Key::decode(bytes), Err(KeyError { length: bytes.len() }), "{bytes:?}");
        }
    }
}
