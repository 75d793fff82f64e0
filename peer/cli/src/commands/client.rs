//! One operation through a peer: a small RESP client, so that no library repeats a write unnoticed.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use super::{ClientArgs, Exit};

/// Time limit of a connection attempt, for each address of a host.
const CONNECT: Duration = Duration::from_secs(3);
/// Time limit of an answer. Peers answer within 3 s; one that has not after this has gone.
const ANSWER: Duration = Duration::from_secs(5);
/// Upper limit of an answer in bytes.
const BULK_BYTES_MAX: usize = 64 << 20;
/// Upper limits of a line in bytes and of an answer's nesting: the other end may not be a peer.
const LINE_BYTES_MAX: u64 = 64 << 10;
const DEPTH_MAX: u8 = 4;

/// Answer of a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum RespValue {
    /// Status line.
    Simple(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nil.
    Nil,
    /// Several values.
    Array(Vec<RespValue>),
}

/// Reason for a missing answer, with the exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code of the command.
    pub exit: Exit,
    /// Text for the user.
    pub why: String,
}

/// Sends one command to one peer, once.
///
/// # Errors
///
/// [`Failure`]: its exit code says whether the command may have taken effect.
pub fn ask(reach: &ClientArgs, words: &[&[u8]], writes: bool) -> Result<RespValue, Failure> {
    let unreachable = |error: io::Error| Failure {
        exit: Exit::Unreachable,
        why: format!("cannot reach a peer at {}: {error}", reach.addr),
    };
    let password = password(reach.password_file.as_deref())?;
    let stream = connect(&reach.addr).map_err(unreachable)?;
    let mut connection = BufReader::new(stream);
    if let Some(password) = password {
        exchange(&mut connection, &[b"AUTH", &password]).map_err(unreachable)?.map_err(|text| refusal(&text))?;
    }
    exchange(&mut connection, words)
        .map_err(|error| match writes {
            // The request may have arrived.
            true => Failure {
                exit: Exit::Unknown,
                why: format!("the peer at {} did not answer ({error}): the outcome is not known", reach.addr),
            },
            false => unreachable(error),
        })?
        .map_err(|text| refusal(&text))
}

/// Returns the password in this file, if a file is named.
///
/// # Errors
///
/// [`Failure`] where the file cannot be read.
pub fn password(file: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    let read = |path: &Path| match std::fs::read(path) {
        Ok(password) => Ok(password.trim_ascii().to_vec()),
        Err(error) => Err(Failure { exit: Exit::Usage, why: format!("cannot read {}: {error}", path.display()) }),
    };
    file.map(read).transpose()
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(ANSWER))?;
                stream.set_write_timeout(Some(ANSWER))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the failure that an error answer means for the user.
fn refusal(text: &str) -> Failure {
    let exit = match text.split(' ').next() {
        Some("UNCERTAIN") => Exit::Unknown,
        Some("TRYAGAIN") => Exit::TryAgain,
        _ => Exit::Refused,
    };
    Failure { exit, why: text.to_owned() }
}

/// Sends a command and reads its answer: the inner error is the peer's own.
fn exchange(connection: &mut BufReader<TcpStream>, words: &[&[u8]]) -> io::Result<Result<RespValue, String>> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    connection.get_mut().write_all(&request)?;
    read(connection, DEPTH_MAX)
}

fn read(connection: &mut BufReader<TcpStream>, depth: u8) -> io::Result<Result<RespValue, String>> {
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not in the Redis protocol");
    let mut line = Vec::new();
    connection.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection"));
    }
    let line = line.strip_suffix(b"\r\n").ok_or_else(nonsense)?;
    let (&kind, rest) = line.split_first().ok_or_else(nonsense)?;
    let text = String::from_utf8_lossy(rest).into_owned();
    let number = || text.parse::<i64>().map_err(|_| nonsense());
    Ok(Ok(match kind {
        b'+' => RespValue::Simple(text),
        b'-' => return Ok(Err(text)),
        b':' => RespValue::Integer(number()?),
        b'_' => RespValue::Nil,
        b'$' => match usize::try_from(number()?) {
            Err(_) => RespValue::Nil,
            Ok(length) if length > BULK_BYTES_MAX => return Err(nonsense()),
            Ok(length) => {
                let mut bytes = Vec::new();
                connection.by_ref().take(length as u64 + 2).read_to_end(&mut bytes)?;
                if bytes.len() != length + 2 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                bytes.truncate(length);
                RespValue::Bulk(bytes)
            }
        },
        b'*' if depth > 0 => {
            let mut items = Vec::new();
            for _ in 0..number()?.min(1 << 20) {
                match read(connection, depth - 1)? {
                    Ok(item) => items.push(item),
                    Err(text) => return Ok(Err(text)),
                }
            }
            RespValue::Array(items)
        }
        _ => return Err(nonsense()),
    }))
}
