//! Peers that break the rules. The victim never panics, its memory does not grow, and other peers are served
//! meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt, SubstreamBox};
use libp2p::core::transport::{DialOpts, PortUse, Transport as _};
use libp2p::core::{Endpoint, upgrade};
use libp2p::futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::{noise, tcp, yamux};
use net::{FRAME_BYTES_MAX, NetConfig, NetEvent, Refusal, RefusedBy, Via, peer_key_of, quic};
use node::Class;
use node::wire::FRAME_VERSION;
use overlay::PeerKey;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::support::*;

/// Settings that give up on silent connections soon.
pub fn impatient(via: Via) -> NetConfig {
    let mut config = config(via);
    config.timing.hello = Duration::from_millis(600);
    config.timing.idle = Duration::from_millis(300);
    config.timing.ping_interval = Duration::from_millis(200);
    config.timing.ping_timeout = Duration::from_millis(300);
    config
}

/// Checks that the victim still takes part in the network.
pub fn still_serves(victim: &mut Peer) {
    let mut friend = start(NetConfig { join: vec![victim.door()], ..config(victim.via) });
    friend.wait_up(victim.key());
    victim.wait_up(friend.key());
    let key = friend.key();
    friend.send(victim.key(), Class::Data, "are you there?");
    victim.wait("a frame", |victim| victim.texts(key, Class::Data) == ["are you there?"]);
    drop(friend);
    victim.wait_down(key);
}

pub fn nobody_is_left(victim: &Peer) {
    eventually("the connections are closed", || victim.handle().stats().connections == 0);
    eventually("nobody is remembered", || victim.handle().stats().peers.is_empty());
}

/// Returns bytes without a pattern, the same in every run.
pub fn noise_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn socket(victim: &Peer) -> SocketAddr {
    let address = victim.address().unwrap();
    let port = address.rsplit('/').next().unwrap();
    SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()))
}

#[test]
fn noise_on_the_port_is_hung_up_on() {
    let mut victim = start(impatient(Via::Tcp));
    for seed in 0..50 {
        let mut stream = TcpStream::connect(socket(&victim)).unwrap();
        // The other side may hang up at any byte.
        let mut bytes = noise_bytes(seed, 20_000);
        if seed % 2 == 0 {
            bytes.splice(0..0, *b"\x13/multistream/1.0.0\n\x07/noise\n");
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
        let _ = stream.read(&mut [0; 100]);
    }
    still_serves(&mut victim);
    nobody_is_left(&victim);
}

/// More silent connections than may shake hands at once; each is hung up on in time, and then there is room
/// again.
#[test]
fn connections_that_say_nothing_do_not_stay() {
    let mut victim = start(impatient(Via::Tcp));
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(socket(&victim)).unwrap()).collect();
    let began = Instant::now();
    still_serves(&mut victim);
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Bytes before the hang-up are of no interest.
        while stream.read(&mut [0; 1000]).is_ok_and(|n| n > 0) {}
    }
    assert!(began.elapsed() < PATIENCE);
    nobody_is_left(&victim);
}

/// Settings that take all that the other side sends.
pub fn generous() -> quic::QuicSettings {
    quic::QuicSettings {
        idle: Duration::from_secs(5),
        keep_alive: Duration::from_millis(500),
        streams_max: 100,
        stream_bytes_max: 8 << 20,
        connection_bytes_max: 64 << 20,
    }
}

/// Connection by hand: it shakes hands like a peer, and then does as the test says.
struct Raw {
    runtime: Runtime,
    open: mpsc::Sender<tokio::sync::oneshot::Sender<SubstreamBox>>,
    theirs: mpsc::Receiver<SubstreamBox>,
    /// Streams of the other side, kept open.
    held: Vec<SubstreamBox>,
    key: PeerKey,
}

