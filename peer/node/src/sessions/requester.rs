//! The requester of an operation: a client of the driver, or the node itself.

use group::op::{Answer, OpError};

use crate::api::{ConnectionId, RequestId};

/// First id of the node's own requests. The driver numbers the requests of its clients from zero, and never comes so far.
const OWN: u64 = 1 << 63;
/// Upper limit of names of reads that came through a switch: the last id is that of the probe.
pub(crate) const READ_NAMES: u64 = OWN - 1;

/// Requester of an operation, which gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A client, through the driver.
    Client(RequestId),
    /// The node's probe of whether it can serve.
    Probe,
    /// A read that came through a switch, and that this member leaves to the primary, by its name below [`READ_NAMES`].
    ScheduledRead(u64),
}

/// Answer to a request of the node itself, which no driver sees.
pub(crate) type OwnReply = (Requester, Result<Answer, OpError>);

impl Requester {
    /// Returns the requester of a request with this id.
    pub(crate) fn of(id: RequestId) -> Requester {
        match id.0 {
            u64::MAX => Requester::Probe,
            OWN.. => Requester::ScheduledRead(id.0 - OWN),
            _ => Requester::Client(id),
        }
    }

    /// Returns the id of the requester's request.
    pub(crate) fn id(self) -> RequestId {
        match self {
            Requester::Client(id) => id,
            Requester::Probe => RequestId(u64::MAX),
            Requester::ScheduledRead(name) => RequestId(OWN + name),
        }
    }

    /// Returns a connection of its own for a request of the node: its requests wait for no other ones.
    pub(crate) fn connection(self) -> ConnectionId {
        ConnectionId(self.id().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_requesters_correspond() {
        let all = [
            Requester::Client(RequestId(0)),
            Requester::Client(RequestId(OWN - 1)),
            Requester::ScheduledRead(0),
            Requester::ScheduledRead(READ_NAMES - 1),
            Requester::Probe,
        ];
        assert_eq!(all.map(|requester| Requester::of(requester.id())), all);
    }
}
