//! The parts of ZooKeeper's protocol that nodes with values need.

use load::{Answer, Operation, Protocol, ProtocolError};

const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const SYNC: i32 = 9;
const NODE_EXISTS: i32 = -110;
const SESSION_MS: i32 = 30_000;
const ALL_PERMISSIONS: i32 = 31;

/// Style of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Writes create nodes.
    Fill,
    /// Reads return the server's state, however old.
    Plain,
    /// Reads are preceded by a `sync`: they see all earlier writes.
    Synced,
}

/// A session with a ZooKeeper server. Answers come in order.
pub struct ZooKeeper {
    style: Style,
    has_session: bool,
}

impl ZooKeeper {
    /// Returns a new session.
    pub fn new(style: Style) -> ZooKeeper {
        ZooKeeper { style, has_session: false }
    }
}

impl Protocol for ZooKeeper {
    fn open(&mut self, out: &mut Vec<u8>) {
        packet(out, |body| {
            put_int(body, 0); // version
            put_long(body, 0); // last transaction seen
            put_int(body, SESSION_MS);
            put_long(body, 0); // a new session
            put_bytes(body, &[0; 16]); // its password
            body.push(0); // not read-only
        });
    }

    fn is_open(&self) -> bool {
        self.has_session
    }

    fn request(&mut self, number: u64, operation: Operation<'_>, out: &mut Vec<u8>) {
        // Only the last request of an operation has its number.
        let id = (number % (1 << 30)) as i32 + 1;
        let mut ask = |id: i32, kind: i32, more: &dyn Fn(&mut Vec<u8>)| {
            packet(out, |body| {
                put_int(body, id);
                put_int(body, kind);
                more(body);
            });
        };
        match operation {
            Operation::Read(key) => {
                if self.style == Style::Synced {
                    ask(0, SYNC, &|body| put_bytes(body, path(key).as_bytes()));
                }
                ask(id, GET_DATA, &|body| {
                    put_bytes(body, path(key).as_bytes());
                    body.push(0); // no watch
                });
            }
            Operation::Write(key, value) if self.style == Style::Fill => ask(id, CREATE, &|body| {
                put_bytes(body, path(key).as_bytes());
                put_bytes(body, value);
                put_int(body, 1);
                put_int(body, ALL_PERMISSIONS);
                put_bytes(body, b"world");
                put_bytes(body, b"anyone");
                put_int(body, 0); // stays
            }),
            Operation::Write(key, value) => ask(id, SET_DATA, &|body| {
                put_bytes(body, path(key).as_bytes());
                put_bytes(body, value);
                put_int(body, -1); // whatever its version
            }),
        }
    }

    fn take(&mut self, input: &[u8], _out: &mut Vec<u8>, answers: &mut Vec<Answer>) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some(length) = input.get(taken..).and_then(|rest| int(rest, 0)) {
            let length = usize::try_from(length).map_err(|_| ProtocolError(format!("a packet of {length} bytes")))?;
            let Some(body) = input.get(taken + 4..taken + 4 + length) else { break };
            taken += 4 + length;
            if !self.has_session {
                self.has_session = true;
                if int(body, 4).is_none_or(|timeout| timeout <= 0) {
                    return Err(ProtocolError("the session is refused".into()));
                }
                continue;
            }
            let (Some(id), Some(error)) = (int(body, 0), int(body, 12)) else {
                return Err(ProtocolError(format!("an answer of {length} bytes")));
            };
            // 0 is a sync; below it are pings and watches.
            if let Ok(number @ 1..) = u64::try_from(id) {
                let is_there_already = self.style == Style::Fill && error == NODE_EXISTS;
                let refusal = (error != 0 && !is_there_already).then(|| format!("error {error}"));
                answers.push(Answer { number: number - 1, refusal });
            }
        }
        Ok(taken)
    }
}

fn path(key: u64) -> String {
    format!("/key:{key:012}")
}

fn packet(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    put_int(out, 0);
    fill(out);
    let length = (out.len() - begin - 4) as i32;
    out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_long(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_int(out, bytes.len() as i32);
    out.extend_from_slice(bytes);
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_comes_first_and_answers_have_their_numbers() {
        let (mut zookeeper, mut out, mut answers) = (ZooKeeper::new(Style::Synced), Vec::new(), Vec::new());
        zookeeper.open(&mut out);
        assert_eq!(out.len(), 4 + 45);
        let mut input = Vec::new();
        packet(&mut input, |body| {
            put_int(body, 0);
            put_int(body, SESSION_MS);
            put_long(body, 77);
            put_bytes(body, &[1; 16]);
            body.push(0);
        });
        for (id, error) in [(0, 0), (1, 0), (0, 0), (2, -101)] {
            packet(&mut input, |body| {
                put_int(body, id);
                put_long(body, 5);
                put_int(body, error);
            });
        }
        assert!(!zookeeper.is_open());
        assert_eq!(zookeeper.take(&input, &mut out, &mut answers), Ok(input.len()));
        assert!(zookeeper.is_open());
        let refusals = answers.iter().map(|answer| (answer.number, answer.refusal.as_deref())).collect::<Vec<_>>();
        assert_eq!(refusals, [(0, None), (1, Some("error -101"))]);
    }

    #[test]
    fn a_synced_read_is_two_requests() {
        let (mut plain, mut synced) = (Vec::new(), Vec::new());
        ZooKeeper::new(Style::Plain).request(0, Operation::Read(3), &mut plain);
        ZooKeeper::new(Style::Synced).request(0, Operation::Read(3), &mut synced);
        assert!(synced.ends_with(&plain) && synced.len() > plain.len());
        assert_eq!(int(&plain, 4), Some(1));
        assert_eq!(int(&synced, 8), Some(SYNC));
    }
}
