//! Decoder of requests: bytes to arguments.
//!
//! Any client that can connect sends requests, so a *declared* length is never trusted. Room is made only for bytes
//! that have arrived, an argument beyond the limits is skipped instead of stored, and requests do not nest. A client
//! may send one flat array of bulk strings, or an inline command ([`super::inline`]).
//!
//! Not `redis-protocol`: that crate starts from the first byte each time more bytes have come (a bulk string that
//! trickles in costs its length squared), takes replies as requests, nests without a limit, and knows neither inline
//! commands nor Redis's answers to a malformed request.

use std::ops::Range;

use bytes::{Buf, BytesMut};

use super::arguments::{Arguments, parse_integer};
use super::inline;

/// Upper limit of an inline command, and of a header line of any other request, in bytes (as in Redis).
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Upper limit of declared arguments; more are a protocol error (as in Redis up to 6).
const DECLARED_ARGUMENTS_MAX: i64 = 1024 * 1024;
/// Upper limit of a declared bulk string in bytes; a longer one is a protocol error (`proto-max-bulk-len` of Redis).
const DECLARED_BULK_MAX: i64 = 512 * 1024 * 1024;
/// The same two limits for a client that has not given the password yet (as in Redis).
const STRANGER_ARGUMENTS_MAX: i64 = 10;
const STRANGER_BULK_MAX: i64 = 16 * 1024;
/// Bytes of a buffer that are kept; a buffer that grew beyond this for one large request is released after it.
const BUFFER_KEPT_BYTES: usize = 64 * 1024;

/// Limits of a request; beyond them it is skipped instead of stored.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Upper limit of one whole request, in bytes.
    pub request_bytes_max: usize,
    /// Upper limit of the arguments of one request, the command's name among them.
    pub arguments_max: usize,
}

/// One whole request.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Request to execute; never without arguments.
    Request(Arguments<'a>),
    /// Request over a limit, which was skipped: the connection is in step, and the client gets an error.
    Excess(Excess),
}

/// The limit of [`Limits`] that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Too many bytes.
    Bytes,
    /// Too many arguments.
    Arguments,
}

/// Bytes that are no request. The client gets the error and the connection ends, because the next request cannot be
/// found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// `*` without a valid number.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// Too many arguments for a client without the password.
    #[error("Protocol error: unauthenticated multibulk length")]
    StrangerMultibulkLength,
    /// `*` and 64 KiB without an end of line.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkLine,
    /// `$` without a valid number.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// Too long an argument for a client without the password.
    #[error("Protocol error: unauthenticated bulk length")]
    StrangerBulkLength,
    /// `$` and 64 KiB without an end of line.
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    /// Another byte where an argument should begin.
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    Expected(u8),
    /// 64 KiB without an end of line.
    #[error("Protocol error: too big inline request")]
    InlineLine,
    /// Inline command with an open quote.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// Returns a byte in a form that fits an error line.
fn printable(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        0x20..=0x7e => char::from(byte),
        _ => '?',
    }
}

/// Position of the decoder in a request.
#[derive(Clone, Copy, Debug)]
enum Expecting {
    /// First byte of a request.
    Start,
    /// Header of the next argument; `left` arguments are missing.
    Header { left: u32 },
    /// `length` bytes of an argument (and an end of line), with `left` more arguments to follow.
    Bulk { left: u32, length: usize },
    /// `bytes` bytes to skip, with `left` more arguments to follow.
    Skip { left: u32, bytes: usize },
}

/// Finds requests in a connection's bytes, independent of how the bytes are cut into pieces.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// Bytes that are not yet part of a returned request; the request being read begins at the front.
    buffer: BytesMut,
    /// Offset up to which the current request is parsed.
    at: usize,
    /// Offset up to which an end of line has been searched, so that no byte is searched twice.
    scanned: usize,
    /// Bytes at the front that belong to the last item.
    consumed: usize,
    expecting: Expecting,
    arguments: Vec<Range<usize>>,
    excess: Option<Excess>,
    /// Unquoted arguments of an inline command.
    inline: Vec<u8>,
}

