//! The journal's replay at a start.
//!
//! The order of writes determines which frames are trusted. Frames are numbered without gaps and synced one after the other, so a
//! power cut can take only the *last* frame. A bad frame before a sound one was durable once: that is damage. So is a frame that is
//! bad or missing up to the [`mark`](crate::journal::mark).
//!
//! Behind the mark there are two cases. Without a trace of a frame behind the last sound one, no frame was begun, or it vanished
//! without a trace. With a trace ([`is_begun`]) that frame may have been cut short before any acknowledgement, or it was durable
//! and went bad. The two cannot be told apart: the end is *in doubt*.

use std::collections::BTreeMap;
use std::sync::Arc;

use node::Change;

use crate::codec::Reader;
use crate::disk::{Disk, DiskFile};
use crate::error::{Doing, StoreError};
use crate::journal::frame::{FrameKind, FramePlace, find, is_begun, parse};
use crate::journal::segment::{SEGMENT_BYTES_MAX, SegmentName};

/// The position at which a checkpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct From {
    /// The table and the manifest have all changes up to this frame, except records that a later frame changed again.
    pub(crate) seq: u64,
    /// Id of the segment to begin with.
    pub(crate) segment: u64,
    /// Number of the first frame in that segment.
    pub(crate) first_seq: u64,
}

/// The content of the journal behind a checkpoint.
pub(crate) struct Replayed {
    /// The frames behind the checkpoint, in order.
    pub(crate) frames: Vec<ReplayedFrame>,
    /// The segments in use, each with the number of its first frame.
    pub(crate) chain: Vec<(SegmentName, u64)>,
    /// Segments with higher ids, made ahead and never used.
    pub(crate) unused: Vec<SegmentName>,
    /// Number of the last frame.
    pub(crate) last_seq: u64,
    /// Whether the last frame was a seal.
    pub(crate) sealed: bool,
    /// Description of a trace of another frame behind it, which may have been durable.
    pub(crate) doubt: Option<String>,
}

/// One group commit.
pub(crate) struct ReplayedFrame {
    pub(crate) seq: u64,
    pub(crate) segment: SegmentName,
    pub(crate) bytes: u64,
    pub(crate) batches: Vec<Vec<Change>>,
}

/// Reads all frames from `from` on, and makes them durable. Bytes that are readable after the end of a process need not be on the
/// disk yet, and callers treat the returned changes as durable.
///
/// All frames up to number `mark` were durable once.
pub(crate) fn replay(disk: &Arc<dyn Disk>, salt: u64, from: From, mark: u64) -> Result<Replayed, StoreError> {
    let mut names = segments(&**disk)?;
    let mut replayed = Replayed {
        frames: Vec::new(),
        chain: Vec::new(),
        unused: Vec::new(),
        last_seq: from.first_seq - 1,
        sealed: false,
        doubt: None,
    };
    let mut id = from.segment;
    let mut ended = false;
    let mut last = None;
    while let Some(name) = names.remove(&id) {
        id += 1;
        let (mut file, content) = read(&**disk, name)?;
        let end = read_frames(&content, name, salt, from.seq, ended, &mut replayed)?;
        if end.next == 0 {
            // Made ahead, or the place of a torn first frame. No later segment may hold a sound frame either.
            ended = true;
            replayed.unused.push(name);
            replayed.note_trace(&content, salt, name, 0);
            continue;
        }
        file.sync().doing(|| format!("syncing {}", name.file()))?;
        last = Some((file, content, end));
    }
    if let Some(name) = names.values().find(|name| name.id >= from.segment) {
        return Err(StoreError::damaged(format!("journal segment {:x} is there, an earlier one is missing", name.id)));
    }
    if replayed.last_seq < from.seq {
        let (last, checkpoint) = (replayed.last_seq, from.seq);
        return Err(StoreError::damaged(format!(
            "the journal ends at frame {last}, before the checkpoint at {checkpoint}"
        )));
    }
    if replayed.last_seq < mark {
        let last = replayed.last_seq;
        return Err(StoreError::damaged(format!(
            "the journal ends at frame {last}, and frame {mark} was durable once"
        )));
    }
    if let Some((mut file, content, end)) = last {
        if let Some((name, _)) = replayed.chain.last().copied() {
            replayed.note_trace(&content, salt, name, end.next);
        }
        // After a failed sync a system may keep pages as clean that it will never write; only the last frame can be among them.
        // Rewritten, it is durable, or the sync fails again. The bytes are the same: a power cut in between tears nothing.
        let name = replayed.chain.last().map(|(name, _)| name.file()).unwrap_or_default();
        file.write_at(end.last_at as u64, &content[end.last_at..end.next]).doing(|| format!("writing {name}"))?;
        file.sync().doing(|| format!("syncing {name}"))?;
    }
    Ok(replayed)
}

