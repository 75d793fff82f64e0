//! Histories as files: JSON lines, one for each operation, in any order.
//!
//! ```json
//! {"client":3,"connection":7,"via":0,"key":"k","call":["SET","v","NX"],"invoked":[12,1000],"completed":[15,2500],"outcome":{"ok":"OK"}}
//! ```
//!
//! - `client`, `connection`, `via`: the client, its connection, and the peer that it asked. Numbers; the last two may be left out.
//! - `key`, and all values: text. A value that is not UTF-8, or begins with `base64:`, is written as `base64:` and its bytes
//!   in base 64.
//! - `call`: the operation, as `call` lists them: Redis's words, without the key.
//! - `mode`: `"relaxed"`, or left out. `once`: the client's own id, or left out.
//! - `invoked`, `completed`: `[order, nanoseconds]`. Orders are unique in the file and rise with time; `completed` is left out
//!   where no answer came.
//! - `outcome`: `"uncertain"`, `"tryagain"`, `"limit"`, or `{"ok": answer}` with an answer as in Redis: `"OK"` or `"NO"` for a
//!   change made or not, `{"value": "v"}`, `{"value": null}`, `{"value": "v", "version": [generation, timestamp]}`,
//!   `{"versioned": null}`, a number, or `{"unfit": "NotAnInteger"}`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use bytes::Bytes;
use group::op::{Answer, Kind, ReadMode, Unfit, Version};
use overlay::Key;
use overlay::time::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call;
use crate::history::{History, Moment, Operation, Outcome};

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct HistoryLine {
    client: u64,
    #[serde(default)]
    connection: u64,
    #[serde(default)]
    via: usize,
    key: String,
    call: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    once: Option<String>,
    invoked: (u64, u64),
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completed: Option<(u64, u64)>,
    outcome: Value,
}

/// Reads a history, with its operations in order of asking.
///
/// # Errors
/// The file cannot be read, or a line is not an operation.
pub fn read(path: &Path) -> io::Result<History> {
    read_from(BufReader::new(File::open(path)?))
}

/// Reads a history from any source, as [`read`] does.
///
/// # Errors
/// The source cannot be read, or a line is not an operation.
pub fn read_from(source: impl BufRead) -> io::Result<History> {
    let mut operations = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let operation = serde_json::from_str(&line).map_err(|error| error.to_string()).and_then(operation_of);
        let at = |error| io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {error}", index + 1));
        operations.push(operation.map_err(at)?);
    }
    operations.sort_by_key(|operation| operation.invoked);
    let mut history = History::default();
    for operation in operations {
        history.invoke(operation);
    }
    Ok(history)
}

