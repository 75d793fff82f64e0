//! The P4 program treats packets as the pipeline in Rust does.

#[allow(dead_code)]
mod p4;
mod stories;

use header::{HEADER_BYTES, Header, Operation, UDP_PORT};
use p4::parser;
use p4::run::{Machine, Packet};
use p4::syntax::Program;
use proptest::prelude::*;
use switch::dirty::{Region, Shape, Slot};
use switch::pipeline::{Pipeline, REGISTERS, Verdict, Why};
use switch::tables::{Partition, PartitionError, Replica};
use switch::trace::{Action, Outcome, Step};

/// Destination address of packets that are forwarded to it.
const ELSEWHERE: [u8; 4] = [192, 0, 2, 1];

fn program() -> Program {
    parser::program(include_str!("../p4/harmonia.p4"))
}

/// The program, with the interface of the pipeline.
struct Switch<'a> {
    machine: Machine<'a>,
}

impl Switch<'_> {
    fn new(program: &Program) -> Switch<'_> {
        let mut machine = Machine::new(program, "HarmoniaIngress");
        // Every packet has one next hop.
        let hop = vec![("to_next_hop".to_owned(), vec![1, 2, 3])];
        for table in ["ipv4_lpm", "ipv6_lpm"] {
            machine.tables.entry(table.to_owned()).or_default().insert(0, hop.clone());
        }
        Switch { machine }
    }

    fn set(&mut self, number: u32, partition: &Partition) {
        let Partition { index, region, term, switch, active, primary, ref replicas } = *partition;
        let numbers = [index, switch, active.into(), primary, region.first, region.slots].map(u128::from);
        let [index, switch, active, primary, first, slots] = numbers;
        let arguments = vec![index, term.into(), switch, active, primary, first, slots];
        let mut set = |table: &str, key: u32, calls| {
            self.machine.tables.entry(table.to_owned()).or_default().insert(key.into(), calls);
        };
        set("partitions", number, vec![("set_partition".to_owned(), arguments)]);
        let to = |replica: Replica| ("to_replica".to_owned(), vec![u128::from(replica)]);
        let each = |(replica, weight): &(Replica, u8)| std::iter::repeat_n(to(*replica), usize::from(*weight));
        set("replicas", number, replicas.iter().flat_map(each).collect());
        // The address of a replica is its number.
        for replica in replicas.iter().map(|(replica, _)| *replica).chain([partition.primary]) {
            set("ports", replica, vec![("set_port".to_owned(), vec![replica.into(), 7])]);
        }
    }

    fn remove(&mut self, number: u32) {
        for table in ["partitions", "replicas"] {
            self.machine.tables.entry(table.to_owned()).or_default().remove(&number.into());
        }
    }

    fn run(&mut self, frame: &[u8], chance: u32) -> Packet {
        let mut packet = self.machine.packet(frame, chance);
        self.machine.parse(&mut packet);
        self.machine.process(&mut packet);
        packet
    }

    fn process(&mut self, header: &Header, chance: u32) -> Outcome {
        let before = self.machine.counters.clone();
        let packet = self.run(&frame(&datagram(header)), chance);
        assert!(packet.valid.contains("hdr.harmonia") && !packet.is_short);
        let counted = (0..11).filter(|place| self.machine.counters.get(place) != before.get(place)).collect::<Vec<_>>();
        let [counted] = counted[..] else { panic!("{counted:?}: a packet is counted once") };
        let get = |field: &str| packet.get(&format!("hdr.harmonia.{field}"));
        let header = Header {
            operation: Operation::of(get("operation") as u8).unwrap(),
            partition: get("partition") as u32,
            object: get("object") as u32,
            switch: get("switch_id") as u32,
            term: get("term") as u64,
            sequence: get("sequence") as u64,
            committed: get("committed") as u64,
            tag: get("tag") as u64,
        };
        let verdict = match (packet.is_dropped, packet.get("hdr.ipv4.destination") as u32) {
            (true, _) => Verdict::Drop(match counted {
                6 => Why::NoPartition,
                7 => Why::Full,
                8 => Why::Stale,
                other => panic!("dropped as {other}"),
            }),
            (false, address) if address == u32::from_be_bytes(ELSEWHERE) => Verdict::On,
            (false, replica) => {
                assert_eq!(packet.get("hdr.udp.destination"), 7);
                Verdict::To(replica)
            }
        };
        if verdict != Verdict::On {
            // The counter that rises follows from the header.
            let wanted = match header.operation {
                Operation::FastRead => 0,
                Operation::Read => 1,
                Operation::WriteFirst => 2,
                _ => 3,
            };
            assert!(packet.is_dropped || counted == wanted);
        }
        Outcome { verdict, header }
    }
}

fn datagram(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    header::Packet::of(*header, b"key").encode(&mut bytes);
    bytes
}

