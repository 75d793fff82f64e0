//! The endpoint for monitoring: `GET` and `HEAD` of `/metrics` and `/healthz`.
//!
//! A small answerer of its own, since a library for HTTP would bring more code than the rest of the switch has. Some threads, each
//! with one connection at a time, one question each: who says nothing, or takes nothing, is let go.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::metrics::Metrics;

/// So many are answered at one time; others wait.
const THREADS: usize = 4;
/// From its first byte to its last a question takes no longer than this, and an answer neither.
const PATIENCE: Duration = Duration::from_secs(2);
/// A question is no longer.
const QUESTION_BYTES_MAX: usize = 8 << 10;

/// Answers as long as the process runs, in threads of its own.
///
/// # Errors
/// Where there are no threads to be had.
pub fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> io::Result<()> {
    let listener = Arc::new(listener);
    for _ in 0..THREADS {
        let (listener, metrics) = (listener.clone(), metrics.clone());
        thread::Builder::new().name("http".into()).spawn(move || {
            loop {
                match listener.accept() {
                    // Whoever is gone before the answer is no trouble.
                    Ok((stream, _)) => drop(answer(stream, &metrics)),
                    // No handles left, say: it passes.
                    Err(_) => thread::sleep(Duration::from_millis(50)),
                }
            }
        })?;
    }
    Ok(())
}

fn answer(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let mut deadline = Instant::now() + PATIENCE;
    let mut question = [0; QUESTION_BYTES_MAX];
    let mut length = 0;
    let (code, kind, body) = loop {
        if let Some(line) = first_line(&question[..length]) {
            break respond(line, metrics);
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
    stream.shutdown(std::net::Shutdown::Write)
}

/// How long it is until then; an error where that is past.
fn until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// The first line of a question that is complete: what stands behind it says nothing that matters here.
fn first_line(question: &[u8]) -> Option<&[u8]> {
    let is_complete = question.windows(4).any(|four| four == b"\r\n\r\n");
    is_complete.then(|| question.split(|byte| *byte == b'\r').next().unwrap_or_default())
}

/// Whether the request wants the head of the answer alone.
fn asks_for_head(question: &[u8]) -> bool {
    question.starts_with(b"HEAD ")
}

fn respond(line: &[u8], metrics: &Metrics) -> (&'static str, &'static str, String) {
    let plain = |code, text: &str| (code, "text/plain", text.to_owned());
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics.text()),
        (b"GET" | b"HEAD", b"/healthz") if metrics.pulse.is_alive() => plain("200 OK", "ok\n"),
        (b"GET" | b"HEAD", b"/healthz") => plain("503 Service Unavailable", "packets are not being moved\n"),
        (_, b"/metrics" | b"/healthz") => plain("405 Method Not Allowed", "only GET and HEAD\n"),
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
}
