//! What peers say to each other.

use group::message::Message;
use node::wire::{self, Frame};

use crate::samples;

/// Decodes a frame. What was understood is written no longer than it came, and reads back the same.
pub fn frame(bytes: &[u8]) -> bool {
    let Ok(frame) = wire::decode(bytes) else { return false };
    if let Frame::Group { message, .. } = &frame {
        // What is asked of a message before anything is believed.
        wire::class_of(message);
        match message {
            Message::Log(log) => _ = log.is_sound(),
            Message::Committee(committee) => _ = (committee.is_sound(), committee.ballot()),
            _ => {}
        }
    }
    let written = wire::encode(&frame);
    assert!(written.len() <= bytes.len(), "{} bytes became {}", bytes.len(), written.len());
    assert_eq!(wire::decode(&written), Ok(frame));
    true
}

pub fn corpus() -> Vec<Vec<u8>> {
    samples::frames().iter().map(|frame| wire::encode(frame).to_vec()).collect()
}
