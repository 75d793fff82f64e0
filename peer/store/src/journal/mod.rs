//! The journal's writing end. Acknowledgements rest on it alone.

pub(crate) mod frame;
pub(crate) mod mark;
pub(crate) mod replay;
pub(crate) mod segment;

use std::sync::Arc;

use node::Change;

use crate::codec::put_batch;
use crate::error::{Doing, StoreError};
use crate::journal::frame::{FRAME_BODY_MAX, FrameKind, FramePlace, HEADER, finish, frame_bytes};
use crate::journal::segment::{Segment, SegmentName, Segments};

/// Writer of the journal, which appends frames, each durable before the call returns.
///
/// After an error it must not be used again; [`Health`](crate::health::Health) ensures that for the whole store.
pub(crate) struct Journal {
    segments: Arc<Segments>,
    salt: u64,
    active: Segment,
    /// Position of the next frame in the active segment, in bytes.
    at: u64,
    /// Number of the last frame.
    seq: u64,
    /// Reused, so that a commit allocates nothing.
    buffer: Vec<u8>,
}

/// The place of a written frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) seq: u64,
    pub(crate) segment: SegmentName,
    pub(crate) bytes: u64,
}

impl Journal {
    /// Continues behind frame `seq`, always in a fresh segment: the bytes that a power cut left behind the last sound
    /// frame stay as they are.
    ///
    /// The first frame, which records the opening of the store, also makes the changes in `found` durable.
    pub(crate) fn start(
        segments: Arc<Segments>,
        salt: u64,
        seq: u64,
        found: Option<&[Change]>,
    ) -> Result<(Journal, Written), StoreError> {
        let active = segments.take(0)?;
        let mut journal = Journal { segments, salt, active, at: 0, seq, buffer: Vec::new() };
        let opened = journal.append(FrameKind::Open, found)?;
        Ok((journal, opened))
    }

    /// Returns the number of the last frame.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Writes one frame with these batches and waits until it is durable.
    pub(crate) fn append<'a>(
        &mut self,
        kind: FrameKind,
        batches: impl IntoIterator<Item = &'a [Change]>,
    ) -> Result<Written, StoreError> {
        self.buffer.clear();
        self.buffer.resize(HEADER, 0);
        for batch in batches {
            put_batch(&mut self.buffer, batch);
        }
        let body = self.buffer.len() - HEADER;
        assert!(body <= FRAME_BODY_MAX, "the caller bounds a frame: {body} bytes");
        let bytes = frame_bytes(body) as u64;
        if self.at + bytes > self.active.name.bytes {
            self.active = self.segments.take(bytes)?;
            self.at = 0;
        }
        let name = self.active.name;
        let at = u32::try_from(self.at).expect("a segment is shorter than 4 GiB");
        finish(&mut self.buffer, kind, self.seq + 1, FramePlace { salt: self.salt, segment: name.id, at });
        self.active.file.write_at(self.at, &self.buffer).doing(|| format!("writing {}", name.file()))?;
        self.active.file.sync().doing(|| format!("syncing {}", name.file()))?;
        self.seq += 1;
        self.at += bytes;
        if self.buffer.capacity() > 16 << 20 {
            self.buffer = Vec::new(); // One huge batch must not cost its memory for ever.
        }
        Ok(Written { seq: self.seq, segment: name, bytes })
    }
}
