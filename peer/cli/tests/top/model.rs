//! Made-up data of a peer: a ring of five groups with all kinds of content, and harmful names.

use cli::top::model::Model;
use overlay::PeerName;
use peer::status::{
    Budget, Budgets, GroupStatus, LoadSample, Located, LossStatus, MemberStatus, PeerTraffic, PrimaryStatus,
    RangeStatus, Ring, Status, Told, TransactionStatus, TransferStatus,
};

/// Name that an attacker may choose to write all over the screen.
pub const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;gone\u{7}\u{9b}31m\r\nx\u{202e}cba\u{2066}\u{200b}e\u{301}\u{301}";

/// Returns the peer of this number; their ids differ at the end.
pub fn peer(number: usize) -> String {
    const ENDS: [&str; 12] = [
        "aTq7Zw", "bKx4Nd", "cRm9Ls", "dVf2Hp", "eJu5Wc", "fYs8Gk", "gBn3Dr", "hPz6Xt", "iMc1Qv", "jLw7Fb", "kEh4Sn",
        "lUd9Ky",
    ];
    format!("12D3KooWQ9f4{}", ENDS[number % ENDS.len()])
}

/// Returns a place on the ring in sixteenths.
pub fn point(sixteenth: u32) -> String {
    format!("{:x}{}", sixteenth % 16, "0".repeat(31))
}

fn range(start: u32, end: u32) -> RangeStatus {
    RangeStatus { start: point(start), end: point(end) }
}

fn id(letter: char) -> String {
    format!("{}{}", String::from(letter).repeat(4), "0123456789abcdef0123456789ab")
}

/// Returns the name of a peer, for those that have one.
fn name(number: usize) -> Option<PeerName> {
    let names = [(0, "oak"), (4, "elm-2.cellar"), (9, "oak")];
    names.into_iter().find(|(named, _)| *named == number).and_then(|(_, name)| name.parse().ok())
}

fn member(number: usize, role: &str, cluster: &str) -> MemberStatus {
    MemberStatus {
        peer_id: peer(number),
        name: name(number),
        cluster: cluster.into(),
        joined_unix_s: 1_790_000_000,
        lifetime_s: 86_400 + 3600 * number as u64,
        role: role.into(),
        addresses: vec!["/ip4/192.0.2.1/tcp/6478".into()],
        capacity_ops_per_s: Some(20_000),
        capacity_percent: Some(100),
        sessions: None,
    }
}

/// Returns the shown peer's group: a leader, a silent member, a learner that copies, a transaction with locks.
fn own() -> GroupStatus {
    let primary = |start, end, number| PrimaryStatus { start: point(start), end: point(end), peer_id: peer(number) };
    GroupStatus {
        id: id('b'),
        epoch: 1234,
        term: 99,
        range: range(3, 8),
        members: vec![
            member(0, "leader", "attic"),
            member(1, "member", "日本語クラスター"),
            member(2, "suspect", HOSTILE),
            member(3, "member", "👩‍👩‍👧 & friends"),
            member(4, "learner", "cellar"),
        ],
        established: true,
        complete: 3,
        transfers: vec![TransferStatus {
            start: point(6),
            end: point(8),
            from: peer(1),
            what: "recent writes".into(),
            records: 12_345,
            bytes: 3_456_789,
            pieces: 2,
            done_percent: 41,
        }],
        waiting_to_join: 1,
        leader: Some(peer(0)),
        primaries: vec![primary(3, 5, 0), primary(5, 6, 1), primary(6, 7, 3), primary(7, 8, 0)],
        part: "member".into(),
        transactions: vec![TransactionStatus {
            operation: "repartition".into(),
            coordinator: id('b'),
            slot: 77,
            participants: vec![id('c')],
            step: "waits for votes".into(),
            locks: vec![point(8)],
        }],
        links_fresh: Some(false),
        predecessor: Some(id('a')),
        successor: Some(id('c')),
        losses: vec![LossStatus { range: range(3, 4), groups: vec![id('f')], declared_unix_s: 1_790_000_000 }],
        keys: 1_234_567,
        bytes: 987_654_321,
        ops_per_s: 812.4,
        load_ops_per_s: Some(3_456.7),
        dropped: [("far".to_owned(), 3)].into(),
        halted: None,
        ..GroupStatus::default()
    }
}

