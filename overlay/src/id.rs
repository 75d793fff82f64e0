//! Who is who: peers, their incarnations, groups, rings.

use core::fmt;

use serde::{Deserialize, Serialize};

/// A peer's public key: what its network identity proves it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerKey(pub [u8; 32]);

/// One life of a peer. Fresh at every start unless a sealed store proves that nothing was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// A peer for as long as its promises are known to be kept.
///
/// A restart takes a fresh incarnation unless a sealed store proves that nothing was lost: a peer that came back without
/// its promises could break one (Scatter §5, diskless Paxos). Every quorum counts nodes, never peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId {
    /// Whose life it is.
    pub peer: PeerKey,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

/// A group's logical time: goes up at each reconfiguration and never back, also over split and merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A group of peers; random, drawn when the group is founded or born of a split or merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u128);

/// A ring of groups; random, drawn once by whoever founds the network. Different rings never exchange state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RingId(pub u128);

/// The digits of base58, as peer ids have them.
const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Digits of a peer's short name.
const SHORT_DIGITS: usize = 6;

impl PeerKey {
    /// The last six characters of the peer id (`12D3KooW…MMjh9m`), by which people know a peer.
    fn short(&self) -> [u8; SHORT_DIGITS] {
        // What stands before a key in a peer id changes its last digits, as these are of one large number.
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

/// The peer's short name: the last six characters of its peer id.
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

/// The peer's short name, whichever of its lives is meant.
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
    /// The group as people are shown it where its whole id is too long.
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
