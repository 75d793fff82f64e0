//! Endpoint for monitoring: `GET` and `HEAD` of `/metrics`, and of `/healthz` where the program has it.
//!
//! A small server of its own, since an HTTP library would bring more code than the rest of the switch has. Each connection has a
//! thread and one request. A client that sends nothing, or reads nothing, is disconnected after a time limit, and earlier if
//! another client needs its place.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Monitored;
use super::host::{Hosts, REFUSAL};

/// Upper limit of connections at one time. A further connection takes the place of the oldest one.
const CONNECTIONS_MAX: usize = 32;
/// Connections of these that are kept for clients on this machine.
const KEPT: usize = 8;
/// Stack of a thread, in bytes: a thread answers one request and needs little.
const STACK_BYTES: usize = 128 << 10;
/// Time limit for a whole request, from the start of its connection, and for a whole answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Upper limit of a request, in bytes.
const QUESTION_BYTES_MAX: usize = 8 << 10;

/// Answers requests as long as the process runs, in threads of its own.
///
/// # Errors
/// If no thread can be started, or the listener has no address. No request is answered then.
pub fn serve(listener: TcpListener, monitored: impl Monitored) -> io::Result<()> {
    let open = Arc::new(Open::default());
    let served = Arc::new(Served { monitored: Box::new(monitored), hosts: Hosts::of(listener.local_addr()?) });
    thread::Builder::new().name("http".into()).spawn(move || {
        loop {
            let begun = listener.accept().and_then(|(stream, address)| begin(stream, address.ip(), &open, &served));
            // For example, no handles or threads are left: that passes.
            if begun.is_err() {
                thread::sleep(Duration::from_millis(50));
            }
        }
    })?;
    Ok(())
}

/// Data behind the endpoint.
struct Served {
    monitored: Box<dyn Monitored>,
    /// Rule for the requests that are answered.
    hosts: Hosts,
}

/// Answers a connection in a thread of its own.
fn begin(stream: TcpStream, from: IpAddr, open: &Arc<Open>, served: &Arc<Served>) -> io::Result<()> {
    let number = open.enter(stream.try_clone()?, from.to_canonical().is_loopback());
    let (held, served) = (open.clone(), served.clone());
    let begun = thread::Builder::new().name("http".into()).stack_size(STACK_BYTES).spawn(move || {
        // A client that has left before the answer is not an error.
        let _ = answer(stream, &served);
        held.leave(number);
    });
    begun.map(drop).inspect_err(|_| open.leave(number))
}

/// Connections that are being answered, the oldest first.
#[derive(Debug, Default)]
struct Open(Mutex<(u64, VecDeque<OpenConnection>)>);

#[derive(Debug)]
struct OpenConnection {
    number: u64,
    is_local: bool,
    stream: TcpStream,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<OpenConnection>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and ends another one if there is no room. Returns the number of the new one.
    fn enter(&self, stream: TcpStream, is_local: bool) -> u64 {
        let mut open = self.lock();
        let (last, connections) = &mut *open;
        let remote = connections.iter().filter(|connection| !connection.is_local).count();
        let local = connections.len() - remote;
        if connections.len() >= CONNECTIONS_MAX || (!is_local && remote >= CONNECTIONS_MAX - KEPT) {
            let goes = connections.iter().position(|connection| !connection.is_local);
            let goes = goes.or((is_local || local > KEPT).then_some(0));
            // The connection's thread finds that it can no longer read or write.
            goes.and_then(|place| connections.remove(place))
                .map(|connection| connection.stream.shutdown(Shutdown::Both));
        }
        *last += 1;
        connections.push_back(OpenConnection { number: *last, is_local, stream });
        *last
    }

    fn leave(&self, number: u64) {
        self.lock().1.retain(|connection| connection.number != number);
    }
}

