//! Any datagrams from any sources: the forwarded ones and their destinations, against sets.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use header::{Header, NO_OBJECT};
use proptest::prelude::*;

use super::*;
use crate::device::Device;
use crate::dirty::{Region, Shape};
use crate::soft::clients::CLIENT_SECONDS;
use crate::tables::Partition;

/// Returns one of a few addresses: those below [`REPLICAS`] are replicas', 0 is nowhere.
fn address(number: u16) -> ReplyTo {
    ReplyTo { ip: Ipv6Addr::LOCALHOST, port: number }
}

const REPLICAS: u16 = 3;

/// Datagram from one of the addresses: a packet, or a damaged one.
#[derive(Clone, Debug)]
struct Datagram {
    source: u16,
    operation: usize,
    reply_to: u16,
    partition: u32,
    sequence: u64,
    damage: Option<(usize, u8)>,
}

impl Datagram {
    fn bytes(&self) -> Vec<u8> {
        let header = Header {
            operation: Operation::ALL[self.operation],
            partition: self.partition,
            object: 7,
            switch: 1,
            term: 1,
            sequence: self.sequence,
            committed: 0,
            tag: 0,
        };
        let mut bytes = Vec::new();
        Packet { reply_to: address(self.reply_to), ..Packet::of(header, b"key") }.encode(&mut bytes);
        if let Some((place, byte)) = self.damage {
            bytes[place] = byte;
        }
        bytes
    }
}

fn datagram() -> impl Strategy<Value = Datagram> {
    let damage = prop::option::weighted(0.1, (0usize..80, any::<u8>()));
    (1u16..8, 0usize..6, 0u16..8, 1u32..4, 0u64..4, damage).prop_map(
        |(source, operation, reply_to, partition, sequence, damage)| {
            // Most senders want the answer themselves.
            let reply_to = if sequence > 0 { source } else { reply_to };
            Datagram { source, operation, reply_to, partition, sequence, damage }
        },
    )
}

fn device() -> Device {
    let device = Device::new(Shape { stages: 1, slots: 8 }, 2);
    let mut state = device.lock();
    for index in 0..2 {
        let region = Region { first: 4 * index, slots: 4 };
        // One of the replicas has no port.
        let replicas = vec![(1, 1), (2, 1), (9, 1)];
        let partition = Partition { index, region, term: 1, switch: 1, active: true, primary: index + 1, replicas };
        state.set_partition(index + 1, partition).unwrap();
    }
    for replica in 1..REPLICAS {
        state.ports.set(replica.into(), address(replica).address().unwrap()).unwrap();
    }
    drop(state);
    device
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn it_is_no_relay(batches in prop::collection::vec((prop::collection::vec(datagram(), 1..8), 0u32..40), 1..12)) {
        let device = device();
        let (mut forwarder, mut batch, mut plan, mut now) = (Forwarder::new(1), Batch::default(), SendPlan::default(), 1);
        // Time of the last request from each address.
        let mut asked: HashMap<ReplyTo, u32> = HashMap::new();
        let (mut received, mut is_written) = (0, false);
        for (datagrams, seconds) in batches {
            now += seconds;
            for (place, datagram) in datagrams.iter().enumerate() {
                let bytes = datagram.bytes();
                batch.bytes[place][..bytes.len()].copy_from_slice(&bytes);
                (batch.lengths[place], batch.sources[place]) = (bytes.len(), address(datagram.source));
            }
            batch.count = datagrams.len();
            received += datagrams.len() as u64;
            let before = batch.bytes.clone();
            forwarder.decide(&mut device.lock(), &mut batch, &mut plan, now);
            let mut sends = plan.sends().iter().copied().peekable();
            for (place, datagram) in datagrams.iter().enumerate() {
                let to = sends.next_if(|(of, _)| *of == place).map(|(_, to)| to);
                let was = Packet::decode(&before[place][..batch.lengths[place]]);
                let (Ok(was), source) = (was, address(datagram.source)) else {
                    prop_assert_eq!(to, None);
                    continue;
                };
                let is_replica = datagram.source < REPLICAS;
                let is_question = !matches!(was.header.operation, Operation::Reply | Operation::Completion);
                let is_write = matches!(was.header.operation, Operation::WriteFirst | Operation::WriteRest);
                if is_write && !is_replica {
                    prop_assert_eq!(to, None);
                    continue;
                }
                if is_question && was.reply_to == source {
                    asked.insert(source, now);
                }
                let Some(to) = to else { continue };
                if is_question {
                    prop_assert!((1..REPLICAS).contains(&to.port) && to == address(to.port));
                    is_written |= was.header.operation == Operation::WriteFirst && was.header.object != NO_OBJECT;
                    prop_assert!(is_replica || was.reply_to == source || was.reply_to.port == 0);
                } else {
                    prop_assert!(is_replica && to == was.reply_to);
                    prop_assert!(asked.get(&to).is_some_and(|then| now - then < CLIENT_SECONDS));
                }
                // Fields that the switch may not write are unchanged.
                let is = Packet::decode(batch.get(place)).unwrap();
                let Header { operation, switch, sequence, committed, .. } = is.header;
                let header = Header { operation, switch, sequence, committed, ..was.header };
                prop_assert_eq!(is, Packet { header, ..was });
            }
            prop_assert_eq!(sends.next(), None);
            // Every packet is counted once.
            let mut state = device.lock();
            let slots = state.pipeline().dirty().stages().iter().flat_map(|stage| stage.iter());
            prop_assert_eq!(slots.filter(|slot| slot.sequence > 0).count() > 0, is_written);
            state.counters.forwarded += plan.sends().len() as u64;
            let counters = &state.counters;
            let cut: u64 = Cut::ALL.iter().map(|cut| counters.of(*cut)).sum();
            prop_assert_eq!(counters.received, received);
            prop_assert_eq!(counters.forwarded + counters.absorbed + cut, received);
        }
    }
}
