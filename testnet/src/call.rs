//! Operations as words, close to Redis's, without the key:
//!
//! | words | operation |
//! | --- | --- |
//! | `GET`, `GETV`, `EXISTS`, `STRLEN`, `PTTL`, `TYPE` | reads: value, value with version, presence, length, time to live, kind |
//! | `SET v [NX\|XX\|IFEQ v\|IFNE v\|IFVER generation timestamp] [GET] [PX ms\|PXAT ms\|KEEPTTL]` | a change to a value |
//! | `DEL [IFEQ v\|…] [GET]` | deletion, with Redis's `GETDEL` as `DEL GET` |
//! | `APPEND v [MAX n]`, `INCRBY n` | additions |
//! | `PEXPIRE ms\|PEXPIREAT ms\|PERSIST`, each but the last with `[NX\|XX\|GT\|LT]` | deadlines |
//! | `GETEX [PX ms\|PXAT ms\|PERSIST]` | the value, and a new deadline |
//! | `LEASE holder ms`, `UNLEASE holder` | acquisition or renewal of a lease, and its release |

use std::time::Duration;

use bytes::Bytes;
use group::op::{Condition, ExpireOnly, Expiry, LeaseOp, Op, Read, Version};
use overlay::time::WallMillis;

fn word(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

/// Returns the words for an operation.
pub fn words_of(op: &Op) -> Vec<Bytes> {
    match op {
        Op::Read(read) => vec![word(match read {
            Read::Value => "GET",
            Read::Versioned => "GETV",
            Read::Exists => "EXISTS",
            Read::Length => "STRLEN",
            Read::TimeToLive => "PTTL",
            Read::Kind => "TYPE",
        })],
        Op::Set { value, condition, expiry, get } => {
            let mut words = vec![word("SET"), value.clone()];
            push_condition(&mut words, condition);
            words.extend(get.then(|| word("GET")));
            push_expiry(&mut words, expiry, Expiry::Clear);
            words
        }
        Op::Delete { condition, get } => {
            let mut words = vec![word("DEL")];
            push_condition(&mut words, condition);
            words.extend(get.then(|| word("GET")));
            words
        }
        Op::Append { value, max } => {
            let mut words = vec![word("APPEND"), value.clone()];
            if let Some(max) = max {
                words.extend([word("MAX"), word(max.to_string())]);
            }
            words
        }
        Op::Add(delta) => vec![word("INCRBY"), word(delta.to_string())],
        Op::Expire { expiry, only } => {
            let mut words = match expiry {
                Expiry::Clear | Expiry::Keep => vec![word("PERSIST")],
                Expiry::In(after) => vec![word("PEXPIRE"), word(after.as_millis().to_string())],
                Expiry::At(at) => vec![word("PEXPIREAT"), word(at.0.to_string())],
            };
            words.extend(flags_of(*only).iter().copied().map(word));
            words
        }
        Op::ReadExpire(expiry) => {
            let mut words = vec![word("GETEX")];
            push_expiry(&mut words, expiry, Expiry::Keep);
            words
        }
        Op::Lease(LeaseOp::Acquire { holder, term }) => {
            vec![word("LEASE"), holder.clone(), word(term.as_millis().to_string())]
        }
        Op::Lease(LeaseOp::Release { holder }) => vec![word("UNLEASE"), holder.clone()],
    }
}

fn push_condition(words: &mut Vec<Bytes>, condition: &Condition) {
    match condition {
        Condition::Always => {}
        Condition::Absent => words.push(word("NX")),
        Condition::Present => words.push(word("XX")),
        Condition::Equals(value) => words.extend([word("IFEQ"), value.clone()]),
        Condition::Differs(value) => words.extend([word("IFNE"), value.clone()]),
        Condition::Version(Version { generation, timestamp }) => {
            words.extend([word("IFVER"), word(generation.to_string()), word(timestamp.to_string())]);
        }
    }
}

/// Adds the options for a deadline, none where it is the `default` of the operation.
fn push_expiry(words: &mut Vec<Bytes>, expiry: &Expiry, default: Expiry) {
    match expiry {
        _ if *expiry == default => {}
        Expiry::Clear => words.push(word("PERSIST")),
        Expiry::Keep => words.push(word("KEEPTTL")),
        Expiry::In(after) => words.extend([word("PX"), word(after.as_millis().to_string())]),
        Expiry::At(at) => words.extend([word("PXAT"), word(at.0.to_string())]),
    }
}

/// Conditions on the present deadline, each with its flags.
const ONLY: [(ExpireOnly, &[&str]); 6] = [
    (ExpireOnly::Always, &[]),
    (ExpireOnly::Without, &["NX"]),
    (ExpireOnly::With, &["XX"]),
    (ExpireOnly::Later, &["GT"]),
    (ExpireOnly::Earlier, &["LT"]),
    (ExpireOnly::WithEarlier, &["XX", "LT"]),
];

fn flags_of(only: ExpireOnly) -> &'static [&'static str] {
    ONLY.iter().find(|(known, _)| *known == only).map_or(&[], |(_, flags)| flags)
}

