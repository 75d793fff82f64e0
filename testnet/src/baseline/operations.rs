//! Operations of clients: at the peer that is asked, and at the peer that takes itself for the root.

use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Condition, Op, OpError, Read, Refusal};
use node::{Output, Request, RequestId};
use overlay::time::Time;

use super::copies::{Copy, Version};
use super::message::{Errand, Message, Routed};
use super::peer::Peer;

/// Time without an answer after which an operation is sent again, under the same number and version.
const AGAIN_AFTER: Duration = Duration::from_millis(1_500);

/// A client's operation under way.
#[derive(Clone, Debug)]
pub(super) struct DhtOperation {
    id: RequestId,
    routed: Routed,
    until: Time,
    again: Time,
}

impl DhtOperation {
    /// Returns the next moment at which the operation is sent again or ends.
    pub(super) fn next(&self) -> Time {
        self.until.min(self.again)
    }
}

impl Peer {
    /// Begins a client's operation.
    pub(super) fn on_request(&mut self, request: Request) {
        let name = Bytes::copy_from_slice(request.key.name());
        let errand = match request.op {
            Op::Read(Read::Value) => Some(Errand::Get(name)),
            Op::Set { value, condition: Condition::Always, .. } => {
                let version = Version { at_ms: self.now.wall.0, count: self.number(), by: self.me.id() };
                Some(Errand::Put(Copy { name, version, value }))
            }
            // The DHT has gets and puts alone.
            _ => None,
        };
        let Some(errand) = errand.filter(|_| self.has_entered()) else {
            return self.reply(request.id, Err(OpError::TryAgain(Refusal::NotInGroup)));
        };
        let routed = self.routed(request.key.point(), errand);
        let (until, again) = (self.now.time + request.patience, self.now.time + AGAIN_AFTER);
        self.operations.insert(routed.number, DhtOperation { id: request.id, routed: routed.clone(), until, again });
        self.route(routed);
    }

    fn reply(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        self.push(Output::Reply { id, result });
    }

    /// Ends operations that have timed out, and sends overdue ones again.
    pub(super) fn retry_operations(&mut self) {
        let now = self.now.time;
        let due: Vec<u64> =
            self.operations.iter().filter(|(_, one)| one.next() <= now).map(|(number, _)| *number).collect();
        for number in due {
            let Some(mut operation) = self.operations.remove(&number) else { continue };
            if operation.until > now {
                operation.again = now + AGAIN_AFTER;
                let routed = operation.routed.clone();
                self.operations.insert(number, operation);
                self.route(routed);
                continue;
            }
            let error = match operation.routed.errand {
                Errand::Put(_) => OpError::Uncertain,
                _ => OpError::TryAgain(Refusal::NoPrimary),
            };
            self.reply(operation.id, Err(error));
        }
    }

    /// Executes an errand as the root.
    pub(super) fn execute(&mut self, routed: Routed) {
        self.executed += u64::from(matches!(routed.errand, Errand::Get(_) | Errand::Put(_)));
        let answer = match routed.errand {
            Errand::Join => {
                let leaves = self.leaves.contacts().chain([&self.me]).cloned().collect();
                Message::Welcome { leaves, table: self.table.contacts().cloned().collect() }
            }
            Errand::Find => Message::Found,
            Errand::Get(name) => Message::Got(routed.number, self.copies.value(&name).cloned()),
            Errand::Put(copy) => {
                if self.copies.keep(copy.clone()) {
                    let (_, holders) = self.leaves.view().holders(routed.point);
                    let others = holders.into_iter().filter(|peer| *peer != self.me.peer);
                    others
                        .collect::<Vec<_>>()
                        .into_iter()
                        .for_each(|peer| self.send_copies(peer, vec![copy.clone()], false));
                }
                Message::Stored(routed.number)
            }
        };
        match answer {
            Message::Got(number, value) if routed.origin == self.me => self.on_got(number, value),
            Message::Stored(number) if routed.origin == self.me => self.on_stored(number),
            _ if routed.origin == self.me => {}
            answer => self.send(&routed.origin, answer),
        }
    }

    /// Ends a get that the root has answered.
    pub(super) fn on_got(&mut self, number: u64, value: Option<Bytes>) {
        if let Some(operation) = self.operations.remove(&number) {
            self.reply(operation.id, Ok(Answer::Value(value)));
        }
    }

    /// Ends a put that the root has stored.
    pub(super) fn on_stored(&mut self, number: u64) {
        if let Some(operation) = self.operations.remove(&number) {
            self.reply(operation.id, Ok(Answer::Done));
        }
    }
}
