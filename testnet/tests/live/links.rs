//! Real daemons, each with a network of its own, whose links are cut. A daemon that is cut off acknowledges nothing, the other
//! daemons go on, and the clients' history has no contradiction.
//!
//! Needs the right to make network namespaces (root), and `ip`; where either is missing, the program prints this and tests
//! nothing. `SCATTER_BIN` names the daemon's binary; without it, it is built. `SCATTER_LONG=1` cuts links for longer than a
//! member may be silent: then a member that is cut off is removed, and has to join again.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use group::op::{Condition, Expiry, Op, Read};
use overlay::Key;
use overlay::time::Time;
use testnet::history::{Operation, Outcome};
use testnet::live::{
    Cluster, ClusterOptions, Endpoint, Habits, LiveLoad, Recorder, SLACK, Wires, between, is_long, one_way, short_or,
};

const DAEMONS: usize = 5;
/// Number of clients of each daemon; a client asks no other daemon.
const CLIENTS: u64 = 4;
/// Time within which daemons that are not cut off serve all keys again, and within which all daemons do after the links are
/// mended.
const PROGRESS_MAX: Duration = Duration::from_secs(10);
/// Upper limit of each other wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys that are spread over the ring: each of five primaries has some of them.
const SPREAD_KEYS: usize = 20;

/// The links that are cut, and the consequences.
struct Cut {
    links: Vec<(usize, usize)>,
    /// Daemons that can agree on nothing, so they acknowledge nothing.
    cut_off: Vec<usize>,
    /// Daemons that serve all keys.
    whole: Vec<usize>,
}

/// The time while links were cut.
#[derive(Clone, Copy)]
struct Meanwhile {
    from: Time,
    until: Time,
}

impl Meanwhile {
    /// Returns whether this peer was asked for the operation, and answered it, in this time.
    fn has(self, operation: &Operation, via: usize) -> bool {
        let ended = operation.completed.is_some_and(|moment| moment.time < self.until);
        operation.via == via && operation.invoked.time >= self.from && ended
    }
}

/// Prints this on the terminal itself: the output of a test that passes is not shown.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Starts five daemons under load. Cuts the links that `cut` chooses, given the leader and the four other daemons, and mends
/// them.
fn under(test: &str, cut: impl Fn(usize, [usize; 4]) -> Cut) {
    let mut wires = match Wires::lay(DAEMONS) {
        Ok(wires) => wires,
        Err(why) => return skipped(test, &why.to_string()),
    };
    let sites = Some(wires.sites().to_vec());
    let cluster = Cluster::start(test, &ClusterOptions { daemons: DAEMONS, sites, ..ClusterOptions::default() });
    let (all, endpoints) = (cluster.all(), cluster.endpoints());
    let recorder = Arc::new(Recorder::default());
    let clients = CLIENTS * DAEMONS as u64;
    let habits = Habits { clients, pause: Duration::from_millis(10), faithful: true, ..Habits::default() };
    let load = LiveLoad::start_as(&recorder, &endpoints, &habits);
    serve_all(&recorder, &endpoints, &all, "before");

    let leader = leader_of(&cluster);
    let others: Vec<usize> = all.iter().copied().filter(|other| *other != leader).collect();
    let Cut { links, cut_off, whole } = cut(leader, others.try_into().expect("four others"));
    wires.cut(links);
    let (from, since) = (recorder.now(), Instant::now());
    let progress = std::thread::scope(|scope| {
        for &via in &cut_off {
            let (recorder, endpoint) = (&recorder, &endpoints[via]);
            scope.spawn(move || refuse_all(recorder, endpoint, via));
        }
        serve_all(&recorder, &endpoints, &whole, "during")
    });
    std::thread::sleep(short_or(3, 25).saturating_sub(since.elapsed()));
    let later = serve_all(&recorder, &endpoints, &whole, "during, later");
    let (meanwhile, lasted) = (Meanwhile { from, until: recorder.now() }, since.elapsed());
    wires.heal();
    let healed = serve_all(&recorder, &endpoints, &all, "after");
    cluster.wait_members(PATIENCE * SLACK);
    load.stop();

    println!(
        "{test}: links were cut for {lasted:.1?}, peer {leader} led; all keys through {whole:?} after {progress:.1?}, \
         later after {later:.1?}; through all {healed:.1?} after links were mended"
    );
    let mut acknowledged = 0;
    for via in all {
        let answered =
            recorder.count(|operation| meanwhile.has(operation, via) && operation.outcome.answer().is_some());
        let refused = recorder.count(|operation| meanwhile.has(operation, via) && operation.outcome.answer().is_none());
        println!("{test}: meanwhile peer {via} answered {answered}, and {refused} times that it cannot");
        acknowledged += if cut_off.contains(&via) { answered } else { 0 };
    }
    recorder.judge_everywhere(&endpoints);
    assert_eq!(acknowledged, 0, "{cut_off:?} acknowledged something while they were cut off");
    for (what, took) in [("during", progress), ("later", later), ("after", healed)] {
        assert!(took < PROGRESS_MAX * SLACK, "{what} the cut it took {took:?}");
    }
    assert!(recorder.answered() > 500, "too little was answered: {}", recorder.answered());
}