/// Returns the operation of these words.
///
/// # Errors
/// A description for a person, if the words are no operation.
pub fn op_of(words: &[Bytes]) -> Result<Op, String> {
    let mut words = WordReader(words.iter());
    let name = words.next()?;
    let op = match &name[..] {
        b"GET" => Op::Read(Read::Value),
        b"GETV" => Op::Read(Read::Versioned),
        b"EXISTS" => Op::Read(Read::Exists),
        b"STRLEN" => Op::Read(Read::Length),
        b"PTTL" => Op::Read(Read::TimeToLive),
        b"TYPE" => Op::Read(Read::Kind),
        b"LEASE" => {
            let holder = words.next()?;
            let term = Duration::from_millis(words.number()?);
            Op::Lease(LeaseOp::Acquire { holder, term })
        }
        b"UNLEASE" => Op::Lease(LeaseOp::Release { holder: words.next()? }),
        b"SET" => {
            let value = words.next()?;
            let options = words.options()?;
            let expiry = options.expiry.unwrap_or_default();
            Op::Set { value, condition: options.condition, expiry, get: options.get }
        }
        b"DEL" => {
            let options = words.options()?;
            Op::Delete { condition: options.condition, get: options.get }
        }
        b"APPEND" => {
            let value = words.next()?;
            let max = words.0.next().map(|_| words.number()).transpose()?;
            Op::Append { value, max }
        }
        b"INCRBY" => Op::Add(words.number()?),
        b"PERSIST" => Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always },
        b"PEXPIRE" | b"PEXPIREAT" => {
            let number = words.number()?;
            let expiry = if name == "PEXPIRE" {
                Expiry::In(Duration::from_millis(number))
            } else {
                Expiry::At(WallMillis(number))
            };
            Op::Expire { expiry, only: words.only()? }
        }
        b"GETEX" => {
            let options = words.options()?;
            Op::ReadExpire(options.expiry.unwrap_or(Expiry::Keep))
        }
        other => return Err(format!("no operation: {}", other.escape_ascii())),
    };
    match words.0.next() {
        Some(rest) => Err(format!("too many words: {}", rest.escape_ascii())),
        None => Ok(op),
    }
}

struct WordReader<'a>(std::slice::Iter<'a, Bytes>);

impl WordReader<'_> {
    /// Reads the options of a change, up to the last word.
    fn options(&mut self) -> Result<SetOptions, String> {
        let mut options = SetOptions::default();
        while let Some(option) = self.0.next() {
            options.take(option, self)?;
        }
        Ok(options)
    }

    /// Reads the flags of a condition on the present deadline, up to the last word.
    fn only(&mut self) -> Result<ExpireOnly, String> {
        let flags: Vec<&[u8]> = self.0.by_ref().map(|word| &word[..]).collect();
        let is_meant = |known: &[&str]| known.iter().map(|flag| flag.as_bytes()).eq(flags.iter().copied());
        let found = ONLY.iter().find(|(_, known)| is_meant(known)).map(|(only, _)| *only);
        found.ok_or_else(|| format!("no option: {}", flags.concat().escape_ascii()))
    }

    fn next(&mut self) -> Result<Bytes, String> {
        self.0.next().cloned().ok_or_else(|| "a word is missing".into())
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.next()?;
        let number = std::str::from_utf8(&word).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("no number: {}", word.escape_ascii()))
    }
}

#[derive(Default)]
struct SetOptions {
    condition: Condition,
    expiry: Option<Expiry>,
    get: bool,
}

impl SetOptions {
    fn take(&mut self, option: &Bytes, words: &mut WordReader<'_>) -> Result<(), String> {
        match &option[..] {
            b"NX" => self.condition = Condition::Absent,
            b"XX" => self.condition = Condition::Present,
            b"IFEQ" => self.condition = Condition::Equals(words.next()?),
            b"IFNE" => self.condition = Condition::Differs(words.next()?),
            b"IFVER" => {
                let version = Version { generation: words.number()?, timestamp: words.number()? };
                self.condition = Condition::Version(version);
            }
            b"GET" => self.get = true,
            b"KEEPTTL" => self.expiry = Some(Expiry::Keep),
            b"PERSIST" => self.expiry = Some(Expiry::Clear),
            b"PX" => self.expiry = Some(Expiry::In(Duration::from_millis(words.number()?))),
            b"PXAT" => self.expiry = Some(Expiry::At(WallMillis(words.number()?))),
            other => return Err(format!("no option: {}", other.escape_ascii())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_the_operation() {
        let value = Bytes::from_static(b"v");
        let version = Version { generation: 3, timestamp: 9 };
        let mut ops: Vec<Op> =
            [Read::Value, Read::Versioned, Read::Exists, Read::Length, Read::TimeToLive].map(Op::Read).into();
        let expiries = [Expiry::Clear, Expiry::Keep, Expiry::In(Duration::from_millis(5)), Expiry::At(WallMillis(7))];
        let conditions = [
            Condition::Always,
            Condition::Absent,
            Condition::Present,
            Condition::Equals(value.clone()),
            Condition::Differs(value.clone()),
            Condition::Version(version),
        ];
        for get in [false, true] {
            for condition in &conditions {
                ops.push(Op::Delete { condition: condition.clone(), get });
                for expiry in expiries {
                    ops.push(Op::Set { value: value.clone(), condition: condition.clone(), expiry, get });
                }
            }
        }
        ops.extend(expiries.map(Op::ReadExpire));
        for only in [
            ExpireOnly::Always,
            ExpireOnly::Without,
            ExpireOnly::With,
            ExpireOnly::Later,
            ExpireOnly::Earlier,
            ExpireOnly::WithEarlier,
        ] {
            ops.push(Op::Expire { expiry: Expiry::In(Duration::from_millis(1)), only });
            ops.push(Op::Expire { expiry: Expiry::At(WallMillis(1)), only });
        }
        ops.push(Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::Always });
        ops.push(Op::Append { value: value.clone(), max: None });
        ops.push(Op::Append { value, max: Some(8) });
        ops.push(Op::Add(-4));
        for op in ops {
            assert_eq!(op_of(&words_of(&op)), Ok(op));
        }
    }
}
