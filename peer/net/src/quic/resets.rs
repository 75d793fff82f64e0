//! Resets: a restarted peer tells other peers that the connections of its last start are gone.
//!
//! A peer that gets a packet of an unknown connection answers with a reset. The sender trusts the reset because of a
//! token that only both sides of that connection knew. The token here is made of the connection's id under the peer's own
//! key, so the next start makes the same one. Without it the other peers would write to a dead connection until it is
//! idle.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use quinn::crypto::{CryptoError, HmacKey};
use quinn::{ConnectionId, ConnectionIdGenerator};

const CONNECTION_ID_BYTES: usize = 8;

/// Maker of the tokens, the same in every start of a peer.
pub(super) struct ResetKey([u8; 32]);

impl ResetKey {
    pub(super) fn new(secret: &[u8; 32]) -> ResetKey {
        ResetKey(blake3::derive_key("scatter 2026 quic reset", secret))
    }
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        blake3::Hasher::new_keyed(&self.0).update(data).finalize_xof().fill(signature);
    }

    fn signature_len(&self) -> usize {
        blake3::OUT_LEN
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let signature: [u8; blake3::OUT_LEN] = signature.try_into().map_err(|_| CryptoError)?;
        // `blake3::Hash` compares in constant time.
        match blake3::keyed_hash(&self.0, data) == signature {
            true => Ok(()),
            false => Err(CryptoError),
        }
    }
}

/// Generator of connection ids. Ids of an earlier start count as possible, so that packets with such an id are answered;
/// quinn's own generator would reject them.
#[derive(Default)]
pub(super) struct ConnectionIds {
    random: RandomState,
    draws: u64,
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        self.draws += 1;
        ConnectionId::new(&self.random.hash_one(self.draws).to_le_bytes())
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_start_makes_the_same_tokens() {
        let (mut one, mut two, mut other) = ([0; 32], [0; 32], [0; 32]);
        ResetKey::new(&[1; 32]).sign(b"id", &mut one);
        ResetKey::new(&[1; 32]).sign(b"id", &mut two);
        ResetKey::new(&[2; 32]).sign(b"id", &mut other);
        assert_eq!(one, two);
        assert_ne!(one, other);
        assert!(ResetKey::new(&[1; 32]).verify(b"id", &one).is_ok());
        assert!(ResetKey::new(&[1; 32]).verify(b"di", &one).is_err());
        assert!(ResetKey::new(&[1; 32]).verify(b"id", &one[..16]).is_err());
    }

    #[test]
    fn ids_are_not_drawn_twice_nor_by_two_starts() {
        let mut drawn = std::collections::HashSet::new();
        for _ in 0..3 {
            let mut ids = ConnectionIds::default();
            for _ in 0..1000 {
                let id = ids.generate_cid();
                assert_eq!(id.len(), ids.cid_len());
                assert!(drawn.insert(id.to_vec()));
            }
        }
    }
}
