//! Tests of the schedule: targets, transports, and waits.

use super::*;

const A: PeerKey = PeerKey([1; 32]);

struct Bench {
    redial: Redial,
    now: Instant,
    ids: usize,
}

impl Bench {
    fn new() -> Bench {
        Bench { redial: Redial::new(Timing::default()), now: Instant::now(), ids: 0 }
    }

    fn want(&mut self, until: Until) {
        let address = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        self.redial.want(Target::Peer(A), vec![address], until, None, self.now);
    }

    /// Waits for the next dial, begins it and returns the length of the wait.
    fn dial(&mut self) -> Option<(Duration, ConnectionId)> {
        let at = self.redial.next()?.max(self.now);
        let waited = at - self.now;
        self.now = at;
        let due = self.redial.due(self.now);
        let due = due.first()?;
        self.ids += 1;
        let id = ConnectionId::new_unchecked(self.ids);
        self.redial.dialing(due, id, self.now);
        assert!(self.redial.due(self.now).is_empty(), "one dial at a time");
        Some((waited, id))
    }
}

#[test]
fn pauses_grow_to_a_limit_and_start_anew_after_a_success() {
    let mut bench = Bench::new();
    bench.want(Until::Forever);
    let mut waits = Vec::new();
    for _ in 0..12 {
        let (waited, id) = bench.dial().unwrap();
        waits.push(waited);
        bench.redial.failed(id, bench.now);
    }
    assert_eq!(waits[0], Duration::ZERO);
    assert!(waits[1] >= Duration::from_millis(50) && waits[1] <= Duration::from_millis(100));
    assert!(waits[11] >= Duration::from_millis(2500) && waits[11] <= Duration::from_secs(5));
    let (_, id) = bench.dial().unwrap();
    bench.redial.connected(A, id, Via::Tcp, bench.now);
    assert_eq!(bench.redial.next(), None);
    bench.redial.accepted(A, bench.now);
    bench.redial.gone(A, bench.now);
    assert!(bench.dial().unwrap().0 <= Duration::from_millis(100));
}

#[test]
fn a_refusal_is_not_forgotten_when_the_connection_goes() {
    let mut bench = Bench::new();
    bench.want(Until::Forever);
    let (_, id) = bench.dial().unwrap();
    bench.redial.connected(A, id, Via::Tcp, bench.now);
    bench.redial.refused(A, bench.now);
    // Another connection, dialled at the same time, comes up and goes.
    bench.redial.connected(A, ConnectionId::new_unchecked(1000), Via::Tcp, bench.now);
    bench.redial.refused(A, bench.now);
    bench.redial.connected(A, ConnectionId::new_unchecked(1001), Via::Tcp, bench.now);
    bench.redial.gone(A, bench.now);
    bench.want(Until::Forever);
    let waited = bench.dial().unwrap().0;
    assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_secs(60));
}

#[test]
fn who_was_only_found_or_wanted_is_given_up() {
    let mut bench = Bench::new();
    bench.want(Until::Found);
    for _ in 0..FOUND_FAILURES_MAX {
        let (_, id) = bench.dial().unwrap();
        bench.redial.failed(id, bench.now);
    }
    assert!(bench.dial().is_none());
    assert!(!bench.redial.is_wanted(&A));

    bench.want(Until::Wanted(bench.now + Duration::from_secs(60)));
    let began = bench.now;
    while let Some((_, id)) = bench.dial() {
        bench.redial.failed(id, bench.now);
    }
    assert!(bench.now - began > Duration::from_secs(50) && bench.now - began < Duration::from_secs(66));
    assert!(!bench.redial.is_wanted(&A));
}

#[test]
fn a_door_is_open_again_when_whoever_stood_behind_it_is_gone() {
    let mut bench = Bench::new();
    let door: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
    bench.redial.want(Target::Door(door.clone()), vec![door], Until::Forever, None, bench.now);
    let (_, id) = bench.dial().unwrap();
    bench.redial.connected(A, id, Via::Tcp, bench.now);
    assert!(bench.dial().is_none());
    bench.redial.gone(A, bench.now);
    assert!(bench.dial().is_some());
}

/// Wants a peer with an address of each transport.
fn both(bench: &mut Bench) {
    let addresses = ["/ip4/127.0.0.1/udp/1/quic-v1", "/ip4/127.0.0.1/tcp/1"].map(|text| text.parse().unwrap());
    bench.redial.want(Target::Peer(A), addresses.to_vec(), Until::Forever, None, bench.now);
}

/// Goes to the next dial and begins it.
fn next(bench: &mut Bench) -> (Duration, Attempt, Via, ConnectionId) {
    let before = bench.now;
    bench.now = bench.redial.next().unwrap().max(bench.now);
    let due = bench.redial.due(bench.now).remove(0);
    bench.ids += 1;
    let id = ConnectionId::new_unchecked(bench.ids);
    bench.redial.dialing(&due, id, bench.now);
    assert_eq!(due.addresses.len(), 1);
    (bench.now - before, due.attempt, via(&due.addresses[0]).unwrap(), id)
}