/// Writes a history.
///
/// # Errors
/// The file cannot be written; it may contain a part of the history then.
pub fn write(path: &Path, history: &History) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for operation in &history.operations {
        serde_json::to_writer(&mut file, &line_of(operation))?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

fn line_of(operation: &Operation) -> HistoryLine {
    let moment = |moment: Moment| (moment.order, moment.time.0);
    HistoryLine {
        client: operation.client,
        connection: operation.connection,
        via: operation.via,
        key: text_of(operation.key.name()),
        call: call::words_of(&operation.op).iter().map(|word| text_of(word)).collect(),
        mode: (operation.mode == ReadMode::Relaxed).then(|| "relaxed".into()),
        once: operation.once.as_ref().map(|once| text_of(once)),
        invoked: moment(operation.invoked),
        completed: operation.completed.map(moment),
        outcome: outcome_value(&operation.outcome),
    }
}

fn operation_of(line: HistoryLine) -> Result<Operation, String> {
    let moment = |(order, time)| Moment { order, time: Time(time) };
    let words: Vec<Bytes> = line.call.iter().map(|word| bytes_of(word)).collect::<Result<_, _>>()?;
    Ok(Operation {
        client: line.client,
        connection: line.connection,
        via: line.via,
        key: Key::new(&bytes_of(&line.key)?).map_err(|_| "the key is too long")?,
        op: call::op_of(&words)?,
        mode: if line.mode.as_deref() == Some("relaxed") { ReadMode::Relaxed } else { ReadMode::Linearizable },
        once: line.once.map(|once| bytes_of(&once)).transpose()?,
        invoked: moment(line.invoked),
        completed: line.completed.map(moment),
        outcome: outcome_of(&line.outcome)?,
    })
}

fn outcome_value(outcome: &Outcome) -> Value {
    let answer = match outcome {
        Outcome::Uncertain => return "uncertain".into(),
        Outcome::TryAgain => return "tryagain".into(),
        Outcome::Limit => return "limit".into(),
        Outcome::Answered(answer) => answer,
    };
    let answer = match answer {
        Answer::Done => "OK".into(),
        Answer::NotMet => "NO".into(),
        Answer::Value(value) => json!({ "value": value.as_ref().map(|value| text_of(value)) }),
        Answer::Versioned(None) => json!({ "versioned": null }),
        Answer::Versioned(Some((value, Version { generation, timestamp }))) => {
            json!({ "value": text_of(value), "version": [generation, timestamp] })
        }
        Answer::Integer(number) => (*number).into(),
        Answer::Kind(kind) => json!({ "kind": kind.map(|kind| format!("{kind:?}")) }),
        Answer::Held { holder, left_ms } => json!({ "holder": text_of(holder), "left_ms": left_ms }),
        Answer::Unfit(unfit) => json!({ "unfit": format!("{unfit:?}") }),
        Answer::NotKept => return "uncertain".into(),
    };
    json!({ "ok": answer })
}

fn outcome_of(value: &Value) -> Result<Outcome, String> {
    let wrong = || format!("no outcome: {value}");
    match value.as_str() {
        Some("uncertain") => return Ok(Outcome::Uncertain),
        Some("tryagain") => return Ok(Outcome::TryAgain),
        Some("limit") => return Ok(Outcome::Limit),
        _ => {}
    }
    let answer = value.get("ok").ok_or_else(wrong)?;
    let answer = match answer {
        Value::String(text) if text == "OK" => Answer::Done,
        Value::String(text) if text == "NO" => Answer::NotMet,
        Value::Number(number) => Answer::Integer(number.as_i64().ok_or_else(wrong)?),
        Value::Object(map) => match (map.get("value"), map.get("version"), map.get("unfit")) {
            (Some(Value::Null), None, None) => Answer::Value(None),
            (Some(Value::String(text)), None, None) => Answer::Value(Some(bytes_of(text)?)),
            (Some(Value::String(text)), Some(version), None) => {
                let (generation, timestamp) =
                    serde_json::from_value(version.clone()).map_err(|error| error.to_string())?;
                Answer::Versioned(Some((bytes_of(text)?, Version { generation, timestamp })))
            }
            (None, None, Some(unfit)) => Answer::Unfit(match unfit.as_str() {
                Some("NotAnInteger") => Unfit::NotAnInteger,
                Some("Overflow") => Unfit::Overflow,
                Some("TooLong") => Unfit::TooLong,
                Some("OtherKind") => Unfit::OtherKind,
                _ => return Err(wrong()),
            }),
            (None, None, None) if map.contains_key("versioned") => Answer::Versioned(None),
            (None, None, None) => about_leases(map).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        },
        _ => return Err(wrong()),
    };
    Ok(Outcome::Answered(answer))
}

fn about_leases(map: &serde_json::Map<String, Value>) -> Option<Answer> {
    if let Some(kind) = map.get("kind") {
        return Some(Answer::Kind(match kind.as_str() {
            Some("Value") => Some(Kind::Value),
            Some("Lease") => Some(Kind::Lease),
            None if kind.is_null() => None,
            _ => return None,
        }));
    }
    let holder = bytes_of(map.get("holder")?.as_str()?).ok()?;
    Some(Answer::Held { holder, left_ms: map.get("left_ms")?.as_u64()? })
}

const BASE64: &str = "base64:";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(BASE64) => text.to_owned(),
        _ => {
            let mut text = BASE64.to_owned();
            for chunk in bytes.chunks(3) {
                let word =
                    chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
                for place in 0..4 {
                    let digit = DIGITS[(word >> (18 - 6 * place) & 63) as usize];
                    text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
                }
            }
            text
        }
    }
}

fn bytes_of(text: &str) -> Result<Bytes, String> {
    let Some(digits) = text.strip_prefix(BASE64) else { return Ok(Bytes::copy_from_slice(text.as_bytes())) };
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for digit in digits.trim_end_matches('=').bytes() {
        let value = DIGITS.iter().position(|known| *known == digit).ok_or_else(|| format!("no base 64: {text}"))?;
        word = word << 6 | value as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Ok(bytes.into())
}

/// Writes a text to a file of a directory, which is made if it is not there.
///
/// # Errors
/// A description for a person: the file, and the error of the operating system.
pub fn write_text(directory: &Path, name: &str, text: &str) -> Result<(), String> {
    let written = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(directory.join(name), text));
    written.map_err(|error| format!("{}: {error}", directory.join(name).display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        for length in 0..70u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37) | 0x80).collect();
            assert_eq!(bytes_of(&text_of(&bytes)), Ok(bytes.into()));
        }
        assert_eq!(bytes_of(&text_of(b"base64:x")), Ok(Bytes::from_static(b"base64:x")));
    }
}
