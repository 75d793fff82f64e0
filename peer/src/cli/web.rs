//! One HTTP request to a peer's endpoint, without a library: the endpoint is ours, and closes after its answer.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
const BODY_BYTES_MAX: u64 = 64 << 20;

/// The status code and the body.
pub fn get(address: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    let mut stream = None;
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, TIMEOUT) {
            Ok(connected) => stream = Some(connected),
            Err(error) => last = error,
        }
        if stream.is_some() {
            break;
        }
    }
    let mut stream = stream.ok_or(last)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // Version 1.0 asks for a body without chunks, and for the end of the connection behind it.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(BODY_BYTES_MAX).read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(nonsense)?;
    let status = std::str::from_utf8(&answer[..head])
        .ok()
        .filter(|head| head.starts_with("HTTP/1."))
        .and_then(|head| head.split(' ').nth(1))
        .and_then(|code| code.get(..3)?.parse().ok())
        .ok_or_else(nonsense)?;
    Ok((status, answer.split_off(head + 4)))
}
