//! Encoding and decoding of a packet.

use alloc::vec::Vec;

use crate::{
    HEADER_BYTES, Header, KEY_BYTES_MAX, MAGIC, Operation, PACKET_BYTES_MAX, ReplyTo, VALUE_BYTES_MAX, VERSION,
};

/// Packet: a header, a key, and a part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Fields that a switch works on.
    pub header: Header,
    /// Address for the answer. It is a claim, like all fields of a packet.
    pub reply_to: ReplyTo,
    /// Key, at most [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// Length of the whole value in bytes, at most [`VALUE_BYTES_MAX`].
    pub value_bytes: u32,
    /// Offset in the value at which [`Packet::value`] begins.
    pub value_at: u32,
    /// This packet's part of the value; it ends within the value.
    pub value: &'a [u8],
}

/// Reason for which bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The datagram is shorter than a header or longer than [`PACKET_BYTES_MAX`].
    #[error("a packet of {0} bytes")]
    Size(usize),
    /// The datagram does not begin with [`MAGIC`].
    #[error("not one of ours")]
    Magic,
    /// The layout has another version.
    #[error("version {0}")]
    Version(u8),
    /// No operation has this code.
    #[error("operation {0}")]
    Operation(u8),
    /// The lengths contradict each other, or a reserved byte is not zero.
    #[error("lengths that cannot be")]
    Lengths,
}

/// Returns the bytes of a number at a fixed place of a header.
fn at<const N: usize>(bytes: &[u8; HEADER_BYTES], place: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[place..place + N]);
    number
}

impl<'a> Packet<'a> {
    /// Returns a packet without a value and without an address for the answer.
    pub fn of(header: Header, key: &'a [u8]) -> Packet<'a> {
        Packet { header, reply_to: ReplyTo::NOWHERE, key, value_bytes: 0, value_at: 0, value: &[] }
    }

    /// Returns whether the packet can be sent: see [`Packet::decode`].
    pub fn fits(&self) -> bool {
        let size = HEADER_BYTES + self.key.len() + self.value.len();
        size <= PACKET_BYTES_MAX && self.key.len() <= KEY_BYTES_MAX && self.is_part()
    }

    /// Returns whether the part of the value lies within the value.
    fn is_part(&self) -> bool {
        let end = u64::from(self.value_at) + self.value.len() as u64;
        end <= u64::from(self.value_bytes) && self.value_bytes as usize <= VALUE_BYTES_MAX
    }

    /// Appends the encoded packet to `out`.
    ///
    /// # Panics
    /// If the packet does not fit ([`Packet::fits`]): senders cut values into parts.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.fits(), "a key of {} and a value of {} bytes", self.key.len(), self.value.len());
        let Header { operation, partition, object, switch, term, sequence, committed, tag } = self.header;
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.extend_from_slice(&[VERSION, operation as u8]);
        for number in [partition, object, switch] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [term, sequence, committed, tag] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        // The key is at most `KEY_BYTES_MAX` bytes long.
        out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.value_bytes.to_be_bytes());
        out.extend_from_slice(&self.value_at.to_be_bytes());
        out.extend_from_slice(&self.reply_to.ip.octets());
        out.extend_from_slice(&self.reply_to.port.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }

