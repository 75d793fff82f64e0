//! Outputs of a node on their way to the driver, and the stamps of its frames.
//!
//! # Invariants
//! - No frame leaves before the node's own start is durable: no two starts from one store share a number that other nodes have heard.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use overlay::PeerKey;

use crate::api::{Event, Output};
use crate::starts::Start;

/// Upper limit of outputs that wait until the node's own start is durable.
const WITHHELD_MAX: usize = 1024;

/// All outputs of a node, and its connections to peers.
pub(crate) struct Outbox {
    /// Outputs for the driver, in order.
    pub(crate) queue: VecDeque<Output>,
    pub(crate) connected: BTreeSet<PeerKey>,
    /// Start of this process, which stamps its frames.
    start: Start,
    /// Batch with which the start becomes durable; `None` if it is durable, or if nothing is.
    durable_with: Option<u64>,
    /// Frames to send after that.
    withheld: Vec<Output>,
    /// Run from which this process last heard each peer.
    pub(crate) runs: BTreeMap<PeerKey, u64>,
}

impl Outbox {
    /// Creates the outbox of a process with this start, which need not become durable.
    pub(crate) fn new(start: Start) -> Outbox {
        Outbox {
            queue: VecDeque::new(),
            connected: BTreeSet::new(),
            start,
            durable_with: None,
            withheld: Vec::new(),
            runs: BTreeMap::new(),
        }
    }

    /// Queues an output for the driver.
    pub(crate) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    /// Reports an event.
    pub(crate) fn event(&mut self, event: Event) {
        self.push(Output::Event(event));
    }

    /// Stamps frames with this start from now on, and withholds them until this batch is durable.
    pub(crate) fn speak_as(&mut self, start: Start, durable_with: u64) {
        (self.start, self.durable_with) = (start, Some(durable_with));
    }

    /// Handles the report that all batches up to this one are durable.
    pub(crate) fn on_persisted(&mut self, token: u64) {
        if self.durable_with.is_some_and(|with| with <= token) {
            self.durable_with = None;
            self.queue.extend(core::mem::take(&mut self.withheld));
        }
    }

    /// Returns whether this peer is connected.
    pub(crate) fn is_connected_to(&self, peer: PeerKey) -> bool {
        self.connected.contains(&peer)
    }

    /// Returns the start that frames are stamped with.
    pub(crate) fn start(&self) -> Start {
        self.start
    }

    /// Queues a frame, unless frames are withheld.
    pub(crate) fn send(&mut self, output: Output) {
        if self.durable_with.is_none() {
            self.push(output);
        } else if self.withheld.len() < WITHHELD_MAX {
            self.withheld.push(output);
        }
    }
}
