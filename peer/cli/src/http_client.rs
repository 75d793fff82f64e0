//! One HTTP request to a peer's endpoint, without a library: the endpoint is this project's, and closes after its answer.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of slow operations. Groups decide within 10 s, a repair within a minute; members may copy for ten minutes
/// before.
const PATIENT_TIMEOUT: Duration = Duration::from_secs(700);
/// Upper limit of an answer in bytes. No peer sends a longer one.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Answer of a peer.
#[derive(Debug)]
pub struct HttpAnswer {
    /// Status code.
    pub code: u16,
    /// Body: all bytes behind the head.
    pub body: Vec<u8>,
}

/// Reason for a missing answer.
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

/// Limits of an answer in time and size.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Limit for the whole exchange, from the beginning to the last byte: bytes that trickle in do not extend it.
    pub time: Duration,
    /// Limit of head and body together, in bytes.
    pub bytes: usize,
}

/// Returns the status code and the body of an answer.
///
/// # Errors
///
/// An I/O error where no HTTP answer came in time, or one that is too long.
pub fn get(address: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    get_within(address, path, Bounds { time: TIMEOUT, bytes: ANSWER_BYTES_MAX })
}

/// Does the same as [`get`], for callers with other endpoints to ask.
///
/// # Errors
///
/// As for [`get`].
pub fn get_within(address: &str, path: &str, bounds: Bounds) -> io::Result<(u16, Vec<u8>)> {
    let HttpAnswer { code, body } =
        exchange(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n"), b"", bounds)?;
    Ok((code, body))
}

/// Requests a change, authorised by the token, if one is given.
///
/// # Errors
///
/// [`NoAnswer`], which says whether the request may have arrived.
pub fn post(address: &str, path: &str, token: Option<&[u8]>, body: &[u8]) -> Result<HttpAnswer, NoAnswer> {
    post_within(address, path, token, body, TIMEOUT)
}

/// Does the same as [`post`], for slow operations.
///
/// # Errors
///
/// As for [`post`].
pub fn post_patiently(address: &str, path: &str, token: Option<&[u8]>, body: &[u8]) -> Result<HttpAnswer, NoAnswer> {
    post_within(address, path, token, body, PATIENT_TIMEOUT)
}

fn post_within(
    address: &str,
    path: &str,
    token: Option<&[u8]>,
    body: &[u8],
    timeout: Duration,
) -> Result<HttpAnswer, NoAnswer> {
    let mut head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    if let Some(token) = token {
        // A line end in the token would end the line: such a token is none.
        let token: String = String::from_utf8_lossy(token).chars().filter(|c| !c.is_control()).collect();
        head.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    exchange(address, &head, body, Bounds { time: timeout, bytes: ANSWER_BYTES_MAX })
}

/// Sends a request and reads its answer. `head` is in version 1.0: that asks for a body without chunks, and for the end of
/// the connection behind it.
fn exchange(address: &str, head: &str, body: &[u8], bounds: Bounds) -> Result<HttpAnswer, NoAnswer> {
    let until = Instant::now() + bounds.time;
    let stream = connect(address, until).map_err(NoAnswer::Unreachable)?;
    ask(stream, head, body, until, bounds.bytes).map_err(NoAnswer::Lost)
}

fn ask(mut stream: TcpStream, head: &str, body: &[u8], until: Instant, bytes_max: usize) -> io::Result<HttpAnswer> {
    // In one piece: a server that refuses a request by its head alone has read the rest then, and its answer is not lost
    // with the rest.
    let mut request = format!("{head}Accept: */*\r\n\r\n").into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request)?;
    let no_answer = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        stream.set_read_timeout(Some(rest(until)?))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) if answer.len() + bytes > bytes_max => return Err(no_answer("the answer is too long")),
            Ok(bytes) => answer.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    parse(answer).ok_or_else(|| no_answer("the answer is not HTTP"))
}

/// Returns the remaining time.
fn rest(until: Instant) -> io::Result<Duration> {
    let rest = until.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

fn connect(address: &str, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, rest(until)?.min(TIMEOUT)) {
            Ok(stream) => {
                stream.set_write_timeout(Some(rest(until)?.min(TIMEOUT)))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn parse(mut answer: Vec<u8>) -> Option<HttpAnswer> {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).ok().filter(|head| head.starts_with("HTTP/1."))?;
    let code = text.split(' ').nth(1)?.get(..3)?.parse().ok()?;
    Some(HttpAnswer { code, body: answer.split_off(head + 4) })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Answers one connection with these bytes over and over, with a pause before each time, until the client stops
    /// reading.
    fn endless(piece: &'static [u8], pause: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
            while stream.write_all(piece).is_ok() {
                thread::sleep(pause);
            }
        });
        address
    }

    #[test]
    fn an_answer_without_end_comes_to_one() {
        let slow = endless(b" ", Duration::from_millis(20));
        let (since, time) = (Instant::now(), Duration::from_millis(300));
        let error = get_within(&slow, "/", Bounds { time, bytes: 1 << 20 }).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        let long = endless(&[b' '; 1 << 16], Duration::ZERO);
        let error = get_within(&long, "/", Bounds { time: TIMEOUT, bytes: 1 << 20 }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
