//! Places on the ring, and the keys that users name.

use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

/// The longest key a user may name, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// A key's or a peer's place on the ring: the first 16 bytes of a BLAKE3 hash, big-endian, so 32 base-16 digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point(pub u128);

impl Point {
    /// The place of anything that has a name.
    pub fn of(name: &[u8]) -> Point {
        let hash = blake3::hash(name);
        let mut first = [0; 16];
        first.copy_from_slice(&hash.as_bytes()[..16]);
        Point(u128::from_be_bytes(first))
    }

    /// How far clockwise from `self` to `other`; 0 if they are the same point.
    pub fn distance_to(self, other: Point) -> u128 {
        other.0.wrapping_sub(self.0)
    }

    /// The point before this one, in ring order.
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

/// Names of so many bytes lie in the key itself: as many as it has room for anyway.
const SHORT_MAX: usize = 30;

/// What the user names: 0 to [`KEY_BYTES_MAX`] bytes, with its place on the ring computed once.
///
/// Ordered by point, then by name: the order of scans.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    point: Point,
    name: Name,
}

/// Bytes that are copied, compared and thrown away many times for each operation: usual ones without another place in
/// memory to go to.
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

/// The name is longer than [`KEY_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The length that was refused, in bytes.
    pub length: usize,
}

impl Key {
    /// The key of this name, or an error where it is too long.
    pub fn new(name: &[u8]) -> Result<Key, KeyError> {
        if name.len() > KEY_BYTES_MAX {
            return Err(KeyError { length: name.len() });
        }
        Ok(Key { point: Point::of(name), name: Name::new(name) })
    }

    /// Sorts before or equal to every key at this point and after every key before it. For bounds only: no name has it
    /// as its place.
    pub fn first_at(point: Point) -> Key {
        Key { point, name: Name::new(&[]) }
    }

    /// In which of so many lanes it is, of one at least: by that part of its point that says least of its place.
    pub fn lane(&self, lanes: usize) -> usize {
        (self.point.0 as u64 % lanes as u64) as usize
    }

    /// Where it lies on the ring.
    pub fn point(&self) -> Point {
        self.point
    }

    /// What the user called it.
    pub fn name(&self) -> &[u8] {
        self.name.bytes()
    }
}

impl core::hash::Hash for Key {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        // The point is a hash already, and equal names have equal points.
        state.write_u64(self.point.0 as u64);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.name().escape_ascii())
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.name())
    }
}

impl<'de> Deserialize<'de> for Key {
    /// Computes the point anew: a peer's word for it is not taken.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a key of at most {KEY_BYTES_MAX} bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, name: &[u8]) -> Result<Key, E> {
                Key::new(name).map_err(|e| E::invalid_length(e.length, &self))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}
