//! Strangers with many packets, under addresses that need not be theirs.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use libp2p::core::Endpoint;
use libp2p::core::transport::{DialOpts, PortUse, Transport as _};
use net::{Identity, Multiaddr, Via, quic};
use node::Class;

use crate::hostile::{generous, impatient, nobody_is_left, noise_bytes, still_serves};
use crate::support::*;

/// First packets of a handshake: a long header (RFC 9000, 17.2), and the bits that tell its kind.
const LONG: u8 = 0x80;
const KIND: u8 = 0x30;
const INITIAL: u8 = 0x00;
const RETRY: u8 = 0x30;

fn socket(victim: &Peer) -> SocketAddr {
    socket_of(&victim.address().unwrap())
}

/// Returns the first packets of `count` peers. Each begins a handshake of its own, and none is ever continued.
fn first_words(count: usize) -> Vec<Vec<u8>> {
    let ear = UdpSocket::bind("127.0.0.1:0").unwrap();
    ear.set_read_timeout(Some(PATIENCE)).unwrap();
    let address: Multiaddr =
        format!("/ip4/127.0.0.1/udp/{}/quic-v1", ear.local_addr().unwrap().port()).parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _context = runtime.enter();
    let keypair = libp2p::identity::Keypair::generate_ed25519();
    let mut transport = quic::QuicTransport::new(&keypair, &generous()).unwrap();
    let (mut words, mut ids) = (Vec::new(), HashSet::new());
    while words.len() < count {
        let options = DialOpts { role: Endpoint::Dialer, port_use: PortUse::New };
        let dial = runtime.spawn(transport.dial(address.clone(), options).unwrap());
        let mut bytes = vec![0; 2000];
        loop {
            let len = ear.recv(&mut bytes).unwrap();
            // The id that the dialler made up; one that it has sent again is not new.
            let id = bytes[6..6 + usize::from(bytes[5])].to_vec();
            if bytes[0] & (LONG | KIND) == LONG | INITIAL && ids.insert(id) {
                words.push(bytes[..len].to_vec());
                break;
            }
        }
        dial.abort();
    }
    runtime.shutdown_background();
    words
}

/// Three hundred handshakes that are never continued, all at once and again and again. A few are answered. All other
/// ones must prove that they receive at their address, and the victim keeps nothing of them. A peer that proves it is
/// let in meanwhile.
#[test]
fn who_only_begins_handshakes_keeps_out_nobody() {
    // Longer than it takes to send all of it, so that those that were answered first hold their places.
    let mut config = impatient(Via::Quic);
    config.timing.hello = Duration::from_secs(6);
    config.timing.quic_idle = config.timing.hello;
    let mut victim = start(config);
    let words = first_words(300);
    let crowd = UdpSocket::bind("127.0.0.1:0").unwrap();
    crowd.set_nonblocking(true).unwrap();
    let (mut retries, mut answers) = (0, 0);
    let mut heard = |until: Instant| {
        while Instant::now() < until {
            let mut bytes = [0; 2000];
            let Ok(_) = crowd.recv(&mut bytes) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if bytes[0] & (LONG | KIND) == LONG | RETRY {
                retries += 1;
            } else {
                answers += 1;
            }
        }
    };
    for words in &words {
        crowd.send_to(words, socket(&victim)).unwrap();
        heard(Instant::now() + Duration::from_millis(1));
    }
    let began = Instant::now();
    still_serves(&mut victim);
    let served = began.elapsed();
    heard(Instant::now() + Duration::from_millis(500));
    println!("{retries} were told to prove their address; {answers} packets of handshakes; served after {served:?}");
    // An answer is two or three packets, which are sent again.
    assert!(retries >= 200 && answers <= 32 * 12, "{retries} retries, {answers} answers");
    assert!(served < PATIENCE / 4, "{served:?}");
    assert_eq!(victim.handle().stats().over_limit, 0, "what is not proven takes a part of the room");
    nobody_is_left(&victim);
    still_serves(&mut victim);
}

#[test]
fn noise_on_the_port_is_not_listened_to() {
    let mut victim = start(impatient(Via::Quic));
    let crowd = UdpSocket::bind("127.0.0.1:0").unwrap();
    let words = first_words(1).remove(0);
    for seed in 0..500usize {
        let mut bytes = noise_bytes(seed as u64, 1 + seed * 7 % 1400);
        match seed % 4 {
            // As if of a connection, of a handshake, and of one whose packets were damaged on the way.
            0 => bytes[0] = 0x40 | bytes[0] & 0x3f,
            1 => bytes[0] = 0xc0,
            2 => {
                bytes.clone_from(&words);
                bytes[seed * 3 % words.len()] ^= 0x55;
            }
            _ => {}
        }
        crowd.send_to(&bytes, socket(&victim)).unwrap();
    }
    still_serves(&mut victim);
    nobody_is_left(&victim);
}

/// A killed peer comes back at the same place at once, without any notice to the other side. That side still sends to
/// it, is told that the connection is gone, and is back long before its connection would be idle.
fn a_peer_that_starts_again_is_back_soon(via: Via) {
    let mut config = config(via);
    // Longer than this test allows: the peer must not wait for this timeout.
    config.timing.quic_idle = PATIENCE;
    let (mut a, mut b) = (start(config.clone()), start(config.clone()));
    let (identity, address): (Identity, String) = (b.identity.clone(), b.address().unwrap());
    a.dial(&b);
    a.wait_up(b.key());
    b.wait_up(a.key());
    for round in 2..=4 {
        let place = socket_of(&address);
        drop(b);
        let began = Instant::now();
        // The runtime of the last start ends in threads of its own.
        eventually("the port is free", || match via {
            Via::Tcp => std::net::TcpListener::bind(place).is_ok(),
            Via::Quic => UdpSocket::bind(place).is_ok(),
        });
        config.listen = vec![address.parse().unwrap()];
        b = start_as(identity.clone(), config.clone());
        let key = b.key();
        a.wait("the next start", |a| a.ups(key) == round && a.is_up(key));
        b.wait_up(a.key());
        let (took, from) = (began.elapsed(), a.key());
        a.send(key, Class::Data, "back?");
        b.wait("a frame", |b| b.texts(from, Class::Data) == ["back?"]);
        println!("{via:?}: back after {took:?}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}

fn socket_of(address: &str) -> SocketAddr {
    let port = address.split('/').nth(4).unwrap().parse().unwrap();
    SocketAddr::from(([127, 0, 0, 1], port))
}

over_both! {
    a_peer_that_starts_again_is_back_soon,
}
