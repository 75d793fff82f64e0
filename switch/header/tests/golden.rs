//! Bytes of packets that pass a switch, as `tests/golden` has them: none changes without the header's version.

use std::net::Ipv6Addr;

use golden::{Format, Golden};
use header::{Header, Operation, Packet, ReplyTo, VERSION};

const PACKETS: Format =
    Format { version: VERSION as u64, constant: "VERSION in switch/header/src/lib.rs", package: "header" };

/// Returns all operations. The match is exhaustive, so that a new operation has to be added here.
fn operations() -> Vec<Operation> {
    let next = |operation: &Operation| match operation {
        Operation::Read => Some(Operation::FastRead),
        Operation::FastRead => Some(Operation::WriteFirst),
        Operation::WriteFirst => Some(Operation::WriteRest),
        Operation::WriteRest => Some(Operation::Reply),
        Operation::Reply => Some(Operation::Completion),
        Operation::Completion => None,
    };
    std::iter::successors(Some(Operation::Read), next).collect()
}

fn packet(operation: Operation) -> Packet<'static> {
    let header = Header {
        operation,
        partition: 0x0102_0304,
        object: 0x0506_0708,
        switch: 0x090a_0b0c,
        term: 0x1112_1314_1516_1718,
        sequence: 0x2122_2324_2526_2728,
        committed: 0x3132_3334_3536_3738,
        tag: 0x4142_4344_4546_4748,
    };
    let ip = Ipv6Addr::new(0x5152, 0x5354, 0x5556, 0x5758, 0x595a, 0x5b5c, 0x5d5e, 0x5f60);
    Packet {
        header,
        reply_to: ReplyTo { ip, port: 0x6162 },
        key: b"a key",
        value_bytes: 300,
        value_at: 2,
        value: b"a value",
    }
}

#[test]
fn golden_packets() {
    let mut golden = Golden::new(env!("CARGO_MANIFEST_DIR"), "packets", PACKETS);
    for operation in operations() {
        let mut bytes = Vec::new();
        packet(operation).encode(&mut bytes);
        golden.add(&format!("{operation:?}"), &bytes);
    }
    golden.check();
    for operation in operations() {
        assert_eq!(Packet::decode(golden.bytes(&format!("{operation:?}"))), Ok(packet(operation)), "{operation:?}");
    }
}
