//! How a request looks to a server.

use thiserror::Error;

/// One request.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// The value of a key.
    Read(u64),
    /// A new value for a key.
    Write(u64, &'a [u8]),
}

/// What a server said to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which of the connection's requests, from 0.
    pub number: u64,
    /// Why it was not done, in a few words that are the same for all requests refused for that.
    pub refusal: Option<String>,
}

/// An answer that makes no sense; the connection is given up.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the server says what makes no sense: {0}")]
pub struct Nonsense(pub String);

/// One side of one connection. Servers may answer out of order.
pub trait Protocol: Send {
    /// What is said first on a new connection.
    fn open(&mut self, out: &mut Vec<u8>);

    /// Whether requests may be sent: by default at once.
    fn is_open(&self) -> bool {
        true
    }

    /// Appends the connection's request of this number; numbers count up from 0.
    fn request(&mut self, number: u64, operation: Operation<'_>, out: &mut Vec<u8>);

    /// Takes whole messages from the front of `input`: how many bytes they were. What must be said at once is appended
    /// to `out`.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>, answers: &mut Vec<Answer>) -> Result<usize, Nonsense>;
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

    fn take(&mut self, input: &[u8], out: &mut Vec<u8>, answers: &mut Vec<Answer>) -> Result<usize, Nonsense> {
        (**self).take(input, out, answers)
    }
}
