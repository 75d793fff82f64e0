//! The greeting on a stream: the hello of the opener, and the answer of the acceptor.
//!
//! ```text
//! opener   u16 length | u16 version | body: network, ring, lanes, durability, instance, purpose, proof   (postcard)
//! acceptor u16 length | u16 version | body: accepted, or refused and why              (postcard)
//! ```
//! The length, the version and [`HelloAnswer::Refused`] with its reasons keep their shape in all versions, so a peer of any
//! version can read the reason of its refusal.

use std::fmt;
use std::io;
use std::time::Duration;

use libp2p::futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use node::Class;
use node::wire::FRAME_VERSION;
use overlay::{PeerKey, RingId};
use serde::{Deserialize, Serialize};

use crate::event::RefusedBy;
use crate::network_key::{Half, NetworkKey};

/// Name that libp2p negotiates. Its number changes with the shape of greetings, because their versions are then unreadable.
pub(crate) const PROTOCOL: &str = "/scatter/1";
/// Version of hello and answer. Raise it with every change of their bytes; the golden files find an unintended change.
pub(crate) const HELLO_VERSION: u8 = 2;
/// Version of all bytes on a stream: of hello and answer, and of the frames behind them.
pub(crate) const VERSION: u16 = u16::from_be_bytes([HELLO_VERSION, FRAME_VERSION]);
/// Upper limit of a network's name, in bytes.
pub(crate) const NETWORK_BYTES_MAX: usize = 64;
/// Upper limit of a hello or an answer, in bytes; checked before the body is read.
const GREETING_BYTES_MAX: usize = 512;
/// Time that a refused opener may take to read the reason.
const LINGER: Duration = Duration::from_secs(1);

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Frames of this class, from the opener.
    Frames(Class),
    /// Only this hello: the opener has joined a ring since its last hello.
    Check,
}

/// Reason for which a peer does not belong to a network. Each is the same for both sides, so refused peers need not ask
/// again soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The peer speaks another version of the protocol.
    Version,
    /// The peer is of a network with another name.
    Network,
    /// The peer is of the network but does not hold its key.
    Key,
    /// The peer belongs to another ring: two networks were founded under one name.
    Ring,
    /// The peer divides its keys among another number of lanes.
    Lanes,
    /// The peer's acknowledgements rest on another durability: on disks, or on memory.
    Durability,
}

/// Returns a version of the greeting and the frames, as text for administrators.
pub(crate) fn version_text(version: u16) -> String {
    match version.to_be_bytes() {
        // Up to the first release the two versions were one.
        [0, old] => format!("{old}"),
        [hello, frames] => format!("{hello}.{frames}"),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Version => "another protocol version: all peers of a network need programs with the same protocol \
                version",
            Refusal::Network => "another network name: all peers of a network need the same --network",
            Refusal::Key => "another network key: all peers of a network need the same --network-key",
            Refusal::Ring => {
                "another ring under the same network name: two networks were founded with --new, and a peer stays in its own"
            }
            Refusal::Lanes => "another number of lanes: all peers of a network need the same --lanes",
            Refusal::Durability => {
                "another durability, sync on one side and memory on the other: all peers of a network need the same --durability"
            }
        })
    }
}

/// The values of one side of a hello, for the administrator of the other side. An acceptor that refuses sends them behind
/// the refusal, where earlier versions do not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Side {
    network: String,
    keyed: bool,
    ring: Option<RingId>,
    lanes: u8,
    durable: bool,
}

/// A refusal with the values of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub reason: Refusal,
    /// This side's value.
    ours: String,
    /// The other side's value, where it is known.
    theirs: Option<String>,
}

impl Refused {
    /// Creates the refusal of this peer by a side that says no more, or the other way round: `version` is the other side's.
    pub(crate) fn of(reason: Refusal, mine: &Membership, version: Option<u16>) -> Refused {
        Refused::between(reason, mine, version, None)
    }

    fn between(reason: Refusal, mine: &Membership, version: Option<u16>, theirs: Option<&Side>) -> Refused {
        let theirs = match reason {
            Refusal::Version => version.map(version_text),
            reason => theirs.map(|side| side.value(reason)),
        };
        let ours = if reason == Refusal::Version { version_text(VERSION) } else { mine.side().value(reason) };
        Refused { reason, ours, theirs }
    }
}