/// Writes and reads keys all over the ring through each of these peers, until all of them have answered. Returns the duration.
fn serve_all(recorder: &Recorder, endpoints: &[Endpoint], which: &[usize], when: &str) -> Duration {
    let since = Instant::now();
    std::thread::scope(|scope| {
        for &via in which {
            scope.spawn(move || {
                for number in 0..SPREAD_KEYS {
                    let key = Key::new(format!("{when} {number}").as_bytes()).expect("short");
                    let (value, condition, expiry) =
                        (format!("through {via}").into(), Condition::Always, Expiry::Clear);
                    let write = Op::Set { value, condition, expiry, get: false };
                    for op in [write, Op::Read(Read::Value)] {
                        while !is_answered(recorder, &endpoints[via], via, &key, &op) {
                            let late = since.elapsed() > PATIENCE;
                            assert!(!late, "{when} the cut: peer {via} does not answer {op:?} of {key:?}");
                            std::thread::sleep(Duration::from_millis(20));
                        }
                    }
                }
            });
        }
    });
    since.elapsed()
}

fn is_answered(recorder: &Recorder, at: &Endpoint, via: usize, key: &Key, op: &Op) -> bool {
    matches!(ask(recorder, at, via, key, op), Some(Outcome::Answered(_)))
}

/// Asks as a client of its own.
fn ask(recorder: &Recorder, at: &Endpoint, via: usize, key: &Key, op: &Op) -> Option<Outcome> {
    let who = recorder.newcomer();
    let mut connection = at.connect(Duration::from_secs(5)).ok()?;
    recorder.ask(&mut connection, (who, who << 32), via, key, op)
}

/// Asks a peer that is cut off for keys all over the ring, all at once. The peer may only answer that it cannot serve.
fn refuse_all(recorder: &Recorder, at: &Endpoint, via: usize) {
    std::thread::scope(|scope| {
        for number in 0..SPREAD_KEYS {
            scope.spawn(move || {
                let key = Key::new(format!("cut off {number}").as_bytes()).expect("short");
                let (op, wanted): (_, &[_]) = match number % 2 {
                    0 => (Op::Read(Read::Value), &[Outcome::TryAgain]),
                    _ => (write_of(via), &[Outcome::TryAgain, Outcome::Uncertain]),
                };
                let outcome = ask(recorder, at, via, &key, &op).expect("it answers, and does not hang up");
                assert!(wanted.contains(&outcome), "peer {via} is cut off, and says {outcome:?} to {op:?}");
            });
        }
    });
}

fn write_of(via: usize) -> Op {
    let (value, condition, expiry) = (format!("through {via}").into(), Condition::Always, Expiry::Clear);
    Op::Set { value, condition, expiry, get: false }
}

/// Returns the leader, as far as any daemon knows it.
fn leader_of(cluster: &Cluster) -> usize {
    let until = Instant::now() + PATIENCE;
    loop {
        let leader = cluster.daemons.iter().find_map(|daemon| daemon.view()?.leader);
        let number = |id: String| cluster.daemons.iter().position(|daemon| daemon.peer_id.as_ref() == Some(&id));
        if let Some(number) = leader.and_then(number) {
            return number;
        }
        assert!(Instant::now() < until, "nobody leads");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn two_are_cut_off_with_the_leader() {
    under("two-of-five", |leader, [a, b, c, d]| Cut {
        links: between(&[leader, a], &[b, c, d]),
        cut_off: vec![leader, a],
        whole: vec![b, c, d],
    });
}

/// The two receive all messages, and no other daemon receives theirs.
#[test]
fn two_are_not_heard() {
    under("not-heard", |leader, [a, b, c, d]| Cut {
        links: one_way(&[leader, a], &[b, c, d]),
        cut_off: vec![leader, a],
        whole: vec![b, c, d],
    });
}

/// The messages of the two arrive, with all their requests, and the two receive nothing.
#[test]
fn two_do_not_hear() {
    under("not-hearing", |leader, [a, b, c, d]| Cut {
        links: one_way(&[b, c, d], &[leader, a]),
        cut_off: vec![leader, a],
        whole: vec![b, c, d],
    });
}

/// The leader and another daemon cannot talk to each other; all other daemons hear both of them.
#[test]
fn the_leader_and_another_do_not_hear_each_other() {
    under("triangle", |leader, [a, b, c, d]| Cut {
        links: between(&[leader], &[a]),
        cut_off: vec![],
        whole: vec![leader, b, c, d],
    });
}

/// Two followers cannot talk to each other. Only with `SCATTER_LONG`: the other tests take a minute together.
#[test]
fn two_others_do_not_hear_each_other() {
    if !is_long() {
        return skipped("side", "SCATTER_LONG is not set");
    }
    under("side", |leader, [a, b, c, d]| Cut {
        links: between(&[a], &[b]),
        cut_off: vec![],
        whole: vec![leader, c, d],
    });
}

/// One daemon hears all daemons, and is not the leader at first; the other daemons hear only that one.
#[test]
fn only_one_is_heard_by_all() {
    under("star", |leader, [a, b, c, hub]| {
        let rim = [leader, a, b, c];
        let links = rim.iter().flat_map(|one| one_way(&[*one], &rim)).filter(|(one, other)| one != other).collect();
        Cut { links, cut_off: vec![], whole: vec![leader, a, b, c, hub] }
    });
}
