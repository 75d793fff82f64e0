//! Another program where a peer was expected, and the peer's own address under another name: the reported texts.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use net::{Identity, NetConfig, Via};

use crate::support::*;

/// Returns a peer's report about its attempts, after the end of all its dials.
fn told(address: &str) -> String {
    let named = format!("{address}/p2p/{}", Identity::random().peer_id()).parse().unwrap();
    told_of(start(NetConfig { join: vec![named], ..config(Via::Tcp) }))
}

fn told_of(peer: Peer) -> String {
    let began = Instant::now();
    loop {
        let tried: Vec<String> = peer.tried().iter().map(ToString::to_string).collect();
        if tried.iter().any(|line| !line.ends_with("yet")) {
            return tried.join("; ");
        }
        assert!(began.elapsed() < PATIENCE, "{tried:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn another_program_is_told_from_a_peer() {
    let greetings: [&[u8]; 5] = [
        b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html><body>no</body></html>\n",
        b"-ERR Protocol error: unbalanced quotes in request\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        &[0xff; 64],
        b"\x05hello",
    ];
    for greeting in greetings {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.write_all(greeting);
                // Reads all of it: a socket that is closed before resets the connection, and the greeting may be lost.
                let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
                while stream.read(&mut [0; 1024]).is_ok_and(|bytes| bytes > 0) {}
            }
        });
        let said = told(&format!("/ip4/127.0.0.1/tcp/{port}"));
        assert!(said.contains("another program"), "{said} for {}", greeting.escape_ascii());
    }
}

/// The network leaves out a peer's own addresses: such a `--join` leaves nothing to dial.
#[test]
fn an_own_address_under_another_name_is_said_to_be_one() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("/ip4/127.0.0.1/tcp/{free}");
    let named = format!("{address}/p2p/{}", Identity::random().peer_id()).parse().unwrap();
    let config = NetConfig { join: vec![named], listen: vec![address.parse().unwrap()], ..config(Via::Tcp) };
    let said = told_of(start(config));
    assert!(said.contains("this peer itself is there"), "{said}");
}
