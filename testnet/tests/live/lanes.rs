//! Real daemons whose keys are divided among lanes: each lane is a ring of its own, and all of them are one store.
//!
//! As in `processes.rs`: `SCATTER_BIN` names the daemon's binary; without it, it is built. `SCATTER_LONG=1` makes the test take
//! its full time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testnet::live::{Cluster, ClusterOptions, Keys, LiveLoad, Recorder, Reply, Signal, short_or};
use testnet::rng::Rng;

const LANES: usize = 3;
const SERVING_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(30);

fn start(test: &str, daemons: usize) -> Cluster {
    let flags = vec!["--lanes".to_owned(), LANES.to_string()];
    Cluster::start(test, &ClusterOptions { daemons, flags, ..ClusterOptions::default() })
}

/// Returns a daemon's status of each of its groups, in the order of the lanes.
fn groups(cluster: &Cluster, daemon: usize) -> Vec<serde_json::Value> {
    let status = cluster.daemons[daemon].ask_http("/v1/status").expect("it answers");
    status["groups"].as_array().cloned().expect("a list")
}

/// Waits until every lane of every daemon has exactly this number of members.
fn wait_for_members(cluster: &Cluster, count: usize) {
    let until = Instant::now() + SERVING_MAX;
    let settled = |group: &serde_json::Value| {
        let members = group["members"].as_array().map_or(0, Vec::len);
        members == count && group["established"] == true
    };
    let is_whole = |groups: &[serde_json::Value]| groups.len() == LANES && groups.iter().all(settled);
    for daemon in cluster.all() {
        while !is_whole(&groups(cluster, daemon)) {
            assert!(Instant::now() < until, "{:#?}", groups(cluster, daemon));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn lanes_are_one_store_under_kills() {
    let mut cluster = start("lanes", 3);
    let recorder = Arc::new(Recorder::default());
    let load = LiveLoad::start(&recorder, &cluster.endpoints(), 8, 1, &Keys { count: 8, ..Keys::default() });
    let mut rng = Rng::new(1, "kills");
    let until = Instant::now() + short_or(15, 300);
    while Instant::now() < until {
        let victim = rng.below(3) as usize;
        cluster.kill(victim);
        std::thread::sleep(rng.duration(Duration::from_millis(100), Duration::from_secs(3)));
        cluster.restart(victim);
        cluster.wait_ready(victim);
    }
    load.stop();
    cluster.wait_serving(&cluster.all(), SERVING_MAX);
    recorder.judge(&cluster.endpoints());
    assert!(recorder.answered() > 1_000, "too little was answered: {}", recorder.answered());
    let groups = groups(&cluster, 0);
    let lanes: Vec<_> = groups.iter().map(|group| group["lane"].as_u64()).collect();
    assert_eq!(lanes, (0..LANES as u64).map(Some).collect::<Vec<_>>());
    assert!(groups.iter().all(|group| group["keys"].as_u64() > Some(0)), "each has its share: {groups:#?}");
}

#[test]
fn all_lanes_stop_and_start_and_leave_together() {
    let mut cluster = start("lanes-life", 4);
    // A peer serves once one of its lanes does; it may leave once it is a member in all of them.
    wait_for_members(&cluster, 4);
    let mut connection = cluster.daemons[0].connect(Duration::from_secs(5)).expect("it serves");
    let pairs: Vec<String> = (0..60).flat_map(|key| [format!("key-{key}"), format!("value-{key}")]).collect();
    let set: Vec<&str> = ["MSET"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
    assert_eq!(
        connection.call(&set).expect("an answer"),
        Reply::Simple("OK".into()),
        "keys of all lanes in one command"
    );

    // The daemon goes with all its lanes or stays with them.
    let mut gone = cluster.daemons.remove(3);
    let left = gone.run(&["leave"]);
    assert_eq!(left.status.code(), Some(0), "{left:?} {}", gone.log_text());
    assert!(gone.wait_end(END_MAX).expect("it ends then").success());
    wait_for_members(&cluster, 3);
    let refused = cluster.daemons[1].run(&["leave"]);
    assert_eq!(refused.status.code(), Some(4), "three are the fewest: {refused:?}");
    assert!(groups(&cluster, 1).len() == LANES && cluster.daemons[1].is_running());

    for daemon in &mut cluster.daemons {
        daemon.signal(Signal::Terminate);
        let ended = daemon.wait_end(END_MAX).expect("it stops");
        assert!(ended.success(), "{ended}: {}", daemon.log_text());
    }
    // The number of lanes was decided when the network was founded.
    let lanes = cluster.daemons[2].flags.iter().position(|flag| flag == "--lanes").expect("it was said");
    let said = cluster.daemons[2].flags.remove(lanes + 1);
    cluster.daemons[2].flags.insert(lanes + 1, "2".into());
    cluster.daemons[2].start(&[]);
    assert!(!cluster.daemons[2].wait_end(END_MAX).expect("it does not run").success());
    let log = cluster.daemons[2].log_text();
    assert!(log.contains("--lanes 3, permanently"), "{log}");
    cluster.daemons[2].flags[lanes + 1] = said;

    cluster.all().into_iter().for_each(|daemon| cluster.restart(daemon));
    cluster.all().into_iter().for_each(|daemon| cluster.wait_ready(daemon));
    let mut connection = cluster.daemons[1].connect(Duration::from_secs(5)).expect("it serves");
    let keys: Vec<&str> = pairs.iter().step_by(2).map(String::as_str).collect();
    let get: Vec<&str> = ["MGET"].into_iter().chain(keys).collect();
    let wanted = pairs.iter().skip(1).step_by(2).map(|value| Reply::Bulk(Some(value.clone().into())));
    assert_eq!(connection.call(&get).expect("an answer"), Reply::Array(Some(wanted.collect())));

    // A daemon with another number of lanes cannot join, and its log tells the reason.
    let mut stranger = gone.renewed("a stranger", gone.directory.with_extension("other"));
    let lanes = stranger.flags.iter().position(|flag| flag == "--lanes").expect("it was said");
    stranger.flags[lanes + 1] = "1".into();
    stranger.start(&["--join".into(), cluster.daemons[0].entry()]);
    let until = Instant::now() + END_MAX;
    while !stranger.log_text().contains("need the same --lanes") {
        assert!(Instant::now() < until, "{}", stranger.log_text());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!stranger.is_ready());
}
