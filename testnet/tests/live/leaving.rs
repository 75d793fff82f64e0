//! Real daemons that leave for good, or stop for a while: the fate of the data, of the group and of the daemons.
//!
//! As in `processes.rs`: `SCATTER_BIN` names the daemon's binary; without it, it is built.

use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use testnet::live::{Cluster, ClusterOptions, Daemon, Keys, LiveLoad, Recorder, Reply, Signal};

const KEYS: usize = 300;
/// Far more than the time of a leave.
const LEAVE_MAX: Duration = Duration::from_secs(60);
const SETTLED_MAX: Duration = Duration::from_secs(60);

fn write_keys(daemon: &Daemon) {
    let mut connection = daemon.connect(Duration::from_secs(5)).expect("it serves");
    for index in 0..KEYS {
        let (key, value) = (format!("key-{index}"), format!("value-{index}"));
        assert_eq!(connection.call(&["SET", &key, &value]).expect("an answer"), Reply::Simple("OK".into()));
    }
}

/// Asserts that all keys can be read through each of these daemons, with the values that were written.
fn expect_keys(cluster: &Cluster) {
    let until = Instant::now() + SETTLED_MAX;
    for daemon in &cluster.daemons {
        let mut connection = daemon.connect(Duration::from_secs(5)).expect("it serves");
        for index in 0..KEYS {
            let wanted = Reply::Bulk(Some(format!("value-{index}").into()));
            loop {
                match connection.call(&["GET", &format!("key-{index}")]).expect("an answer") {
                    Reply::Error(text) if text.starts_with("TRYAGAIN") && Instant::now() < until => {}
                    reply => {
                        assert_eq!(reply, wanted, "key-{index} through {}", daemon.name);
                        break;
                    }
                }
            }
        }
    }
}

/// Returns all members of the daemon's group, suspected or not; learners are not members.
fn voters(daemon: &Daemon) -> Vec<String> {
    let status = daemon.ask_http("/v1/status").unwrap_or_default();
    let members = status["groups"][0]["members"].as_array().cloned().unwrap_or_default();
    let votes = |member: &&serde_json::Value| member["role"] != "learner";
    members.iter().filter(votes).filter_map(|member| Some(member["peer_id"].as_str()?.to_owned())).collect()
}

fn epoch(daemon: &Daemon) -> u64 {
    daemon.ask_http("/v1/status").and_then(|status| status["groups"][0]["epoch"].as_u64()).expect("it is in a group")
}

/// Returns the file of a daemon beside its store.
fn peer_state(daemon: &Daemon) -> serde_json::Value {
    let text = std::fs::read(daemon.directory.join("peer.json")).expect("it remembers something");
    serde_json::from_slice(&text).expect("that is JSON")
}

fn text(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into(), String::from_utf8_lossy(&output.stderr).into())
}