impl Raw {
    fn connect(victim: &Peer) -> Raw {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let keypair = libp2p::identity::Keypair::generate_ed25519();
        let key = peer_key_of(&keypair.public().to_peer_id()).unwrap();
        let (open, mut requests) = mpsc::channel::<tokio::sync::oneshot::Sender<SubstreamBox>>(200);
        let (tx, theirs) = mpsc::channel(200);
        let address = victim.address().unwrap().parse().unwrap();
        let via = victim.via;
        let muxer = runtime.block_on(async move {
            let mut transport = match via {
                Via::Tcp => tcp::tokio::Transport::new(tcp::Config::new())
                    .upgrade(upgrade::Version::V1)
                    .authenticate(noise::Config::new(&keypair).unwrap())
                    .multiplex(yamux::Config::default())
                    .boxed(),
                Via::Quic => quic::QuicTransport::new(&keypair, &generous())
                    .unwrap()
                    .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)))
                    .boxed(),
            };
            let options = DialOpts { role: Endpoint::Dialer, port_use: PortUse::New };
            transport.dial(address, options).unwrap().await.unwrap().1
        });
        runtime.spawn(async move {
            let mut muxer: StreamMuxerBox = muxer;
            let mut waiting = None;
            // Until the connection breaks.
            let _: Result<(), std::io::Error> = std::future::poll_fn(|cx| {
                loop {
                    if let Poll::Ready(Err(error)) = muxer.poll_unpin(cx) {
                        return Poll::Ready(Err(error));
                    }
                    if let Poll::Ready(stream) = muxer.poll_inbound_unpin(cx) {
                        let _ = tx.try_send(stream?);
                        continue;
                    }
                    if waiting.is_none()
                        && let Poll::Ready(Some(request)) = requests.poll_recv(cx)
                    {
                        waiting = Some(request);
                    }
                    if waiting.is_some()
                        && let Poll::Ready(stream) = muxer.poll_outbound_unpin(cx)
                    {
                        let stream = stream?;
                        if let Some(request) = waiting.take() {
                            let _ = request.send(stream);
                        }
                        continue;
                    }
                    return Poll::Pending;
                }
            })
            .await;
        });
        Raw { runtime, open, theirs, held: Vec::new(), key }
    }

    /// Opens a stream and sends the bytes behind `/scatter/1`.
    fn say(&self, bytes: &[u8]) -> SubstreamBox {
        self.try_say(bytes).unwrap()
    }

    /// Does the same; `None` where the connection is gone.
    fn try_say(&self, bytes: &[u8]) -> Option<SubstreamBox> {
        self.runtime.block_on(async {
            let (tx, rx) = tokio::sync::oneshot::channel();
            self.open.send(tx).await.ok()?;
            let mut stream = rx.await.ok()?;
            let _ = stream.write_all(b"\x13/multistream/1.0.0\n\x0b/scatter/1\n").await;
            let _ = stream.write_all(bytes).await;
            let _ = stream.flush().await;
            Some(stream)
        })
    }

    /// Sends more on a stream. The tests check whether the victim still listens.
    fn say_on(&self, stream: &mut SubstreamBox, bytes: &[u8]) {
        self.runtime.block_on(async {
            let _ = stream.write_all(bytes).await;
            let _ = stream.flush().await;
        });
    }

    /// Reads the answer to a hello.
    fn hear(&self, stream: &mut SubstreamBox) -> Vec<u8> {
        self.runtime.block_on(async {
            let mut protocol = [0; 20 + 12];
            stream.read_exact(&mut protocol).await.unwrap();
            let mut len = [0; 2];
            stream.read_exact(&mut len).await.unwrap();
            let mut answer = vec![0; usize::from(u16::from_le_bytes(len))];
            stream.read_exact(&mut answer).await.unwrap();
            answer
        })
    }

    /// Accepts the stream that the victim opens for its control frames, reads its hello and accepts that.
    fn accept_control(&mut self) -> SubstreamBox {
        let (theirs, held) = (&mut self.theirs, &mut self.held);
        self.runtime.block_on(async {
            loop {
                let mut stream = theirs.recv().await.unwrap();
                let mut asked = [0; 20];
                stream.read_exact(&mut asked).await.unwrap();
                let mut len = [0; 1];
                stream.read_exact(&mut len).await.unwrap();
                let mut protocol = vec![0; usize::from(len[0])];
                stream.read_exact(&mut protocol).await.unwrap();
                if protocol != b"/scatter/1\n" {
                    held.push(stream);
                    continue;
                }
                stream.write_all(b"\x13/multistream/1.0.0\n\x0b/scatter/1\n").await.unwrap();
                let mut len = [0; 2];
                stream.read_exact(&mut len).await.unwrap();
                let mut heard = vec![0; usize::from(u16::from_le_bytes(len))];
                stream.read_exact(&mut heard).await.unwrap();
                stream.write_all(&[6, 0, VERSION[0], VERSION[1], 0, 0, 0, 0]).await.unwrap();
                stream.flush().await.unwrap();
                if heard.ends_with(&[0, Class::Control as u8, 0]) {
                    return stream;
                }
                held.push(stream);
            }
        })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        std::mem::replace(&mut self.runtime, other).shutdown_background();
    }
}