impl Side {
    /// Returns the compared value, for administrators: names come from outside, and are shown with escapes.
    fn value(&self, reason: Refusal) -> String {
        match reason {
            Refusal::Version => String::new(),
            Refusal::Network => format!("{:?}", self.network),
            Refusal::Key => if self.keyed { "a key" } else { "none" }.into(),
            Refusal::Ring => self.ring.map_or("none".into(), |ring| ring.to_string()),
            Refusal::Lanes => self.lanes.to_string(),
            Refusal::Durability => if self.durable { "sync" } else { "memory" }.into(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { reason, ours, theirs } = self;
        match theirs {
            Some(theirs) if theirs == ours => write!(f, "{reason} ({ours} here, another there)"),
            Some(theirs) => write!(f, "{reason} ({ours} here, {theirs} there)"),
            None => write!(f, "{reason} ({ours} here)"),
        }
    }
}

/// Reason for which a stream did not come about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    /// This side refused the other side.
    #[error("refused: {0}")]
    RefusedByUs(Refused),
    /// The other side refused this side.
    #[error("refused by the other peer: {0}")]
    RefusedByThem(Refused),
    /// One side refused the other for its version: holds the refusing side, and the other side's version.
    #[error("another protocol version, {}", version_text(*.1))]
    Version(RefusedBy, u16),
    /// The received bytes are not a greeting.
    #[error("not a greeting")]
    Garbage,
    /// The stream broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The values that both sides compare.
#[derive(Clone)]
pub(crate) struct Membership {
    pub(crate) network: String,
    pub(crate) key: Option<NetworkKey>,
    pub(crate) ring: Option<RingId>,
    pub(crate) lanes: u8,
    /// Whether acknowledgements rest on disks.
    pub(crate) durable: bool,
    /// Sent, but not compared: see [`Instance`].
    pub(crate) instance: Instance,
}

/// A start of a peer, drawn at random. A peer that comes with another instance has been restarted. Then all connections of
/// its last start are dead, even if no system closed them: a host that lost its power closes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instance(pub(crate) u64);

/// The result of a hello that was accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AcceptedHello {
    pub(crate) purpose: Purpose,
    /// The other side's instance.
    pub(crate) instance: Instance,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    network: String,
    ring: Option<RingId>,
    lanes: u8,
    durable: bool,
    instance: Instance,
    purpose: Purpose,
    proof: Option<[u8; 32]>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum HelloAnswer {
    Accepted { ring: Option<RingId>, instance: Instance, proof: Option<[u8; 32]> },
    Refused(Refusal),
}

impl Membership {
    fn proof(&self, half: Half, from: &PeerKey, to: &PeerKey) -> Option<[u8; 32]> {
        self.key.as_ref().map(|key| *key.proof(half, &self.network, from, to).as_bytes())
    }

    fn check_proof(&self, half: Half, from: &PeerKey, to: &PeerKey, shown: Option<[u8; 32]>) -> Result<(), Refusal> {
        match (&self.key, shown) {
            (None, None) => Ok(()),
            // `blake3::Hash` compares in constant time.
            (Some(key), Some(shown)) if key.proof(half, &self.network, from, to) == shown => Ok(()),
            _ => Err(Refusal::Key),
        }
    }

    fn side(&self) -> Side {
        let Membership { network, key, ring, lanes, durable, .. } = self;
        Side { network: network.clone(), keyed: key.is_some(), ring: *ring, lanes: *lanes, durable: *durable }
    }

    fn check_ring(&self, theirs: Option<RingId>) -> Result<(), Refusal> {
        match (self.ring, theirs) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(Refusal::Ring),
            _ => Ok(()),
        }
    }

    fn check(&self, hello: &Hello, from: &PeerKey, to: &PeerKey) -> Result<(), Refusal> {
        if hello.network != self.network {
            return Err(Refusal::Network);
        }
        self.check_proof(Half::Hello, from, to, hello.proof)?;
        self.check_ring(hello.ring)?;
        if hello.lanes != self.lanes {
            return Err(Refusal::Lanes);
        }
        if hello.durable == self.durable { Ok(()) } else { Err(Refusal::Durability) }
    }
}

/// Sends the hello on a stream just opened and waits for the answer.
pub(crate) async fn open<S>(
    stream: &mut S,
    mine: &Membership,
    me: &PeerKey,
    peer: &PeerKey,
    purpose: Purpose,
) -> Result<AcceptedHello, GreetingError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let proof = mine.proof(Half::Hello, me, peer);
    let Membership { network, ring, lanes, durable, instance, .. } = mine.clone();
    write(stream, &Hello { network, ring, lanes, durable, instance, purpose, proof }).await?;
    let (version, body) = read(stream).await?;
    let (answer, rest) = match postcard::take_from_bytes(&body) {
        Ok(read) => read,
        // Of another version only a refusal can be read, and only with a reason that this version knows.
        Err(_) if version != VERSION => return Err(GreetingError::Version(RefusedBy::Them, version)),
        Err(_) => return Err(GreetingError::Garbage),
    };
    match answer {
        HelloAnswer::Refused(Refusal::Version) => Err(GreetingError::Version(RefusedBy::Them, version)),
        HelloAnswer::Refused(reason) => {
            let theirs = parse::<Side>(rest).ok();
            Err(GreetingError::RefusedByThem(Refused::between(reason, mine, None, theirs.as_ref())))
        }
        HelloAnswer::Accepted { .. } if version != VERSION => Err(GreetingError::Version(RefusedBy::Us, version)),
        HelloAnswer::Accepted { ring, instance, proof } => {
            // It has accepted all other values of ours.
            let theirs = Side { keyed: proof.is_some(), ring, ..mine.side() };
            let refused = |reason| Refused::between(reason, mine, None, Some(&theirs));
            mine.check_proof(Half::Answer, peer, me, proof)
                .and_then(|()| mine.check_ring(ring))
                .map(|()| AcceptedHello { purpose, instance })
                .map_err(|reason| GreetingError::RefusedByUs(refused(reason)))
        }
    }
}