/// Waits until a daemon has ended by itself after it left.
fn expect_left(daemon: &mut Daemon) {
    let wanted = format!(r#"{{"event":"left","peer_id":"{}"}}"#, daemon.peer_id.as_deref().unwrap_or_default());
    let until = Instant::now() + LEAVE_MAX;
    while daemon.next_line(until.saturating_duration_since(Instant::now())).expect("it says that it has left") != wanted
    {
    }
    let status = daemon.wait_end(Duration::from_secs(10)).expect("it ends then");
    assert!(status.success(), "{status}: {}", daemon.log_text());
    let peer_state = peer_state(daemon);
    assert!(
        peer_state["ring"].is_null() && peer_state["left"].is_string() && peer_state["leaving"].is_null(),
        "{peer_state}"
    );
}

/// Asserts that a daemon ends at once when it is started like this, and prints the reason.
fn expect_refused(daemon: &mut Daemon, why: &str) {
    let status = daemon.wait_end(Duration::from_secs(10)).expect("it does not run");
    assert!(!status.success(), "{status}");
    assert!(daemon.log_text().contains(why), "{}", daemon.log_text());
}

#[test]
fn a_member_leaves_and_may_come_again() {
    let mut cluster = Cluster::start("leave", &ClusterOptions { daemons: 4, ..ClusterOptions::default() });
    write_keys(&cluster.daemons[0]);
    let mut gone = cluster.daemons.remove(3);
    let (status, output) = (gone.ask_http("/v1/status").expect("a status"), gone.run(&["leave"]));
    assert!(status["leaving"].is_null(), "{status}");
    let (out, errors) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{out}{errors}{}", gone.log_text());
    let last = format!("left peer={}\n", gone.peer_id.as_deref().unwrap_or_default());
    assert!(out.ends_with(&last) && errors.contains("interrupted"), "{out}{errors}");
    let mut steps: Vec<&str> = out.lines().collect();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps.len(), out.lines().count(), "each step once: {out}");
    expect_left(&mut gone);
    assert!(gone.directory.join("store.left-1").is_dir() && !gone.directory.join("store").exists());
    cluster.wait_members(SETTLED_MAX);
    assert_eq!(voters(&cluster.daemons[0]).len(), 3);
    expect_keys(&cluster);

    // Without `--force`, no leave takes a group below three members.
    let refused = cluster.daemons[1].run(&["leave"]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused).1.contains("--force"), "{}", text(&refused).1);
    assert_eq!(voters(&cluster.daemons[0]).len(), 3);

    // The daemon joins no network by itself. The setting that once founded its network founds no other one.
    let incarnation = peer_state(&gone)["incarnation"].as_u64();
    gone.start(&[]);
    expect_refused(&mut gone, "has left its network");
    gone.environment.push(("SCATTER_NEW".into(), "true".into()));
    gone.start(&[]);
    expect_refused(&mut gone, "only with --new on the command line");
    gone.environment.clear();
    gone.start(&["--join".into(), cluster.daemons[1].entry()]);
    gone.wait_ready(SETTLED_MAX).expect("it is let in");
    assert!(peer_state(&gone)["incarnation"].as_u64() > incarnation, "as somebody new");
    assert!(peer_state(&gone)["left"].is_null());
    cluster.daemons.push(gone);
    cluster.wait_members(SETTLED_MAX);
    expect_keys(&cluster);

    // Down to one daemon, which has all data.
    for _ in 0..3 {
        let mut gone = cluster.daemons.remove(0);
        let output = gone.run(&["leave", "--force", "--output", "json"]);
        assert_eq!(output.status.code(), Some(0), "{:?}{}", text(&output), gone.log_text());
        expect_left(&mut gone);
        cluster.wait_members(SETTLED_MAX);
    }
    expect_keys(&cluster);
    let refused = cluster.daemons[0].run(&["leave", "--force"]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(text(&refused).1.contains("SIGTERM"), "{}", text(&refused).1);
    expect_keys(&cluster);
}

#[test]
fn in_memory_mode_a_member_leaves_as_well() {
    let mut cluster =
        Cluster::start("leavemem", &ClusterOptions { daemons: 4, memory: true, ..ClusterOptions::default() });
    write_keys(&cluster.daemons[0]);
    // The founder, which perhaps leads.
    let mut gone = cluster.daemons.remove(0);
    let output = gone.run(&["leave"]);
    assert_eq!(output.status.code(), Some(0), "{:?}{}", text(&output), gone.log_text());
    expect_left(&mut gone);
    cluster.wait_members(SETTLED_MAX);
    expect_keys(&cluster);
    gone.start(&[]);
    expect_refused(&mut gone, "has left its network");
}

/// Each of two daemons leaves while clients are at work, the leaver's own as well. Acknowledged writes stay, and none of the
/// clients' operations takes effect twice.
#[test]
fn under_load_nothing_is_lost_and_nothing_happens_twice() {
    let mut cluster = Cluster::start("leaveload", &ClusterOptions { daemons: 5, ..ClusterOptions::default() });
    let endpoints = cluster.endpoints();
    let recorder = Arc::new(Recorder::default());
    let load = LiveLoad::start(&recorder, &endpoints, 8, 11, &Keys::default());
    for index in [4, 0] {
        std::thread::sleep(Duration::from_secs(2));
        let mut gone = cluster.daemons.remove(index);
        let output = gone.run(&["leave"]);
        assert_eq!(output.status.code(), Some(0), "{:?}{}", text(&output), gone.log_text());
        expect_left(&mut gone);
    }
    std::thread::sleep(Duration::from_secs(2));
    load.stop();
    cluster.wait_members(SETTLED_MAX);
    recorder.judge(&cluster.endpoints());
    assert!(recorder.answered() > 1_000, "too little was answered: {}", recorder.answered());
}