fn answer(mut stream: TcpStream, served: &Served) -> io::Result<()> {
    let mut deadline = Instant::now() + PATIENCE;
    let mut question = [0; QUESTION_BYTES_MAX];
    let mut length = 0;
    let (code, kind, body) = loop {
        if let Some(line) = first_line(&question[..length]) {
            break match served.hosts.answers(host(&question[..length])) {
                true => respond(line, &*served.monitored),
                false => ("403 Forbidden", "text/plain", format!("{REFUSAL}\n")),
            };
        }
        if length == question.len() {
            break ("431 Request Header Fields Too Large", "text/plain", "too long\n".to_owned());
        }
        stream.set_read_timeout(Some(until(deadline)?))?;
        match stream.read(&mut question[length..])? {
            0 => return Ok(()),
            bytes => length += bytes,
        }
    };
    let bytes = body.len();
    let head =
        format!("HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
    deadline = Instant::now() + PATIENCE;
    let answer = if asks_for_head(&question[..length]) { head } else { head + &body };
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(until(deadline)?))?;
        let bytes = stream.write(rest)?;
        rest = &rest[bytes..];
    }
    stream.shutdown(Shutdown::Write)
}

/// Returns the time left until a deadline; an error if it has passed.
fn until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// Returns the first line of a complete request. Of the further lines, only [`host`] matters here.
fn first_line(question: &[u8]) -> Option<&[u8]> {
    let is_complete = question.windows(4).any(|four| four == b"\r\n\r\n");
    is_complete.then(|| question.split(|byte| *byte == b'\r').next().unwrap_or_default())
}

/// Returns the value of `Host` in a complete request, if there is one.
fn host(question: &[u8]) -> Option<&[u8]> {
    let lines = question.split(|byte| *byte == b'\n').skip(1);
    lines.take_while(|line| *line != b"\r").find_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        name.eq_ignore_ascii_case(b"host").then(|| value[1..].trim_ascii())
    })
}

/// Returns whether the request wants the head of the answer alone.
fn asks_for_head(question: &[u8]) -> bool {
    question.starts_with(b"HEAD ")
}

fn respond(line: &[u8], monitored: &dyn Monitored) -> (&'static str, &'static str, String) {
    let plain = |code, text: &str| (code, "text/plain", text.to_owned());
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let health = if path == b"/healthz" { monitored.health() } else { None };
    match (method, path, health) {
        (b"GET" | b"HEAD", b"/metrics", _) => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", monitored.metrics())
        }
        (b"GET" | b"HEAD", _, Some(Ok(()))) => plain("200 OK", "ok\n"),
        (b"GET" | b"HEAD", _, Some(Err(why))) => plain("503 Service Unavailable", &format!("{why}\n")),
        (_, b"/metrics", _) | (_, _, Some(_)) => plain("405 Method Not Allowed", "only GET and HEAD\n"),
        _ => plain("404 Not Found", "no such page\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_ends_with_an_empty_line() {
        assert_eq!(first_line(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
        assert_eq!(first_line(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(&b"GET /metrics HTTP/1.1"[..]));
        assert_eq!(first_line(b"\r\n\r\n"), Some(&b""[..]));
    }

    #[test]
    fn a_host_is_found_in_the_head_alone() {
        assert_eq!(host(b"GET / HTTP/1.1\r\nAccept: */*\r\nhOST:  a.b:9 \r\n\r\n"), Some(&b"a.b:9"[..]));
        assert_eq!(host(b"GET / HTTP/1.1\r\nHost:\r\n\r\n"), Some(&b""[..]));
        assert_eq!(host(b"Host: a\r\nX-Host: b\r\n\r\nHost: c\r\n"), None);
    }

    #[test]
    fn the_oldest_remote_one_makes_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (open, mut others) = (Open::default(), Vec::new());
        let mut enter = |is_local| {
            others.push(connect());
            open.enter(listener.accept().unwrap().0, is_local)
        };
        let held = |open: &Open| open.lock().1.iter().map(|connection| connection.number).collect::<Vec<_>>();
        let local = enter(true);
        let remote: Vec<u64> = (0..2 * CONNECTIONS_MAX).map(|_| enter(false)).collect();
        let stay = &remote[remote.len() - (CONNECTIONS_MAX - KEPT)..];
        assert_eq!(held(&open), [&[local], stay].concat());
        let locals: Vec<u64> = (0..CONNECTIONS_MAX).map(|_| enter(true)).collect();
        assert_eq!(held(&open), locals);
        // Local connections beyond those kept make room for a remote one.
        let last = enter(false);
        assert_eq!(held(&open), [&locals[1..], &[last]].concat());
        open.leave(last);
        assert_eq!(held(&open), locals[1..]);
    }
}