/// Version of hellos, behind that of frames.
const VERSION: [u8; 2] = [FRAME_VERSION, 2];

/// Returns a hello of the tests' network, for this class: an open network, no ring yet, one lane, on disk,
/// instance 0.
fn hello(class: Class) -> Vec<u8> {
    let mut body = b"\x04test\0\x01\x01\0\0".to_vec();
    body.extend([class as u8, 0]);
    let mut hello = (body.len() as u16 + 2).to_le_bytes().to_vec();
    hello.extend(VERSION);
    hello.extend(body);
    hello
}

fn a_hello_by_hand_is_accepted_and_frames_follow(via: Via) {
    let mut victim = start(impatient(via));
    let raw = Raw::connect(&victim);
    let mut stream = raw.say(&hello(Class::Data));
    // The version, accepted, no ring, any instance, no proof.
    let answer = raw.hear(&mut stream);
    assert_eq!((&answer[..2], &answer[2..4], answer.last()), (&VERSION[..], &[0, 0][..], Some(&0)));
    raw.say_on(&mut stream, b"\x02\0\0\0hi\0\0\0\0");
    victim.wait("frames", |victim| victim.texts(raw.key, Class::Data) == ["hi", ""]);
    assert_eq!(victim.ups(raw.key), 1);
    // The test answers no ping, nor any hello.
    victim.wait_down(raw.key);
    nobody_is_left(&victim);
    still_serves(&mut victim);
}

fn a_hello_of_another_version_is_answered_with_a_refusal(via: Via) {
    let mut victim = start(impatient(via));
    let raw = Raw::connect(&victim);
    let mut stream = raw.say(&[6, 0, 77, 0, 1, 2, 3, 4]);
    // Behind the reason: its network's name, no key, no ring, one lane, durable.
    let side = [&[4][..], b"test", &[0, 0, 1, 1]].concat();
    assert_eq!(raw.hear(&mut stream), [&VERSION[..], &[1, Refusal::Version as u8], &side].concat());
    victim.wait("a refusal", |victim| victim.refusals() == [(raw.key, Refusal::Version, RefusedBy::Us)]);
    nobody_is_left(&victim);
    assert_eq!(victim.ups(raw.key), 0);
}

fn hellos_that_are_none_are_counted_and_hung_up_on(via: Via) {
    let mut victim = start(impatient(via));
    let greeting = |length: [u8; 2], body: &[u8]| [&length[..], &VERSION, body].concat();
    let wrong =
        [greeting([0xff, 0xff], &[]), greeting([0, 0], &[]), greeting([6, 0], &[0xff; 4]), noise_bytes(1, 1000)];
    for (i, bytes) in wrong.into_iter().enumerate() {
        let raw = Raw::connect(&victim);
        let _stream = raw.say(&bytes);
        // The last one happens to be of another version, or of a length that is too long.
        eventually("it is counted", || {
            let stats = victim.handle().stats();
            stats.violations + stats.refused[Refusal::Version as usize] > i as u64
        });
        victim.poll();
        assert_eq!(victim.ups(raw.key), 0);
    }
    nobody_is_left(&victim);
    still_serves(&mut victim);
}

fn half_a_hello_is_not_waited_for(via: Via) {
    let mut victim = start(impatient(via));
    let raw = Raw::connect(&victim);
    let _stream = raw.say(&hello(Class::Data)[..7]);
    nobody_is_left(&victim);
    victim.poll();
    assert_eq!(victim.ups(raw.key), 0);
}

