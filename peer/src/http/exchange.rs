//! Phase of the exchange on an HTTP connection, and its deadline.
//!
//! Deadlines are for whole parts: bytes that trickle in or out do not put them off.

use std::time::{Duration, Instant};

/// Time limit of a request's head, from its first byte or from the start of the connection.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// Time limit from the end of a head until the answer begins: longer than any request of an administrator waits.
const SERVING_MAX: Duration = Duration::from_secs(60);
/// Time limit from the beginning of an answer until the next request begins: longer than the default interval of Prometheus.
const IDLE_MAX: Duration = Duration::from_secs(75);
/// End of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Phase and deadline of an exchange; see the module.
#[derive(Debug)]
pub(crate) struct Exchange {
    phase: Phase,
    deadline: Instant,
    /// Number of the last bytes that match the end of a head.
    matched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head of a request is awaited or arriving.
    Head,
    /// A request is being served.
    Serving,
    /// An answer is on its way, or the client has it and sends no request.
    Answered,
}

impl Exchange {
    /// Returns the state of a connection that begins now.
    pub fn new(now: Instant) -> Exchange {
        Exchange { phase: Phase::Head, deadline: now + HEAD_MAX, matched: 0 }
    }

    /// Returns the deadline of the present part.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether the client waits for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Takes bytes of the client.
    pub fn read(&mut self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() || self.phase == Phase::Serving {
            return;
        }
        if self.phase == Phase::Answered {
            *self = Exchange::new(now);
        }
        for byte in bytes {
            // A mismatch may itself be a beginning, which is one byte long.
            self.matched = match *byte == HEAD_END[self.matched] {
                true => self.matched + 1,
                false => usize::from(*byte == HEAD_END[0]),
            };
            if self.matched == HEAD_END.len() {
                // The rest is a body, or a request that waits for its turn.
                (self.phase, self.deadline, self.matched) = (Phase::Serving, now + SERVING_MAX, 0);
                return;
            }
        }
    }

    /// Records that bytes of an answer went out.
    pub fn wrote(&mut self, now: Instant) {
        if self.phase != Phase::Answered {
            (self.phase, self.deadline, self.matched) = (Phase::Answered, now + IDLE_MAX, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn a_head_that_trickles_in_has_one_deadline() {
        let start = Instant::now();
        let mut exchange = Exchange::new(start);
        for (n, byte) in HEAD[..HEAD.len() - 1].iter().enumerate() {
            exchange.read(&[*byte], start + Duration::from_secs(n as u64));
            assert_eq!((exchange.deadline(), exchange.is_busy()), (start + HEAD_MAX, false));
        }
        exchange.read(b"\n", start);
        assert!(exchange.is_busy());
        assert_eq!(exchange.deadline(), start + SERVING_MAX);
    }

    #[test]
    fn each_part_has_its_deadline() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut exchange = Exchange::new(start);
        exchange.read(HEAD, at(1));
        // A body, byte by byte.
        (2..9).for_each(|second| exchange.read(b"x", at(second)));
        assert_eq!(exchange.deadline(), at(1) + SERVING_MAX);
        // An answer, byte by byte.
        (9..20).for_each(|second| exchange.wrote(at(second)));
        assert_eq!((exchange.deadline(), exchange.is_busy()), (at(9) + IDLE_MAX, false));
        // The next request on the same connection.
        exchange.read(b"G", at(70));
        assert_eq!(exchange.deadline(), at(70) + HEAD_MAX);
        exchange.read(&HEAD[1..], at(71));
        assert!(exchange.is_busy());
    }

    #[test]
    fn a_carriage_return_too_many_is_no_end() {
        let start = Instant::now();
        for (head, is_whole) in [(&b"a\r\n\r\r\n"[..], false), (b"a\r\r\n\r\n", true), (b"a\n\n", false)] {
            let mut exchange = Exchange::new(start);
            exchange.read(head, start);
            assert_eq!(exchange.is_busy(), is_whole, "{}", head.escape_ascii());
        }
    }
}
