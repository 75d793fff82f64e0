//! Frames that a node sends and receives, inside a group and while it joins.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use group::Group;
use group::control::state::GroupState;
use group::message::{Message, Sender};
use group::transaction::driver::GroupEnvelope;
use overlay::{Contact, Epoch, GroupId, Incarnation, NodeId, PeerKey};

use crate::api::{Class, Event};
use crate::context::context;
use crate::node::Node;
use crate::routing::Located;
use crate::starts::Admission;
use crate::starts::held::Held;
use crate::starts::refused::Users;
use crate::wire::{self, Frame, FrameError, Stamp};

/// Number of points in a former range at which the owner is looked up: the group may have become several.
const PLACES: u32 = 1 << 16;

impl Node {
    pub(crate) fn on_frame(&mut self, from: PeerKey, frame: &[u8]) {
        if !self.replicas.is_empty() && !self.stage.entered {
            return;
        }
        match wire::decode(frame, self.config.lane) {
            Ok((stamp, decoded)) => {
                if !is_from(from, &stamp, &decoded) {
                    self.frames_dropped += 1;
                } else if let Some(decoded) = self.admit(from, stamp, decoded, frame.len()) {
                    self.on_admitted(from, decoded);
                }
            }
            Err(FrameError::Version(version)) => self.on_foreign_version(from, version, frame),
            Err(FrameError::Malformed) => self.frames_dropped += 1,
        }
    }

    /// Handles the start of a frame's sender. Returns the frame if the start counts.
    pub(crate) fn admit(&mut self, from: PeerKey, stamp: Stamp, frame: Frame, bytes: usize) -> Option<Frame> {
        let users = &mut Users { walks: &mut self.routing.walks, requests: &mut self.requests };
        let frame = match self.starts.admit(&mut context!(self), users, from, stamp, frame) {
            Admission::Counts(frame) => return Some(frame),
            Admission::Never => return None,
            Admission::Ends(why) => {
                self.end_life(why);
                return None;
            }
            Admission::AfterHeld(frame) => {
                self.admit_held(|peer| peer == from);
                frame
            }
            Admission::Judge(frame) => frame,
        };
        self.starts.admit_judged(&mut context!(self), from, stamp, frame, bytes)
    }

    /// Judges the held frames of these senders again.
    pub(crate) fn admit_held(&mut self, of: impl Fn(PeerKey) -> bool) {
        for Held { from, stamp, frame, bytes } in self.starts.take_held(of) {
            if let Some(frame) = self.admit(from, stamp, frame, bytes) {
                self.on_admitted(from, frame);
            }
        }
    }

    /// Handles a frame of another version. The sender is told once in each connection, and never in answer to a
    /// [`Frame::NotUnderstood`]: two peers would go on answering each other for ever.
    fn on_foreign_version(&mut self, from: PeerKey, version: u8, frame: &[u8]) {
        self.frames_dropped += 1;
        if !self.foreign.insert(from) {
            return;
        }
        let own = wire::FRAME_VERSION;
        let note = format!("{} speaks frames of version {version}, and this peer version {own}", self.called(from));
        self.out.event(Event::Note(note));
        if !wire::is_not_understood(frame, self.config.lane) {
            self.cx().post(from, Class::Control, &Frame::NotUnderstood { version: own });
        }
    }

