//! A node's frames: what it says, and what is said to it, inside a group and on the way in.

use alloc::format;
use core::time::Duration;

use group::Group;
use group::message::{Message, Sender};
use group::state::GroupState;
use overlay::{Epoch, Incarnation, NodeId, PeerKey};

use crate::api::{Class, Event, Output};
use crate::node::Node;
use crate::wire::{self, Frame, FrameError};

/// Longer than this nobody who wants in waits before it asks again, whatever it was told.
const WAIT_MAX: Duration = Duration::from_secs(30);

impl Node {
    pub(crate) fn send(&mut self, to: &[NodeId], message: Message, epoch: Epoch) {
        let Some(group) = &self.group else { return };
        let class = wire::class_of(&message);
        let sender = Sender { node: self.me, epoch };
        let frame = Frame::Group { ring: group.state().ring, group: group.state().id, sender, message };
        let frame = wire::encode(&frame, self.config.lane);
        for node in to {
            self.outputs.push_back(Output::Send { to: node.peer, class, frame: frame.clone() });
        }
    }

    pub(crate) fn on_frame(&mut self, from: PeerKey, frame: &[u8]) {
        if self.group.is_some() && !self.entered {
            return;
        }
        match wire::decode(frame, self.config.lane) {
            Ok(Frame::Group { ring, group, sender, message }) => {
                if sender.node.peer != from || self.ring.is_some_and(|mine| mine != ring) {
                    self.frames_dropped += 1;
                } else if let Some(mine) = &mut self.group {
                    if mine.state().id == group {
                        mine.on_message(sender, message);
                    }
                } else {
                    match message {
                        Message::State(state) => self.on_invitation(*state),
                        Message::Wait(millis) => self.on_wait(millis),
                        _ => {}
                    }
                }
            }
            Ok(Frame::Join { ring, member }) => {
                let Some(group) = &mut self.group else { return };
                if member.node.peer != from || ring.is_some_and(|ring| ring != group.state().ring) {
                    self.frames_dropped += 1;
                    return;
                }
                let sender = Sender { node: member.node, epoch: group.state().epoch };
                group.on_message(sender, Message::Join(member));
            }
            Ok(Frame::NotUnderstood { version }) => {
                self.event(Event::Note(format!("{from:?} does not understand frames of version {version}")));
            }
            Err(FrameError::Version(_)) => {
                self.frames_dropped += 1;
                let frame = wire::encode(&Frame::NotUnderstood { version: wire::FRAME_VERSION }, self.config.lane);
                self.outputs.push_back(Output::Send { to: from, class: Class::Control, frame });
            }
            Err(FrameError::Malformed) => self.frames_dropped += 1,
        }
    }

    /// A group's state came to a node outside: it is in, or learns which incarnation would be.
    fn on_invitation(&mut self, state: GroupState) {
        if !state.is_sound() {
            self.frames_dropped += 1;
            return;
        }
        match state.last_life(self.me.peer) {
            Some(node) if node == self.me => {
                let seed = self.rng.draw();
                let group = Group::join(self.group_config(), self.me, state, self.now, seed);
                self.enter(group);
                let addresses = self.addresses.clone();
                self.with_group(|group| group.set_addresses(addresses));
            }
            Some(node) if node > self.me => {
                // It has lived there before, with a later incarnation than its clock gave it now.
                self.me.incarnation = Incarnation(node.incarnation.0 + 1 + self.rng.below(1 << 16));
                self.join_due = self.now.time;
            }
            _ => {}
        }
    }

    /// A group has noted that this node wants in, or has no room to note it.
    fn on_wait(&mut self, millis: u64) {
        let wait = Duration::from_millis(millis).min(WAIT_MAX);
        self.join_due = self.join_due.max(self.now.time + wait);
    }

    pub(crate) fn ask_to_join(&mut self, peer: PeerKey) {
        let frame = wire::encode(&Frame::Join { ring: self.ring, member: self.member() }, self.config.lane);
        self.outputs.push_back(Output::Send { to: peer, class: Class::Control, frame });
    }
}
