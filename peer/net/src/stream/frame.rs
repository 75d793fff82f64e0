//! The encoding of frames in a stream: a length of four bytes, little-endian, then so many bytes.

use bytes::{Buf, Bytes, BytesMut};

/// Upper limit of a frame, in bytes. Checked on sending and, before any memory is reserved for it, on receiving.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Length of the prefix before a frame, in bytes.
pub(crate) const PREFIX_BYTES: usize = 4;

/// Value in place of a length: no more frames come on this stream, and the sender continues on another one.
pub(crate) const MOVED: u32 = u32::MAX;

/// A length that the protocol forbids: the following bytes cannot be read, so the stream ends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame's announced length of {0} bytes is too long")]
pub(crate) struct FrameTooLong(pub(crate) u32);

/// Returns the length prefix of a frame. The queues hold no frame longer than [`FRAME_BYTES_MAX`].
pub(crate) fn prefix(frame: &[u8]) -> [u8; PREFIX_BYTES] {
    debug_assert!(frame.len() <= FRAME_BYTES_MAX);
    (frame.len() as u32).to_le_bytes()
}

/// Decoder that cuts received bytes into frames. It holds only received bytes: an announced length reserves no memory.
#[derive(Default)]
pub(crate) struct FrameDecoder {
    buffer: BytesMut,
}

impl FrameDecoder {
    /// Appends received bytes.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame, if all of it is here.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
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
        let mut decoder = FrameDecoder::default();
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
            let mut decoder = FrameDecoder::default();
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
            let mut decoder = FrameDecoder::default();
            decoder.extend(&bytes);
            while let Ok(Some(frame)) = decoder.next() {
                prop_assert!(frame.len() <= bytes.len());
            }
        }
    }
}
