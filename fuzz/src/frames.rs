//! Decoder of frames between peers.

use node::wire::{self, Frame, Stamp};
use overlay::{Incarnation, NodeId, PeerKey};

use crate::samples;

/// Decodes a frame. The decoded frame is encoded to no more bytes than came, and reads back the same.
pub fn frame(bytes: &[u8]) -> bool {
    let Ok((stamp, frame)) = wire::decode(bytes, None) else { return false };
    if let Frame::Group { message, .. } = &frame {
        // The checks of a message before a node believes it.
        wire::class_of(message);
        let _ = message.check(NodeId { peer: PeerKey([7; 32]), incarnation: Incarnation(1) });
    }
    let written = wire::encode(&stamp, &frame, None);
    assert!(written.len() <= bytes.len(), "{} bytes became {}", bytes.len(), written.len());
    assert_eq!(wire::decode(&written, None), Ok((stamp, frame)));
    true
}

pub fn corpus() -> Vec<Vec<u8>> {
    samples::frames().iter().map(|frame| wire::encode(&Stamp::default(), frame, None).to_vec()).collect()
}
