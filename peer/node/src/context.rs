//! Context that every part of a node may read and write while it handles one input.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use group::ballot::LogSlot;
use group::control::state::Member;
use group::message::{Message, Sender};
use overlay::rng::Rng;
use overlay::time::{Now, Time};
use overlay::{Contact, Epoch, GroupId, GroupRef, NodeId, PeerKey, RingId};

use crate::api::{Change, Class, Event, Output};
use crate::config::{Durability, NodeConfig};
use crate::outbox::Outbox;
use crate::replicas::storage::Space;
use crate::replicas::{BatchOwner, LocalReplicas};
use crate::wire::{self, Frame, Stamp};

/// Stage of the node's life.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// Whether the store has durably that this node is in its group. Until then the node ignores received frames and does not look
    /// around the ring, so that no peer hears of the group.
    pub(crate) entered: bool,
    /// Whether the node's own probe was answered, and nothing has happened since that speaks against serving.
    pub(crate) ready: bool,
    /// Time since which the node stops, if it does.
    pub(crate) stopping: Option<Time>,
    /// Whether this incarnation has ended.
    pub(crate) over: bool,
}

/// Shared state of a node and its outputs, handed down by [`crate::Node`].
pub(crate) struct Context<'a> {
    /// The time.
    pub(crate) now: Now,
    /// Configuration of this node.
    pub(crate) config: &'a NodeConfig,
    /// This node.
    pub(crate) me: NodeId,
    /// The ring that the node is in; `None` before it enters its first group.
    pub(crate) ring: Option<RingId>,
    /// Addresses under which other peers reach this node.
    pub(crate) addresses: &'a [String],
    pub(crate) stage: &'a mut Stage,
    /// Source of random numbers.
    pub(crate) rng: &'a mut Rng,
    /// The node's parts in groups.
    pub(crate) replicas: &'a mut LocalReplicas,
    /// Receives the outputs.
    pub(crate) out: &'a mut Outbox,
    /// Counts frames that were invalid, or came from another ring.
    pub(crate) frames_dropped: &'a mut u64,
}

/// Lends the context of a node, while its parts stay free.
macro_rules! context {
    ($node:ident) => {
        crate::context::Context {
            now: $node.now,
            config: &$node.config,
            me: $node.me,
            ring: $node.ring,
            addresses: &$node.addresses,
            stage: &mut $node.stage,
            rng: &mut $node.rng,
            replicas: &mut $node.replicas,
            out: &mut $node.out,
            frames_dropped: &mut $node.frames_dropped,
        }
    };
}

pub(crate) use context;

impl Context<'_> {
    /// Returns the place of this node's entries in the store.
    pub(crate) fn space(&self) -> Space {
        Space(self.config.lane)
    }

    /// Returns the contact under which other peers should know this node.
    pub(crate) fn contact(&self) -> Contact {
        Contact { node: self.me, addresses: self.addresses.to_vec(), name: self.config.name.clone() }
    }

    /// Returns this node as a member of a group that it joins now.
    pub(crate) fn member(&self) -> Member {
        let Contact { node, addresses, name } = self.contact();
        Member { node, addresses, name, cluster: self.config.cluster.clone(), joined: self.now.wall, since: LogSlot(0) }
    }

    /// Returns the silence after which a process is taken to be gone.
    pub(crate) fn gone_after(&self) -> Duration {
        self.config.timing.heartbeat * 10
    }

    /// Counts a frame that is dropped.
    pub(crate) fn drop_frame(&mut self) {
        *self.frames_dropped += 1;
    }

    /// Reports an event.
    pub(crate) fn event(&mut self, event: Event) {
        self.out.event(event);
    }

    pub(crate) fn is_connected_to(&self, peer: PeerKey) -> bool {
        self.out.is_connected_to(peer)
    }

    /// Returns the stamp of this node's frames.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { incarnation: self.me.incarnation, start: self.out.start(), to: 0 }
    }

    /// Sends a frame to one peer, for that process of the peer that was last heard.
    pub(crate) fn post(&mut self, to: PeerKey, class: Class, frame: &Frame) {
        let run = self.out.runs.get(&to).copied().unwrap_or(0);
        self.post_for(to, run, class, frame);
    }

    /// Sends a frame to the process of a peer that has this run; with run 0, to any process of the peer.
    pub(crate) fn post_for(&mut self, to: PeerKey, run: u64, class: Class, frame: &Frame) {
        let stamp = Stamp { to: run, ..self.stamp() };
        let frame = wire::encode(&stamp, frame, self.config.lane);
        self.out.send(Output::Send { to, class, frame });
    }

    /// Sends a frame to several peers, for any process of theirs: none of these frames is an answer.
    pub(crate) fn post_all(&mut self, to: &[PeerKey], class: Class, frame: &Frame) {
        let [one] = to else {
            let frame = wire::encode(&self.stamp(), frame, self.config.lane);
            return to.iter().for_each(|to| self.out.send(Output::Send { to: *to, class, frame: frame.clone() }));
        };
        self.post(*one, class, frame);
    }

    /// Sends a control frame to one peer.
    pub(crate) fn say_to(&mut self, to: PeerKey, frame: &Frame) {
        self.post(to, Class::Control, frame);
    }

    /// Sends a frame to a contact that may not be connected.
    pub(crate) fn tell(&mut self, contact: &Contact, frame: &Frame) {
        self.reach(contact);
        self.say_to(contact.node.peer, frame);
    }

    /// Connects to a contact that a message will be sent to.
    pub(crate) fn reach(&mut self, contact: &Contact) {
        let (peer, addresses) = (contact.node.peer, contact.addresses.clone());
        if peer != self.me.peer && !addresses.is_empty() && !self.is_connected_to(peer) {
            self.out.push(Output::Dial { peer, addresses });
        }
    }

    /// Sends a message in the name of a group, whether this node has a part in it or not.
    pub(crate) fn send_as(&mut self, group: GroupId, to: &[NodeId], message: Message, epoch: Epoch) {
        let Some(ring) = self.ring else { return };
        let class = wire::class_of(&message);
        let sender = Sender { node: self.me, epoch };
        let me: PeerKey = self.me.peer;
        let to: Vec<PeerKey> = to.iter().map(|node| node.peer).filter(|peer| *peer != me).collect();
        if !to.is_empty() {
            self.post_all(&to, class, &Frame::Group { ring, group, sender, message });
        }
    }

    /// Makes changes of the node's own durable, if the node has durable state.
    pub(crate) fn persist_own(&mut self, changes: Vec<Change>) {
        self.persist_named(0, changes);
    }

    /// Does the same under this name, which [`LocalReplicas::on_persisted`] gives back.
    pub(crate) fn persist_named(&mut self, name: u64, changes: Vec<Change>) {
        if self.config.durability == Durability::Sync {
            let token = self.replicas.name_batch(BatchOwner::Node(name));
            self.out.push(Output::Persist { token, changes });
        }
    }

    /// Returns a group's members, or those that are connected, without this node.
    pub(crate) fn other_members<'g>(&self, group: &'g GroupRef, connected: bool) -> Vec<&'g Contact> {
        let others = group.members.iter().filter(|contact| contact.node.peer != self.me.peer);
        others.filter(|contact| !connected || self.is_connected_to(contact.node.peer)).collect()
    }

    /// Returns one of a group's members, or of those that are connected, but not this node.
    pub(crate) fn some_member(&mut self, group: &GroupRef, connected: bool) -> Option<Contact> {
        let all = self.other_members(group, connected);
        let chosen = self.rng.below(all.len().max(1) as u64) as usize;
        all.get(chosen).map(|contact| (*contact).clone())
    }
}
