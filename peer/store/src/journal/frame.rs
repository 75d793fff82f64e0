//! The journal's unit: one frame is one group commit.
//!
//! A frame is written and synced before the next one is begun. So a power cut can tear at most the last frame, and a bad frame
//! *before* a good one is damage, for any order of the disk's writes. With several frames in flight, a mere power cut could
//! leave the second one without the first.
//!
//! A frame names its segment and its place there, and the store's salt is part of its checksums. Old bytes of a reused segment
//! never parse, nor does a frame that a client hides in a value.

use crate::codec::Reader;

/// Length of a frame's header, in bytes.
pub(crate) const HEADER: usize = 40;
/// Alignment of frames, in bytes.
pub(crate) const ALIGN: usize = 8;
/// Longest body, in bytes. Lengths in a body are 32 bits; the limit leaves room and bounds the memory for a damaged length.
pub(crate) const FRAME_BODY_MAX: usize = 1 << 30;

const MAGIC: u32 = 0x314a_4353; // "SCJ1"

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Batches of changes.
    Data = 1,
    /// A process opened the store: an earlier seal no longer holds.
    Open = 2,
    /// A clean stop: the journal holds every acknowledged change.
    Seal = 3,
}

/// A frame found in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: FrameKind,
    pub(crate) seq: u64,
    pub(crate) body: &'a [u8],
    /// Position of the next frame, in bytes.
    pub(crate) next: usize,
}

/// The place of a frame: the store's salt, the segment's id, and the position in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePlace {
    pub(crate) salt: u64,
    pub(crate) segment: u64,
    pub(crate) at: u32,
}

/// Returns the bytes that a frame with a body of this length takes.
pub(crate) fn frame_bytes(body: usize) -> usize {
    (HEADER + body).next_multiple_of(ALIGN)
}

/// Fills in the header of `frame`, whose body follows [`HEADER`] reserved bytes, and pads it.
pub(crate) fn finish(frame: &mut Vec<u8>, kind: FrameKind, seq: u64, place: FramePlace) {
    let body = frame.len() - HEADER;
    let len = u32::try_from(body).expect("a body is at most FRAME_BODY_MAX");
    let body_crc = crc(place.salt, &frame[HEADER..]);
    frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    frame[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
    frame[8..12].copy_from_slice(&len.to_le_bytes());
    frame[12..16].copy_from_slice(&body_crc.to_le_bytes());
    frame[16..24].copy_from_slice(&seq.to_le_bytes());
    frame[24..32].copy_from_slice(&place.segment.to_le_bytes());
    frame[32..36].copy_from_slice(&place.at.to_le_bytes());
    let header_crc = crc(place.salt, &frame[..36]);
    frame[36..40].copy_from_slice(&header_crc.to_le_bytes());
    frame.resize(frame_bytes(body), 0);
}

/// Parses the frame at `place.at` of `segment`; `None` unless a whole and sound frame is there.
///
/// The header has a checksum of its own, so that a wrong length is never followed. A search for frames in arbitrary bytes
/// therefore costs one pass over them, not one pass for each apparent length.
pub(crate) fn parse(segment: &[u8], place: FramePlace) -> Option<Frame<'_>> {
    let at = place.at as usize;
    let bytes = segment.get(at..)?;
    let header = bytes.get(..HEADER)?;
    let mut fields = Reader::new(header);
    if fields.u32()? != MAGIC {
        return None;
    }
    let kind = match fields.u32()? {
        1 => FrameKind::Data,
        2 => FrameKind::Open,
        3 => FrameKind::Seal,
        _ => return None,
    };
    let len = fields.u32()? as usize;
    let body_crc = fields.u32()?;
    let seq = fields.u64()?;
    let here = fields.u64()? == place.segment && fields.u32()? == place.at;
    if !here || fields.u32()? != crc(place.salt, &header[..36]) {
        return None;
    }
    let body = bytes.get(HEADER..HEADER.checked_add(len)?)?;
    if crc(place.salt, body) != body_crc {
        return None;
    }
    Some(Frame { kind, seq, body, next: at + frame_bytes(len) })
}

