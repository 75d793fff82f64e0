//! Access of `fuzz/` to a peer's state beside its store.

use std::path::PathBuf;

use super::memo::Memo;

/// Returns whether this is a `peer.json`, without its checksum, that a peer can start with. A parsed file is used,
/// written and read back.
pub fn memo(text: &[u8]) -> bool {
    let _ = Memo::parse(PathBuf::new(), text);
    let Ok(mut memo) = Memo::parse_unsealed(PathBuf::new(), text) else { return false };
    let again = Memo::parse(PathBuf::new(), &memo.text());
    assert_eq!(again.as_ref(), Ok(&memo));
    assert!(memo.peers().count() <= text.len());
    memo.take_incarnation(1).is_ok()
}
