//! How frames lie in a stream: a length of four bytes, little-endian, then so many bytes.

use bytes::{Buf, Bytes, BytesMut};

/// A frame's bytes at most. Checked on sending and, before anything is set aside for it, on receiving.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// The length before a frame.
pub(super) const PREFIX_BYTES: usize = 4;

/// In the place of a length: nothing more comes on this stream, and the sender goes on on another one.
pub(super) const MOVED: u32 = u32::MAX;

/// A length that nobody may send: what follows cannot be made sense of, so the stream ends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes was announced")]
pub(super) struct FrameTooLong(pub(super) u32);

/// The length that goes before a frame. The queues hold no frame longer than [`FRAME_BYTES_MAX`].
pub(super) fn prefix(frame: &[u8]) -> [u8; PREFIX_BYTES] {
    debug_assert!(frame.len() <= FRAME_BYTES_MAX);
    (frame.len() as u32).to_le_bytes()
}

/// Cuts what arrives into frames. Holds no more than what arrived: an announced length sets nothing aside.
#[derive(Default)]
pub(super) struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Takes what was read.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if all of it is here.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*prefix);
        if len as usize > FRAME_BYTES_MAX {
            return Err(FrameTooLong(len));
        }
        if self.buffer.len() < PREFIX_BYTES + len as usize {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_BYTES);
        Ok(Some(self.buffer.split_to(len as usize).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_frame_passes_and_one_byte_more_does_not() {
        let mut decoder = Decoder::default();
        decoder.extend(&(FRAME_BYTES_MAX as u32).to_le_bytes());
        assert_eq!(decoder.next(), Ok(None));
        decoder.extend(&vec![1; FRAME_BYTES_MAX]);
        assert_eq!(decoder.next().unwrap().unwrap().len(), FRAME_BYTES_MAX);

        decoder.extend(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(decoder.next(), Err(FrameTooLong(FRAME_BYTES_MAX as u32 + 1)));
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            cuts in prop::collection::vec(1usize..200, 1..20),
        ) {
            let mut sent = Vec::new();
            for frame in &frames {
                sent.extend_from_slice(&prefix(frame));
                sent.extend_from_slice(frame);
            }
            let mut decoder = Decoder::default();
            let mut received = Vec::new();
            let mut rest = &sent[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                decoder.extend(now);
                while let Some(frame) = decoder.next().unwrap() {
                    received.push(frame.to_vec());
                }
                rest = later;
            }
            prop_assert_eq!(received, frames);
            prop_assert!(decoder.buffer.is_empty());
        }

        #[test]
        fn garbage_never_panics_nor_grows(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let mut decoder = Decoder::default();
            decoder.extend(&bytes);
            while let Ok(Some(frame)) = decoder.next() {
                prop_assert!(frame.len() <= bytes.len());
            }
        }
    }
}
