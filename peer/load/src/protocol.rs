//! Protocols of servers, as the generator uses them.

use thiserror::Error;

/// A request.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Reads the value of a key.
    Read(u64),
    /// Writes a new value for a key.
    Write(u64, &'a [u8]),
}

/// The answer of a server to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request on its connection, from 0.
    pub number: u64,
    /// The reason of a refusal, in a few words that are the same for all requests refused for that reason; `None` where
    /// the request was executed.
    pub refusal: Option<String>,
}

/// An answer that violates the protocol; the connection is closed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("malformed answer from the server: {0}")]
pub struct ProtocolError(pub String);

/// The client's side of one connection. Servers may answer out of order.
pub trait Protocol: Send {
    /// Appends the first bytes on a new connection.
    fn open(&mut self, out: &mut Vec<u8>);

    /// Returns whether requests may be sent: by default at once.
    fn is_open(&self) -> bool {
        true
    }

    /// Appends the connection's request of this number; numbers count up from 0.
    fn request(&mut self, number: u64, operation: Operation<'_>, out: &mut Vec<u8>);

    /// Takes whole messages from the front of `input`; returns their length in bytes. Bytes that must be sent at once
    /// are appended to `out`.
    ///
    /// # Errors
    /// The input violates the protocol; answers before it may have been added to `answers`.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>, answers: &mut Vec<Answer>) -> Result<usize, ProtocolError>;
}

impl<P: Protocol + ?Sized> Protocol for Box<P> {
    fn open(&mut self, out: &mut Vec<u8>) {
        (**self).open(out);
    }

    fn is_open(&self) -> bool {
        (**self).is_open()
    }

    fn request(&mut self, number: u64, operation: Operation<'_>, out: &mut Vec<u8>) {
        (**self).request(number, operation, out);
    }

    fn take(&mut self, input: &[u8], out: &mut Vec<u8>, answers: &mut Vec<Answer>) -> Result<usize, ProtocolError> {
        (**self).take(input, out, answers)
    }
}
