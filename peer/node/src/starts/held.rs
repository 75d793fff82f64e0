//! Frames that wait until their sender's start is durable, or until its lineage is known. See [`crate::starts`].

use alloc::collections::VecDeque;

use group::message::{Message, Sender};
use overlay::{GroupId, PeerKey};

use crate::node::Node;
use crate::wire::{self, Frame, Stamp};

/// Upper limit of held frames.
const FRAMES_MAX: usize = 1024;
/// Upper limit of their size, in bytes.
const BYTES_MAX: usize = 4 << 20;

/// A held frame.
struct Held {
    from: PeerKey,
    stamp: Stamp,
    frame: Frame,
    /// Length as received.
    bytes: usize,
}

/// All held frames, the oldest first.
#[derive(Default)]
pub(crate) struct Waiting {
    frames: VecDeque<Held>,
    bytes: usize,
}

impl Node {
    /// Keeps a frame until [`Node::admit_held`]. If there is no room, the frame is dropped and counted.
    pub(crate) fn hold(&mut self, from: PeerKey, stamp: Stamp, frame: Frame, bytes: usize) {
        let waiting = &mut self.starts.waiting;
        if waiting.frames.len() >= FRAMES_MAX || waiting.bytes + bytes > BYTES_MAX {
            self.frames_dropped += 1;
            return;
        }
        waiting.bytes += bytes;
        waiting.frames.push_back(Held { from, stamp, frame, bytes });
    }

    /// Judges the frames of these senders again.
    pub(crate) fn admit_held(&mut self, of: impl Fn(PeerKey) -> bool) {
        let all = core::mem::take(&mut self.starts.waiting);
        let (judged, others) = all.frames.into_iter().partition::<VecDeque<Held>, _>(|held| of(held.from));
        self.starts.waiting.bytes = others.iter().map(|held| held.bytes).sum();
        self.starts.waiting.frames = others;
        for Held { from, stamp, frame, bytes } in judged {
            if let Some(frame) = self.admit(from, stamp, frame, bytes) {
                self.on_admitted(from, frame);
            }
        }
    }

    /// Handles an early message for a group that is here now, from a node whose start no group asked for. The message
    /// waits if that start is not durable yet; otherwise it is returned.
    pub(crate) fn hold_early(&mut self, group: GroupId, sender: Sender, message: Message) -> Option<Message> {
        if matches!(message, Message::Client(_)) || !self.is_unwritten(sender.node) {
            return Some(message);
        }
        let ring = self.ring?;
        let start = self.starts.known.get(&sender.node)?.start;
        let stamp = Stamp { incarnation: sender.node.incarnation, start, to: 0 };
        let frame = Frame::Group { ring, group, sender, message };
        let bytes = wire::encode(&stamp, &frame, self.config.lane).len();
        self.hold(sender.node.peer, stamp, frame, bytes);
        None
    }
}
