//! Peers that can be reached by TCP and by QUIC.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use net::{NetConfig, Transport, Via};
use node::Class;

use crate::support::*;

/// Settings that listen on both. TCP has all the head start that a busy machine may need.
fn open() -> NetConfig {
    let mut config = NetConfig { listen: vec![anywhere(Via::Quic), anywhere(Via::Tcp)], ..config(Via::Tcp) };
    config.timing.tcp_start = PATIENCE;
    config
}

/// Returns the peer's address of this transport.
fn at(peer: &Peer, via: Via) -> String {
    let is_quic = |address: &String| address.contains("quic-v1");
    peer.addresses().into_iter().find(|address| is_quic(address) == (via == Via::Quic)).unwrap()
}

fn port(peer: &Peer, via: Via) -> u16 {
    at(peer, via).split('/').nth(4).unwrap().parse().unwrap()
}

/// Returns the transport by which `peer` writes to the only peer that it knows.
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

/// A refusal ends the wait for TCP's head start.
#[test]
fn where_tcp_is_refused_quic_is_taken_at_once() {
    let (mut a, mut b) = (start(open()), start(open()));
    let closed = TcpListener::bind(local(0)).unwrap().local_addr().unwrap().port();
    let began = Instant::now();
    a.net().dial(b.key(), &[format!("/ip4/127.0.0.1/tcp/{closed}"), at(&b, Via::Quic)]);
    a.wait_up(b.key());
    b.wait_up(a.key());
    assert_eq!((via(&a), via(&b)), (Some(Via::Quic), Some(Via::Quic)));
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}

/// A listener that takes connections and sends nothing is as bad as a filter.
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

/// Two peers that are connected by QUIC learn that there is TCP. No frame is lost or comes twice, in any class and either
/// way, and neither loop notices; then the connection by QUIC is given up.
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
            // The last frames on the one connection and the first on the other may overtake each other.
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
    // The span that counts as soon, and the time for which TCP is left alone then.
    config.timing.tcp_retry_min = PATIENCE;
    let (mut a, b) = (start(config), start(open()));
    let path = Path::to(port(&b, Via::Tcp)).unwrap();
    let kb = b.key();
    a.net().dial(kb, &[format!("/ip4/127.0.0.1/tcp/{}", path.port), at(&b, Via::Quic)]);
    for downs in 0..2 {
        a.wait("TCP", |a| a.is_up(kb) && via(a) == Some(Via::Tcp));
        path.cut();
        a.wait("its end", |a| a.downs(kb) > downs);
    }
    a.wait("QUIC", |a| a.is_up(kb) && via(a) == Some(Via::Quic));
    // A fixed time, because an event that must not happen cannot be waited for.
    thread::sleep(Duration::from_secs(3));
    a.poll();
    assert_eq!((a.downs(kb), path.taken(), via(&a)), (2, 2, Some(Via::Quic)));
}

/// Both come up, TCP first, and TCP breaks while QUIC is still there: the peers come back to TCP as if it had never been
/// away.
#[test]
fn tcp_that_goes_beside_quic_is_come_back_to() {
    let mut config = open();
    config.timing.tcp_start = Duration::ZERO;
    config.timing.tcp_retry_min = Duration::from_millis(100);
    config.timing.idle = PATIENCE;
    config.timing.quic_idle = PATIENCE;
    let (mut a, mut b) = (start(config.clone()), start(config));
    let (ka, kb) = (a.key(), b.key());
    let (path, gate) = (Path::to(port(&b, Via::Tcp)).unwrap(), Gate::to(port(&b, Via::Quic)).unwrap());
    a.net()
        .dial(kb, &[format!("/ip4/127.0.0.1/tcp/{}", path.port), format!("/ip4/127.0.0.1/udp/{}/quic-v1", gate.port)]);
    a.wait_up(kb);
    b.wait_up(ka);
    gate.open();
    eventually("both", || a.handle().stats().connections == 2 && b.handle().stats().connections == 2);
    assert_eq!((via(&a), via(&b), path.taken()), (Some(Via::Tcp), Some(Via::Tcp), 1));
    path.cut();
    eventually("TCP again", || path.taken() == 2 && (via(&a), via(&b)) == (Some(Via::Tcp), Some(Via::Tcp)));
    a.send(kb, Class::Data, "still here");
    b.wait("a frame", |b| b.texts(ka, Class::Data) == ["still here"]);
}

/// TCP path to another port of this machine, which can be cut.
struct Path {
    port: u16,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Path {
    /// Opens a path; it ends with the process.
    fn to(port: u16) -> io::Result<Path> {
        let listener = TcpListener::bind(local(0))?;
        let (here, ends) = (listener.local_addr()?.port(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let taken = ends.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(local(port)) else { return };
                for (from, into) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                    thread::spawn(move || io::copy(&mut from, &mut into));
                }
                taken.lock().unwrap().extend([near, far]);
            }
        });
        Ok(Path { port: here, ends })
    }

    /// Breaks every connection on the path; the next one passes.
    fn cut(&self) {
        for end in self.ends.lock().unwrap().iter() {
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Returns the number of connections so far.
    fn taken(&self) -> usize {
        self.ends.lock().unwrap().len() / 2
    }
}

/// UDP path to another port of this machine, closed at first: packets before it is opened are lost.
struct Gate {
    port: u16,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    /// Makes a gate; it ends with the process.
    fn to(port: u16) -> io::Result<Gate> {
        let (near, far) = (Arc::new(UdpSocket::bind(local(0))?), Arc::new(UdpSocket::bind(local(0))?));
        let (here, is_open) = (near.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let from = Arc::new(Mutex::new(None));
        let (inwards, caller, gate) = ((near.clone(), far.clone()), from.clone(), is_open.clone());
        thread::spawn(move || {
            let mut bytes = [0; 2000];
            while let Ok((len, by)) = inwards.0.recv_from(&mut bytes) {
                *caller.lock().unwrap() = Some(by);
                if gate.load(Ordering::Relaxed) {
                    let _ = inwards.1.send_to(&bytes[..len], local(port));
                }
            }
        });
        thread::spawn(move || {
            let mut bytes = [0; 2000];
            while let Ok(len) = far.recv(&mut bytes) {
                if let Some(to) = *from.lock().unwrap() {
                    let _ = near.send_to(&bytes[..len], to);
                }
            }
        });
        Ok(Gate { port: here, is_open })
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }
}
