//! Many real daemons join a network at once: all become members, and then all is quiet.
//!
//! `SCATTER_BIN` names the daemon's binary; without it, it is built. With `SCATTER_LONG=1`, forty daemons join instead of
//! twelve, and are built for speed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use testnet::live::{Cluster, ClusterOptions, GroupView, Reply, SLACK, fast_program, is_long};

const FOUNDERS: usize = 3;
/// Longest time until all are members.
const PLACED_MAX: Duration = Duration::from_secs(120);
/// Time in which nothing may change.
const QUIET: Duration = Duration::from_secs(10);
/// Longest time until all is quiet: the range is divided evenly when members have not changed for a while, and then taken over.
const QUIET_AFTER_MAX: Duration = Duration::from_secs(30);

#[test]
fn many_join_at_once_and_then_all_is_quiet() {
    let newcomers = if is_long() { 40 } else { 12 };
    let all = FOUNDERS + newcomers;
    let options = ClusterOptions {
        daemons: FOUNDERS,
        memory: true,
        // One group, with any number of members.
        flags: ["--max-memory", "64MiB", "--max-disk", "64MiB", "--max-group", "100"].map(str::to_owned).into(),
        program: is_long().then(|| fast_program().to_owned()),
        ..ClusterOptions::default()
    };
    let mut cluster = Cluster::start("joins", &options);
    let since = Instant::now();
    cluster.grow(newcomers);
    println!("{newcomers} were started within {:.1?}", since.elapsed());
    wait_for_members(&mut cluster, all, since);
    for index in cluster.all() {
        cluster.wait_ready(index);
    }
    cluster.wait_members(PLACED_MAX * SLACK);
    println!("all are members, know it, and serve after {:.1?}", since.elapsed());

    let since = Instant::now();
    while !is_even(&cluster, all) {
        assert!(since.elapsed() < QUIET_AFTER_MAX * SLACK, "not all are primaries: {:?}", cluster.daemons[0].view());
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("all are primaries {:.1?} later", since.elapsed());
    cluster.wait_serving(&cluster.all(), PLACED_MAX);
    let (before, proposals) = (agreed(&cluster), proposals(&cluster));
    rest(&cluster);
    let said: Vec<String> = self::proposals(&cluster).difference(&proposals).cloned().collect();
    assert_eq!(agreed(&cluster), before, "the group agreed on something while nothing happened: {said:?}");
    // A leader prints each of its proposals, except the horizon, which rises with time.
    assert!(said.is_empty(), "the group agreed on something while nothing happened: {said:?}");
}

/// Waits until the group has this number of members.
fn wait_for_members(cluster: &mut Cluster, all: usize, since: Instant) {
    let mut told = FOUNDERS;
    while told < all {
        let members = cluster.daemons[0].view().filter(|view| view.established).map_or(0, |view| view.voters().count());
        if members > told {
            println!("{members} members after {:.1?}", since.elapsed());
            told = members;
        }
        for daemon in &mut cluster.daemons {
            assert!(daemon.is_running(), "{} has ended: {}", daemon.name, daemon.log_text());
        }
        assert!(since.elapsed() < PLACED_MAX * SLACK, "{members} are members after {:?}", since.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Lets the cluster rest, and prints the use of the processor and of memory meanwhile.
fn rest(cluster: &Cluster) {
    let all = cluster.daemons.len();
    let (since, cpu) = (Instant::now(), cluster.daemons.iter().map(|daemon| daemon.cpu_time()).collect::<Vec<_>>());
    std::thread::sleep(QUIET);
    let took = since.elapsed();
    let mut shares: Vec<f64> = cluster
        .daemons
        .iter()
        .zip(&cpu)
        .map(|(daemon, before)| (daemon.cpu_time() - *before).as_secs_f64() / took.as_secs_f64())
        .collect();
    shares.sort_by(f64::total_cmp);
    let (sum, median, most) = (shares.iter().sum::<f64>(), shares[all / 2], shares[all - 1]);
    let mut memory: Vec<u64> = cluster.daemons.iter().map(|daemon| daemon.memory_bytes() >> 20).collect();
    memory.sort_unstable();
    println!(
        "at rest, of a core: median {:.1} %, most {:.1} %, all together {:.0} %; memory: median {} MiB, most {} MiB",
        median * 100.0,
        most * 100.0,
        sum * 100.0,
        memory[all / 2],
        memory[all - 1],
    );
}

/// Returns whether each member is primary of one part of the range.
fn is_even(cluster: &Cluster, all: usize) -> bool {
    let Some(view) = cluster.daemons[0].view() else { return false };
    let primaries: BTreeSet<&str> = view.primaries.iter().map(|primary| primary.peer_id.as_str()).collect();
    view.primaries.len() == all && primaries.len() == all
}

/// Returns each daemon's view of the group's log. Only an entry changes such a view.
fn agreed(cluster: &Cluster) -> Vec<Option<GroupView>> {
    let mut views: Vec<Option<GroupView>> = cluster.daemons.iter().map(|daemon| daemon.view()).collect();
    for view in views.iter_mut().flatten() {
        for member in &mut view.members {
            // Suspicions are each member's own.
            if member.role == "suspect" {
                member.role = "member".into();
            }
        }
    }
    views
}

/// Returns the proposals that leaders printed.
fn proposals(cluster: &Cluster) -> BTreeSet<String> {
    let logs = cluster.daemons.iter().map(|daemon| daemon.log_text());
    let lines =
        |log: String| log.lines().filter(|line| line.contains("proposes")).map(str::to_owned).collect::<Vec<_>>();
    logs.flat_map(lines).collect()
}

/// The copy of a newcomer keeps to half of the given bandwidth, and its progress is visible.
#[test]
fn a_newcomer_copies_no_faster_than_it_may() {
    const GIVEN: u64 = 1_000_000;
    const VALUES: u64 = 60;
    const VALUE_BYTES: u64 = 50_000;
    let options = ClusterOptions {
        daemons: FOUNDERS,
        flags: ["--max-bandwidth".to_owned(), GIVEN.to_string()].into(),
        ..ClusterOptions::default()
    };
    let mut cluster = Cluster::start("bandwidth", &options);
    let mut connection = cluster.daemons[0].connect(Duration::from_secs(10)).expect("it serves");
    let value = vec![b'v'; VALUE_BYTES as usize];
    for number in 0..VALUES {
        let name = format!("key {number}");
        let reply = connection.call(&[b"SET", name.as_bytes(), &value]).expect("an answer");
        assert_eq!(reply, Reply::Simple("OK".into()));
    }
    let since = Instant::now();
    cluster.grow(1);
    let newcomer = FOUNDERS;
    let mut shown = BTreeSet::new();
    while cluster.daemons[0].view().is_none_or(|view| view.voters().count() <= FOUNDERS) {
        assert!(since.elapsed() < PLACED_MAX * SLACK, "{}", cluster.daemons[newcomer].log_text());
        let status = cluster.daemons[newcomer].ask_http("/v1/status").unwrap_or_default();
        let transfers = status.pointer("/groups/0/transfers").and_then(|transfers| transfers.as_array());
        shown.insert(transfers.into_iter().flatten().filter_map(|transfer| transfer["bytes"].as_u64()).sum::<u64>());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (took, bytes) = (since.elapsed(), VALUES * VALUE_BYTES);
    println!("{bytes} bytes were copied in {took:.1?} at {} a second; seen on the way: {shown:?}", GIVEN / 2);
    // Pages on their way when the rate is reached still come, for each of the parts.
    let least = Duration::from_secs(bytes * 2 / GIVEN).mul_f64(0.6);
    assert!(took > least, "{bytes} bytes were copied within {took:?}");
    assert!(shown.len() > 3, "nothing was to be seen of it: {shown:?}");
}
