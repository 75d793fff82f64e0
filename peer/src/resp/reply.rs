//! Answers to clients, and their encoding.

use std::borrow::Cow;

use bytes::Bytes;

/// Protocol of a connection (`HELLO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, with which a connection starts.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status line; has no line ends in it.
    Simple(&'static str),
    /// An error line, its code first.
    Error(Cow<'static, str>),
    /// A number.
    Integer(i64),
    /// A value.
    Bulk(Bytes),
    /// Text of this program.
    Text(Cow<'static, str>),
    /// Long text for display: a verbatim string in RESP3.
    Verbatim(String),
    /// No value.
    Nil,
    /// Several answers.
    Array(Vec<Reply>),
    /// A set of names: an array in RESP2.
    Set(Vec<Reply>),
    /// Pairs: a flat array in RESP2.
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    /// `+OK`.
    pub const OK: Reply = Reply::Simple("OK");

    /// Returns an error line.
    pub fn error(text: impl Into<Cow<'static, str>>) -> Reply {
        Reply::Error(text.into())
    }

    /// Returns text of this program.
    pub fn text(text: impl Into<Cow<'static, str>>) -> Reply {
        Reply::Text(text.into())
    }

    /// Appends this answer to `out`.
    pub(crate) fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        match self {
            Reply::Simple(line) => {
                out.push(b'+');
                out.extend_from_slice(line.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Reply::Error(line) => {
                out.push(b'-');
                // The line may quote the client's bytes: a line end among them would be taken for the end of
                // the answer.
                out.extend(line.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
                out.extend_from_slice(b"\r\n");
            }
            Reply::Integer(number) => header(b':', *number, out),
            Reply::Bulk(value) => bulk(value, out),
            Reply::Text(text) => bulk(text.as_bytes(), out),
            Reply::Verbatim(text) => match protocol {
                Protocol::Resp2 => bulk(text.as_bytes(), out),
                Protocol::Resp3 => {
                    header(b'=', length(text.len() + 4), out);
                    out.extend_from_slice(b"txt:");
                    out.extend_from_slice(text.as_bytes());
                    out.extend_from_slice(b"\r\n");
                }
            },
            Reply::Nil => out.extend_from_slice(match protocol {
                Protocol::Resp2 => b"$-1\r\n",
                Protocol::Resp3 => b"_\r\n",
            }),
            Reply::Array(items) => sequence(b'*', items, protocol, out),
            Reply::Set(items) => {
                sequence(if protocol == Protocol::Resp3 { b'~' } else { b'*' }, items, protocol, out);
            }
            Reply::Map(pairs) => {
                match protocol {
                    Protocol::Resp2 => header(b'*', length(pairs.len() * 2), out),
                    Protocol::Resp3 => header(b'%', length(pairs.len()), out),
                }
                for (name, value) in pairs {
                    name.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
        }
    }
}

fn length(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn header(kind: u8, number: i64, out: &mut Vec<u8>) {
    use std::io::Write as _;
    out.push(kind);
    // Writing to memory does not fail.
    let _ = write!(out, "{number}\r\n");
}

fn bulk(value: &[u8], out: &mut Vec<u8>) {
    header(b'$', length(value.len()), out);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn sequence(kind: u8, items: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    header(kind, length(items.len()), out);
    for item in items {
        item.encode(protocol, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(reply: Reply, protocol: Protocol) -> String {
        let mut out = Vec::new();
        reply.encode(protocol, &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn both_protocols() {
        for (reply, two, three) in [
            (Reply::OK, r"+OK\r\n", r"+OK\r\n"),
            (Reply::error("ERR a\r\nb"), r"-ERR a  b\r\n", r"-ERR a  b\r\n"),
            (Reply::Integer(-5), r":-5\r\n", r":-5\r\n"),
            (Reply::Nil, r"$-1\r\n", r"_\r\n"),
            (Reply::text("ab"), r"$2\r\nab\r\n", r"$2\r\nab\r\n"),
            (Reply::Verbatim("ab".into()), r"$2\r\nab\r\n", r"=6\r\ntxt:ab\r\n"),
            (Reply::Array(vec![Reply::Nil]), r"*1\r\n$-1\r\n", r"*1\r\n_\r\n"),
            (Reply::Set(vec![]), r"*0\r\n", r"~0\r\n"),
            (
                Reply::Map(vec![(Reply::text("a"), Reply::Integer(1))]),
                r"*2\r\n$1\r\na\r\n:1\r\n",
                r"%1\r\n$1\r\na\r\n:1\r\n",
            ),
        ] {
            assert_eq!(encoded(reply.clone(), Protocol::Resp2), two);
            assert_eq!(encoded(reply, Protocol::Resp3), three);
        }
    }
}
