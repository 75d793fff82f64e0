//! The packet that clients, a switch and replicas exchange, inside the payload of a UDP datagram (`Harmonia §6.1`, `§7.1`).
//!
//! A fixed part that a switch reads and writes at fixed places, and behind it a key and a value that it never looks at:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-1 | [`MAGIC`] |
//! | 2 | [`VERSION`] |
//! | 3 | [`Operation`] |
//! | 4-7 | [`Header::partition`] |
//! | 8-11 | [`Header::object`] |
//! | 12-15 | [`Header::switch`] |
//! | 16-23 | [`Header::term`] |
//! | 24-31 | [`Header::sequence`] |
//! | 32-39 | [`Header::committed`] |
//! | 40-47 | [`Header::tag`] |
//! | 48-49 | bytes of the key |
//! | 50-51 | zero, for later |
//! | 52-55 | bytes of the whole value |
//! | 56-59 | where in the value this packet's part of it begins |
//! | 60-75 | [`ReplyTo::ip`] |
//! | 76-77 | [`ReplyTo::port`] |
//! | 78-79 | zero, for later |
//! | 80- | the key, and then a part of the value, up to the end of the datagram |
//!
//! Numbers are big-endian, as switches have them.
#![no_std]

extern crate alloc;

mod packet;
mod reply_to;

pub use packet::{Malformed, Packet};
pub use reply_to::ReplyTo;

/// What every packet begins with: "HM".
pub const MAGIC: u16 = 0x484d;
/// Of this layout. A switch passes other versions on as it passes on anything else.
pub const VERSION: u8 = 1;
/// Bytes before the key.
pub const HEADER_BYTES: usize = 80;
/// Stands for no object: a write of it is numbered, and makes nothing dirty. No key hashes to it.
pub const NO_OBJECT: u32 = 0;
/// The UDP port that is reserved for these packets: a switch looks at nothing else.
pub const UDP_PORT: u16 = 6477;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value, in however many packets.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
/// The longest packet: with the headers of UDP and IPv6 it fits into an Ethernet frame of 1,500 bytes, so that nothing on the way
/// cuts it in two.
pub const PACKET_BYTES_MAX: usize = 1452;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// A client reads; the partition's primary answers.
    Read = 1,
    /// A read that a switch has found to be of a clean object: any one replica may answer, if it may be sure.
    FastRead = 2,
    /// A client writes: the first packet, by which the object becomes dirty.
    WriteFirst = 3,
    /// What of a write did not fit into the first packet. It changes nothing in a switch, and bears no number behind one.
    WriteRest = 4,
    /// An answer to a client.
    Reply = 5,
    /// Every later read at any one replica will see the write of this sequence number, and all before it.
    Completion = 6,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 6] = [
        Operation::Read,
        Operation::FastRead,
        Operation::WriteFirst,
        Operation::WriteRest,
        Operation::Reply,
        Operation::Completion,
    ];

    /// The one with this code.
    pub fn of(code: u8) -> Option<Operation> {
        // They are numbered from 1 on, in this order.
        Operation::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// What of the fixed part a switch works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub operation: Operation,
    /// One primary's part of a group's range in one term (the paper's replica group): a number that the group gives out once.
    pub partition: u32,
    /// A hash of the key: what a switch knows an object by. Two keys may have the same.
    pub object: u32,
    /// Which switch has numbered it, or is to: the ids that a group gives to switches only go up. 0 is none.
    pub switch: u32,
    /// In which of its primary's terms.
    pub term: u64,
    /// The number that the switch gave to a write: of one switch and partition they only go up. 0 is none, and so it is behind a
    /// switch that gave none, whatever the sender wrote.
    pub sequence: u64,
    /// Of a fast read: all writes up to this number were complete when it passed the switch.
    pub committed: u64,
    /// The client's own: an answer has that of its question.
    pub tag: u64,
}

impl Header {
    /// Writes what a switch may change (operation, switch, sequence, committed) into a datagram that has been decoded: as if it
    /// were encoded anew with them, but what else is in it is not even looked at.
    ///
    /// # Panics
    /// Where the datagram is shorter than a header.
    pub fn stamp(&self, datagram: &mut [u8]) {
        datagram[3] = self.operation as u8;
        datagram[12..16].copy_from_slice(&self.switch.to_be_bytes());
        datagram[24..32].copy_from_slice(&self.sequence.to_be_bytes());
        datagram[32..40].copy_from_slice(&self.committed.to_be_bytes());
    }
}
