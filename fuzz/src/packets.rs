//! Decoder of the packets of clients, a switch and replicas.

use header::{Header, Operation, Packet, ReplyTo};

/// Decodes a packet. It is encoded to the same bytes, and a switch that stamps it changes only the fields that it
/// writes.
pub fn packet(bytes: &[u8]) -> bool {
    let Ok(packet) = Packet::decode(bytes) else { return false };
    assert_eq!(encoded(&packet), bytes);
    let header = Header { operation: Operation::FastRead, switch: 1, sequence: 2, committed: 3, ..packet.header };
    let mut stamped = bytes.to_vec();
    header.stamp(&mut stamped);
    assert_eq!(Packet::decode(&stamped), Ok(Packet { header, ..packet }));
    true
}

pub fn packets() -> Vec<Vec<u8>> {
    let header = |operation| Header {
        operation,
        partition: 1,
        object: 0x0506_0708,
        switch: 2,
        term: 3,
        sequence: 4,
        committed: 5,
        tag: 0x4142_4344_4546_4748,
    };
    let reply_to = ReplyTo { ip: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), port: 6477 };
    let bare = |operation| Packet { reply_to, ..Packet::of(header(operation), b"key") };
    let part = Packet { value_bytes: 2000, value_at: 700, value: &[7; 300], ..bare(Operation::WriteRest) };
    let all = Operation::ALL.map(|operation| encoded(&bare(operation)));
    all.into_iter().chain([encoded(&part), encoded(&Packet::of(header(Operation::Completion), b""))]).collect()
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes);
    bytes
}
