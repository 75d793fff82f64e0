//! Ids of peers, incarnations, groups and rings.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Public key of a peer. The peer's network identity proves that the peer holds the private key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerKey(pub [u8; 32]);

/// One life of a peer, in which it keeps every promise. A start takes a fresh incarnation unless the store has the promises
/// of the last one, as far as other members know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// A peer in one incarnation: for as long as its promises are known to be kept.
///
/// A restart takes a fresh incarnation unless the store still has all acknowledgements (`docs/design/durability.md`): a peer
/// that came back without its promises could break one (Scatter §5, diskless Paxos). Every quorum counts nodes, never
/// peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId {
    /// The peer.
    pub peer: PeerKey,
    /// The incarnation of the peer.
    pub incarnation: Incarnation,
}

/// Logical time of a group. Each reconfiguration raises the epoch, and none lowers it, also over split and merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// Id of a group: random, drawn when the group is founded or born of a split or merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u128);

/// Id of a ring of groups: random, drawn once by the founder of the network. Different rings never exchange state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RingId(pub u128);

/// Digits of base58, the alphabet of peer ids.
const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Length of a peer's short name, in digits.
const SHORT_DIGITS: usize = 6;

impl PeerKey {
    /// Returns the last six characters of the peer id (`12D3KooW…MMjh9m`), by which people know a peer.
    fn short(&self) -> [u8; SHORT_DIGITS] {
        // A peer id is one large number: the bytes before the key change its last digits too.
        let prefix = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];
        let modulus = 58_u64.pow(SHORT_DIGITS as u32);
        let mut rest = prefix.iter().chain(&self.0).fold(0, |rest, byte| (rest * 256 + u64::from(*byte)) % modulus);
        let mut digits = [0; SHORT_DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit = BASE58[(rest % 58) as usize];
            rest /= 58;
        }
        digits
    }
}

/// Writes the peer's short name: the last six characters of its peer id.
impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.short().iter().try_for_each(|digit| fmt::Write::write_char(f, char::from(*digit)))
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes the peer's short name, the same for each of its incarnations.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.peer, f)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{:x}", self.peer, self.incarnation.0)
    }
}

/// A group as people are shown it: `group 76897202`, with the first eight digits of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalledGroup(GroupId);

impl GroupId {
    /// Returns the form in which people are shown the group where its whole id is too long.
    pub fn called(self) -> CalledGroup {
        CalledGroup(self)
    }
}

impl fmt::Display for CalledGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {:08x}", self.0.0 >> 96)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{:08x}", self.0 >> 96)
    }
}

impl fmt::Debug for RingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for RingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn a_group_is_called_by_the_first_digits_of_its_id() {
        let group = GroupId(0x7689_7202_0123_4567_89ab_cdef_0123_4567);
        assert_eq!(group.called().to_string(), "group 76897202");
        assert!(group.to_string().starts_with("76897202"));
    }
}