fn a_frame_too_long_ends_the_connection(via: Via) {
    let mut victim = start(config(via));
    let raw = Raw::connect(&victim);
    let mut stream = raw.say(&hello(Class::Bulk));
    victim.wait_up(raw.key);
    raw.say_on(&mut stream, b"\x02\0\0\0hi");
    raw.say_on(&mut stream, &(FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
    victim.wait_down(raw.key);
    assert_eq!(victim.texts(raw.key, Class::Bulk), ["hi"]);
    assert_eq!(victim.handle().stats().violations, 1);
    still_serves(&mut victim);
}

fn noise_in_place_of_frames_does_no_harm(via: Via) {
    let mut victim = start(config(via));
    for seed in 0..20 {
        let raw = Raw::connect(&victim);
        let mut stream = raw.say(&hello(Class::Control));
        victim.wait_up(raw.key);
        raw.say_on(&mut stream, &noise_bytes(seed, 50_000));
        drop(stream);
        drop(raw);
    }
    nobody_is_left(&victim);
    still_serves(&mut victim);
}

/// Announces a long frame, sends a little of it, and waits: the victim holds only the bytes that came.
fn half_a_frame_holds_up_nobody(via: Via) {
    let mut victim = start(config(via));
    let raw = Raw::connect(&victim);
    let mut stream = raw.say(&hello(Class::Data));
    victim.wait_up(raw.key);
    raw.say_on(&mut stream, &(FRAME_BYTES_MAX as u32).to_le_bytes());
    raw.say_on(&mut stream, b"and then nothing");
    still_serves(&mut victim);
    let key = raw.key;
    drop(raw);
    victim.wait_down(key);
    assert_eq!(victim.handle().stats().violations, 0, "so it also looks when a process dies");
}

/// Each peer has one stream of each class. A peer that opens 64 of them is no peer of this network.
fn many_streams_at_once_end_the_connection(via: Via) {
    let mut victim = start(config(via));
    let raw = Raw::connect(&victim);
    let streams: Vec<_> = (0..64).map(|_| raw.try_say(&hello(Class::Data))).collect();
    nobody_is_left(&victim);
    drop(streams);
    still_serves(&mut victim);
}

fn more_confirmed_than_sent_is_a_violation(via: Via) {
    let mut victim = start(config(via));
    let mut raw = Raw::connect(&victim);
    let mut stream = raw.accept_control();
    victim.wait_up(raw.key);
    raw.say_on(&mut stream, &1000u32.to_le_bytes());
    victim.wait_down(raw.key);
    assert_eq!(victim.handle().stats().violations, 1);
    still_serves(&mut victim);
}

/// Takes frames and confirms none: a window of them passes, then the queue fills, then the connection ends.
fn frames_never_confirmed_end_the_connection(via: Via) {
    let mut victim = start(config(via));
    let mut raw = Raw::connect(&victim);
    let mut stream = raw.accept_control();
    victim.wait_up(raw.key);
    let reading = raw.runtime.spawn(async move {
        let (mut bytes, mut read) = (vec![0; 1 << 16], 0);
        while let Ok(n @ 1..) = stream.read(&mut bytes).await {
            read += n;
        }
        read
    });
    while !victim.events.iter().any(|event| matches!(event, NetEvent::PeerDown(_))) {
        let _ = victim.handle().send(&raw.key, Class::Control, vec![0; 10_000].into());
        victim.poll();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(victim.handle().stats().stalled, 1);
    let read = raw.runtime.block_on(reading).unwrap();
    assert!(read < FRAME_BYTES_MAX * 5 / 4, "{read} bytes came through a window of 1 MiB");
    still_serves(&mut victim);
}

/// Another program on libp2p, which does not know this protocol.
fn a_peer_of_another_protocol_is_refused_and_left_alone(via: Via) {
    let mut victim = start(config(via));
    let mut raw = Raw::connect(&victim);
    let theirs = &mut raw.theirs;
    raw.runtime.block_on(async {
        // The victim's streams for identify, ping and three classes: each is refused. The victim may hang up at
        // the first refusal.
        let mut streams = Vec::new();
        while streams.len() < 5 {
            let Some(mut stream) = theirs.recv().await else { break };
            let told = stream.write_all(b"\x13/multistream/1.0.0\n\x03na\n").await.is_ok();
            let told = told && stream.flush().await.is_ok();
            streams.push(stream);
            if !told {
                break;
            }
        }
        assert!(!streams.is_empty(), "it opens none");
    });
    victim.wait("a refusal", |victim| victim.refusals() == [(raw.key, Refusal::Version, RefusedBy::Them)]);
    nobody_is_left(&victim);
}

over_both! {
    a_hello_by_hand_is_accepted_and_frames_follow,
    a_hello_of_another_version_is_answered_with_a_refusal,
    hellos_that_are_none_are_counted_and_hung_up_on,
    half_a_hello_is_not_waited_for,
    a_frame_too_long_ends_the_connection,
    noise_in_place_of_frames_does_no_harm,
    half_a_frame_holds_up_nobody,
    many_streams_at_once_end_the_connection,
    more_confirmed_than_sent_is_a_violation,
    frames_never_confirmed_end_the_connection,
    a_peer_of_another_protocol_is_refused_and_left_alone,
}
