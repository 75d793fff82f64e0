//! Packet that clients, a switch and replicas exchange, inside the payload of a UDP datagram (`Harmonia §6.1`, `§7.1`).
//!
//! A packet has a fixed part, which a switch reads and writes at fixed offsets. A key and a value follow, which no switch reads:
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
//! | 56-59 | offset in the value at which this packet's part of it begins |
//! | 60-75 | [`ReplyTo::ip`] |
//! | 76-77 | [`ReplyTo::port`] |
//! | 78-79 | zero, for later |
//! | 80- | the key, then a part of the value, up to the end of the datagram |
//!
//! Numbers are big-endian, as in switches.
//!
//! # Examples
//!
//! ```
//! use header::{Header, Operation, Packet};
//!
//! let header = Header {
//!     operation: Operation::Read,
//!     partition: 5,
//!     object: 77,
//!     switch: 0,
//!     term: 7,
//!     sequence: 0,
//!     committed: 0,
//!     tag: 1,
//! };
//! let mut datagram = Vec::new();
//! Packet::of(header, b"greeting").encode(&mut datagram);
//! assert_eq!(Packet::decode(&datagram), Ok(Packet::of(header, b"greeting")));
//! ```
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod packet;
mod reply_to;

pub use packet::{Malformed, Packet};
pub use reply_to::ReplyTo;

/// First two bytes of every packet: "HM".
pub const MAGIC: u16 = 0x484d;
/// Version of this layout. A switch in hardware forwards packets of other versions like any foreign traffic; one in software
/// drops them.
pub const VERSION: u8 = 1;
/// Length of the header in bytes: the offset of the key.
pub const HEADER_BYTES: usize = 80;
/// Stands for no object: a switch numbers a write of it and marks nothing as dirty. No key hashes to it.
pub const NO_OBJECT: u32 = 0;
/// UDP port that is reserved for these packets: a switch inspects no other port.
pub const UDP_PORT: u16 = 6477;
/// Upper limit of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Upper limit of a value, in bytes, over all its packets.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
/// Upper limit of a packet, in bytes. With the headers of UDP and IPv6 it fits into an Ethernet frame of 1,500 bytes, so that no
/// hop fragments it.
pub const PACKET_BYTES_MAX: usize = 1452;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Read of a client; the partition's primary answers.
    Read = 1,
    /// Read that a switch has found to be of a clean object: any one replica may answer, if it can be sure.
    FastRead = 2,
    /// First packet of a client's write: by it the object becomes dirty.
    WriteFirst = 3,
    /// Rest of a write, behind its first packet. It changes nothing in a switch, and has no number when it leaves one.
    WriteRest = 4,
    /// Answer to a client.
    Reply = 5,
    /// Completion: every later read at any one replica will see the write of this sequence number, and all before it.
    Completion = 6,
}

impl Operation {
    /// All operations, in the order of their codes.
    pub const ALL: [Operation; 6] = [
        Operation::Read,
        Operation::FastRead,
        Operation::WriteFirst,
        Operation::WriteRest,
        Operation::Reply,
        Operation::Completion,
    ];

    /// Returns the operation with this code, or `None` if there is none.
    pub fn of(code: u8) -> Option<Operation> {
        // The codes begin at 1 and follow the order of `ALL`.
        Operation::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// Fields of the fixed part that a switch works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the packet.
    pub operation: Operation,
    /// Number of one primary's part of a group's range in one term (the paper's replica group). A group assigns each number once.
    pub partition: u32,
    /// Hash of the key, by which a switch knows an object. Two keys may have the same hash.
    pub object: u32,
    /// Id of the switch that numbered the packet, or that is to number it. The ids that a group gives to switches only increase.
    /// 0 is none.
    pub switch: u32,
    /// Term of the partition's primary.
    pub term: u64,
    /// Number that the switch gave to a write; for one switch and partition it only increases. 0 is none. A switch that gives no
    /// number writes 0, over any number of the sender.
    pub sequence: u64,
    /// In a fast read: all writes up to this number were complete when the read passed the switch.
    pub committed: u64,
    /// Tag of the client's choice: an answer has the tag of its request.
    pub tag: u64,
}

impl Header {
    /// Writes the fields that a switch may change (operation, switch, sequence, committed) into a datagram that has been decoded.
    /// The result equals a new encoding with these fields. No other byte is read or written.
    ///
    /// # Panics
    /// If the datagram is shorter than a header.
    pub fn stamp(&self, datagram: &mut [u8]) {
        datagram[3] = self.operation as u8;
        datagram[12..16].copy_from_slice(&self.switch.to_be_bytes());
        datagram[24..32].copy_from_slice(&self.sequence.to_be_bytes());
        datagram[32..40].copy_from_slice(&self.committed.to_be_bytes());
    }
}