#[test]
fn tcp_has_a_start_and_no_more() {
    let mut bench = Bench::new();
    both(&mut bench);
    let (_, attempt, by, tcp) = next(&mut bench);
    assert_eq!((attempt, by), (Attempt::First, Via::Tcp));
    // TCP gives no answer.
    let (waited, attempt, by, quic) = next(&mut bench);
    assert_eq!((waited, attempt, by), (Timing::default().tcp_start, Attempt::Second, Via::Quic));
    assert_eq!(bench.redial.next(), None, "both are under way");
    // Only when both have failed there is a pause.
    bench.redial.failed(quic, bench.now);
    assert_eq!(bench.redial.next(), None);
    bench.redial.failed(tcp, bench.now);
    let (waited, _, by, tcp) = next(&mut bench);
    assert!(waited >= Duration::from_millis(50) && by == Via::Tcp);
    // When TCP was refused, it has no start.
    bench.redial.failed(tcp, bench.now);
    let (waited, attempt, by, _) = next(&mut bench);
    assert_eq!((waited, attempt, by), (Duration::ZERO, Attempt::Second, Via::Quic));
}

#[test]
fn tcp_is_tried_less_and_less_often_beside_quic_until_it_is_there() {
    let mut bench = Bench::new();
    both(&mut bench);
    let (_, _, _, tcp) = next(&mut bench);
    bench.redial.failed(tcp, bench.now);
    let (_, _, _, quic) = next(&mut bench);
    bench.redial.connected(A, quic, Via::Quic, bench.now);
    let timing = Timing::default();
    let mut waits = Vec::new();
    for _ in 0..8 {
        let (waited, attempt, by, id) = next(&mut bench);
        assert_eq!((attempt, by), (Attempt::Better, Via::Tcp));
        waits.push(waited);
        bench.redial.failed(id, bench.now);
    }
    assert!(waits[0] >= timing.tcp_retry_min / 2 && waits[0] <= timing.tcp_retry_min, "{waits:?}");
    assert!(waits[7] >= timing.tcp_retry_max / 2 && waits[7] <= timing.tcp_retry_max, "{waits:?}");
    let (_, _, _, tcp) = next(&mut bench);
    bench.redial.connected(A, tcp, Via::Tcp, bench.now);
    assert_eq!(bench.redial.next(), None);
}

#[test]
fn tcp_that_breaks_soon_twice_goes_second_for_a_time_that_grows() {
    let (mut bench, timing) = (Bench::new(), Timing::default());
    both(&mut bench);
    let mut quic_first = Vec::new();
    for _ in 0..6 {
        // By TCP, as soon as it has its turn, and it breaks a second later.
        let (from, mut by_quic) = (bench.now, false);
        loop {
            let (_, attempt, by, id) = next(&mut bench);
            bench.redial.connected(A, id, by, bench.now);
            bench.redial.accepted(A, bench.now);
            if by == Via::Tcp {
                break;
            }
            assert_eq!(attempt, Attempt::First);
            by_quic = true;
        }
        quic_first.push((by_quic, bench.now - from));
        bench.now += Duration::from_secs(1);
        bench.redial.gone(A, bench.now);
    }
    assert!(!quic_first[0].0 && !quic_first[1].0 && quic_first[2..].iter().all(|(by_quic, _)| *by_quic));
    assert!(quic_first[2].1 >= timing.tcp_retry_min && quic_first[5].1 >= timing.tcp_retry_max / 2, "{quic_first:?}");
    // A TCP connection that lasts is trusted again.
    let (_, _, by, id) = next(&mut bench);
    assert_eq!(by, Via::Quic);
    bench.redial.connected(A, id, by, bench.now);
    let (_, _, _, id) = next(&mut bench);
    bench.redial.connected(A, id, Via::Tcp, bench.now);
    bench.now += timing.tcp_retry_max;
    bench.redial.gone(A, bench.now);
    assert_eq!(next(&mut bench).2, Via::Tcp);
}

/// A QUIC connection that came up at the same time carries frames when TCP goes, and the peer is not gone: TCP is tried
/// again there, too.
#[test]
fn tcp_that_goes_and_leaves_quic_behind_is_tried_again() {
    let (mut bench, timing) = (Bench::new(), Timing::default());
    both(&mut bench);
    let (.., tcp) = next(&mut bench);
    let (.., quic) = next(&mut bench);
    for (id, by) in [(tcp, Via::Tcp), (quic, Via::Quic)] {
        bench.redial.connected(A, id, by, bench.now);
    }
    assert_eq!(bench.redial.next(), None);
    let mut waits = Vec::new();
    for _ in 0..6 {
        bench.redial.tcp_gone(A, bench.now);
        let (waited, attempt, by, id) = next(&mut bench);
        assert_eq!((attempt, by), (Attempt::Better, Via::Tcp));
        waits.push(waited);
        bench.redial.connected(A, id, by, bench.now);
        assert_eq!(bench.redial.next(), None);
    }
    assert!(waits[0] >= timing.tcp_retry_min / 2 && waits[5] >= timing.tcp_retry_max / 2, "{waits:?}");
    assert!(waits.iter().all(|waited| *waited <= timing.tcp_retry_max), "{waits:?}");
}
