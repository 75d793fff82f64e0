//! Steps of scripted runs: one request at a time.

use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Condition, Expiry, Op, Read};
use node::Input;
use overlay::Key;

use crate::history::Outcome;
use crate::sim::host::Host;
use crate::sim::network::Flight;
use crate::sim::world::World;

/// Returns a plain write of this value.
pub fn set(text: &'static str) -> Op {
    Op::Set {
        value: Bytes::from_static(text.as_bytes()),
        condition: Condition::Always,
        expiry: Expiry::Clear,
        get: false,
    }
}

/// Returns the answer to a read of this value.
pub fn value(text: &'static str) -> Outcome {
    Outcome::Answered(Answer::Value(Some(Bytes::from_static(text.as_bytes()))))
}

/// Function that sees each frame that leaves, and decides the frame's fate.
pub type Tap = Box<dyn FnMut(&Flight) -> Fate>;

/// Fate of a frame that a script was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame is sent.
    Goes,
    /// The frame is lost.
    Lost,
    /// The frame is sent, and comes once more after this delay, as by [`Fate::Late`].
    Twice(Duration),
    /// The frame comes after this delay, whatever the state of the wire and the life of the receiver are by then.
    Late(Duration),
    /// The frame is sent, and its sender dies with it.
    Last,
}

impl<H: Host> World<H> {
    /// Sends an operation to a machine; the index names the operation for [`World::outcome`].
    pub fn ask_host(&mut self, host: usize, key: &str, op: Op) -> usize {
        self.ask_key(host, Key::new(key.as_bytes()).expect("short"), op)
    }

    /// Sends an operation on `key` to a machine, as [`World::ask_host`] does.
    pub(crate) fn ask_key(&mut self, host: usize, key: Key, op: Op) -> usize {
        let (ask, index) = self.workload.ask_apart(host, self.now(), key, op);
        self.ask(ask);
        index
    }

    /// Hands an input to a machine's process.
    pub fn hand(&mut self, host: usize, input: Input) {
        self.deliver(host, input);
    }

    /// Returns the operation's outcome, once there is one.
    pub fn outcome(&self, index: usize) -> Option<&Outcome> {
        let operation = &self.history().operations[index];
        operation.completed.map(|_| &operation.outcome)
    }

    /// Returns the machine that was last seen to serve this key as its primary.
    pub fn primary_of(&self, key: &str) -> usize {
        let key = Key::new(key.as_bytes()).expect("short");
        self.probes.primary_of(&key).unwrap_or_else(|| self.probes.last_primary())
    }

    /// Shows each frame that leaves to `tap` from now on, which decides the frame's fate.
    pub fn tap(&mut self, tap: impl FnMut(&Flight) -> Fate + 'static) {
        self.tap = Some(Box::new(tap));
    }

    /// Stops showing frames.
    pub fn untap(&mut self) {
        self.tap = None;
    }

    /// Sends an operation and waits for its outcome.
    pub fn tell(&mut self, host: usize, key: &str, op: Op) -> Outcome {
        let index = self.ask_host(host, key, op);
        while self.outcome(index).is_none() && self.step() {}
        self.outcome(index).cloned().unwrap_or(Outcome::Uncertain)
    }

    /// Reads, again and again until there is an answer; `None` if there is none within this time. Panics where a property does not
    /// hold.
    pub fn read_within(&mut self, host: usize, key: &str, at_most: Duration) -> Option<Outcome> {
        let end = self.now() + at_most;
        while self.now() < end && self.failure.is_none() {
            let outcome = self.tell(host, key, Op::Read(Read::Value));
            if outcome.answer().is_some() {
                return Some(outcome);
            }
            self.run_for(Duration::from_millis(50));
        }
        assert_eq!(self.failure, None);
        None
    }

    /// Writes the key `first` through each machine in turn until all of them are ready.
    ///
    /// # Panics
    /// If they are not ready after 300 writes.
    pub fn run_until_group(&mut self) {
        let hosts = self.machines.len();
        for turn in 0..300 {
            self.tell(turn % hosts, "first", set("first"));
            if self.run_until_ready(Duration::from_millis(100)) {
                return;
            }
        }
        panic!("no group of {hosts}: {:?}", self.failure());
    }

    /// Goes on until every machine is up, reports that it is ready, and has complete state; without those that a fault keeps down.
    /// Returns whether that is so within this time.
    pub fn run_until_ready(&mut self, at_most: Duration) -> bool {
        let end = self.now() + at_most;
        loop {
            let well = self.machines.iter().all(|machine| match &machine.host {
                Some(host) => machine.ready && host.is_whole(),
                None => machine.returns.is_none(),
            });
            if well {
                return true;
            }
            if self.now() >= end || self.failure.is_some() {
                return false;
            }
            self.run_for(Duration::from_millis(100));
        }
    }
}
