//! Answers of a running peer, and one picture of it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use cli::top::model::Model;
use peer::status::{Budgets, Events, Load, Peers};
use serde::de::DeserializeOwned;

use super::common::process::{Peer, ends, real, text};

/// Starts a network of one real peer.
fn alone(directory: &tempfile::TempDir) -> Peer {
    let data = directory.path().display().to_string();
    let mut command = real(&["run", "--new", "--network", "top-alone", "--cluster", "attic\u{1b}[2J"]);
    command.args(["--data-dir", &data, "--listen", "/ip4/127.0.0.1/tcp/0"]);
    command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    Peer::with(command, &[])
}

fn told<T: DeserializeOwned>(peer: &Peer, path: &str) -> T {
    let (code, answer) = peer.get(path);
    assert_eq!(code, 200, "{path}: {answer}");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// Asks until the answer meets a condition. Returns the answer.
fn until<T: DeserializeOwned>(peer: &Peer, path: &str, so: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = told::<T>(peer, path);
        if so(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path} does not come to it");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_peer_tells_its_last_minutes() {
    let directory = tempfile::tempdir().unwrap();
    let peer = alone(&directory);
    let peers: Peers = told(&peer, "/v1/peers");
    assert!(peers.peers.is_empty() && peers.peer_id.starts_with("12D3KooW"));
    ends(&real(&["set", "a", "1", "--addr", &peer.resp]).output().unwrap(), 0, "OK\n");
    let load: Load = until(&peer, "/v1/load", |load: &Load| load.samples.iter().any(|sample| sample.ops_per_s > 0.0));
    let busy = load.samples.iter().find(|sample| sample.ops_per_s > 0.0).unwrap();
    assert!(busy.p50_ms.is_some_and(|ms| ms > 0.0) && busy.p99_ms >= busy.p50_ms);
    let later: Load = told(&peer, &format!("/v1/load?after={}", load.samples[0].unix_s));
    assert!(later.samples.iter().all(|sample| sample.unix_s > load.samples[0].unix_s));
    let budgets: Budgets = until(&peer, "/v1/budgets", |budgets: &Budgets| budgets.disk.used > Some(0));
    assert_eq!(
        (budgets.disk.given, budgets.memory.given, budgets.bandwidth.given),
        (Some(10 << 30), Some(1 << 30), None)
    );
    assert_eq!(
        (budgets.connections.used, budgets.connections.given, budgets.bandwidth.used),
        (Some(0), Some(256), Some(0))
    );
    assert!(!cfg!(target_os = "linux") || budgets.memory.used > Some(1 << 20));
    let events: Events = until(&peer, "/v1/events", |events: &Events| events.events.len() >= 2);
    let kinds: Vec<&str> = events.events.iter().map(|told| told.kind.as_str()).collect();
    assert!(kinds.contains(&"ready") && kinds.contains(&"joined"), "{kinds:?}");
    let none: Events = told(&peer, &format!("/v1/events?after={}", events.last));
    assert!(none.events.is_empty() && none.last == events.last);
    for wrong in ["/v1/events?after=x", "/v1/load?after=-1"] {
        assert_eq!(peer.get(wrong).0, 400, "{wrong}");
    }
    assert_eq!(super::common::process::http(&peer.http, "POST /v1/peers HTTP/1.0\r\n\r\n").0, 405);
}

#[test]
fn one_picture_of_a_peer() {
    let directory = tempfile::tempdir().unwrap();
    let peer = alone(&directory);
    // Its published status is a little older than its direct answers.
    let deadline = Instant::now() + Duration::from_secs(60);
    while peer.get("/readyz").0 != 200 {
        assert!(Instant::now() < deadline, "it is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    let once =
        |more: &[&str]| real(&[&["top", "--once"], more].concat()).env("SCATTER_HTTP", &peer.http).output().unwrap();
    let output = once(&[]);
    let picture = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(picture.lines().count(), 24);
    for part in [
        "scatter top",
        " serves up ",
        "cluster attic␛[2J",
        "ring of 1",
        "100%",
        "my group",
        "complete",
        "used / given",
        "events",
    ] {
        assert!(picture.contains(part), "{part}:\n{picture}");
    }
    assert!(!picture.contains('\x1b'), "nobody looks: there are no colours");
    let wide = once(&["--size", "200x60"]);
    assert!(text(&wide.stdout).lines().count() == 60 && text(&wide.stdout).contains("peers: 1"));
    let json = once(&["--output", "json"]);
    let model: Model = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((model.ready, model.ring.map(|ring| ring.whole), model.load.is_some()), (Some(true), Some(true), true));
    assert_eq!(model.status.unwrap().groups[0].members[0].cluster, "attic\u{1b}[2J");
    let svg = once(&["--output", "svg"]);
    assert!(text(&svg.stdout).starts_with("<svg ") && text(&svg.stdout).ends_with("</svg>\n"));
    // A second address, because no peer listens at the first one.
    let nobody = nobody();
    let output = real(&["top", "--once", "--http", &nobody, "--http", &peer.http]).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains(&peer.http));
    let both = format!("{nobody},{}", peer.http);
    assert!(real(&["top", "--once"]).env("SCATTER_HTTP", both).output().unwrap().status.success());
}

fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Answers every connection with these bytes, for as long as the test runs.
fn stranger(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn what_goes_wrong_has_its_code() {
    for more in [&[][..], &["--once"]] {
        // Without --once it needs a terminal before anything else.
        let output = real(&[&["top", "--http", &nobody()], more].concat()).output().unwrap();
        ends(&output, if more.is_empty() { 2 } else { 3 }, "");
        assert!(!output.stderr.is_empty());
    }
    ends(&real(&["top", "--once", "--http", "no.such.host.invalid:1"]).output().unwrap(), 3, "");
    ends(&real(&["top", "--once", "--http", "127.0.0.1"]).output().unwrap(), 3, "");
    for answer in [
        &b"SSH-2.0-OpenSSH\x1b[2J\r\n"[..],
        b"HTTP/1.0 404 Not Found\r\n\r\n<html>",
        b"HTTP/1.0 200 OK\r\n\r\n<html>",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b"HTTP/1.0 403 Forbidden\r\n\r\n{\"error\":\"\x1b[31mno\"}",
        b"HTTP/1.0 403 Forbidden\r\n\r\n{\"error\":\"\\u001b[31mno\"}",
    ] {
        let output = real(&["top", "--once", "--http", &stranger(answer)]).output().unwrap();
        ends(&output, 4, "");
        assert!(!output.stderr.is_empty() && !output.stderr.contains(&0x1b), "{}", text(&output.stderr));
    }
    for wrong in [&["--once", "--size", "0x0"][..], &["--once", "--output", "xml"], &["--size", "80x24"], &["--nope"]] {
        ends(&real(&[&["top"], wrong].concat()).output().unwrap(), 2, "");
    }
}