    /// Handles a frame of a sender whose start counts.
    pub(crate) fn on_admitted(&mut self, from: PeerKey, frame: Frame) {
        if self.starts.is_barred() {
            if let Frame::Contested(contested) = frame {
                self.starts.on_contested(&mut context!(self), from, *contested);
            }
            return;
        }
        match frame {
            Frame::Group { ring, group, sender, message } => {
                if sender.node.peer != from || self.ring.is_some_and(|mine| mine != ring) {
                    self.frames_dropped += 1;
                } else if self.replicas.is_empty() {
                    match message {
                        Message::State(state) => self.on_invitation(*state),
                        Message::Wait(millis) => self.routing.join.on_wait(&context!(self), group, from, millis),
                        _ => {}
                    }
                } else {
                    self.on_group_message(group, sender, message);
                }
            }
            Frame::Join { ring, member } => {
                let Some(group) = self.replicas.home_mut() else { return };
                if member.node.peer != from || ring.is_some_and(|ring| ring != group.state().ring) {
                    self.frames_dropped += 1;
                    return;
                }
                let sender = Sender { node: member.node, epoch: group.state().epoch };
                group.on_message(sender, Message::Join(member));
            }
            Frame::Locate(locate) => self.routing.table.on_locate(&mut context!(self), &self.lives, from, *locate),
            Frame::Astray(astray) => self.routing.table.on_astray(&mut context!(self), from, *astray),
            Frame::Located(located) => self.on_located(from, &located),
            Frame::Sample(sample) => self.routing.table.on_sample(&mut context!(self), &self.lives, from, *sample),
            Frame::Sampled(sampled) => self.routing.join.on_sampled(&mut context!(self), *sampled),
            Frame::AdminRequest(forwarded) => {
                if self.requests.on_forwarded_request(&mut context!(self), from, *forwarded) {
                    self.follow_admin_requests();
                }
            }
            Frame::AdminOutcome { ring, number, outcome } => {
                self.requests.on_granted(&mut context!(self), from, ring, number, outcome)
            }
            Frame::Probe { ring, number } => self.routing.probes.on_probe(&mut context!(self), from, ring, number),
            Frame::Probed { number, .. } => self.routing.join.on_probed(&mut context!(self), from, number),
            Frame::AskLifetimes { ring } => self.lives.on_ask_lifetimes(&mut context!(self), from, ring),
            Frame::Lifetimes(told) => self.lives.on_lifetimes(&mut context!(self), from, &told),
            Frame::Patience { ring, number } => self.requests.on_patience(&mut context!(self), from, ring, number),
            Frame::CopyOrder(order) => self.reconfigure.preparation.on_copy_order(&mut context!(self), from, *order),
            Frame::CopyTold(told) => self.reconfigure.preparation.on_copy_told(&mut context!(self), from, *told),
            Frame::Contested(contested) => self.starts.on_contested(&mut context!(self), from, *contested),
            // A peer of another version sends this frame under its own version: see `on_foreign_version`.
            Frame::NotUnderstood { .. } => self.frames_dropped += 1,
            Frame::Started | Frame::Refused(_) | Frame::Lineage(_) => {}
        }
    }

    /// Handles the answer to a question for the owner of a point.
    fn on_located(&mut self, from: PeerKey, located: &Located) {
        let Some(news) = self.routing.table.on_located(&mut context!(self), from, located) else { return };
        if news.serves {
            let (part, ballot) = (located.part, located.ballot);
            self.with_sessions(|sessions, ctx| sessions.on_located(ctx, part, ballot));
        }
        if self.routing.table.on_looked(&mut context!(self), located.point) {
            self.lives.ask(&mut context!(self), &located.group);
        }
        self.requests.on_seen_beyond(&self.replicas, located);
        self.routing.walks.on_answer(&mut context!(self), &mut self.routing.table, located);
        if !news.is_asked {
            self.routing.table.hear(located, from, self.now.time);
        }
    }

    fn on_group_message(&mut self, id: GroupId, sender: Sender, message: Message) {
        if let Message::Handover(handover) = message {
            return self.successors.on_handover(&mut context!(self), id, sender, *handover);
        }
        if let Message::Copied(_) = message {
            return self.reconfigure.preparation.on_copied(&mut context!(self), id, sender, message);
        }
        let Some(group) = self.replicas.find_mut(id) else { return self.on_foreign(id, sender, message) };
        let (born, sought) = (group.state().born, sender.epoch);
        match message {
            // The sender asks for the group that preceded this one under the same id.
            Message::AskState
                if sought > Epoch(0)
                    && sought < born
                    && self.successors.tell_final(&mut context!(self), id, sought, sender.node) => {}
            message => self.on_own_message(id, sender, message),
        }
    }

