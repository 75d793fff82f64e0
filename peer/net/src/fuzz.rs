//! Access of `fuzz/` to the network: its two decoders, which are private otherwise.

use std::fmt::Debug;

use bytes::Bytes;
use libp2p::futures::executor::block_on;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::stream::frame::{FrameDecoder, prefix};
use crate::stream::hello::{self, Hello, HelloAnswer};

/// Returns the frames in these received pieces, and whether a forbidden length follows them.
pub fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Bytes>, bool) {
    let (mut decoder, mut frames) = (FrameDecoder::default(), Vec::new());
    for piece in pieces {
        decoder.extend(piece);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

/// Returns a frame as it is sent.
pub fn framed(frame: &[u8]) -> Vec<u8> {
    [&prefix(frame)[..], frame].concat()
}

/// Returns whether a stream may begin with these bytes, as a hello or an answer. A parsed greeting is written and read
/// back.
pub fn greeting(bytes: &[u8]) -> bool {
    let hello = reads_back::<Hello>(bytes);
    reads_back::<HelloAnswer>(bytes) || hello
}

/// Returns greetings as they are sent.
pub fn greetings() -> Vec<Vec<u8>> {
    let hellos = hello::examples().into_iter().map(|hello| written(&hello));
    hellos.chain(hello::example_answers().into_iter().map(|answer| written(&answer))).collect()
}

fn reads_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> bool {
    let read = |bytes: &[u8]| -> Option<T> {
        let (_, body) = block_on(hello::read(&mut &bytes[..])).ok()?;
        hello::parse(&body).ok()
    };
    let Some(value) = read(bytes) else { return false };
    assert_eq!(read(&written(&value)).as_ref(), Some(&value));
    true
}

fn written(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    block_on(hello::write(&mut bytes, value)).expect("memory takes all");
    bytes
}