/// Returns a group that only needs data that the peer holds.
fn former() -> GroupStatus {
    GroupStatus {
        id: id('0'),
        epoch: 7,
        range: range(8, 9),
        members: vec![member(5, "leader", ""), member(6, "member", "")],
        established: false,
        complete: 1,
        leader: None,
        primaries: vec![PrimaryStatus { start: point(8), end: point(9), peer_id: peer(5) }],
        part: "former".into(),
        keys: 42,
        bytes: 4200,
        ..GroupStatus::default()
    }
}

fn located(letter: char, start: u32, end: u32, epoch: u64, members: std::ops::Range<usize>) -> Located {
    Located {
        point: point(start),
        group: id(letter),
        epoch,
        range: range(start, end),
        primary: peer(members.start),
        names: members.clone().filter_map(|number| Some((peer(number), name(number)?))).collect(),
        members: members.map(peer).collect(),
        ..Located::default()
    }
}

fn traffic(number: usize, up: bool, rtt_ms: Option<f64>) -> PeerTraffic {
    let bytes = 1_000_000 * (number as u64 + 1);
    PeerTraffic {
        peer_id: peer(number),
        name: name(number),
        up,
        via: up.then(|| if number.is_multiple_of(3) { "quic" } else { "tcp" }.to_owned()),
        rtt_ms,
        sent_frames: 1000,
        sent_bytes: bytes,
        received_frames: 900,
        received_bytes: bytes / 2,
        queued_bytes: 0,
        dropped_frames: if up { 0 } else { 17 },
    }
}

fn events() -> Vec<Told> {
    let told = |seq: u64, count, kind: &str, number: Option<usize>, text: String| Told {
        id: seq,
        seq,
        unix_ms: 1_795_585_100_000 + seq * 7_000,
        since_unix_ms: 1_795_585_100_000,
        count,
        kind: kind.into(),
        group: Some(id('b')),
        peer: number.map(peer),
        text,
    };
    vec![
        told(1, 1, "ready", None, "this peer serves clients".into()),
        told(2, 1, "joined", Some(0), "aTq7Zw is a member of group bbbb0123".into()),
        told(3, 1, "led", Some(0), "aTq7Zw leads group bbbb0123".into()),
        told(4, 1, "split", None, "group 00000123 split: now group bbbb0123, 31 % of the ring".into()),
        told(5, 1, "merged", None, "group dddd0123 merged into group 00000123, all of the ring".into()),
        told(6, 1, "learning", Some(4), "eJu5Wc copies, to be a member of group bbbb0123".into()),
        told(7, 1, "excluded", Some(7), "hPz6Xt was put out of group bbbb0123: it was silent".into()),
        told(8, 3, "heard_again", Some(1), "bKx4Nd is heard of again".into()),
        told(9, 1, "suspected", Some(2), "cRm9Ls is not heard of".into()),
        told(10, 1, HOSTILE, Some(2), format!("{HOSTILE} was here")),
    ]
}

fn load() -> Vec<LoadSample> {
    let sample = |second: u64| {
        let wave = ((second as f64 / 9.0).sin() + 1.0) * 0.5;
        let quiet = (140..150).contains(&(second % 200));
        LoadSample {
            unix_s: 1_795_585_000 + second,
            ops_per_s: if quiet { 0.0 } else { 400.0 + 3000.0 * wave },
            p50_ms: (!quiet).then_some(1.5 + 2.0 * wave),
            p99_ms: (!quiet).then_some(6.0 + 30.0 * wave * wave),
            sent_bytes_per_s: 1e6 * wave,
            received_bytes_per_s: 8e5 * wave,
        }
    };
    (0..300).map(sample).collect()
}