    pub(crate) fn on_own_message(&mut self, id: GroupId, sender: Sender, message: Message) {
        let Some(group) = self.replicas.find_mut(id) else { return };
        match message {
            Message::Envelope(envelope) if !group.state().audience().contains(&sender.node) => {
                self.on_envelope(*envelope)
            }
            // Another group with the same id: it has another range.
            Message::State(state) if state.born != group.state().born => self.on_foreign_state(sender.node, *state),
            message => group.on_message(sender, message),
        }
    }

    /// Sends an envelope from one group to another: to its former members, and to the groups that are known to succeed it.
    pub(crate) fn send_envelope(&mut self, envelope: GroupEnvelope) {
        let to = envelope.to.clone();
        let heirs = self.routing.table.hints.overlapping(to.range).into_iter().filter(|group| group.epoch > to.epoch);
        let contacts: Vec<Contact> = to.members.iter().cloned().chain(heirs.flat_map(|group| group.members)).collect();
        contacts.iter().for_each(|contact| self.cx().reach(contact));
        let mut nodes: Vec<NodeId> = contacts.iter().map(|contact| contact.node).collect();
        nodes.sort_unstable();
        nodes.dedup_by_key(|node| node.peer);
        if envelope.message.is_said_again() {
            // All former members may be gone: the owner of the former range is known when the envelope is repeated.
            let cut = self.rng.below(u64::from(PLACES)) as u32;
            self.routing.table.want(to.range.cut_at(cut, PLACES), self.now.time);
        }
        // The receiver may be born of the very group that asks.
        self.on_envelope(envelope.clone());
        self.cx().send_as(to.id, &nodes, Message::Envelope(Box::new(envelope)), to.epoch);
    }

    /// Handles an envelope from another group, for a group that this node has a part in, or for its successors.
    pub(crate) fn on_envelope(&mut self, envelope: GroupEnvelope) {
        if !envelope.is_sound() {
            self.frames_dropped += 1;
            return;
        }
        let to = envelope.to.id;
        let answers = |group: &Group| group.state().id == to || group.state().transactions.is_heir_of(to);
        let mut groups = self.replicas.living_mut().filter(|group| answers(group)).peekable();
        while let Some(group) = groups.next() {
            // In most cases there is one group.
            if groups.peek().is_none() {
                return group.on_envelope(envelope);
            }
            group.on_envelope(envelope.clone());
        }
    }

    /// Handles a group's state that came to a node outside: the node is in, or learns which incarnation would be.
    fn on_invitation(&mut self, state: GroupState) {
        if !state.is_sound() || self.ring.is_some_and(|mine| mine != state.ring) {
            self.frames_dropped += 1;
            return;
        }
        match state.last_life(self.me.peer) {
            Some(node) if node == self.me => {
                self.enter(state, false);
                let addresses = self.addresses.clone();
                self.replicas.each(|group| group.set_addresses(addresses.clone()));
            }
            Some(node) if node > self.me => {
                // The node has been a member before, with a later incarnation than its clock gave it now.
                let later = node.incarnation.0.saturating_add(1 + self.rng.below(1 << 16));
                self.me.incarnation = Incarnation(later);
                self.routing.join.due = self.now.time;
            }
            _ => {}
        }
    }
}

/// Returns whether the sender that a frame names is the peer that sent it.
fn is_from(from: PeerKey, stamp: &Stamp, frame: &Frame) -> bool {
    let said = match frame {
        Frame::Group { sender, .. } => sender.node,
        Frame::Join { member, .. } => member.node,
        _ => return true,
    };
    said == NodeId { peer: from, incarnation: stamp.incarnation }
}