    /// Decodes a whole datagram. Nothing in it is trusted: all lengths are compared with the bytes that are there.
    ///
    /// # Errors
    /// [`Malformed`], with the first contradiction that was found.
    pub fn decode(bytes: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(Malformed::Size(bytes.len()));
        }
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Size(bytes.len()))?;
        if at(fixed, 0) != MAGIC.to_be_bytes() {
            return Err(Malformed::Magic);
        }
        if fixed[2] != VERSION {
            return Err(Malformed::Version(fixed[2]));
        }
        let operation = Operation::of(fixed[3]).ok_or(Malformed::Operation(fixed[3]))?;
        let (short, long) =
            (|place| u32::from_be_bytes(at(fixed, place)), |place| u64::from_be_bytes(at(fixed, place)));
        let header = Header {
            operation,
            partition: short(4),
            object: short(8),
            switch: short(12),
            term: long(16),
            sequence: long(24),
            committed: long(32),
            tag: long(40),
        };
        let key_bytes = usize::from(u16::from_be_bytes(at(fixed, 48)));
        if key_bytes > KEY_BYTES_MAX || at(fixed, 50) != [0, 0] || at(fixed, 78) != [0, 0] {
            return Err(Malformed::Lengths);
        }
        let reply_to = ReplyTo { ip: at::<16>(fixed, 60).into(), port: u16::from_be_bytes(at(fixed, 76)) };
        let (key, value) = rest.split_at_checked(key_bytes).ok_or(Malformed::Lengths)?;
        let packet = Packet { header, reply_to, key, value_bytes: short(52), value_at: short(56), value };
        if packet.is_part() { Ok(packet) } else { Err(Malformed::Lengths) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn header(operation: Operation) -> Header {
        Header {
            operation,
            partition: 0x0102_0304,
            object: 0x0506_0708,
            switch: 0x090a_0b0c,
            term: 0x1112_1314_1516_1718,
            sequence: 0x2122_2324_2526_2728,
            committed: 0x3132_3334_3536_3738,
            tag: 0x4142_4344_4546_4748,
        }
    }

    const REPLY_TO: ReplyTo =
        ReplyTo { ip: Ipv6Addr::new(0x5152, 0x5354, 0x5556, 0x5758, 0x595a, 0x5b5c, 0x5d5e, 0x5f60), port: 0x6162 };

    fn encoded(packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        bytes
    }

    /// The layout is a contract with switches.
    #[test]
    fn the_layout_is_as_it_was() {
        let packet = Packet {
            header: header(Operation::WriteFirst),
            reply_to: REPLY_TO,
            key: b"key",
            value_bytes: 300,
            value_at: 2,
            value: b"value",
        };
        let golden = [
            &[0x48, 0x4d, 1, 3][..],
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
            &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
            &[0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28],
            &[0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38],
            &[0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48],
            &[0, 3, 0, 0, 0, 0, 1, 44, 0, 0, 0, 2],
            &[0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x60],
            &[0x61, 0x62, 0, 0],
            b"keyvalue",
        ]
        .concat();
        assert_eq!(encoded(&packet), golden);
        assert_eq!(Packet::decode(&golden), Ok(packet));
        let codes: Vec<u8> = Operation::ALL.iter().map(|operation| *operation as u8).collect();
        assert_eq!(codes, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn what_is_no_packet() {
        let good = encoded(&Packet::of(header(Operation::Read), b"key"));
        for length in 0..HEADER_BYTES {
            assert_eq!(Packet::decode(&good[..length]), Err(Malformed::Size(length)));
        }
        assert_eq!(Packet::decode(&vec![0; PACKET_BYTES_MAX + 1]), Err(Malformed::Size(PACKET_BYTES_MAX + 1)));
        let with = |place: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[place] = byte;
            Packet::decode(&bytes).map(|_| ())
        };
        assert_eq!(with(0, 0), Err(Malformed::Magic));
        assert_eq!(with(2, 2), Err(Malformed::Version(2)));
        assert_eq!((with(3, 0), with(3, 7)), (Err(Malformed::Operation(0)), Err(Malformed::Operation(7))));
        // A key longer than the datagram, or than any key; reserved bytes; a part outside of its value.
        for (place, byte) in [(49, 4), (48, 0xff), (50, 1), (51, 1), (78, 1), (79, 1), (49, 2), (56, 1)] {
            assert_eq!(with(place, byte), Err(Malformed::Lengths), "{place}");
        }
        // A value longer than the limit.
        assert_eq!(with(52, 1), Err(Malformed::Lengths));
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(
            code in 1u8..=6,
            key in proptest::collection::vec(any::<u8>(), 0..KEY_BYTES_MAX),
            value in proptest::collection::vec(any::<u8>(), 0..PACKET_BYTES_MAX - HEADER_BYTES - KEY_BYTES_MAX),
            before in 0u32..1000,
            behind in 0u32..1000,
            (ip, port) in any::<(u128, u16)>(),
        ) {
            let value_bytes = before + behind + value.len() as u32;
            let header = header(Operation::of(code).unwrap());
            let reply_to = ReplyTo { ip: ip.into(), port };
            let packet = Packet { header, reply_to, key: &key, value_bytes, value_at: before, value: &value };
            prop_assert!(packet.fits());
            let bytes = encoded(&packet);
            prop_assert_eq!(Packet::decode(&bytes), Ok(packet));
        }

        /// A stamp in place equals a new encoding, and leaves all bytes that a switch may not change.
        #[test]
        fn a_stamp_is_as_a_new_encoding(
            (code, stamped_code) in (1u8..=6, 1u8..=6),
            (switch, sequence, committed) in any::<(u32, u64, u64)>(),
            value in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let header = header(Operation::of(code).unwrap());
            let packet =
                Packet { value_bytes: value.len() as u32, value: &value, reply_to: REPLY_TO, ..Packet::of(header, b"key") };
            let operation = Operation::of(stamped_code).unwrap();
            let stamped = Header { operation, switch, sequence, committed, ..header };
            let mut bytes = encoded(&packet);
            // A switch must not change the rest of a header.
            Header { partition: 0, object: 0, term: 0, tag: 0, ..stamped }.stamp(&mut bytes);
            prop_assert_eq!(&bytes, &encoded(&Packet { header: stamped, ..packet }));
        }

        /// Any bytes are either refused, or encode to themselves again.
        #[test]
        fn nonsense_is_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            places in proptest::collection::vec((0usize..HEADER_BYTES, any::<u8>()), 0..4),
            begins_well: bool,
        ) {
            if begins_well && bytes.len() >= HEADER_BYTES {
                bytes[..HEADER_BYTES].copy_from_slice(&encoded(&Packet::of(header(Operation::Read), b""))[..HEADER_BYTES]);
                for (place, byte) in places {
                    bytes[place] = byte;
                }
            }
            if let Ok(packet) = Packet::decode(&bytes) {
                prop_assert!(packet.fits());
                prop_assert_eq!(encoded(&packet), bytes);
            }
        }
    }
}
