//! The Redis protocol: `GET` and `SET`.

use std::io::Write as _;

use crate::protocol::{Answer, Operation, Protocol, ProtocolError};

/// A connection to a server that speaks the Redis protocol.
pub struct Resp {
    read: &'static str,
    password: Option<Vec<u8>>,
    /// Number of awaited answers that belong to no request; they come first.
    opening: u64,
    answered: u64,
}

impl Resp {
    /// Creates a connection that reads with `GET`.
    pub fn new(password: Option<Vec<u8>>) -> Resp {
        Resp { read: "GET", password, opening: 0, answered: 0 }
    }

    /// Creates a connection that reads with `SCATTER.RGET`, that is, from any replica.
    pub fn relaxed(password: Option<Vec<u8>>) -> Resp {
        Resp { read: "SCATTER.RGET", ..Resp::new(password) }
    }

    fn take_one(&self, input: &[u8]) -> Result<Option<(usize, Option<String>)>, ProtocolError> {
        let Some(end) = input.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let (line, after) = (&input[..end], end + 2);
        let malformed = || ProtocolError(String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned());
        match line.first() {
            Some(b'+' | b':' | b'_') => Ok(Some((after, None))),
            Some(b'-') => {
                let text = String::from_utf8_lossy(&line[1..]);
                Ok(Some((after, Some(text.split(' ').next().unwrap_or_default().into()))))
            }
            Some(b'$') => {
                let length = str::from_utf8(&line[1..]).ok().and_then(|text| text.parse::<i64>().ok());
                let Ok(length) = usize::try_from(match length.ok_or_else(malformed)? {
                    -1 => return Ok(Some((after, None))),
                    length => length,
                }) else {
                    return Err(malformed());
                };
                let whole = after.saturating_add(length).saturating_add(2);
                Ok((input.len() >= whole).then_some((whole, None)))
            }
            _ => Err(malformed()),
        }
    }
}

impl Protocol for Resp {
    fn open(&mut self, out: &mut Vec<u8>) {
        if let Some(password) = &self.password {
            command(out, &[b"AUTH", password]);
            self.opening = 1;
        }
    }

    fn is_open(&self) -> bool {
        self.opening == 0
    }

    fn request(&mut self, _number: u64, operation: Operation<'_>, out: &mut Vec<u8>) {
        match operation {
            Operation::Read(key) => command(out, &[self.read.as_bytes(), &key_name(key)]),
            Operation::Write(key, value) => command(out, &[b"SET", &key_name(key), value]),
        }
    }

    fn take(&mut self, input: &[u8], _out: &mut Vec<u8>, answers: &mut Vec<Answer>) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some((length, refusal)) = self.take_one(&input[taken..])? {
            taken += length;
            if self.opening > 0 {
                self.opening -= 1;
                if let Some(refusal) = refusal {
                    return Err(ProtocolError(format!("the password is refused: {refusal}")));
                }
                continue;
            }
            answers.push(Answer { number: self.answered, refusal });
            self.answered += 1;
        }
        Ok(taken)
    }
}

/// Returns the name of a key, for stores that leave it open: the same as of `redis-benchmark`.
pub fn key_name(key: u64) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let (mut place, mut rest) = (name.len(), key);
    while rest > 0 && place > 4 {
        place -= 1;
        name[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    // A write to a vector does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_redis_takes_them() {
        let mut out = Vec::new();
        let mut resp = Resp::new(None);
        resp.open(&mut out);
        resp.request(0, Operation::Read(42), &mut out);
        resp.request(1, Operation::Write(7, b"xy"), &mut out);
        let expected = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n\
            *3\r\n$3\r\nSET\r\n$16\r\nkey:000000000007\r\n$2\r\nxy\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn answers_cut_anywhere_are_the_same() {
        let input = b"+OK\r\n$3\r\na\r\n\r\n$-1\r\n-TRYAGAIN not now\r\n:5\r\n_\r\n";
        for cut in 0..input.len() {
            let (mut resp, mut answers) = (Resp::new(None), Vec::new());
            let taken = resp.take(&input[..cut], &mut Vec::new(), &mut answers).expect("sense");
            let rest = resp.take(&input[taken..], &mut Vec::new(), &mut answers).expect("sense");
            assert_eq!(taken + rest, input.len());
            let refusals = answers.iter().map(|answer| answer.refusal.as_deref()).collect::<Vec<_>>();
            assert_eq!(refusals, [None, None, None, Some("TRYAGAIN"), None, None], "cut at {cut}");
            assert!(answers.iter().map(|answer| answer.number).eq(0..6));
        }
    }

    #[test]
    fn nonsense_is_said_to_be_that() {
        for bad in ["HTTP/1.1 400\r\n", "$x\r\n", "$-7\r\n", "\r\n"] {
            let taken = Resp::new(None).take(bad.as_bytes(), &mut Vec::new(), &mut Vec::new());
            assert!(taken.is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_password_comes_first() {
        let (mut resp, mut out, mut answers) = (Resp::new(Some(b"pw".to_vec())), Vec::new(), Vec::new());
        resp.open(&mut out);
        assert_eq!(out, b"*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n");
        assert!(!resp.is_open());
        assert_eq!(resp.take(b"+OK\r\n", &mut out, &mut answers), Ok(5));
        assert!(resp.is_open() && answers.is_empty());
    }
}
