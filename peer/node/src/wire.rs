//! Frames: the messages between nodes, as bytes.
//!
//! A frame is one byte of version, the sender's [`Stamp`], then the content. Where a peer has several lanes, the number of the lane
//! comes first ([`lane_of`]). Nothing in a frame is trusted: the decoder checks lengths before it allocates memory for them, and the
//! caller checks the rest.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use group::control::state::Member;
use group::message::{Message, Sender};
use overlay::{GroupId, Incarnation, RingId};
use serde::{Deserialize, Serialize};

use crate::admin::{AdminOutcome, ForwardedRequest};
use crate::api::Class;
use crate::policies::lifetimes::Lifetimes;
use crate::reconfigure::copying::{CopyOrder, CopyTold};
use crate::routing::join::{Sample, Sampled};
use crate::routing::{Astray, Locate, Located};
use crate::starts::{Contested, Refused, Start};

/// Version of the frames of this node. Raise it with every change of their bytes: peers of another version are refused at their hello.
/// The golden files find an unintended change.
pub const FRAME_VERSION: u8 = 18;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// Message between members of a group.
    Group {
        /// The ring; frames of other rings are dropped.
        ring: RingId,
        /// The group that the message is for.
        group: GroupId,
        /// Sender of the message.
        sender: Sender,
        /// The message.
        message: Message,
    },
    /// Request of a node outside to join.
    Join {
        /// The ring that the node belongs to, if it knows.
        ring: Option<RingId>,
        /// The node itself.
        member: Member,
    },
    /// The sender did not understand a frame. Never answered. Its bytes keep their places in all versions ([`is_not_understood`]).
    NotUnderstood {
        /// Version of the sender's frames.
        version: u8,
    },
    /// Question for the owner of a point.
    Locate(Box<Locate>),
    /// Answer to [`Frame::Locate`]: the owner.
    Located(Box<Located>),
    /// Report that the receiver's hint is wrong: the sender is no member of the assumed group, or that group has changed.
    Astray(Box<Astray>),
    /// Question of a newcomer for groups.
    Sample(Box<Sample>),
    /// Answer to [`Frame::Sample`]: one group.
    Sampled(Box<Sampled>),
    /// Request of an administrator for a transaction.
    AdminRequest(Box<ForwardedRequest>),
    /// Result of a [`Frame::AdminRequest`].
    AdminOutcome {
        /// The ring.
        ring: RingId,
        /// Number of the request at the node that sent it.
        number: u64,
        /// Result of the request.
        outcome: AdminOutcome,
    },
    /// Probe of a newcomer that measures the distance to the receiver.
    Probe {
        /// The ring that the newcomer would join.
        ring: RingId,
        /// Number, repeated in the answer.
        number: u64,
    },
    /// Answer to [`Frame::Probe`].
    Probed {
        /// The ring.
        ring: RingId,
        /// Number of the probe.
        number: u64,
    },
    /// A request of an administrator takes a while: the node that sent it must go on waiting.
    Patience {
        /// The ring.
        ring: RingId,
        /// Number of the request at the node that sent it.
        number: u64,
    },
    /// Order of a group's leader that the receiver copy data that it may come to own.
    CopyOrder(Box<CopyOrder>),
    /// Progress of a [`Frame::CopyOrder`].
    CopyTold(Box<CopyTold>),
    /// Frame with the sender's stamp alone, which names the start of the sender's process.
    Started,
    /// The receiver's start does not count: the sender knows another one.
    Refused(Box<Refused>),
    /// The sender refused a start of a member, and holds this one.
    Contested(Box<Contested>),
    /// The [`crate::Lineage::before`] of the sender's start. Sent at each connection, and to a peer that addresses an earlier start.
    Lineage(Vec<u64>),
    /// Question for the lifetimes of peers that the receiver has observed.
    AskLifetimes {
        /// The ring.
        ring: RingId,
    },
    /// Answers [`Frame::AskLifetimes`].
    Lifetimes(Box<Lifetimes>),
}

/// Start of the process that sent a frame, and start that the frame is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The sender's start.
    pub start: Start,
    /// The [`Start::run`] of the receiver that the frame is for; 0 where any start may read it.
    pub to: u64,
}

/// Length of a stamp, in bytes.
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

/// Reason for which bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame of this other version; its sender is told so.
    #[error("a frame of version {0}")]
    Version(u8),
    /// Invalid bytes.
    #[error("not a frame")]
    Malformed,
}

/// Bit in the first byte of a frame of a lane; the other bits are the lane's number.
const IN_LANE: u8 = 0x80;
/// Upper limit of lanes.
pub const LANES_MAX: u8 = 16;

/// Returns the lane of a frame, out of this number of lanes; `None` where there is no such lane.
pub fn lane_of(frame: &[u8], lanes: usize) -> Option<usize> {
    let lane = frame.first()?.checked_sub(IN_LANE)?;
    Some(usize::from(lane)).filter(|lane| *lane < lanes)
}

/// Encodes a frame.
pub fn encode(stamp: &Stamp, frame: &Frame, lane: Option<u8>) -> Bytes {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend(lane.map(|lane| IN_LANE | lane));
    bytes.push(FRAME_VERSION);
    stamp.write(&mut bytes);
    let bytes = postcard::serialize_with_flavor(frame, Bytewise(bytes)).expect("frames have no maps of unknown length");
    bytes.into()
}

/// Sink that appends to a vector. Peers' keys, which are most of a frame, come byte by byte.
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

/// Decodes a frame of this lane.
///
/// # Errors
/// The bytes are a frame of another version, or no frame.
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

/// Index of [`Frame::NotUnderstood`] among the frames.
const NOT_UNDERSTOOD: u8 = 2;

/// Returns whether a frame of any version, of this lane, is a [`Frame::NotUnderstood`].
pub fn is_not_understood(bytes: &[u8], lane: Option<u8>) -> bool {
    let prefix = 1 + STAMP + usize::from(lane.is_some());
    matches!(bytes.get(prefix..), Some([NOT_UNDERSTOOD, _]))
}

/// Returns the stream of a message: bulk never delays operations, and operations never delay heartbeats.
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
