//! The parts of etcd's protocol that `Put` and a linearizable `Range` need: gRPC over HTTP/2, many requests under way.
//!
//! A whole gRPC client would take so much of the machine that too little is left for the measured server.

use std::collections::BTreeSet;

use load::{Answer, Operation, Protocol, ProtocolError, key_name};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// Number of bytes that may be received before the window is opened again.
const WINDOW: u32 = 1 << 30;
/// No header compression towards this side, which ignores headers.
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A connection to an etcd server.
#[derive(Default)]
pub struct Etcd {
    /// Whether the headers that are the same for all requests were sent.
    is_known: bool,
    received: u32,
    /// Streams that had a message.
    with_message: BTreeSet<u32>,
}

impl Protocol for Etcd {
    fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        let mut settings = Vec::new();
        for (name, value) in [(HEADER_TABLE_SIZE, 0_u32), (INITIAL_WINDOW_SIZE, WINDOW)] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame(out, SETTINGS, 0, 0, &settings);
        frame(out, WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
    }

    fn request(&mut self, number: u64, operation: Operation<'_>, out: &mut Vec<u8>) {
        let stream = u32::try_from(2 * number + 1).unwrap_or(u32::MAX);
        let (path, message): (&[u8], _) = match operation {
            Operation::Read(key) => (b"/etcdserverpb.KV/Range", message(&[&key_name(key)])),
            Operation::Write(key, value) => (b"/etcdserverpb.KV/Put", message(&[&key_name(key), value])),
        };
        let headers = self.headers(path);
        frame(out, HEADERS, END_HEADERS, stream, &headers);
        let mut body = vec![0]; // Not compressed.
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(&message);
        frame(out, DATA, END_STREAM, stream, &body);
    }

    fn take(&mut self, input: &[u8], out: &mut Vec<u8>, answers: &mut Vec<Answer>) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some(header) = input.get(taken..taken + 9) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let Some(payload) = input.get(taken + 9..taken + 9 + length) else { break };
            let (kind, flags) = (header[3], header[4]);
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]) & 0x7fff_ffff;
            self.on_frame(kind, flags, stream, payload, out, answers)?;
            taken += 9 + length;
        }
        Ok(taken)
    }
}

impl Etcd {
    /// Returns the headers of a request. All but the path are put into the server's table once, and named by their places there
    /// from then on.
    fn headers(&mut self, path: &[u8]) -> Vec<u8> {
        // :method POST, :scheme http, and a literal :path
        let mut block = vec![0x83, 0x86, 0x04];
        string(&mut block, path);
        if std::mem::replace(&mut self.is_known, true) {
            // The newest has the lowest number; those with a colon come first.
            block.extend_from_slice(&[0x80 | 64, 0x80 | 63, 0x80 | 62]);
            return block;
        }
        block.push(0x40 | 1); // :authority
        string(&mut block, b"etcd");
        block.push(0x40 | 31); // content-type
        string(&mut block, b"application/grpc");
        block.push(0x40);
        string(&mut block, b"te");
        string(&mut block, b"trailers");
        block
    }

    fn on_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), ProtocolError> {
        let answer = |refusal: Option<&str>| Answer {
            number: u64::from(stream.saturating_sub(1) / 2),
            refusal: refusal.map(str::to_owned),
        };
        match kind {
            DATA => {
                self.with_message.insert(stream);
                self.received += payload.len() as u32;
                if self.received >= WINDOW / 2 {
                    frame(out, WINDOW_UPDATE, 0, 0, &std::mem::take(&mut self.received).to_be_bytes());
                }
            }
            // Only a successful request has a message before its last headers.
            HEADERS if flags & END_STREAM != 0 => {
                let worked = self.with_message.remove(&stream);
                answers.push(answer((!worked).then_some("an error of gRPC")));
            }
            RST_STREAM => {
                self.with_message.remove(&stream);
                answers.push(answer(Some("the stream was reset")));
            }
            SETTINGS if flags & ACK == 0 => frame(out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, payload),
            GOAWAY => {
                let text = String::from_utf8_lossy(payload.get(8..).unwrap_or_default()).into_owned();
                return Err(ProtocolError(format!("it goes away: {text}")));
            }
            // Among them the server's windows: a few small requests under way never fill them.
            _ => {}
        }
        Ok(())
    }
}

/// Fields 1, 2, … of a protobuf message, all of them bytes.
fn message(fields: &[&[u8]]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, field) in (1_u8..).zip(fields) {
        message.push(number << 3 | 2);
        let mut length = field.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(field);
    }
    message
}

/// Text of a header, shorter than 127 bytes.
fn string(block: &mut Vec<u8>, text: &[u8]) {
    block.push(text.len() as u8);
    block.extend_from_slice(text);
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_protobuf_has_it() {
        assert_eq!(message(&[b"k", b"vv"]), b"\x0a\x01k\x12\x02vv");
        let long = vec![7; 300];
        assert_eq!(message(&[&long])[..3], [0x0a, 0xac, 0x02]);
    }

    #[test]
    fn what_has_a_message_worked_and_nothing_else() {
        let (mut etcd, mut input, mut out, mut answers) = (Etcd::default(), Vec::new(), Vec::new(), Vec::new());
        frame(&mut input, SETTINGS, 0, 0, &[]);
        frame(&mut input, HEADERS, END_HEADERS, 3, b"h");
        frame(&mut input, DATA, 0, 3, b"\0\0\0\0\x01x");
        frame(&mut input, HEADERS, END_HEADERS | END_STREAM, 1, b"h");
        frame(&mut input, HEADERS, END_HEADERS | END_STREAM, 3, b"h");
        frame(&mut input, PING, 0, 0, b"12345678");
        let taken = etcd.take(&input[..input.len() - 1], &mut out, &mut answers).expect("sense");
        assert_eq!(taken, input.len() - 17);
        assert_eq!(etcd.take(&input[taken..], &mut out, &mut answers), Ok(17));
        assert_eq!(
            answers.iter().map(|answer| (answer.number, answer.refusal.is_none())).collect::<Vec<_>>(),
            [(0, false), (1, true)]
        );
        let mut expected = Vec::new();
        frame(&mut expected, SETTINGS, ACK, 0, &[]);
        frame(&mut expected, PING, ACK, 0, b"12345678");
        assert_eq!(out, expected);
    }
}
