//! Access of `fuzz/` to a peer's state beside its store.

use std::path::PathBuf;

use super::data_dir::peer_state::PeerState;

/// Returns whether this is a `peer.json`, without its checksum, that a peer can start with. A parsed file is used,
/// written and read back.
pub fn peer_state(text: &[u8]) -> bool {
    let _ = PeerState::parse(PathBuf::new(), text);
    let Ok(mut peer_state) = PeerState::parse_unsealed(PathBuf::new(), text) else { return false };
    let again = PeerState::parse(PathBuf::new(), &peer_state.text());
    assert_eq!(again.as_ref(), Ok(&peer_state));
    assert!(peer_state.peers().count() <= text.len());
    peer_state.take_incarnation(1).is_ok()
}