/// Returns whether `place`, where no sound frame is, has a trace of the frame with number `seq`. Such a frame was begun there
/// and cut short, or it was whole once.
///
/// A reused segment is full of old bytes. No frame of its former use has this segment's id, or a number as high as `seq`. So
/// the header's fields tell a trace from a remnant, even if one of the fields is bad or the header's end is missing.
pub(crate) fn is_begun(segment: &[u8], place: FramePlace, seq: u64) -> bool {
    let at = place.at as usize;
    let Some(header) = at.checked_add(HEADER).and_then(|end| segment.get(at..end)) else { return false };
    let field = |from: usize, to: usize| header[from..to].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let (is_frame, is_next) = (field(0, 4) == u64::from(MAGIC), field(16, 24) == seq);
    let (id, is_here) = (field(24, 32), field(32, 36) == u64::from(place.at));
    let known = [is_frame, is_next, id == place.segment, is_here].into_iter().filter(|known| *known).count();
    // Ids begin at 1: id 0 means that the rest of a segment of zeros follows.
    known >= 3 || is_frame && (is_next || id == 0)
}

/// Returns the first sound frame at or behind `from`.
pub(crate) fn find(segment: &[u8], from: usize, salt: u64, id: u64) -> Option<Frame<'_>> {
    (from.next_multiple_of(ALIGN)..segment.len())
        .step_by(ALIGN)
        .find_map(|at| parse(segment, FramePlace { salt, segment: id, at: u32::try_from(at).ok()? }))
}

/// Returns the checksum of bytes in the store with this salt.
pub(crate) fn crc(salt: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: FramePlace = FramePlace { salt: 7, segment: 3, at: 16 };

    fn segment(body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER];
        frame.extend_from_slice(body);
        finish(&mut frame, FrameKind::Data, 9, PLACE);
        let mut segment = vec![0; 16];
        segment.append(&mut frame);
        segment.extend_from_slice(&[0; 64]);
        segment
    }

    #[test]
    fn a_frame_reads_back_only_where_it_was_written() {
        let bytes = segment(b"hello");
        let frame = parse(&bytes, PLACE).expect("sound");
        assert_eq!((frame.kind, frame.seq, frame.body, frame.next), (FrameKind::Data, 9, &b"hello"[..], 64));
        assert_eq!(find(&bytes, 0, 7, 3).map(|frame| frame.seq), Some(9));
        assert_eq!(find(&bytes, 17, 7, 3), None);
        assert_eq!(find(&bytes, 0, 8, 3), None, "another store");
        assert_eq!(find(&bytes, 0, 7, 4), None, "another segment");
        assert_eq!(find(&bytes[8..], 0, 7, 3), None, "another place");
    }

    #[test]
    fn every_single_flip_is_seen() {
        let bytes = segment(b"some body");
        let end = 16 + HEADER + 9; // Padding follows.
        for bit in 16 * 8..end * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&flipped, PLACE), None, "bit {bit}");
        }
    }

    /// One bit, anywhere: the rest of the header identifies the frame. A frame that was never begun leaves no trace.
    #[test]
    fn a_frame_that_is_bad_anywhere_leaves_a_trace() {
        let bytes = segment(b"some body");
        for bit in 16 * 8..(16 + HEADER + 9) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(is_begun(&flipped, PLACE, 9), "bit {bit}");
        }
        for kept in 0..HEADER + 9 {
            let mut torn = bytes.clone();
            torn[16 + kept..].fill(0);
            assert_eq!(is_begun(&torn, PLACE, 9), kept >= 4, "{kept} bytes in zeros");
            // Over a frame of the segment's former life, at the same place.
            let mut old = segment(b"a body of before");
            old[16 + 16..16 + 24].copy_from_slice(&4_u64.to_le_bytes());
            old[16 + 24..16 + 32].copy_from_slice(&2_u64.to_le_bytes());
            assert!(!is_begun(&old, PLACE, 9), "a remnant");
            old[16..16 + kept].copy_from_slice(&bytes[16..16 + kept]);
            assert!(is_begun(&old, PLACE, 9) || kept < 24, "{kept} bytes over a remnant");
        }
        assert!(!is_begun(&[0; 80], PLACE, 9) && !is_begun(&[0; 20], PLACE, 9));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0u32..400) {
            let _ = parse(&bytes, FramePlace { salt: 0, segment: 0, at });
        }

        /// Even where the header is sound: a length beyond the end is refused.
        #[test]
        fn a_frame_cut_anywhere_is_refused(body in proptest::collection::vec(any::<u8>(), 0..100), cut in 0usize..140) {
            let bytes = segment(&body);
            let cut = cut.min(16 + HEADER + body.len() - 1);
            prop_assert_eq!(parse(&bytes[..cut], PLACE), None);
        }
    }
}
