//! A peer that is driven by hand.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::{
    Identity, Multiaddr, Net, NetConfig, NetEvent, NetHandle, NetPort, Refusal, RefusedBy, Transport, Tried, Via,
};
use node::Class;
use overlay::PeerKey;
use tokio::runtime::Runtime;

pub const CLASSES: [Class; 3] = [Class::Control, Class::Data, Class::Bulk];

/// Time limit of all waits: long enough for a loaded machine; no wait takes it unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A network, its runtime, and all its events so far. When it is dropped, it is gone as if killed, without a
/// goodbye.
pub struct Peer {
    net: Option<Net>,
    runtime: Option<Runtime>,
    wake: mpsc::Receiver<()>,
    pub events: Vec<NetEvent>,
    pub identity: Identity,
    /// Transport on which it listens.
    pub via: Via,
}

/// Makes a test of each function: over TCP and over QUIC at once, since most of their time is waiting.
macro_rules! over_both {
    ($($test:ident),* $(,)?) => {
        mod over_both {
            $(#[test] fn $test() { $crate::support::over_each(super::$test) })*
        }
    };
}
pub(crate) use over_both;

/// Runs a test over TCP and over QUIC; a panic shows the transport by the name of its thread.
pub fn over_each(test: fn(Via)) {
    let start = |name: &str, via| thread::Builder::new().name(name.into()).spawn(move || test(via)).expect("a thread");
    let ends = [start("over TCP", Via::Tcp), start("over QUIC", Via::Quic)].map(JoinHandle::join);
    if let Some(panic) = ends.into_iter().find_map(Result::err) {
        std::panic::resume_unwind(panic);
    }
}

/// Returns any free port of loopback.
pub fn anywhere(via: Via) -> Multiaddr {
    let address = match via {
        Via::Tcp => "/ip4/127.0.0.1/tcp/0",
        Via::Quic => "/ip4/127.0.0.1/udp/0/quic-v1",
    };
    address.parse().unwrap()
}

/// Returns settings for tests: any free port of loopback, and short time limits for dead peers.
pub fn config(via: Via) -> NetConfig {
    let mut config = NetConfig::new("test");
    config.listen = vec![anywhere(via)];
    // Handshakes of an unoptimised build take long on a busy machine: two hundred at once, ten seconds.
    config.timing.hello = PATIENCE;
    config.timing.stall = Duration::from_secs(2);
    config.timing.redial_min = Duration::from_millis(20);
    config.timing.redial_max = Duration::from_millis(500);
    config
}

pub fn start(config: NetConfig) -> Peer {
    start_as(Identity::random(), config)
}

pub fn start_as(identity: Identity, config: NetConfig) -> Peer {
    // `RUST_LOG=net=debug` shows the reason for the end of a connection.
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (tx, wake) = mpsc::sync_channel(1);
    let is_quic = config.listen[0].to_string().contains("quic-v1");
    let via = if is_quic { Via::Quic } else { Via::Tcp };
    // Full means that a wake-up waits already.
    let net = Net::start(config, &identity, runtime.handle(), vec![Box::new(move || _ = tx.try_send(()))]).unwrap();
    let mut peer = Peer { net: Some(net), runtime: Some(runtime), wake, events: Vec::new(), identity, via };
    peer.wait("an address", |peer| peer.address().is_some());
    peer
}

impl Peer {
    pub fn key(&self) -> PeerKey {
        self.identity.peer()
    }

    pub fn net(&self) -> NetPort {
        self.net.as_ref().unwrap().port(0)
    }

    pub fn handle(&self) -> NetHandle {
        self.net.as_ref().unwrap().handle().clone()
    }

    /// Returns its attempts, as long as no peer is connected.
    pub fn tried(&self) -> Vec<Tried> {
        self.handle().tried()
    }

    /// Returns the first address at which it listens.
    pub fn address(&self) -> Option<String> {
        self.addresses().first().cloned()
    }

    /// Returns all addresses at which it listens.
    pub fn addresses(&self) -> Vec<String> {
        let told = self.events.iter().rev().find_map(|event| match event {
            NetEvent::Addresses(addresses) => Some(addresses.clone()),
            _ => None,
        });
        told.unwrap_or_default()
    }

    /// Returns its address with its id: other peers join through it.
    pub fn door(&self) -> Multiaddr {
        format!("{}/p2p/{}", self.address().unwrap(), self.identity.peer_id()).parse().unwrap()
    }

    pub fn dial(&mut self, other: &Peer) {
        let address = other.address().unwrap();
        self.net().dial(other.key(), &[address]);
    }

    /// Takes the events since the last time.
    pub fn poll(&mut self) {
        let mut events = Vec::new();
        self.net().drain(&mut events);
        self.events.append(&mut events);
    }

    /// Waits until `done`, driven by wake-ups alone: a missing wake-up fails the test.
    pub fn wait(&mut self, what: &str, done: impl Fn(&Peer) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.poll();
            if done(self) {
                return;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if self.wake.recv_timeout(rest).is_err() {
                panic!("{:?} waits in vain for {what}: {:?}, {:#?}", self.key(), self.summary(), self.handle().stats());
            }
        }
    }

    pub fn wait_up(&mut self, other: PeerKey) {
        self.wait("a peer to come up", |peer| peer.is_up(other));
    }

    pub fn wait_down(&mut self, other: PeerKey) {
        self.wait("a peer to go down", |peer| !peer.is_up(other) && peer.downs(other) > 0);
    }

    /// Returns whether its loop knows the other peer as connected.
    pub fn is_up(&self, other: PeerKey) -> bool {
        let last = self.events.iter().rev().find_map(|event| match event {
            NetEvent::PeerUp(peer) if *peer == other => Some(true),
            NetEvent::PeerDown(peer) if *peer == other => Some(false),
            _ => None,
        });
        last == Some(true)
    }

    pub fn ups(&self, other: PeerKey) -> usize {
        self.events.iter().filter(|event| matches!(event, NetEvent::PeerUp(peer) if *peer == other)).count()
    }

    pub fn downs(&self, other: PeerKey) -> usize {
        self.events.iter().filter(|event| matches!(event, NetEvent::PeerDown(peer) if *peer == other)).count()
    }

    pub fn send(&mut self, to: PeerKey, class: Class, text: &str) {
        self.handle().send(&to, class, Bytes::copy_from_slice(text.as_bytes())).unwrap();
    }

    /// Returns all frames of this peer and class so far.
    pub fn frames(&self, from: PeerKey, class: Class) -> Vec<Bytes> {
        let frames = self.events.iter().filter_map(|event| match event {
            NetEvent::Frames { peer, class: of, frames } if *peer == from && *of == class => Some(frames),
            _ => None,
        });
        frames.flatten().cloned().collect()
    }

    pub fn texts(&self, from: PeerKey, class: Class) -> Vec<String> {
        self.frames(from, class).iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect()
    }

    /// Returns the refused peers, with the refusing side.
    pub fn refusals(&self) -> Vec<(PeerKey, Refusal, RefusedBy)> {
        let refused = self.events.iter().filter_map(|event| match event {
            NetEvent::Refused { peer, reason, by } => Some((*peer, *reason, *by)),
            _ => None,
        });
        refused.collect()
    }

    /// Ends the network with a goodbye.
    pub fn shutdown(mut self) {
        self.net.take().unwrap().shutdown();
    }

    fn summary(&self) -> Vec<String> {
        let short = |event: &NetEvent| match event {
            NetEvent::Frames { peer, class, frames } => format!("{peer:?} {class:?} {}", frames.len()),
            other => format!("{other:?}"),
        };
        self.events.iter().rev().take(20).map(short).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waits for a condition that no event reports.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns two peers that know each other.
pub fn pair(a: NetConfig, b: NetConfig) -> (Peer, Peer) {
    let (mut a, mut b) = (start(a), start(b));
    a.dial(&b);
    b.dial(&a);
    a.wait_up(b.key());
    b.wait_up(a.key());
    (a, b)
}
