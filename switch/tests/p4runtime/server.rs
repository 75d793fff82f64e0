//! Answers of a switch, as they go over the wire.

use switch::dirty::Region;
use switch::p4rt::arbitration::election_id;
use switch::p4rt::connections::CONNECTIONS_MAX;
use switch::p4rt::entry::{Key, Setting, Value};
use switch::p4rt::p4info::{VERDICTS, p4info, register};
use switch::p4rt::problem;
use switch::p4rt::proto::p4::v1;
use switch::p4rt::proto::p4::v1::p4_runtime_client::P4RuntimeClient;
use switch::p4rt::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use switch::p4rt::service::STREAMS_MAX;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;
use v1::entity::Entity;
use v1::update::Type::{Delete, Insert, Modify};

use super::common::*;

fn partition(number: u32, index: u32) -> v1::Entity {
    let region = Region { first: 8 * index, slots: 8 };
    let setting = Setting { index, region, term: 3, switch: 1, active: true, primary: 100 };
    entity(entry(Key::Partition(number), &Value::Partition(setting)))
}

fn all_tables() -> Vec<v1::Entity> {
    vec![entity(v1::TableEntry::default())]
}

#[tokio::test]
async fn the_highest_election_id_writes() {
    let (switch, mut low) = ready(1).await;
    let mut none = Session::with(&switch, None).await;
    assert_eq!(none.told().await, (Code::AlreadyExists, Some(election_id(1))));
    let mut high = Session::primary(&switch, 1 << 70).await;
    for session in [&mut low, &mut none] {
        assert_eq!(session.told().await, (Code::AlreadyExists, Some(election_id(1 << 70))));
    }
    let updates = vec![update(Insert, partition(5, 0))];
    let refused = low.client.write(write(1, updates.clone())).await.unwrap_err();
    assert_eq!((refused.code(), refused.details().len()), (Code::PermissionDenied, 0));
    high.client.write(write(1 << 70, updates)).await.unwrap();
    // The primary goes, and no backup follows by itself.
    drop(high);
    for session in [&mut low, &mut none] {
        assert_eq!(session.told().await, (Code::NotFound, Some(election_id(1 << 70))));
    }
    let refused = low.client.write(write(1 << 70, vec![])).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    low.say(arbitration(Some(1 << 71))).await;
    assert_eq!(low.told().await.0, Code::Ok);
    low.client.write(write(1 << 71, vec![update(Delete, partition(5, 0))])).await.unwrap();
    switch.stop().await;
}

#[tokio::test]
async fn streams_end_with_their_reason() {
    let (switch, _primary) = ready(1).await;
    let mut same = Session::with(&switch, Some(1)).await;
    assert_eq!(same.hear().await.unwrap_err().code(), Code::InvalidArgument);
    let mut elsewhere = Session::open(&switch).await;
    let update = v1::MasterArbitrationUpdate { device_id: 9, ..v1::MasterArbitrationUpdate::default() };
    let update = Some(v1::stream_message_request::Update::Arbitration(update));
    elsewhere.say(v1::StreamMessageRequest { update }).await;
    assert_eq!(elsewhere.hear().await.unwrap_err().code(), Code::NotFound);
    switch.stop().await;
}

#[tokio::test]
async fn there_is_an_end_to_streams() {
    let switch = Switch::start().await;
    let mut sessions = Vec::new();
    for election in 0..STREAMS_MAX as u128 {
        sessions.push(Session::primary(&switch, election).await);
    }
    // A further stream takes the place of the oldest backup, which is told the reason.
    sessions.push(Session::primary(&switch, STREAMS_MAX as u128).await);
    let why = loop {
        match sessions[0].hear().await {
            Ok(notice) => assert!(notice.is_some(), "it ends without a word"),
            Err(why) => break why,
        }
    };
    assert_eq!(why.code(), Code::ResourceExhausted, "{why}");
    // The rest of the streams continue.
    sessions[1].say(arbitration(Some(STREAMS_MAX as u128 + 1))).await;
    while sessions[1].told().await.0 != Code::Ok {}
    switch.stop().await;
}

