//! Frames: what nodes say to each other, as bytes.
//!
//! One byte of version, the sender's [`Stamp`], then the frame; before them the number of the lane, where a peer has
//! several ([`lane_of`]). Nothing in it is trusted: lengths are checked by the decoder before anything is
//! allocated for them, and the caller checks the rest.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use group::message::{Message, Sender};
use group::state::Member;
use overlay::{GroupId, Incarnation, RingId};
use serde::{Deserialize, Serialize};

use crate::api::Class;
use crate::copying::{CopyOrder, CopyTold};
use crate::lifetimes::Lifetimes;
use crate::seeking::{Sample, Sampled};
use crate::starts::{Contested, Refused, Start};
use crate::whereabouts::{Astray, Locate, Located};
use crate::wishes::{Granted, Wished};

/// The version of frames that this node speaks. Raise it with every change of their bytes: peers of another version are
/// refused at their hello. The golden files find a change that was not meant.
pub const FRAME_VERSION: u8 = 18;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// Within a group.
    Group {
        /// The ring; frames of others are dropped.
        ring: RingId,
        /// The group; a node is in one.
        group: GroupId,
        /// Who says it.
        sender: Sender,
        /// What.
        message: Message,
    },
    /// Somebody outside wants in.
    Join {
        /// The ring that it belongs to, if it knows.
        ring: Option<RingId>,
        /// Itself.
        member: Member,
    },
    /// The sender did not understand a frame. Never answered. Its bytes keep their places in all versions
    /// ([`is_not_understood`]).
    NotUnderstood {
        /// The version that the sender speaks.
        version: u8,
    },
    /// Who owns a place?
    Locate(Box<Locate>),
    /// That group does.
    Located(Box<Located>),
    /// Whoever was asked is not what it was taken for.
    Astray(Box<Astray>),
    /// A newcomer wants to know of groups.
    Sample(Box<Sample>),
    /// There is this one.
    Sampled(Box<Sampled>),
    /// An operation is asked for by hand.
    Wished(Box<Wished>),
    /// What came of it.
    Granted {
        /// The ring.
        ring: RingId,
        /// Its name at whoever was asked.
        number: u64,
        /// What came of it.
        granted: Granted,
    },
    /// A newcomer wants to know how far away the receiver is.
    Probe {
        /// The ring that it would join.
        ring: RingId,
        /// To be given back.
        number: u64,
    },
    /// So far.
    Probed {
        /// The ring.
        ring: RingId,
        /// As it was sent.
        number: u64,
    },
    /// What was asked for by hand takes a while: whoever asked is to go on waiting.
    Patience {
        /// The ring.
        ring: RingId,
        /// Its name at whoever was asked.
        number: u64,
    },
    /// Who leads a group wants the receiver to copy what it may come to own.
    CopyOrder(Box<CopyOrder>),
    /// How far that has come.
    CopyTold(Box<CopyTold>),
    /// Nothing but the sender's stamp: from which start of its process it speaks.
    Started,
    /// The receiver's start is not counted: another one is known.
    Refused(Box<Refused>),
    /// The sender refused a start of a member, and holds this one.
    Contested(Box<Contested>),
    /// The [`crate::Lineage::before`] of the sender's start: told with each connection, and to a peer that speaks to an earlier start.
    Lineage(Vec<u64>),
    /// The sender asks how long peers live, as the receiver has seen.
    AskLifetimes {
        /// The ring.
        ring: RingId,
    },
    /// Answers [`Frame::AskLifetimes`].
    Lifetimes(Box<Lifetimes>),
}

/// From which start of a process a frame comes, and for which it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The sender's start.
    pub start: Start,
    /// The [`Start::run`] of the receiver that the frame is for; 0 where any may read it.
    pub to: u64,
}

/// How long a stamp is, in bytes.
const STAMP: usize = 4 * 8;

impl Stamp {
    fn write(&self, bytes: &mut Vec<u8>) {
        for number in [self.incarnation.0, self.start.counter, self.start.run, self.to] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn read(bytes: &[u8; STAMP]) -> Stamp {
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        Stamp { incarnation: Incarnation(next()), start: Start { counter: next(), run: next() }, to: next() }
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Of another version, which is told so.
    #[error("a frame of version {0}")]
    Version(u8),
    /// Nonsense.
    #[error("not a frame")]
    Malformed,
}

/// Set in the first byte of what is said in a lane; the rest of it is the lane's number.
const IN_LANE: u8 = 0x80;
/// So many lanes at most.
pub const LANES_MAX: u8 = 16;

/// In which of so many lanes this was said; `None` where there is no such lane.
pub fn lane_of(frame: &[u8], lanes: usize) -> Option<usize> {
    let lane = frame.first()?.checked_sub(IN_LANE)?;
    Some(usize::from(lane)).filter(|lane| *lane < lanes)
}

/// A frame as bytes.
pub fn encode(stamp: &Stamp, frame: &Frame, lane: Option<u8>) -> Bytes {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend(lane.map(|lane| IN_LANE | lane));
    bytes.push(FRAME_VERSION);
    stamp.write(&mut bytes);
    let bytes = postcard::serialize_with_flavor(frame, Bytewise(bytes)).expect("frames have no maps of unknown length");
    bytes.into()
}

/// Appends to a vector. Keys of peers, of which frames are full, come byte by byte.
pub(crate) struct Bytewise(pub(crate) Vec<u8>);

impl postcard::ser_flavors::Flavor for Bytewise {
    type Output = Vec<u8>;

    #[inline(always)]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline(always)]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Bytes as a frame, of this lane.
///
/// # Errors
/// They are a frame of another version, or none.
pub fn decode(bytes: &[u8], lane: Option<u8>) -> Result<(Stamp, Frame), FrameError> {
    let bytes = match lane {
        None => bytes,
        Some(lane) => bytes.strip_prefix(&[IN_LANE | lane]).ok_or(FrameError::Malformed)?,
    };
    match bytes.split_first() {
        Some((&FRAME_VERSION, rest)) => {
            let (stamp, rest) = rest.split_first_chunk().ok_or(FrameError::Malformed)?;
            match postcard::take_from_bytes(rest) {
                Ok((frame, [])) => Ok((Stamp::read(stamp), frame)),
                _ => Err(FrameError::Malformed),
            }
        }
        Some((version, _)) => Err(FrameError::Version(*version)),
        None => Err(FrameError::Malformed),
    }
}

/// The place of [`Frame::NotUnderstood`] among the frames.
const NOT_UNDERSTOOD: u8 = 2;

/// Whether a frame of any version, of this lane, is a [`Frame::NotUnderstood`].
pub fn is_not_understood(bytes: &[u8], lane: Option<u8>) -> bool {
    let prefix = 1 + STAMP + usize::from(lane.is_some());
    matches!(bytes.get(prefix..), Some([NOT_UNDERSTOOD, _]))
}

/// On which stream a message travels: bulk never delays operations, and those never delay signs of life.
pub fn class_of(message: &Message) -> Class {
    use group::message::CommitteeMessage as C;
    match message {
        Message::Committee(C::AskSince { .. } | C::Since { .. } | C::AskCompare { .. } | C::Compared { .. }) => {
            Class::Bulk
        }
        Message::AskCopy(_) | Message::Copied(_) => Class::Bulk,
        Message::Committee(_) | Message::Client(_) | Message::Handover(_) => Class::Data,
        _ => Class::Control,
    }
}
