//! Metrics of the controller, in Prometheus's format: `GET` and `HEAD` of `/metrics`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::p4rt::places::Places;
use crate::soft::host::{Hosts, REFUSAL};

/// Upper limit of connections at one time. A further connection takes the place of the oldest one.
const CONNECTIONS_MAX: usize = 32;
/// Connections of these that are kept for clients on this machine.
const KEPT: usize = 8;
/// Time limit for a connection, from its start to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Current figures of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Peers that are asked.
    pub peers: u64,
    /// Peers that have answered lately.
    pub answering: u64,
    /// Groups that are known.
    pub groups: u64,
    /// Groups that are left to another controller for a while.
    pub contested: u64,
    /// Partitions that are to be in the tables.
    pub placed: u64,
    /// Partitions of these that have an id.
    pub named: u64,
    /// Partitions for which there is no room.
    pub without_room: u64,
    /// The switch answers, and accepts the controller's entries.
    pub connected: bool,
    /// This controller is the primary one.
    pub primary: bool,
    /// Wall-clock time at which the tables were last found or made as wanted, in seconds since 1970; 0 means never.
    pub synced_unix_s: u64,
    /// Requests to peers without an answer, or without a valid one.
    pub reports_failed: u64,
    /// Times that a peer reported a group of which it is not a member.
    pub reports_refused: u64,
    /// Requests for ids.
    pub asks: u64,
    /// Requests after which the group had the id.
    pub ids_named: u64,
    /// Requests that were refused, or whose result is unknown.
    pub asks_refused: u64,
}

impl Tally {
    /// Returns all figures in Prometheus's format.
    pub fn text(&self) -> String {
        let mut page = String::with_capacity(4 << 10);
        for (name, kind, what, value) in [
            ("peers", "gauge", "Peers that are asked what their groups are.", self.peers),
            ("peers_answering", "gauge", "Peers that have answered in the last seconds.", self.answering),
            ("groups", "gauge", "Groups that are known.", self.groups),
            ("groups_contested", "gauge", "Groups that are left to another controller for a while.", self.contested),
            ("partitions_placed", "gauge", "Partitions that are to be in the switch.", self.placed),
            ("partitions_named", "gauge", "Partitions there whose reads can be spread: they have an id.", self.named),
            ("partitions_without_room", "gauge", "Partitions that have no room in the switch.", self.without_room),
            (
                "connected",
                "gauge",
                "The switch answers, and this controller's tables are taken.",
                self.connected.into(),
            ),
            ("primary", "gauge", "This is the primary controller of the switch.", self.primary.into()),
            (
                "last_sync_timestamp_seconds",
                "gauge",
                "When the tables were last as wanted; 0: never.",
                self.synced_unix_s,
            ),
            (
                "words_failed_total",
                "counter",
                "Questions to peers without an answer that makes sense.",
                self.reports_failed,
            ),
            ("words_refused_total", "counter", "Groups that somebody spoke of who is no member.", self.reports_refused),
            ("asks_total", "counter", "Requests for ids.", self.asks),
            ("ids_named_total", "counter", "Requests after which a group had the id.", self.ids_named),
            ("asks_refused_total", "counter", "Requests that were refused or got lost.", self.asks_refused),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(
                page,
                "# HELP scatter_controller_{name} {what}\n# TYPE scatter_controller_{name} {kind}\nscatter_controller_{name} {value}"
            );
        }
        page
    }
}

/// Answers requests without end.
pub async fn serve(listener: TcpListener, tally: watch::Receiver<Tally>) {
    let places = Places::new(CONNECTIONS_MAX, KEPT);
    // A listener without an address counts as one on loopback, which answers fewer requests.
    let hosts = listener.local_addr().map_or(Hosts::ThisMachine, Hosts::of);
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            // For example, no handles are left: that passes.
            Err(_) => {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let mut place = places.take(address.ip().to_canonical().is_loopback());
        let tally = tally.clone();
        tokio::spawn(async move {
            let answering = service_fn(|request| {
                let response = respond(&request, &tally, hosts);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answering);
            // A client that has left before the answer is not an error.
            tokio::select! {
                _ = timeout(PATIENCE, connection) => {}
                () = place.lost() => {}
            }
        });
    }
}

fn respond(request: &Request<Incoming>, tally: &watch::Receiver<Tally>, hosts: Hosts) -> Response<Full<Bytes>> {
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let (code, kind, body) = match (request.method(), request.uri().path()) {
        _ if !hosts.answers(host) => (StatusCode::FORBIDDEN, "text/plain", format!("{REFUSAL}\n")),
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", tally.borrow().text())
        }
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET and HEAD\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "no such page\n".to_owned()),
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Binds the address for requests; needs a runtime of tokio.
///
/// # Errors
/// If the address cannot be bound, for example because another process listens there.
pub fn listen(at: std::net::SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(stream: &mut TcpStream, line: &str) -> String {
        ask_of(stream, line, "localhost").await
    }

    async fn ask_of(stream: &mut TcpStream, line: &str, host: &str) -> String {
        stream.write_all(format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn it_answers_whoever_asks_and_lets_others_go() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let (tallies, tally) = watch::channel(Tally::default());
        tokio::spawn(serve(listener, tally));
        tallies.send_replace(Tally { groups: 7, connected: true, ..Tally::default() });
        // More connections than there are places send nothing: they make room.
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let text = ask(&mut TcpStream::connect(at).await.unwrap(), "GET /metrics").await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\nscatter_controller_groups 7\n"), "{text}");
        assert!(
            text.contains("\n# TYPE scatter_controller_connected gauge\nscatter_controller_connected 1\n"),
            "{text}"
        );
        for (line, code) in [("GET /", "404"), ("POST /metrics", "405")] {
            let text = ask(&mut TcpStream::connect(at).await.unwrap(), line).await;
            assert!(text.starts_with(&format!("HTTP/1.1 {code} ")), "{text}");
        }
        let text = ask_of(&mut TcpStream::connect(at).await.unwrap(), "GET /metrics", "evil.example").await;
        assert!(text.starts_with("HTTP/1.1 403 ") && text.contains(REFUSAL), "{text}");
    }
}