/// Returns a model with all kinds of content.
pub fn rich() -> Model {
    let status = Status {
        peer_id: peer(0),
        name: name(0),
        network: "mine".into(),
        version: "0.1.0".into(),
        commit: "0123456789ab".into(),
        uptime_s: 93_784,
        durability: "sync".into(),
        groups: vec![own()],
        leaving: None,
        start: 1,
        identity: Vec::new(),
    };
    let mut model = Model {
        endpoint: "192.0.2.7:6480".into(),
        ready: Some(true),
        status: Some(status),
        groups: Some(vec![own(), former()]),
        ring: Some(Ring {
            whole: true,
            groups: vec![
                located('a', 0, 3, 45, 5..10),
                located('b', 3, 8, 1234, 0..5),
                located('c', 8, 12, 88, 6..11),
                located('d', 12, 13, 9, 7..10),
                located('e', 13, 0, 100_200, 2..12),
            ],
            silent: Vec::new(),
        }),
        peers: Some(vec![
            traffic(1, true, Some(0.42)),
            traffic(2, false, Some(30.0)),
            traffic(3, true, Some(18.0)),
            traffic(4, true, Some(230.0)),
            traffic(5, true, Some(1200.0)),
            traffic(9, true, None),
        ]),
        budgets: Some(Budgets {
            disk: Budget { used: Some(9_876_543_210), given: Some(10 << 30) },
            memory: Budget { used: Some(432 << 20), given: Some(1 << 30) },
            bandwidth: Budget { used: Some(1_234_567), given: None },
            connections: Budget { used: Some(60), given: Some(64) },
        }),
        age_s: Some(0),
        ring_age_s: Some(2),
        ..Model::default()
    };
    model.add_events(events());
    model.add_load(load());
    model
}

/// Returns a group with harmful texts in every place, and numbers as large as they get.
fn hostile_group() -> GroupStatus {
    GroupStatus {
        id: HOSTILE.into(),
        epoch: u64::MAX,
        range: RangeStatus { start: HOSTILE.into(), end: HOSTILE.into() },
        members: vec![
            MemberStatus {
                peer_id: HOSTILE.into(),
                cluster: HOSTILE.into(),
                role: HOSTILE.into(),
                lifetime_s: u64::MAX,
                ..MemberStatus::default()
            };
            3
        ],
        leader: Some(HOSTILE.into()),
        primaries: vec![PrimaryStatus { start: HOSTILE.into(), end: HOSTILE.into(), peer_id: HOSTILE.into() }],
        part: HOSTILE.into(),
        complete: u64::MAX,
        transfers: vec![TransferStatus {
            from: HOSTILE.into(),
            what: HOSTILE.into(),
            done_percent: u64::MAX,
            ..TransferStatus::default()
        }],
        transactions: vec![TransactionStatus {
            operation: HOSTILE.into(),
            coordinator: HOSTILE.into(),
            participants: vec![HOSTILE.into()],
            step: HOSTILE.into(),
            locks: vec![HOSTILE.into()],
            ..TransactionStatus::default()
        }],
        predecessor: Some(HOSTILE.into()),
        keys: u64::MAX,
        bytes: u64::MAX,
        ops_per_s: f64::MAX,
        load_ops_per_s: Some(f64::NAN),
        dropped: [("a".to_owned(), u64::MAX), ("b".to_owned(), u64::MAX)].into(),
        ..GroupStatus::default()
    }
}

/// Returns a model with harmful texts in every place, and numbers as large as they get.
pub fn hostile() -> Model {
    let status = Status {
        peer_id: HOSTILE.into(),
        network: HOSTILE.into(),
        version: HOSTILE.into(),
        commit: HOSTILE.into(),
        uptime_s: u64::MAX,
        durability: HOSTILE.into(),
        groups: vec![hostile_group()],
        leaving: None,
        ..Status::default()
    };
    let place = Located {
        point: HOSTILE.into(),
        group: HOSTILE.into(),
        epoch: u64::MAX,
        members: vec![HOSTILE.into(); 2],
        primary: HOSTILE.into(),
        ..Located::default()
    };
    let told =
        Told { kind: HOSTILE.into(), text: HOSTILE.into(), unix_ms: u64::MAX, count: u64::MAX, ..Told::default() };
    Model {
        endpoint: HOSTILE.into(),
        ready: Some(false),
        status: Some(status),
        ring: Some(Ring { whole: false, groups: vec![place], ..Ring::default() }),
        peers: Some(vec![PeerTraffic {
            peer_id: HOSTILE.into(),
            up: true,
            via: Some(HOSTILE.into()),
            rtt_ms: Some(f64::INFINITY),
            sent_bytes: u64::MAX,
            ..PeerTraffic::default()
        }]),
        budgets: Some(Budgets { disk: Budget { used: Some(u64::MAX), given: Some(0) }, ..Budgets::default() }),
        events: Some(vec![told]),
        load: Some(vec![LoadSample { ops_per_s: f64::INFINITY, p99_ms: Some(f64::NAN), ..LoadSample::default() }]),
        troubles: [(HOSTILE.to_owned(), HOSTILE.to_owned())].into(),
        notice: Some(HOSTILE.into()),
        age_s: Some(u64::MAX),
        ..Model::default()
    }
}