/// Returns a frame with a datagram for the reserved port.
fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x08, 0x00];
    let length = |bytes: usize| (bytes as u16).to_be_bytes();
    frame.extend_from_slice(&[0x45, 0]);
    frame.extend_from_slice(&length(20 + 8 + payload.len()));
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 9]);
    frame.extend_from_slice(&ELSEWHERE);
    frame.extend_from_slice(&9999u16.to_be_bytes());
    frame.extend_from_slice(&UDP_PORT.to_be_bytes());
    frame.extend_from_slice(&length(8 + payload.len()));
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}

/// Returns the visible part of an outcome: the header of a dropped packet has no meaning.
fn seen(outcome: Outcome) -> (Verdict, Option<Header>) {
    let is_dropped = matches!(outcome.verdict, Verdict::Drop(_));
    (outcome.verdict, (!is_dropped).then_some(outcome.header))
}

#[test]
fn it_does_what_the_stories_say() {
    let program = program();
    for (name, trace) in stories::all() {
        let mut switch = Switch::new(&program);
        let mut outcomes = trace.run().unwrap().into_iter();
        for Step { line, action } in &trace.steps {
            match action {
                Action::Set(number, partition) => switch.set(*number, partition),
                Action::Remove(number) => switch.remove(*number),
                Action::Packet { header, chance, .. } => {
                    let outcome = outcomes.next().unwrap();
                    assert_eq!(seen(switch.process(header, *chance)), seen(outcome), "{name}, line {line}");
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Set(u32, Partition),
    Remove(u32),
    Packet(Header, u32),
}

fn event() -> impl Strategy<Value = Event> {
    let partition = (0u32..2, 0u32..3, 0u32..3, any::<bool>(), proptest::collection::vec((1u32..4, 0u8..3), 0..3));
    let set = partition.prop_map(|(number, slots, switch, active, replicas)| {
        let region = Region { first: 8 * number, slots: 1 << slots };
        let partition = Partition { index: number, region, term: 1, switch, active, primary: 9, replicas };
        Event::Set(number, partition)
    });
    let header = (0usize..6, 0u32..3, 0u32..6, 0u32..3, 1u64..20, 0u64..12, any::<bool>());
    let packet =
        (header, any::<u32>()).prop_map(|((operation, partition, object, switch, term, sequence, is_late), chance)| {
            // Few packets are of another term.
            let term = if term == 2 { 2 } else { 1 };
            let committed = u64::from(is_late);
            let operation = Operation::ALL[operation];
            Event::Packet(Header { operation, partition, object, switch, term, sequence, committed, tag: 5 }, chance)
        });
    prop_oneof![2 => set, 1 => (0u32..2).prop_map(Event::Remove), 30 => packet]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_does_what_the_pipeline_does(events in proptest::collection::vec(event(), 1..80)) {
        let program = program();
        let mut switch = Switch::new(&program);
        let mut pipeline = Pipeline::new(Shape { stages: 3, slots: 16 }, REGISTERS);
        for event in events {
            match event {
                Event::Set(number, partition) => {
                    // The program itself would accept this setting, too: a controller does not ask for it.
                    match pipeline.set(number, partition.clone()) {
                        Ok(()) => switch.set(number, &partition),
                        Err(error) => prop_assert!(matches!(error, PartitionError::Moves(_)), "{error}"),
                    }
                }
                Event::Remove(number) => {
                    pipeline.remove(number);
                    switch.remove(number);
                }
                Event::Packet(header, chance) => {
                    let mut passed = header;
                    let verdict = pipeline.process(&mut passed, chance);
                    let wanted = seen(Outcome { verdict, header: passed });
                    prop_assert_eq!(seen(switch.process(&header, chance)), wanted);
                }
            }
        }
        same_registers(&switch, &pipeline);
    }
}

/// Asserts that the registers have the same content, too.
fn same_registers(switch: &Switch<'_>, pipeline: &Pipeline) {
    for (place, register) in pipeline.registers().iter().enumerate() {
        let cells = switch.machine.registers.get("partition_state");
        let cell = cells.and_then(|cells| cells.get(&(place as u128))).map(|cell| cell.bytes()).unwrap_or(vec![0; 24]);
        let numbers = [register.mark.partition.to_be_bytes(), register.mark.switch.to_be_bytes()].concat();
        assert_eq!(&cell[..8], &numbers[..]);
        assert_eq!(&cell[8..16], &register.sequence.to_be_bytes());
        assert_eq!(&cell[16..], &register.committed.to_be_bytes());
    }
    for (stage, slots) in pipeline.dirty().stages().iter().enumerate() {
        let cells = switch.machine.registers.get(&format!("stage_{stage}"));
        for (place, slot) in slots.iter().enumerate() {
            let cell = cells.and_then(|cells| cells.get(&(place as u128))).map(|cell| cell.bytes());
            let numbers = [slot.mark.partition, slot.mark.switch, slot.object].map(u32::to_be_bytes).concat();
            let bytes = [&numbers[..], &slot.sequence.to_be_bytes()].concat();
            assert_eq!(cell.unwrap_or(vec![0; 20]), bytes, "stage {stage}, slot {place}");
        }
    }
}

/// Objects are at the same places in all stages, for each size of a region.
#[test]
fn places_are_those_of_the_pipeline() {
    let program = program();
    for (slots, objects) in [(16, 60), (64, 250), (1 << 10, 1000), (64 << 10, 1000)] {
        let (mut switch, mut pipeline) = (Switch::new(&program), Pipeline::new(Shape::DEFAULT, REGISTERS));
        let region = Region { first: (64 << 10) - slots, slots };
        let partition = Partition { index: 3, region, term: 1, switch: 1, active: true, primary: 9, replicas: vec![] };
        switch.set(1, &partition);
        pipeline.set(1, partition).unwrap();
        let operation = Operation::WriteFirst;
        for number in 1..=objects {
            let object = u32::wrapping_mul(number, 0x9e37_79b9);
            let header =
                Header { operation, partition: 1, object, switch: 0, term: 1, sequence: 0, committed: 0, tag: 0 };
            let mut passed = header;
            let verdict = pipeline.process(&mut passed, 0);
            assert_eq!(seen(switch.process(&header, 0)), seen(Outcome { verdict, header: passed }));
        }
        same_registers(&switch, &pipeline);
        let taken = |stage: &[Slot]| stage.iter().filter(|slot| slot.sequence > 0).count();
        let taken: Vec<_> = pipeline.dirty().stages().iter().map(|stage| taken(stage)).collect();
        assert!(slots > 1 << 10 || taken.iter().all(|taken| *taken > 0), "{slots} slots: {taken:?}");
    }
}

/// A packet that is not of this protocol is forwarded as by any router.
#[test]
fn everything_else_is_forwarded() {
    let program = program();
    let mut switch = Switch::new(&program);
    let header = Header {
        operation: Operation::Read,
        partition: 1,
        object: 0,
        switch: 0,
        term: 0,
        sequence: 0,
        committed: 0,
        tag: 0,
    };
    let ours = frame(&datagram(&header));
    assert!(switch.run(&ours, 0).is_dropped, "it is of no partition");
    let with = |place: usize, bytes: &[u8]| {
        let mut frame = ours.clone();
        frame[place..place + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut with_options = with(14, &[0x46]);
    with_options.splice(34..34, [1, 1, 1, 1]);
    for (what, frame, headers) in [
        ("another version", with(44, &[2]), 3),
        ("another magic", with(42, &[0]), 3),
        ("another port", with(36, &[0x12]), 3),
        ("another protocol", with(23, &[6]), 2),
        ("a fragment that is not the first", with(20, &[0, 1]), 2),
        ("a fragment that is not the last", with(20, &[0x20, 0]), 2),
    ] {
        let packet = switch.run(&frame, 0);
        assert_eq!((packet.is_dropped, packet.valid.len()), (false, headers), "{what}");
        assert_eq!((packet.get("hdr.ipv4.ttl"), packet.get("standard_metadata.egress_spec")), (63, 1), "{what}");
        assert_eq!((packet.get("hdr.ethernet.source"), packet.get("hdr.ethernet.destination")), (2, 3), "{what}");
    }
    // Options have no effect.
    let packet = switch.run(&with_options, 0);
    assert!(packet.is_dropped && packet.valid.contains("hdr.harmonia"));

    let mut ipv6 = with(12, &[0x86, 0xdd]);
    ipv6[21] = 64;
    let packet = switch.run(&ipv6, 0);
    assert!(!packet.is_dropped && packet.valid.contains("hdr.ipv6") && !packet.valid.contains("hdr.udp"));
    assert_eq!(packet.get("hdr.ipv6.hop_limit"), 63);

    for (what, frame) in [
        ("it has lived long enough", with(22, &[1])),
        ("neither", with(12, &[0x08, 0x06])),
        ("too few words", with(14, &[0x44])),
        ("no such operation", with(45, &[0])),
        ("no such operation", with(45, &[7])),
        ("cut off", ours[..42 + 47].to_vec()),
    ] {
        assert!(switch.run(&frame, 0).is_dropped, "{what}");
    }
    assert_eq!(switch.machine.counters[&10], 3, "malformed");
    assert!(ours.len() >= 42 + HEADER_BYTES);

    // A replica without a port.
    let region = Region { first: 0, slots: 1 };
    let partition = Partition { index: 0, region, term: 0, switch: 0, active: false, primary: 5, replicas: vec![] };
    switch.set(1, &partition);
    assert!(!switch.run(&ours, 0).is_dropped);
    switch.machine.tables.remove("ports");
    assert!(switch.run(&ours, 0).is_dropped);
    assert_eq!(switch.machine.counters[&9], 1);
}