impl Replayed {
    /// Looks for a trace of the next frame at the place where it would have been written.
    fn note_trace(&mut self, content: &[u8], salt: u64, name: SegmentName, at: usize) {
        let Ok(at) = u32::try_from(at) else { return };
        let next = self.last_seq + 1;
        if is_begun(content, FramePlace { salt, segment: name.id, at }, next) {
            self.doubt = Some(format!("{} has a part of frame {next} at byte {at}, but not all of it", name.file()));
        }
    }
}

/// Returns the existing segments.
pub(crate) fn segments(disk: &dyn Disk) -> Result<BTreeMap<u64, SegmentName>, StoreError> {
    let mut names = BTreeMap::new();
    for (file, _) in disk.list().doing(|| "listing the store's directory".into())? {
        let Some(name) = SegmentName::parse(&file) else {
            continue;
        };
        if names.insert(name.id, name).is_some() {
            return Err(StoreError::damaged(format!("two journal segments have the id {:x}", name.id)));
        }
    }
    Ok(names)
}

fn read(disk: &dyn Disk, name: SegmentName) -> Result<(Box<dyn DiskFile>, Vec<u8>), StoreError> {
    let mut file = disk.open(&name.file()).doing(|| format!("opening {}", name.file()))?;
    let content = file.read_all(SEGMENT_BYTES_MAX).doing(|| format!("reading {}", name.file()))?;
    if content.len() as u64 != name.bytes {
        return Err(StoreError::damaged(format!("{} is {} bytes long", name.file(), content.len())));
    }
    Ok((file, content))
}

/// The end of a segment's sound frames.
struct SegmentEnd {
    /// Position of the last frame, in bytes.
    last_at: usize,
    /// Position of the frame that would follow, in bytes.
    next: usize,
}

fn read_frames(
    content: &[u8],
    name: SegmentName,
    salt: u64,
    checkpoint: u64,
    ended: bool,
    replayed: &mut Replayed,
) -> Result<SegmentEnd, StoreError> {
    let mut end = SegmentEnd { last_at: 0, next: 0 };
    while let Ok(at) = u32::try_from(end.next) {
        let Some(frame) = parse(content, FramePlace { salt, segment: name.id, at }) else {
            break;
        };
        let expected = replayed.last_seq + 1;
        if ended || frame.seq != expected {
            let what = format!("{} has frame {} where {expected} should be", name.file(), frame.seq);
            return Err(StoreError::damaged(what));
        }
        if at == 0 {
            replayed.chain.push((name, frame.seq));
        }
        if frame.seq > checkpoint {
            let Some(batches) = Reader::new(frame.body).batches() else {
                return Err(StoreError::damaged(format!(
                    "frame {} has a valid checksum but invalid contents",
                    frame.seq
                )));
            };
            let bytes = (frame.next - end.next) as u64;
            replayed.frames.push(ReplayedFrame { seq: frame.seq, segment: name, bytes, batches });
        }
        replayed.last_seq = frame.seq;
        replayed.sealed = frame.kind == FrameKind::Seal;
        end = SegmentEnd { last_at: end.next, next: frame.next };
    }
    if let Some(later) = find(content, end.next, salt, name.id) {
        let what = format!("{} is unreadable at byte {}, but frame {} follows", name.file(), end.next, later.seq);
        return Err(StoreError::damaged(what));
    }
    Ok(end)
}