/// Receives the hello on a stream that the other side opened, and answers it.
pub(crate) async fn accept<S>(
    stream: &mut S,
    mine: &Membership,
    me: &PeerKey,
    peer: &PeerKey,
) -> Result<AcceptedHello, GreetingError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (version, body) = read(stream).await?;
    if version != VERSION {
        let _ = refuse(stream, mine, Refused::of(Refusal::Version, mine, Some(version))).await;
        return Err(GreetingError::Version(RefusedBy::Us, version));
    }
    let hello: Hello = parse(&body)?;
    match mine.check(&hello, peer, me) {
        Err(reason) => {
            let Hello { network, ring, lanes, durable, proof, .. } = hello;
            let theirs = Side { network, keyed: proof.is_some(), ring, lanes, durable };
            refuse(stream, mine, Refused::between(reason, mine, Some(version), Some(&theirs))).await
        }
        Ok(()) => {
            write(
                stream,
                &HelloAnswer::Accepted {
                    ring: mine.ring,
                    instance: mine.instance,
                    proof: mine.proof(Half::Answer, me, peer),
                },
            )
            .await?;
            Ok(AcceptedHello { purpose: hello.purpose, instance: hello.instance })
        }
    }
}

async fn refuse<S>(stream: &mut S, mine: &Membership, refused: Refused) -> Result<AcceptedHello, GreetingError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The other side may not receive the answer any more; the refusal stands.
    let _ = write(stream, &(HelloAnswer::Refused(refused.reason), mine.side())).await;
    Err(GreetingError::RefusedByUs(refused))
}

/// Gives a refused opener the time to read the reason: a stream that is dropped may be reset with the answer unread.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    if stream.close().await.is_ok() {
        // The opener closes its side when it has read.
        let _ = tokio::time::timeout(LINGER, stream.read(&mut [0; 1])).await;
    }
}

pub(crate) async fn write<S: AsyncWrite + Unpin>(stream: &mut S, body: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 2];
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    let mut bytes = postcard::to_extend(body, bytes).map_err(io::Error::other)?;
    let len = (bytes.len() - 2) as u16;
    bytes[..2].copy_from_slice(&len.to_le_bytes());
    stream.write_all(&bytes).await?;
    stream.flush().await
}