impl Decoder {
    /// Returns a decoder at the start of a connection.
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            buffer: BytesMut::new(),
            at: 0,
            scanned: 0,
            consumed: 0,
            expecting: Expecting::Start,
            arguments: Vec::new(),
            excess: None,
            inline: Vec::new(),
        }
    }

    /// Returns the buffer for arriving bytes. It stays bounded as long as [`Decoder::next`] is called until it has no
    /// more.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.release();
        &mut self.buffer
    }

    /// Returns the number of bytes that arrived and are not part of a returned request.
    #[cfg(test)]
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len() - self.consumed
    }

    /// Returns the next whole request, if it has arrived. `stranger` marks a client that still owes the password.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] for bytes that are no request. This decoder returns no further request after it.
    pub fn next(&mut self, stranger: bool) -> Result<Option<Item<'_>>, ProtocolError> {
        self.release();
        loop {
            match self.expecting {
                Expecting::Start => {
                    let Some(&first) = self.buffer.first() else {
                        return Ok(None);
                    };
                    if first != b'*' {
                        match self.inline_line()? {
                            None => return Ok(None),
                            Some(false) => continue,
                            Some(true) => return Ok(Some(self.inline_request())),
                        }
                    }
                    let Some(count) = self.header(ProtocolError::MultibulkLine)? else {
                        return Ok(None);
                    };
                    self.begin_request(count, stranger)?;
                }
                Expecting::Header { left: 0 } => return Ok(Some(self.request())),
                Expecting::Header { left } => {
                    match self.buffer.get(self.at) {
                        None => return Ok(None),
                        Some(b'$') => {}
                        Some(&other) => return Err(ProtocolError::Expected(other)),
                    }
                    let Some(length) = self.header(ProtocolError::BulkLine)? else {
                        return Ok(None);
                    };
                    self.begin_argument(left - 1, length, stranger)?;
                }
                Expecting::Bulk { left, length } => {
                    // Redis ignores the two bytes behind an argument; so does this decoder.
                    if self.buffer.len() < self.at + length + 2 {
                        return Ok(None);
                    }
                    self.arguments.push(self.at..self.at + length);
                    self.at += length + 2;
                    self.scanned = self.at;
                    self.expecting = Expecting::Header { left };
                }
                Expecting::Skip { left, bytes } => {
                    let now = bytes.min(self.buffer.len());
                    self.buffer.advance(now);
                    if now < bytes {
                        self.expecting = Expecting::Skip { left, bytes: bytes - now };
                        return Ok(None);
                    }
                    self.expecting = Expecting::Header { left };
                }
            }
        }
    }

    /// Begins a request with this declared number of arguments; `None` where the header has no number.
    fn begin_request(&mut self, count: Option<i64>, stranger: bool) -> Result<(), ProtocolError> {
        match count {
            None => return Err(ProtocolError::MultibulkLength),
            Some(n) if n > DECLARED_ARGUMENTS_MAX => {
                return Err(ProtocolError::MultibulkLength);
            }
            Some(n) if stranger && n > STRANGER_ARGUMENTS_MAX => {
                return Err(ProtocolError::StrangerMultibulkLength);
            }
            // An empty request gets no answer.
            Some(n) if n <= 0 => {
                self.consumed = self.at;
                self.release();
            }
            Some(n) => {
                let left = u32::try_from(n).map_err(|_| ProtocolError::MultibulkLength)?;
                if n as usize > self.limits.arguments_max {
                    self.give_up(Excess::Arguments);
                }
                self.expecting = Expecting::Header { left };
            }
        }
        Ok(())
    }

    /// Begins an argument of this declared length, with `left` more arguments to follow.
    fn begin_argument(&mut self, left: u32, length: Option<i64>, stranger: bool) -> Result<(), ProtocolError> {
        let length = length.ok_or(ProtocolError::BulkLength)?;
        if !(0..=DECLARED_BULK_MAX).contains(&length) {
            return Err(ProtocolError::BulkLength);
        }
        if stranger && length > STRANGER_BULK_MAX {
            return Err(ProtocolError::StrangerBulkLength);
        }
        let length = length as usize;
        if self.excess.is_none() && self.at + length + 2 > self.limits.request_bytes_max {
            self.give_up(Excess::Bytes);
        }
        self.expecting = if self.excess.is_some() {
            self.drop_understood();
            Expecting::Skip { left, bytes: length + 2 }
        } else {
            Expecting::Bulk { left, length }
        };
        Ok(())
    }

    /// Returns the number of the header line at `at`, if the whole line has arrived: `Some(None)` where it is no
    /// number.
    #[allow(clippy::option_option, reason = "not there yet, and there but wrong, are different things")]
    fn header(&mut self, too_long: ProtocolError) -> Result<Option<Option<i64>>, ProtocolError> {
        let from = self.scanned.max(self.at + 1);
        let unseen = self.buffer.get(from..).unwrap_or_default();
        let Some(end) = unseen.iter().position(|&byte| byte == b'\r').map(|offset| from + offset) else {
            self.scanned = from.max(self.buffer.len());
            return if self.buffer.len() - self.at > LINE_BYTES_MAX { Err(too_long) } else { Ok(None) };
        };
        if self.buffer.len() < end + 2 {
            self.scanned = end;
            return Ok(None);
        }
        let number = parse_integer(&self.buffer[self.at + 1..end]);
        self.at = end + 2;
        self.scanned = self.at;
        Ok(Some(number))
    }

    /// Reads one line as an inline command: `None` where the line has not arrived, `false` where it was empty.
    fn inline_line(&mut self) -> Result<Option<bool>, ProtocolError> {
        let Some(end) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n').map(|o| self.scanned + o)
        else {
            self.scanned = self.buffer.len();
            return if self.buffer.len() > LINE_BYTES_MAX { Err(ProtocolError::InlineLine) } else { Ok(None) };
        };
        let line = &self.buffer[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.inline, &mut self.arguments).map_err(|_| ProtocolError::Quotes)?;
        self.consumed = end + 1;
        self.scanned = 0;
        if self.arguments.is_empty() {
            self.release();
            return Ok(Some(false));
        }
        Ok(Some(true))
    }

    fn inline_request(&mut self) -> Item<'_> {
        if self.arguments.len() > self.limits.arguments_max {
            return Item::Excess(Excess::Arguments);
        }
        Item::Request(Arguments::new(&self.inline, &self.arguments))
    }

    /// Returns the request whose last argument has been read.
    fn request(&mut self) -> Item<'_> {
        self.expecting = Expecting::Start;
        self.consumed = self.at;
        match self.excess.take() {
            Some(excess) => Item::Excess(excess),
            None => Item::Request(Arguments::new(&self.buffer, &self.arguments)),
        }
    }

    /// Skips the rest of the request, and drops its stored part.
    fn give_up(&mut self, why: Excess) {
        self.excess = Some(why);
        self.arguments.clear();
        self.drop_understood();
    }

    fn drop_understood(&mut self) {
        self.buffer.advance(self.at);
        self.at = 0;
        self.scanned = 0;
    }

    /// Releases the bytes of the last item.
    fn release(&mut self) {
        if self.consumed == 0 {
            return;
        }
        self.buffer.advance(self.consumed);
        self.consumed = 0;
        self.at = 0;
        self.scanned = 0;
        self.arguments.clear();
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_KEPT_BYTES {
            self.buffer = BytesMut::new();
        }
        if self.inline.capacity() > BUFFER_KEPT_BYTES {
            self.inline = Vec::new();
        }
        if self.arguments.capacity() > 64 {
            self.arguments = Vec::new();
        }
    }
}

#[cfg(test)]
#[path = "decoder_test.rs"]
mod tests;
