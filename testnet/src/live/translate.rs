//! Operations as commands, and answers back.

use bytes::Bytes;
use group::op::{Answer, Condition, Expiry, Kind, LeaseOp, Op, Read, Unfit, Version};

use super::resp::Reply;
use crate::history::Outcome;

/// Returns the command for an operation on a key; `None` where RESP has no command for exactly this operation.
pub fn command(key: &[u8], op: &Op, relaxed: bool, once: Option<&Bytes>) -> Option<Vec<Bytes>> {
    let word = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let key = Bytes::copy_from_slice(key);
    let words = match op {
        Op::Read(Read::Value) if relaxed => vec![word("SCATTER.RGET"), key],
        _ if relaxed => return None,
        Op::Read(read) => vec![
            word(match read {
                Read::Value => "GET",
                Read::Versioned => "SCATTER.GETV",
                Read::Exists => "EXISTS",
                Read::Length => "STRLEN",
                Read::TimeToLive => "PTTL",
                Read::Kind => "TYPE",
            }),
            key,
        ],
        Op::Set { value, condition: Condition::Version(version), expiry: Expiry::Clear, get: false } => {
            let version = format!("{}-{}", version.generation, version.timestamp);
            vec![word("SCATTER.CAS"), key, word(&version), value.clone()]
        }
        Op::Set { condition: Condition::Version(_), .. } | Op::Delete { condition: Condition::Version(_), .. } => {
            return None;
        }
        Op::Set { .. } => {
            let mut words = crate::call::words_of(op);
            words.insert(1, key);
            words
        }
        Op::Delete { condition: Condition::Always, get: true } => vec![word("GETDEL"), key],
        Op::Delete { condition: Condition::Always, get: false } => vec![word("DEL"), key],
        Op::Delete { condition: Condition::Equals(value), get: false } => {
            vec![word("DELEX"), key, word("IFEQ"), value.clone()]
        }
        Op::Delete { .. } => return None,
        Op::Append { value, max: None } => vec![word("APPEND"), key, value.clone()],
        Op::Append { value, max: Some(max) } => {
            vec![word("SCATTER.APPEND"), key, word(&max.to_string()), value.clone()]
        }
        Op::Add(_) | Op::Expire { .. } | Op::ReadExpire(_) => {
            let mut words = crate::call::words_of(op);
            words.insert(1, key);
            words
        }
        Op::Lease(_) => {
            let mut words = crate::call::words_of(op);
            words[0] = [b"SCATTER.", &words[0][..]].concat().into();
            words.insert(1, key);
            words
        }
    };
    Some(match once {
        None => words,
        Some(id) => [word("SCATTER.ONCE"), id.clone()].into_iter().chain(words).collect(),
    })
}

/// Returns the outcome that an answer to [`command`] means.
///
/// # Errors
/// The answer breaks the contract.
pub fn outcome(op: &Op, reply: Reply) -> Result<Outcome, String> {
    if let Reply::Error(text) = &reply {
        return match text.split(' ').next() {
            Some("TRYAGAIN") => Ok(Outcome::TryAgain),
            Some("UNCERTAIN") => Ok(Outcome::Uncertain),
            Some("OOM") => Ok(Outcome::Limit),
            Some("WRONGTYPE") => Ok(Outcome::Answered(Answer::Unfit(Unfit::OtherKind))),
            _ if text.contains("not an integer") => Ok(Outcome::Answered(Answer::Unfit(Unfit::NotAnInteger))),
            _ if text.contains("overflow") => Ok(Outcome::Answered(Answer::Unfit(Unfit::Overflow))),
            _ if text.contains("maximum allowed size") => Ok(Outcome::Answered(Answer::Unfit(Unfit::TooLong))),
            _ => Err(format!("{op:?} was answered with {text:?}")),
        };
    }
    let answer = match (op, &reply) {
        (Op::Read(Read::Value) | Op::ReadExpire(_), Reply::Bulk(value)) => Answer::Value(value.clone()),
        (Op::Read(Read::Versioned), Reply::Array(Some(parts))) => versioned(parts)?,
        (Op::Read(Read::Kind), Reply::Simple(text)) => Answer::Kind(match text.as_str() {
            "string" => Some(Kind::Value),
            "lease" => Some(Kind::Lease),
            "none" => None,
            _ => return Err(format!("{op:?} was answered with {reply:?}")),
        }),
        (Op::Lease(LeaseOp::Acquire { .. }), Reply::Array(Some(parts))) => match &parts[..] {
            [Reply::Bulk(Some(holder)), Reply::Integer(left)] => Answer::Held {
                holder: holder.clone(),
                left_ms: u64::try_from(*left).map_err(|_| format!("{left} ms are left of a lease"))?,
            },
            _ => return Err(format!("{op:?} was answered with {reply:?}")),
        },
        (Op::Read(_) | Op::Append { .. } | Op::Add(_), Reply::Integer(number)) => Answer::Integer(*number),
        (Op::Set { get: true, .. } | Op::Delete { get: true, .. }, Reply::Bulk(value)) => Answer::Value(value.clone()),
        (Op::Set { .. }, Reply::Simple(text)) if text == "OK" => Answer::Done,
        (Op::Set { condition: Condition::Version(_), .. }, Reply::Integer(1)) => Answer::Done,
        (Op::Set { condition: Condition::Version(_), .. }, Reply::Integer(0)) => Answer::NotMet,
        (Op::Set { .. } | Op::Append { .. }, Reply::Bulk(None) | Reply::Array(None)) => Answer::NotMet,
        (Op::Delete { .. } | Op::Expire { .. } | Op::Lease(_), Reply::Integer(1)) => Answer::Done,
        (Op::Delete { .. } | Op::Expire { .. } | Op::Lease(_), Reply::Integer(0)) => Answer::NotMet,
        _ => return Err(format!("{op:?} was answered with {reply:?}")),
    };
    Ok(Outcome::Answered(answer))
}

fn versioned(parts: &[Reply]) -> Result<Answer, String> {
    let wrong = || format!("no value and version: {parts:?}");
    match parts {
        [Reply::Bulk(None), _] => Ok(Answer::Versioned(None)),
        [Reply::Bulk(Some(value)), Reply::Bulk(Some(version))] => {
            let text = std::str::from_utf8(version).map_err(|_| wrong())?;
            let (generation, timestamp) = text.split_once('-').ok_or_else(wrong)?;
            let version = Version {
                generation: generation.parse().map_err(|_| wrong())?,
                timestamp: timestamp.parse().map_err(|_| wrong())?,
            };
            Ok(Answer::Versioned(Some((value.clone(), version))))
        }
        _ => Err(wrong()),
    }
}
