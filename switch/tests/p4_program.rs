//! The P4 program, its description for controllers, and the pipeline in Rust agree.
#![cfg(feature = "p4runtime")]

#[allow(dead_code)]
mod p4;

use std::collections::BTreeMap;

use header::{HEADER_BYTES, Header, MAGIC, NO_OBJECT, Operation, Packet, UDP_PORT, VERSION};
use p4::parser;
use p4::syntax::{Annotation, Control, Expression, Program, Type};
use switch::dirty::Shape;
use switch::p4rt::p4info::{self, p4info};
use switch::p4rt::proto::p4::config::v1::match_field::{Match, MatchType};
use switch::p4rt::proto::p4::config::v1::{P4BitTypeSpec, Table, p4_data_type_spec};
use switch::p4rt::proto::p4::config::v1::{
    Preamble, action_ref::Scope, counter_spec, p4_bitstring_like_type_spec as bits,
};
use switch::p4rt::target::Counted;
use switch::pipeline::REGISTERS;

fn program() -> Program {
    parser::program(include_str!("../p4/harmonia.p4"))
}

fn ingress(program: &Program) -> &Control {
    &program.controls["HarmoniaIngress"]
}

fn annotated<'a>(annotations: &'a [Annotation], name: &str) -> Option<&'a Annotation> {
    annotations.iter().find(|annotation| annotation.name == name)
}

fn id(annotations: &[Annotation]) -> u32 {
    annotated(annotations, "id").and_then(|id| id.number).expect("an explicit id") as u32
}

fn number(expression: &Expression) -> u128 {
    let Expression::Number(number, _) = expression else { panic!("{expression:?} is no number") };
    *number
}

/// Asserts that a part of the description has the name and the id of the program.
fn same(preamble: &Option<Preamble>, name: &str, annotations: &[Annotation], prefix: u32) {
    let preamble = preamble.as_ref().expect("a preamble");
    assert_eq!((preamble.name.as_str(), preamble.alias.as_str()), (&*format!("HarmoniaIngress.{name}"), name));
    assert_eq!(preamble.id, id(annotations), "{name}");
    assert_eq!(preamble.id >> 24, prefix, "{name}");
}

fn alias(preamble: &Option<Preamble>) -> &str {
    &preamble.as_ref().expect("a preamble").alias
}

#[test]
fn actions_are_described() {
    let program = program();
    let actions = &ingress(&program).actions;
    let mut described: BTreeMap<&str, _> = p4info().actions.iter().map(|one| (alias(&one.preamble), one)).collect();
    // The action is not in the program's text, and has the number that compilers give it.
    let none = described.remove("NoAction").expect("what compilers add");
    assert_eq!(none.preamble.as_ref().map(|preamble| preamble.id), Some(p4info::action::NO_ACTION));
    assert_eq!(described.keys().copied().collect::<Vec<_>>(), actions.keys().collect::<Vec<_>>());
    for (name, action) in actions {
        let described = described[name.as_str()];
        same(&described.preamble, name, &action.annotations, 1);
        let parameters: Vec<_> = action
            .parameters
            .iter()
            .map(|parameter| (id(&parameter.annotations), parameter.name.clone(), parameter.kind.clone()))
            .collect();
        let wanted = described.params.iter().map(|one| (one.id, one.name.clone(), Type::Bits(one.bitwidth as u32)));
        assert_eq!(parameters, wanted.collect::<Vec<_>>(), "{name}");
        // As `p4info::action` has it.
        assert!(parameters.iter().zip(1..).all(|((id, ..), place)| *id == place), "{name}");
    }
    use p4info::action::*;
    let ids = [("drop", DROP), ("set_partition", SET_PARTITION), ("to_replica", TO_REPLICA), ("set_port", SET_PORT)];
    for (name, wanted) in ids.into_iter().chain([("to_next_hop", TO_NEXT_HOP)]) {
        assert_eq!(id(&actions[name].annotations), wanted, "{name}");
    }
}

