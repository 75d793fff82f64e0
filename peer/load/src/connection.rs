//! One connection: output to write, input that came, and requests in flight.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::protocol::{Answer, Operation, Protocol};

/// Number of bytes read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) is_write: bool,
    /// The start of its waiting time.
    pub(crate) since: Instant,
}

pub(crate) struct Connection<P> {
    stream: TcpStream,
    protocol: P,
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    /// Number of bytes at its front that came and were not taken yet; the rest is room.
    filled: usize,
    /// The first has the number `first`; `None` is one that was answered out of order.
    under_way: VecDeque<Option<Sent>>,
    first: u64,
    unanswered: usize,
    answers: Vec<Answer>,
    waits_to_write: bool,
}

impl<P: Protocol> Connection<P> {
    /// Begins to connect.
    pub(crate) fn open(
        at: SocketAddr,
        mut protocol: P,
        registry: &Registry,
        token: Token,
    ) -> std::io::Result<Connection<P>> {
        let mut stream = TcpStream::connect(at)?;
        // Some systems refuse this before the socket is connected; without it requests only wait longer.
        let _ = stream.set_nodelay(true);
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let mut out = Vec::new();
        protocol.open(&mut out);
        Ok(Connection {
            stream,
            protocol,
            out,
            written: 0,
            input: Vec::new(),
            filled: 0,
            under_way: VecDeque::new(),
            first: 0,
            unanswered: 0,
            answers: Vec::new(),
            waits_to_write: true,
        })
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub(crate) fn is_open(&self) -> bool {
        self.protocol.is_open()
    }

    /// Returns the time at which the oldest request was sent, or due.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.under_way.iter().flatten().next().map(|sent| sent.since)
    }

    /// Removes and returns all requests in flight.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = Sent> + '_ {
        self.unanswered = 0;
        self.under_way.drain(..).flatten()
    }

    /// Puts a request into the buffer; it leaves with [`Connection::flush`].
    pub(crate) fn request(&mut self, operation: Operation<'_>, since: Instant) {
        let number = self.first + self.under_way.len() as u64;
        let is_write = matches!(operation, Operation::Write(..));
        self.under_way.push_back(Some(Sent { is_write, since }));
        self.unanswered += 1;
        self.protocol.request(number, operation, &mut self.out);
    }

    /// Sends as many bytes as the socket takes.
    pub(crate) fn flush(&mut self) -> std::io::Result<()> {
        while self.written < self.out.len() && !self.waits_to_write {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.waits_to_write = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        Ok(())
    }

    /// Handles a socket that can be written to, or has failed.
    pub(crate) fn writable(&mut self) -> std::io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        let _ = self.stream.set_nodelay(true);
        self.waits_to_write = false;
        self.flush()
    }

    /// Reads all input. `answered` gets each request that has its answer, with the reason of a refusal.
    pub(crate) fn readable(&mut self, mut answered: impl FnMut(Sent, Option<String>)) -> std::io::Result<()> {
        loop {
            // Fills the buffer with zeros once, and not for each read: that would be a sixth of the generator's work.
            if self.input.len() < self.filled + READ_BYTES {
                self.input.resize(self.filled + READ_BYTES, 0);
            }
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.filled += read;
                    self.take(&mut answered)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, answered: &mut impl FnMut(Sent, Option<String>)) -> std::io::Result<()> {
        let taken = self.protocol.take(&self.input[..self.filled], &mut self.out, &mut self.answers);
        let taken = taken.map_err(|malformed| std::io::Error::new(ErrorKind::InvalidData, malformed))?;
        self.input.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        for answer in self.answers.drain(..) {
            let place = answer.number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
            let sent = place.and_then(|place| self.under_way.get_mut(place)).and_then(Option::take);
            let Some(sent) = sent else {
                return Err(std::io::Error::new(ErrorKind::InvalidData, "an answer without a request"));
            };
            self.unanswered -= 1;
            answered(sent, answer.refusal);
        }
        while self.under_way.front().is_some_and(Option::is_none) {
            self.under_way.pop_front();
            self.first += 1;
        }
        Ok(())
    }
}