#[tokio::test]
async fn there_is_an_end_to_connections() {
    let (switch, session) = ready(1).await;
    let mut silent = Vec::new();
    // The controller's own connection is one of them.
    for _ in 1..CONNECTIONS_MAX {
        silent.push(TcpStream::connect(switch.address).await.unwrap());
    }
    // Connections are accepted in their order, and the oldest silent one makes room for a further one.
    silent.push(TcpStream::connect(switch.address).await.unwrap());
    // The server may have sent its first frame before.
    let (oldest, mut sink) = (&mut silent[0], tokio::io::sink());
    let _ = timeout(SOON, tokio::io::copy(oldest, &mut sink)).await.expect("it is closed");
    // The controller, which has a stream, continues.
    session.client.clone().write(write(1, vec![])).await.unwrap();
    // Another client is served although silent ones hold every place.
    let capabilities = async {
        loop {
            let connected = P4RuntimeClient::connect(format!("http://{}", switch.address)).await;
            if let Ok(mut client) = connected
                && client.capabilities(v1::CapabilitiesRequest {}).await.is_ok()
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, capabilities).await.unwrap();
    switch.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_long_is_refused() {
    let (switch, mut session) = ready(1).await;
    let updates = vec![update(Insert, partition(5, 0)); 100_000];
    let refused = session.client.write(write(1, updates)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    session.client.write(write(1, vec![update(Insert, partition(5, 0))])).await.unwrap();
    switch.stop().await;
}

#[tokio::test]
async fn what_else_comes_in_a_stream_is_answered() {
    use v1::stream_error::Details;
    use v1::stream_message_request::Update;
    let (switch, mut session) = ready(1).await;
    let packet = Update::Packet(v1::PacketOut::default());
    let digest = Update::DigestAck(v1::DigestListAck { digest_id: 7, list_id: 0 });
    for (update, code) in [(packet, Code::Unimplemented), (digest, Code::InvalidArgument)] {
        session.say(v1::StreamMessageRequest { update: Some(update) }).await;
        match session.hear().await.unwrap().unwrap().update {
            Some(v1::stream_message_response::Update::Error(error)) => {
                assert_eq!(Code::from(error.canonical_code), code);
                let is_packet = matches!(error.details, Some(Details::PacketOut(_)));
                assert_eq!(is_packet, code == Code::Unimplemented);
            }
            other => panic!("{other:?}"),
        }
    }
    switch.stop().await;
}

#[tokio::test]
async fn each_update_has_its_error() {
    let (switch, mut session) = ready(1).await;
    let client = &mut session.client;
    let updates = vec![
        update(Insert, partition(5, 0)),
        update(Insert, partition(5, 0)),
        update(Modify, partition(6, 1)),
        update(Insert, partition(6, 1)),
        update(Insert, partition(7, 1)),
        v1::Update { r#type: 0, entity: Some(partition(8, 2)) },
        v1::Update { r#type: Insert as i32, entity: None },
        update(Insert, v1::Entity { entity: Some(Entity::ActionProfileMember(v1::ActionProfileMember::default())) }),
    ];
    let status = client.write(write(1, updates)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let codes: Vec<_> = problem::parts(&status).unwrap().iter().map(|error| Code::from(error.canonical_code)).collect();
    let wanted = [
        Code::Ok,
        Code::AlreadyExists,
        Code::NotFound,
        Code::Ok,
        Code::FailedPrecondition,
        Code::InvalidArgument,
        Code::InvalidArgument,
        Code::Unimplemented,
    ];
    assert_eq!(codes, wanted);
    let (found, outcome) = read(client, all_tables()).await;
    assert_eq!((found, outcome.is_ok()), (vec![partition(5, 0), partition(6, 1)], true));

    let atomic = v1::WriteRequest { atomicity: 1, ..write(1, vec![]) };
    assert_eq!(client.write(atomic).await.unwrap_err().code(), Code::Unimplemented);
    let elsewhere = v1::WriteRequest { device_id: 9, ..write(1, vec![]) };
    assert_eq!(client.write(elsewhere).await.unwrap_err().code(), Code::NotFound);
    let in_no_role = v1::WriteRequest { role: "none".into(), ..write(1, vec![]) };
    assert_eq!(client.write(in_no_role).await.unwrap_err().code(), Code::NotFound);
    switch.stop().await;
}

/// Controllers read everything when they connect, also kinds of entities that this switch never has.
#[tokio::test]
async fn all_entities_of_a_kind_without_any_are_none() {
    use v1::packet_replication_engine_entry::Type;
    let (switch, mut session) = ready(1).await;
    let replication = |r#type| v1::Entity {
        entity: Some(Entity::PacketReplicationEngineEntry(v1::PacketReplicationEngineEntry { r#type })),
    };
    let group = |multicast_group_id| {
        replication(Some(Type::MulticastGroupEntry(v1::MulticastGroupEntry {
            multicast_group_id,
            ..Default::default()
        })))
    };
    let session_of = |session_id| {
        replication(Some(Type::CloneSessionEntry(v1::CloneSessionEntry { session_id, ..Default::default() })))
    };
    let members = v1::Entity { entity: Some(Entity::ActionProfileMember(v1::ActionProfileMember::default())) };
    let groups = v1::Entity { entity: Some(Entity::ActionProfileGroup(v1::ActionProfileGroup::default())) };
    let all = vec![replication(None), group(0), session_of(0), members, groups];
    let (found, outcome) = read(&mut session.client, all).await;
    assert_eq!((found, outcome.is_ok()), (vec![], true));
    for one in [group(1), session_of(7)] {
        let (found, outcome) = read(&mut session.client, vec![one]).await;
        assert_eq!((found, outcome.is_err()), (vec![], true));
    }
    switch.stop().await;
}

#[tokio::test]
async fn each_read_has_its_error() {
    let (switch, mut session) = ready(1).await;
    let client = &mut session.client;
    client.write(write(1, vec![update(Insert, partition(5, 0))])).await.unwrap();
    let counter = |counter_id| v1::CounterEntry { counter_id, ..v1::CounterEntry::default() };
    let asked = vec![
        v1::Entity { entity: Some(Entity::CounterEntry(counter(VERDICTS))) },
        v1::Entity { entity: Some(Entity::CounterEntry(counter(1))) },
        v1::Entity { entity: None },
        entity(Key::Partition(5).entry()),
        v1::Entity { entity: Some(Entity::MeterEntry(v1::MeterEntry::default())) },
    ];
    let (found, outcome) = read(client, asked).await;
    assert_eq!((found.len(), found.last()), (11 + 1, Some(&partition(5, 0))));
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let codes: Vec<_> = problem::parts(&status).unwrap().iter().map(|error| Code::from(error.canonical_code)).collect();
    assert_eq!(codes, [Code::Ok, Code::InvalidArgument, Code::InvalidArgument, Code::Ok, Code::Ok]);
    switch.stop().await;
}

#[tokio::test]
async fn registers_are_read_in_parts_and_written() {
    let (switch, mut session) = ready(1).await;
    let client = &mut session.client;
    let all = vec![v1::Entity { entity: Some(Entity::RegisterEntry(v1::RegisterEntry::default())) }];
    let (found, outcome) = read(client, all).await;
    assert_eq!((found.len(), outcome.is_ok()), (8 + 3 * 64, true));
    let entry = v1::RegisterEntry {
        register_id: register::STAGES[1],
        index: Some(v1::Index { index: 63 }),
        data: Some(v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(vec![9])) }),
    };
    let entity = v1::Entity { entity: Some(Entity::RegisterEntry(entry.clone())) };
    client.write(write(1, vec![update(Modify, entity.clone())])).await.unwrap();
    assert_eq!(switch.standin.lock().pipeline.dirty().stages()[1][63].sequence, 9);
    let asked = v1::Entity { entity: Some(Entity::RegisterEntry(v1::RegisterEntry { data: None, ..entry })) };
    assert_eq!(read(client, vec![asked]).await.0, [entity]);
    switch.stop().await;
}

#[tokio::test]
async fn a_program_is_loaded() {
    let switch = Switch::start().await;
    let mut session = Session::primary(&switch, 1).await;
    let client = &mut session.client;
    let get = |response_type| v1::GetForwardingPipelineConfigRequest { device_id: DEVICE, response_type };
    // There is no program yet.
    assert_eq!(client.get_forwarding_pipeline_config(get(0)).await.unwrap().into_inner().config, None);
    assert_eq!(client.write(write(1, vec![])).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(read(client, all_tables()).await.1.unwrap_err().code(), Code::FailedPrecondition);

    let mut other = config(5);
    other.p4info.as_mut().unwrap().tables[0].match_fields[0].bitwidth = 16;
    for (request, code) in [
        (load(1, Action::Unspecified, Some(config(5))), Code::InvalidArgument),
        (load(1, Action::Verify, None), Code::InvalidArgument),
        (load(1, Action::Verify, Some(v1::ForwardingPipelineConfig::default())), Code::InvalidArgument),
        (load(1, Action::VerifyAndCommit, Some(other)), Code::InvalidArgument),
        (load(1, Action::Commit, None), Code::NotFound),
        (load(1, Action::Commit, Some(config(5))), Code::InvalidArgument),
        (load(2, Action::VerifyAndCommit, Some(config(5))), Code::PermissionDenied),
    ] {
        assert_eq!(client.set_forwarding_pipeline_config(request).await.unwrap_err().code(), code);
    }
    client.set_forwarding_pipeline_config(load(1, Action::Verify, Some(config(5)))).await.unwrap();
    client.set_forwarding_pipeline_config(load(1, Action::VerifyAndSave, Some(config(5)))).await.unwrap();
    assert_eq!(client.get_forwarding_pipeline_config(get(0)).await.unwrap().into_inner().config, None);
    client.set_forwarding_pipeline_config(load(1, Action::Commit, None)).await.unwrap();

    let whole = config(5);
    let cookie = v1::ForwardingPipelineConfig { cookie: whole.cookie, ..v1::ForwardingPipelineConfig::default() };
    let described = v1::ForwardingPipelineConfig { p4info: Some(p4info().clone()), ..cookie.clone() };
    let made = v1::ForwardingPipelineConfig { p4_device_config: whole.p4_device_config.clone(), ..cookie.clone() };
    for (kind, wanted) in [(0, whole), (1, cookie), (2, described), (3, made)] {
        let config = client.get_forwarding_pipeline_config(get(kind)).await.unwrap().into_inner().config;
        assert_eq!(config, Some(wanted));
    }
    // Entries stay, or are cleared; fields that packets changed stay.
    client.write(write(1, vec![update(Insert, partition(5, 0))])).await.unwrap();
    switch.standin.lock().pipeline.registers_mut()[0].sequence = 7;
    client.set_forwarding_pipeline_config(load(1, Action::ReconcileAndCommit, Some(config(6)))).await.unwrap();
    assert_eq!(read(client, all_tables()).await.0, [partition(5, 0)]);
    client.set_forwarding_pipeline_config(load(1, Action::VerifyAndCommit, Some(config(6)))).await.unwrap();
    assert_eq!(read(client, all_tables()).await.0, []);
    assert!(switch.standin.lock().pipeline.remove(5).is_none());
    assert_eq!(switch.standin.lock().pipeline.registers()[0].sequence, 7);
    let capabilities = client.capabilities(v1::CapabilitiesRequest {}).await.unwrap();
    assert_eq!(capabilities.into_inner().p4runtime_api_version, "1.4.1");
    switch.stop().await;
}
