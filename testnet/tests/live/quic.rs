//! Real daemons of which some or all reach each other only by QUIC: they serve, and a dead member is noticed as soon as on TCP.
//!
//! Needs the right to make network namespaces (root), and `ip`; where either is missing, the program prints this and tests
//! nothing. `SCATTER_BIN` names the daemon's binary; without it, it is built.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testnet::live::{Cluster, ClusterOptions, Habits, LiveLoad, Recorder, SLACK, Signal, Wires, between, short_or};

/// Longest time until a dead member is noticed.
const NOTICED_MAX: Duration = Duration::from_secs(3);
/// Time to ask all daemons on a busy machine.
const ASKING_MAX: Duration = Duration::from_secs(1);
/// Upper limit of each other wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints this on the terminal itself: the output of a test that passes is not shown.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Starts daemons that listen on both transports, where `filtered` pairs have no TCP.
fn start(test: &str, daemons: usize, filtered: &[(usize, usize)]) -> Option<(Wires, Cluster)> {
    let mut wires = match Wires::lay(daemons) {
        Ok(wires) => wires,
        Err(why) => {
            skipped(test, &why);
            return None;
        }
    };
    wires.filter_tcp(filtered.iter().copied());
    let sites = Some(wires.sites().to_vec());
    let cluster = Cluster::start(test, &ClusterOptions { daemons, sites, quic: true, ..ClusterOptions::default() });
    Some((wires, cluster))
}

/// Returns whether every daemon has lately heard of every other one, directly.
fn all_hear_all(cluster: &Cluster) -> bool {
    cluster
        .daemons
        .iter()
        .all(|daemon| daemon.view().is_some_and(|view| view.voters().count() == cluster.daemons.len()))
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    since.elapsed()
}

/// Four of ten pairs have no TCP between them. Three daemons have TCP with two other ones only. The group serves through all
/// daemons, while one of them is killed and comes back, and after TCP passes everywhere.
#[test]
fn a_group_some_of_whose_pairs_have_only_quic_serves() {
    let filtered = [between(&[0], &[1, 2]), between(&[4], &[1, 3])].concat();
    let Some((mut wires, mut cluster)) = start("some-quic", 5, &filtered) else { return };
    eventually("everybody hears everybody", || all_hear_all(&cluster));
    eventually("everybody is told both kinds of everybody's addresses", || {
        let has = |addresses: &[String], kind| addresses.iter().any(|address| address.contains(kind));
        let has_both = |addresses: &[String]| has(addresses, "/tcp/") && has(addresses, "/quic-v1");
        cluster.daemons[0].view().is_some_and(|view| view.members.iter().all(|member| has_both(&member.addresses)))
    });

    let (endpoints, recorder) = (cluster.endpoints(), Arc::new(Recorder::default()));
    let habits = Habits { clients: 15, pause: Duration::from_millis(5), ..Habits::default() };
    let load = LiveLoad::start_as(&recorder, &endpoints, &habits);
    std::thread::sleep(short_or(3, 30));
    cluster.kill(1);
    cluster.wait_serving(&[0, 2, 3, 4], PATIENCE);
    cluster.restart(1);
    cluster.wait_ready(1);
    cluster.wait_members(PATIENCE);
    let heard = eventually("everybody hears everybody again", || all_hear_all(&cluster));
    std::thread::sleep(short_or(2, 30));
    wires.open_tcp();
    std::thread::sleep(short_or(2, 90));
    assert!(all_hear_all(&cluster));
    load.stop();
    println!("some-quic: {} answered; all heard all {heard:.1?} after a restart", recorder.answered());
    recorder.judge_everywhere(&endpoints);
    assert!(recorder.answered() > 500, "too little was answered: {}", recorder.answered());
}

/// Returns a daemon that does not lead: only the successor of a leader can tell that the leader is suspected.
fn follower(cluster: &Cluster) -> usize {
    let leads = |daemon: &testnet::live::Daemon| daemon.view().is_some_and(|view| view.leader == daemon.peer_id);
    let mut found = None;
    eventually("somebody leads", || {
        let leader = cluster.daemons.iter().position(leads);
        found = leader.map(|leader| (leader + 1) % cluster.daemons.len());
        found.is_some()
    });
    found.expect("just found")
}

/// Returns the time until all other daemons suspect this one.
fn suspected(cluster: &Cluster, victim: usize, since: Instant) -> Duration {
    let id = cluster.daemons[victim].peer_id.clone().expect("it has said who it is");
    eventually("all others suspect it", || {
        let others = cluster.daemons.iter().enumerate().filter(|(index, _)| *index != victim);
        others.map(|(_, daemon)| daemon.view()).all(|view| {
            let members = view.map(|view| view.members).unwrap_or_default();
            members.iter().any(|member| member.peer_id == id && member.role == "suspect")
        })
    });
    since.elapsed()
}

/// One daemon is killed, one frozen, and the machine of one is gone: all other daemons notice it in time, and it comes back.
fn noticed(test: &str, filtered: &[(usize, usize)]) {
    let Some((mut wires, mut cluster)) = start(test, 4, filtered) else { return };
    eventually("everybody hears everybody", || all_hear_all(&cluster));
    for what in ["killed", "frozen", "gone"] {
        let victim = follower(&cluster);
        let others: Vec<usize> = cluster.all().into_iter().filter(|other| *other != victim).collect();
        let since = Instant::now();
        match what {
            "killed" => cluster.kill(victim),
            "frozen" => cluster.daemons[victim].signal(Signal::Freeze),
            _ => wires.cut(between(&[victim], &others)),
        }
        let noticed = suspected(&cluster, victim, since);
        let since = Instant::now();
        match what {
            "killed" => {
                cluster.restart(victim);
                cluster.wait_ready(victim);
            }
            "frozen" => cluster.daemons[victim].signal(Signal::Thaw),
            _ => wires.heal(),
        }
        eventually("everybody hears everybody again", || all_hear_all(&cluster));
        println!(
            "{test}: {what}, it was suspected by all after {noticed:.2?}, and heard again after {:.2?}",
            since.elapsed()
        );
        assert!(noticed < NOTICED_MAX + ASKING_MAX, "{what}, it was noticed after {noticed:?}");
        assert!(since.elapsed() < PATIENCE / 3 * SLACK, "it was back after {:?}", since.elapsed());
    }
}

#[test]
fn the_dead_are_noticed_on_tcp() {
    noticed("noticed-tcp", &[]);
}

#[test]
fn the_dead_are_noticed_on_quic() {
    let all: Vec<usize> = (0..4).collect();
    let filtered: Vec<_> = between(&all, &all).into_iter().filter(|(one, other)| one != other).collect();
    noticed("noticed-quic", &filtered);
}