/// A daemon is killed while it leaves. Its group may have let it go already, or have heard nothing of the leave. Either way it
/// does not come back as a member, also where it is started as if to join.
#[test]
fn who_dies_while_it_leaves_goes_on_leaving() {
    let mut cluster = Cluster::start("leavekill", &ClusterOptions { daemons: 4, ..ClusterOptions::default() });
    write_keys(&cluster.daemons[0]);
    let mut went_on = 0;
    for pause in [0, 40, 150] {
        let last = cluster.daemons.len() - 1;
        let begun = cluster.daemons[last].http("POST /v1/leave").expect("it answers");
        assert!(begun["leaving"]["step"].is_string(), "{begun}");
        std::thread::sleep(Duration::from_millis(pause));
        cluster.kill(last);
        if peer_state(&cluster.daemons[last])["leaving"].is_boolean() {
            went_on += 1;
            cluster.restart(last);
            expect_left(&mut cluster.daemons[last]);
        }
        let gone = cluster.daemons.remove(last);
        cluster.wait_members(SETTLED_MAX);
        expect_keys(&cluster);
        cluster.daemons.push(gone);
        cluster.restart(last);
        cluster.wait_ready(last);
        cluster.wait_members(SETTLED_MAX);
    }
    assert!(went_on > 0, "it was never killed in time");
}

/// The daemon is killed and started again while a client waits for its leave: this does not end the leave.
#[test]
fn who_follows_a_leave_sees_it_through_a_restart() {
    let mut cluster = Cluster::start("leavefollow", &ClusterOptions { daemons: 4, ..ClusterOptions::default() });
    // No member is there to let the daemon go.
    (0..3).for_each(|index| cluster.daemons[index].signal(Signal::Freeze));
    let mut client = cluster.daemons[3].client(&["leave"]).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut lines = BufReader::new(client.stdout.take().expect("it is a pipe")).lines();
    assert!(lines.next().is_some_and(|line| line.is_ok()), "a first step");
    cluster.kill(3);
    (0..3).for_each(|index| cluster.daemons[index].signal(Signal::Thaw));
    cluster.restart(3);
    expect_left(&mut cluster.daemons[3]);
    let last = lines.map_while(Result::ok).last();
    assert!(last.as_ref().is_some_and(|last| last.starts_with("left peer=")), "{last:?}");
    assert!(client.wait().expect("it is a child").success());
    cluster.daemons.remove(3);
    cluster.wait_members(SETTLED_MAX);
}

/// One daemon announces that it will be back, and the group waits for it. Another one announces that it need not be waited for,
/// and is removed.
#[test]
fn who_stops_cleanly_is_waited_for_as_long_as_it_says() {
    let environment = vec![(4, "SCATTER_AWAY".to_owned(), "0".to_owned())];
    let mut cluster = Cluster::start("away", &ClusterOptions { daemons: 5, environment, ..ClusterOptions::default() });
    write_keys(&cluster.daemons[0]);
    let id = |index: usize| cluster.daemons[index].peer_id.clone().expect("it has said who it is");
    let (waited_for, replaced) = (id(3), id(4));
    for index in [3, 4] {
        cluster.daemons[index].signal(Signal::Terminate);
        let status = cluster.daemons[index].wait_end(Duration::from_secs(10)).expect("within 10 s");
        assert!(status.success(), "{status}");
    }
    let until = Instant::now() + SETTLED_MAX;
    while voters(&cluster.daemons[0]).contains(&replaced) {
        assert!(Instant::now() < until, "it is never put out");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The daemon that is waited for has been silent for as long.
    std::thread::sleep(Duration::from_secs(1));
    assert!(voters(&cluster.daemons[0]).contains(&waited_for));
    let before = epoch(&cluster.daemons[0]);
    cluster.restart(3);
    cluster.wait_ready(3);
    let back = cluster.daemons.remove(4);
    cluster.wait_members(SETTLED_MAX);
    assert_eq!(epoch(&cluster.daemons[0]), before, "it is the member that it was");
    cluster.daemons.push(back);
    cluster.restart(4);
    cluster.wait_ready(4);
    cluster.wait_members(SETTLED_MAX);
    assert!(epoch(&cluster.daemons[0]) > before, "it comes as somebody new");
    expect_keys(&cluster);
}
