//! Bindings against bytes that were assembled by hand from the numbers and types of P4Runtime v1.4.1.

use prost::Message;

use super::proto::google::rpc;
use super::proto::p4::{config, v1};

/// Asserts that these bytes are the encoding of that message, in both directions.
fn golden<M: Message + Default + PartialEq + std::fmt::Debug>(message: M, bytes: &[&[u8]]) {
    let bytes = bytes.concat();
    assert_eq!(message.encode_to_vec(), bytes);
    assert_eq!(M::decode(&bytes[..]).unwrap(), message);
}

#[test]
fn a_write() {
    let exact = v1::field_match::Exact { value: vec![5] };
    let field_match_type = Some(v1::field_match::FieldMatchType::Exact(exact));
    let params = vec![v1::action::Param { param_id: 1, value: vec![9] }];
    let action = v1::table_action::Type::Action(v1::Action { action_id: 0x0100_0002, params });
    let entry = v1::TableEntry {
        table_id: 0x0200_0001,
        r#match: vec![v1::FieldMatch { field_id: 1, field_match_type }],
        action: Some(v1::TableAction { r#type: Some(action) }),
        priority: 7,
        metadata: b"m".to_vec(),
        is_const: true,
        ..Default::default()
    };
    let update = v1::Update {
        r#type: v1::update::Type::Insert as i32,
        entity: Some(v1::Entity { entity: Some(v1::entity::Entity::TableEntry(entry)) }),
    };
    let request = v1::WriteRequest {
        device_id: 1,
        role: "r".into(),
        election_id: Some(v1::Uint128 { high: 2, low: 3 }),
        updates: vec![update],
        atomicity: v1::write_request::Atomicity::RollbackOnError as i32,
        ..Default::default()
    };
    golden(
        request,
        &[
            &[0x08, 1],
            &[0x1a, 4, 0x08, 2, 0x10, 3],
            &[0x22, 43, 0x08, 1, 0x12, 39, 0x12, 37],
            &[0x08, 0x81, 0x80, 0x80, 0x10],
            &[0x12, 7, 0x08, 1, 0x12, 3, 0x0a, 1, 5],
            &[0x1a, 14, 0x0a, 12, 0x08, 0x82, 0x80, 0x80, 0x08, 0x22, 5, 0x10, 1, 0x1a, 1, 9],
            &[0x20, 7],
            &[0x5a, 1, b'm'],
            &[0x68, 1],
            &[0x28, 1],
            &[0x32, 1, b'r'],
        ],
    );
}

#[test]
fn matches_and_actions() {
    use v1::field_match::{FieldMatchType, Lpm, Optional, Range, Ternary};
    let of = |field_match_type| v1::FieldMatch { field_id: 2, field_match_type: Some(field_match_type) };
    let ternary = FieldMatchType::Ternary(Ternary { value: vec![1], mask: vec![3] });
    golden(of(ternary), &[&[0x08, 2, 0x1a, 6, 0x0a, 1, 1, 0x12, 1, 3]]);
    let lpm = FieldMatchType::Lpm(Lpm { value: vec![10], prefix_len: 8 });
    golden(of(lpm), &[&[0x08, 2, 0x22, 5, 0x0a, 1, 10, 0x10, 8]]);
    let range = FieldMatchType::Range(Range { low: vec![1], high: vec![2] });
    golden(of(range), &[&[0x08, 2, 0x32, 6, 0x0a, 1, 1, 0x12, 1, 2]]);
    let optional = FieldMatchType::Optional(Optional { value: vec![4] });
    golden(of(optional), &[&[0x08, 2, 0x3a, 3, 0x0a, 1, 4]]);

    let one = v1::ActionProfileAction {
        action: Some(v1::Action { action_id: 5, params: vec![] }),
        weight: 3,
        watch_kind: Some(v1::action_profile_action::WatchKind::WatchPort(vec![6])),
    };
    let set = v1::ActionProfileActionSet { action_profile_actions: vec![one] };
    let action = v1::TableAction { r#type: Some(v1::table_action::Type::ActionProfileActionSet(set)) };
    golden(action, &[&[0x22, 11, 0x0a, 9, 0x0a, 2, 0x08, 5, 0x10, 3, 0x22, 1, 6]]);
}

#[test]
fn arrays() {
    let index = Some(v1::Index { index: 0 });
    let data = Some(v1::CounterData { byte_count: 1, packet_count: 2 });
    let counter = v1::CounterEntry { counter_id: 7, index, data };
    let entity = v1::Entity { entity: Some(v1::entity::Entity::CounterEntry(counter)) };
    golden(entity, &[&[0x3a, 10, 0x08, 7, 0x12, 0, 0x1a, 4, 0x08, 1, 0x10, 2]]);

    let index = Some(v1::Index { index: 300 });
    let data = Some(v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(vec![1, 0])) });
    let register = v1::RegisterEntry { register_id: 7, index, data };
    let entity = v1::Entity { entity: Some(v1::entity::Entity::RegisterEntry(register)) };
    golden(entity, &[&[0x5a, 13, 0x08, 7, 0x12, 3, 0x08, 0xac, 0x02, 0x1a, 4, 0x0a, 2, 1, 0]]);
}

#[test]
fn who_is_the_primary() {
    let update = v1::MasterArbitrationUpdate {
        device_id: 9,
        role: Some(v1::Role { name: "a".into(), ..Default::default() }),
        election_id: Some(v1::Uint128 { high: 0, low: 1 }),
        status: Some(rpc::Status { code: 6, message: "b".into(), details: vec![] }),
    };
    let arbitration = [0x08, 9, 0x12, 3, 0x1a, 1, b'a', 0x1a, 2, 0x10, 1, 0x22, 5, 0x08, 6, 0x12, 1, b'b'];
    let request = v1::stream_message_request::Update::Arbitration(update.clone());
    golden(v1::StreamMessageRequest { update: Some(request) }, &[&[0x0a, 18], &arbitration]);
    let response = v1::stream_message_response::Update::Arbitration(update);
    golden(v1::StreamMessageResponse { update: Some(response) }, &[&[0x0a, 18], &arbitration]);
    let error = v1::StreamError {
        canonical_code: 12,
        details: Some(v1::stream_error::Details::PacketOut(v1::PacketOutError { packet_out: None })),
        ..Default::default()
    };
    let response = v1::StreamMessageResponse { update: Some(v1::stream_message_response::Update::Error(error)) };
    golden(response, &[&[0x32, 4, 0x08, 12, 0x2a, 0]]);
    golden(v1::Error { canonical_code: 5, message: "c".into(), ..Default::default() }, &[&[8, 5, 0x12, 1, b'c']]);
}

#[test]
fn programs() {
    let register = config::v1::Register {
        preamble: Some(config::v1::Preamble { id: 1, name: "r".into(), alias: "a".into(), ..Default::default() }),
        size: 2,
        ..Default::default()
    };
    let p4info = config::v1::P4Info { registers: vec![register], ..Default::default() };
    let config = v1::ForwardingPipelineConfig {
        p4info: Some(p4info),
        p4_device_config: vec![8],
        cookie: Some(v1::forwarding_pipeline_config::Cookie { cookie: 9 }),
    };
    let request = v1::SetForwardingPipelineConfigRequest {
        device_id: 1,
        action: v1::set_forwarding_pipeline_config_request::Action::VerifyAndCommit as i32,
        config: Some(config.clone()),
        ..Default::default()
    };
    let bytes =
        [0x0a, 14, 0x5a, 12, 0x0a, 8, 0x08, 1, 0x12, 1, b'r', 0x1a, 1, b'a', 0x18, 2, 0x12, 1, 8, 0x1a, 2, 8, 9];
    golden(request, &[&[0x08, 1, 0x20, 3, 0x2a, 23], &bytes]);
    golden(v1::GetForwardingPipelineConfigResponse { config: Some(config) }, &[&[0x0a, 23], &bytes]);
    let request = v1::GetForwardingPipelineConfigRequest { device_id: 1, response_type: 2 };
    golden(request, &[&[0x08, 1, 0x10, 2]]);
    golden(v1::CapabilitiesResponse { p4runtime_api_version: "1".into() }, &[&[0x0a, 1, b'1']]);
}
