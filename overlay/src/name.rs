//! Names that people give to peers, and the one form in which a peer is shown.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// A peer's name, as its operator chose it: 1 to 32 ASCII letters, digits, `-`, `_` and `.`.
///
/// A name is for people only. Names are not unique, and no decision rests on one. Decoding refuses every other text, so a
/// name from another peer cannot hold control characters and is safe to print.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(String);

/// Refusal of a text that is no [`PeerName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a peer's name has 1 to {} characters: letters (a-z, A-Z), digits, `-`, `_`, `.`",
            PeerName::BYTES_MAX
        )
    }
}

impl core::error::Error for NameError {}

impl PeerName {
    /// Length of the longest name, in bytes and characters.
    pub const BYTES_MAX: usize = 32;

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks whether a text is a name, without keeping the text.
    fn check(text: &str) -> Result<(), NameError> {
        let fits = (1..=PeerName::BYTES_MAX).contains(&text.len());
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if fits && plain { Ok(()) } else { Err(NameError) }
    }
}

impl FromStr for PeerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<PeerName, NameError> {
        PeerName::check(text).map(|()| PeerName(text.to_string()))
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for PeerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("PeerName", &self.0)
    }
}

impl<'de> Deserialize<'de> for PeerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PeerName, D::Error> {
        deserializer.deserialize_newtype_struct("PeerName", NameVisitor)
    }
}

/// Decodes a [`PeerName`], and refuses any other text.
struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = PeerName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&NameError, f)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<PeerName, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PeerName, E> {
        text.parse().map_err(E::custom)
    }
}

/// A peer as people are shown it: `oak (MMjh9m)`, or `MMjh9m` where it has no name.
///
/// The short id is always shown, since several peers may have one name.
#[derive(Clone, Copy, Debug)]
pub struct Called<'a, Id> {
    /// The peer's name, if it is known and the peer has one.
    pub name: Option<&'a PeerName>,
    /// The peer's short id.
    pub id: Id,
}

impl<Id: fmt::Display> fmt::Display for Called<'_, Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{name} ({})", self.id),
            None => fmt::Display::fmt(&self.id, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_short() {
        let longest = "x".repeat(PeerName::BYTES_MAX);
        for good in ["a", "oak", "rack-7_b.example.org", "7", "-", longest.as_str()] {
            assert_eq!(good.parse::<PeerName>().map(|name| name.to_string()).as_deref(), Ok(good));
        }
        let too_long = "x".repeat(PeerName::BYTES_MAX + 1);
        for bad in ["", " ", "an oak", "oak\n", "\u{1b}[2J", "\u{7f}", "chêne", "a/b", "a:b", "(a)", too_long.as_str()]
        {
            assert_eq!(bad.parse::<PeerName>(), Err(NameError), "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_name_is_not_decoded() {
        let oak: PeerName = "oak".parse().unwrap();
        let bytes = postcard::to_allocvec(&oak).unwrap();
        assert_eq!(bytes, postcard::to_allocvec("oak").unwrap(), "a name takes no more than its text");
        assert_eq!(postcard::from_bytes::<PeerName>(&bytes), Ok(oak));
        for bad in ["", "o\u{1b}k", "o k", &"x".repeat(PeerName::BYTES_MAX + 1)] {
            assert!(postcard::from_bytes::<PeerName>(&postcard::to_allocvec(bad).unwrap()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_stands_beside_the_short_id() {
        let oak: PeerName = "oak".parse().unwrap();
        assert_eq!(Called { name: Some(&oak), id: "MMjh9m" }.to_string(), "oak (MMjh9m)");
        assert_eq!(Called { name: None, id: "MMjh9m" }.to_string(), "MMjh9m");
    }
}
