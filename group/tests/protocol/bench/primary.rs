//! A primary whose writes pass a switch, driven packet by packet.

use group::harmonia::switch::Switch;
use group::harmonia::{ReturnedWrite, WritePass};
use group::message::{ClientOperation, CommitteeMessage, Message};
use group::op::Op;
use group::outbox::GroupOutput;
use overlay::Epoch;

use crate::bench::{Bench, Whole, node, operate, operation};

/// Tag of the first packet, with which a primary tries its switch.
pub const TRIAL: u64 = u64::MAX;

/// A primary (node 1 of 3) that serves, and the packets to its switch.
pub struct Primary {
    pub whole: Whole,
    pub passes: Vec<WritePass>,
    pub completes: Vec<u64>,
    pub said: Vec<(Vec<overlay::NodeId>, CommitteeMessage)>,
}

impl Primary {
    pub fn new() -> Primary {
        let mut bench = Bench::new(node(1), 3);
        (bench.state.settings.coarse, bench.state.settings.leases) = (true, true);
        bench.state.switch = Switch::on(3);
        let mut whole = Whole::new(&bench);
        whole.wait(1_500);
        whole.wait(400);
        whole.serve();
        let mut primary = Primary { whole, passes: Vec::new(), completes: Vec::new(), said: Vec::new() };
        primary.pull();
        primary
    }

    pub fn pull(&mut self) {
        for (to, message) in std::mem::take(&mut self.whole.said) {
            if let Message::Committee(message) = message {
                self.said.push((to, message));
            }
        }
        while let Some(output) = self.whole.group.poll_output() {
            match output {
                GroupOutput::Send(to, Message::Committee(message), _) => self.said.push((to, message)),
                GroupOutput::Persist(token, _) => self.whole.group.on_persisted(token),
                GroupOutput::Pass(pass) => self.passes.push(pass),
                GroupOutput::Complete { number, .. } => self.completes.push(number),
                GroupOutput::Outcome(attempt, outcome) => self.whole.outcomes.push((attempt, outcome)),
                _ => {}
            }
        }
    }

    pub fn hear(&mut self, from: u8, message: CommitteeMessage) {
        let from = group::message::Sender { node: node(from), epoch: self.whole.group.state().epoch };
        self.whole.group.on_message(from, Message::Committee(message));
        self.pull();
    }

    pub fn at(&mut self, nanos: u64) {
        self.whole.now.time = overlay::time::Time(nanos);
        self.whole.now.awake = self.whole.now.time;
        self.whole.group.set_now(self.whole.now);
    }

    pub fn wait_micros(&mut self, micros: u64) {
        let now = self.whole.now.time.0 + micros * 1000;
        self.at(now);
        self.whole.group.tick();
        self.pull();
    }

    pub fn passed(&mut self, number: u64, tag: u64) {
        self.passed_since(number, tag, self.whole.now.time);
    }

    pub fn passed_since(&mut self, number: u64, tag: u64, sent: overlay::time::Time) {
        let ballot = self.whole.own();
        self.whole.group.on_passed(ballot, &ReturnedWrite { switch: 3, number, tag, sent });
        self.pull();
    }

    /// Member 2 passes on an operation with a client that waits for 10 s.
    pub fn ask(&mut self, attempt: u64, key: &'static str) {
        self.ask_for(attempt, key, 10_000);
    }

    pub fn ask_for(&mut self, attempt: u64, key: &'static str, patience_ms: u32) {
        let from = group::message::Sender { node: node(2), epoch: Epoch(1) };
        let operation = ClientOperation { patience_ms, ..operation(self.whole.own(), attempt, key, put("1")) };
        self.whole.group.on_message(from, operate(operation));
        self.pull();
    }

    /// Member 2 has accepted all writes up to this one.
    pub fn accepted(&mut self, last: u64) {
        let ballot = self.whole.own();
        self.hear(2, CommitteeMessage::Accepted { ballot, numbers: vec![(1, last)] });
    }

    pub fn in_flight(&self) -> usize {
        self.whole.group.primaries().next().unwrap().counts().in_flight
    }

    /// Member 2 confirms the last round for the lease. Returns the grant for it.
    pub fn confirm(&mut self) -> Option<CommitteeMessage> {
        let attempt = self.said.iter().rev().find_map(|(_, it)| match it {
            CommitteeMessage::Confirm { attempt, lease: true, .. } => Some(*attempt),
            _ => None,
        });
        let (ballot, attempt) = (self.whole.own(), attempt.expect("it asks"));
        self.said.clear();
        self.hear(2, CommitteeMessage::Confirmed { ballot, attempt });
        self.said.iter().map(|(_, it)| it).find(|it| matches!(it, CommitteeMessage::Grant { .. })).cloned()
    }

    /// Begins to use the switch, with a fresh lease and a grant at member 2, right now.
    pub fn on(&mut self) -> (u64, CommitteeMessage) {
        self.confirm();
        for _ in 0..200 {
            if !self.passes.is_empty() {
                break;
            }
            self.wait_micros(5_000);
        }
        self.passed(1, TRIAL);
        self.passes.clear();
        assert_eq!(self.whole.group.primaries().next().unwrap().switch(), Some(3));
        // A fresh round.
        self.said.clear();
        while !self.said.iter().any(|(_, it)| matches!(it, CommitteeMessage::Confirm { lease: true, .. })) {
            self.wait_micros(1_000);
            for pass in std::mem::take(&mut self.passes) {
                self.passed(self.completes.last().copied().unwrap_or(1) + 1, pass.tag);
            }
        }
        let attempt = self.said.iter().rev().find_map(|(_, it)| match it {
            CommitteeMessage::Confirm { attempt, lease: true, .. } => Some(*attempt),
            _ => None,
        });
        let grant = self.confirm().expect("a grant");
        (attempt.unwrap(), grant)
    }
}

/// Returns an operation that changes any key.
pub fn put(_: &'static str) -> Op {
    Op::Add(1)
}
