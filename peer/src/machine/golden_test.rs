//! The bytes of the files that a peer keeps beside its store.

use std::path::PathBuf;

use golden::{Format, Golden};

use super::data_dir::peer_state::{Content, PEER_STATE_VERSION, PeerState};
use super::data_dir::remembered::{Agreed, Network};
use super::data_dir::sealed;
use super::data_dir::sessions::{self, PeerSession, SESSIONS_VERSION};

const PEER_STATES: Format = Format {
    version: PEER_STATE_VERSION as u64,
    constant: "PEER_STATE_VERSION in peer/src/machine/data_dir/peer_state.rs",
    package: "peer --lib",
};
const SESSIONS: Format = Format {
    version: SESSIONS_VERSION as u64,
    constant: "SESSIONS_VERSION in peer/src/machine/data_dir/sessions.rs",
    package: "peer --lib",
};
/// The program's own name changes with every commit.
const PROGRAM: &str = "scatter 0.1.0 (commit 0123456789ab)";

#[test]
fn golden_peer_state() {
    let ring = "00000000000000000000000000001234".to_owned();
    let key = r#"{"memory_kib":8,"passes":1,"salt":"0a0b","hash":"0c0d"}"#;
    // Each with all of its fields: a new field has to be added here.
    let whole = Content {
        ring: Some(ring.clone()),
        lanes: vec!["00000000000000000000000000005678".into()],
        incarnation: 1 << 52 | 7,
        peers: [("07".repeat(32), vec!["/ip4/127.0.0.1/tcp/1".to_owned()])].into(),
        network: Some(Network {
            name: "mine".into(),
            key: Some(serde_json::from_str(key).unwrap()),
            founded: true,
            durability: "sync".into(),
            lanes: 2,
            agreed: Some(Agreed { leases: true, coarse: false, min_group: 5, max_group: 12, max_value: 65536 }),
            policies: vec!["join=random".into()],
        }),
        leaving: Some(node::LeaveMode::Forced),
        left: Some(ring.clone()),
        name: "oak-7_b.c".parse().ok(),
    };
    let left = Content { left: Some(ring), incarnation: 5, ..Content::default() };
    let mut golden = Golden::new(env!("CARGO_MANIFEST_DIR"), "peer_state", PEER_STATES);
    let all = [("nothing", Content::default()), ("all", whole), ("left", left)];
    let peer_state =
        |content: &Content| PeerState::parse_unsealed(PathBuf::new(), &serde_json::to_vec(content).unwrap()).unwrap();
    for (name, content) in &all {
        golden.add(name, &peer_state(content).text_by(PROGRAM));
    }
    golden.check();
    for (name, content) in &all {
        assert_eq!(PeerState::parse(PathBuf::new(), golden.bytes(name)), Ok(peer_state(content)), "{name}");
    }
}

#[test]
fn golden_sessions() {
    let session = |start_unix_s, lived_s, end| PeerSession { start_unix_s, lived_s, end };
    let ends = [sessions::SessionEnd::Clean, sessions::SessionEnd::Failed, sessions::SessionEnd::None];
    let all = ends.into_iter().enumerate().map(|(n, end)| session(1_795_900_000 + n as u64, 3_600, end)).collect();
    let mut golden = Golden::new(env!("CARGO_MANIFEST_DIR"), "sessions", SESSIONS);
    let contents =
        [("nothing", sessions::SessionsContent::default()), ("all", sessions::SessionsContent { sessions: all })];
    for (name, content) in &contents {
        golden.add(name, &sealed::text(SESSIONS_VERSION, PROGRAM, content));
    }
    golden.check();
    for (name, content) in contents {
        assert_eq!(sealed::parse(SESSIONS_VERSION, golden.bytes(name)), Ok(content), "{name}");
    }
}
