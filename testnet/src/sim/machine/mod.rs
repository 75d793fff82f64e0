//! One simulated machine: a process or none, clocks, a disk.

pub mod clock;
mod config;
mod process;
mod service;
pub mod store;

use std::collections::VecDeque;

use node::Input;
use overlay::time::Time;
use overlay::{Incarnation, NodeId, PeerKey, RingId};

use crate::rng::Rng;
use crate::sim::machine::clock::Clocks;
use crate::sim::machine::service::Usage;
use crate::sim::machine::store::SimStore;

/// State of a machine's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// The process runs.
    Running,
    /// The process is frozen; its inputs wait.
    Frozen,
    /// There is no process.
    Down,
}

/// One simulated machine.
pub(in crate::sim) struct Machine<H> {
    pub key: PeerKey,
    pub host: Option<Box<H>>,
    pub state: ProcessState,
    /// Number of starts of its process.
    pub life: u32,
    pub clocks: Clocks,
    pub store: SimStore,
    pub inbox: VecDeque<Input>,
    /// Time of the tick that the node asks for, in true time.
    pub wake_at: Option<Time>,
    /// Tick that is under way in the queue.
    pub wake_queued: Option<Time>,
    pub turn_queued: bool,
    pub busy_until: Time,
    pub usage: Usage,
    /// Number of faults that keep it frozen.
    pub frozen: u32,
    /// Time at which it was last frozen, thawed, started or stopped: until then it could not answer in time.
    pub disturbed: Time,
    /// Incarnation that is over, and with whose records the process starts.
    pub former: Option<Incarnation>,
    /// Node whose acknowledgements the store has, while the process does not run.
    pub kept: Option<NodeId>,
    /// The machine lost data that it had acknowledged, and its node is in doubt about that.
    pub forgot: bool,
    /// Whether a start with an empty store may found the network.
    pub founder: bool,
    /// Planned return; `None` if the process runs, or nothing brings it back.
    pub returns: Option<Return>,
    pub ready: bool,
    /// The process will end soon, and then its group must be able to go on without it.
    pub doomed: bool,
    /// Ring that the machine was told it belongs to.
    pub ring: Option<RingId>,
}

/// Ways in which a machine's process comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Return {
    WithStore,
    Empty,
    /// As a new incarnation, with the store of an incarnation that is over.
    Anew(Incarnation),
}

/// Draws the key of a peer on a machine: readable in traces, random in order.
pub(in crate::sim) fn new_key(index: usize, chance: &mut Rng) -> PeerKey {
    let mut key = [0; 32];
    for chunk in key.chunks_exact_mut(8) {
        chunk.copy_from_slice(&chance.bits().to_be_bytes());
    }
    key[1] = index as u8;
    PeerKey(key)
}

impl<H> Machine<H> {
    /// Returns the life that answers clients now, if one does.
    pub fn answering(&self) -> Option<u32> {
        (self.state != ProcessState::Down).then_some(self.life)
    }

    /// Returns a machine that has not been started.
    pub fn new(index: usize, chance: &mut Rng) -> Machine<H> {
        Machine {
            key: new_key(index, chance),
            host: None,
            state: ProcessState::Down,
            life: 0,
            clocks: Clocks::new(Time(0), Time(0), 0),
            store: SimStore::default(),
            inbox: VecDeque::new(),
            wake_at: None,
            wake_queued: None,
            turn_queued: false,
            busy_until: Time(0),
            usage: Usage::default(),
            frozen: 0,
            disturbed: Time(0),
            former: None,
            kept: None,
            forgot: false,
            founder: index == 0,
            returns: None,
            ready: false,
            doomed: false,
            ring: None,
        }
    }
}