pub(crate) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<(u16, Vec<u8>), GreetingError> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [l0, l1, v0, v1] = head;
    let len = usize::from(u16::from_le_bytes([l0, l1]));
    if !(2..=GREETING_BYTES_MAX).contains(&len) {
        return Err(GreetingError::Garbage);
    }
    let mut body = vec![0; len - 2];
    stream.read_exact(&mut body).await?;
    Ok((u16::from_le_bytes([v0, v1]), body))
}

/// Parses a body. Bytes behind the known fields are left to later versions.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, GreetingError> {
    postcard::take_from_bytes(body).map(|(value, _)| value).map_err(|_| GreetingError::Garbage)
}

/// Returns hellos of every kind, as seeds of the fuzzer.
pub(crate) fn examples() -> Vec<Hello> {
    let hello = |purpose, proof, ring| Hello {
        network: "scatter".into(),
        ring,
        lanes: 1,
        durable: true,
        instance: Instance(7),
        purpose,
        proof,
    };
    vec![
        hello(Purpose::Frames(Class::Data), None, None),
        hello(Purpose::Frames(Class::Bulk), Some([5; 32]), Some(RingId(9))),
        hello(Purpose::Check, None, Some(RingId(u128::MAX))),
    ]
}

/// Returns answers of every kind, as seeds of the fuzzer.
pub(crate) fn example_answers() -> Vec<HelloAnswer> {
    let refusals =
        [Refusal::Version, Refusal::Network, Refusal::Key, Refusal::Ring, Refusal::Lanes, Refusal::Durability];
    let refusals = refusals.map(HelloAnswer::Refused);
    let accepted = HelloAnswer::Accepted { ring: Some(RingId(9)), instance: Instance(u64::MAX), proof: Some([5; 32]) };
    refusals.into_iter().chain([accepted]).collect()
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use libp2p::futures::executor::block_on;
    use libp2p::futures::join;
    use proptest::prelude::*;

    use super::*;
    use crate::stream::pipe::pipe;

    const A: PeerKey = PeerKey([1; 32]);
    const B: PeerKey = PeerKey([2; 32]);

    fn member(network: &str, key: Option<u8>, ring: Option<u128>) -> Membership {
        Membership {
            lanes: 1,
            durable: true,
            network: network.into(),
            key: key.map(|byte| NetworkKey::from_bytes([byte; 32])),
            ring: ring.map(RingId),
            instance: Instance(7),
        }
    }

    type Greeted = (Result<AcceptedHello, String>, Result<AcceptedHello, String>);

    /// Runs a greeting: A opens a stream to B.
    fn greet(a: &Membership, b: &Membership) -> Greeted {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut one, mut two) = pipe(4096, None);
            let opener = async {
                let result = open(&mut one, a, &A, &B, Purpose::Frames(Class::Data)).await;
                drop(one);
                result
            };
            let (opened, accepted) = join!(opener, accept(&mut two, b, &B, &A));
            (opened.map_err(|error| error.to_string()), accepted.map_err(|error| error.to_string()))
        })
    }

    fn both_refuse(outcome: &Greeted, reason: Refusal, opener: &str, acceptor: &str) {
        assert_eq!(outcome.0, Err(format!("refused by the other peer: {reason} ({opener} here, {acceptor} there)")));
        assert_eq!(outcome.1, Err(format!("refused: {reason} ({acceptor} here, {opener} there)")));
    }

    #[test]
    fn members_of_one_network_meet() {
        for (a, b) in [(None, None), (Some(1), None), (None, Some(1)), (Some(1), Some(1))] {
            for key in [None, Some(5)] {
                let outcome = greet(&member("net", key, a), &member("net", key, b));
                let agreed = AcceptedHello { purpose: Purpose::Frames(Class::Data), instance: Instance(7) };
                assert_eq!(outcome, (Ok(agreed), Ok(agreed)));
            }
        }
    }

    #[test]
    fn strangers_are_told_why() {
        let us = member("net", None, Some(1));
        let rings = [1, 2].map(|ring| RingId(ring).to_string());
        both_refuse(&greet(&us, &member("other", None, Some(1))), Refusal::Network, "\"net\"", "\"other\"");
        both_refuse(&greet(&us, &member("net", None, Some(2))), Refusal::Ring, &rings[0], &rings[1]);
        both_refuse(&greet(&us, &member("net", Some(1), Some(1))), Refusal::Key, "none", "a key");
        both_refuse(&greet(&us, &Membership { lanes: 2, ..us.clone() }), Refusal::Lanes, "1", "2");
        let memory = Membership { durable: false, ..us.clone() };
        both_refuse(&greet(&us, &memory), Refusal::Durability, "sync", "memory");
        both_refuse(&greet(&memory, &us), Refusal::Durability, "memory", "sync");
        let outcome = greet(&member("net", Some(2), None), &member("net", Some(1), None));
        assert_eq!(outcome.0, Err(format!("refused by the other peer: {} (a key here, another there)", Refusal::Key)));
    }

    #[test]
    fn a_refusal_of_an_earlier_version_names_our_side() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut one, mut two) = pipe(4096, None);
            let mine = member("net", None, None);
            let acceptor = async {
                read(&mut two).await.unwrap();
                write(&mut two, &HelloAnswer::Refused(Refusal::Network)).await.unwrap();
            };
            let (opened, ()) = join!(open(&mut one, &mine, &A, &B, Purpose::Check), acceptor);
            let reason = "another network name: all peers of a network need the same --network";
            assert_eq!(opened.unwrap_err().to_string(), format!("refused by the other peer: {reason} (\"net\" here)"));
        });
    }

    #[test]
    fn an_acceptor_without_the_key_learns_nothing_more() {
        // B accepts any opener but cannot prove that it holds the key: A reports that and sends no frame.
        let outcome = greet(&member("net", Some(1), None), &Membership { key: None, ..member("net", None, None) });
        assert!(outcome.0.unwrap_err().contains("key"));
    }

    #[test]
    fn another_version_is_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (mut one, mut two) = pipe(4096, None);
            one.write_all(&[5, 0, 9, 9, 1, 2, 3]).await.unwrap();
            let mine = member("net", None, None);
            let opener = async {
                let (version, body) = read(&mut one).await.unwrap();
                drop(one);
                (version, body)
            };
            let ((version, body), accepted) = join!(opener, accept(&mut two, &mine, &B, &A));
            assert_eq!(version, VERSION);
            assert_eq!(parse::<HelloAnswer>(&body).unwrap(), HelloAnswer::Refused(Refusal::Version));
            assert!(matches!(accepted, Err(GreetingError::Version(RefusedBy::Us, theirs)) if theirs == 0x0909));
        });
    }

    #[test]
    fn another_version_is_named_to_who_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        // As a peer of another version refuses: for its version, or for a reason that this version does not know.
        for reason in [0, 99] {
            let (mut one, mut two) = pipe(4096, None);
            let refused = runtime.block_on(async {
                let mine = member("net", None, None);
                let acceptor = async {
                    read(&mut two).await.unwrap();
                    two.write_all(&[4, 0, 1, 0, 1, reason]).await.unwrap();
                };
                join!(open(&mut one, &mine, &A, &B, Purpose::Check), acceptor).0
            });
            assert!(matches!(refused, Err(GreetingError::Version(RefusedBy::Them, 1))), "{refused:?}");
        }
        assert_eq!([1, VERSION].map(version_text), ["1".to_owned(), format!("{HELLO_VERSION}.{FRAME_VERSION}")]);
    }

    /// Bytes to read, and a sink to write to.
    struct Canned<'a>(&'a [u8]);

    impl AsyncRead for Canned<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(io::Read::read(&mut self.0, buf))
        }
    }

    impl AsyncWrite for Canned<'_> {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..700), plausible: bool) {
            if plausible && bytes.len() >= 4 {
                let len = (bytes.len() as u16 - 2).to_le_bytes();
                bytes[..4].copy_from_slice(&[len[0], len[1], 1, 0]);
            }
            let mine = member("net", Some(1), Some(1));
            prop_assert!(block_on(accept(&mut Canned(&bytes), &mine, &B, &A)).is_err());
            prop_assert!(block_on(open(&mut Canned(&bytes), &mine, &A, &B, Purpose::Check)).is_err());
        }
    }
}
