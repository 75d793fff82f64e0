//! Stories on a switch with sockets, seen through these sockets alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use header::{Header, Operation, PACKET_BYTES_MAX, Packet};
use switch::p4rt::client::SwitchConfig;
use switch::p4rt::standin::Standin;
use switch::pipeline::Verdict;
use switch::trace::Trace;
use switch::trace::replay::{Failed, On, replay};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::common::*;
use super::stories;

/// Defect of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// The switch does not write numbers into writes.
    Unstamped,
    /// The switch forwards writes without room.
    NeverFull,
    /// The switch sends everything to the primary.
    NeverFast,
    /// The switch sends reads that are not fast to any replica.
    AlwaysElsewhere,
}

/// Moves packets through the stand-in's pipeline until it is aborted.
async fn forward(standin: Arc<Standin>, socket: UdpSocket, defect: Defect) {
    let mut bytes = [0; PACKET_BYTES_MAX];
    let mut client = None;
    for chance in 0u32.. {
        let (length, from) = socket.recv_from(&mut bytes).await.unwrap();
        let packet = Packet::decode(&bytes[..length]).unwrap();
        let mut header = packet.header;
        let (verdict, to) = {
            let mut state = standin.lock();
            let verdict = state.pipeline.process(&mut header, chance);
            let to = match verdict {
                Verdict::To(replica) => state.ports.get(&replica).copied().map(SocketAddr::V4),
                Verdict::On if header.operation == Operation::Reply => client,
                Verdict::Drop(_) if defect == Defect::NeverFull && header.operation == Operation::WriteFirst => {
                    state.ports.values().next_back().copied().map(SocketAddr::V4)
                }
                _ => None,
            };
            let last = state.ports.values().next_back().copied().map(SocketAddr::V4);
            let is_plain = header.operation == Operation::Read && matches!(verdict, Verdict::To(_));
            (verdict, if defect == Defect::AlwaysElsewhere && is_plain { last } else { to })
        };
        match (defect, header.operation) {
            (Defect::Unstamped, Operation::WriteFirst) => header = packet.header,
            (Defect::NeverFast, Operation::FastRead) if matches!(verdict, Verdict::To(_)) => {
                header = Header { operation: Operation::Read, ..packet.header };
            }
            _ => {}
        }
        if !matches!(header.operation, Operation::Reply | Operation::Completion) {
            client = Some(from);
        }
        if let Some(to) = to {
            let mut out = Vec::new();
            Packet { header, ..packet }.encode(&mut out);
            socket.send_to(&out, to).await.unwrap();
        }
    }
}

async fn stage(defect: Defect) -> (Switch, On, JoinHandle<()>) {
    let switch = Switch::with_slots(4096).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let on = On {
        data: socket.local_addr().unwrap(),
        control: SwitchConfig {
            endpoint: format!("http://{}", switch.address),
            device: DEVICE,
            device_config: Vec::new(),
        },
        election: 1,
        here: [127, 0, 0, 1].into(),
        patience: SOON,
        quiet: Duration::from_millis(20),
    };
    let task = tokio::spawn(forward(switch.standin.clone(), socket, defect));
    (switch, on, task)
}

#[tokio::test]
async fn a_switch_that_does_it_right_passes() {
    let (switch, on, task) = stage(Defect::None).await;
    // Twice: the registers' content from the first run does not matter to the second.
    for _ in 0..2 {
        for (name, trace) in stories::all() {
            let packets = replay(&trace, &on).await.unwrap_or_else(|failed| panic!("{name}: {failed}"));
            assert!(packets > 5, "{name}");
        }
    }
    assert!(switch.standin.lock().ports.is_empty(), "nothing is left in the tables");
    task.abort();
    switch.stop().await;
}

#[tokio::test]
async fn a_switch_that_does_not_is_found_out() {
    let stories = stories::all();
    for (defect, story) in [
        (Defect::Unstamped, "algorithm.txt"),
        (Defect::NeverFull, "full.txt"),
        (Defect::NeverFast, "replicas.txt"),
        (Defect::AlwaysElsewhere, "partitions.txt"),
    ] {
        let (switch, on, task) = stage(defect).await;
        let (_, trace) = stories.iter().find(|(name, _)| name == story).unwrap();
        let failed = replay(trace, &on).await;
        assert!(matches!(failed, Err(Failed::Wrong(_))), "{defect:?}: {failed:?}");
        task.abort();
        switch.stop().await;
    }
}

#[tokio::test]
async fn what_cannot_be_played_is_said() {
    let (switch, mut on, task) = stage(Defect::None).await;
    on.patience = Duration::from_millis(500);
    let beyond: Trace = "partition 5 index=200 first=0 slots=1 term=1 switch=1 primary=1".parse().unwrap();
    let failed = replay(&beyond, &on).await.unwrap_err();
    assert!(failed.to_string().contains("register 200 is taken, or is none"), "{failed}");
    let session = Session::primary(&switch, 9).await;
    let failed = replay(&Trace::default(), &on).await.unwrap_err();
    assert!(failed.to_string().contains("another controller has a higher election id"), "{failed}");
    drop(session);
    task.abort();
    switch.stop().await;
}
