//! The bytes of a stream before and around frames.

use golden::{Format, Golden, examples};
use libp2p::futures::executor::block_on;

use crate::identity::{IDENTITY_VERSION, Identity};
use crate::stream::frame::{FrameDecoder, MOVED, prefix};
use crate::stream::hello::{HELLO_VERSION, Hello, HelloAnswer, PROTOCOL, VERSION, parse, read, write};
use crate::stream::pipe::pipe;

const HELLOS: Format = Format {
    version: HELLO_VERSION as u64,
    constant: "HELLO_VERSION in peer/net/src/stream/hello.rs",
    package: "net --lib",
};
const IDENTITIES: Format = Format {
    version: IDENTITY_VERSION as u64,
    constant: "IDENTITY_VERSION in peer/net/src/identity.rs",
    package: "net --lib",
};

fn body<T: serde::Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("it can be written")
}

#[test]
fn golden_hellos() {
    let mut hellos = Golden::new(env!("CARGO_MANIFEST_DIR"), "hellos", HELLOS);
    hellos.add_all(body::<Hello>);
    hellos.add("protocol", PROTOCOL.as_bytes());
    hellos.check();
    for (name, hello) in examples::<Hello>().values {
        assert_eq!(parse::<Hello>(hellos.bytes(&name)).ok(), Some(hello), "{name}");
    }
}

#[test]
fn golden_answers() {
    let mut answers = Golden::new(env!("CARGO_MANIFEST_DIR"), "answers", HELLOS);
    answers.add_all(body::<HelloAnswer>);
    answers.check();
    for (name, answer) in examples::<HelloAnswer>().values {
        assert_eq!(parse::<HelloAnswer>(answers.bytes(&name)).ok(), Some(answer), "{name}");
    }
}

/// Around greetings and frames: the bytes before them, in every version.
#[test]
fn golden_stream() {
    let mut golden = Golden::new(env!("CARGO_MANIFEST_DIR"), "stream", HELLOS);
    golden.add("prefix of a frame of 300 bytes", &prefix(&[0; 300]));
    golden.add("moved", &MOVED.to_le_bytes());
    golden.check();
    let mut decoder = FrameDecoder::default();
    decoder.extend(golden.bytes("prefix of a frame of 300 bytes"));
    decoder.extend(&[5; 300]);
    assert_eq!(decoder.next().map(|frame| frame.map(|frame| frame.len())), Ok(Some(300)));
    // The head of a greeting changes only with the versions in it.
    let (mut one, mut two) = pipe(4096, None);
    let whole = block_on(async {
        write(&mut one, &7u8).await.unwrap();
        let mut head = [0; 5];
        libp2p::futures::AsyncReadExt::read_exact(&mut two, &mut head).await.unwrap();
        head
    });
    assert_eq!((&whole[..2], &whole[2..4], whole[4]), (&[3, 0][..], &VERSION.to_le_bytes()[..], 7));
    let (mut one, mut two) = pipe(4096, None);
    let understood = block_on(async {
        libp2p::futures::AsyncWriteExt::write_all(&mut one, &whole).await.unwrap();
        read(&mut two).await.unwrap()
    });
    assert_eq!(understood, (VERSION, vec![7]));
}

#[test]
fn golden_identity() {
    let mut golden = Golden::new(env!("CARGO_MANIFEST_DIR"), "identity", IDENTITIES);
    let keypair = libp2p::identity::Keypair::ed25519_from_bytes([7; 32]).expect("it is a key");
    golden.add("identity of the seed 7", &keypair.to_protobuf_encoding().expect("it can be written"));
    golden.check();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("identity");
    std::fs::write(&path, golden.bytes("identity of the seed 7")).unwrap();
    assert_eq!(Identity::load_or_create(&path).unwrap().peer_id(), keypair.public().to_peer_id());
}
