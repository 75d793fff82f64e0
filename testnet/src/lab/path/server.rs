//! The control socket of a path: connections that each carry lines. No connection holds up packets: reads and writes never wait.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

/// Upper limit of the connections at one time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Upper limit of the bytes of a line; a connection with a longer one is closed.
const LINE_BYTES_MAX: usize = 1_024;

/// A connection, with the beginning of its next line.
#[derive(Debug)]
struct ControlConnection {
    stream: UnixStream,
    input: Vec<u8>,
    /// Whether the path ends with this connection.
    is_owner: bool,
}

/// The control socket and its connections.
#[derive(Debug)]
pub(super) struct ControlServer {
    listener: UnixListener,
    connections: Vec<Option<ControlConnection>>,
}

/// End of the input of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlEnd {
    /// More may come.
    Open,
    /// The connection is closed.
    Closed,
    /// The owner's connection is closed: the path ends.
    Abandoned,
}

impl ControlServer {
    /// Returns a server, with the connection of the owner as the first one, if there is one.
    pub(super) fn new(listener: UnixListener, owner: Option<UnixStream>) -> io::Result<ControlServer> {
        listener.set_nonblocking(true)?;
        let mut server = ControlServer { listener, connections: (0..CONNECTIONS_MAX).map(|_| None).collect() };
        if let Some(stream) = owner {
            stream.set_nonblocking(true)?;
            server.connections[0] = Some(ControlConnection { stream, input: Vec::new(), is_owner: true });
        }
        Ok(server)
    }

    /// Returns the listening socket.
    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Returns the socket of a connection.
    pub(super) fn stream(&self, index: usize) -> Option<&UnixStream> {
        self.connections.get(index)?.as_ref().map(|connection| &connection.stream)
    }

    /// Accepts the next connection, and returns its index.
    pub(super) fn accept(&mut self) -> Option<usize> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        // A connection too many is closed as it is dropped.
        let index = self.connections.iter().position(Option::is_none)?;
        self.connections[index] = Some(ControlConnection { stream, input: Vec::new(), is_owner: false });
        Some(index)
    }

    /// Reads the lines that have come on a connection.
    pub(super) fn read(&mut self, index: usize) -> (Vec<String>, ControlEnd) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return (Vec::new(), ControlEnd::Closed);
        };
        let mut chunk = [0; LINE_BYTES_MAX];
        let is_open = match connection.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(bytes) => {
                connection.input.extend_from_slice(&chunk[..bytes]);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        let mut lines = Vec::new();
        while let Some(end) = connection.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = connection.input.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim().to_owned());
        }
        if is_open && connection.input.len() <= LINE_BYTES_MAX {
            return (lines, ControlEnd::Open);
        }
        let end = if connection.is_owner { ControlEnd::Abandoned } else { ControlEnd::Closed };
        self.connections[index] = None;
        (lines, end)
    }

    /// Answers a line. A client that does not read its answers loses them.
    pub(super) fn answer(&mut self, index: usize, answer: &str) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
            let line = answer.replace('\n', " ") + "\n";
            let _ = connection.stream.write_all(line.as_bytes());
        }
    }
}
