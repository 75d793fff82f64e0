//! Frames that wait until their sender's start is durable, or until its lineage is known. See [`crate::starts`].

use alloc::collections::VecDeque;

use group::message::{Message, Sender};
use overlay::{GroupId, PeerKey};

use crate::context::Context;
use crate::starts::Starts;
use crate::wire::{self, Frame, Stamp};

/// Upper limit of held frames.
const FRAMES_MAX: usize = 1024;
/// Upper limit of their size, in bytes.
const BYTES_MAX: usize = 4 << 20;

/// A held frame.
pub(crate) struct Held {
    pub(crate) from: PeerKey,
    pub(crate) stamp: Stamp,
    pub(crate) frame: Frame,
    /// Length as received.
    pub(crate) bytes: usize,
}

/// All held frames, the oldest first.
#[derive(Default)]
pub(crate) struct Waiting {
    frames: VecDeque<Held>,
    bytes: usize,
}

impl Starts {
    /// Keeps a frame until [`Starts::take_held`]. If there is no room, the frame is dropped and counted.
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>, from: PeerKey, stamp: Stamp, frame: Frame, bytes: usize) {
        let waiting = &mut self.waiting;
        if waiting.frames.len() >= FRAMES_MAX || waiting.bytes + bytes > BYTES_MAX {
            cx.drop_frame();
            return;
        }
        waiting.bytes += bytes;
        waiting.frames.push_back(Held { from, stamp, frame, bytes });
    }

    /// Takes out the frames of these senders, which are to be judged again.
    pub(crate) fn take_held(&mut self, of: impl Fn(PeerKey) -> bool) -> VecDeque<Held> {
        let all = core::mem::take(&mut self.waiting);
        let (judged, others) = all.frames.into_iter().partition::<VecDeque<Held>, _>(|held| of(held.from));
        self.waiting.bytes = others.iter().map(|held| held.bytes).sum();
        self.waiting.frames = others;
        judged
    }

    /// Handles an early message for a group that is here now, from a node whose start no group asked for. The message
    /// waits if that start is not durable yet; otherwise it is returned.
    pub(crate) fn hold_early(
        &mut self,
        cx: &mut Context<'_>,
        group: GroupId,
        sender: Sender,
        message: Message,
    ) -> Option<Message> {
        if matches!(message, Message::Client(_)) || !self.is_unwritten(cx, sender.node) {
            return Some(message);
        }
        let ring = cx.ring?;
        let start = self.known.get(&sender.node)?.start;
        let stamp = Stamp { incarnation: sender.node.incarnation, start, to: 0 };
        let frame = Frame::Group { ring, group, sender, message };
        let bytes = wire::encode(&stamp, &frame, cx.config.lane).len();
        self.hold(cx, sender.node.peer, stamp, frame, bytes);
        None
    }
}
