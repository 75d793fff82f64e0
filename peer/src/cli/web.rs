//! One HTTP request to a peer's endpoint, without a library: the endpoint is ours, and closes after its answer.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
/// What groups have to agree on is decided within 10 s, a repair within a minute; members may copy for ten minutes before.
const PATIENT_TIMEOUT: Duration = Duration::from_secs(700);
const BODY_BYTES_MAX: u64 = 64 << 20;

/// What a peer answered.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// Everything behind the head.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nothing was sent.
    Unreachable(io::Error),
    /// The request may have arrived.
    Lost(io::Error),
}

impl From<NoAnswer> for io::Error {
    fn from(why: NoAnswer) -> io::Error {
        match why {
            NoAnswer::Unreachable(error) | NoAnswer::Lost(error) => error,
        }
    }
}

/// The status code and the body.
pub fn get(address: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    get_within(address, path, TIMEOUT)
}

/// As [`get`], for whoever has somebody else to ask: no step of it takes longer than that.
pub fn get_within(address: &str, path: &str, timeout: Duration) -> io::Result<(u16, Vec<u8>)> {
    let Answer { code, body } =
        exchange(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n"), b"", timeout)?;
    Ok((code, body))
}

/// Asks for a change, in the name of whoever holds the token, if one is given.
pub fn post(address: &str, path: &str, token: Option<&[u8]>, body: &[u8]) -> Result<Answer, NoAnswer> {
    post_within(address, path, token, body, TIMEOUT)
}

/// As [`post`], for what takes its time.
pub fn post_patiently(address: &str, path: &str, token: Option<&[u8]>, body: &[u8]) -> Result<Answer, NoAnswer> {
    post_within(address, path, token, body, PATIENT_TIMEOUT)
}

fn post_within(
    address: &str,
    path: &str,
    token: Option<&[u8]>,
    body: &[u8],
    timeout: Duration,
) -> Result<Answer, NoAnswer> {
    let mut head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    if let Some(token) = token {
        // A line end in it would end the line: such a token is no token.
        let token: String = String::from_utf8_lossy(token).chars().filter(|c| !c.is_control()).collect();
        head.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    exchange(address, &head, body, timeout)
}

/// `head` is in version 1.0: that asks for a body without chunks, and for the end of the connection behind it.
fn exchange(address: &str, head: &str, body: &[u8], timeout: Duration) -> Result<Answer, NoAnswer> {
    let stream = connect(address, timeout).map_err(NoAnswer::Unreachable)?;
    ask(stream, head, body).map_err(NoAnswer::Lost)
}

fn ask(mut stream: TcpStream, head: &str, body: &[u8]) -> io::Result<Answer> {
    // In one piece: who refuses it by its head alone has read the rest then, and its answer is not lost with the rest.
    let mut request = format!("{head}Accept: */*\r\n\r\n").into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request)?;
    let mut answer = Vec::new();
    stream.take(BODY_BYTES_MAX).read_to_end(&mut answer)?;
    parse(answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}

fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, timeout.min(TIMEOUT)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn parse(mut answer: Vec<u8>) -> Option<Answer> {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).ok().filter(|head| head.starts_with("HTTP/1."))?;
    let code = text.split(' ').nth(1)?.get(..3)?.parse().ok()?;
    Some(Answer { code, body: answer.split_off(head + 4) })
}