fn described_keys(table: &Table) -> Vec<(u32, String, u32, &'static str)> {
    let kind = |field: &Option<Match>| match field {
        Some(Match::MatchType(kind)) if *kind == MatchType::Exact as i32 => "exact",
        Some(Match::MatchType(kind)) if *kind == MatchType::Lpm as i32 => "lpm",
        other => panic!("{other:?}"),
    };
    let fields = table.match_fields.iter();
    fields.map(|field| (field.id, field.name.clone(), field.bitwidth as u32, kind(&field.r#match))).collect()
}

#[test]
fn tables_are_described() {
    let program = program();
    let control = ingress(&program);
    let described: BTreeMap<&str, _> = p4info().tables.iter().map(|one| (alias(&one.preamble), one)).collect();
    assert_eq!(described.keys().copied().collect::<Vec<_>>(), control.tables.keys().collect::<Vec<_>>());
    let action_id = |name: &str| match name {
        "NoAction" => p4info::action::NO_ACTION,
        name => id(&control.actions[name].annotations),
    };
    for (name, table) in &control.tables {
        let described = described[name.as_str()];
        same(&described.preamble, name, &table.annotations, 2);
        let keys: Vec<_> = table
            .keys
            .iter()
            // A selector's hash inputs are not part of the key that controllers set.
            .filter(|key| key.kind != "selector")
            .map(|key| {
                let name = annotated(&key.annotations, "name").and_then(|name| name.text.clone());
                let width = program.width(&key.path).expect("a field");
                (id(&key.annotations), name.expect("a name"), width, key.kind.as_str())
            })
            .collect();
        assert_eq!(keys, described_keys(described), "{name}");
        let actions: Vec<_> = table
            .actions
            .iter()
            .map(|(action, annotations)| (action_id(action), annotated(annotations, "defaultonly").is_some()))
            .collect();
        let refs = described.action_refs.iter().map(|one| (one.id, one.scope == Scope::DefaultOnly as i32));
        assert_eq!(actions, refs.collect::<Vec<_>>(), "{name}");
        assert_eq!(described.const_default_action_id, action_id(&table.default), "{name}");
        assert_eq!(described.size as u128, table.size, "{name}");
        let implementation = table.implementation.as_ref().map_or(0, |name| id(&control.instances[name].annotations));
        assert_eq!(described.implementation_id, implementation, "{name}");
    }
    use p4info::table::*;
    let ids = [("partitions", PARTITIONS), ("replicas", REPLICAS), ("ports", PORTS), ("ipv4_lpm", IPV4_LPM)];
    for (name, wanted) in ids.into_iter().chain([("ipv6_lpm", IPV6_LPM)]) {
        assert_eq!(id(&control.tables[name].annotations), wanted, "{name}");
    }
}

#[test]
fn arrays_are_described() {
    let program = program();
    let instances = &ingress(&program).instances;
    let of = |kind: &str| instances.values().filter(|instance| instance.kind == kind).count();

    let [profile] = &p4info().action_profiles[..] else { panic!("one selector") };
    let selector = &instances["replica_selector"];
    same(&profile.preamble, "replica_selector", &selector.annotations, 17);
    assert_eq!((selector.kind.as_str(), of("action_selector")), ("action_selector", 1));
    assert!(profile.with_selector && profile.table_ids == [p4info::table::REPLICAS]);
    assert_eq!(profile.size as u128, number(&selector.arguments[1]));
    let group = annotated(&selector.annotations, "max_group_size").and_then(|size| size.number);
    assert_eq!(Some(profile.max_group_size as u128), group);
    assert_eq!(id(&selector.annotations), p4info::REPLICA_SELECTOR);

    let [counter] = &p4info().counters[..] else { panic!("one array of counters") };
    let verdicts = &instances["verdicts"];
    same(&counter.preamble, "verdicts", &verdicts.annotations, 18);
    assert_eq!((verdicts.kind.as_str(), of("counter")), ("counter", 1));
    assert_eq!(counter.spec.as_ref().map(|spec| spec.unit), Some(counter_spec::Unit::Packets as i32));
    assert_eq!((counter.size as u128, Counted::ALL.len()), (number(&verdicts.arguments[0]), 11));
    assert_eq!(id(&verdicts.annotations), p4info::VERDICTS);

    assert_eq!(p4info().registers.len(), of("register"));
    for register in &p4info().registers {
        let name = alias(&register.preamble);
        let instance = &instances[name];
        same(&register.preamble, name, &instance.annotations, 22);
        let bit = bits::TypeSpec::Bit(P4BitTypeSpec { bitwidth: instance.bits.expect("bits") as i32 });
        let Some(p4_data_type_spec::TypeSpec::Bitstring(spec)) =
            register.type_spec.as_ref().and_then(|spec| spec.type_spec.as_ref())
        else {
            panic!("{name} is no register of bits")
        };
        assert_eq!(spec.type_spec, Some(bit), "{name}");
        assert_eq!(register.size as u128, number(&instance.arguments[0]), "{name}");
    }
}

/// Stages, slots, registers and their widths.
#[test]
fn registers_are_those_of_the_pipeline() {
    let program = program();
    let instances = &ingress(&program).instances;
    let state = &instances["partition_state"];
    assert_eq!((state.bits, id(&state.annotations)), (Some(192), p4info::register::PARTITION_STATE));
    assert_eq!(p4info::register::PARTITION_STATE_BITS, 32 + 32 + 64 + 64, "partition, switch, sequence, committed");
    assert_eq!(number(&state.arguments[0]), REGISTERS as u128);
    assert_eq!(p4info::register::STAGES.len(), Shape::DEFAULT.stages);
    assert_eq!(p4info::register::SLOT_BITS, 32 + 32 + 32 + 64, "partition, switch, object, sequence");
    for (stage, wanted) in p4info::register::STAGES.into_iter().enumerate() {
        let instance = &instances[&format!("stage_{stage}")];
        assert_eq!((instance.bits, id(&instance.annotations)), (Some(160), wanted));
        assert_eq!(number(&instance.arguments[0]), Shape::DEFAULT.slots as u128);
        // Each stage has its own word.
        assert!(include_str!("../p4/harmonia.p4").contains(&format!("STAGE({stage}, stage_{stage})")));
    }
}

#[test]
fn packets_are_those_of_the_header() {
    let program = program();
    let constant = |name: &str| program.constants[name].1;
    assert_eq!((constant("UDP_PORT"), constant("MAGIC")), (UDP_PORT.into(), MAGIC.into()));
    assert_eq!((constant("VERSION"), constant("NO_OBJECT")), (VERSION.into(), NO_OBJECT.into()));
    let operations = ["READ", "FAST_READ", "WRITE_FIRST", "WRITE_REST", "REPLY", "COMPLETION"].map(constant);
    assert_eq!(operations, Operation::ALL.map(|operation| operation as u128));

    let header = Header {
        operation: Operation::Completion,
        partition: 0x0102_0304,
        object: 0x0506_0708,
        switch: 0x090a_0b0c,
        term: 0x1112_1314_1516_1718,
        sequence: 0x2122_2324_2526_2728,
        committed: 0x3132_3334_3536_3738,
        tag: 0x4142_4344_4546_4748,
    };
    let mut bytes = Vec::new();
    Packet::of(header, b"").encode(&mut bytes);
    let Header { operation, partition, object, switch, term, sequence, committed, tag } = header;
    let wanted: [(&str, u128); 10] = [
        ("magic", MAGIC.into()),
        ("version", VERSION.into()),
        ("operation", operation as u128),
        ("partition", partition.into()),
        ("object", object.into()),
        ("switch_id", switch.into()),
        ("term", term.into()),
        ("sequence", sequence.into()),
        ("committed", committed.into()),
        ("tag", tag.into()),
    ];
    let mut at = 0;
    let mut found = Vec::new();
    for field in &program.records["harmonia_t"] {
        let Type::Bits(width) = field.kind else { panic!("{field:?}") };
        let width = (width / 8) as usize;
        let value = bytes[at..at + width].iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
        found.push((field.name.as_str(), value));
        at += width;
    }
    assert_eq!(found, wanted);
    assert!(at == 48 && at <= HEADER_BYTES);
}

/// The counters' places follow the order in Rust.
#[test]
fn verdicts_are_those_that_are_counted() {
    let program = program();
    let shouted = |counted: Counted| {
        let name = format!("{counted:?}");
        let mut out = String::new();
        for (place, c) in name.chars().enumerate() {
            if c.is_ascii_uppercase() && place > 0 {
                out.push('_');
            }
            out.push(c.to_ascii_uppercase());
        }
        out
    };
    for (place, counted) in Counted::ALL.into_iter().enumerate() {
        assert_eq!((counted as usize, program.constants[&shouted(counted)].1), (place, place as u128));
    }
}
