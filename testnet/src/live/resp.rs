//! A plain RESP2 client: one request and one answer, or several in a row.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;

/// Upper limit of arrays and strings in an answer: a longer one is a peer's error.
const LENGTH_MAX: i64 = 16 << 20;

/// Answer of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$1…`, or nil.
    Bulk(Option<Bytes>),
    /// `*2…`, or nil.
    Array(Option<Vec<Reply>>),
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects; waits for answers no longer than `patience`.
    ///
    /// # Errors
    /// No connection within `patience`.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        Connection::over(TcpStream::connect_timeout(&address, patience)?, patience)
    }

    /// Makes a connection of a stream; waits for answers no longer than `patience`.
    ///
    /// # Errors
    /// The stream refuses its options.
    pub fn over(stream: TcpStream, patience: Duration) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { reader: BufReader::new(stream) })
    }

    /// Sends a command, and waits for its answer. After an error the connection is of no use.
    ///
    /// # Errors
    /// The connection broke, or no answer came in time: the command may have taken effect.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The connection broke: the command may have been sent.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        let mut frame = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            frame.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            frame.extend_from_slice(word);
            frame.extend_from_slice(b"\r\n");
        }
        self.write_raw(&frame)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection broke: a part may have been sent.
    pub(crate) fn write_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// The connection broke, no answer came in time, or the answer is malformed.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let wrong = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("no answer: {line:?}"));
        let text = line.trim_end_matches("\r\n");
        let (Some(kind), Some(rest)) = (text.get(..1), text.get(1..)) else { return Err(wrong(text)) };
        let length = || match rest.parse::<i64>() {
            Ok(length) if (-1..=LENGTH_MAX).contains(&length) => Ok(usize::try_from(length).ok()),
            _ => Err(wrong(text)),
        };
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(rest.parse().map_err(|_| wrong(text))?),
            "$" => match length()? {
                None => Reply::Bulk(None),
                Some(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(Some(bytes.into()))
                }
            },
            "*" => match length()? {
                None => Reply::Array(None),
                Some(length) => Reply::Array(Some((0..length).map(|_| self.receive()).collect::<Result<_, _>>()?)),
            },
            _ => return Err(wrong(text)),
        })
    }
}
