//! Peers that can be reached by TCP and by QUIC.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use peer::net::{NetConfig, Transport, Via};

use crate::support::*;

/// Listens on both.
fn open() -> NetConfig {
    NetConfig { listen: vec![anywhere(Via::Quic), anywhere(Via::Tcp)], ..config(Via::Tcp) }
}

/// Where it listens by this.
fn at(peer: &Peer, via: Via) -> String {
    let is_quic = |address: &String| address.contains("quic-v1");
    peer.addresses().into_iter().find(|address| is_quic(address) == (via == Via::Quic)).unwrap()
}

fn tcp_port(peer: &Peer) -> u16 {
    at(peer, Via::Tcp).rsplit('/').next().unwrap().parse().unwrap()
}

/// By what `peer` writes to the only one that it knows.
fn via(peer: &Peer) -> Option<Via> {
    peer.handle().stats().peers.first()?.via
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[test]
fn both_are_told_and_tcp_is_taken() {
    for _ in 0..5 {
        let (mut a, mut b) = (start(open()), start(open()));
        let addresses = b.addresses();
        assert_eq!(addresses, [at(&b, Via::Tcp), at(&b, Via::Quic)], "TCP first");
        a.net().dial(b.key(), &[at(&b, Via::Quic), at(&b, Via::Tcp)]);
        a.wait_up(b.key());
        b.wait_up(a.key());
        assert_eq!((via(&a), via(&b)), (Some(Via::Tcp), Some(Via::Tcp)));
        assert_eq!(a.handle().stats().connections, 1);
    }
}

/// Nothing of TCP's start is waited for.
#[test]
fn where_tcp_is_refused_quic_is_taken_at_once() {
    let mut config = open();
    config.timing.tcp_start = PATIENCE;
    let (mut a, mut b) = (start(config), start(open()));
    let closed = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
    let began = Instant::now();
    a.net().dial(b.key(), &[format!("/ip4/127.0.0.1/tcp/{closed}"), at(&b, Via::Quic)]);
    a.wait_up(b.key());
    b.wait_up(a.key());
    assert_eq!((via(&a), via(&b)), (Some(Via::Quic), Some(Via::Quic)));
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}

/// Somebody takes connections and says nothing, which is as bad as a filter.
#[test]
fn where_tcp_is_silent_quic_is_taken_soon() {
    let mut config = open();
    config.timing.tcp_start = Duration::from_millis(300);
    let (mut a, b) = (start(config), start(open()));
    let silent = TcpListener::bind(local(0)).unwrap();
    let began = Instant::now();
    a.net().dial(b.key(), &[format!("/ip4/127.0.0.1/tcp/{}", silent.local_addr().unwrap().port()), at(&b, Via::Quic)]);
    a.wait_up(b.key());
    let took = began.elapsed();
    assert_eq!(via(&a), Some(Via::Quic));
    assert!(took >= Duration::from_millis(300) && took < PATIENCE / 4, "{took:?}");
}

/// Two peers that are connected by QUIC learn that there is TCP. Not one frame is lost or comes twice, in any class and
/// either way, and neither notices; then the connection by QUIC is given up.
#[test]
fn streams_move_to_tcp_and_lose_nothing() {
    let mut config = open();
    config.timing.tcp_retry_min = Duration::from_millis(100);
    config.timing.idle = Duration::from_millis(500);
    let (mut a, mut b) = (start(config.clone()), start(config));
    a.net().dial(b.key(), &[at(&b, Via::Quic)]);
    a.wait_up(b.key());
    b.wait_up(a.key());
    assert_eq!((via(&a), via(&b)), (Some(Via::Quic), Some(Via::Quic)));

    let (ka, kb) = (a.key(), b.key());
    a.net().dial(kb, &[at(&b, Via::Quic), at(&b, Via::Tcp)]);
    let (mut sent, began, mut moved) = (0, Instant::now(), None);
    // Until some time after both have moved.
    while moved.is_none_or(|moved| sent < moved + 200) {
        for class in CLASSES {
            a.send(kb, class, &format!("{class:?} {sent}"));
            b.send(ka, class, &format!("{class:?} {sent}"));
        }
        sent += 1;
        if moved.is_none() && (via(&a), via(&b)) == (Some(Via::Tcp), Some(Via::Tcp)) {
            moved = Some(sent);
        }
        a.poll();
        b.poll();
        assert!(began.elapsed() < PATIENCE, "it is never moved");
        thread::sleep(Duration::from_millis(1));
    }
    for class in CLASSES {
        let expected: Vec<String> = (0..sent).map(|i| format!("{class:?} {i}")).collect();
        for (peer, from) in [(&mut a, kb), (&mut b, ka)] {
            peer.wait("all frames", |peer| peer.texts(from, class).len() >= expected.len());
            // Those written last to the one connection and first to the other may overtake each other.
            let mut texts = peer.texts(from, class);
            texts.sort_by_key(|text| text.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
            assert_eq!(texts, expected);
        }
    }
    eventually("QUIC is given up", || a.handle().stats().connections == 1 && b.handle().stats().connections == 1);
    a.poll();
    b.poll();
    assert_eq!((a.ups(kb), a.downs(kb), b.ups(ka), b.downs(ka)), (1, 0, 1, 0));
    let lost: u64 = [&a, &b]
        .map(|peer| CLASSES.map(|class| peer.handle().stats().peers[0].class(class).lost))
        .concat()
        .iter()
        .sum();
    assert_eq!((lost, via(&a), via(&b)), (0, Some(Via::Tcp), Some(Via::Tcp)));
}

/// A path that lets connections by TCP come up and then breaks them: after two of them QUIC goes first, and all is quiet.
#[test]
fn tcp_that_always_breaks_is_not_come_back_to_soon() {
    let mut config = open();
    config.timing.tcp_retry_min = Duration::from_secs(30);
    let (mut a, b) = (start(config), start(open()));
    let (port, taken) = breaking(tcp_port(&b), Duration::from_secs(1)).unwrap();
    let kb = b.key();
    a.net().dial(kb, &[format!("/ip4/127.0.0.1/tcp/{port}"), at(&b, Via::Quic)]);
    a.wait("QUIC", |a| via(a) == Some(Via::Quic) && a.is_up(kb));
    let (downs, before) = (a.downs(kb), taken.load(Ordering::Relaxed));
    // One that broke before its handshake was over was none.
    assert!((1..=3).contains(&downs), "{downs}");
    // A wait that has nothing to wait for: nothing must happen.
    thread::sleep(Duration::from_secs(3));
    a.poll();
    assert_eq!((a.downs(kb), taken.load(Ordering::Relaxed), via(&a)), (downs, before, Some(Via::Quic)));
}

/// Passes connections on to this port, each for so long. Ends with the process.
fn breaking(to: u16, after: Duration) -> io::Result<(u16, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind(local(0))?;
    let (port, taken) = (listener.local_addr()?.port(), Arc::new(AtomicUsize::new(0)));
    let count = taken.clone();
    thread::spawn(move || {
        for here in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::Relaxed);
            let Ok(there) = TcpStream::connect(local(to)) else { return };
            for (mut from, mut into) in [(here.try_clone(), there.try_clone()), (there.try_clone(), here.try_clone())]
                .into_iter()
                .filter_map(|(from, into)| Some((from.ok()?, into.ok()?)))
            {
                thread::spawn(move || io::copy(&mut from, &mut into));
            }
            thread::spawn(move || {
                thread::sleep(after);
                let _ = here.shutdown(std::net::Shutdown::Both);
                let _ = there.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    Ok((port, taken))
}
