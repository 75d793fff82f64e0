//! A decoded entry equals the encoded one, and a wrong one has the code of the specification.

use proptest::prelude::*;

use super::*;

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        any::<u32>().prop_map(Key::Partition),
        any::<u32>().prop_map(Key::Replicas),
        any::<u32>().prop_map(Key::Port),
        (any::<u32>(), 0u8..=32).prop_map(|(prefix, length)| {
            Key::Ipv4((prefix & (u32::MAX.checked_shl((32 - length).into()).unwrap_or(0))).into(), length)
        }),
        (any::<u128>(), 0u8..=128).prop_map(|(prefix, length)| {
            Key::Ipv6((prefix & (u128::MAX.checked_shl((128 - length).into()).unwrap_or(0))).into(), length)
        }),
    ]
}

fn value(table: u32) -> BoxedStrategy<Value> {
    let route = prop_oneof![
        (0u16..512, any::<[u8; 6]>(), any::<[u8; 6]>())
            .prop_map(|(port, source, destination)| Value::Forward(NextHop { port, source, destination })),
        Just(Value::Drop),
    ];
    match table {
        table::PARTITIONS => (any::<[u32; 5]>(), any::<u64>(), any::<bool>())
            .prop_map(|([index, switch, primary, first, slots], term, active)| {
                Value::Partition(Setting { index, region: Region { first, slots }, term, switch, active, primary })
            })
            .boxed(),
        table::REPLICAS => proptest::collection::vec((any::<u32>(), 1u8..25), 0..10).prop_map(Value::Replicas).boxed(),
        table::PORTS => (any::<u32>(), 1u16..)
            .prop_map(|(address, port)| Value::Port(SocketAddrV4::new(address.into(), port)))
            .boxed(),
        _ => route.boxed(),
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read((key, value) in key().prop_flat_map(|key| (Just(key), value(key.table())))) {
        prop_assert_eq!(Key::of(&key.entry()), Ok(key));
        prop_assert_eq!(Value::of(key.table(), &value.action()), Ok(value));
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Problem>) -> Code {
    result.unwrap_err().code
}

fn key_code(table_id: u32, fields: Vec<FieldMatchType>) -> Code {
    let r#match =
        fields.into_iter().map(|field| v1::FieldMatch { field_id: 1, field_match_type: Some(field) }).collect();
    code(Key::of(&v1::TableEntry { table_id, r#match, ..v1::TableEntry::default() }))
}

#[test]
fn keys_that_are_none() {
    let exact = |value: &[u8]| FieldMatchType::Exact(Exact { value: value.to_vec() });
    let lpm = |value: &[u8], prefix_len| FieldMatchType::Lpm(Lpm { value: value.to_vec(), prefix_len });
    assert_eq!(key_code(1, vec![exact(&[1])]), Code::InvalidArgument);
    for fields in [vec![], vec![lpm(&[1], 32)], vec![exact(&[1]), exact(&[1])]] {
        assert_eq!(key_code(table::PARTITIONS, fields), Code::InvalidArgument);
    }
    for value in [&[][..], &[1, 0, 0, 0, 0]] {
        assert_eq!(key_code(table::PORTS, vec![exact(value)]), Code::OutOfRange);
    }
    for wrong in [lpm(&[10, 0, 0, 0], 0), lpm(&[10, 0, 0, 0], 33), lpm(&[10, 0, 0, 1], 8), exact(&[1])] {
        assert_eq!(key_code(table::IPV4_LPM, vec![wrong]), Code::InvalidArgument);
    }
    let prioritised = v1::TableEntry { priority: 1, ..Key::Port(1).entry() };
    assert_eq!(code(Key::of(&prioritised)), Code::InvalidArgument);
    let mut unnamed = Key::Port(1).entry();
    unnamed.r#match[0].field_id = 2;
    assert_eq!(code(Key::of(&unnamed)), Code::InvalidArgument);
    unnamed.r#match[0] = v1::FieldMatch { field_id: 1, field_match_type: None };
    assert_eq!(code(Key::of(&unnamed)), Code::InvalidArgument);
    // Leading zeros do no harm.
    let mut long = Key::Port(1).entry();
    long.r#match[0].field_match_type = Some(exact(&[0, 0, 0, 0, 0, 0, 1]));
    assert_eq!(Key::of(&long), Ok(Key::Port(1)));
}

fn action_code(table: u32, kind: Type) -> Code {
    code(Value::of(table, &v1::TableAction { r#type: Some(kind) }))
}

#[test]
fn actions_that_are_none() {
    assert_eq!(code(Value::of(table::PORTS, &v1::TableAction::default())), Code::InvalidArgument);
    let port = call(action::SET_PORT, &[1, 1]);
    assert_eq!(action_code(table::PARTITIONS, Type::Action(port.clone())), Code::InvalidArgument);
    assert_eq!(action_code(table::PORTS, Type::Action(call(action::SET_PORT, &[1]))), Code::InvalidArgument);
    assert_eq!(action_code(table::PORTS, Type::Action(call(action::SET_PORT, &[1, 2, 3]))), Code::InvalidArgument);
    assert_eq!(action_code(table::PORTS, Type::Action(call(action::SET_PORT, &[1, 0]))), Code::InvalidArgument);
    assert_eq!(action_code(table::PORTS, Type::Action(call(action::SET_PORT, &[1, 1 << 16]))), Code::OutOfRange);
    let mut twice = port.clone();
    twice.params[1].param_id = 1;
    assert_eq!(action_code(table::PORTS, Type::Action(twice)), Code::InvalidArgument);
    // The action is only for packets that no entry matches.
    assert_eq!(action_code(table::PORTS, Type::Action(call(action::DROP, &[]))), Code::PermissionDenied);
    assert_eq!(action_code(table::PORTS, Type::ActionProfileMemberId(1)), Code::InvalidArgument);
    assert_eq!(action_code(table::IPV4_LPM, Type::Action(call(action::DROP, &[1]))), Code::InvalidArgument);

    assert_eq!(action_code(table::REPLICAS, Type::Action(call(action::TO_REPLICA, &[1]))), Code::InvalidArgument);
    assert_eq!(action_code(table::REPLICAS, Type::ActionProfileGroupId(1)), Code::Unimplemented);
    let set = |action, weight, watch_kind| {
        let one = v1::ActionProfileAction { action, weight, watch_kind };
        let action_profile_actions = vec![one.clone(), one];
        action_code(
            table::REPLICAS,
            Type::ActionProfileActionSet(v1::ActionProfileActionSet { action_profile_actions }),
        )
    };
    let one = Some(call(action::TO_REPLICA, &[1]));
    assert_eq!(set(None, 1, None), Code::InvalidArgument);
    assert_eq!(set(Some(port), 1, None), Code::InvalidArgument);
    assert_eq!(set(Some(call(action::NO_ACTION, &[])), 1, None), Code::PermissionDenied);
    for weight in [-1, 0, 256, 128] {
        assert_eq!(set(one.clone(), weight, None), Code::InvalidArgument);
    }
    let watched = v1::action_profile_action::WatchKind::WatchPort(vec![1]);
    assert_eq!(set(one, 1, Some(watched)), Code::Unimplemented);
}
